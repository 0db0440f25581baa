"""Functions about this installation, under onnxruntime's names: providers, device, versions."""

from __future__ import annotations

import operator
import platform
import sys

from jitonnx.api.providers import ALL, CPU
from jitonnx.support import draws
from jitonnx.support.versions import VERSION

INTERFACE_VERSION = "1.31.1"
"""The version of onnxruntime whose interface this is: what code that takes jitonnx for onnxruntime is told."""


def get_available_providers() -> list[str]:
    """The execution providers that can be used: the CPU's."""
    return [CPU]


def get_all_providers() -> list[str]:
    """Every name of a provider that onnxruntime knows, whether it is here or not."""
    return list(ALL)


def get_device() -> str:
    """What models run on: "CPU"."""
    return "CPU"


def get_version_string() -> str:
    """jitonnx's version."""
    return VERSION


def get_build_info() -> str:
    """The versions of jitonnx and of what it compiles with, in one line."""
    import importlib.metadata  # takes 18 ms, which a session saves

    packages = ", ".join(f"{name}={importlib.metadata.version(name)}" for name in ("numpy", "llvmlite"))
    return f"jitonnx Build Info: version={get_version_string()}, {packages}, python={platform.python_version()}"


def enable_telemetry_events() -> None:
    """Accepted, without effect: nothing is ever sent."""


def disable_telemetry_events() -> None:
    """Accepted, without effect: nothing is ever sent."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Accepted, without effect: there are no libraries to load."""


def has_collective_ops() -> bool:
    """Whether operators between machines are here: False."""
    return False


def set_default_logger_verbosity(level: int) -> None:
    """Accepted, without effect: severities say how much is logged (`set_default_logger_severity`)."""
    operator.index(level)


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Accepted, without effect: sessions with as many threads share them in any case."""


def print_debug_info() -> None:
    """Print the versions of jitonnx and of what it compiles with, the platform, and where jitonnx lies."""
    print(f"{get_build_info()}\nplatform: {platform.platform()}\njitonnx: {sys.modules['jitonnx'].__file__}")


def set_seed(seed: int) -> None:
    """Seed what operators without an attribute `seed` draw in sessions that are made from now on.

    Sessions made in the same order draw the same numbers then, run by run. TypeError for what is no integer.
    """
    draws.set_seed(operator.index(seed))


def interface_version() -> str:
    """The version of onnxruntime whose interface this is. (`get_version_string` of who takes jitonnx for it.)"""
    return INTERFACE_VERSION
