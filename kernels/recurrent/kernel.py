"""The recurrent kernels: h · Rᵀ of a panel of units, then the gates of those units, panel after panel, step after step.

The products are bound by reading R from the second-level cache (an LSTM of 256 units has 1 MB of it), so R lies in the
order in which it is read. Panels are walked up and down in turn: what a step read last is what the next reads first, so
that of an R somewhat larger than the cache only the excess is fetched anew.

Where threads share a direction, each has panels of its own, and they meet after each step (`meeting`). What becomes of
a panel does not depend on who works on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, larger, remainder, smaller
from jitonnx.emit.ssa import SSAValue, bits, fma, from_bits, funnel_left, select, to_float
from jitonnx.kernels.parts.barriers import PhaseBarrier
from jitonnx.kernels.parts.microkernel import emit_prefetch
from jitonnx.kernels.recurrent.activations import activate
from jitonnx.kernels.recurrent.spec import RecurrentBuffers, RecurrentSizes, RecurrentSpec
from jitonnx.support.records import NamedTuple


def build(spec: RecurrentSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements."""
    if spec.units != lanes:
        raise ValueError(f"{spec} takes panels of a vector's length, here {lanes}")
    return lambda code, begin, end: _Kernel(code, spec).emit(begin, end)


class _Row(NamedTuple):
    """One row of the batch at one step."""

    number: SSAValue
    """Its number in the batch."""
    local: SSAValue
    """Its number in the task's block."""
    step: SSAValue
    time: SSAValue
    active: SSAValue | None
    """Whether the step is within the row's length; None where all rows are as long."""


def _widened(a: SSAValue, b: SSAValue, c: SSAValue) -> list[SSAValue]:
    """The four vectors, but for their scales, that `fixed24.pack` made three of."""
    d = funnel_left(a, funnel_left(b, c, 24), 24)
    return [to_float(x) for x in (a, b, c << 8, d)]


def _odd(x: SSAValue) -> SSAValue:
    return (x & 1).equals(1)


class _Kernel:
    """Emits the code of one spec."""

    def __init__(self, code: KernelBuilder, spec: RecurrentSpec) -> None:
        self.code, self.spec = code, spec
        self.element = getattr(types, spec.element)
        self.size = code.sizes(RecurrentSizes)
        self.buffer = code.buffers(RecurrentBuffers, self.element, lengths=types.int32)
        units = spec.units
        self.panels = (self.size.hidden + (units - 1)) / code.integer(units)
        self.padded = self.panels * units
        self.first_panel, self.last_panel = code.integer(0), self.panels
        self.state = self.padded * spec.rows
        self._place_states(code.scratch(self.element))
        self.sums = self.first_sums = code.scratch(self.element).at(self.state * 5)

    def _place_states(self, memory: Pointer) -> None:
        """h before and after a step, c, z, r * h."""
        self.h, self.c, self.z, self.reset_h = (memory.at(self.state * n) for n in (0, 2, 3, 4))

    # ------------------------------------------------------------ loops

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, rows = self.code, self.spec.rows
        blocks = (self.size.batch + (rows - 1)) / code.integer(rows)
        if self.spec.parts == 1:
            with code.loop(end, begin) as task:
                self._block(task, blocks)
            return
        parts = select(blocks.equals(1), code.integer(self.spec.parts), 1)
        stop = select(begin < end, (end + parts - 1) / parts, 0)
        with code.loop(stop, begin / parts) as group:
            first, last = larger(begin - group * parts, 0), smaller(end - group * parts, parts)
            self._meet(group, parts, first, last)
            self._block(group, blocks)

    def _meet(self, direction: SSAValue, parts: SSAValue, first: SSAValue, last: SSAValue) -> None:
        """Prepare for the parts first, …, last - 1 of a direction. A thread that has all of them is alone."""
        code, words = self.code, self.spec.meeting_elements
        self.alone = (last - first).equals(parts)
        self.parts = select(self.alone, 1, parts)
        self.own_first, self.own_last = select(self.alone, 0, first), select(self.alone, 1, last)
        shared = self.buffer.shared.at(select(self.alone, 0, direction) * (self.state * 5 + words))
        place = code.builder.bitcast(shared.value, llvm_ir.IntType(64).as_pointer())
        mine = self.own_last - self.own_first
        self.meeting = PhaseBarrier(code, Pointer(code, types.int64, place), self.parts, self.own_first, mine)
        memory = code.builder.select(self.alone.value, code.scratch(self.element).value, shared.at(words).value)
        self._place_states(Pointer(code, self.element, memory))

    def _block(self, group: SSAValue, blocks: SSAValue) -> None:
        """One direction of one block of rows, all steps."""
        code, rows = self.code, self.spec.rows
        self.direction, first = group / blocks, remainder(group, blocks) * rows
        count = smaller(self.size.batch - first, rows)
        steps = self._longest(first, count) if self.spec.lengths else self.size.steps
        self._start(first, count)
        with code.loop(steps) as step:
            self._step(first, count, step)
        if self.spec.parts > 1:
            self._take(self.own_first, self.own_last)
        if self.spec.y and self.spec.lengths:
            self._clear(first, count, steps)
        if self.spec.last:
            self._finish(first, count, steps)

    def _longest(self, first: SSAValue, count: SSAValue) -> SSAValue:
        """The number of steps that some row of the block has."""
        longest = self.code.variable(self.code.integer(0))
        with self.code.loop(count) as local:
            longest.set(larger(longest.get(), self._length(first + local)))
        return longest.get()

    def _clear(self, first: SSAValue, count: SSAValue, steps: SSAValue) -> None:
        """y is zero in the steps behind those that the block takes."""
        zero = self.code.number(self.element, 0, self.spec.units)
        with (
            self.code.loop(self.size.steps, steps) as step,
            self._each_panel(first, count) as (row, _, unit, mask),
        ):
            self.buffer.y.store(self._y_offset(row, step, unit), zero, mask)

    @contextmanager
    def _phase(self, number: SSAValue | int) -> Iterator[None]:
        """The block for the panels that this thread does, part by part; then all panels are done."""
        if self.spec.parts == 1:
            yield
            return
        with self.meeting.each_part(self.code.integer(number), self.alone) as part:
            self._take(part, part + 1)
            yield

    def _take(self, first: SSAValue, last: SSAValue) -> None:
        """Go on with the panels of these parts."""
        self.first_panel, self.last_panel = (self.panels * part / self.parts for part in (first, last))

    def _start(self, first: SSAValue, count: SSAValue) -> None:
        """The state before the first step; zero behind the last unit and the last row, which products read as well.

        Shared states are zero from the beginning.
        """
        if self.spec.initial:
            with self._phase(0):
                self._zero_states()
                with self._each_panel(first, count) as (row, local, unit, mask):
                    for name, state in self._states("initial", self.h):
                        value = getattr(self.buffer, name).load(self._state_offset(row, unit), self.spec.units, mask)
                        state.store(local * self.padded + unit, value)
        elif self.spec.parts == 1:
            self._zero_states()
        else:
            with self.code.if_then(self.alone):
                self._take(self.code.integer(0), self.code.integer(1))
                self._zero_states()

    def _zero_states(self) -> None:
        units = self.spec.units
        zero = self.code.number(self.element, 0, units)
        with (
            self.code.loop(self.spec.rows) as row,
            self.code.loop(self.last_panel * units, self.first_panel * units, units) as unit,
        ):
            for state in (self.h, self.h.at(self.state), self.c, self.reset_h):
                state.store(row * self.padded + unit, zero)

    def _states(self, if_then: str, h: Pointer) -> list[tuple[str, Pointer]]:
        return [(f"{if_then}_h", h)] + [(f"{if_then}_c", self.c)] * (self.spec.kind == "LSTM")

    def _finish(self, first: SSAValue, count: SSAValue, steps: SSAValue) -> None:
        """The state behind the last of so many steps; zero where there was none, as onnxruntime has it."""
        with self._each_panel(first, count) as (row, local, unit, mask):
            for name, state in self._states("last", self._h(steps)):
                value = state.load(local * self.padded + unit, self.spec.units)
                if self.spec.lengths:
                    none = self.buffer.lengths.load(row) < 1
                    value = value.like(value.builder.select(none.value, value.constant(0).value, value.value))
                getattr(self.buffer, name).store(self._state_offset(row, unit), value, mask)

    def _step(self, first: SSAValue, count: SSAValue, step: SSAValue) -> None:
        each = self._stored(self.padded) + int(self.spec.fixed)  # vectors of a gate of a panel
        weights = self.buffer.recurrent_weights.at(self.direction * (each * self.padded * self.spec.gates))
        first_gate = 0
        for number, gates in enumerate(self.spec.passes):
            source = self.reset_h if first_gate else self._h(step)
            with self._phase(step * len(self.spec.passes) + (number + self.spec.initial)):
                for work in self._turns():
                    with self._panels_in_turn(step, gates) as panel:
                        if "products" in work:
                            place = weights.at(panel * each * (gates * self.spec.units))
                            following = weights.at(self._next(panel, step) * each * (gates * self.spec.units))
                            self._panel(place, following, source, gates, count)
                        if "gates" in work:
                            self._update(first, count, step, panel * self.spec.units, first_gate)
            weights = weights.at(self.padded * each * gates)
            first_gate += gates

    def _turns(self) -> Sequence[Sequence[str]]:
        """What is done panel after panel. A single row's gates follow all products: several panels' chains overlap."""
        return [["products"], ["gates"]] if self.spec.rows == 1 else [["products", "gates"]]

    @contextmanager
    def _panels_in_turn(self, step: SSAValue, gates: int) -> Iterator[SSAValue]:
        """A loop over the panels at hand, upwards and downwards by turns, with the place of each panel's sums."""
        with self.code.loop(self.last_panel - self.first_panel) as at:
            panel = select(_odd(step), self.last_panel - 1 - at, self.first_panel + at)
            if self.spec.rows == 1:
                self.sums = self.first_sums.at(panel * (gates * self.spec.units))
            yield panel

    def _next(self, panel: SSAValue, step: SSAValue) -> SSAValue:
        """The panel behind this one, which need not exist."""
        return panel + select(_odd(step), self.code.integer(-1), 1)

    @contextmanager
    def _each_panel(self, first: SSAValue, count: SSAValue) -> Iterator[tuple[SSAValue, SSAValue, SSAValue, Mask]]:
        """Loops over a block's rows and the panels at hand: (row in the batch, in the block, first unit, its mask)."""
        units = self.spec.units
        with (
            self.code.loop(count) as local,
            self.code.loop(self.last_panel * units, self.first_panel * units, units) as unit,
        ):
            yield first + local, local, unit, self.code.active(self.size.hidden - unit, units)

    # ------------------------------------------------------------ products

    def _panel(self, weights: Pointer, following: Pointer, source: Pointer, gates: int, count: SSAValue) -> None:
        """sums[row][gate] = the products of one panel, for all rows of the block.

        Tiles behind the first find the panel near, and ask for parts of the following one: weights of 512 units come
        from beyond the second-level cache in each step.
        """
        tiles = self.spec.tiles
        others = self.spec.rows // tiles[0] - 1
        share = -(-gates // others) if others else 0  # vectors of the following panel for each k
        done = self.code.integer(0)
        for height in tiles:
            # From half the rows on, a tile with idle rows is as fast as reading the panel row by row.
            idle = height // 2 if tiles[-1] == 1 else 0
            end = done + (count - done + idle) / height * height
            with self.code.loop(end, done, height) as row:
                target = self.sums.at(row * (gates * self.spec.units))
                part = following.at((row / tiles[0] - 1) * (share * self.spec.units))
                ahead = part.unless(row.equals(0), weights)
                self._tile(weights, source.at(row * self.padded), gates, height, target, ahead, share)
            done = end

    def _tile(
        self, weights: Pointer, source: Pointer, gates: int, rows: int, target: Pointer, ahead: Pointer, share: int
    ) -> None:
        """target[row][gate] = Σ_k source[row][k] * weights[k][gate], in `phases` sums over every phases-th k. Meanwhile
        `share` vectors are asked for in each step of k, which lie from `ahead` on as the weights do."""
        code, units = self.code, self.spec.units
        phases = self.spec.phases if rows == 1 else 1
        together = 4 if self.spec.fixed else 2 if self.spec.halves else 1  # vectors that lie in fewer
        depth = max(phases, together // math.gcd(together, gates))
        zero = code.number(self.element, 0, units)
        sums = {
            (row, gate, phase): code.variable(zero)
            for row in range(rows)
            for gate in range(gates)
            for phase in range(phases)
        }
        with code.loop(self.size.hidden, step=depth) as k:
            for vector in range(share):
                emit_prefetch(code.builder, ahead.at((k * gates + vector) * units).value)
            panel = self._weights(weights, k * gates, depth * gates)
            for number in range(depth):
                for row in range(rows):
                    spread = code.splat(source.load(self.padded * row + k + number), units)
                    for gate in range(gates):
                        part = sums[row, gate, number % phases]
                        part.set(fma(spread, panel[number * gates + gate], part.get()))
        for row in range(rows):
            for gate in range(gates):
                total = sums[row, gate, 0].get()
                for phase in range(1, phases):
                    total = total + sums[row, gate, phase].get()
                if self.spec.fixed:
                    total = total * weights.load((self._stored(self.padded) * gates + gate) * units, units)
                target.store((row * gates + gate) * units, total)

    def _weights(self, panel: Pointer, first: SSAValue, count: int) -> list[SSAValue]:
        """`count` vectors of weights from `first` on; both are multiples of four in fixed point, of two in bfloat16."""
        units, step = self.spec.units, 3 if self.spec.fixed else 2 if self.spec.halves else 4
        start = self._stored(first) * units
        loaded = [panel.load(start + i * units, units) for i in range(count * step // 4)]
        if self.spec.joined:
            return [part for pair in loaded for part in (from_bits(bits(pair) << 16), pair)]
        if self.spec.halves:
            return [from_bits(part) for pair in map(bits, loaded) for part in (pair << 16, pair & -0x10000)]
        if not self.spec.fixed:
            return loaded
        return [vector for i in range(0, len(loaded), 3) for vector in _widened(*map(bits, loaded[i : i + 3]))]

    def _stored(self, vectors: SSAValue) -> SSAValue:
        """How many vectors so many vectors of weights take."""
        return vectors * 3 / 4 if self.spec.fixed else vectors / 2 if self.spec.halves else vectors

    # ------------------------------------------------------------ gates

    def _update(self, first: SSAValue, count: SSAValue, step: SSAValue, unit: SSAValue, first_gate: int) -> None:
        """What follows the products of a panel, row by row."""
        code = self.code
        active = code.active(self.size.hidden - unit, self.spec.units)
        with code.loop(count) as local:
            row = self._row(first + local, local, step)
            if row.active is None:
                self._gates(row, unit, active, first_gate)
            else:
                with code.if_else(row.active) as (within, behind):
                    with within:
                        self._gates(row, unit, active, first_gate)
                    with behind:
                        self._rest(row, unit, active)

    def _row(self, number: SSAValue, local: SSAValue, step: SSAValue) -> _Row:
        length, active = self.size.steps, None
        if self.spec.lengths:
            length = self._length(number)
            active = step < length
        bits = step.like(step.builder.ashr(self.size.reverse.value, self.direction.value))
        return _Row(number, local, step, select(_odd(bits), length - 1 - step, step), active)

    def _length(self, number: SSAValue) -> SSAValue:
        """The length of a row. One beyond the last step is an error that is told behind the run: nothing may be written
        there."""
        loaded = self.buffer.lengths.load(number)
        steps = self.size.steps
        return smaller(self.code.integer(loaded.builder.sext(loaded.value, steps.value.type)), steps)

    def _rest(self, row: _Row, unit: SSAValue, active: Mask) -> None:
        """A step behind the row's length: the state stays, y is zero."""
        self._h(row.step + 1).store(row.local * self.padded + unit, self._old_h(row, unit))
        if self.spec.y:
            zero = self.code.number(self.element, 0, self.spec.units)
            self.buffer.y.store(self._y_offset(row.number, row.step, unit), zero, active)

    def _gates(self, row: _Row, unit: SSAValue, active: Mask, first_gate: int) -> None:
        if self.spec.kind == "LSTM":
            self._put(row, unit, self._lstm(row, unit, active), active)
        elif self.spec.kind == "RNN":
            self._put(row, unit, self._activated(0, self._gate(row, unit, active, 0) + self._sum(row, 0, 1)), active)
        elif self.spec.linear_before_reset:
            self._put(row, unit, self._gru_reset_after(row, unit, active), active)
        elif first_gate:
            self._put(row, unit, self._gru_output(row, unit, active), active)
        else:
            self._gru_reset(row, unit, active)

    def _put(self, row: _Row, unit: SSAValue, h: SSAValue, active: Mask) -> None:
        """The step's result: the next step's state, and y. Units behind the last stay zero in the state."""
        self._h(row.step + 1).store(row.local * self.padded + unit, h, active)
        if self.spec.y:
            self.buffer.y.store(self._y_offset(row.number, row.time, unit), h, active)

    def _lstm(self, row: _Row, unit: SSAValue, active: Mask) -> SSAValue:
        """i, o, f, c = gates; C = f * C + i * c; H = o * h(C). i and f peep at the old C, o at the new one.

        The clip bounds what goes into the gates' activations, not the cell on its way into h, as in onnxruntime.
        """
        i, o, f, c = (self._gate(row, unit, active, gate) + self._sum(row, gate, 4) for gate in range(4))
        at = row.local * self.padded + unit
        old = self.c.load(at, self.spec.units)
        if self.spec.peepholes:
            i = fma(self._peephole(0, unit, active), old, i)
            f = fma(self._peephole(2, unit, active), old, f)
        i, c = self._activated(0, i), self._activated(1, c)
        f = 1.0 - i if self.spec.input_forget else self._activated(0, f)
        new = fma(f, old, i * c)
        self.c.store(at, new, active)
        if self.spec.peepholes:
            o = fma(self._peephole(1, unit, active), new, o)
        return self._activated(0, o) * activate(self.code, self.spec.activations[2], new, 0.0)

    def _gru_reset_after(self, row: _Row, unit: SSAValue, active: Mask) -> SSAValue:
        """linear_before_reset: h = g(x + r * (H · Rᵀ + Rb)); H = (1 - z) * h + z * H."""
        z = self._activated(0, self._gate(row, unit, active, 0) + self._sum(row, 0, 3))
        r = self._activated(0, self._gate(row, unit, active, 1) + self._sum(row, 1, 3))
        bias = self.buffer.recurrent_bias.load(self.direction * self.size.hidden + unit, self.spec.units, active)
        h = self._activated(1, fma(r, self._sum(row, 2, 3) + bias, self._gate(row, unit, active, 2)))
        return fma(z, self._old_h(row, unit) - h, h)

    def _gru_reset(self, row: _Row, unit: SSAValue, active: Mask) -> None:
        """z and r * H, for all units, before any product with gate h."""
        at = row.local * self.padded + unit
        z = self._activated(0, self._gate(row, unit, active, 0) + self._sum(row, 0, 2))
        r = self._activated(0, self._gate(row, unit, active, 1) + self._sum(row, 1, 2))
        self.z.store(at, z)
        self.reset_h.store(at, r * self._old_h(row, unit), active)

    def _gru_output(self, row: _Row, unit: SSAValue, active: Mask) -> SSAValue:
        """h = g(x + (r * H) · Rᵀ); H = (1 - z) * h + z * H."""
        z = self.z.load(row.local * self.padded + unit, self.spec.units)
        h = self._activated(1, self._gate(row, unit, active, 2) + self._sum(row, 0, 1))
        return fma(z, self._old_h(row, unit) - h, h)

    def _activated(self, which: int, x: SSAValue) -> SSAValue:
        return activate(self.code, self.spec.activations[which], x, self.spec.clip)

    # ------------------------------------------------------------ operands

    def _gate(self, row: _Row, unit: SSAValue, active: Mask, gate: int) -> SSAValue:
        """The input's part of a gate."""
        size = self.size
        at = row.time * size.gates_step + row.number * size.gates_row + self.direction * size.gates_direction
        return self.buffer.gates.load(at + size.hidden * gate + unit, self.spec.units, active)

    def _sum(self, row: _Row, gate: int, gates: int) -> SSAValue:
        """The state's part of a gate."""
        return self.sums.load((row.local * gates + gate) * self.spec.units, self.spec.units)

    def _peephole(self, gate: int, unit: SSAValue, active: Mask) -> SSAValue:
        at = (self.direction * 3 + gate) * self.size.hidden + unit
        return self.buffer.peepholes.load(at, self.spec.units, active)

    def _h(self, step: SSAValue) -> Pointer:
        """The state before `step`; the one behind it lies in the other half."""
        return self.h.at(select(_odd(step), self.state, 0))

    def _old_h(self, row: _Row, unit: SSAValue) -> SSAValue:
        return self._h(row.step).load(row.local * self.padded + unit, self.spec.units)

    def _y_offset(self, row: SSAValue, time: SSAValue, unit: SSAValue) -> SSAValue:
        size = self.size
        return time * size.y_step + row * size.y_row + self.direction * size.y_direction + unit

    def _state_offset(self, row: SSAValue, unit: SSAValue) -> SSAValue:
        return self.direction * self.size.state_direction + row * self.size.state_row + unit
