"""Functions about this installation, under onnxruntime's names: providers, device, versions."""

from __future__ import annotations

import importlib.metadata
import platform

from jitonnx.api.providers import ALL, CPU


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
    return importlib.metadata.version("jitonnx")


def get_build_info() -> str:
    """The versions of jitonnx and of what it compiles with, in one line."""
    packages = ", ".join(f"{name}={importlib.metadata.version(name)}" for name in ("numpy", "numba", "llvmlite"))
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
