"""Functions about this installation, under onnxruntime's names: providers, device, versions."""

from __future__ import annotations

import operator
import platform
import sys
from typing import TYPE_CHECKING

from jitonnx.api.providers import ALL, CPU
from jitonnx.errors import RuntimeException
from jitonnx.support import draws
from jitonnx.support.versions import VERSION

if TYPE_CHECKING:
    from jitonnx.api.options import SessionOptions

_GLOBAL_POOL: set[bool] = set()
"""Not empty once `set_global_thread_pool_sizes` was called."""

INTERFACE_VERSION = "1.32.0"
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
    """Declare that sessions may have `use_per_session_threads` = False; sessions with as many threads share them in any
    case. TypeError for what is no integer."""
    operator.index(intra_op_num_threads), operator.index(inter_op_num_threads)
    _GLOBAL_POOL.add(True)  # noqa: FBT003  (a set's)


def check_thread_pool(options: SessionOptions) -> None:
    """RuntimeException for options that ask for threads of the process where no `set_global_thread_pool_sizes` was."""
    if not options.use_per_session_threads and not _GLOBAL_POOL:
        raise RuntimeException(
            "When the session is not configured to use per session threadpools, the env must be created with the "
            "CreateEnvWithGlobalThreadPools API: call set_global_thread_pool_sizes first, or leave "
            "use_per_session_threads as it is"
        )


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
