"""Six threads that switch all the time, and forks beside compiles: `stress.py`, for a short time and for long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def stress(what: str, amount: int, limit: float) -> None:
    """limit: seconds after which it hangs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.session.stress", what, str(amount)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit, check=False
    )
    assert done.returncode == 0 and "all right" in done.stdout, done.stderr[-4000:]


def test_threads() -> None:
    stress("threads", 3, 300)


def test_starts() -> None:
    stress("starts", 1, 300)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forks() -> None:
    stress("forks", 3, 400)


@pytest.mark.slow
def test_threads_for_long() -> None:
    stress("threads", 600, 1200)


@pytest.mark.slow
def test_starts_for_long() -> None:
    stress("starts", 600, 1200)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_many_forks() -> None:
    stress("forks", 200, 6000)
