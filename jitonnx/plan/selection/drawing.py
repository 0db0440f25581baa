"""Random numbers, and the search among sums of probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.random.spec import (
    NextBuffers,
    NextSizes,
    NextSpec,
    RandomBuffers,
    RandomSizes,
    RandomSpec,
    SearchBuffers,
    SearchSizes,
    SearchSpec,
)
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tables import SeededTable
from jitonnx.plan.tensor import StridedTensor, row_major

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def draw(planner: Planner, group: Group, computation: c.Draw) -> None:
    """Make a constant of what a seed draws; else count the plan's state on, and call the kernel that draws by it."""
    value = group.output
    order, count = tuple(range(len(value.shape))), product(value.shape)
    if computation.seed is not None:
        maker = SeededTable(computation.distribution, computation.seed, value.dtype)
        table = planner.computed(maker, 0, (count,), (count,), value.dtype)
        numbers = StridedTensor(table.buffer, 0, value.shape, row_major(value.shape))
        if planner.destination(value) is None:
            planner.bind(value, numbers)
        else:
            planner.copy_into(numbers, planner.place(value, order), "numbers of a seed are a constant")
        return
    y = planner.dense_place(value)
    drawn = planner.temporary((2,), DType.INT64)
    buffers = NextBuffers(state=planner.state(), drawn=drawn)
    planner.call(KernelCall(NextSpec(), buffers, NextSizes(words=2), label="next draw", reason="a state is counted on"))
    spec = RandomSpec(computation.distribution.kind, value.dtype.numpy.name)
    limits = planner.constant(computation.distribution.limits(value.dtype.numpy))
    label, given = f"random {spec.kind}", RandomBuffers(drawn=drawn, limits=limits, y=y)
    planner.call(KernelCall(spec, given, RandomSizes(count=count), label=label, reason="Philox 4x32-10"))


def search(planner: Planner, group: Group, computation: c.Search, ascending: Value, numbers: Value) -> None:
    """Places of numbers among ascending ones, row by row."""
    sums, x, y = planner.dense(ascending), planner.dense(numbers), planner.dense_place(group.output)
    spec = SearchSpec(y.dtype.numpy.name)
    sizes = SearchSizes(rows=x.shape[0], sums=sums.shape[1], columns=x.shape[1])
    buffers = SearchBuffers(sums=sums, x=x, y=y)
    planner.call(KernelCall(spec, buffers, sizes, label="search", reason="by halves"))
