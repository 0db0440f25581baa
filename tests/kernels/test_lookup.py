"""The kernel that looks bytes up in a table."""

from __future__ import annotations

import numpy as np
import pytest

from bench.inner_loops import innermost_loops
from jitonnx.kernels.lookup.kernel import build
from jitonnx.kernels.lookup.spec import LookupSizes, LookupSpec
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled, assembly
from tests.targets import named

TARGETS = {"host": host(), "haswell": named("haswell")}


@pytest.mark.parametrize("target", TARGETS)
def test_lookup(target: str) -> None:
    cpu, spec, random = TARGETS[target], LookupSpec(), np.random.default_rng(0)
    kernel = Compiled(build(spec, cpu.lanes(4)), cpu, prescheduled=spec.prescheduled)
    table = random.integers(0, 256, 256).astype(np.uint8)
    for rows, length, gap in [(1, 1, 0), (1, 256, 0), (3, 63, 5), (2, 64, 1), (5, 65, 0), (1, 200_001, 0), (0, 4, 0)]:
        x = random.integers(0, 256, (rows, length + gap)).astype(np.uint8)
        x.reshape(-1)[:256] = np.arange(min(256, x.size))
        y = np.full((rows, length + 2), 77, np.uint8)
        sizes = spec.complete(LookupSizes(rows=rows, length=length, x_row=length + gap, y_row=length + 2))
        kernel([x, table, y], sizes, spec.tasks(sizes), pieces=2)
        np.testing.assert_array_equal(y[:, :length], table[x[:, :length]])
        assert (y[:, length:] == 77).all()


def test_tables_stay_in_registers_of_aarch64() -> None:
    target, spec = named("cortex-a72"), LookupSpec()
    text = assembly(build(spec, target.lanes(4)), target, spec.prescheduled)
    (loop,) = innermost_loops(text, r"\ttb[lx]\tv", target)
    assert (loop.multiply_adds, loop.stack_accesses) == (8, 0)
