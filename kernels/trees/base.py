"""What the kernels of decision trees share: loops over rows, trees and targets, and what becomes of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer, smaller
from jitonnx.emit.ssa import SSAValue, narrow, select
from jitonnx.kernels.trees.spec import BLOCK, TreesSizes

TOGETHER = 4
"""Vectors that go down in turns."""


class TreesKernel:
    """The loops over rows, trees and targets, and what becomes of weights; subclasses know how to go down a tree."""

    floats: tuple[str, ...]
    """Buffers of the spec's elements."""
    others: ClassVar[dict[str, types.ElementType]] = {}
    """Those of other elements than that and int32."""

    def __init__(self, code: KernelBuilder, spec: Any, lanes: int) -> None:
        self.code, self.spec = code, spec
        self.element: types.ElementType = getattr(types, spec.element)
        self.lanes = lanes * 32 // self.element.bitwidth
        self.size = code.sizes(TreesSizes)
        self.scratch = self.sums = code.scratch(self.element)
        self.pitch = self.size.piece
        """Rows from the sums of one target to those of the next."""
        self.buffers = code.buffers(
            spec.BUFFERS, types.int32, **dict.fromkeys(self.floats, self.element), **self.others
        )
        self.x, self.values, self.goals, self.out = (getattr(self.buffers, n) for n in ("x", "values", "goals", "out"))

    # ------------------------------------------------------------ for subclasses

    def begin_tree(self, tree: SSAValue) -> Any:
        """What of a tree all rows share."""
        raise NotImplementedError

    def descend(self, shared: Any, x: Pointer, rows: Sequence[SSAValue]) -> list[SSAValue]:
        """The leaves that vectors of rows reach, as numbers to look weights up by; rows: where they begin in x."""
        raise NotImplementedError

    def weight(self, shared: Any, leaf: SSAValue) -> SSAValue:
        """The only weight of leaves."""
        return self.values.gather(leaf)

    def features_of(self, x: Pointer) -> Any:
        """What `descend_trees` is given of a row: where its features are read."""
        return x

    def descend_trees(self, x: Any, trees: Sequence[SSAValue]) -> list[SSAValue]:
        """The leaves that a row reaches in vectors of trees, numbered over all trees."""
        raise NotImplementedError

    def first_value(self, shared: Any) -> SSAValue:
        """The number of the first of those leaves that `descend` counts, over all trees."""
        return self.code.integer(0)

    # ------------------------------------------------------------ numbers

    def int32(self, value: int, lanes: int | None = None) -> SSAValue:
        return self.code.number(types.int32, value, self.lanes if lanes is None else lanes)

    def splat(self, x: SSAValue) -> SSAValue:
        """A scalar integer in all lanes, as int32."""
        return self.code.splat(narrow(x) if x.width == 64 else x, self.lanes)

    def iota(self) -> SSAValue:
        return SSAValue(
            self.code.builder,
            types.int32,
            llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(32), self.lanes), list(range(self.lanes))),
        )

    def combine(self, a: SSAValue, b: SSAValue) -> SSAValue:
        if self.spec.aggregate == "sum":
            return a + b
        return select(b < a, b, a) if self.spec.aggregate == "min" else select(b > a, b, a)

    @property
    def start(self) -> float:
        return {"sum": 0.0, "min": float("inf"), "max": float("-inf")}[self.spec.aggregate]

    # ------------------------------------------------------------ rows side by side

    def run(self, begin: SSAValue, end: SSAValue) -> None:
        code, size = self.code, self.size
        with code.if_else(size.one_by_one > 0) as (alone, together):
            with alone, code.loop(size.rows) as row:
                self._row(row)
            with together:
                start, stop = (code.integer(bound) * BLOCK for bound in (begin, end))
                stop = smaller(stop, size.rows)
                with code.loop(stop, start, size.piece) as first:
                    self._piece(first, smaller(stop - first, size.piece))

    def _piece(self, first: SSAValue, count: SSAValue) -> None:
        code, size, lanes = self.code, self.size, self.lanes
        self._begin_sums()
        x = self.x.at(first * size.x_row)
        whole = self._floor(count, lanes * TOGETHER)
        with code.loop(size.trees) as tree:
            shared = self.begin_tree(tree)
            goal = code.integer(self._wide(self.goals.load(tree))) * self.pitch
            with code.loop(whole, step=lanes * TOGETHER) as row:
                self._rows(shared, x, row, count, goal, TOGETHER)
            with code.loop(count, whole, lanes) as row:
                self._rows(shared, x, row, count, goal, 1)
        self._write(first, count)

    def _floor(self, x: SSAValue, unit: int) -> SSAValue:
        return x & -unit

    def _wide(self, x: SSAValue) -> SSAValue:
        return SSAValue(x.builder, types.int64, x.builder.sext(x.value, llvm_ir.IntType(64)))

    def _rows(self, shared: Any, x: Pointer, first: SSAValue, count: SSAValue, goal: SSAValue, vectors: int) -> None:
        lanes = self.lanes
        leaves = self.descend(shared, x, [self._starts(first + vector * lanes, count) for vector in range(vectors)])
        if self.spec.leaves == "one":
            for vector, leaf in enumerate(leaves):
                self._add(goal + first + vector * lanes, self.weight(shared, leaf))
        else:
            self._add_every_target(first, leaves, self.values.at(self.first_value(shared) * self.size.targets))

    def _starts(self, first: SSAValue, count: SSAValue) -> SSAValue:
        """The offsets of a vector of rows in x, in elements; the last of `count` rows again for those behind it."""
        rows, last = self.splat(first) + self.iota(), self.splat(count - 1)
        return select(rows < last, rows, last) * self.splat(self.size.x_row)

    def _begin_sums(self) -> None:
        start = self.code.number(self.element, self.start, self.lanes)
        with self.code.loop(self.size.targets * self.pitch, step=self.lanes) as place:
            self.sums.store(place, start)

    def _add(self, place: SSAValue, weight: SSAValue) -> None:
        self.sums.store(place, self.combine(self.sums.load(place, self.lanes), weight))

    def _add_every_target(self, first: SSAValue, leaves: Sequence[SSAValue], values: Pointer) -> None:
        """Add the weights that leaves have for each target, vectors of rows from `first` on. values: a tree's."""
        targets = self.size.targets
        wide = self.splat(targets)
        places = [leaf * wide for leaf in leaves]
        with self.code.loop(targets) as target:
            column = values.at(target)
            for vector, place in enumerate(places):
                self._add(target * self.pitch + first + vector * self.lanes, column.gather(place))

    def _write(self, first: SSAValue, count: SSAValue) -> None:
        code, targets = self.code, self.size.targets
        out = self.out.at(first * targets)
        with code.if_else(targets > 1) as (several, single):
            with several, code.loop(targets) as target, code.loop(count) as row:
                out.store(row * targets + target, self.sums.load(target * self.pitch + row))
            with single, code.loop(count, step=self.lanes) as row:
                active = count - row
                out.store(row, self.sums.load(row, self.lanes), active)

    # ------------------------------------------------------------ a row alone

    def _row(self, row: SSAValue) -> None:
        """Go down all trees, a vector of them at a time; then the leaves' weights are added up in the trees' order."""
        code, size, lanes = self.code, self.size, self.lanes
        x, trees = self.features_of(self.x.at(row * size.x_row)), size.trees
        leaves = Pointer(code, types.int32, self.scratch.to(types.int32).value)
        whole = self._floor(trees, lanes * TOGETHER)
        for stop, start, vectors in ((whole, code.integer(0), TOGETHER), (trees, whole, 1)):
            with code.loop(stop, start, lanes * vectors) as tree:
                firsts = [tree + vector * lanes for vector in range(vectors)]
                for first, leaf in zip(firsts, self.descend_trees(x, firsts), strict=True):
                    leaves.store(first, leaf)
        out = self.out.at(row * size.targets)
        start = code.number(self.element, self.start)
        if self.spec.leaves == "all":
            self._add_leaves(leaves, out)
            return
        with code.if_else(size.targets > 1) as (several, single):
            with several:
                with code.loop(size.targets) as target:
                    out.store(target, start)
                with code.loop(trees) as tree:
                    goal = self._wide(self.goals.load(tree))
                    out.store(goal, self.combine(out.load(goal), self.values.load(self._wide(leaves.load(tree)))))
            with single:
                total = code.variable(start)
                with code.loop(trees) as tree:
                    total.set(self.combine(total.get(), self.values.load(self._wide(leaves.load(tree)))))
                out.store(0, total.get())

    def _add_leaves(self, leaves: Pointer, out: Pointer) -> None:
        code, lanes, targets = self.code, self.lanes, self.size.targets
        with code.loop(targets, step=lanes) as first:
            active = code.active(targets - first, lanes)
            total = code.variable(code.number(self.element, self.start, lanes))
            with code.loop(self.size.trees) as tree:
                place = self._wide(leaves.load(tree)) * targets + first
                total.set(self.combine(total.get(), self.values.load(place, lanes, active)))
            out.store(first, total.get(), active)
