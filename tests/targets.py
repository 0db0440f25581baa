"""CPUs that tests make code for besides this one, by name. Tests that run code are skipped where it cannot be run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jitonnx.target.cpu import available, this_machine
from jitonnx.target.machine import Target, host, of_any_architecture
from jitonnx.target.products import BFLOAT16

ON_X86_64 = this_machine()[0] == "x86_64"
on_x86_64 = pytest.mark.skipif(not ON_X86_64, reason="is about CPUs of x86-64")


needs_bfloat16_tiles = pytest.mark.skipif(
    available(BFLOAT16["tiles"].features) != set(BFLOAT16["tiles"].features), reason="this CPU has no bfloat16 tiles"
)
needs_bfloat16_products = pytest.mark.skipif(
    not host().bfloat16_products, reason="this CPU has no instructions for products of bfloat16"
)
needs_packed_bfloat16 = pytest.mark.skipif(
    host().bfloat16_products not in ("tiles", "dots"), reason="this CPU has no products of packed matrices of bfloat16"
)


def named(cpu: str) -> Target:
    """Do what `jitonnx.target.machine.named` does, but on any machine, so that tests can be collected there. A Zen 4 is
    one without SSE4a, which Intel's CPUs lack and no kernel uses, so that its kernels run on these, too."""
    if cpu == "host":
        return host()
    target = of_any_architecture(cpu)
    return replace(target, features=f"{target.features},-sse4a") if cpu == "znver4" else target


BFLOAT16_TARGET = next(
    (target for target in (host(), named("znver4")) if target.bfloat16_products and not target.needed.problem()), host()
)
"""This CPU, or as what else it can be taken that multiplies bfloat16 faster; this one, too, where there is none."""
needs_bfloat16_target = pytest.mark.skipif(
    not BFLOAT16_TARGET.bfloat16_products, reason="this CPU has no instructions for products of bfloat16"
)
needs_packing_target = pytest.mark.skipif(
    BFLOAT16_TARGET.bfloat16_products not in ("tiles", "dots"),
    reason="this CPU has no products of packed matrices of bfloat16",
)


def waiting(target: Target) -> Target:
    """A target whose products outrun its third-level cache (`Target.waits_for_l3`), whatever its vectors are."""
    made = replace(target, core=target.core._replace(l3_bytes=1.0))
    assert made.waits_for_l3
    return made


def skip_unless_run_here(target: Target) -> None:
    """Skip the test where code for the CPU cannot be run."""
    if target.foreign:
        pytest.skip(f"{target.cpu} is a CPU of {target.architecture}")
    if problem := target.needed.problem():
        pytest.skip(problem)
