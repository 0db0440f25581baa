"""How tasks are shared out, and that programs which would touch foreign memory are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitonnx.runtime.layout import MOST_UNITS
from jitonnx.runtime.program import OutOfBounds, Program, Slot, Step, Steps, Tensors
from jitonnx.runtime.tables import make_tables
from tests.runtime.kernels import common, executable, floats


@given(st.integers(0, 1 << 40), st.integers(1, 1000), st.integers(1, 1 << 20), st.integers(1, 64))
def test_parts_of_a_step(tasks: int, wanted: int, grain: int, threads: int) -> None:
    """Units number what 16 bits hold and cover all tasks; parts are even; a piece is the grain or more."""
    program = Program(Steps.of([Step("kernel", (), (), tasks, wanted, grain)]), 0, [], Tensors.of([]), Tensors.of([]))
    tables = make_tables(program, common(program, {"kernel": 0}), threads)
    (row,) = tables.records
    units = row["quotient"] * row["threads"] + row["remainder"]
    if row["threads"] > 1:
        assert tables.participants == row["threads"] <= min(tasks, wanted, threads) and tables.shared_end == 1
        assert row["threads"] <= units <= MOST_UNITS and 0 <= row["remainder"] < row["threads"]
        assert (units - 1) * row["unit"] < tasks <= units * row["unit"]
        assert row["grain"] * row["unit"] >= grain
    else:
        assert tables.participants == 1 and tables.shared_end == 0


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
    with pytest.raises((ValueError, OutOfBounds), match=r"\w+ -?\d of step 1 \(sum\)"):
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
