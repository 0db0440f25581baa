"""A plan: the calls of a model in order, with symbolic sizes, and how a program for concrete sizes is made of it.

Planning happens once a model. `instantiate` only evaluates expressions: sizes, offsets, tasks, the arena.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from jitonnx.ir import dims
from jitonnx.ir.dims import DimLike
from jitonnx.ir.graph import Value
from jitonnx.kernels.spec import Work
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.memory import Lifetime, assign_offsets, lifetimes
from jitonnx.plan.tensor import Buffer, Tensor
from jitonnx.records import dataclass
from jitonnx.runtime.program import Flag, Program, Slot, Step, TensorSpec

GRAIN_MICROSECONDS = 10.0
"""The estimated time on one core of what a thread takes of a call at a time, at least. Taking costs 20 to 100 ns."""

SERIAL_MICROSECONDS = 6.0
"""A call estimated to take less is done by the calling thread alone: waking the others costs as much."""


@dataclass
class Plan:
    """A model's calls over buffers. Everything symbolic is over the model's dimension variables."""

    inputs: list[Value]
    outputs: list[Value]
    calls: list[KernelCall] = field(default_factory=list)
    constants: list[Buffer] = field(default_factory=list)
    assumptions: set[tuple[DimLike, DimLike]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._evaluate: Callable[[Mapping[str, int]], list[int]] | None = None

    def prepare(self) -> None:
        """Settle what all instantiations share: lifetimes, and one function that evaluates every expression."""
        self._lives = lifetimes(self.calls)
        self._arena = list(self._lives)
        self._dims = _DimTable()
        self._rows = [
            (
                [self._dims.add(size) for size in call.sizes],
                [self._dims.add(size) for size in call.stage_sizes],
                [self._dims.add(tensor.offset) for tensor in call.tensors],
            )
            for call in self.calls
        ]
        numbers = {buffer: number for number, buffer in enumerate(self.constants)}
        self._settled = [[_settled_slot(numbers, tensor) for tensor in call.tensors] for call in self.calls]
        self._arena_rows = [self._dims.add(buffer.bytes) for buffer in self._arena]
        self._contents_rows = {
            buffer: [self._dims.add(dim) for dim in buffer.contents.flat]
            for buffer in self.constants
            if buffer.contents is not None
        }
        self._output_rows = [[self._dims.add(dim) for dim in value.shape] for value in self.outputs]
        self._input_rows = [[self._dims.add(dim) for dim in value.shape] for value in self.inputs]
        self._dims.compile()

    def instantiate(self, sizes: Mapping[str, int], symbols: Sequence[str], threads: int) -> Program:
        """The program for values of the dimension variables. `symbols`: the kernel symbol of each call."""
        values = self._dims.evaluate(sizes)
        offsets, arena_bytes = assign_offsets(
            [values[row] for row in self._arena_rows], [self._lives[buffer] for buffer in self._arena]
        )
        places = {buffer: Slot("arena", 0, offset) for buffer, offset in zip(self._arena, offsets, strict=True)}
        places |= {buffer: Slot("constant", number) for number, buffer in enumerate(self.constants)}
        steps = []
        for call, symbol, (size_rows, stage_rows, offset_rows), settled in zip(
            self.calls, symbols, self._rows, self._settled, strict=True
        ):
            complete = tuple(call.spec.complete([values[row] for row in size_rows]))
            tasks = call.spec.tasks(complete)
            if tasks == 0:
                continue
            slots = tuple(
                [
                    slot or _slot(places, tensor, values[row])
                    for slot, tensor, row in zip(settled, call.tensors, offset_rows, strict=True)
                ]
            )
            work = call.spec.work(complete)
            steps.append(
                Step(
                    symbol,
                    slots,
                    (*complete, *(values[row] for row in stage_rows)),
                    tasks,
                    threads_for(work, tasks, threads),
                    max(call.spec.grain(complete), grain_for(work, tasks)),
                    call.spec.scratch_bytes(complete),
                    call.label,
                )
            )
        return Program(
            steps,
            arena_bytes,
            [self._array(buffer, values) for buffer in self.constants],
            [_tensor_spec(value, values, rows) for value, rows in zip(self.inputs, self._input_rows, strict=True)],
            [_tensor_spec(value, values, rows) for value, rows in zip(self.outputs, self._output_rows, strict=True)],
        )

    def _array(self, buffer: Buffer, values: Sequence[int]) -> np.ndarray:
        if buffer.contents is None:
            assert buffer.array is not None
            return buffer.array
        elements = [values[row] for row in self._contents_rows[buffer]]
        return np.array(elements, buffer.dtype.numpy).reshape(buffer.contents.shape)

    def sized(self, sizes: Mapping[str, int]) -> Iterator[tuple[KernelCall, tuple[int, ...]]]:
        """Each call with the sizes that its kernel gets for values of the dimension variables, its stages' left out."""
        values = self._dims.evaluate(sizes)
        for call, (rows, _, _) in zip(self.calls, self._rows, strict=True):
            yield call, tuple(call.spec.complete([values[row] for row in rows]))

    def lifetime(self, buffer: Buffer) -> Lifetime:
        """When an arena buffer is in use."""
        return self._lives[buffer]


def microseconds(work: Work) -> float:
    """A rough time on one core: whatever binds, arithmetic at 50 GFLOP/s or memory at 20 GB/s."""
    return max(work.flops / 50e3, work.bytes / 20e3)


def threads_for(work: Work, tasks: int, threads: int) -> int:
    """How many of `threads` threads a call is shared among."""
    return 1 if microseconds(work) < SERIAL_MICROSECONDS else max(1, min(threads, tasks))


def grain_for(work: Work, tasks: int) -> int:
    """How many tasks of a call a thread takes at a time at least."""
    return min(tasks, math.ceil(tasks * GRAIN_MICROSECONDS / max(microseconds(work), GRAIN_MICROSECONDS)))


class _DimTable:
    """Distinct dimension expressions, evaluated together by one generated function."""

    def __init__(self) -> None:
        self._rows: dict[DimLike, int] = {}

    def add(self, dim: DimLike) -> int:
        return self._rows.setdefault(dim, len(self._rows))

    def compile(self) -> None:
        self._constants = [dim if isinstance(dim, int) else 0 for dim in self._rows]
        self._symbolic = [(row, dim) for dim, row in self._rows.items() if not isinstance(dim, int)]
        names = sorted(set().union(*(dims.variables(dim) for _, dim in self._symbolic)))
        self._names = {name: f"v{number}" for number, name in enumerate(names)}
        renamed = {name: dims.variable(short) for name, short in self._names.items()}
        body = ", ".join(dims.python_source(dims.substitute(dim, renamed)) for _, dim in self._symbolic)
        self._function = eval(f"lambda {', '.join(self._names.values())}: ({body}{',' if body else ''})")

    def evaluate(self, sizes: Mapping[str, int]) -> list[int]:
        values = list(self._constants)
        results = self._function(*(sizes[name] for name in self._names))
        for (row, _), result in zip(self._symbolic, results, strict=True):
            values[row] = result
        return values


def _settled_slot(constants: Mapping[Buffer, int], tensor: Tensor) -> Slot | None:
    """Where a tensor lies if that is the same for all sizes."""
    buffer, offset = tensor.buffer, tensor.offset
    if not isinstance(offset, int) or buffer.space == "arena":
        return None
    number = constants[buffer] if buffer.space == "constant" else buffer.index
    return Slot(buffer.space, number, offset * buffer.dtype.itemsize)  # type: ignore[arg-type]


def _slot(places: Mapping[Buffer, Slot], tensor: Tensor, offset: int) -> Slot:
    buffer, bytes_in = tensor.buffer, offset * tensor.dtype.itemsize
    if buffer.space in ("input", "output"):
        return Slot(buffer.space, buffer.index, bytes_in)  # type: ignore[arg-type]
    base = places[buffer]
    return Slot(base.space, base.index, base.offset + bytes_in)


def _tensor_spec(value: Value, values: Sequence[int], rows: Sequence[int]) -> TensorSpec:
    return TensorSpec(value.name, value.dtype.numpy, tuple(values[row] for row in rows))
