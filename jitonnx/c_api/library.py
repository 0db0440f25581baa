"""Opening a library of custom operators, and having it register them."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from typing import Any

from jitonnx import errors
from jitonnx.c_api import functions
from jitonnx.c_api.elf import make_unshared
from jitonnx.c_api.errors import Refused
from jitonnx.c_api.handles import find, new, release, store
from jitonnx.c_api.operators import CustomOp, LibraryOperator, declaration
from jitonnx.c_api.table import BASE, POINTER, TEXT, asked_versions, function, take_status
from jitonnx.support import fork_safety

_REGISTER = "RegisterCustomOps"


class CustomOpDomain:
    """A domain, and the operators that a library adds to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operators: list[int] = []


class SessionOptions:
    """What a library registers its domains with."""

    def __init__(self) -> None:
        self.domains: list[CustomOpDomain] = []


def register(path: str) -> list[type[LibraryOperator]]:
    """The declarations of a library's operators, which its function RegisterCustomOps registers.

    The library's code is run, and stays in the process. Fail for a file that is not there, is no library, or has no
    such function, or operators that cannot be had here; the error of a status that it gives.
    """
    library = _opened(path)
    registering = getattr(library, _REGISTER, None)
    if registering is None:
        raise errors.Fail(
            f"Failed to get symbol {_REGISTER} with error: {path} has no such function: it is no library of custom "
            "operators"
        )
    registering.restype, registering.argtypes = POINTER, [POINTER, POINTER]
    options = SessionOptions()
    pointer = new(options)
    asked_versions.clear()
    try:
        failed = take_status(registering(pointer, BASE))
    finally:
        release(pointer)
    newer = [version for version in asked_versions if version > functions.VERSION]
    about = f"the library of custom operators {path}: "
    if newer:
        about += (
            f"it asks for version {newer[0]} of onnxruntime's C interface, and {functions.VERSION} is the newest here; "
        )
    if failed is not None:
        raise failed.error(f"{about}{failed.text}")
    try:
        return [made for domain in options.domains for made in _declarations(domain, path)]
    except Refused as refused:
        raise refused.error(f"{about}{refused.text}") from None


def _opened(path: str) -> Any:
    if _beside_onnxruntime():
        return _copied(os.path.realpath(path), os.stat(path).st_mtime_ns) if os.path.exists(path) else _loaded(path)
    return _loaded(path)


def _beside_onnxruntime() -> bool:
    """Whether onnxruntime itself is in this process, and not jitonnx in its place.

    Libraries keep the table of functions that they are given first, for all that they do: with onnxruntime's and our
    objects they would crash. So they are opened twice then, ours as a copy.
    """
    module = sys.modules.get("onnxruntime.capi.onnxruntime_pybind11_state")
    return module is not None and not (module.__file__ or "").endswith(".py")


@fork_safety.once
def _copied(path: str, changed: int) -> Any:
    """A library of its own, which the process may have open already. changed: when the file was."""
    with tempfile.NamedTemporaryFile(prefix="jitonnx-", suffix=os.path.basename(path)) as copy:
        with open(path, "rb") as file:
            content = bytearray(file.read())
        make_unshared(content)
        copy.write(content)
        copy.flush()
        return _loaded(copy.name, path)


def _loaded(place: str, path: str = "") -> Any:
    """What lies at a place, which is said to be that of `path`."""
    path = path or place
    try:
        # What is linked to onnxruntime itself asks for its OrtGetApiBase, which nobody has here.
        return ctypes.CDLL(place)
    except OSError as error:
        reason = str(error)
        if "OrtGetApiBase" in reason:
            reason += ": the library is linked to onnxruntime itself; it has to use what RegisterCustomOps is given"
        raise errors.Fail(f"Failed to load library {path} with error: {reason}") from error


def _declarations(domain: CustomOpDomain, path: str) -> list[type[LibraryOperator]]:
    by_name: dict[str, list[CustomOp]] = {}
    for address in domain.operators:
        one = CustomOp(address)
        by_name.setdefault(one.name, []).append(one)
    return [declaration(domain.name, path, candidates) for candidates in by_name.values()]


@function("CreateCustomOpDomain", TEXT, POINTER)
def _create_domain(name: bytes | None, out: int) -> None:
    store(out, POINTER, new(CustomOpDomain((name or b"").decode())))


@function("CustomOpDomain_Add", POINTER, POINTER)
def _add(domain: int, operator: int | None) -> None:
    if not operator:
        raise Refused("a null pointer was given for an operator")
    find(domain, CustomOpDomain).operators.append(operator)


@function("AddCustomOpDomain", POINTER, POINTER)
def _add_domain(options: int, domain: int) -> None:
    find(options, SessionOptions).domains.append(find(domain, CustomOpDomain))
