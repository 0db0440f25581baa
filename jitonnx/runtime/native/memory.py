"""Large memory: Linux is asked to give it in huge pages, as NumPy asks for its own."""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from .functions import FunctionBuilder

_PAGE = 4096
_HUGE_PAGES = 14
"""Linux's MADV_HUGEPAGE: a large block costs a page fault per 2 MB instead of per 4 KB."""


def define(module: llvm_ir.Module, *, linux: bool) -> None:
    """Add the function to a module. Elsewhere than on Linux it does nothing."""
    code = FunctionBuilder(module, "void jitonnx_ask_for_huge_pages(ptr block, i64 size)")
    block, size = code["block"], code["size"]
    if linux:
        skip = code.build.and_(code.subtract(0, code.build.ptrtoint(block, size.type)), code.number(_PAGE - 1))
        with code.if_then(code.compare(size, ">", skip)):
            code.call("madvise", code.at(block, skip), code.subtract(size, skip), _HUGE_PAGES)
    code.give()
