"""Names of onnxruntime-genai's that are for what jitonnx lacks, and functions about devices and libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitonnx import errors


class _Refused:
    """Base of classes that there is nothing behind."""

    what = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise errors.NotImplemented(f"{type(self).__name__} is not implemented: {self.what}")

    @classmethod
    def open(cls, *_: Any) -> Any:
        """NotImplemented, always."""
        return cls()

    @classmethod
    def open_bytes(cls, *_: Any) -> Any:
        """NotImplemented, always."""
        return cls()


class StreamingProcessor(_Refused):
    """Audio as it comes."""

    what = "models that take audio as it comes (nemotron_speech) are not supported, those of whole sounds are"


class MtpGenerator(_Refused):
    """A generator with a head that predicts several tokens."""

    what = "speculative decoding is not supported"


def is_cuda_available() -> bool:
    """False, always."""
    return False


def is_dml_available() -> bool:
    """False, always."""
    return False


def is_openvino_available() -> bool:
    """False, always."""
    return False


def is_qnn_available() -> bool:
    """False, always."""
    return False


def is_webgpu_available() -> bool:
    """False, always."""
    return False


def get_current_gpu_device_id() -> int:
    """0, always."""
    return 0


def set_current_gpu_device_id(device_id: int) -> None:
    """Accepted, without effect."""


def register_execution_provider_library(name: str, path: str) -> None:
    """NotImplemented, always."""
    raise errors.NotImplemented(f"execution provider {name!r} cannot be registered: jitonnx runs on CPUs alone")


def unregister_execution_provider_library(name: str) -> None:
    """NotImplemented, always."""
    raise errors.NotImplemented(f"execution provider {name!r} was not registered")


def set_log_options(**options: Any) -> None:
    """Accepted, without effect: `jitonnx.set_default_logger_severity` says what is logged."""


def set_log_callback(callback: Callable[[str], None] | None) -> None:
    """Accepted, without effect."""


def enable_telemetry_events() -> None:
    """Accepted, without effect: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Accepted, without effect: there is no telemetry."""
