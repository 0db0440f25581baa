"""The gathering kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import types

from jitonnx.kernels.code import Code, Pointer, convert, emitted, remainder, smaller
from jitonnx.kernels.gather.spec import GatherElementsSpec, GatherRowsSpec
from jitonnx.kernels.memory import copy_bytes
from jitonnx.kernels.trace import Traced, select

_WORDS = {1: types.uint8, 2: types.uint16, 4: types.uint32, 8: types.uint64}


def build(spec: GatherRowsSpec | GatherElementsSpec, lanes: int, epilogue: Any = None) -> Callable[..., None]:
    """The kernel of `spec` for vectors of 4 * lanes bytes. There is no epilogue."""
    if epilogue is not None:
        raise ValueError(f"{spec} takes no epilogue")
    if isinstance(spec, GatherRowsSpec):
        return emitted(lambda code, begin, end: _gather_rows(code, spec, 4 * lanes, begin, end))
    return emitted(lambda code, begin, end: _gather_elements(code, spec, begin, end))


def _sizes(code: Code, spec: GatherRowsSpec | GatherElementsSpec) -> dict[str, Traced]:
    return {name: code.size(index) for index, name in enumerate(spec.SIZES)}


def _counted(index: Traced, extent: Traced) -> tuple[Traced, Traced]:
    """(the index counted from the start, whether it is in range)."""
    index = convert(index, types.int64)
    index = select(index < 0, index + extent, index)
    return index, (index >= 0) & (index < extent)


def _fetch(code: Code, valid: Traced, move: Callable[[], None]) -> None:
    """move() if the index is valid; else that is noted in buffer `error`."""
    with code.either(valid) as (right, wrong):
        with right:
            move()
        with wrong:
            code.buffer(GatherRowsSpec.BUFFERS.index("error"), types.int64).store(0, code.integer(1))


def _gather_rows(code: Code, spec: GatherRowsSpec, vector_bytes: int, begin: Traced, end: Traced) -> None:
    size, first_axis = _sizes(code, spec), spec.SIZES.index("extent_0")
    axes = spec.SIZES.index("data_0") - first_axis
    data, out = code.buffer(0, types.uint8), code.buffer(2, types.uint8)
    indices = code.buffer(1, getattr(types, spec.index))
    rows = size["batch"] * size["count"]
    with code.loop(smaller(end * size["task_rows"], rows), begin * size["task_rows"]) as row:
        batch, number = row / size["count"], remainder(row, size["count"])
        place, offset = batch * size["indices_batch"] + number * size["indices_row"], code.variable(code.integer(0))
        found = code.variable(code.integer(1))
        with code.loop(size["width"]) as i:
            index, valid = _counted(indices.load(place + i), code.size(i + first_axis))
            offset.set(offset.get() + index * code.size(i + (first_axis + axes)))
            found.set(select(valid, found.get(), 0))
        source = data.at(batch * size["data_batch"] + offset.get())
        target = out.at(batch * size["out_batch"] + number * size["out_row"])
        move = functools.partial(copy_bytes, code, target, source, size["run_bytes"], vector_bytes)
        _fetch(code, found.get().equals(1), move)


def _gather_elements(code: Code, spec: GatherElementsSpec, begin: Traced, end: Traced) -> None:
    size, word = _sizes(code, spec), _WORDS[spec.itemsize]
    stop = smaller(end * size["task_rows"], size["rows"])
    with code.loop(stop, begin * size["task_rows"]) as row:
        starts = _row_start(code, spec, size["outer_rank"], row)
        pointers = [code.buffer(0, word), code.buffer(1, getattr(types, spec.index)), code.buffer(2, word)]
        data, indices, out = (pointer.at(start) for pointer, start in zip(pointers, starts, strict=True))
        with code.loop(size["inner_extent"], unroll=True) as i:
            index, valid = _counted(indices.load(i * size["inner_indices"]), size["axis_extent"])
            source, target = i * size["inner_data"] + index * size["axis_stride"], i * size["inner_out"]
            _fetch(code, valid, functools.partial(_move, data, source, out, target))


def _move(data: Pointer, source: Traced, out: Pointer, target: Traced) -> None:
    out.store(target, data.load(source))


def _row_start(code: Code, spec: GatherElementsSpec, rank: Traced, row: Traced) -> list[Traced]:
    """Where a row starts in data, indices and out."""
    first, rest = spec.SIZES.index("outer_0_extent"), code.variable(row)
    starts = [code.variable(code.integer(0)) for _ in range(3)]
    with code.loop(rank) as done:
        axis = (rank - 1 - done) * 4 + first
        extent, number = code.size(axis), rest.get()
        rest.set(number / extent)
        for which, start in enumerate(starts):
            start.set(start.get() + remainder(number, extent) * code.size(axis + (1 + which)))
    return [start.get() for start in starts]
