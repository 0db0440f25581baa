"""The integer arguments of a direct convolution, by name, for the code that emits its kernel."""

from __future__ import annotations

from jitonnx.kernels.code import Code
from jitonnx.kernels.convolution.spec import Blocking, Phase, Problem
from jitonnx.kernels.trace import Traced


class Sizes:
    """`sizes.width` and so on: what `Problem` and `Blocking` name, and of one phase what `Phase` names."""

    def __init__(self, code: Code, phase: Traced | int) -> None:
        self.code, self.phase = code, phase
        common = (*Problem._fields, *Blocking._fields)
        self._index: dict[str, Traced | int] = {name: number for number, name in enumerate(common)}
        first = phase * len(Phase._fields) + len(common)
        self._index.update({name: first + number for number, name in enumerate(Phase._fields)})

    def __getattr__(self, name: str) -> Traced:
        return self.code.size(self._index[name])
