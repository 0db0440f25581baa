"""Linking ahead: the driver and test kernels, linked without LLVM, run as they do when LLVM links them."""

import ctypes
import os
import sys

import numpy as np
import pytest

from jitonnx.runtime.driver import PARTS, driver_code
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.linker import UnlinkableError, link
from jitonnx.runtime.loader import LoadError
from jitonnx.runtime.mapping import Linked, MappedCode
from jitonnx.runtime.program import Program, Slot, Step, Steps, Tensors
from jitonnx.support.kernel_cache import KernelCache
from tests.runtime.kernels import SYMBOLS as KERNELS
from tests.runtime.kernels import common, compile_module, floats, object_code

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="only ELF on x86-64 is linked ahead"
)


def test_kernels() -> None:
    code = MappedCode(link([object_code()], KERNELS))
    assert set(code) == set(KERNELS) and len(code) == len(KERNELS)
    steps = [Step("scale", (Slot("input", 0), Slot("output", 0)), (8, 3), 2, 2)]
    program = Program(Steps.of(steps), 0, [], Tensors.of([floats("x", 16)]), Tensors.of([floats("y", 16)]))
    x = np.arange(16, dtype=np.float32)
    assert np.array_equal(Executable(program, common(program, code), 2).run([x])[0], 3 * x)


@pytest.mark.parametrize("parts", [*([part] for part in PARTS), list(PARTS)])
def test_driver_imports_functions(parts: list[str]) -> None:
    code = driver_code(KernelCache(), parts)
    linked = link(code.objects, code.symbols)
    called = {"memcmp", "PyUnicode_AsUTF8AndSize"} if parts == ["strings"] else {"pthread_create", "PyList_New"}
    assert called <= set(linked.imports)
    assert not [name for name in linked.imports if name.startswith("jitonnx_")]
    assert set(MappedCode(linked)) == set(code.symbols) >= {symbol for part in parts for symbol in PARTS[part].symbols}
    assert len(linked.code) == linked.imports_offset + 8 * len(linked.imports)


def test_addresses_and_calls_of_imports() -> None:
    """A function's address is read from the words, and a call goes through a stub."""
    text = """
        declare i64 @labs(i64)
        define ptr @where() { ret ptr @labs }
        define i64 @positive(i64 %x) { %y = call i64 @labs(i64 %x) %z = add i64 %y, 1 ret i64 %z }
    """
    linked = link([compile_module(text)], ["where", "positive"])
    code = MappedCode(linked)
    where = ctypes.CFUNCTYPE(ctypes.c_void_p)(code["where"])
    positive = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code["positive"])
    assert linked.imports == ["labs"] and positive(-3) == 4
    assert where() == ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value


def test_variables_are_left_to_llvm() -> None:
    text = "@counter = global i64 0 define i64 @read() { %x = load i64, ptr @counter ret i64 %x }"
    with pytest.raises(UnlinkableError, match="variables"):
        link([compile_module(text)], ["read"])


def test_nothing() -> None:
    assert len(MappedCode(link([], []))) == 0


def test_refusals() -> None:
    code = object_code()
    with pytest.raises(UnlinkableError, match="not ELF"):
        link([b"\xcf\xfa\xed\xfe" + code[4:]], KERNELS)
    with pytest.raises(UnlinkableError, match="not relocatable code for x86-64"):
        link([code[:18] + b"\xb7" + code[19:]], KERNELS)
    with pytest.raises(UnlinkableError, match="two objects have"):
        link([code, code], KERNELS)
    with pytest.raises(UnlinkableError, match="no object has missing"):
        link([code], ["missing"])
    with pytest.raises(LoadError, match="no function 'no_such_function'"):
        MappedCode(Linked(bytes(8), {}, ["no_such_function"], 0))
