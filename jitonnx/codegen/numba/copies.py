"""Copies between layouts as source: a loop for each axis, in the order in which the target lies in memory."""

from __future__ import annotations

from contextlib import ExitStack

from jitonnx.codegen.numba.kernel import KernelWriter
from jitonnx.codegen.numba.writing import Amount, Uncovered, least, plus, split, times
from jitonnx.kernels.parts.axes import merged


def write_copy(kernel: KernelWriter) -> str:
    """Write a transposing copy. Tasks are as many as LLVM's kernel has, of as many rows each.

    Raises: Uncovered where sizes are open: how many tasks there are is then not known.
    """
    code, size, tasks = kernel.code, kernel.sizes, kernel.tasks
    if tasks is None:
        raise Uncovered("a copy between layouts of open sizes")
    triples = sorted(zip(size.extents, size.sources, size.targets, strict=True), key=lambda axis: -abs(axis[2]))
    axes = merged([(extent, source, target) for extent, source, target in triples]) or [(1, 0, 0)]
    rows = 1
    for extent, _, _ in axes[:-1]:
        rows *= extent
    extent, source, target = axes[-1]
    with ExitStack() as stack:
        place: list[Amount] = []
        names = "ijklmnop"[: len(axes)]
        first: Amount = 0
        last: Amount = extent
        if rows == 1:
            if tasks > 1:
                each = -(-extent // tasks)
                first, last = times("begin", each), least(times("end", each), extent)
        else:
            each = -(-rows // tasks)
            row = code.fresh("row")
            bounds = f"{times('begin', each)}, {least(times('end', each), rows)}" if tasks > 1 else str(rows)
            stack.enter_context(code.block(f"for {row} in range({bounds}):"))
            place = split(code, row, [(name, axis[0]) for name, axis in zip(names, axes[:-1], strict=False)])
        at_source, at_target = (
            plus(*(times(where, axis[number]) for where, axis in zip(place, axes[:-1], strict=False)))
            for number in (1, 2)
        )
        at_source = code.named("at_source", at_source) if isinstance(at_source, str) else at_source
        at_target = code.named("at_target", at_target) if isinstance(at_target, str) else at_target
        inner = code.fresh(names[-1])
        with code.block(f"for {inner} in range({first}, {last}):"):
            to = kernel.element(1, plus(at_target, times(inner, target)))
            code.line(f"{to} = {kernel.element(0, plus(at_source, times(inner, source)))}")
    return "elements as they are, in another order"
