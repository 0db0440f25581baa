"""Names of onnxruntime's interface that packages import and that mean nothing here: who uses them is told so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from jitonnx import errors
from jitonnx.api.enumerations import Enumeration
from jitonnx.api.providers import CPU
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.api.devices import OrtEpDevice, OrtHardwareDevice

_COMPATIBILITY = "ep_compatibility_info."
"""How the keys of a model's metadata begin under which execution providers leave what they need."""


class _Refused:
    """A class that can be imported and asked `isinstance` with. NotImplemented for who makes one."""

    why: ClassVar[str]

    def __init__(self, *_: Any, **__: Any) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise errors.NotImplemented(f"{type(self).__name__}: {self.why}")


class OrtSyncStream(_Refused):
    """A stream of a device."""

    why = "a CPU has no streams"

    def get_handle(self) -> NoReturn:
        """There is no stream that could be asked."""
        self._refuse()


class OrtEpContextData(_Refused):
    """What an execution provider keeps in a model."""

    why = "there is no execution provider but the CPU's"

    def read(self, *_: Any) -> NoReturn:
        """There is nothing to read."""
        self._refuse()

    @property
    def size(self) -> NoReturn:
        """There is nothing to measure."""
        self._refuse()


class OrtEpContextDataBuffer(_Refused):
    """Memory for it."""

    why = OrtEpContextData.why

    def allocate(self, *_: Any) -> NoReturn:
        """There is nothing that memory were for."""
        self._refuse()

    def write(self, *_: Any) -> NoReturn:
        """There is nothing to write to."""
        self._refuse()

    @property
    def size(self) -> NoReturn:
        """There is nothing to measure."""
        self._refuse()

    max_size = is_allocated = size


class OrtExternalInitializerInfo(NamedTuple):
    """The place of an initializer's data."""

    filepath: str
    file_offset: int
    byte_size: int


class OrtCompileApiFlags(Enumeration):
    """Settings of onnxruntime's `ModelCompiler`."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtCompiledModelCompatibility(Enumeration):
    """Whether a model compiled for an execution provider suits the one that is here."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtDeviceEpIncompatibilityReason(Enumeration):
    """Why a device does not suit an execution provider."""

    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4
    UNKNOWN = -(2**31)


class SessionObjectInitializer:
    """What onnxruntime's inner sessions were once made with; `get_session_initializer` gives one."""


def get_session_initializer() -> SessionObjectInitializer:
    """Something that nothing asks for any more."""
    return SessionObjectInitializer()


def get_model_compatibility_for_ep_devices(devices: Sequence[OrtEpDevice], info: str) -> OrtCompiledModelCompatibility:
    """EP_NOT_APPLICABLE: the CPU runs no model that was compiled for another device.

    InvalidArgument for no devices, TypeError for what is no text.
    """
    if not isinstance(info, str):
        raise TypeError(f"the compatibility's text is a str, not {info!r}")
    if not devices:
        raise errors.InvalidArgument("Invalid argument provided to GetModelCompatibilityForEpDevices: no device")
    return OrtCompiledModelCompatibility.EP_NOT_APPLICABLE


def get_hardware_device_ep_incompatibility_details(name: str, device: OrtHardwareDevice) -> dict[str, Any]:
    """Nothing speaks against the CPU for the CPU's provider. InvalidArgument for others."""
    if name != CPU:
        raise errors.InvalidArgument(f"No valid factory found for execution provider '{name}'.")
    return {"reasons_bitmask": 0, "notes": None, "error_code": 0}


def get_compatibility_info_from_model(path: str, name: str) -> str | None:
    """What a model's metadata tells of an execution provider that compiled it; None if nothing.

    InvalidArgument for no name, NoSuchFile, InvalidProtobuf.
    """
    return _compatibility(path, name, "GetCompatibilityInfoFromModel")


def get_compatibility_info_from_model_bytes(data: Any, name: str) -> str | None:
    """`get_compatibility_info_from_model` of a model's bytes. InvalidArgument for none."""
    return _compatibility(bytes(memoryview(data)), name, "GetCompatibilityInfoFromModelBytes")


def _compatibility(source: str | bytes, name: str, asked: str) -> str | None:
    if not name or source == b"":
        raise errors.InvalidArgument(f"Invalid argument provided to {asked}.")
    from jitonnx.model.load import parsed

    metadata = parsed(source)[0].metadata_props
    return next((entry.value for entry in metadata if entry.key == _COMPATIBILITY + name), None)


def register_execution_provider_library(name: str, path: str) -> None:
    """Fail: jitonnx runs models itself."""
    raise errors.Fail(f"Failed to load library {path}: execution providers such as {name!r} are made for onnxruntime")


def unregister_execution_provider_library(name: str) -> None:
    """Fail: none was registered."""
    raise errors.Fail(f"Execution provider library: {name} was not registered.")
