"""Programs of a plan made for sizes by one native call: what follows from the sizes, the arena, operands and tables.

Python would do the same with some hundred small calls, most of whose code a run has pushed out of the caches: 0.1 ms
where nothing else is done, 0.4 ms between runs. What it does still is for the first sizes, for those that nothing is
recorded for, and for what is wrong (`plan/derivation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .driver import driver
from .layout import INSTANTIATION, LAYOUT, PATCH, PLACED, PLACEMENT, ROW, STEP_COLUMNS, WORD_BYTES, address
from .program import Program, Steps, TensorKinds, Tensors, Words
from .tables import Common, Tables, laid_out

Array: TypeAlias = "np.typing.NDArray[np.generic]"
_ENDLESS = 1 << 62
"""Bytes: the limit of what is looked at later."""
_LAYOUT_WORDS, _ROW_WORDS, _PATCH_WORDS = (kind.itemsize // WORD_BYTES for kind in (LAYOUT, ROW, PATCH))


class Arithmetic(NamedTuple):
    """What `runtime.arithmetic.perform` is called with. results: columns and times of kinds of calls, then sizes."""

    operations: Words
    registers: Words
    results: Words
    missed: Words


class Contents(NamedTuple):
    """A constant of each program's own, of int64. number: which constant. rows: the registers of its elements."""

    number: int
    shape: tuple[int, ...]
    rows: tuple[int, ...]


class Rows(NamedTuple):
    """Which registers the numbers of a plan's programs are, and what else is the same in all.

    kind_of: the kind of each step. buffers: bytes of the arena's buffers; buffer_steps: what their room is a multiple
    of at least; first, last: the calls they are alive in. operands: offsets; operand_buffers: in which buffer each
    lies, -1 for those that lie elsewhere. inputs, outputs: sizes [tensors, rank].
    """

    kind_of: Words
    buffers: Words
    buffer_steps: Words
    first: Words
    last: Words
    operands: Words
    operand_buffers: Words
    inputs: Words
    outputs: Words
    contents: Sequence[Contents]
    made: Callable[[Words], Mapping[int, Array]] | None
    """Other constants of each program's own, by number, which Python makes of the numbers. None: there are none."""
    one: int
    """The register of a 1, which follows all numbers."""


class Instantiation:
    """Makes programs, one at a time. common: what they share."""

    def __init__(self, rows: Rows, common: Common, inputs: TensorKinds, outputs: TensorKinds) -> None:
        self._rows, self._common, self._kinds = rows, common, (inputs, outputs)
        self._plan: _Plan | None = None

    def __call__(
        self, arithmetic: Arithmetic, values: Sequence[int], first: int, threads: int
    ) -> tuple[Program, Tables] | None:
        """The program for values of the dimension variables, which lie in the registers from `first` on.

        None where it is left to Python.
        """
        if self._plan is None:
            self._plan = _Plan(self._rows, self._common, self._kinds, len(arithmetic.results))
        arithmetic.registers[first : first + len(values)] = values
        return self._plan.make(arithmetic, threads)


class _Plan:
    """The record of a plan, and where things lie in the blocks of its programs."""

    def __init__(self, rows: Rows, common: Common, kinds: tuple[TensorKinds, TensorKinds], results: int) -> None:
        self._rows, self._common, self._kinds = rows, common, kinds
        steps, operands, self._tensors = len(rows.kind_of), len(rows.operands), (len(rows.inputs), len(rows.outputs))
        kind_count = int(rows.kind_of.max(initial=-1)) + 1
        pitch = max(rows.inputs.shape[1], rows.outputs.shape[1])
        shape_rows = np.full((sum(self._tensors), pitch), rows.one, np.int64)
        shape_rows[: self._tensors[0], : rows.inputs.shape[1]] = rows.inputs
        shape_rows[self._tensors[0] :, : rows.outputs.shape[1]] = rows.outputs
        own_bytes = {number: _ENDLESS for _, number in common.own_operands}
        bases, limits = common.template(
            own_bytes | {one.number: WORD_BYTES * len(one.rows) for one in rows.contents},
        )
        self._columns, self._pitch, self._steps = len(STEP_COLUMNS), pitch, steps
        counts = {
            "rows": steps * _ROW_WORDS,
            "pointers": operands,
            "patches": common.patch_count * _PATCH_WORDS,
            "layout": _LAYOUT_WORDS,
            "bases": operands,
            "limits": len(limits),
            "offsets": operands,
            "columns": self._columns * steps,
            "sizes": results - (self._columns + 1) * kind_count,
            "shapes": shape_rows.size,
            "elements": sum(len(one.rows) for one in rows.contents),
            "nanoseconds": 1,
        }
        ends = np.cumsum(list(counts.values())).tolist()
        self._places = {name: slice(end - count, end) for (name, count), end in zip(counts.items(), ends, strict=True)}
        self._template = np.zeros(ends[-1], np.int64)
        self._template[self._places["bases"]], self._template[self._places["limits"]] = bases, limits
        begins = dict(
            zip(
                [one.number for one in rows.contents],
                np.cumsum([0, *(WORD_BYTES * len(one.rows) for one in rows.contents)]).tolist(),
                strict=False,
            )
        )
        own = [(place, number) for place, number in common.own_operands if number in begins]
        self._made = [(place, number) for place, number in common.own_operands if number not in begins]
        """Operands in constants that Python makes."""
        arrays = {
            "kind_of": rows.kind_of,
            "buffer_rows": rows.buffers,
            "buffer_steps": rows.buffer_steps,
            "operand_rows": rows.operands,
            "operand_buffers": rows.operand_buffers,
            "shape_rows": shape_rows,
            "itemsizes": np.concatenate([kind.itemsizes for kind in kinds]),
            "element_rows": np.array([row for one in rows.contents for row in one.rows], np.int64),
            "own_places": np.array([place for place, _ in own], np.int64),
            "own_begins": np.array([begins[number] for _, number in own], np.int64),
        }
        buffers = len(rows.buffers)
        placed = [np.zeros(buffers, np.int64) for _ in range(3)]
        self._placement, memory = np.zeros(1, PLACEMENT), np.zeros(buffers, PLACED)
        order, sizes, offsets = placed
        self._placement[0] = buffers, *map(address, (order, sizes, rows.first, rows.last, offsets, memory))
        self._kept = arrays, placed, memory
        rows_address, _, limit_places, outer_places, patches, _, patch_count = common.fixed(bases)
        self._record = np.zeros(1, INSTANTIATION)
        numbers = {
            **{name: address(array) for name, array in arrays.items()},
            **{name: WORD_BYTES * place.start for name, place in self._places.items()},
            "kind_count": kind_count,
            "size_count": counts["sizes"],
            "placement": address(self._placement),
            "arena_bytes": -1,
            "tensor_count": sum(self._tensors),
            "pitch": pitch,
            "first_limit": len(limits) - sum(self._tensors),
            "element_count": counts["elements"],
            "own_count": len(own),
            "common_rows": rows_address,
            "limit_places": limit_places,
            "outer_places": outer_places,
            "common_patches": patches,
            "operand_count": operands,
            "patch_count": patch_count,
            "step_count": steps,
        }
        for name, value in numbers.items():
            self._record[name] = value
        self._address = address(self._record)
        self._arithmetic = Arithmetic(*(np.zeros(0, np.int64) for _ in Arithmetic._fields))
        """Whose addresses the record has."""

    def make(self, arithmetic: Arithmetic, threads: int) -> tuple[Program, Tables] | None:
        """The program for what the registers hold."""
        record, places = self._record, self._places
        if any(now is not before for now, before in zip(arithmetic, self._arithmetic, strict=False)):
            for name, array in zip(Arithmetic._fields, arithmetic, strict=True):
                record[name] = address(array)
            self._arithmetic = arithmetic
        block = self._template.copy()
        begin = address(block)
        if driver().instantiate(self._address, begin, threads) != 0:
            return None
        constants: list[Any] = [*self._common.constants]
        if self._rows.made is not None and not self._add_made(arithmetic, block, constants):
            return None
        self._add_contents(block, constants)
        *_, participants, shared_end, scratch, _ = block[places["layout"]].tolist()
        arena_bytes = int(record["arena_bytes"][0])
        shapes = block[places["shapes"]].reshape(sum(self._tensors), self._pitch)
        columns = block[places["columns"]].reshape(self._columns, self._steps)
        steps = Steps(self._common.wiring, block[places["offsets"]], block[places["sizes"]], columns)
        inputs, outputs = self._kinds
        program = Program(
            steps,
            arena_bytes,
            constants,
            Tensors(inputs, shapes[: self._tensors[0]]),
            Tensors(outputs, shapes[self._tensors[0] :]),
            int(block[places["nanoseconds"].start]),
        )
        rows, pointers, patches = (begin + WORD_BYTES * places[name].start for name in ("rows", "pointers", "patches"))
        filled = participants, shared_end, scratch
        return program, laid_out(self._common, block, self._steps, (rows, pointers, patches), filled, arena_bytes)

    def _add_made(self, arithmetic: Arithmetic, block: Words, constants: list[Any]) -> bool:
        """Have Python make constants, and let operands point to them; False if one begins outside of its constant."""
        assert self._rows.made is not None
        arrays = self._rows.made(arithmetic.registers[: self._rows.one])
        for number, array in arrays.items():
            constants[number] = array
        pointers, offsets = (self._places[name].start for name in ("pointers", "offsets"))
        for place, number in self._made:
            array = arrays[number]
            if block[offsets + place] > array.nbytes:
                return False
            block[pointers + place] += address(array)
        return True

    def _add_contents(self, block: Words, constants: list[Any]) -> None:
        at = self._places["elements"].start
        for one in self._rows.contents:
            constants[one.number] = block[at : at + len(one.rows)].reshape(one.shape)
            at += len(one.rows)
