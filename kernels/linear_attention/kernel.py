"""Linear attention: step after step, columns of the state in vectors, its rows one after another."""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, Variable, remainder
from jitonnx.emit.ssa import SSAValue, fma
from jitonnx.kernels.linear_attention.spec import (
    COLUMNS,
    LinearAttentionBuffers,
    LinearAttentionSizes,
    LinearAttentionSpec,
)

HEADS = 4
"""Heads of q whose sums are kept in registers at a time."""


def build(spec: LinearAttentionSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes`."""
    return lambda code, begin, end: _Kernel(code, spec, min(lanes, COLUMNS)).emit(begin, end)


class _Kernel:
    """Emits the code of one spec."""

    def __init__(self, code: KernelBuilder, spec: LinearAttentionSpec, lanes: int) -> None:
        self.code, self.spec, self.lanes = code, spec, lanes
        self.size = code.sizes(LinearAttentionSizes)
        self.buffers = code.buffers(LinearAttentionBuffers, types.float32)
        self.state = code.scratch(types.float32)
        self.places = range(0, COLUMNS, lanes)
        self.masks: list[Mask] = []

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size = self.code, self.size
        blocks = (size.columns + (COLUMNS - 1)) / COLUMNS
        with code.loop(end, begin) as task:
            unit, first = task / blocks, remainder(task, blocks) * COLUMNS
            batch, head = unit / size.heads, remainder(unit, size.heads)
            self.masks = [code.active(size.columns - first - place, self.lanes) for place in self.places]
            start = unit * size.rows * size.columns + first
            self._begin(start)
            rows = {}
            for name in ("q", "k", "v", "factor", "beta", "y"):
                number = head * self.spec.group if name in ("q", "y") else head
                offset = batch * getattr(size, f"{name}_batch") + number * getattr(size, f"{name}_head")
                rows[name] = getattr(self.buffers, name).at(offset)
            with code.loop(size.steps) as step:
                at = {name: pointer.at(step * getattr(size, f"{name}_step")) for name, pointer in rows.items()}
                self._step({**at, "v": at["v"].at(first), "y": at["y"].at(first)})
            with code.loop(size.rows) as row:
                for place, mask in zip(self.places, self.masks, strict=True):
                    part = self.state.load(row * COLUMNS + place, self.lanes)
                    self.buffers.present.store(start + row * size.columns + place, part, mask)

    def _begin(self, start: SSAValue) -> None:
        """The state before the first step."""
        zero = self.code.number(types.float32, 0.0, self.lanes)
        with self.code.loop(self.size.rows) as row:
            for place, mask in zip(self.places, self.masks, strict=True):
                part = zero
                if self.spec.past:
                    past = start + row * self.size.columns + place
                    part = self.buffers.past.load(past, self.lanes, mask)
                self.state.store(row * COLUMNS + place, part)

    def _zeros(self) -> list[Variable]:
        return [self.code.variable(self.code.number(types.float32, 0.0, self.lanes)) for _ in self.places]

    def _step(self, at: dict[str, Pointer]) -> None:
        code, spec = self.code, self.spec
        sums = self._zeros()
        if spec.gated or spec.delta:
            with code.loop(self.size.rows) as row:
                self._fade(at, row, sums)
        added = [at["v"].load(place, self.lanes, mask) for place, mask in zip(self.places, self.masks, strict=True)]
        if spec.delta:
            beta = code.splat(at["beta"].load(0), self.lanes)
            added = [beta * (new - old.get()) for new, old in zip(added, sums, strict=True)]
        for first in range(0, spec.group, HEADS):
            self._read(at, range(first, min(first + HEADS, spec.group)), added if first == 0 else None)

    def _fade(self, at: dict[str, Pointer], row: SSAValue, sums: Sequence[Variable]) -> None:
        """A row times its factor, and its part of Sᵀ k."""
        code, spec, lanes = self.code, self.spec, self.lanes
        key = code.splat(at["k"].load(row), lanes)
        for place, total in zip(self.places, sums, strict=True):
            part = self.state.load(row * COLUMNS + place, lanes)
            if spec.gated:
                part = part * code.splat(at["factor"].load(row * self.size.factor_row), lanes)
                self.state.store(row * COLUMNS + place, part)
            if spec.delta:
                total.set(fma(part, key, total.get()))

    def _read(self, at: dict[str, Pointer], heads: range, added: Sequence[SSAValue] | None) -> None:
        """What some heads of q read of the state, to which k times `added` is added before, if it is given."""
        code, size, lanes = self.code, self.size, self.lanes
        totals = [self._zeros() for _ in heads]
        with code.loop(size.rows) as row:
            queries = [code.splat(at["q"].load(size.q_head * head + row), lanes) for head in heads]
            key = code.splat(at["k"].load(row), lanes)
            for number, place in enumerate(self.places):
                part = self.state.load(row * COLUMNS + place, lanes)
                if added is not None:
                    part = fma(key, added[number], part)
                    self.state.store(row * COLUMNS + place, part)
                for query, total in zip(queries, totals, strict=True):
                    total[number].set(fma(query, part, total[number].get()))
        for head, total in zip(heads, totals, strict=True):
            for number, (place, mask) in enumerate(zip(self.places, self.masks, strict=True)):
                result = total[number].get()
                at["y"].store(size.y_head * head + place, result * result.constant(self.spec.scale), mask)
