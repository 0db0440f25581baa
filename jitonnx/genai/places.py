"""`Places`: in which row of a batch each beam lies, so that few rows are copied as beams go on from each other."""

from __future__ import annotations

import numpy as np

from jitonnx.genai.caches import Move


class Places:
    """The rows of the beams of some sequences, which have as many rows as beams, one behind the other.

    It is all the same in which of its sequence's rows a beam lies. So of the beams that go on from a row the first one
    stays there, and the others are copied into rows that none goes on from: of these the ones that are alike longest.
    """

    def __init__(self, lengths: np.ndarray, beams: int) -> None:
        """lengths [rows]: what each row holds, which is the same in all rows of a sequence."""
        self._count = beams
        self.rows = np.arange(len(lengths))
        """The row of each beam."""
        groups = self.rows // beams
        self._alike = np.where(groups[:, None] == groups, lengths[:, None], 0)
        """How many tokens two rows begin with that are the same, [rows, rows]."""

    def beams(self) -> np.ndarray:
        """The beam of each row."""
        return np.argsort(self.rows)

    def pick(self, sources: np.ndarray, lengths: np.ndarray) -> list[Move]:
        """Have each beam go on from the one that sources [beams] tells: what is to be copied, in this order.

        lengths [rows]: how many tokens each row holds. A beam may go on from that of another sequence, if all beams of
        its own do.
        """
        before, moves = self.rows[sources].tolist(), []
        for first in range(0, len(before), self._count):
            free, waiting = set(range(first, first + self._count)), []
            for beam in range(first, first + self._count):
                if before[beam] in free:
                    free.remove(before[beam])
                    self.rows[beam] = before[beam]
                else:
                    waiting.append(beam)
            for beam in waiting:
                alike = self._alike[before[beam]]
                row = max(free, key=alike.__getitem__)
                free.remove(row)
                self.rows[beam] = row
                moves.append(Move(before[beam], row, int(alike[row])))
        # What another sequence takes is copied before it is overwritten.
        overwritten = {move.target for move in moves}
        moves.sort(key=lambda move: move.source not in overwritten)
        for source, target, _ in moves:
            self._alike[target] = self._alike[source]
            self._alike[:, target] = self._alike[:, source]
            self._alike[[source, target, target], [target, source, target]] = lengths[source]
        return moves
