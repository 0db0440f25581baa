"""Outputs in memory that the caller gives: what of it kernels write themselves, and what is copied behind the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.runtime.executable import Executable

Targets = Sequence["np.ndarray | None"]
"""An array for each output that is to be written to it, in the order of the outputs; None for the others."""


class Placed(NamedTuple):
    """What a run gave."""

    outputs: list[Any]
    """All of them; those with a target in its memory."""
    again: Callable[[], list[Any]] | None
    """The same run on the same memory, where nothing has to be copied and no output has to be new; they are given again
    and not checked again."""


def check_type(name: str, actual: str, expected: str) -> None:
    """InvalidArgument if memory for an output is of another type, both in onnxruntime's words, than the output."""
    if actual != expected:
        raise InvalidArgument(
            f"Unexpected output data type. Actual: ({actual}) , expected: ({expected}) for output {name!r}"
        )


def check_shapes(names: Sequence[str], shapes: Sequence[tuple[int, ...]], targets: Targets) -> None:
    """InvalidArgument for a target of another shape than its output has in this run."""
    for name, shape, target in zip(names, shapes, targets, strict=True):
        if target is None or target.shape == shape:
            continue
        advice = (
            "Please fix either the inputs/outputs or the model. "
            f"The output OrtValue provided for output {name!r} has shape {_braces(target.shape)} but the computed "
            f"output shape for this run is {_braces(shape)}; bind the output without memory where shapes change"
        )
        if target.ndim != len(shape):
            raise InvalidArgument(f"Invalid rank for output: {name} Got: {target.ndim} Expected: {len(shape)} {advice}")
        wrong = "".join(
            f" index: {axis} Got: {got} Expected: {size}\n"
            for axis, (got, size) in enumerate(zip(target.shape, shape, strict=True))
            if got != size
        )
        raise InvalidArgument(f"Got invalid dimensions for output: {name} for the following indices\n{wrong} {advice}")


def in_place(executable: Executable, inputs: Sequence[np.ndarray], targets: Targets) -> list[np.ndarray | None]:
    """The targets that kernels can write themselves, None in the place of others.

    Those are in another order of memory, not aligned, or share memory with an input or another target, which would be
    overwritten before it is read. A cache that is the past and the present at once is written in place.
    """
    usable = [
        target if target is not None and executable.takes(index, target) else None
        for index, target in enumerate(targets)
    ]
    owners = {_span(target): index for index, target in enumerate(usable) if target is not None and target.nbytes}
    shared, spans = executable.shared, []
    for number, array in enumerate(inputs):
        span = _span(array)
        if array.nbytes and (number, owners.get(span)) not in shared:
            spans.append((*span, -1))
    spans += [(*_span(target), index) for index, target in enumerate(usable) if target is not None and target.nbytes]
    reach, owner = 0, -1
    for begin, end, index in sorted(spans):
        if begin < reach:
            for both in {index, owner} - {-1}:
                usable[both] = None
        if end > reach:
            reach, owner = end, index
    return usable


def all_in_place(
    names: Sequence[str],
    feeds: Mapping[str, Any],
    inputs: Sequence[np.ndarray],
    usable: Targets,
    targets: Targets,
) -> bool:
    """Whether kernels read the inputs, by name in `feeds`, where they are, and write the targets themselves."""
    if any(usable_one is not target for usable_one, target in zip(usable, targets, strict=True)):
        return False
    return all(
        isinstance(feeds[name], np.ndarray) and not array.dtype.hasobject and _span(feeds[name]) == _span(array)
        for name, array in zip(names, inputs, strict=True)
    )


def copied(outputs: Sequence[Any], targets: Targets) -> list[Any]:
    """The outputs, each in its target if it has one; those that are not there yet are copied."""
    placed = []
    for output, target in zip(outputs, targets, strict=True):
        if target is not None and output is not target:
            target[...] = output
        placed.append(output if target is None else target)
    return placed


def _span(array: np.ndarray) -> tuple[int, int]:
    """The addresses of a contiguous array's first byte, and of the one behind its last."""
    begin = array.__array_interface__["data"][0]
    return begin, begin + array.nbytes


def _braces(shape: Sequence[int]) -> str:
    return "{" + ",".join(map(str, shape)) + "}"
