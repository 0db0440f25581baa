"""Placing the buffers of an arena: `plan.memory` says how."""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import ALIGNMENT, PLACED, PLACEMENT
from .functions import FunctionBuilder


def define(module: llvm_ir.Module, *, exported: bool = False) -> None:
    """Add the functions to a module."""
    _insert(module)
    _offset(module)
    _place(module, exported=exported)


def _place(module: llvm_ir.Module, *, exported: bool) -> None:
    """Fill the offsets of a placement; returns the arena's size.

    total = 0;
    for (number = 0; number < count; number++) {
        index = order[number];
        size = sizes[index] rounded up to ALIGNMENT;
        offsets[index] = offset = lowest free offset for it;
        total = max(total, offset + size);
        insert it among the placed ones;
    }
    """
    code = FunctionBuilder(module, "i64 jitonnx_place(ptr placement)", exported=exported)
    placement = code["placement"]

    def word(name: str, index: llvm_ir.Value) -> llvm_ir.Value:
        return code.load(
            code.word_at(code.pointer(placement, PLACEMENT, name), index),
        )

    total = code.variable(0)
    with code.loop(0, code.word(placement, PLACEMENT, "count")) as number:
        index = word("order", number)
        size = code.build.and_(code.add(word("sizes", index), ALIGNMENT - 1), code.number(-ALIGNMENT))
        first, last = word("first", index), word("last", index)
        placed = code.pointer(placement, PLACEMENT, "placed")
        offset = code.call("jitonnx_offset", placed, number, size, first, last)
        code.store(
            code.word_at(code.pointer(placement, PLACEMENT, "offsets"), index),
            offset,
        )
        end = code.add(offset, size)
        code.store(total, code.larger(code.load(total), end))
        target = code.call("jitonnx_insert", placed, number, offset)
        for name, value in {"begin": offset, "end": end, "first": first, "last": last}.items():
            code.put(target, PLACED, name, value)
    code.give(code.load(total))


def _offset(module: llvm_ir.Module) -> None:
    """The lowest offset where `size` bytes overlap no placed buffer that is alive with them: the first gap that is wide
    enough. Placed ones are in the order of their beginnings."""
    code = FunctionBuilder(module, "i64 jitonnx_offset(ptr placed, i64 count, i64 size, i64 first, i64 last)")
    offset = code.variable(0)
    with code.loop(0, code["count"]) as number:
        other = code.item(code["placed"], PLACED, number)
        begin, end = code.word(other, PLACED, "begin"), code.word(other, PLACED, "end")
        with code.if_then(code.compare(code.add(code.load(offset), code["size"]), "<=", begin)):
            code.give(code.load(offset))
        meets = code.build.and_(
            code.compare(code["first"], "<=", code.word(other, PLACED, "last")),
            code.compare(code.word(other, PLACED, "first"), "<=", code["last"]),
        )
        with code.if_then(meets):
            code.store(offset, code.larger(code.load(offset), end))
    code.give(code.load(offset))


def _insert(module: llvm_ir.Module) -> None:
    """Make room for a buffer behind those that begin no later; returns where it is to be put.

    for (; count > 0 && placed[count - 1].begin > begin; count--)
        placed[count] = placed[count - 1];
    """
    code = FunctionBuilder(module, "ptr jitonnx_insert(ptr placed, i64 count, i64 begin)")
    left = code.variable(code["count"])
    with code.forever() as leave:
        with code.if_then(code.compare(code.load(left), "<=", 0)):
            leave()
        before = code.item(code["placed"], PLACED, code.subtract(code.load(left), 1))
        with code.if_then(code.compare(code.word(before, PLACED, "begin"), "<=", code["begin"])):
            leave()
        target = code.item(code["placed"], PLACED, code.load(left))
        for name in PLACED.names or ():
            code.put(target, PLACED, name, code.word(before, PLACED, name))
        code.store(left, code.subtract(code.load(left), 1))
    code.build.ret(code.item(code["placed"], PLACED, code.load(left)))
