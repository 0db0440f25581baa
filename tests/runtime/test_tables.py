"""Where barriers go, and that programs which would touch foreign memory are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitonnx.runtime.program import Slot, Step
from jitonnx.runtime.tables import place_barriers
from tests.runtime.kernels import executable, floats


@pytest.mark.parametrize(
    ("wanted", "shares", "expected"),
    [
        ([], [], []),
        ([True], [1], [False]),
        ([True, True], [1, 1], [False, False]),
        ([False], [2], [True]),
        ([True, True, True], [2, 2, 2], [True, True, True]),
        ([False, False, True], [2, 2, 2], [False, False, True]),
        ([True, True, True, True], [1, 1, 2, 1], [False, True, True, False]),
        ([True, False, False, False], [1, 1, 1, 2], [False, False, True, True]),
        ([False, True, False, True], [2, 1, 1, 2], [False, True, False, True]),
    ],
)
def test_place_barriers(wanted: list[bool], shares: list[int], expected: list[bool]) -> None:
    assert place_barriers(wanted, shares) == expected


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=12))
def test_barriers_keep_every_wanted_order(steps: list[tuple[bool, int]]) -> None:
    """Of two steps with a wanted barrier between them, one of them shared, the second waits for the first."""
    wanted, shares = [barrier for barrier, _ in steps], [share for _, share in steps]
    barriers = place_barriers(wanted, shares)
    for first in range(len(steps)):
        for second in range(first + 1, len(steps)):
            if any(wanted[first:second]) and max(shares[first], shares[second]) > 1:
                assert any(barriers[first:second])
    shared = [index for index, share in enumerate(shares) if share > 1]
    assert not any(barriers[shared[-1] + 1 :] if shared else barriers)
    assert not shared or barriers[shared[-1]], "workers must be done when the run is"


@pytest.mark.parametrize(
    "slot",
    [
        Slot("arena", 0, 68),
        Slot("arena", 1, 0),
        Slot("arena", 0, -4),
        Slot("constant", 1, 0),
        Slot("input", 1, 0),
        Slot("input", 0, 20),
        Slot("output", -1, 0),
    ],
)
def test_operands_outside_of_their_memory_are_refused(slot: Slot) -> None:
    steps = [
        Step("nothing", (Slot("arena", 0, 64), Slot("output", 0))),
        Step("add_one", (Slot("input", 0), slot), (4,), label="sum"),
    ]
    with pytest.raises(ValueError, match=r"Bug: step 1 \(sum\) has an operand outside of its memory: \w+ -?\d"):
        executable(
            steps,
            inputs=[floats("x", 4)],
            outputs=[floats("y", 4)],
            arena_bytes=64,
            constants=[np.zeros(2, np.float32)],
        )


def test_constants_must_be_contiguous() -> None:
    with pytest.raises(ValueError, match="constant 0 of shape"):
        executable([], constants=[np.zeros((4, 4), np.float32)[:, ::2]])
