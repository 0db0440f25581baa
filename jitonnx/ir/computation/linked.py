"""Scalar functions that another compiler made LLVM IR of: what expressions may call beside their own operations."""

from __future__ import annotations

from jitonnx.ir.dtypes import DType
from jitonnx.support.records import NamedTuple


class LinkedFunction(NamedTuple):
    """A function of numbers, which always gives the same for the same ones.

    The IR is that of a module that defines it as the C function `symbol`, and needs nothing else but LLVM's intrinsics
    and the C mathematics library. Truth values are bytes.
    """

    name: str
    arguments: tuple[DType, ...]
    result: DType
    ir: str

    @property
    def symbol(self) -> str:
        """What the IR calls it: `SYMBOL` in its text stands for this."""
        import hashlib  # of few starts: it loads OpenSSL

        return f"{PREFIX}{hashlib.sha256(self.ir.encode()).hexdigest()[:24]}"

    @property
    def module(self) -> str:
        """The text of the module."""
        return self.ir.replace(SYMBOL, self.symbol)

    def __repr__(self) -> str:
        """What kernels' keys have: functions of one name may be of different code."""
        return f"{self.name}@{self.symbol}"


PREFIX = "jitonnx.linked."
SYMBOL = f"{PREFIX}SYMBOL"
