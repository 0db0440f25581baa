"""CPUs that tests make code for besides this one: those of x86-64, by name. Where that cannot be, tests are skipped."""

from __future__ import annotations

import pytest

from jitonnx.runtime.cpu import this_machine
from jitonnx.target import Target, host, x86_64

ON_X86_64 = this_machine()[0] == "x86_64"
on_x86_64 = pytest.mark.skipif(not ON_X86_64, reason="is about CPUs of x86-64")


def named(cpu: str) -> Target:
    """As `jitonnx.target.named`, but on any machine, so that tests can be collected there."""
    return host() if cpu == "host" else x86_64(cpu)


def skip_unless_made_here(target: Target) -> None:
    """Skip the test where LLVM makes no code for the CPU: it ends the process when asked for another architecture's."""
    if target != host() and not ON_X86_64:
        pytest.skip(f"{target.cpu} is a CPU of x86-64")


def skip_unless_run_here(target: Target) -> None:
    """Skip the test where code for the CPU cannot be made or run."""
    skip_unless_made_here(target)
    if problem := target.needed.problem():
        pytest.skip(problem)
