"""Runs of one plan on inputs of ever new sizes, as those of a decoder whose caches grow: one native call each.

A program that is kept costs Python some thirty objects, and their way into a cache. For sizes that do not come back
native code makes it anew in memory that stays, reads the sizes off the inputs, and writes outputs where the caller has
given memory for them (`runtime/bytecode.py`). Whatever is unusual is left to the usual way.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.engine.lent import Lent
from jitonnx.ir import dims
from jitonnx.ir.dims import Dim, DimLike
from jitonnx.plan.size_program import Evaluator
from jitonnx.plan.size_tracing import EMPTY_SECTION, Registers, Section, Untraceable, Written
from jitonnx.runtime.bytecode import BoundVariable, Bytecode, Placed, SegmentInstruction, SizesInstruction
from jitonnx.runtime.driver import make_ahead
from jitonnx.runtime.entry import supported
from jitonnx.runtime.execution_contexts import ExecutionContextPool
from jitonnx.runtime.program import Shapes
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.engine.programs import CompiledParametricProgram

_ROOM = 256
"""Numbers that are worked out to see whether the plan holds for sizes, at most."""
_CALLS_KEPT = 4
"""So many serve runs that overlap; more at once go the usual way."""
_SIZES_REMEMBERED = 256
"""Sizes that come back after so many others count as new."""


class _Way(NamedTuple):
    """How the links of a plan are made.

    bound: the variables, as sizes of inputs. checks: operations that miss something where the plan does not hold.
    """

    names: Sequence[str]
    bound: Sequence[BoundVariable]
    registers: Registers
    checks: np.ndarray | None


class Resized:
    """The runs of a plan. frames, threads: as for programs; a plan of fixed sizes, or in whose programs Python has a
    part, has none: then `possible` is False.
    """

    def __init__(self, compiled: CompiledParametricProgram, threads: int, frames: ExecutionContextPool) -> None:
        self._compiled, self._frames = compiled, frames
        outline = compiled.outline
        self.inputs = [[outline.numbers[row] for row in tensor.shape] for tensor in outline.inputs]
        self.outputs = [[outline.numbers[row] for row in tensor.shape] for tensor in outline.outputs]
        """The shapes of inputs and outputs, over the dimension variables."""
        self._way = self._written() if supported() and compiled.chainable(sized=True) else None
        self._places = [(bound.slot, bound.place) for bound in self._way.bound] if self._way else []
        self._lock = fork_safety.lock()
        """Held where `_seen` changes or is gone through."""
        self._seen: dict[tuple[int, ...], None] = {}
        self._calls = Lent(functools.partial(_made, compiled, self._way, threads, frames), _CALLS_KEPT)

    @property
    def possible(self) -> bool:
        """Whether there are such runs."""
        return self._way is not None

    def run(self, arrays: list[Any]) -> bool:
        """Run inputs; whether that was done.

        arrays: the inputs in order, then outputs: arrays to write to, or None, in the place of which a new one is put.
        """
        call = self._calls.take()
        if call is None:
            return False
        try:
            done = call(arrays)
            if done:
                self._note(call.sizes())
                self._frames.shrink(call.memory_bytes)
            return done
        finally:
            self._calls.give(call)

    def met(self, shapes: Shapes) -> bool:
        """Whether inputs of these shapes have been run."""
        try:
            return tuple([shapes[number][axis] for number, axis in self._places]) in self._seen
        except IndexError:
            return False

    def known_shapes(self) -> list[Shapes]:
        """The shapes that were run, those first that were first run."""
        assert self._way is not None, "Bug: nothing has been run"
        names = self._way.names
        with self._lock:
            seen = list(self._seen)
        found = [dict(zip(names, sizes, strict=True)) for sizes in seen]
        return [tuple(tuple(_size(dim, sizes) for dim in shape) for shape in self.inputs) for sizes in found]

    def _note(self, sizes: tuple[int, ...]) -> None:
        with self._lock:
            self._seen[sizes] = None
            if len(self._seen) > _SIZES_REMEMBERED:
                del self._seen[next(iter(self._seen))]

    def _written(self) -> _Way | None:
        """None if a variable is no input's size, or the plan's assumptions cannot be written down."""
        outline = self._compiled.outline
        names: dict[str, tuple[int, int]] = {}
        for number, shape in enumerate(self.inputs):
            for axis, dim in enumerate(shape):
                name = _variable(dim)
                if name is not None:
                    names.setdefault(name, (number, axis))
        if not names or not set().union(*map(dims.variables, outline.numbers)) <= names.keys():
            return None
        bound = [BoundVariable(slot, 0, axis, 0, variable) for variable, (slot, axis) in enumerate(names.values())]
        registers = Registers(len(names), _ROOM)
        section = Section(registers)
        evaluator = Evaluator(flat := [dim for pair in outline.assumed() for dim in pair])
        numbers = {name: Written(section, number) for number, name in enumerate(names)}
        try:
            found: dict[int, Any] = dict(evaluator.recorded(numbers))  # type: ignore[arg-type]
        except Untraceable:
            return None
        values = [found.get(row, dim) for row, dim in enumerate(flat)]
        for a, b in zip(values[::2], values[1::2], strict=True):
            section.need_equal(a, b)
        operations = section.operations()
        checks = np.array(operations, np.int64) if len(operations) > EMPTY_SECTION else None
        return _Way(list(names), bound, registers, checks)


class _Call:
    """A chain of its own for one run at a time, and how much of what is recorded it knows."""

    def __init__(
        self, compiled: CompiledParametricProgram, way: _Way, threads: int, frames: ExecutionContextPool
    ) -> None:
        self._compiled, self._count = compiled, len(way.names)
        self._variables = {name: number for number, name in enumerate(way.names)}
        self._registers = np.zeros(len(way.names) + _ROOM + len(way.registers.constants), np.int64)
        for value, register in way.registers.constants.items():
            self._registers[register] = value
        outline = compiled.outline
        inputs, outputs = len(outline.inputs), len(outline.outputs)
        sizes = [[_fixed(outline.numbers[row]) for row in tensor.shape] for tensor in outline.inputs]
        links = [
            Placed(SizesInstruction(outline.input_kinds, sizes, way.bound), 0, None, ()),
            Placed(
                SegmentInstruction(
                    None,
                    [(place, False) for place in range(inputs)],
                    range(inputs, inputs + outputs),
                    shared={output: given for given, output in sorted(compiled.shared)},
                ),
                0,
                way.checks,
                (),
            ),
        ]
        self._chain = Bytecode(links, 1, frames, threads, self._registers)
        self._version = 0

    def __call__(self, arrays: list[Any]) -> bool:
        version = self._compiled.outline.derivation.version
        if version != self._version:
            self._chain.set(1, self._compiled.sized(self._variables))
            self._version = version
        return version > 0 and self._chain.run(arrays) == 1

    @property
    def memory_bytes(self) -> int:
        """The memory that the last run needed of a frame."""
        return self._chain.memory_bytes(1)

    def sizes(self) -> tuple[int, ...]:
        """The values of the variables in the last run."""
        return tuple(self._registers[: self._count].tolist())


def _made(
    compiled: CompiledParametricProgram, way: _Way | None, threads: int, frames: ExecutionContextPool
) -> _Call | None:
    """A call; None where there are no such runs, or as long as the driver's part is in the making."""
    return None if way is None or not make_ahead(["chains"]) else _Call(compiled, way, threads, frames)


def _variable(dim: DimLike) -> str | None:
    """The name of the variable that a dimension is, if it is one."""
    found = dims.variables(dim)
    return str(dim) if isinstance(dim, Dim) and len(found) == 1 and str(dim) in found else None


def _fixed(dim: DimLike) -> int:
    return dim if isinstance(dim, int) else -1


def _size(dim: DimLike, sizes: dict[str, int]) -> int:
    return dim if isinstance(dim, int) else dims.evaluate(dim, sizes)
