"""The simulation of more cores: what it says of work whose answer is known."""

from __future__ import annotations

import math

import pytest

from bench.scaling import Machine, Step, simulate

FREE = Machine(bandwidth=math.inf, saturating=8, end=0.0)


def test_one_thread_takes_what_was_measured() -> None:
    steps = [Step(1.0, 16, 1, True, 0), Step(0.5, 1, 1, False, 0)]
    assert simulate(steps, 1, FREE).total == pytest.approx(1.5)


def test_work_without_limits_is_divided() -> None:
    assert simulate([Step(1.0, 64, 1, True, 0)], 8, FREE).total == pytest.approx(1 / 8)


def test_pieces_bind() -> None:
    """Nine pieces on four threads are three rounds; grains make fewer pieces of many tasks."""
    for step in (Step(9.0, 9, 1, True, 0), Step(9.0, 36, 4, True, 0)):
        run = simulate([step], 4, FREE)
        assert run.total == pytest.approx(3.0) and run.pieces == pytest.approx(3.0 - 9 / 4)
    alone = simulate([Step(1.0, 100, 1, False, 0)], 4, FREE)
    assert alone.total == 1.0 and alone.pieces == pytest.approx(0.75)


def test_bandwidth_binds() -> None:
    machine = Machine(bandwidth=10.0, saturating=2, end=0.0)
    run = simulate([Step(10.0, 1000, 1, True, 100)], 8, machine)
    assert run.total == pytest.approx(100 / 20) and run.bandwidth == pytest.approx(5.0 - 1.25)


def test_ends_of_steps_grow_with_the_logarithm() -> None:
    machine = FREE._replace(end=0.01)
    steps = [Step(0.0, 64, 1, True, 0)] * 10
    assert [simulate(steps, threads, machine).ends for threads in (2, 8, 64)] == pytest.approx([0.1, 0.3, 0.6])
