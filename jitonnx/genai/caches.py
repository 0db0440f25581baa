"""What a decoder remembers between two runs: keys and values, and the states of convolutions and recurrences.

Each is an input of the model (the past) and an output (the present). Keys and values grow along an axis; where the
model updates them in place, the two are one memory, of more rows than there are tokens, bound once and grown by
doubling. States have the same shape in each step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jitonnx.api.values import OrtValue
from jitonnx.errors import InvalidArgument
from jitonnx.genai.config import Config
from jitonnx.genai.optimum import CROSS
from jitonnx.ir.dtypes import DType

LEAST_ROWS = 128
"""The least rows of a cache in place."""

_TEMPLATES = (
    ("past_key_names", "past_key_values.%d.key", "present_key_names", "present.%d.key"),
    ("past_value_names", "past_key_values.%d.value", "present_value_names", "present.%d.value"),
    ("past_conv_names", "past_conv.%d", "present_conv_names", "present_conv.%d"),
    ("past_names", "", "present_names", ""),
)
"""Keys of the configuration: an input's name and its default, the output's name and its default."""

_RENAMED = (("past_key_values", "present"), ("past", "present"))
"""How outputs are called after their inputs where the configuration does not say."""

_SLACK = 16
"""Rows that a cache of a window has beyond it, so that not each step moves all."""


class Move(NamedTuple):
    """One sequence that is copied over another, whose first `begin` tokens are the same."""

    source: int
    target: int
    begin: int


def roomy(rows: int, limit: int) -> int:
    """The rows to have memory for where so many are needed, of a prompt, too: twice as many, up to the limit, so that
    steps seldom move what is held. What is not written to takes no memory."""
    return max(rows, min(max(2 * rows, LEAST_ROWS), limit))


@dataclass(frozen=True)
class Slot:
    """One past and its present."""

    past: str
    present: str
    shape: tuple[int, ...]
    """For one sequence without tokens: 1 along the batch, 0 along the axis that grows."""
    batch_axis: int
    rows_axis: int | None
    """The axis that grows with each token; None: none does."""
    window: int = 0
    """The rows that are read at most, where older ones are dropped; 0: all are."""

    @property
    def capacity(self) -> int:
        """The rows of a window's cache: while there are not more tokens, none is dropped."""
        return self.window + _SLACK

    @property
    def grows(self) -> bool:
        """Whether more tokens take more memory."""
        return self.rows_axis is not None and not self.window

    def sized(self, batch: int, rows: int) -> tuple[int, ...]:
        """The shape for some sequences and rows."""
        if self.window:
            rows = self.capacity
        sizes = list(self.shape)
        sizes[self.batch_axis] = batch
        if self.rows_axis is not None:
            sizes[self.rows_axis] = rows
        return tuple(sizes)


def slots_of(config: Config, inputs: Sequence[Any], outputs: Sequence[Any], batch: Any) -> list[Slot]:
    """The pasts among a session's inputs. batch: the name of the dimension of sequences.

    InvalidArgument for one whose present is not there, or whose shape says too little.
    """
    names = {one.name for one in outputs}
    found = []
    for one in inputs:
        match = _present(config, one.name, names)
        if match is not None:
            present, layer = match
            found.append(_slot(config, one, present, layer, batch))
    return found


def _present(config: Config, name: str, outputs: set[str]) -> tuple[str, int] | None:
    """The output behind an input, and the number of its layer; None for an input that is no past."""
    decoder = ("model", "decoder")
    for past_key, past_default, present_key, present_default in _TEMPLATES:
        past = config.text(*decoder, "inputs", past_key, default=past_default)
        present = config.text(*decoder, "outputs", present_key, default=present_default)
        match = re.fullmatch(re.escape(past).replace("%d", r"(\d+)"), name) if past and present else None
        if match:
            made = present.replace("%d", match[1]) if match.groups() else present
            if made not in outputs:
                raise InvalidArgument(
                    f"the model has no output {made!r}, which {present_key} in genai_config.json names for {name!r}; "
                    f"its outputs are {', '.join(sorted(outputs))}"
                )
            return made, int(match[1]) if match.groups() else 0
    if CROSS in name:  # of an encoder's output: it does not grow
        return None
    for past, present in _RENAMED:
        if past in name and (made := name.replace(past, present)) in outputs and made != name:
            number = re.search(r"\d+", name)
            return made, int(number[0]) if number else 0
    return None


def _slot(config: Config, entry: Any, present: str, layer: int, batch: Any) -> Slot:
    sizes, decoder = list(entry.shape), ("model", "decoder")
    open_axes = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    batch_axis = next((axis for axis in open_axes if sizes[axis] == batch), 0)
    if batch_axis in open_axes:
        open_axes.remove(batch_axis)
    elif sizes[batch_axis] != 1:
        raise InvalidArgument(f"input {entry.name!r} has shape {sizes}, none of whose axes is one of sequences")
    if len(sizes) == 4 and len(open_axes) > 1:  # sizes that the file does not tell
        told = {1: "num_key_value_heads", 3: "head_size"}
        for axis in [axis for axis in open_axes if axis in told]:
            sizes[axis] = config.number(*decoder, told[axis])
            open_axes.remove(axis)
    if len(open_axes) > 1:
        raise InvalidArgument(f"input {entry.name!r} has shape {entry.shape}: which axis grows cannot be told")
    rows_axis = open_axes[0] if open_axes else None
    sizes[batch_axis] = 1
    if rows_axis is not None:
        sizes[rows_axis] = 0
    return Slot(
        entry.name,
        present,
        tuple(sizes),
        batch_axis,
        rows_axis,
        _window(config, layer) if rows_axis is not None else 0,
    )


def _window(config: Config, layer: int) -> int:
    """The window of a layer's cache; 0 where it holds all rows."""
    decoder = ("model", "decoder", "sliding_window")
    if not config.section(*decoder) or config.flag(*decoder, "slide_key_value_cache", default=True):
        return 0
    size = config.number(*decoder, "window_size")
    return size if size > 0 and layer in config.tokens(*decoder, "layers") else 0


class Caches:
    """The memory of some sequences. It is to be bound again when `version` has changed.

    in_place: pasts and presents that grow are one memory, of more rows than there are tokens. Else a present has the
    rows of its past and the new ones; the two lie in two pieces of memory in turns.
    """

    def __init__(
        self, slots: Sequence[Slot], types: Mapping[str, DType], batch: int, *, in_place: bool, limit: int
    ) -> None:
        """types: the elements' types, by names. limit: the most rows."""
        self.slots, self._types, self._batch, self.in_place, self._limit = slots, types, batch, in_place, limit
        self.version = 0
        self._rows = 0
        """How many tokens the memory can hold."""
        self.values: dict[str, OrtValue] = {}
        """The caches, by the names of the pasts."""
        self.presents: dict[str, OrtValue] = {}
        """What the next run writes, by the names of the pasts, too."""
        self._memory: dict[str, list[np.ndarray]] = {}
        """The memory of pairs that grow: the past's, and the present's."""
        self.only_grow = all(slot.grows for slot in slots)
        """Whether rows behind those of earlier tokens are all that a run writes."""
        self._growing = [slot for slot in slots if slot.grows and not in_place]
        for slot in slots:
            self._put(slot, self._made(slot, slot.sized(batch, 0)))

    def reserve(self, past: int, rows: int) -> None:
        """Have memory for a run behind the first `past` tokens that makes them `rows`."""
        if rows > self._rows:
            self._rows = roomy(rows, self._limit)
            for slot in self.slots:
                if slot.grows:
                    self._grow(slot, past)
            self.version += 1
        for slot in self._growing:
            memory = self._memory[slot.past][1]
            self.presents[slot.past] = self._value(slot, _front(memory, slot.sized(self._batch, rows)))

    def advance(self) -> None:
        """Go on from what a run gave."""
        for slot in self._growing:
            self.values[slot.past] = self.presents[slot.past]
            self._memory[slot.past].reverse()
        if self._growing:
            self.version += 1

    def spread(self, times: int, tokens: int) -> None:
        """Hold each sequence, of so many tokens, `times` times, its copies behind each other."""
        before, self._batch = self._batch, self._batch * times
        for slot in self.slots:
            held = self.values[slot.past].numpy()
            if slot in self._growing:
                sizes = slot.sized(self._batch, self._rows)
                self._memory[slot.past] = [np.zeros(sizes, held.dtype) for _ in range(2)]
                made = _front(self._memory[slot.past][0], slot.sized(self._batch, tokens))
                self.values[slot.past] = self._value(slot, made)
            else:
                made = np.zeros(slot.sized(self._batch, self._rows), held.dtype)
                self._put(slot, self._value(slot, made))
            axis, kept = slot.batch_axis, _rows(slot, tokens) if slot.grows else ()
            by_copy = made.reshape(*made.shape[:axis], before, times, *made.shape[axis + 1 :])
            for each in np.moveaxis(by_copy, axis + 1, 0):
                each[kept] = held[kept]
        self.version += 1

    def copy(self, moves: Sequence[Move], tokens: int) -> None:
        """Copy sequences of so many tokens over others: of what grows, the rows that differ."""
        for slot in self.slots:
            array = self.values[slot.past].numpy()
            for move in moves:
                rows = slice(move.begin if slot.grows else 0, tokens if slot.grows else None)
                array[_of_sequence(slot, move.target, rows)] = array[_of_sequence(slot, move.source, rows)]

    def can_rewind(self, length: int, tokens: int) -> bool:
        """Whether, `length` tokens being there, those behind the first `tokens` can be forgotten."""
        if tokens in (0, length):
            return True
        return all(slot.rows_axis is not None and (not slot.window or length <= slot.capacity) for slot in self.slots)

    def rewind(self, tokens: int) -> None:
        """Forget the tokens behind the first `tokens`: in place, rows behind them are written to again."""
        for slot in self.slots:
            if slot.rows_axis is None and tokens == 0:
                self.values[slot.past].numpy()[...] = 0
        for slot in self._growing:
            kept = self.values[slot.past].numpy()[_rows(slot, tokens)].copy()
            self.values[slot.past] = self._value(slot, _front(self._memory[slot.past][0], kept.shape))
            self.values[slot.past].numpy()[...] = kept
            self.version += 1

    def _grow(self, slot: Slot, past: int) -> None:
        """Move what a slot holds to more memory."""
        held = self.values[slot.past].numpy()
        if slot in self._growing:
            sizes = slot.sized(self._batch, self._rows)
            self._memory[slot.past] = [np.zeros(sizes, held.dtype) for _ in range(2)]
            self.values[slot.past] = self._value(slot, _front(self._memory[slot.past][0], held.shape))
            self.values[slot.past].numpy()[...] = held
        else:
            made = self._value(slot, np.zeros(slot.sized(self._batch, self._rows), held.dtype))
            made.numpy()[_rows(slot, past)] = held[_rows(slot, past)]
            self._put(slot, made)

    def _put(self, slot: Slot, value: OrtValue) -> None:
        self.values[slot.past] = self.presents[slot.past] = value

    def _made(self, slot: Slot, shape: tuple[int, ...]) -> OrtValue:
        """New memory, of zeros."""
        made = OrtValue.ortvalue_from_shape_and_type(shape, int(self._types[slot.past]))
        made.numpy()[...] = 0
        return made

    def _value(self, slot: Slot, array: np.ndarray) -> OrtValue:
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array, int(self._types[slot.past]))


def _front(memory: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The beginning of memory as an array of this shape."""
    return memory.reshape(-1)[: math.prod(shape)].reshape(shape)


def _of_sequence(slot: Slot, sequence: int, rows: slice) -> tuple[slice | int, ...]:
    """Some rows of one sequence in a slot's array."""
    index: list[slice | int] = [slice(None)] * len(slot.shape)
    if slot.rows_axis is not None:
        index[slot.rows_axis] = rows
    index[slot.batch_axis] = sequence
    return tuple(index)


def _rows(slot: Slot, count: int) -> tuple[slice, ...]:
    """The first rows of a slot's array."""
    return (slice(None),) * (slot.rows_axis or 0) + (slice(count),)
