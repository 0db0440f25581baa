"""Products that differ only in what they ask for ahead have one kernel."""

from __future__ import annotations

from jitonnx.kernels.gemm.spec import GemmBuffers, GemmGiven, GemmSpec
from jitonnx.plan.alike import share_kernels
from jitonnx.plan.calls import KernelCall


def call(spec: GemmSpec) -> KernelCall:
    return KernelCall(spec, GemmBuffers.make([None] * 3), GemmGiven.make([0] * GemmGiven.WIDTH))


def test_products_of_the_same_tiles_share_a_kernel() -> None:
    tiles = ((6, 4), (64,))
    calls = [call(GemmSpec(*tiles)), call(GemmSpec(*tiles, near=24)), call(GemmSpec(*tiles, paced=True))]
    others = [call(GemmSpec((6, 2), (64,))), call(GemmSpec(*tiles, b_packed=False))]
    kept = [other.spec for other in others]
    share_kernels([*calls, *others])
    assert {made.spec for made in calls} == {GemmSpec(*tiles, near=24, paced=True)}
    assert [other.spec for other in others] == kept
