"""What native code works out for sizes is what Python does: for models whose sizes come by chance, and edge cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from bench import text_models
from jitonnx.emit.arguments import Arguments, Size
from jitonnx.ir.computation.lowering import lower
from jitonnx.ir.dims import floor_divide, maximum, variable
from jitonnx.kernels.parts.sizes import below, larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan import size_program
from jitonnx.plan.make import make_plan
from jitonnx.plan.size_program import Derived, Kind, SizeProgram
from jitonnx.plan.size_tracing import Registers, SizeTrace, TracedSize, Untraceable
from jitonnx.runtime.arithmetic import Operation, perform
from jitonnx.support.records import dataclass
from jitonnx.target.machine import host


def same(a: Derived, b: Derived) -> None:
    np.testing.assert_array_equal(a.numbers, b.numbers)
    np.testing.assert_array_equal(a.columns[1:], b.columns[1:])
    for one, other in zip(a.columns.T, b.columns.T, strict=True):
        np.testing.assert_array_equal(
            a.sizes[one[0] : one[0] + one[1]],
            b.sizes[other[0] : other[0] + other[1]],
        )


@pytest.fixture
def recording_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is recorded as soon as it is met."""
    monkeypatch.setattr(size_program, "_RECORDING_SECONDS", 60.0)


@pytest.mark.parametrize("name", ["detector", "recogniser"])
@pytest.mark.usefixtures("recording_all")
def test_models(name: str) -> None:
    graph = load(getattr(text_models, name)()).graph
    optimize(graph)
    outline = make_plan(lower(graph), host()).outline
    tried = outline._derivation
    random = np.random.default_rng(0)
    for _ in range(60):
        sizes = {"n": int(random.integers(0, 5)), "h": 32 * int(random.integers(1, 20))}
        sizes["w"] = int(random.integers(80, 800)) if name == "recogniser" else 32 * int(random.integers(1, 20))
        same(tried(sizes), tried._by_python(sizes))
    native = tried._native
    assert native is not None and native._usable
    assert sum(native._sections) < 3 * len(native._sections), "the sections seldom fit"


class Pair(Arguments):
    a: Size
    b: Size


@dataclass(frozen=True)
class Odd(KernelSpec):
    """Does to its sizes whatever can be done to them."""

    SIZES: ClassVar[type[Pair]] = Pair

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        a, b = sizes
        count, rest = divmod(a * 3 - b, 7)
        parts = sorted([a, b, 5], key=abs)
        looked_up = ("few", "some", "many")[larger(0, smaller(2, a // 100))]
        return [
            *(a, b, -(-a // 4), a % 3 - b % -5, count, rest, abs(b - a), +a, a & 7, a | b, 3 - a, 100 % (b + 1)),
            *(200 // (a + 1), below(a, 50), larger(a, b, 9), smaller(a, b), len(looked_up), parts[1]),
            int(a == b) + 2 * int(a != 3) + 4 * int(a <= b) + 8 * int(a > 10) + 16 * int(bool(b)),
        ]

    def tasks(self, sizes: Sequence[int]) -> int:
        return 0 if sizes[0] == 13 else -(-sizes[0] // 8)

    def work(self, sizes: Sequence[int]) -> Work:
        return Work(sizes[0] * 10_000, sizes[1] * 100)


@dataclass(frozen=True)
class Unsayable(Odd):
    """Does what cannot be recorded."""

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        return [*sizes, int(sizes[0] / 2), {3: 1}.get(sizes[1], 0)]


@dataclass(frozen=True)
class Growing(Odd):
    """Has another number of sizes for some sizes."""

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        return [*sizes, *([1] if sizes[0] > 40 else [])]


@pytest.mark.parametrize("spec", [Odd(), Unsayable(), Growing()])
@pytest.mark.usefixtures("recording_all")
def test_whatever_specs_do(spec: KernelSpec) -> None:
    a, b = variable("a"), variable("b")
    numbers = [a * b - 3, 5, maximum(a - 7, 0), floor_divide(b * 3, 2), a, b, 1]
    tried = SizeProgram(numbers, [Kind(spec, (4, 5), (0, 2)), Kind(spec, (1, 1), ()), Kind(spec, (3, 4), (1,))])
    random = np.random.default_rng(1)
    for _ in range(300):
        sizes = {"a": int(random.integers(0, 130)), "b": int(random.integers(0, 20))}
        same(tried(sizes), tried._by_python(sizes))


def test_numbers_beyond_64_bits() -> None:
    a = variable("a")
    tried = SizeProgram([a * a, a, 1], [Kind(Odd(), (1, 2), ())])
    for size in (3, 4, 5, 6):
        tried({"a": size})
    with pytest.raises(OverflowError):
        tried({"a": 1 << 40})
    same(tried({"a": 9}), tried._by_python({"a": 9}))


def test_a_recording_of_another_is_refused_what_it_cannot_say() -> None:
    recording = SizeTrace(Registers(2, 10))
    x = recording.given(0, 6)
    attempts: list[Any] = [lambda: x / 2, lambda: hash(x), lambda: float(x), lambda: x + 1.5, lambda: x + (1 << 70)]
    for attempt in attempts:
        with pytest.raises(Untraceable):
            attempt()
    assert isinstance(x + 1, TracedSize) and (x + 1) is (x + 1) and x * 1 is x and x * 0 == 0


def test_operations() -> None:
    """Each operation on numbers of every sign against Python's; what cannot be done goes on at the handler."""
    registers, results, missed = np.zeros(3, np.int64), np.zeros(1, np.int64), np.zeros(2, np.int64)
    functions: dict[Operation, Any] = {
        Operation.ADD: lambda a, b: a + b,
        Operation.SUBTRACT: lambda a, b: a - b,
        Operation.MULTIPLY: lambda a, b: a * b,
        Operation.DIVIDE: lambda a, b: a // b,
        Operation.MODULO: lambda a, b: a % b,
        Operation.LARGER: max,
        Operation.SMALLER: min,
        Operation.BELOW: lambda a, b: int(a < b),
        Operation.AND: lambda a, b: a & b,
        Operation.OR: lambda a, b: a | b,
    }
    edges = (-(1 << 63), -(1 << 40), -7, -2, 0, 1, 2, 3, 8, 1 << 40, (1 << 63) - 1)
    for operation, function in functions.items():
        code = np.array(
            [
                (Operation.HANDLER, 4, 0, 0),
                (operation, 2, 0, 1),
                (Operation.STORE, 0, 2, 0),
                (Operation.END, 0, 0, 0),
                (Operation.MISS, 9, 0, 0),
                (Operation.END, 0, 0, 0),
            ],
            np.int64,
        )
        for a in edges:
            for b in edges:
                registers[:2] = a, b
                found = perform(code, registers, results, missed)
                if b == 0 and operation in (Operation.DIVIDE, Operation.MODULO):
                    assert found == [9]
                    continue
                wanted = function(a, b)
                if -(1 << 63) <= wanted < 1 << 63:
                    assert list(found) == [] and results[0] == wanted
                else:
                    assert found == [9]
