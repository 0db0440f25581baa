"""What a kernel's code depends on, as a key, computed without LLVM: a start with a filled cache never imports it."""

from __future__ import annotations

import functools
import os

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

    def key(self, target: Target) -> str:
        """Names the object code by everything that it depends on, versions and CPU included."""
        return _key(self, target)

    def symbol(self, target: Target) -> str:
        """The name of the kernel's function: unique by content, so that code of several processes never clashes."""
        return f"jitonnx_{self.spec.family}_{self.key(target)[:24]}"


def code_of(call: KernelCall) -> KernelCode:
    """The code that a call needs."""
    return KernelCode(call.spec, call.prologue, call.epilogue)


@functools.lru_cache(maxsize=4096)
def _key(code: KernelCode, target: Target) -> str:
    text = "\n".join((repr(code), target.key, versions(), _library_digest()))
    return sha256(text.encode()).hexdigest()


@functools.cache
def _library_digest() -> str:
    """A digest of the kernel library, of what it is written in, of this package, and of the expressions that it asks
    and rewrites: code written anew is never taken from the cache."""
    packages = ("jitonnx.kernels", "jitonnx.emit", "jitonnx.ir.computation")
    return source_digest(*map(package_folder, packages), os.path.dirname(__file__), cache=KernelCache())
