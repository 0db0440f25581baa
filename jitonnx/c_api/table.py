"""The table of functions that a library is given (OrtApiBase, OrtApi), with what becomes of a call.

A function here is one of Python's, by ctypes, under the global interpreter lock, which libraries' own code runs
without. What it raises becomes an OrtStatus: nothing is thrown into a library.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

from jitonnx.c_api import functions
from jitonnx.c_api.errors import FAIL, NOT_IMPLEMENTED, Refused
from jitonnx.c_api.handles import find, new, release, store, write_text
from jitonnx.support import fork_safety
from jitonnx.support.log import logger

POINTER, SIZE, TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
_STATUS: Any = object()
_F = TypeVar("_F", bound=Callable[..., Any])

_written: dict[str, Any] = {}
"""The functions of ctypes by name."""


class Status:
    """A code and a text, whose memory lives as long."""

    def __init__(self, code: int, text: bytes) -> None:
        self.code, self.text = code, ctypes.create_string_buffer(text)


def _status(error: BaseException) -> int:
    """The pointer of a status that says what was raised."""
    if isinstance(error, Refused):
        return new(Status(error.code, error.text.encode("utf-8", "replace")))
    return new(Status(FAIL, f"{type(error).__name__}: {error}".encode("utf-8", "replace")))


def function(name: str, *kinds: Any, gives: Any = _STATUS) -> Callable[[_F], _F]:
    """Put a function of Python's into the table, under its name there.

    kinds: of its arguments, types of ctypes. gives: the type of its result; not given: a status, and the function says
    by an exception what went wrong. One that gives no status cannot say that; it gives 0, and the log has the reason.
    """

    def take(written: _F) -> _F:
        def with_status(*arguments: Any) -> int | None:
            try:
                written(*arguments)
            except Exception as error:  # whatever it is: no exception may reach a library
                return _status(error)
            return None

        def without(*arguments: Any) -> Any:
            try:
                return written(*arguments)
            except Exception as error:
                logger.error("%s, called by a library of custom operators: %s", name, error)
                return None if gives in (None, POINTER) else 0

        assert name in functions.NAMES, f"Bug: there is no function {name}"
        plain = gives is _STATUS
        _written[name] = ctypes.CFUNCTYPE(POINTER if plain else gives, *kinds)(with_status if plain else without)
        return written

    return take


def getter(name: str, owner: type, result: Any, get: Callable[..., Any], *kinds: Any) -> None:
    """Put a function into the table that tells something of an object.

    It is given the object's pointer, arguments of `kinds`, and at last where to put get(object, *arguments), which is
    of the type `result`; TEXT: bytes, for which there is a place for their number, too (`write_text`).
    """

    def tell(pointer: int, *arguments: Any) -> None:
        value, places = get(find(pointer, owner), *arguments[: len(kinds)]), arguments[len(kinds) :]
        if result is TEXT:
            write_text(value, *places)
        else:
            store(places[0], result, value)

    function(name, POINTER, *kinds, *[POINTER] * (2 if result is TEXT else 1))(tell)


def take_status(pointer: int | None) -> Refused | None:
    """What a status says that a library gave, which is released; None for a null pointer: all went well."""
    if not pointer:
        return None
    try:
        status = find(pointer, Status)
    except Refused as error:
        return error
    release(pointer)
    return Refused(status.text.value.decode("utf-8", "replace"), status.code)


# ---------------------------------------------------------------------------------------------- what all need


@function("CreateStatus", ctypes.c_int, TEXT, gives=POINTER)
def _create_status(code: int, text: bytes | None) -> int:
    return new(Status(code, text or b""))


@function("GetErrorCode", POINTER, gives=ctypes.c_int)
def _code(status: int) -> int:
    return find(status, Status).code


@function("GetErrorMessage", POINTER, gives=POINTER)
def _message(status: int) -> int:
    return ctypes.addressof(find(status, Status).text)


@function("GetBuildInfoString", gives=POINTER)
def _build_info() -> int:
    return ctypes.addressof(_BUILD)


_BUILD = ctypes.create_string_buffer(b"jitonnx")
_VERSION = ctypes.create_string_buffer(f"1.{functions.VERSION}.0".encode())
for _kind in ("Status", "MemoryInfo", "Value", "TensorTypeAndShapeInfo", "CustomOpDomain", "OpAttr", "KernelInfo"):
    function(f"Release{_kind}", POINTER, gives=None)(release)


# ---------------------------------------------------------------------------------------------- the table


class _Base(ctypes.Structure):
    """OrtApiBase."""

    _fields_ = [("get_api", POINTER), ("get_version", POINTER)]


@fork_safety.once
def api() -> int:
    """The address of the table, OrtApi, which stays to the end of the process."""
    count = len(functions.NAMES) + functions.ROOM
    table = (POINTER * count)()
    called = [_function_at(place) for place in range(count)]
    table[:] = [ctypes.cast(one, POINTER).value for one in called]
    # Libraries release what they hold when the process ends: after Python has gone, by this table.
    for kept in (table, called, _written):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    atexit.register(_end, table)
    return ctypes.addressof(table)


def _function_at(place: int) -> Any:
    name = functions.NAMES[place] if place < len(functions.NAMES) else ""
    if name in _written:
        return _written[name]
    shown = name or f"number {place} of OrtApi"

    if name and not functions.gives_status(name):

        def nothing() -> None:
            logger.error("a library of custom operators called %s of onnxruntime, which is not here", shown)

        return ctypes.CFUNCTYPE(POINTER)(nothing)

    def refuse() -> int:
        text = f"the function {shown} of onnxruntime's C interface is not here for libraries of custom operators"
        return _status(Refused(text, NOT_IMPLEMENTED))

    return ctypes.CFUNCTYPE(POINTER)(refuse)


def _end(table: Any) -> None:
    """Have the functions that release something do nothing: Python is about to end, and cannot be called then."""
    nothing = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, POINTER).value
    for place, name in enumerate(functions.NAMES):
        if name.startswith("Release"):
            table[place] = nothing


asked_versions: list[int] = []
"""The versions of the interface that libraries have asked for."""


def _get_api(version: int) -> int | None:
    asked_versions.append(version)
    if 1 <= version <= functions.VERSION:
        return api()
    logger.error(
        "The requested API version [%d] is not available, only API versions [1, %d] are supported: the library of "
        "custom operators was built for a newer onnxruntime",
        version,
        functions.VERSION,
    )
    return None


def _get_version() -> int:
    return ctypes.addressof(_VERSION)


_base_functions = (ctypes.CFUNCTYPE(POINTER, ctypes.c_uint32)(_get_api), ctypes.CFUNCTYPE(POINTER)(_get_version))
_BASE = _Base(*(ctypes.cast(one, POINTER).value for one in _base_functions))
BASE = ctypes.addressof(_BASE)
"""The address of OrtApiBase."""
