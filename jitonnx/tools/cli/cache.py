"""`jitonnx cache info|clear`: the compiled kernels on disk."""

from __future__ import annotations

import argparse
from typing import Any


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("cache", help="look at the kernels kept on disk, or remove them")
    parser.add_argument("action", choices=("info", "clear"))
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Print what the cache holds, or empty it."""
    from jitonnx.api.units import nbytes
    from jitonnx.support.kernel_cache import KernelCache

    cache = KernelCache()
    if options.action == "clear":
        models = cache.info().models
        print(f"removed {_counted(cache.clear(), models)} from {cache.directory}")
        return
    info = cache.info()
    sizes = f"{nbytes(info.bytes - info.model_bytes)} of at most {nbytes(info.limit)}"
    if info.models:
        sizes += f", and {nbytes(info.model_bytes)} of at most {nbytes(info.model_limit)}"
    print(f"{info.directory}: {_counted(info.entries, info.models)}, {sizes}")
    if info.problem:
        print(f"not in use: {info.problem}")


def _counted(entries: int, models: int) -> str:
    """How many entries there are, by kind."""
    return f"{entries - models} kernels" + (f" and {models} whole model{'s' * (models > 1)}" if models else "")
