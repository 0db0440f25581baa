"""Names of onnxruntime's interface that packages import and that mean nothing here: who uses them is told so."""

from __future__ import annotations

from typing import Any, ClassVar

from jitonnx import errors
from jitonnx.api.enumerations import Enumeration
from jitonnx.support.records import NamedTuple


class _Refused:
    """A class that can be imported and asked `isinstance` with. NotImplemented for who makes one."""

    why: ClassVar[str]

    def __init__(self, *_: Any, **__: Any) -> None:
        raise errors.NotImplemented(f"{type(self).__name__}: {self.why}")


class ModelCompiler(_Refused):
    """onnxruntime's compiler of models for execution providers."""

    why = "models are not compiled for execution providers; `jitonnx compile` and InferenceSession.save compile them"


class OrtSyncStream(_Refused):
    """A stream of a device."""

    why = "a CPU has no streams"


class OrtEpAssignedNode(_Refused):
    """A node that an execution provider has got."""

    why = "jitonnx.tools.explain tells what became of each node"


class OrtEpAssignedSubgraph(OrtEpAssignedNode):
    """Nodes that an execution provider has got."""


class OrtEpContextData(_Refused):
    """What an execution provider keeps in a model."""

    why = "there is no execution provider but the CPU's"


class OrtEpContextDataBuffer(OrtEpContextData):
    """Memory for it."""


class OrtExternalInitializerInfo(NamedTuple):
    """It says where the data of an initializer lies."""

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


def register_execution_provider_library(name: str, path: str) -> None:
    """Fail: jitonnx runs models itself."""
    raise errors.Fail(f"Failed to load library {path}: execution providers such as {name!r} are made for onnxruntime")


def unregister_execution_provider_library(name: str) -> None:
    """Fail: none was registered."""
    raise errors.Fail(f"Execution provider library: {name} was not registered.")
