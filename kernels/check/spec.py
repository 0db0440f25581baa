"""What the kernel of checks is, without compiling it."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass


class CheckBuffers(Arguments):
    met: Buffer
    error: Buffer = result()


class CheckSizes(Arguments):
    elements: Size


@dataclass(frozen=True)
class CheckSpec(KernelSpec):
    """error (int64) is set to 1 if any of `met`, dense bytes of 0 and 1, is 1. One task."""

    BUFFERS = CheckBuffers
    SIZES = CheckSizes

    def tasks(self, sizes: CheckSizes) -> int:
        return 1

    def work(self, sizes: CheckSizes) -> Work:
        return Work(0, sizes.elements)
