"""How NumPy gets and frees the memory of outputs: it begins at a cache line, and large blocks are kept when they are
freed, for the next output of the same size.

These are the functions of a PyDataMem_Handler (NumPy's ndarraytypes.h); NumPy calls those of the handler that an array
was made with, whenever and on whichever thread the array dies. In front of what NumPy sees lie two words: what the C
library gave, and the block's size, as arrays may change their own.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import ALIGNMENT, BLOCKS, KEPT_BLOCKS, WORD_BYTES
from .functions import POINTER, FunctionBuilder


def define(module: llvm_ir.Module) -> None:
    """Add the functions to a module that has those of `memory`."""
    _drop(module)
    _allocate(module)
    _clear(module)
    _free(module)
    _resize(module)
    _trim(module)
    _count(module)


_ORIGIN, _SIZE = -2 * WORD_BYTES, -WORD_BYTES
"""A block's words are there."""


def _size(code: FunctionBuilder, block: llvm_ir.Value) -> llvm_ir.Value:
    return code.load(code.at(block, _SIZE))


def _give_back(code: FunctionBuilder, block: llvm_ir.Value) -> None:
    code.call("free", code.load(code.at(block, _ORIGIN), POINTER))


def _is_large(code: FunctionBuilder, size: llvm_ir.Value) -> llvm_ir.Value:
    """Whether a block of this size is one to keep."""
    return code.compare(size, ">=", code.word(code["blocks"], BLOCKS, "least"))


def _entry_at(code: FunctionBuilder, index: llvm_ir.Value) -> llvm_ir.Value:
    return code.word_at(code.field(code["blocks"], BLOCKS, "entries"), index)


def _drop(module: llvm_ir.Module) -> None:
    """Take kept block number `index` out; returns it. The caller holds `blocks`."""
    code = FunctionBuilder(module, "ptr jitonnx_block_drop(ptr blocks, i64 index)")
    blocks = code["blocks"]
    last = code.subtract(code.word(blocks, BLOCKS, "count"), 1)
    block = code.load(_entry_at(code, code["index"]), POINTER)
    with code.loop(code["index"], last) as index:
        code.store(_entry_at(code, index), code.load(_entry_at(code, code.add(index, 1))))
    code.put(blocks, BLOCKS, "count", last)
    code.put(blocks, BLOCKS, "kept", code.subtract(code.word(blocks, BLOCKS, "kept"), _size(code, block)))
    code.build.ret(block)


def _allocate(module: llvm_ir.Module) -> None:
    """A kept block of this size, or a new one; null if memory is short."""
    code = FunctionBuilder(module, "ptr jitonnx_block_malloc(ptr blocks, i64 size)", exported=True)
    blocks, size = code["blocks"], code["size"]
    large, busy = _is_large(code, size), code.field(blocks, BLOCKS, "busy")
    with code.if_then(large, likely=False), code.if_then(code.exchange_if(busy, 0, 1), likely=True):
        with code.loop(0, code.word(blocks, BLOCKS, "count")) as index:
            fits = code.equal(_size(code, code.load(_entry_at(code, index), POINTER)), size)
            with code.if_then(fits):
                found = code.call("jitonnx_block_drop", blocks, index)
                code.publish(busy, 0)
                code.build.ret(found)
        code.publish(busy, 0)
    origin = code.call("malloc", code.add(size, 2 * ALIGNMENT))
    with code.if_then(code.is_null(origin), likely=False):
        code.build.ret(origin)
    number = code.build.ptrtoint(origin, size.type)
    block = code.at(origin, code.subtract(2 * ALIGNMENT, code.build.and_(number, code.number(ALIGNMENT - 1))))
    code.build.store(origin, code.at(block, _ORIGIN))
    code.store(code.at(block, _SIZE), size)
    with code.if_then(large, likely=False):
        code.call("jitonnx_ask_for_huge_pages", block, size)
    code.build.ret(block)


def _clear(module: llvm_ir.Module) -> None:
    code = FunctionBuilder(module, "ptr jitonnx_block_calloc(ptr blocks, i64 count, i64 size)", exported=True)
    size = code.multiply(code["count"], code["size"])
    block = code.call("jitonnx_block_malloc", code["blocks"], size)
    with code.if_then(code.build.not_(code.is_null(block))):
        code.call("memset", block, 0, size)
    code.build.ret(block)


def _resize(module: llvm_ir.Module) -> None:
    """Resize as the C library does it: in place where an array shrinks. One that has to move may lose its alignment."""
    code = FunctionBuilder(module, "ptr jitonnx_block_realloc(ptr blocks, ptr memory, i64 size)", exported=True)
    memory, size = code["memory"], code["size"]
    with code.if_then(code.is_null(memory)):
        code.build.ret(code.call("jitonnx_block_malloc", code["blocks"], size))
    before = code.load(code.at(memory, _ORIGIN), POINTER)
    distance = code.subtract(*(code.build.ptrtoint(pointer, size.type) for pointer in (memory, before)))
    origin = code.call("realloc", before, code.add(size, 2 * ALIGNMENT))
    with code.if_then(code.is_null(origin), likely=False):
        code.build.ret(origin)
    block = code.at(origin, distance)
    code.build.store(origin, code.at(block, _ORIGIN))
    code.store(code.at(block, _SIZE), size)
    code.build.ret(block)


def _free(module: llvm_ir.Module) -> None:
    """Keep a large block, in place of those freed longest ago where there are too many; free it if it is too large for
    that, or small.

    If another thread is at it the block is simply freed.
    """
    code = FunctionBuilder(module, "void jitonnx_block_free(ptr blocks, ptr memory, i64 size)", exported=True)
    blocks = code["blocks"]
    with code.if_then(code.is_null(code["memory"])):
        code.give()
    block = code["memory"]
    size, limit = _size(code, block), code.word(blocks, BLOCKS, "limit")
    busy, users = code.field(blocks, BLOCKS, "busy"), code.watch(code.field(blocks, BLOCKS, "users"))
    wanted = code.build.and_(code.compare(size, "<=", limit), code.compare(users, ">", 0))
    with (
        code.if_then(_is_large(code, size), likely=False),
        code.if_then(wanted),
        code.if_then(code.exchange_if(busy, 0, 1), likely=True),
    ):
        with code.forever() as leave:
            count, kept = code.word(blocks, BLOCKS, "count"), code.add(code.word(blocks, BLOCKS, "kept"), size)
            room = code.build.and_(code.compare(count, "<", KEPT_BLOCKS), code.compare(kept, "<=", limit))
            with code.if_then(room):
                leave()
            _give_back(code, code.call("jitonnx_block_drop", blocks, 0))
        count = code.word(blocks, BLOCKS, "count")
        code.build.store(block, _entry_at(code, count))
        code.put(blocks, BLOCKS, "count", code.add(count, 1))
        code.put(blocks, BLOCKS, "kept", code.add(code.word(blocks, BLOCKS, "kept"), size))
        code.publish(busy, 0)
        code.give()
    _give_back(code, block)
    code.give()


def _trim(module: llvm_ir.Module) -> None:
    """Free all kept blocks, unless another thread is at it."""
    code = FunctionBuilder(module, "void jitonnx_block_trim(ptr blocks)", exported=True)
    blocks = code["blocks"]
    busy = code.field(blocks, BLOCKS, "busy")
    with code.if_then(code.exchange_if(busy, 0, 1)):
        with code.forever() as leave:
            with code.if_then(code.equal(code.word(blocks, BLOCKS, "count"), 0)):
                leave()
            _give_back(code, code.call("jitonnx_block_drop", blocks, 0))
        code.publish(busy, 0)
    code.give()


def _count(module: llvm_ir.Module) -> None:
    """Count users up or down; without the last one nothing is kept."""
    code = FunctionBuilder(module, "void jitonnx_block_count(ptr blocks, i64 change)", exported=True)
    before = code.fetch_add(code.field(code["blocks"], BLOCKS, "users"), code["change"])
    with code.if_then(code.compare(code.add(before, code["change"]), "<=", 0)):
        code.call("jitonnx_block_trim", code["blocks"])
    code.give()
