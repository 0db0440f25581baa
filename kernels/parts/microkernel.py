"""The innermost tile of GEMM and convolution: a block of sums held in vector registers, and the epilogue on it.

A tile is rows x vectors sums, a list of LLVM values, row after row: zeros at first, then what `emit_accumulate` gives
(once, or in a loop that carries them), and `emit_finish` puts them through the epilogue and into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer, Variable, smaller
from jitonnx.emit.epilogue import Epilogue
from jitonnx.emit.half import widen
from jitonnx.emit.intrinsics import (
    alloca,
    declared,
    live_mask,
    llvm_intrinsic,
    masked_store,
    not_unrolled,
    opaque,
    splat,
)
from jitonnx.emit.ssa import SSAValue
from jitonnx.support.records import NamedTuple

_I64 = llvm_ir.IntType(64)
_LINE_BYTES = 64  # of the cache; on a CPU with longer lines some are asked for twice
_STEPS, _LEAST_SUMS = 2, 8
"""Steps of k in a round of a tile's loop on x86, and the sums from which on. What counts and moves pointers is 4 of
some 26 instructions of a step with AVX2, more than a core begins beside 12 multiply-adds: two steps a round took 0.94
to 0.98 of the time (0.96 to 1.0 with AVX-512), four as long. Fewer sums wait for themselves or for b: one row of 2048 x
1000 from the third-level cache took 1.11 of the time."""
# Of an epilogue with more operations than CHAINED_OPERATIONS, LLVM would do one operation for all registers of a tile
# before the next, and put what does not fit into registers onto the stack: so only _CHAINS of them are open at a time.
CHAINED_OPERATIONS, _CHAINS = 5, 4


class Rows(NamedTuple):
    """Rows of a product's left matrix. Row r begins at a + sum(offsets[r]), and its elements lie `step` apart; all are
    counted in elements."""

    a: llvm_ir.Value
    offsets: Sequence[tuple[llvm_ir.Value, llvm_ir.Value]]
    """Rows whose first offset is the same share a pointer, to which the second is added in each step: `row_offsets`."""
    step: llvm_ir.Value = _I64(1)
    places: llvm_ir.Value | None = None
    """int64 [k], where the elements of each step lie, instead of at multiples of `step`."""


class Panel(NamedTuple):
    """A panel of a product's right matrix: rows of whole vectors, `step` elements apart."""

    b: llvm_ir.Value
    step: llvm_ir.Value
    stored: str = ""
    """float16 or bfloat16 if its elements are the bits of such numbers, for float32 sums."""
    prefetch_distance: int = 0
    """How many steps of k ahead of its use to ask for it, into the first-level cache; 0: not at all."""
    joins_halves: bool = False
    """If the last vectors of rows are halves, those of two rows are summed in one (`GemmSpec.joins_halves`)."""


def emit_accumulate(
    builder: llvm_ir.IRBuilder,
    element: types.ElementType,
    sums: Sequence[llvm_ir.Value],
    rows: Rows,
    panel: Panel,
    k: llvm_ir.Value,
    prefetches: Sequence[tuple[llvm_ir.Value, llvm_ir.Value]] = (),
) -> list[llvm_ir.Value]:
    """The sums with the product of some rows of a and a panel of b added:

        sums[r][j] += Σ_p a[sum(offsets[r]) + p * rows.step] * b[p * panel.step + j]    p < k,  j < vectors * lanes

    Constants among the steps (1 of rows, of a packed panel its width) fold into the addresses. Float products are
    fused, one rounding a step, in the order of p; integers wrap around. k <= 0 adds nothing. Nothing needs alignment.
    In the loop all sums and pointers are phis, and k is counted down, as it then takes one register. On x86 a round of
    many sums does `_STEPS` of k. The last vector of each row may be shorter than the others.

    prefetches: where memory is that will be needed soon, and how many elements of it to ask for in each step of k.
    """
    offsets, places, stored, prefetch_distance = rows.offsets, rows.places, panel.stored, panel.prefetch_distance
    a_step, b_step = rows.step, panel.step
    vectors, lanes = len(sums) // len(offsets), sums[0].type.count
    counts = [value.type.count for value in sums[:vectors]]
    joins = panel.joins_halves and 2 * counts[-1] == lanes
    first_of = {first.reference: first for first, _ in offsets}
    starts = {name: builder.gep(rows.a, [first]) for name, first in first_of.items()}
    walks = [(panel.b, b_step), *prefetches]
    walks += [(start, a_step) for start in starts.values()] if places is None else [(places, _I64(1))]

    def products(pointers: Sequence[llvm_ir.Value], current: list[llvm_ir.Value], steps: int) -> list[llvm_ir.Value]:
        """The sums with the products of the next steps. pointers: where the walks are."""
        b_at, a_walks = pointers[0], pointers[1 + len(prefetches) :]
        for step in range(steps):
            row = further(builder, b_at, b_step, step)
            right = [load_vector(builder, row, v * lanes, count) for v, count in enumerate(counts)]
            if stored:
                right = [widen(SSAValue(builder, types.uint16, bits), stored).value for bits in right]
            if prefetch_distance:  # each step for itself: Winograd's weights from memory came later two at a time
                _ask_for_panel(builder, further(builder, b_at, b_step, prefetch_distance + step), vectors * lanes)
            for place, (_, each) in zip(pointers[1:], prefetches, strict=False):
                emit_prefetch(builder, further(builder, place, each, step))
            if places is None:
                a_at = {name: further(builder, at, a_step, step) for name, at in zip(starts, a_walks, strict=True)}
            else:
                listed = builder.load(further(builder, a_walks[0], _I64(1), step))
                a_at = {name: builder.gep(start, [listed]) for name, start in starts.items()}
            factors = (builder.load(builder.gep(a_at[first.reference], [offset])) for first, offset in offsets)
            update = _joined_update if joins else _rank_one_update
            current = update(builder, element, current, factors, right)
        return current

    if joins:
        sums = _joined(builder, sums, vectors)
    together = steps_of_round(builder.module.triple, len(sums), whole=sums[-1].type.count == lanes)
    whole = builder.and_(k, _I64(-together))
    done = accumulate_loop(builder, walks, sums, whole, together, products)
    if together == 1 or (isinstance(k, llvm_ir.Constant) and k.number is not None and k.number % together == 0):
        return _parted(builder, done, vectors) if joins else done
    before, last, after = builder.block, *map(builder.append_basic_block, ("tile.last", "tile.done"))
    one_more = builder.and_(builder.icmp_signed(">", k, whole), builder.icmp_signed(">", k, _I64(0)))
    builder.cbranch(one_more, last, after)
    builder.position_at_end(last)
    added = products([builder.gep(walk, [builder.mul(step, whole)]) for walk, step in walks], done, 1)
    builder.branch(after)
    builder.position_at_end(after)
    ends = [_new_phi(builder, value.type, before, value) for value in done]
    for end, value in zip(ends, added, strict=True):
        end.add_incoming(value, last)
    return _parted(builder, ends, vectors) if joins else list(ends)


@contextmanager
def in_chains(
    code: KernelBuilder,
    sums: Sequence[Variable],
    kept: Sequence[Pointer] | None,
    steps: tuple[SSAValue, SSAValue | int, SSAValue | int],
    others: tuple[SSAValue, SSAValue] | None = None,
) -> Iterator[tuple[SSAValue, SSAValue]]:
    """The block for each chain of a tile's sums, which adds the products of its steps, from the first to before the
    end, to `sums`. They are zero at first, and behind the loop the sums of all chains.

    kept: where each of the sums waits between chains; None: all steps are one. steps: the end, the first one, and how
    many make a chain. others: how many steps of earlier loops the kept sums have behind them, and how many are left to
    later ones, for which they are kept.
    """
    end, first, step = steps
    if kept is None:
        yield code.integer(first), end
        return
    before, left = others or (code.integer(0), code.integer(0))
    with code.loop(end, first, step) as here:
        again = (here > first) | (before > 0)
        with code.if_then(again):
            for variable in sums:
                variable.set(variable.get().constant(0))
        yield here, smaller(here + step, end)
        with code.if_then(again):
            for variable, place in zip(sums, kept, strict=True):
                value = variable.get()
                variable.set(place.load(0, value.lanes) + value)
        with code.if_then((here + step < end) | (left > 0)):
            for variable, place in zip(sums, kept, strict=True):
                place.store(0, variable.get())


def room_for(code: KernelBuilder, sums: Sequence[Variable]) -> list[Pointer]:
    """Places on the stack for the sums of a tile, to be kept there by `in_chains`."""
    values = [variable.get() for variable in sums]
    element, lanes = values[0].element, [value.lanes for value in values]
    room = alloca(code.builder, element.llvm, sum(lanes))
    return [Pointer(code, element, room).at(sum(lanes[:number])) for number in range(len(lanes))]


def accumulate_loop(
    builder: llvm_ir.IRBuilder,
    walks: Sequence[tuple[llvm_ir.Value, llvm_ir.Value]],
    sums: Sequence[llvm_ir.Value],
    k: llvm_ir.Value,
    steps: int,
    products: Callable[[Sequence[llvm_ir.Value], list[llvm_ir.Value], int], list[llvm_ir.Value]],
) -> list[llvm_ir.Value]:
    """The sums after k steps, a multiple of `steps`, so many in a round. walks: pointers, and how far each goes in a
    step."""
    before = builder.block
    loop, after = builder.append_basic_block("tile.k"), builder.append_basic_block("tile.summed")
    builder.cbranch(builder.icmp_signed(">", k, _I64(0)), loop, after)

    builder.position_at_end(loop)
    left = _new_phi(builder, _I64, before, k)
    pointers = [_new_phi(builder, walk.type, before, walk) for walk, _ in walks]
    current = [_new_phi(builder, value.type, before, value) for value in sums]
    following = products(pointers, list(current), steps)
    for pointer, (_, step) in zip(pointers, walks, strict=True):
        pointer.add_incoming(builder.advanced(further(builder, pointer, step, steps)), loop)
    for phi, value in zip(current, following, strict=True):
        phi.add_incoming(value, loop)
    fewer = builder.sub(left, _I64(steps))
    left.add_incoming(fewer, loop)
    again = builder.cbranch(builder.icmp_signed(">", fewer, _I64(0)), loop, after)
    again.set_metadata("llvm.loop", not_unrolled(builder.module))

    builder.position_at_end(after)
    ends = [_new_phi(builder, value.type, before, value) for value in sums]
    for end, value in zip(ends, following, strict=True):
        end.add_incoming(value, loop)
    return list(ends)


def steps_of_round(triple: str, sums: int, *, whole: bool = True) -> int:
    """How many steps of k a round of a loop of so many sums does. whole: none of them is in a shorter vector; of two
    steps with such LLVM puts some on the stack."""
    return _STEPS if whole and sums >= _LEAST_SUMS and not _on_arm(triple) else 1


def further(builder: llvm_ir.IRBuilder, pointer: llvm_ir.Value, step: llvm_ir.Value, steps: int) -> llvm_ir.Value:
    """A pointer after so many steps."""
    return builder.gep(pointer, [builder.mul(step, _I64(steps))]) if steps else pointer


def _on_arm(triple: str) -> bool:
    """Whether code is made for AArch64."""
    return triple.startswith(("aarch64", "arm64"))


def _ask_for_panel(builder: llvm_ir.IRBuilder, place: llvm_ir.Value, elements: int) -> None:
    """Prefetch so many elements into the first-level cache."""
    for start in range(0, elements, _LINE_BYTES // _element_bytes(place)):
        emit_prefetch(builder, builder.gep(place, [_I64(start)]), level=1)


def _rank_one_update(
    builder: llvm_ir.IRBuilder,
    element: types.ElementType,
    sums: Sequence[llvm_ir.Value],
    factors: Iterable[llvm_ir.Value],
    panel: Sequence[llvm_ir.Value],
) -> list[llvm_ir.Value]:
    """The sums of a tile with one step's products added: of the factor of each row and the panel's vectors.

    factors: each is loaded when its row comes to it, which keeps few registers in use.
    """
    lanes, vectors = panel[0].type.count, len(panel)
    # AArch64 multiplies by an element of a register. LLVM would rather load it into all elements of one, for which most
    # of its CPUs use one of the units that multiply.
    by_element = isinstance(element, types.Float) and _on_arm(builder.module.triple)
    following = []
    for r, factor in enumerate(factors):
        if by_element:
            factor = opaque(builder, factor)
        spread = splat(builder, factor, lanes)
        if panel[-1].type.count < lanes:
            # LLVM would fill a shorter register from memory, and the long one from that by a shuffle, instead of using
            # the low half of the long one: 14 x 24 sums reached 75 GFLOP/s on x86, with this 92.
            spread = opaque(builder, spread)
        for v, vector in enumerate(panel):
            a_value = first_lanes(builder, spread, vector.type.count)
            following.append(_multiply_add(builder, element, a_value, vector, sums[r * vectors + v]))
    return following


def _joined(builder: llvm_ir.IRBuilder, sums: Sequence[llvm_ir.Value], vectors: int) -> list[llvm_ir.Value]:
    """Sums of rows that end in half a vector, those of two rows in one: the whole vectors of all rows, then one for the
    ends of each two, then that of a last row without another."""
    halves = sums[vectors - 1 :: vectors]
    both = _lanes_from(range(2 * halves[0].type.count))
    pairs = [builder.shuffle_vector(halves[r], halves[r + 1], both) for r in range(0, len(halves) - 1, 2)]
    whole = [value for number, value in enumerate(sums) if number % vectors < vectors - 1]
    return [*whole, *pairs, *halves[2 * len(pairs) :]]


def _parted(builder: llvm_ir.IRBuilder, sums: Sequence[llvm_ir.Value], vectors: int) -> list[llvm_ir.Value]:
    """The sums row after row again, of what `_joined` gives."""
    lanes = sums[0].type.count
    rows = 2 * len(sums) // (2 * vectors - 1)
    whole = iter(sums[: rows * (vectors - 1)])
    ends = []
    for pair in sums[rows * (vectors - 1) :]:
        parts = (range(lanes // 2), range(lanes // 2, lanes)) if pair.type.count == lanes else ()
        ends += [builder.shuffle_vector(pair, pair, _lanes_from(part)) for part in parts] or [pair]
    return [value for end in ends for value in (*(next(whole) for _ in range(vectors - 1)), end)]


def _joined_update(
    builder: llvm_ir.IRBuilder,
    element: types.ElementType,
    sums: Sequence[llvm_ir.Value],
    factors: Iterable[llvm_ir.Value],
    panel: Sequence[llvm_ir.Value],
) -> list[llvm_ir.Value]:
    """What `_rank_one_update` does to sums as `_joined` gives them: the ends of two rows take one multiply-add, of the
    panel's end twice side by side and of the factors of both."""
    *whole, half = panel
    lanes, width = whole[0].type.count, half.type.count
    twice = builder.shuffle_vector(half, half, _lanes_from([*range(width)] * 2))
    blend = _lanes_from([*range(width), *range(lanes + width, 2 * lanes)])
    rows = 2 * len(sums) // (2 * len(whole) + 1)
    following: list[llvm_ir.Value] = []
    ends: list[llvm_ir.Value] = []
    waiting = None  # the factor of a row whose end waits for that of the next one
    for r, factor in enumerate(factors):
        spread = opaque(builder, splat(builder, factor, lanes))
        for vector in whole:
            following.append(_multiply_add(builder, element, spread, vector, sums[len(following)]))
        end = sums[rows * len(whole) + r // 2]
        if waiting is not None:
            both = builder.shuffle_vector(waiting, spread, blend)
            ends.append(_multiply_add(builder, element, both, twice, end))
        elif r == rows - 1:
            ends.append(_multiply_add(builder, element, first_lanes(builder, spread, width), half, end))
        waiting = spread if waiting is None else None
    return [*following, *ends]


def _lanes_from(numbers: Iterable[int]) -> llvm_ir.Value:
    """The mask of a shuffle."""
    lanes = list(numbers)
    return llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(32), len(lanes)), lanes)


def row_offsets(row: SSAValue, count: int) -> list[tuple[llvm_ir.Value, llvm_ir.Value]]:
    """The offsets of `count` rows that lie `row` elements apart, for `emit_accumulate`: three share a pointer, as they
    would otherwise each take a register. x86 has 16, of which a tile of 14 rows so takes 7."""
    return [((row * (r - r % 3)).value, (row * (r % 3)).value) for r in range(count)]


def first_lanes(builder: llvm_ir.IRBuilder, vector: llvm_ir.Value, count: int) -> llvm_ir.Value:
    """The first `count` lanes of a vector; with a larger count, all of them and others of any value. No instruction."""
    lanes = vector.type.count
    if count == lanes:
        return vector
    mask = llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(32), count), [min(i, lanes) for i in range(count)])
    return builder.shuffle_vector(vector, llvm_ir.Constant(vector.type, llvm_ir.Undefined), mask)


def emit_prefetch_result(
    builder: llvm_ir.IRBuilder, c: llvm_ir.Value, ldc: llvm_ir.Value, shape: tuple[int, int]
) -> None:
    """Ask for the lines of shape[0] rows of shape[1] elements of c, to be written soon."""
    line = _LINE_BYTES // _element_bytes(c)
    for r in range(shape[0]):
        row = builder.gep(c, [builder.mul(ldc, _I64(r))])
        for start in range(0, shape[1], line):
            emit_prefetch(builder, builder.gep(row, [_I64(start)]), write=True)


def emit_prefetch(builder: llvm_ir.IRBuilder, pointer: llvm_ir.Value, *, write: bool = False, level: int = 2) -> None:
    """Ask for the cache line at `pointer`, which need not exist: to read, in the cache of a level; or to write."""
    where = builder.bitcast(pointer, llvm_ir.IntType(8).as_pointer())
    write_locality_data = (1, 3, 1) if write else (0, 4 - level, 1)
    arguments = [where, *map(llvm_ir.IntType(32), write_locality_data)]
    function = declared(builder, "llvm.prefetch.p0", llvm_ir.VoidType(), [argument.type for argument in arguments])
    builder.call(function, arguments)


def _new_phi(builder: llvm_ir.IRBuilder, typ: llvm_ir.Type, block: llvm_ir.Block, value: llvm_ir.Value) -> llvm_ir.Phi:
    """A phi that is `value` on coming from `block`."""
    phi = builder.phi(typ)
    phi.add_incoming(value, block)
    return phi


def _multiply_add(
    builder: llvm_ir.IRBuilder, element: types.ElementType, a: llvm_ir.Value, b: llvm_ir.Value, c: llvm_ir.Value
) -> llvm_ir.Value:
    if isinstance(element, types.Float):
        return llvm_intrinsic(builder, "fma", a.type, [a, b, c], a.type)
    return builder.add(builder.mul(a, b), c)


def _vector_pointer(
    builder: llvm_ir.IRBuilder, pointer: llvm_ir.Value, index: int | llvm_ir.Value, lanes: int
) -> llvm_ir.Value:
    where = builder.gep(pointer, [_I64(index) if isinstance(index, int) else index])
    return builder.bitcast(where, llvm_ir.VectorType(pointer.type.pointee, lanes).as_pointer())


def load_vector(builder: llvm_ir.IRBuilder, pointer: llvm_ir.Value, index: int, lanes: int) -> llvm_ir.Value:
    loaded = builder.load(_vector_pointer(builder, pointer, index, lanes))
    loaded.align = _element_bytes(pointer)
    return loaded


def _element_bytes(pointer: llvm_ir.Value) -> int:
    pointee = pointer.type.pointee
    if isinstance(pointee, llvm_ir.IntType):
        return pointee.width // 8
    return 4 if isinstance(pointee, llvm_ir.FloatType) else 8


class TileResult(NamedTuple):
    """The place that a tile's results go to: rows `ldc` elements apart from c on. The epilogue is told that they are
    columns from `place`'s on, of its row and of those `row_step` apart below."""

    c: llvm_ir.Value
    ldc: llvm_ir.Value
    place: tuple[SSAValue, SSAValue, SSAValue]
    """Batch, row and column of the first element."""
    row_step: llvm_ir.Value = _I64(1)


def emit_finish(
    code: KernelBuilder,
    epilogue: Epilogue,
    shape: tuple[int, int],
    sums: Sequence[llvm_ir.Value],
    result: TileResult,
    active: llvm_ir.Value,
    rows_live: llvm_ir.Value | None = None,
) -> None:
    """Put a tile of shape (rows, vectors) through the epilogue and store it. active: the columns that count; rows_live:
    the rows, None for all.

    A full tile: unrolled, in registers, without masks. Else, or for a long epilogue: over memory, in a function.
    """
    builder, (rows, vectors), lanes = code.builder, shape, epilogue.lanes
    full = whole_vectors = builder.icmp_signed(">=", active, _I64(vectors * lanes))
    if rows_live is None:
        stored: llvm_ir.Value = _I64(rows)
    else:
        whole_rows = builder.icmp_signed(">=", rows_live, _I64(rows))
        full, stored = builder.and_(full, whole_rows), builder.select(whole_rows, _I64(rows), rows_live)
    over_memory = (code, epilogue, (stored, _I64(vectors)), sums, result, active)
    if not epilogue.unrolls:
        with builder.if_else(whole_vectors, likely=True) as (whole, part):
            with whole:
                _finish_over_memory(*over_memory, masked=False)
            with part:
                _finish_over_memory(*over_memory)
        return
    with builder.if_else(full, likely=True) as (whole, part):
        with whole:
            emit_finish_whole(code, epilogue, shape, sums, result)
        with part:
            _finish_over_memory(*over_memory)


def emit_finish_whole(
    code: KernelBuilder,
    epilogue: Epilogue,
    shape: tuple[int, int],
    sums: Sequence[llvm_ir.Value],
    result: TileResult,
) -> None:
    """`emit_finish` of a tile all of whose elements count: unrolled, in registers."""
    builder, (rows, vectors), lanes, c = code.builder, shape, epilogue.lanes, result.c
    batch, row, column = (where.value for where in result.place)
    c_rows = [builder.gep(c, [builder.mul(result.ldc, _I64(r))]) for r in range(rows)]
    for v in range(vectors):
        # All of a column of vectors before the first of them is stored: what the epilogue reads for all rows, a bias,
        # is then loaded once.
        results: list[llvm_ir.Value] = []
        for r in range(rows):
            where = [batch, builder.add(row, builder.mul(result.row_step, _I64(r)))]
            where += [builder.add(column, _I64(v * lanes)), _I64(lanes)]
            x = sums[r * vectors + v]
            if epilogue.operations >= CHAINED_OPERATIONS and r >= _CHAINS:
                x = opaque(builder, x, results[r - _CHAINS])
            results.append(epilogue.emit(code, x, where))
        for c_row, y in zip(c_rows, results, strict=True):
            builder.store(y, _vector_pointer(builder, c_row, v * lanes, lanes)).align = _element_bytes(c)


def _finish_over_memory(
    code: KernelBuilder,
    epilogue: Epilogue,
    shape: tuple[llvm_ir.Value, llvm_ir.Value],
    sums: Sequence[llvm_ir.Value],
    result: TileResult,
    active: llvm_ir.Value,
    *,
    masked: bool = True,
) -> None:
    """Put the sums on the stack and call the function of this module that stores a tile of any shape from there.

    There is one for all tiles, and one for those that end with a whole vector: masks cost GELU a sixth of its time.
    """
    builder = code.builder
    first = alloca(builder, sums[0].type, len(sums))
    for i, value in enumerate(sums):
        builder.store(value, builder.gep(first, [_I64(i)]))
    place = [where.value for where in result.place]
    arguments = [*code.arguments, first, *shape, result.c, result.ldc, active, result.row_step, *place]
    name = f"store_{'part_of_' if masked else ''}tile.{epilogue.name}"
    function = builder.module.globals.get(name)
    if function is None:
        function = llvm_ir.Function(
            builder.module, llvm_ir.FunctionType(llvm_ir.VoidType(), [argument.type for argument in arguments]), name
        )
        function.linkage = "internal"
        function.attributes.add("noinline")
        _write_store(function, epilogue, masked=masked)
    builder.call(function, arguments)


def _write_store(function: llvm_ir.Function, epilogue: Epilogue, *, masked: bool) -> None:
    """The body: over rows and vectors, the epilogue and a store; if `masked`, of the live lanes alone."""
    builder = llvm_ir.IRBuilder(function.append_basic_block())
    code = KernelBuilder(builder, function.args[:3])
    stack, rows, vectors, c, ldc, active, row_step, batch, row, column = function.args[3:]
    lanes = epilogue.lanes
    with _counted(builder, rows) as r:
        c_row, this_row = builder.gep(c, [builder.mul(ldc, r)]), builder.mul(r, vectors)
        with _counted(builder, vectors) as v:
            start = builder.mul(v, _I64(lanes))
            rest = builder.sub(active, start) if masked else _I64(lanes)
            with builder.if_then(builder.icmp_signed(">", rest, _I64(0))):
                x = builder.load(builder.gep(stack, [builder.add(this_row, v)]))
                this_row_number = builder.add(row, builder.mul(r, row_step))
                y = epilogue.emit(code, x, [batch, this_row_number, builder.add(column, start), rest])
                target = _vector_pointer(builder, c_row, start, lanes)
                if masked:
                    masked_store(builder, y, target, live_mask(builder, rest, lanes), _element_bytes(c))
                else:
                    builder.store(y, target).align = _element_bytes(c)
    builder.ret_void()


@contextmanager
def _counted(builder: llvm_ir.IRBuilder, count: llvm_ir.Value) -> Iterator[llvm_ir.Value]:
    """A loop over i < count, for count >= 1."""
    before, loop, after = builder.block, builder.append_basic_block("each"), builder.append_basic_block("all")
    builder.branch(loop)
    builder.position_at_end(loop)
    index = _new_phi(builder, _I64, before, _I64(0))
    yield index
    following = builder.advanced(builder.add(index, _I64(1)))
    index.add_incoming(following, builder.block)
    again = builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    again.set_metadata("llvm.loop", not_unrolled(builder.module))
    builder.position_at_end(after)
