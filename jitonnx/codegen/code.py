"""What a kernel's code depends on, as a key, computed without LLVM: a start with a filled cache never imports it."""

from __future__ import annotations

import functools
import os

from jitonnx.codegen.numba.source import Source
from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.calls import KernelCall, Stage
from jitonnx.support.digest import sha256
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.support.records import dataclass
from jitonnx.support.sources import package_folder, source_digest
from jitonnx.support.versions import versions
from jitonnx.target.machine import Target


@dataclass(frozen=True)
class KernelCode:
    """One kernel's code: equal codes are compiled once."""

    spec: KernelSpec
    prologue: Stage | None
    epilogue: Stage | None
    source: Source | None = None
    """What Numba makes the code of; None: it is emitted as LLVM IR."""

    def key(self, target: Target) -> str:
        """Names the object code by everything that it depends on, versions and CPU included."""
        return _key(self, target)

    def symbol(self, target: Target) -> str:
        """The name of the kernel's function: unique by content, so that code of several processes never clashes."""
        return f"jitonnx_{self.spec.family}_{self.key(target)[:24]}"


LLVM, NUMBA = "llvm", "numba"
"""What makes the code of regions: LLVM IR that is emitted, or Numba of sources that are written."""
CODEGENS = (LLVM, NUMBA)


def code_of(call: KernelCall, codegen: str = LLVM) -> KernelCode:
    """The code that a call needs, a region's made by what `codegen` says. Numba has none of library kernels, nor of
    what `not_by_numba` tells."""
    return KernelCode(call.spec, call.prologue, call.epilogue, _source(call) if codegen == NUMBA else None)


def not_by_numba(call: KernelCall) -> str:
    """Why there is no source for Numba of a region's call; "" where there is one, and of library kernels."""
    from jitonnx.codegen.numba.sources import is_region, write
    from jitonnx.codegen.numba.writing import Uncovered

    try:
        if is_region(call):
            write(call, named=False)
    except Uncovered as error:
        return str(error)
    return ""


def _source(call: KernelCall) -> Source | None:
    from jitonnx.codegen.numba.sources import is_region, write  # of few starts
    from jitonnx.codegen.numba.writing import Uncovered

    try:
        return write(call, named=False) if is_region(call) else None
    except Uncovered:
        return None


@functools.lru_cache(maxsize=4096)
def _key(code: KernelCode, target: Target) -> str:
    text = "\n".join((repr(code), target.key, versions(), _library_digest()))
    if code.source is not None:
        text += _of_numba()
    return sha256(text.encode()).hexdigest()


@functools.cache
def _of_numba() -> str:
    """Numba's version and settings, without importing it, and a digest of what reads its modules."""
    from jitonnx.support.identity import surroundings

    return surroundings() + source_digest(package_folder("jitonnx.codegen.functions"), cache=KernelCache())


@functools.cache
def _library_digest() -> str:
    """A digest of the kernel library, of what it is written in, of the figures that it goes by, of this package, and
    of the expressions that it asks and rewrites: code written anew is never taken from the cache."""
    packages = ("jitonnx.kernels", "jitonnx.emit", "jitonnx.ir.computation")
    target = (os.path.join(package_folder("jitonnx.target"), name) for name in ("tuning.py", "products.py"))
    return source_digest(*map(package_folder, packages), *target, os.path.dirname(__file__), cache=KernelCache())
