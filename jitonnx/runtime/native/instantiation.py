"""Making a program for sizes: what follows from them, the arena, operands, tables; see `runtime.instantiation`."""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import ALIGNMENT, INSTANTIATION, LAYOUT, PLACEMENT, STEP_COLUMNS
from .functions import WORD, FunctionBuilder

_LARGEST = 1 << 48
"""Bytes: a buffer above is left to Python, which says what is wrong with it."""


def define(module: llvm_ir.Module) -> None:
    """Add the functions to a module."""
    _arrange(module)
    _fill(module)
    _instantiate(module)


def _arrange(module: llvm_ir.Module) -> None:
    """Place the buffers of the arena, unless they need the room that they have; returns the arena's size, or -1.

    Where sizes vary a buffer has room up to the next multiple of an eighth of a power of two, so that sizes which grow
    a little leave all where it is. Largest ones come first, of equal ones those that are alive first.
    """
    code = FunctionBuilder(module, "i64 jitonnx_arrange(ptr plan)")
    plan, build = code["plan"], code.build
    placement = code.pointer(plan, INSTANTIATION, "placement")
    sizes, order, first = (code.pointer(placement, PLACEMENT, name) for name in ("sizes", "order", "first"))
    registers = code.pointer(plan, INSTANTIATION, "registers")
    count = code.word(placement, PLACEMENT, "count")
    changed = code.variable(build.zext(code.compare(code.word(plan, INSTANTIATION, "arena_bytes"), "<", 0), WORD))
    with code.loop(0, count) as index:
        row = code.load(code.word_at(code.pointer(plan, INSTANTIATION, "buffer_rows"), index))
        nbytes = code.load(code.word_at(registers, row))
        code.give_if(build.or_(code.compare(nbytes, "<", 0), code.compare(nbytes, ">", _LARGEST)), -1)
        # The power of two at or below, of which 0 is taken to have 1.
        highest = code.subtract(63, build.ctlz(code.larger(nbytes, 1), llvm_ir.IntType(1)(1)))
        eighth = build.lshr(build.shl(WORD(1), highest), WORD(3))
        varies = code.load(code.word_at(code.pointer(plan, INSTANTIATION, "buffer_steps"), index))
        step = code.larger(varies, build.select(code.compare(varies, ">", ALIGNMENT), eighth, WORD(0)))
        room = code.multiply(build.sdiv(code.subtract(code.add(nbytes, step), 1), step), step)
        place = code.word_at(sizes, index)
        with code.if_then(code.compare(code.load(place), "!=", room)):
            code.store(changed, 1)
            code.store(place, room)
    with code.if_then(code.equal(code.load(changed), 0)):
        code.give(code.word(plan, INSTANTIATION, "arena_bytes"))
    with code.loop(0, count) as index:
        left = code.variable(index)
        size, begins = (code.load(code.word_at(array, index)) for array in (sizes, first))
        with code.forever() as leave:
            with code.if_then(code.compare(code.load(left), "<=", 0)):
                leave()
            before = code.load(code.word_at(order, code.subtract(code.load(left), 1)))
            other, other_begins = (code.load(code.word_at(array, before)) for array in (sizes, first))
            later = build.and_(code.equal(size, other), code.compare(begins, "<", other_begins))
            with code.if_then(build.not_(build.or_(code.compare(size, ">", other), later))):
                leave()
            code.store(code.word_at(order, code.load(left)), before)
            code.store(left, code.subtract(code.load(left), 1))
        code.store(code.word_at(order, code.load(left)), index)
    total = code.call("jitonnx_place", placement)
    code.put(plan, INSTANTIATION, "arena_bytes", total)
    code.give(total)


class _Block:
    """The plan and the block of the function that is written: `INSTANTIATION` has numbers, arrays, and places."""

    def __init__(self, code: FunctionBuilder) -> None:
        self.code, self.plan, self.block = code, code["plan"], code["block"]
        self._loaded = {name: code.pointer(self.plan, INSTANTIATION, name) for name in ("registers", "results")}
        """Arrays that loops read most; LLVM would load their addresses again after each store."""

    def number(self, name: str) -> llvm_ir.Value:
        """A number of the plan."""
        return self.code.word(self.plan, INSTANTIATION, name)

    def fixed(self, name: str) -> llvm_ir.Value:
        """An array of the plan."""
        return self._loaded.get(name) or self.code.pointer(self.plan, INSTANTIATION, name)

    def element(self, name: str, index: int | llvm_ir.Value) -> llvm_ir.Value:
        """An element of an array of the plan."""
        return self.code.load(self.code.word_at(self.fixed(name), index))

    def inside(self, name: str) -> llvm_ir.Value:
        """An array within the block."""
        return self.code.at(self.block, self.number(name))

    def set(self, name: str, index: int | llvm_ir.Value, value: llvm_ir.Value) -> None:
        """Set an element of an array within the block."""
        self.code.store(self.code.word_at(self.inside(name), index), value)


def _fill(module: llvm_ir.Module) -> None:
    """Fill a block's shapes and limits; returns 0, or 1 for tensors beyond all memory."""
    code = FunctionBuilder(module, "i64 jitonnx_fill(ptr plan, ptr block)")
    block, build = _Block(code), code.build
    pitch = block.number("pitch")
    with code.loop(0, block.number("tensor_count")) as tensor:
        nbytes = code.variable(block.element("itemsizes", tensor))
        with code.loop(0, pitch) as axis:
            place = code.add(code.multiply(tensor, pitch), axis)
            size = block.element("registers", block.element("shape_rows", place))
            block.set("shapes", place, size)
            pair = build.smul_with_overflow(code.load(nbytes), size)
            code.give_if(build.extract_value(pair, 1), 1)
            code.store(nbytes, build.extract_value(pair, 0))
        block.set("limits", code.add(block.number("first_limit"), tensor), code.load(nbytes))
    code.give(0)


def _instantiate(module: llvm_ir.Module) -> None:
    """Fill a block with a program for the variables' values in the registers.

    Returns 0, or another number where Python has to do it, or to say what is wrong.
    """
    code = FunctionBuilder(module, "i64 jitonnx_instantiate(ptr plan, ptr block, i64 threads)", exported=True)
    block = _Block(code)
    arrays = (block.fixed(name) for name in ("operations", "registers", "results", "missed"))
    missed = code.call("jitonnx_perform", *arrays)
    code.give_if(code.compare(missed, "!=", 0), 1)
    arena = code.call("jitonnx_arrange", block.plan)
    code.give_if(code.compare(arena, "<", 0), 1)
    code.give_if(code.compare(code.call("jitonnx_fill", block.plan, block.block), "!=", 0), 1)
    block.set("limits", 0, arena)
    _place_operands(block)
    _check_bounds(block)
    _copy_columns(block)
    _copy_elements(block)
    code.give(_lay_out(block))


def _place_operands(block: _Block) -> None:
    """Add to each operand's offset where its buffer lies in the arena, if it lies there."""
    code = block.code
    placed = code.pointer(block.fixed("placement"), PLACEMENT, "offsets")
    with code.loop(0, block.number("operand_count")) as operand:
        offset = code.variable(block.element("registers", block.element("operand_rows", operand)))
        buffer = block.element("operand_buffers", operand)
        with code.if_then(code.compare(buffer, ">=", 0)):
            code.store(offset, code.add(code.load(offset), code.load(code.word_at(placed, buffer))))
        block.set("offsets", operand, code.load(offset))


def _check_bounds(block: _Block) -> None:
    """Have operands without elements lie at the beginning of a buffer; give 1 for others that go beyond theirs, unless
    their steps are passed over."""
    code, build = block.code, block.code.build
    count, kinds, rank = (block.number(name) for name in ("bound_count", "kind_count", "bound_rank"))
    first_tasks = code.multiply(STEP_COLUMNS.index("tasks"), kinds)

    def register(name: str, index: int | llvm_ir.Value) -> llvm_ir.Value:
        return block.element("registers", block.element(name, index))

    with code.loop(0, count) as bound:
        operand, step, memory, itemsize = (
            block.element("bound_of", code.add(code.multiply(column, count), bound)) for column in range(4)
        )
        begin = code.variable(register("operand_rows", operand))
        end = code.variable(code.add(code.load(begin), itemsize))
        fewest = code.variable(1)
        with code.loop(0, rank) as axis:
            place = code.add(code.multiply(bound, rank), axis)
            size, stride = (register(name, place) for name in ("bound_shapes", "bound_strides"))
            span = code.multiply(code.multiply(code.subtract(size, 1), stride), itemsize)
            code.store(begin, code.add(code.load(begin), code.smaller(span, 0)))
            code.store(end, code.add(code.load(end), code.larger(span, 0)))
            code.store(fewest, code.smaller(code.load(fewest), size))
        empty = code.compare(code.load(fewest), "<=", 0)
        with code.if_then(empty):
            block.set("offsets", operand, WORD(0))
        behind = code.compare(code.load(end), ">", block.element("registers", memory))
        outside = build.or_(code.compare(code.load(begin), "<", 0), behind)
        with code.if_then(build.and_(build.not_(empty), outside), likely=False):
            kind = block.element("kind_of", step)
            with code.if_then(code.compare(block.element("results", code.add(first_tasks, kind)), ">", 0)):
                code.give(1)


def _copy_columns(block: _Block) -> None:
    """Copy the columns of its kind and all kernels' sizes to each step."""
    code = block.code
    steps, kinds = block.number("step_count"), block.number("kind_count")

    def of_kind(column: int | llvm_ir.Value, step: llvm_ir.Value) -> llvm_ir.Value:
        return block.element("results", code.add(code.multiply(column, kinds), block.element("kind_of", step)))

    with code.loop(0, len(STEP_COLUMNS)) as column, code.loop(0, steps) as step:
        block.set("columns", code.add(code.multiply(column, steps), step), of_kind(column, step))
    words = code.word_at(block.fixed("results"), code.multiply(len(STEP_COLUMNS), kinds))
    with code.loop(0, block.number("size_count")) as index:
        block.set("sizes", index, code.load(code.word_at(words, index)))


def _copy_elements(block: _Block) -> None:
    """Write the constants that are made of sizes, and where they lie among the bases."""
    code = block.code
    with code.loop(0, block.number("element_count")) as index:
        block.set("elements", index, block.element("registers", block.element("element_rows", index)))
    with code.loop(0, block.number("own_count")) as index:
        address = code.at(block.inside("elements"), block.element("own_begins", index))
        block.set("bases", block.element("own_places", index), code.build.ptrtoint(address, WORD))


def _lay_out(block: _Block) -> llvm_ir.Value:
    """Have the tables made; another number than 0 if Python has to say what is wrong."""
    code, layout = block.code, block.inside("layout")
    for name in ("common_rows", "limit_places", "outer_places", "common_patches"):
        code.put(layout, LAYOUT, name, block.number(name))
    for name in ("operand_count", "patch_count", "step_count"):
        code.put(layout, LAYOUT, name, block.number(name))
    for name in ("bases", "columns", "sizes", "offsets", "limits", "rows", "pointers", "patches"):
        code.put(layout, LAYOUT, name, code.build.ptrtoint(block.inside(name), WORD))
    code.put(layout, LAYOUT, "threads", code["threads"])
    code.put(layout, LAYOUT, "participants", 1)
    for name in ("shared_end", "scratch", "nanoseconds", "unwatched", "wrong"):
        code.put(layout, LAYOUT, name, 0)
    code.call("jitonnx_lay_out", layout)
    return code.word(layout, LAYOUT, "wrong")
