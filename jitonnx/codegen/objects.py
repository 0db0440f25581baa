"""The object code of a plan's kernels comes from the kernel cache, or from the compiler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from jitonnx.codegen.code import KernelCode
from jitonnx.errors import ModelRequiresCompilation
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.support.records import dataclass
from jitonnx.target.machine import Target


@dataclass(frozen=True)
class Objects:
    """The source of a plan's object code: from the kernel cache or the compiler. Holds no engine."""

    codes: Sequence[KernelCode]
    target: Target
    cache: KernelCache
    threads: int
    may_compile: bool
    inputs: Sequence[str]

    def __call__(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: threading.Event | None = None,
        *,
        may_compile: bool = True,
    ) -> dict[str, bytes]:
        """The object code of each symbol. ModelRequiresCompilation if there is none and it may not be made."""
        from jitonnx.codegen.compiler import cached_kernels, compile_kernels

        if not (self.may_compile and may_compile):
            made, missing = cached_kernels(self.codes, self.target, self.cache)
            if missing:
                raise ModelRequiresCompilation(
                    f"{len(missing)} of {len(made) + len(missing)} kernels are not in the kernel cache "
                    f"{self.cache.directory}, and the session may not compile (jitonnx.compile is 'cached'; inputs: "
                    f"{', '.join(self.inputs)}). Run the model once on this machine, with the same version and options "
                    "but 'before' for that entry; or open an artifact (`jitonnx compile`)"
                )
        else:
            made = compile_kernels(self.codes, self.target, self.cache, self.threads, progress, stop)
        return {code.symbol(self.target): data for code, data in made.items()}
