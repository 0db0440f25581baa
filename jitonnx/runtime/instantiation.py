"""Programs of a plan made for sizes by one native call: what follows from the sizes, the arena, operands and tables.

Python would do the same with some hundred small calls, most of whose code a run has pushed out of the caches: 0.1 ms
where nothing else is done, 0.4 ms between runs. What it does still is for the first sizes, for those that nothing is
recorded for, and for what is wrong (`plan/size_program.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from jitonnx.support.records import NamedTuple

from .driver import sizes_driver
from .layout import INSTANTIATION, LAYOUT, PATCH, PLACED, PLACEMENT, ROW, STEP_COLUMNS, WORD_BYTES, address
from .program import Program, Steps, TensorKinds, Tensors, Words
from .tables import Common, Filled, Tables, laid_out

Array: TypeAlias = "np.typing.NDArray[np.generic]"
_ENDLESS = 1 << 62
"""Bytes: the limit of what is looked at later."""
_LAYOUT_WORDS, _ROW_WORDS, _PATCH_WORDS = (kind.itemsize // WORD_BYTES for kind in (LAYOUT, ROW, PATCH))


class Arithmetic(NamedTuple):
    """What `runtime.arithmetic.perform` is called with. results: columns of kinds of calls, then sizes."""

    operations: Words
    registers: Words
    results: Words
    missed: Words


class SizedConstant(NamedTuple):
    """A constant of each program's own, of int64. number: which constant. rows: the registers of its elements."""

    number: int
    shape: tuple[int, ...]
    rows: tuple[int, ...]


class Bounds(NamedTuple):
    """Operands that are looked at, whether they lie in their memory. of: [4, operands]: which operand, which step's,
    the register of its memory's bytes, an element's bytes. shapes, strides: registers [operands, rank]."""

    of: Words
    shapes: Words
    strides: Words


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
    bounds: Bounds
    inputs: Words
    outputs: Words
    contents: Sequence[SizedConstant]
    made: Callable[[Words], Mapping[int, Array]] | None
    """Other constants of each program's own, by number, which Python makes of the numbers. None: there are none."""
    one: int
    """The register of a 1, which follows all numbers."""


class PlanRecord:
    """An `INSTANTIATION`: what native code makes programs of one plan of, one at a time.

    results: how many words there are in those of the arithmetic.
    places: where things lie in the block of a program, in words. template: what a block begins as.
    """

    def __init__(self, rows: Rows, common: Common, kinds: tuple[TensorKinds, TensorKinds], results: int) -> None:
        self._rows, self._common = rows, common
        self.tensors = len(rows.inputs), len(rows.outputs)
        """How many inputs and outputs there are."""
        self.step_count = len(rows.kind_of)
        self.pitch = max(rows.inputs.shape[1], rows.outputs.shape[1])
        """How many sizes there are of each tensor."""
        begins = np.cumsum([0, *(WORD_BYTES * len(one.rows) for one in rows.contents)]).tolist()
        self._begins = dict(zip([one.number for one in rows.contents], begins, strict=False))
        """The constants' elements begin there, in bytes."""
        own_bytes = {number: _ENDLESS for _, number in common.own_operands}
        bases, limits = common.template(
            own_bytes | {one.number: WORD_BYTES * len(one.rows) for one in rows.contents},
        )
        self._kind_count = int(rows.kind_of.max(initial=-1)) + 1
        size_count = results - len(STEP_COLUMNS) * self._kind_count
        self.places = self._placed(len(limits), size_count)
        self.template = np.zeros(self.places["elements"].stop, np.int64)
        self.template[self.places["bases"]], self.template[self.places["limits"]] = bases, limits
        arrays = self._arrays(kinds)
        self.offsets = np.zeros(len(rows.buffers), np.int64)
        """The buffers of the last program's arena lie there, in bytes."""
        placement = self._placement()
        self._record = np.zeros(1, INSTANTIATION)
        self._set(
            {
                **{name: address(array) for name, array in arrays.items()},
                **{name: WORD_BYTES * place.start for name, place in self.places.items()},
                **self._counts(size_count, len(limits)),
                **self._shared(bases),
                "own_count": len(arrays["own_places"]),
                "placement": address(placement[0]),
                "arena_bytes": -1,
            }
        )
        self._kept = placement, arrays, bases
        self.address = address(self._record)
        self._arithmetic = Arithmetic(*(np.zeros(0, np.int64) for _ in Arithmetic._fields))
        """Whose addresses the record has."""

    def use(self, arithmetic: Arithmetic) -> None:
        """Take the sizes from this arithmetic from now on."""
        if any(now is not before for now, before in zip(arithmetic, self._arithmetic, strict=False)):
            self._set({name: address(array) for name, array in zip(Arithmetic._fields, arithmetic, strict=True)})
            self._arithmetic = arithmetic

    @property
    def arena_bytes(self) -> int:
        """The size of the last program's arena."""
        return int(self._record["arena_bytes"][0])

    def _set(self, numbers: Mapping[str, int]) -> None:
        for name, value in numbers.items():
            self._record[name] = value

    def _placed(self, limits: int, size_count: int) -> dict[str, slice]:
        operands = len(self._rows.operands)
        counts = {
            "rows": self.step_count * _ROW_WORDS,
            "pointers": operands,
            "patches": self._common.patch_count * _PATCH_WORDS,
            "layout": _LAYOUT_WORDS,
            "bases": operands,
            "limits": limits,
            "offsets": operands,
            "columns": len(STEP_COLUMNS) * self.step_count,
            "sizes": size_count,
            "shapes": sum(self.tensors) * self.pitch,
            "elements": sum(len(one.rows) for one in self._rows.contents),
        }
        ends = np.cumsum(list(counts.values())).tolist()
        return {name: slice(end - count, end) for (name, count), end in zip(counts.items(), ends, strict=True)}

    def _arrays(self, kinds: tuple[TensorKinds, TensorKinds]) -> dict[str, Words]:
        """The columns that the record points to."""
        rows, begins = self._rows, self._begins
        inputs, _ = self.tensors
        shape_rows = np.full((sum(self.tensors), self.pitch), rows.one, np.int64)
        shape_rows[:inputs, : rows.inputs.shape[1]] = rows.inputs
        shape_rows[inputs:, : rows.outputs.shape[1]] = rows.outputs
        own = [(place, number) for place, number in self._common.own_operands if number in begins]
        return {
            "kind_of": rows.kind_of,
            "buffer_rows": rows.buffers,
            "buffer_steps": rows.buffer_steps,
            "operand_rows": rows.operands,
            "operand_buffers": rows.operand_buffers,
            **{f"bound_{name}": array for name, array in rows.bounds._asdict().items()},
            "shape_rows": shape_rows,
            "itemsizes": np.concatenate([kind.itemsizes for kind in kinds]),
            "element_rows": np.array([row for one in rows.contents for row in one.rows], np.int64),
            "own_places": np.array([place for place, _ in own], np.int64),
            "own_begins": np.array([begins[number] for _, number in own], np.int64),
        }

    def _placement(self) -> Sequence[Array]:
        """The record of buffers to place, and what it points to."""
        buffers = len(self._rows.buffers)
        order, sizes = (np.zeros(buffers, np.int64) for _ in range(2))
        record, memory = np.zeros(1, PLACEMENT), np.zeros(buffers, PLACED)
        arrays = order, sizes, self._rows.first, self._rows.last, self.offsets, memory
        record[0] = buffers, *map(address, arrays)
        return record, *arrays

    def _counts(self, size_count: int, limits: int) -> dict[str, int]:
        return {
            "kind_count": self._kind_count,
            "size_count": size_count,
            "tensor_count": sum(self.tensors),
            "bound_count": len(self._rows.bounds.shapes),
            "bound_rank": self._rows.bounds.shapes.shape[1],
            "pitch": self.pitch,
            "first_limit": limits - sum(self.tensors),
            "element_count": sum(len(one.rows) for one in self._rows.contents),
            "step_count": self.step_count,
        }

    def _shared(self, bases: Words) -> dict[str, int]:
        """What programs have in common."""
        rows_address, _, limit_places, outer_places, patches, operands, patch_count = self._common.fixed(bases)
        return {
            "common_rows": rows_address,
            "limit_places": limit_places,
            "outer_places": outer_places,
            "common_patches": patches,
            "operand_count": operands,
            "patch_count": patch_count,
        }


class Instantiation:
    """Makes programs, one at a time. common: what they share."""

    def __init__(self, rows: Rows, common: Common, inputs: TensorKinds, outputs: TensorKinds) -> None:
        self.rows, self.common, self.kinds = rows, common, (inputs, outputs)
        self._plan: PlanRecord | None = None
        contents = {one.number for one in rows.contents}
        self._made = [(place, number) for place, number in common.own_operands if number not in contents]
        """Operands in constants that Python makes."""

    def __call__(
        self, arithmetic: Arithmetic, values: Sequence[int], first: int, threads: int
    ) -> tuple[Program, Tables] | None:
        """The program for values of the dimension variables, which lie in the registers from `first` on.

        None where it is left to Python.
        """
        if self._plan is None:
            self._plan = self.record(len(arithmetic.results))
        arithmetic.registers[first : first + len(values)] = values
        self._plan.use(arithmetic)
        block = self._plan.template.copy()
        if sizes_driver().instantiate(self._plan.address, address(block), threads) != 0:
            return None
        return self._program(self._plan, arithmetic, block)

    def record(self, results: int) -> PlanRecord:
        """A record of its own for who makes programs at the same time."""
        return PlanRecord(self.rows, self.common, self.kinds, results)

    def _program(self, plan: PlanRecord, arithmetic: Arithmetic, block: Words) -> tuple[Program, Tables] | None:
        """The program that a block holds; None if a constant that Python makes is too short."""
        constants: list[Any] = [*self.common.constants]
        if self.rows.made is not None and not self._add_made(plan, arithmetic, block, constants):
            return None
        self._add_contents(plan, block, constants)
        places, arena_bytes = plan.places, plan.arena_bytes
        filled = Filled.of(block[places["layout"]].tolist())
        shapes = block[places["shapes"]].reshape(sum(plan.tensors), plan.pitch)
        columns = block[places["columns"]].reshape(len(STEP_COLUMNS), plan.step_count)
        steps = Steps(self.common.wiring, block[places["offsets"]], block[places["sizes"]], columns)
        inputs, outputs = self.kinds
        program = Program(
            steps,
            arena_bytes,
            constants,
            Tensors(inputs, shapes[: plan.tensors[0]]),
            Tensors(outputs, shapes[plan.tensors[0] :]),
        )
        begin = address(block)
        rows, pointers, patches = (begin + WORD_BYTES * places[name].start for name in ("rows", "pointers", "patches"))
        return program, laid_out(self.common, block, plan.step_count, (rows, pointers, patches), filled, arena_bytes)

    def _add_made(self, plan: PlanRecord, arithmetic: Arithmetic, block: Words, constants: list[Any]) -> bool:
        """Have Python make constants, and let operands point to them; False if one begins outside of its constant."""
        assert self.rows.made is not None
        arrays = self.rows.made(arithmetic.registers[: self.rows.one])
        for number, array in arrays.items():
            constants[number] = array
        pointers, offsets = (plan.places[name].start for name in ("pointers", "offsets"))
        for place, number in self._made:
            array = arrays[number]
            if block[offsets + place] > array.nbytes:
                return False
            block[pointers + place] += address(array)
        return True

    def _add_contents(self, plan: PlanRecord, block: Words, constants: list[Any]) -> None:
        at = plan.places["elements"].start
        for one in self.rows.contents:
            constants[one.number] = block[at : at + len(one.rows)].reshape(one.shape)
            at += len(one.rows)
