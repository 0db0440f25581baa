"""The integer arguments of a kernel by name, for the code that emits it."""

from __future__ import annotations

from jitonnx.kernels.convolution.problem import Problem
from jitonnx.kernels.convolution.spec import Blocking, Phase
from jitonnx.kernels.convolution.transforms import WinogradBlocking
from jitonnx.kernels.language.code import Code
from jitonnx.kernels.language.trace import Traced


class Sizes:
    """`sizes.width` and so on, for arguments in the order of `names`, of which number 0 is argument `first`."""

    def __init__(self, code: Code, names: tuple[str, ...], first: Traced | int = 0) -> None:
        self.code = code
        self._index = {name: first + number for number, name in enumerate(names)}

    def __getattr__(self, name: str) -> Traced:
        return self.code.size(self._index[name])


class DirectSizes(Sizes):
    """Those of a direct convolution: what `Problem` and `Blocking` name, and of one phase what `Phase` names."""

    def __init__(self, code: Code, phase: Traced | int) -> None:
        names = (*Problem._fields, *Blocking._fields)
        super().__init__(code, names)
        self._index |= Sizes(code, Phase._fields, phase * len(Phase._fields) + len(names))._index
        self.phase = phase


class WinogradSizes(Sizes):
    """Those of a Winograd convolution: what `Problem` and `WinogradBlocking` name."""

    def __init__(self, code: Code) -> None:
        super().__init__(code, (*Problem._fields, *WinogradBlocking._fields))
