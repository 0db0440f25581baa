"""Making kernels of specs and stages."""

from __future__ import annotations

import pytest

from jitonnx.codegen.build import kernel_of
from jitonnx.codegen.code import KernelCode
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.col2im.spec import FoldSpec
from jitonnx.kernels.determinant.spec import DeterminantSpec
from jitonnx.kernels.grid_sample.spec import SamplePixelsSpec, SamplePlanesSpec
from jitonnx.kernels.random.spec import NextSpec
from jitonnx.kernels.roi_align.spec import RoiAlignSpec
from jitonnx.kernels.scan.spec import ScanSpec
from jitonnx.kernels.scatter.spec import ScatterRowsSpec
from jitonnx.kernels.segments.spec import SegmentsSpec
from jitonnx.kernels.spec import KernelSpec
from jitonnx.kernels.topk.spec import TopKSpec
from jitonnx.plan.calls import Stage
from jitonnx.target.machine import host

STAGE = Stage(e.operand(0, DType.FLOAT) * 2, (), (), (), 0, 0)


@pytest.mark.parametrize(
    "spec",
    [
        FoldSpec(2, 3, 1, 1, 0),
        DeterminantSpec(),
        SamplePixelsSpec("linear", "zeros", 2),
        SamplePlanesSpec("linear", "zeros", 2),
        NextSpec(),
        RoiAlignSpec("avg", True, 1, True),
        ScanSpec("sum"),
        ScatterRowsSpec("int64", "uint32"),
        SegmentsSpec("sum"),
        TopKSpec(),
    ],
)
def test_kernels_without_stages_refuse_them(spec: KernelSpec) -> None:
    assert callable(kernel_of(KernelCode(spec, None, None), host()))
    for name, stages in (("prologue", (STAGE, None)), ("epilogue", (None, STAGE))):
        with pytest.raises(ValueError, match=f"takes no {name}"):
            kernel_of(KernelCode(spec, *stages), host())
