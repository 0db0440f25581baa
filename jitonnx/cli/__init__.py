"""The command line: `jitonnx COMMAND ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from jitonnx.cli import bench, cache, compile, demo, explain, profile, run

COMMANDS = (demo, run, compile, explain, bench, profile, cache)
"""Modules with `add(subparsers)`, which sets the function to call as `command`."""


INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = argparse.ArgumentParser(prog="jitonnx", description="Run ONNX models on CPUs, compiled to native code.")
    made.add_argument("--version", action="store_true", help="print the version and end")
    subparsers = made.add_subparsers(title="commands", metavar="COMMAND")
    for module in COMMANDS:
        module.add(subparsers)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 after a message about what went wrong, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)
    if options.version:
        from jitonnx.api.environment import get_version_string

        print(f"jitonnx {get_version_string()}")
        return 0
    if not hasattr(options, "command"):
        parser().print_help()
        return 1
    return _reported(options)


def _reported(options: argparse.Namespace) -> int:
    from jitonnx.errors import Error

    try:
        options.command(options)
    except (Error, OSError) as error:
        print(f"jitonnx: {error.text if isinstance(error, Error) else error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        print("\njitonnx: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0
