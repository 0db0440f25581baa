"""Trees of `LeafMasksSpec`: all nodes of a tree are asked, and the first leaf that none has cleared is the one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer, smaller
from jitonnx.emit.instructions import permuted
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.trees.base import TOGETHER, TreesKernel
from jitonnx.kernels.trees.spec import BLOCK, PADDING, LeafMasksSpec

_BITS = 32
_COMPARE = {"gt": "__gt__", "ge": "__ge__", "le": "__le__", "lt": "__lt__"}
_OPPOSITE = {"gt": "le", "ge": "lt", "le": "gt", "lt": "ge"}


class LeafMasksKernel(TreesKernel):
    """Rows by blocks, whose features lie column by column in scratch memory; or one alone, all trees of a group."""

    floats = ("x", "thresholds", "values", "out")
    others: ClassVar[dict[str, types.ElementType]] = {}

    def __init__(self, code: KernelBuilder, spec: LeafMasksSpec, lanes: int) -> None:
        super().__init__(code, spec, lanes)
        buffers = self.buffers
        self.columns, self.thresholds, self.features = buffers.columns, buffers.thresholds, buffers.features
        self.masks, self.counts = buffers.masks, buffers.counts
        self.leaves_of_tree = _BITS * spec.words
        self.sums, self.pitch = self.scratch.at(BLOCK * spec.used), code.integer(BLOCK)

    # ------------------------------------------------------------ nodes

    def _phases(self, group: SSAValue) -> Iterator[tuple[SSAValue, SSAValue, Callable[[SSAValue, SSAValue], SSAValue]]]:
        """Nodes of a group: the first, the end, and whether values lead to second children."""
        counts = self.counts.at(group * 4)
        first, unordered, ordered = (self._wide(counts.load(place)) for place in range(3))
        relation = self.spec.relation
        if self.spec.mixed:
            opposite = _COMPARE[_OPPOSITE[relation]]
            yield first, first + unordered, lambda x, threshold: ~getattr(x, opposite)(threshold)
        start = first + unordered
        yield start, start + ordered, lambda x, threshold: getattr(x, _COMPARE[relation])(threshold)

    def _values(self, group: SSAValue) -> SSAValue:
        """The place at which the values of a group's first tree begin."""
        return self._wide(self.counts.at(group * 4).load(3))

    def _full(self) -> SSAValue:
        return self.int32(-1)

    def _leaf(self, words: Sequence[SSAValue]) -> SSAValue:
        """The number of the first bit that is set, from the highest of the first word on."""
        builder = self.code.builder
        false = llvm_ir.Constant(llvm_ir.IntType(1), 0)
        found: SSAValue | None = None
        for number in reversed(range(len(words))):
            word = words[number]
            place = word.like(builder.ctlz(word.value, false)) + number * _BITS
            found = place if found is None else select(word.differs(0), place, found)
        assert found is not None
        return found

    # ------------------------------------------------------------ rows side by side

    def _piece(self, first: SSAValue, count: SSAValue) -> None:
        """Blocks of rows, one after the other."""
        with self.code.loop(count, step=BLOCK) as row:
            self._block(first + row, smaller(count - row, BLOCK))

    def _block(self, first: SSAValue, count: SSAValue) -> None:
        code, size, lanes, columns = self.code, self.size, self.lanes, self.scratch
        x = self.x.at(first * size.x_row)
        with code.loop(count, step=lanes) as row:
            starts = self._starts(row, count)
            with code.loop(self.spec.used) as column:
                feature = self.splat(self._wide(self.columns.load(column)))
                columns.store(column * BLOCK + row, x.gather(starts + feature))
        self._begin_sums()
        whole = self._floor(count, lanes * TOGETHER)
        groups = (size.trees + (lanes - 1)) / lanes
        with code.loop(groups) as group:
            of_group = smaller(size.trees - group * lanes, lanes)
            with code.loop(of_group) as tree:
                goal = self._wide(self.goals.load(group * lanes + tree)) * self.pitch
                with code.loop(whole, step=lanes * TOGETHER) as row:
                    self._ask((group, tree), row, goal, TOGETHER)
                with code.loop(count, whole, lanes) as row:
                    self._ask((group, tree), row, goal, 1)
        self._write(first, count)

    def _ask(self, place: tuple[SSAValue, SSAValue], row: SSAValue, goal: SSAValue, vectors: int) -> None:
        """Add the weights of the leaves that vectors of rows from `row` on reach in a tree. place: its group, and where
        in that it is; goal: where the sums of its target begin."""
        (group, tree), columns = place, self.scratch.at(row)
        code, lanes, words = self.code, self.lanes, self.spec.words
        state = [[code.variable(self._full()) for _ in range(words)] for _ in range(vectors)]
        for start, end, leads in self._phases(group):
            with code.loop(end, start) as node:
                at = node * lanes + tree
                threshold = code.splat(self.thresholds.load(at), lanes)
                column = columns.at(self._wide(self.features.load(at)) * BLOCK)
                masks = [
                    code.splat(self.masks.load((node * words + word) * lanes + tree), lanes) for word in range(words)
                ]
                for vector in range(vectors):
                    second = leads(column.load(vector * lanes, lanes), threshold)
                    for variable, mask in zip(state[vector], masks, strict=True):
                        variable.set(variable.get() & select(second, mask, self._full()))
        first_value = self._values(group) + tree * self.leaves_of_tree
        leaves = [self._leaf([variable.get() for variable in words]) for words in state]
        if self.spec.leaves == "one":
            for vector, leaf in enumerate(leaves):
                self._add(goal + row + vector * lanes, self._weight(self.values.at(first_value), leaf))
        else:
            self._add_every_target(row, leaves, self.values.at(first_value * self.size.targets))

    def _weight(self, values: Pointer, leaf: SSAValue) -> SSAValue:
        """The only weight of leaves: of 32 or 64 by a look in registers, where two of these hold 32."""
        lanes, words = self.lanes, self.spec.words
        if 2 * lanes != _BITS or words > 2:
            return values.gather(leaf)
        halves = []
        for word in range(words):
            low, high = (values.load(word * _BITS + half * lanes, lanes) for half in (0, 1))
            halves.append(permuted(low, high, leaf & (_BITS - 1)))
        return halves[0] if words == 1 else select(leaf < _BITS, *halves)

    # ------------------------------------------------------------ a row alone

    def features_of(self, x: Pointer) -> Any:
        """The features that are asked for: two registers, if these hold all, else where they are in memory."""
        code, lanes, used = self.code, self.lanes, self.spec.used
        if lanes >= 8 and used <= 2 * lanes:
            low, high = (x.gather(self.columns.load(half * lanes, lanes)) for half in (0, 1))
            return low, high
        row = self.scratch.at(self.size.trees + PADDING)
        with code.loop(used, step=lanes) as column:
            row.store(column, x.gather(self.columns.load(column, lanes)))
        return row

    def descend_trees(self, x: Any, trees: Sequence[SSAValue]) -> list[SSAValue]:
        return [self._asked(x, tree / self.lanes) for tree in trees]

    def _asked(self, row: Any, group: SSAValue) -> SSAValue:
        """The leaves that a row reaches in the trees of a group, by the places of their values."""
        code, lanes, words = self.code, self.lanes, self.spec.words
        state = [code.variable(self._full()) for _ in range(words)]
        for start, end, leads in self._phases(group):
            with code.loop(end, start) as node:
                features = self.features.load(node * lanes, lanes)
                values = row.gather(features) if isinstance(row, Pointer) else permuted(row[0], row[1], features)
                second = leads(values, self.thresholds.load(node * lanes, lanes))
                for word, variable in enumerate(state):
                    mask = self.masks.load((node * words + word) * lanes, lanes)
                    variable.set(variable.get() & select(second, mask, self._full()))
        first = self.splat(self._values(group)) + self.iota() * self.leaves_of_tree
        return self._leaf([variable.get() for variable in state]) + first
