"""LoRA adapters: parameters in a file of onnxruntime's that take the place of a model's defaults in a run.

    adapter = LoraAdapter()
    adapter.Load("style.onnx_adapter")
    options = RunOptions()
    options.add_active_adapter(adapter)
    session.run(None, feeds, options)

Such a file is a FlatBuffer: a table of three versions and a list of parameters, each with a name, sizes, an element
type and bytes.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jitonnx.api.values import OrtValue
from jitonnx.errors import Fail, InvalidArgument, NoSuchFile
from jitonnx.ir.dtypes import DType
from jitonnx.support import fork_safety
from jitonnx.support.atomic_files import replacing
from jitonnx.support.flatbuffers import FlatbufferError, Table, Writer, root
from jitonnx.support.records import NamedTuple

_IDENTIFIER = b"TORT"
_FORMAT = 1
"""The version of the file format."""
_BOUNDARY = 64
"""What elements of a parameter begin at a multiple of."""
_TYPES = frozenset(
    [DType.FLOAT, DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16]
    + [DType[f"{sign}INT{bits}"] for sign in ("", "U") for bits in (8, 16, 32, 64)]
)
"""The element types that onnxruntime reads."""


class _Versions(NamedTuple):
    format: int = _FORMAT
    adapter: int = 0
    model: int = 0


class LoraAdapter:
    """The parameters of a file, which `RunOptions.add_active_adapter` has a run take for inputs with defaults."""

    def __init__(self) -> None:
        self._parameters: Mapping[str, OrtValue] | None = None

    def Load(self, path: str) -> None:
        """Map a file into memory. It must not be overwritten in place while it is in use; replacing it is safe.

        NoSuchFile; InvalidArgument for what is no adapter, and tells why.
        """
        _, self._parameters = _read(path)

    @property
    def parameters(self) -> Mapping[str, OrtValue]:
        """The parameters by name. InvalidArgument if no file was loaded. (Not in onnxruntime.)"""
        if self._parameters is None:
            raise InvalidArgument("a LoraAdapter is active that has no parameters: call its method Load before the run")
        return self._parameters


class AdapterFormat:
    """A file of parameters, read or in the making."""

    def __init__(self, adapter: AdapterFormat | None = None) -> None:
        self._versions, self._parameters = _Versions(), dict[str, OrtValue]()
        if adapter is not None:
            self._versions, self._parameters = adapter._versions, adapter._parameters

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """What a file holds. Errors as for `LoraAdapter.Load`."""
        made = AdapterFormat()
        made._versions, made._parameters = _read(file_path)
        return made

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """Write a file. Fail if it cannot be written, InvalidArgument for parameters that it cannot hold."""
        try:
            content = self._content()
        except FlatbufferError as error:
            raise InvalidArgument(f"the parameters cannot be written: {error}") from error
        try:
            with replacing(Path(file_path)) as file:
                file.write(content)
        except OSError as error:
            raise Fail(f"Failed to open file:{os.fspath(file_path)!r} for writing: {error.strerror}") from error

    def _content(self) -> bytearray:
        writer = Writer(_IDENTIFIER)
        adapter = writer.table(4)
        for field, version in enumerate(self._versions):
            writer.set_integer(adapter, field, version)
        places = writer.set_tables(adapter, 3, len(self._parameters))
        for place, (name, value) in zip(places, self._parameters.items(), strict=True):
            _check_type(name, value.element_type())
            table = writer.table(4)
            writer.point(place, table)
            writer.set_text(table, 0, name)
            writer.set_integers(table, 1, value.shape())
            writer.set_integer(table, 2, value.element_type())
            elements = value._elements()
            writer.set_bytes(table, 3, elements.reshape(-1).view(np.uint8).data, _BOUNDARY)
        return writer.finished()

    def get_format_version(self) -> int:
        """The version of the file format."""
        return self._versions.format

    def set_adapter_version(self, adapter_version: int) -> None:
        """Which version of the adapter it is, a number of 32 bits."""
        self._versions = self._versions._replace(adapter=_version(adapter_version))

    def get_adapter_version(self) -> int:
        """The version of the adapter."""
        return self._versions.adapter

    def set_model_version(self, model_version: int) -> None:
        """Set the version of the model that it is for, a number of 32 bits."""
        self._versions = self._versions._replace(model=_version(model_version))

    def get_model_version(self) -> int:
        """The version of the model that the adapter is for."""
        return self._versions.model

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Set all parameters. TypeError for what are no OrtValues; `export_adapter` refuses types."""
        for name, value in params.items():
            if not isinstance(name, str) or not isinstance(value, OrtValue):
                raise TypeError(f"parameters are OrtValues by name, and {name!r} is a {type(value).__name__}")
        self._parameters = dict(params)

    def get_parameters(self) -> dict[str, OrtValue]:
        """The parameters by name, those that were read as views into the file, which can't be written to."""
        return dict(self._parameters)

    # What onnxruntime's inner class of this name has.
    format_version = property(get_format_version)
    adapter_version = property(get_adapter_version, set_adapter_version)
    model_version = property(get_model_version, set_model_version)
    parameters = property(get_parameters, set_parameters)


def _version(number: int) -> int:
    found = operator.index(number)
    if not -(1 << 31) <= found < 1 << 31:
        raise TypeError(f"{number} is no number of 32 bits")
    return found


def _check_type(name: str, number: int) -> DType:
    """The element type of this number. InvalidArgument for one that adapters do not have."""
    if number not in _TYPES:
        known = ", ".join(sorted(dtype.text for dtype in _TYPES))
        what = DType(number).name if number in list(DType) else f"the number {number}"
        raise InvalidArgument(f"Lora Param '{name}': data_type '{number}' is {what}; allowed are {known}")
    return DType(number)


def _read(path: str | os.PathLike[str]) -> tuple[_Versions, dict[str, OrtValue]]:
    """The versions and parameters in a file."""
    data = _content(path)
    try:
        table = root(data, _IDENTIFIER)
        versions = _Versions(*(table.integer(field) for field in range(3)))
        if versions.format != _FORMAT:
            raise FlatbufferError(f"its format version is {versions.format}, and known is {_FORMAT}")
        parameters: dict[str, OrtValue] = {}
        for parameter in table.tables(3):
            name = parameter.text(0)
            if name in parameters:
                raise FlatbufferError(f"two parameters are named {name!r}")
            parameters[name] = _value(name, parameter)
    except FlatbufferError as error:
        raise InvalidArgument(
            f"The buffer does not appear to be a valid lora parameter format: {os.fspath(path)!r}: {error}"
        ) from error
    return versions, parameters


def _value(name: str, parameter: Table) -> OrtValue:
    shape, content = parameter.integers(1, _MOST_AXES), parameter.bytes(3)
    dtype = _check_type(name, parameter.integer(2))
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise FlatbufferError(f"parameter {name!r} is {dtype.text}{list(shape)}, and {len(content)} bytes are there")
    stored = np.dtype(np.uint16) if dtype is DType.BFLOAT16 else dtype.numpy
    elements = np.frombuffer(content, stored) if len(content) else np.empty(0, stored)
    try:
        return OrtValue.of(np.require(elements, None, ["A"]).reshape(shape), dtype)
    except ValueError as error:  # sizes that are too large beside one of 0
        raise FlatbufferError(f"parameter {name!r} is {dtype.text}{list(shape)}: {error}") from error


_MOST_AXES = 32
"""Axes of an array at most: NumPy's, before version 2."""


def _content(path: str | os.PathLike[str]) -> memoryview:
    """The content of a file."""
    try:
        with open(path, "rb") as file, fork_safety.safepoint:  # whoever writes to a pipe may have to be forked yet
            return memoryview(file.read())  # not mapped: adapters are small, and files may be written to
    except FileNotFoundError:
        raise NoSuchFile(f"there is no adapter {os.fspath(path)!r} (the working directory is {Path.cwd()})") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise InvalidArgument(f"the adapter {os.fspath(path)!r} cannot be read: {error}") from error
