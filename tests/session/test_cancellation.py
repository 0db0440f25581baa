"""Long runs end when Ctrl-C or their options ask for it, whatever takes so long, and the session serves on."""

import subprocess
import sys

import pytest

from tests.session.long_runs import RUNS

MOST_SECONDS = 2.0
"""A run ends within a tenth of a second, and would take ten seconds or more; the rest is for a busy machine."""


def ended(name: str, threads: int, end: str) -> list[float]:
    """The seconds that each end took."""
    command = [sys.executable, "-m", "tests.session.long_runs", name, str(threads), end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "threads"), [*((name, 1) for name in RUNS), ("flat", 2), ("kernel", 2), ("chain", 2)])
def test_signals_end_runs(name: str, threads: int) -> None:
    assert min(ended(name, threads, "signal")) < MOST_SECONDS


@pytest.mark.parametrize("name", ["long_iterations", "chain"])
def test_terminate_ends_runs(name: str) -> None:
    assert min(ended(name, 2, "terminate")) < MOST_SECONDS


def test_runs_go_on_behind_a_handler_that_raises_nothing() -> None:
    """It may run the session, too."""
    ended("flat", 2, "handled")
