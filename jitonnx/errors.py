"""The errors that users see: onnxruntime's classes, names, codes and message prefixes, under one base class.

Code that catches onnxruntime's errors by name, or matches their text, finds the same here; what helps to mend the fault
stands behind onnxruntime's text. Each class is also the builtin error that comes closest.
"""

from __future__ import annotations

from typing import ClassVar


class Error(RuntimeError):
    """Base of all errors that jitonnx raises for a model or for what it is fed.

    The text is "[ONNXRuntimeError] : CODE : NAME : text", as onnxruntime writes it.
    """

    code: ClassVar[int] = 1
    label: ClassVar[str] = "FAIL"

    def __init__(self, text: str) -> None:
        self.text = text
        """The message without its prefix."""
        super().__init__(f"[ONNXRuntimeError] : {self.code} : {self.label} : {text}")

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type[Error], tuple[str]]:
        return type(self), (self.text,)


class Fail(Error):
    """A model, or a step of a run, that cannot be carried out."""


class InvalidArgument(Error, ValueError):
    """Something given that does not fit: an input's name, type or shape, or a graph that contradicts itself."""

    code, label = 2, "INVALID_ARGUMENT"


class NoSuchFile(Error, FileNotFoundError):
    """A model file that does not exist."""

    code, label = 3, "NO_SUCHFILE"


class NoModel(Error):
    """No model where one is needed."""

    code, label = 4, "NO_MODEL"


class EngineError(Error):
    """The engine itself failed."""

    code, label = 5, "ENGINE_ERROR"


class RuntimeException(Error):
    """A node failed while it ran."""

    code, label = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(Error):
    """Bytes that are no ONNX model."""

    code, label = 7, "INVALID_PROTOBUF"


class ModelLoaded(Error):
    """A model is loaded already."""

    code, label = 8, "MODEL_LOADED"


class NotImplemented(Error, NotImplementedError):
    """Valid ONNX that jitonnx cannot run yet."""

    code, label = 9, "NOT_IMPLEMENTED"


class InvalidGraph(Error):
    """A graph that breaks ONNX's rules, or uses operators that nobody knows."""

    code, label = 10, "INVALID_GRAPH"


class EPFail(Error):
    """An execution provider failed."""

    code, label = 11, "EP_FAIL"


class ModelLoadCanceled(Error):
    """Loading was called off."""

    code, label = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(Error):
    """A model that has to be compiled first."""

    code, label = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(Error):
    """Something asked for by name does not exist."""

    code, label = 14, "NOT_FOUND"


class DeviceReset(Error):
    """A device was reset while it computed."""

    code, label = 15, "DEVICE_RESET"
