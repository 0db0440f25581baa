"""Rows of blocks packed into batches, run on threads, and given back block by block, in order.

Memory is bounded: no more than `IN_FLIGHT` batches for each thread, or `ROWS_IN_FLIGHT` rows, are on the way, and
blocks are read when there is room for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jitonnx.batch.blocks import Block
from jitonnx.batch.errors import RowError
from jitonnx.errors import Error

IN_FLIGHT = 2
"""Batches of each thread: the one that it runs, and the next."""
ROWS_IN_FLIGHT = 16
"""Rows of each thread, where batches have fewer: what is done between two blocks takes longer than such a batch."""

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], Arrays]
"""Outputs by name of inputs by name, both [rows, ...]."""


class _Piece(NamedTuple):
    """Rows `begin` to `end` of a block's good ones, which lie in a batch from `at` on."""

    waiting: _Waiting
    begin: int
    end: int
    at: int


@dataclass(eq=False)
class _Waiting:
    """A block whose rows are on their way, and what has come back."""

    block: Block
    places: np.ndarray
    """The numbers of the rows that are run."""
    missing: int
    parts: list[tuple[int, Arrays]] = field(default_factory=list)

    def outputs(self) -> Arrays:
        """The outputs of all rows without a fault, in order."""
        parts = [arrays for _, arrays in sorted(self.parts, key=lambda part: part[0])]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}


class _Batch(NamedTuple):
    pieces: list[_Piece]
    outputs: Future[Arrays]


class _Here(Executor):
    """An executor whose calls are done when they are handed in, by the thread that does so."""

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """The result, which is there."""
        future: Future[Any] = Future()
        try:
            future.set_result(call(*given, **named))
        except (Error, ValueError) as error:
            future.set_exception(error)
        return future


def run_blocks(
    run: Run, blocks: Iterable[Block], rows: int, threads: int, *, pad: bool = False, keep_faults: bool = False
) -> Iterator[tuple[Block, Arrays]]:
    """The outputs of each block, in order: of its rows without a fault, no arrays where it has none of these.

    rows: of a batch. threads: that run them, 0 for the caller's own, which saves the way to another. pad: each batch
    has so many, the last row being repeated. keep_faults: a row with a fault, or one that the model fails on, is one in
    the block's `faults`; otherwise RowError names it.
    """
    executor: Executor = ThreadPoolExecutor(threads, "jitonnx-batch") if threads else _Here()
    queue: deque[_Waiting] = deque()
    running: deque[_Batch] = deque()
    gathered: list[_Piece] = []
    count, most = 0, max(1, threads * max(IN_FLIGHT, ROWS_IN_FLIGHT // rows))

    with executor:

        def send() -> None:
            nonlocal count
            pieces, count = gathered[:], 0
            gathered.clear()
            joined = _joined(pieces)
            running.append(_Batch(pieces, executor.submit(_run_padded, run, joined, rows if pad else 0)))

        try:
            for block in blocks:
                if not keep_faults:
                    block.refuse()
                places = block.good
                good = len(places)
                waiting = _Waiting(block, places, good)
                queue.append(waiting)
                if not good and not block.faults:
                    waiting.parts.append((0, _of_no_rows(run, block.arrays, rows if pad else 1)))
                begin = 0
                while begin < good:
                    end = min(good, begin + rows - count)
                    gathered.append(_Piece(waiting, begin, end, count))
                    count += end - begin
                    begin = end
                    if count == rows:
                        send()
                    while len(running) >= most:
                        _take(running.popleft(), run, rows if pad else 0, keep_faults=keep_faults)
                yield from _done(queue)
            if gathered:
                send()
            while running:
                _take(running.popleft(), run, rows if pad else 0, keep_faults=keep_faults)
                yield from _done(queue)
            yield from _done(queue)
        finally:
            for batch in running:
                batch.outputs.cancel()


def _done(queue: deque[_Waiting]) -> Iterator[tuple[Block, Arrays]]:
    while queue and not queue[0].missing:
        waiting = queue.popleft()
        yield waiting.block, waiting.outputs()


def _joined(pieces: list[_Piece]) -> Arrays:
    cut = [
        {name: array[piece.begin : piece.end] for name, array in piece.waiting.block.arrays.items()} for piece in pieces
    ]
    if len(cut) == 1:
        return cut[0]
    return {name: np.concatenate([one[name] for one in cut]) for name in cut[0]}


def _of_no_rows(run: Run, arrays: Arrays, rows: int) -> Arrays:
    """What the outputs of no rows look like: those of rows of zeros, without these."""
    zeros = {
        name: np.full((rows, *array.shape[1:]), "" if array.dtype == object else 0, array.dtype)
        for name, array in arrays.items()
    }
    return {name: array[:0] for name, array in run(zeros).items()}


def _run_padded(run: Run, arrays: Arrays, rows: int) -> Arrays:
    """rows: how many the model wants; 0 for any number."""
    given = len(next(iter(arrays.values())))
    if given >= rows:
        return run(arrays)
    filled = {name: np.concatenate([array, np.repeat(array[-1:], rows - given, 0)]) for name, array in arrays.items()}
    return {name: array[:given] for name, array in run(filled).items()}


def _take(batch: _Batch, run: Run, rows: int, *, keep_faults: bool) -> None:
    """Give a batch's outputs to the blocks that its rows are from."""
    try:
        outputs = batch.outputs.result()
    except (Error, ValueError) as error:
        _take_by_rows(batch.pieces, run, rows, keep_faults=keep_faults, error=error)
        return
    for piece in batch.pieces:
        own = slice(piece.at, piece.at + piece.end - piece.begin)
        _give(piece.waiting, piece.begin, piece.end, {name: array[own] for name, array in outputs.items()})


def _give(waiting: _Waiting, begin: int, end: int, outputs: Arrays) -> None:
    waiting.parts.append((begin, outputs))
    waiting.missing -= end - begin


def _take_by_rows(pieces: list[_Piece], run: Run, rows: int, *, keep_faults: bool, error: Exception) -> None:
    """A batch failed: row by row it shows which. Where none fails alone the batch's error stands."""
    failed = False
    for piece in pieces:
        for place in range(piece.begin, piece.end):
            row = int(piece.waiting.places[place])
            single = {name: array[place : place + 1] for name, array in piece.waiting.block.arrays.items()}
            try:
                outputs = _run_padded(run, single, rows)
            except (Error, ValueError) as fault:
                if not keep_faults:
                    raise RowError(f"{piece.waiting.block.name(row)}: {_text(fault)}") from fault
                piece.waiting.block.faults[row] = _text(fault)
                piece.waiting.missing -= 1
                failed = True
            else:
                _give(piece.waiting, place, place + 1, outputs)
    if not failed and not keep_faults:
        raise error


def _text(error: Exception) -> str:
    """What it says, without onnxruntime's prefix, which stands in front of what is said here."""
    return error.text if isinstance(error, Error) else str(error)
