"""Trees of `TreesSpec`: the first levels from registers, records of 8 bytes below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer, shuffled
from jitonnx.emit.instructions import permuted, reordered
from jitonnx.emit.intrinsics import holds_everywhere
from jitonnx.emit.ssa import SSAValue, bits, from_bits, isnan, select
from jitonnx.kernels.trees.base import TreesKernel
from jitonnx.kernels.trees.spec import TreesSpec, leaf_elements, level_elements, table_elements


class RecordsKernel(TreesKernel):
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
        """The places of vectors of rows in the level below the tables."""
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

    def descend_trees(self, x: Any, trees: Sequence[SSAValue]) -> list[SSAValue]:
        offsets = [self.offsets.load(tree, self.lanes) for tree in trees]
        return self._down(
            self.records, offsets, self.size.depth, lambda word, number: x.gather(self._feature(word)), offsets
        )
