"""Trees of `MixedTreesSpec`, whose nodes compare in any way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Pointer, Variable
from jitonnx.emit.intrinsics import holds_everywhere
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.trees.base import TreesKernel
from jitonnx.kernels.trees.spec import MixedTreesSpec


class MixedKernel(TreesKernel):
    """Trees of `MixedTreesSpec`."""

    floats = ("x", "values", "out", "thresholds")

    def __init__(self, code: KernelBuilder, spec: MixedTreesSpec, lanes: int) -> None:
        super().__init__(code, spec, lanes)
        _, self.thresholds, self.features, self.truths, self.true, self.false, _, self.roots, *_ = self.buffers

    def begin_tree(self, tree: SSAValue) -> Any:
        return self.roots.load(tree)

    def descend(self, shared: Any, x: Pointer, rows: Sequence[SSAValue]) -> list[SSAValue]:
        roots = [self.splat(shared) for _ in rows]
        return self._down(roots, lambda feature, active, number: x.gather(rows[number] + feature, active))

    def descend_trees(self, x: Any, trees: Sequence[SSAValue]) -> list[SSAValue]:
        roots = [self.roots.load(tree, self.lanes) for tree in trees]
        return self._down(roots, lambda feature, active, number: x.gather(feature, active))

    def _down(self, roots: Sequence[SSAValue], value: Callable[[SSAValue, SSAValue, int], SSAValue]) -> list[SSAValue]:
        """Go from nodes to leaves: until all places are ~leaf."""
        code, builder = self.code, self.code.builder
        variables: list[Variable] = [code.variable(root) for root in roots]

        def inner() -> SSAValue:
            places = [variable.get() for variable in variables]
            highest = places[0]
            for place in places[1:]:
                highest = select(place > highest, place, highest)
            everywhere = holds_everywhere(builder, (highest < 0).value)
            return SSAValue(builder, types.boolean, builder.not_(everywhere))

        with code.loop_while(inner):
            for number, variable in enumerate(variables):
                place = variable.get()
                active = place >= 0
                threshold = self.thresholds.gather(place, active)
                x = value(self.features.gather(place, active), active, number)
                outcome = select(x > threshold, self.int32(4), self.int32(8))
                outcome = select(x.equals(threshold), self.int32(2), outcome)
                outcome = select(x < threshold, self.int32(1), outcome)
                true = (self.truths.gather(place, active) & outcome).differs(0)
                following = select(true, self.true.gather(place, active), self.false.gather(place, active))
                variable.set(select(active, following, place))
        return [~variable.get() for variable in variables]
