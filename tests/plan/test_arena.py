"""The arena: no two buffers that are alive together share a byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jitonnx.plan.arena import ArenaPlacement, Lifetime
from jitonnx.runtime.layout import ALIGNMENT

BUFFERS = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 40), st.integers(0, 10)), max_size=60)


@given(BUFFERS)
def test_live_buffers_do_not_overlap(buffers: list[tuple[int, int, int]]) -> None:
    sizes = [size for size, _, _ in buffers]
    lives = [Lifetime(first, first + length) for _, first, length in buffers]
    offsets, total = ArenaPlacement(lives)(np.array(sizes, np.int64))
    assert all(offset % ALIGNMENT == 0 and offset + size <= total for offset, size in zip(offsets, sizes, strict=True))
    for a in range(len(buffers)):
        for b in range(a):
            if sizes[a] and sizes[b] and lives[a].first <= lives[b].last and lives[b].first <= lives[a].last:
                assert offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a]


def test_buffers_that_never_meet_share_memory() -> None:
    offsets, total = ArenaPlacement([Lifetime(n, n + 1) for n in range(10)])(np.full(10, 4096))
    assert total == 2 * 4096
    assert len(set(offsets.tolist())) == 2
