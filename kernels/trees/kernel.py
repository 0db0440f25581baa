"""The kernels of decision trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, Variable, shuffled, smaller
from jitonnx.emit.epilogue import Stage
from jitonnx.emit.instructions import permuted, reordered
from jitonnx.emit.intrinsics import holds_everywhere
from jitonnx.emit.ssa import SSAValue, bits, from_bits, isnan, narrow, select
from jitonnx.kernels.trees.spec import (
    BLOCK,
    MixedTreesSpec,
    TreesSizes,
    TreesSpec,
    leaf_elements,
    level_elements,
    table_elements,
)

_TOGETHER = 4
"""Vectors that go down in turns."""


def build(spec: TreesSpec | MixedTreesSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of 4 * lanes bytes. There is no epilogue."""
    if epilogue is not None:
        raise ValueError(f"{spec} takes no epilogue")
    kind: type[_Kernel] = _Records if isinstance(spec, TreesSpec) else _Mixed
    return lambda code, begin, end: kind(code, spec, lanes).run(begin, end)


class _Kernel:
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
        self.scratch = code.scratch(self.element)
        own = {"records": types.int64} if isinstance(spec, TreesSpec) else {"thresholds": self.element}
        floats = dict.fromkeys(
            ("x", "values", "out", *(["tables"] if isinstance(spec, TreesSpec) else [])), self.element
        )
        self.buffers = code.buffers(spec.BUFFERS, types.int32, **floats, **own)
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

    def descend_trees(self, x: Pointer, trees: Sequence[SSAValue]) -> list[SSAValue]:
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
        zeros = code.number(self.element, self.start, lanes)
        with code.loop(size.targets * size.piece, step=lanes) as place:
            self.scratch.store(place, zeros)
        x = self.x.at(first * size.x_row)
        whole = self._floor(count, lanes * _TOGETHER)
        with code.loop(size.trees) as tree:
            shared = self.begin_tree(tree)
            goal = code.integer(self._wide(self.goals.load(tree))) * size.piece
            with code.loop(whole, step=lanes * _TOGETHER) as row:
                self._rows(shared, x, row, count, goal, _TOGETHER)
            with code.loop(count, whole, lanes) as row:
                self._rows(shared, x, row, count, goal, 1)
        self._write(first, count)

    def _floor(self, x: SSAValue, unit: int) -> SSAValue:
        return x & -unit

    def _wide(self, x: SSAValue) -> SSAValue:
        return SSAValue(x.builder, types.int64, x.builder.sext(x.value, llvm_ir.IntType(64)))

    def _rows(self, shared: Any, x: Pointer, first: SSAValue, count: SSAValue, goal: SSAValue, vectors: int) -> None:
        code, lanes = self.code, self.lanes
        last, step = self.splat(count - 1), self.splat(self.size.x_row)
        starts = []
        for vector in range(vectors):
            row = self.splat(first + vector * lanes) + self.iota()
            starts.append(select(row < last, row, last) * step)
        leaves = self.descend(shared, x, starts)
        if self.spec.leaves == "one":
            for vector, leaf in enumerate(leaves):
                self._add(goal + first + vector * lanes, self.weight(shared, leaf))
            return
        targets = self.size.targets
        wide = self.splat(targets)
        places = [leaf * wide for leaf in leaves]
        values = self.values.at(self.first_value(shared) * targets)
        with code.loop(targets) as target:
            column = values.at(target)
            for vector, place in enumerate(places):
                self._add(target * self.size.piece + first + vector * lanes, column.gather(place))

    def _add(self, place: SSAValue, weight: SSAValue) -> None:
        self.scratch.store(place, self.combine(self.scratch.load(place, self.lanes), weight))

    def _write(self, first: SSAValue, count: SSAValue) -> None:
        code, targets = self.code, self.size.targets
        out = self.out.at(first * targets)
        with code.if_else(targets > 1) as (several, single):
            with several, code.loop(targets) as target, code.loop(count) as row:
                out.store(row * targets + target, self.scratch.load(target * self.size.piece + row))
            with single, code.loop(count, step=self.lanes) as row:
                active = count - row
                out.store(row, self.scratch.load(row, self.lanes), active)

    # ------------------------------------------------------------ a row alone

    def _row(self, row: SSAValue) -> None:
        """Go down all trees, a vector of them at a time; then the leaves' weights are added up in the trees' order."""
        code, size, lanes = self.code, self.size, self.lanes
        x, trees = self.x.at(row * size.x_row), size.trees
        leaves = Pointer(code, types.int32, self.scratch.to(types.int32).value)
        whole = self._floor(trees, lanes * _TOGETHER)
        for stop, start, vectors in ((whole, code.integer(0), _TOGETHER), (trees, whole, 1)):
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


class _Records(_Kernel):
    """Trees of `TreesSpec`."""

    floats = ("x", "values", "out", "tables")
    others: ClassVar[dict[str, types.ElementType]] = {"records": types.int64}

    def __init__(self, code: KernelBuilder, spec: TreesSpec, lanes: int) -> None:
        super().__init__(code, spec, lanes)
        self.tables, self.records = self.buffers.tables, self.buffers.records
        self.offsets, self.rounds = self.buffers.offsets, self.buffers.rounds
        self.in_register = lanes.bit_length() - 1
        """Levels whose nodes fit one register."""

    def begin_tree(self, tree: SSAValue) -> Any:
        code, spec, lanes = self.code, self.spec, self.lanes
        first = self._wide(self.offsets.load(tree))
        table = self.tables.at(tree * table_elements(lanes, spec.top, deep=spec.deep))
        levels = level_elements(lanes, spec.top) if spec.top else 0

        def registers(start: int, count: int) -> list[SSAValue]:
            return [table.load(start + place, lanes) for place in range(0, count, lanes)]

        weights = (
            []
            if spec.deep or spec.leaves == "all" or not spec.top
            else registers(2 * levels, leaf_elements(lanes, spec.top))
        )
        rounds = self._wide(self.rounds.load(tree)) if spec.deep else code.integer(0)
        return first, registers(0, levels), registers(levels, levels), weights, rounds

    def first_value(self, shared: Any) -> SSAValue:
        first: SSAValue = shared[0]
        return first

    # ------------------------------------------------------------ steps

    def _second(self, x: SSAValue, threshold: SSAValue, word: SSAValue) -> SSAValue:
        """Whether values lead to second children. word: the feature, and, above it, where a missing value leads."""
        compare = {"gt": "__gt__", "ge": "__ge__", "le": "__le__", "lt": "__lt__"}[self.spec.relation]
        second: SSAValue = getattr(x, compare)(threshold)
        if self.spec.mixed:
            led = (word & (1 << self.spec.bits)).differs(0)
            second = second | (isnan(x) & led)
        return second

    def _feature(self, word: SSAValue) -> SSAValue:
        return word & ((1 << self.spec.bits) - 1)

    def _plus(self, place: SSAValue, second: SSAValue) -> SSAValue:
        builder = self.code.builder
        return place + place.like(builder.zext(second.value, place.value.type))

    def _node(self, records: Pointer, place: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Thresholds and words of records: 64 bits at a time, and then parted."""
        builder, lanes = self.code.builder, self.lanes
        half = lanes // 2
        words = []
        for first in (0, half):
            index = shuffled(place, place, range(first, first + half))
            gathered = records.gather(index)
            typ = llvm_ir.VectorType(llvm_ir.IntType(32), lanes)
            words.append(SSAValue(builder, types.int32, builder.bitcast(gathered.value, typ)))
        first_words, second_words = words
        low, high = (shuffled(first_words, second_words, range(start, 2 * lanes, 2)) for start in (0, 1))
        return from_bits(low), SSAValue(builder, types.uint32, high.value)

    def _look_up(self, registers: Sequence[SSAValue], place: SSAValue) -> SSAValue:
        """Elements of one, two or four registers."""
        if len(registers) == 1:
            return reordered(registers[0], place)
        if len(registers) == 2:
            return permuted(registers[0], registers[1], place)
        inner = place & (2 * self.lanes - 1)
        low, high = (permuted(registers[first], registers[first + 1], inner) for first in (0, 2))
        return select(place < 2 * self.lanes, low, high)

    def _top(self, shared: Any, x: Pointer, rows: Sequence[SSAValue]) -> list[SSAValue]:
        """Where vectors of rows are in the level below the tables."""
        _, thresholds, words, _, _ = shared
        places = [self.int32(0) for _ in rows]
        for level in range(self.spec.top):
            start, count = (0, 1) if level < self.in_register else (1 << (level - self.in_register),) * 2
            for number, row in enumerate(rows):
                place = places[number]
                at = place + ((1 << level) - 1) if level < self.in_register else place
                threshold = self._look_up(thresholds[start : start + count], at)
                word = bits(self._look_up(words[start : start + count], at))
                value = x.gather(row + self._feature(word))
                places[number] = self._plus(place + place, self._second(value, threshold, word))
        return places

    def descend(self, shared: Any, x: Pointer, rows: Sequence[SSAValue]) -> list[SSAValue]:
        places = self._top(shared, x, rows)
        first, _, _, weights, rounds = shared
        if not self.spec.deep and weights:
            return places
        places = [place + ((1 << self.spec.top) - 1) for place in places]
        if self.spec.deep:
            places = self._down(
                self.records.at(first),
                places,
                rounds,
                lambda word, number: x.gather(rows[number] + self._feature(word)),
            )
        return places

    def weight(self, shared: Any, leaf: SSAValue) -> SSAValue:
        first, _, _, weights, _ = shared
        return self._look_up(weights, leaf) if weights else self.values.at(first).gather(leaf)

    def _down(
        self,
        records: Pointer,
        places: Sequence[SSAValue],
        rounds: SSAValue,
        value: Callable[[SSAValue, int], SSAValue],
        moved: Sequence[SSAValue] | None = None,
    ) -> list[SSAValue]:
        """Go from records to leaves, in `rounds` steps, or fewer where none leads on. moved: what is added to
        children."""
        code = self.code
        variables = [code.variable(place) for place in places]
        left = code.variable(rounds)
        with code.loop_while(lambda: left.get() > 0):
            left.set(left.get() - 1)
            staying: SSAValue | None = None
            for number, variable in enumerate(variables):
                place = variable.get()
                threshold, word = self._node(records, place)
                second = self._second(value(self._signed(word), number), threshold, self._signed(word))
                child = self._signed(word >> (self.spec.bits + 1))
                following = self._plus(child if moved is None else child + moved[number], second)
                variable.set(following)
                same = following.equals(place)
                staying = same if staying is None else staying & same
            assert staying is not None
            everywhere = SSAValue(code.builder, types.boolean, holds_everywhere(code.builder, staying.value))
            left.set(select(everywhere, code.integer(0), left.get()))
        return [variable.get() for variable in variables]

    def _signed(self, x: SSAValue) -> SSAValue:
        return SSAValue(x.builder, types.int32, x.value)

    def descend_trees(self, x: Pointer, trees: Sequence[SSAValue]) -> list[SSAValue]:
        offsets = [self.offsets.load(tree, self.lanes) for tree in trees]
        return self._down(
            self.records, offsets, self.size.depth, lambda word, number: x.gather(self._feature(word)), offsets
        )


class _Mixed(_Kernel):
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

    def descend_trees(self, x: Pointer, trees: Sequence[SSAValue]) -> list[SSAValue]:
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
