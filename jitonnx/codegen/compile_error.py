"""The error for a kernel that does not compile, apart from what compiles: who only catches it need not import that."""

from __future__ import annotations

from jitonnx.codegen.code import KernelCode


class CompileError(RuntimeError):
    """A kernel of ours did not compile: a defect. The text holds the kernel and the compiler's error.

    code: the kernel; None if the process that compiles ended before it had one.
    """

    def __init__(self, text: str, code: KernelCode | None) -> None:
        super().__init__(text)
        self.code = code
