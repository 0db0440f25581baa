"""The memory of many sequences at once, each of which grows, is cut and is copied by itself.

A lane is what all caches of a model hold of one sequence. The lanes lie one behind the other along the caches' axis of
sequences, so that a run over some that follow each other reads and writes them where they are.
"""

from __future__ import annotations

import numpy as np

from jitonnx import errors
from jitonnx.api.options import RunOptions
from jitonnx.api.values import OrtValue
from jitonnx.errors import InvalidArgument
from jitonnx.genai.caches import LEAST_ROWS, Slot, roomy
from jitonnx.genai.decoder import Bound, Decoder, misfit

_MOST_BOUND = 8
"""Groups of lanes for which inputs and outputs stay bound."""


class Lanes:
    """Caches in place, of a number of sequences with lengths of their own, and runs of the model over them.

    Caches have the same number of rows in all lanes, which is doubled as the longest sequence grows. Their memory is
    touched where rows were written alone, so that lanes of which little is used take little.
    """

    def __init__(self, decoder: Decoder, count: int, limit: int) -> None:
        """limit: the most tokens of a sequence. NotImplemented for a model whose sequences cannot be told apart."""
        for slot in decoder.slots:
            if slot.batch_axis != 0:
                raise errors.NotImplemented(
                    f"input {slot.past!r} has its sequences along axis {slot.batch_axis}: sequences that join and "
                    "leave need them along the first one"
                )
        if decoder.extras:
            raise errors.NotImplemented(
                f"the model has inputs beside tokens and caches ({', '.join(decoder.extras)}): for sequences that join "
                "and leave they cannot be set"
            )
        self.decoder, self.count, self._limit = decoder, count, limit
        self.tokens: list[np.ndarray] = [np.zeros(0, np.int32) for _ in range(count)]
        """What each lane has read, int32."""
        self._only_grow = all(slot.grows for slot in decoder.slots)
        """Whether rows behind those of earlier tokens are all that a run writes."""
        self.can_pad = self._only_grow and decoder.can_choose
        """Whether sequences of unequal length may be read together: rows that padding wrote are written again."""
        self.run_options: RunOptions | None = None
        self._rows = LEAST_ROWS
        self._arrays = {slot.past: self._made(slot, self._rows) for slot in decoder.slots}
        self._bound: dict[tuple[int, int], Bound] = {}
        """Runs over lanes, by the first and their number."""

    def length(self, lane: int) -> int:
        """How many tokens a lane has read."""
        return len(self.tokens[lane])

    def read(self, first: int, tokens: np.ndarray, counts: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Run the model over lanes from the first on: the logits, float32 [lanes, number, vocabulary], behind the
        tokens that kept [lanes, number] tells. They are valid until the next run.

        tokens [lanes, steps]: of each the first counts[lane] are read, the others are padding, which `can_pad` allows.
        """
        number, steps = tokens.shape
        lanes = range(first, first + number)
        lengths = np.array([self.length(lane) for lane in lanes], np.int64)
        longest = int(lengths.max())
        self._reserve(longest + steps)
        bound = self._bound.get((first, number)) or self._bind(first, number)
        bound.fill(tokens, lengths, self._masked(lengths + steps), kept)
        try:
            logits = bound.run(self.run_options)
        except InvalidArgument as error:
            self._forget(lanes)
            raise misfit(error, steps, longest, in_place=True) from error
        except BaseException:  # Ctrl-C, too
            self._forget(lanes)
            raise
        for lane, row, count in zip(lanes, tokens, counts.tolist(), strict=True):
            self.tokens[lane] = np.concatenate([self.tokens[lane], row[:count].astype(np.int32)])
        return logits

    def _forget(self, lanes: range) -> None:
        """Forget what a run that failed may have written to."""
        if not self._only_grow:
            for lane in lanes:
                self.cut(lane, 0)

    # ------------------------------------------------------------ cutting, copying

    def can_cut(self, lane: int, length: int) -> bool:
        """Whether what comes behind the first tokens of a lane can be forgotten."""
        if length in (0, self.length(lane)):
            return True
        return all(
            slot.rows_axis is not None and (not slot.window or self.length(lane) <= slot.capacity)
            for slot in self.decoder.slots
        )

    def cut(self, lane: int, length: int) -> None:
        """Forget what comes behind the first tokens of a lane, where `can_cut` says that this can be."""
        if length == 0:
            for slot in self.decoder.slots:
                if slot.rows_axis is None:
                    self._arrays[slot.past][lane] = 0
        self.tokens[lane] = self.tokens[lane][:length].copy()

    def copy(self, source: int, target: int) -> None:
        """Have a lane hold what another one does."""
        for slot in self.decoder.slots:
            rows = self._lane_rows(slot, self.length(source))
            array = self._arrays[slot.past]
            array[target][rows] = array[source][rows]
        self.tokens[target] = self.tokens[source].copy()

    def exchange(self, one: int, other: int) -> None:
        """Have two lanes hold what the other one does."""
        if one == other:
            return
        length = max(self.length(one), self.length(other))
        for slot in self.decoder.slots:
            rows = self._lane_rows(slot, length)
            array = self._arrays[slot.past]
            held = array[one][rows].copy()
            array[one][rows] = array[other][rows]
            array[other][rows] = held
        self.tokens[one], self.tokens[other] = self.tokens[other], self.tokens[one]

    # ------------------------------------------------------------ memory

    def _lane_rows(self, slot: Slot, length: int) -> tuple[slice, ...]:
        """The index of the first `length` tokens in a lane's array of a slot."""
        return (slice(None),) * ((slot.rows_axis or 1) - 1) + (slice(length),) if slot.grows else ()

    def _made(self, slot: Slot, rows: int) -> np.ndarray:
        return np.zeros(slot.sized(self.count, rows), self.decoder.numpy(slot.past))

    def _reserve(self, rows: int) -> None:
        """Have memory for so many tokens in each lane."""
        if rows <= self._rows:
            return
        rows = roomy(rows, self._limit)  # padding may reach beyond what a sequence may have
        self._bound.clear()
        for slot in self.decoder.slots:
            if slot.grows:
                held, made = self._arrays[slot.past], self._made(slot, rows)
                for lane in range(self.count):
                    part = self._lane_rows(slot, self.length(lane))
                    made[lane][part] = held[lane][part]
                self._arrays[slot.past] = made
        self._rows = rows

    def _bind(self, first: int, number: int) -> Bound:
        """What runs over some lanes bind."""
        bound = Bound(self.decoder, number)
        values = {
            slot.past: OrtValue.ortvalue_from_numpy_with_onnx_type(
                self._arrays[slot.past][first : first + number], int(self.decoder.types[slot.past])
            )
            for slot in self.decoder.slots
        }
        bound.bind_caches(self.decoder.slots, values, values)
        if len(self._bound) == _MOST_BOUND:
            del self._bound[next(iter(self._bound))]
        self._bound[first, number] = bound
        return bound

    def _masked(self, lengths: np.ndarray) -> np.ndarray:
        """The attention mask [lanes, longest]: ones where tokens are."""
        mask: np.ndarray = (np.arange(lengths.max()) < lengths[:, None]).astype(self.decoder.mask_type)
        return mask
