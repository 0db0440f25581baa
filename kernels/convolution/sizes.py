"""The sizes of a convolution by name, for the code that emits it: loaded where they are used, as there are many."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.convolution.spec import DirectSizes, Phase
from jitonnx.kernels.convolution.transforms import WinogradSizes


class Loaded:
    """`sizes.width` and so on, by the names of some records, each of which begins at a place of its own."""

    def __init__(self, code: KernelBuilder, *records: tuple[type[Arguments], SSAValue | int]) -> None:
        self.code, self._records = code, records

    def __getattr__(self, name: str) -> SSAValue:
        for record, first in self._records:
            if record.has(name):
                return self.code.size(first + record.place(name))
        raise AttributeError(name)


class Direct(Loaded):
    """Those of a direct convolution: what `DirectSizes` names, and of one phase what `Phase` names."""

    def __init__(self, code: KernelBuilder, phase: SSAValue | int) -> None:
        super().__init__(code, (DirectSizes, 0), (Phase, phase * Phase.WIDTH + DirectSizes.place("phases")))
        self.phase = phase


class Winograd(Loaded):
    """Those of a Winograd convolution: what `WinogradSizes` names."""

    def __init__(self, code: KernelBuilder) -> None:
        super().__init__(code, (WinogradSizes, 0))
