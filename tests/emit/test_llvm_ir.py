"""The builder of LLVM IR: what it computes itself, what it writes once, and that LLVM reads the rest."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.module import SIGNATURE
from jitonnx.emit.ssa import SSAValue, fma
from tests.kernels.harness import Compiled

I64, FLOAT = llvm_ir.IntType(64), llvm_ir.FloatType()


def function() -> tuple[llvm_ir.Module, llvm_ir.Function, llvm_ir.IRBuilder]:
    module = llvm_ir.Module("x86_64-unknown-linux-gnu")
    made = llvm_ir.Function(module, SIGNATURE, "function")
    return module, made, llvm_ir.IRBuilder(made.append_basic_block())


def lines(module: llvm_ir.Module, word: str) -> int:
    return sum(f" {word} " in line for line in str(module).splitlines())


def test_sums_and_products_with_constants_are_no_instructions() -> None:
    module, made, builder = function()
    x = made.args[2]
    assert builder.add(x, I64(0)) is x and builder.add(I64(0), x) is x and builder.sub(x, I64(0)) is x
    assert builder.mul(x, I64(1)) is x and builder.sdiv(x, I64(1)) is x
    assert builder.mul(x, I64(0)).reference == "0"
    assert builder.mul(I64(-3), I64(5)).reference == "-15"
    assert builder.add(I64(2**63 - 1), I64(1)).reference == str(-(2**63)), "integers wrap around"
    pointer = made.args[0]
    assert builder.gep(pointer, [I64(0)]) is pointer
    assert builder.bitcast(pointer, FLOAT.as_pointer()).reference == pointer.reference
    builder.ret_void()
    assert str(module).count("=") == 1, "the triple alone"


def test_floats_are_not_taken_for_numbers_that_sums_leave_out() -> None:
    """-0.0 + 0.0 is 0.0."""
    module, _, builder = function()
    place = builder.alloca(FLOAT)
    builder.fadd(builder.load(place), FLOAT(0.0))
    builder.fmul(FLOAT(2.0), FLOAT(3.0))
    assert lines(module, "fadd") == lines(module, "fmul") == 1


def test_what_is_known_is_written_once() -> None:
    module, made, builder = function()
    begin, end = made.args[2:4]
    first = builder.mul(begin, end)
    with builder.if_then(builder.icmp_signed("<", begin, end)):
        assert builder.mul(begin, end) is first
        inside = builder.add(first, end)
    assert builder.add(first, end) is not inside, "control need not come through the block"
    with builder.if_else(builder.icmp_signed("<", begin, end)) as (yes, no):
        with yes:
            left = builder.sub(begin, end)
        with no:
            right = builder.sub(begin, end)
    assert left is not right
    builder.ret_void()
    assert (lines(module, "mul"), lines(module, "add"), lines(module, "sub"), lines(module, "icmp")) == (1, 2, 2, 1)
    llvm.parse_assembly(str(module)).verify()


def test_loads_are_written_each_time_but_invariant_ones() -> None:
    _, made, builder = function()
    sizes = made.args[1]
    assert builder.load(sizes) is not builder.load(sizes)
    assert builder.load_invariant(sizes) is builder.load_invariant(sizes)


@pytest.mark.parametrize(
    ("typ", "number", "text"),
    [
        (FLOAT, -0.0, "0x8000000000000000"),
        (FLOAT, 0.1, "0x3FB99999A0000000"),
        (FLOAT, 1e300, "0x7FF0000000000000"),
        (llvm_ir.DoubleType(), 0.1, "0x3FB999999999999A"),
        (llvm_ir.IntType(1), True, "true"),
        (I64, None, "0"),
        (llvm_ir.VectorType(FLOAT, 4), [-0.0] * 4, "splat (float 0x8000000000000000)"),
        (llvm_ir.VectorType(FLOAT, 4), [0.0] * 4, "zeroinitializer"),
        (llvm_ir.VectorType(I64, 2), [1, 2], "<i64 1, i64 2>"),
        (llvm_ir.VectorType(I64, 2), llvm_ir.Undefined, "undef"),
    ],
)
def test_constants(typ: llvm_ir.Type, number: object, text: str) -> None:
    assert llvm_ir.Constant(typ, number).reference == text


def test_types_are_told_by_identity() -> None:
    assert (
        llvm_ir.VectorType(llvm_ir.IntType(32), 8)
        is llvm_ir.VectorType(llvm_ir.IntType(32), 8)
        is not llvm_ir.VectorType(llvm_ir.IntType(32), 4)
    )
    assert FLOAT.as_pointer() is FLOAT.as_pointer() is not I64.as_pointer()
    with pytest.raises(TypeError, match="add of i64 and i32"):
        function()[2].add(I64(1), llvm_ir.IntType(32)(1))


def test_multiply_adds_by_one_are_sums_rounded_once() -> None:
    def kernel(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        x, y = (code.buffer(number, types.float32) for number in range(2))
        a, b = x.load(0, 4), x.load(4, 4)
        for number, value in enumerate((fma(a, 1.0, b), fma(a, -1.0, b), fma(a, 2.0, b))):
            y.store(4 * number, value)

    x, y = np.linspace(-3, 7.1, 8, dtype=np.float32), np.zeros(12, np.float32)
    Compiled(kernel)([x, y], [], 1)
    a, b = x[:4].astype(np.float64), x[4:]
    np.testing.assert_array_equal(y, np.concatenate([a + b, b - a, 2 * a + b]).astype(np.float32))
