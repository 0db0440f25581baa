"""Kernels' calls, done three ways on NumPy arrays: by LLVM, by Numba, and by Python itself from Numba's source."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.codegen.build import kernel_of
from jitonnx.codegen.code import code_of
from jitonnx.codegen.numba import evaluating
from jitonnx.codegen.numba.compiling import module_of
from jitonnx.codegen.numba.source import Source
from jitonnx.codegen.numba.sources import write
from jitonnx.ir.dtypes import of_numpy
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.tensor import Buffer, StridedTensor
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled

WAYS = ("llvm", "numba", "python")


def tensor(array: np.ndarray, name: str = "test") -> StridedTensor:
    """An array as an operand of a plan."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return StridedTensor(Buffer(name, "arena", array.size, of_numpy(array.dtype)), 0, array.shape, strides)


@functools.cache
def _by_numba(source: Source) -> Compiled:
    return Compiled.of_module(lambda symbol: module_of(source, symbol, host()))


def _memory(array: np.ndarray) -> np.ndarray:
    """All elements from the lowest to the highest one of an array, as numbers that Python's sources take."""
    spans = [stride * (size - 1) for size, stride in zip(array.shape, array.strides, strict=True)]
    if not array.size:
        return np.zeros(1, _bits(array.dtype))
    pairs = zip(array.shape, spans, strict=True)
    lowest = array[(*(slice(size - 1, None) if span < 0 else slice(0, 1) for size, span in pairs), ...)]
    count = sum(map(abs, spans)) // array.itemsize + 1
    flat = np.lib.stride_tricks.as_strided(lowest, (count,), (array.itemsize,))
    return flat.view(_bits(array.dtype))


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype({"float16": "uint16", "bfloat16": "uint16", "bool": "uint8"}.get(dtype.name, dtype))


def run(call: KernelCall, buffers: Sequence[np.ndarray], sizes: Sequence[int], way: str, pieces: int = 3) -> None:
    """Do all tasks of a call, in pieces. sizes: those that its kernel is called with, stages' included."""
    complete = call.spec.complete(call.spec.given(sizes[: len(call.sizes)]))
    every = [*complete, *sizes[len(call.sizes) :]]
    tasks, scratch = call.spec.tasks(complete), call.spec.scratch_bytes(complete)
    if way == "llvm":
        Compiled(kernel_of(code_of(call), host()), host(), call.spec.prescheduled)(
            buffers, every, tasks, scratch, pieces
        )
        return
    source = write(call, named=way == "python")
    if way == "numba":
        _by_numba(source)(buffers, every, tasks, scratch, pieces)
        return
    memory = [_memory(buffer) for buffer in buffers]
    for piece in range(pieces):
        begin, end = tasks * piece // pieces, tasks * (piece + 1) // pieces
        if begin < end:
            evaluating.run(source, memory, every, begin, end)


def results(
    call: KernelCall,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    sizes: Sequence[int] | None = None,
    ways: Sequence[str] = WAYS,
) -> dict[str, list[np.ndarray]]:
    """What is in the outputs afterwards, by the way it came there. outputs: as they are before; sizes: where open."""
    found = {}
    whole = [output.base if isinstance(output.base, np.ndarray) else output for output in outputs]
    before = [array.copy() for array in whole]
    for way in ways:
        for array, old in zip(whole, before, strict=True):
            array[...] = old
        run(call, [*inputs, *outputs], sizes or [*map(int, (*call.sizes, *call.stage_sizes))], way)
        found[way] = [output.copy() for output in outputs]
    return found
