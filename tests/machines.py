"""The machine that tests take this one for: its caches, cores and what a core does are never read but given here.

`pytest --machine NAME` chooses another one than the usual, whose features are those of this CPU. Code is made for the
pretended CPU less what this one lacks, so that it runs; a Granite Rapids is one without AMX (tests of AMX plan for it
with targets of their own). A pretended CPU of more than this one has (AVX-512 where there is only AVX2) has those of
this one, and caches and cores of its own. `READERS` names what reads the machine; tests/test_machines.py holds the
sources to it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from jitonnx.runtime import threads
from jitonnx.target import machine as targets
from jitonnx.target.cpu import CPUS_OF_X86, available, this_machine
from jitonnx.target.machine import Target, of_any_architecture

USUAL = "usual"


@dataclass(frozen=True)
class Machine:
    """cpus: how many. cpu: LLVM's name, whose caches it has but where others are given; None for the features of this
    CPU, and the caches of a common one of the same vectors."""

    cpus: int
    cpu: str | None = None
    l1_bytes: int | None = None
    l2_bytes: int | None = None
    l3_bytes: int | None = None


MACHINES = {
    USUAL: Machine(2),
    "zen4": Machine(16, "znver4"),
    "graniterapids": Machine(64, "sapphirerapids", l3_bytes=432 << 20),
    "haswell": Machine(4, "haswell"),
    "generic": Machine(1, "x86-64-v2", 16 << 10, 128 << 10, 1 << 20),
}
_V_OF_WIDTH = {64: "x86-64-v4", 32: "x86-64-v3", 16: "x86-64-v2"}
_KIND_OF_WIDTH = {64: "sapphirerapids", 32: "haswell", 16: "x86-64-v2"}
_real, _real_quota = targets.host, threads.cgroup_quota
READERS = (
    "jitonnx.target.machine.host",
    "jitonnx.runtime.threads.cgroup_quota",
    "os.sched_getaffinity",
    "os.cpu_count",
)
"""What tells code about this machine; `pretend` replaces it. Besides, `runtime.cpu.available` says what code runs."""


def pretend(name: str) -> None:
    """Take this machine for another one from now on. Called before any module has taken what reads the machine."""
    machine = MACHINES[name]
    targets.host = functools.cache(lambda: _target(machine, _real))  # type: ignore[assignment]
    threads.cgroup_quota = lambda process=None: None if process is None else _real_quota(process)
    os.cpu_count = lambda: machine.cpus
    if hasattr(os, "sched_getaffinity"):
        os.sched_getaffinity = lambda _: set(range(machine.cpus))


def made(name: str) -> Target:
    """Whom code is made for on a machine of that name."""
    return _target(MACHINES[name], _real)


def kind_of(target: Target) -> str:
    """LLVM's name of the CPU whose caches and cores the usual machine has."""
    return "neoverse-n1" if target.on_arm else _KIND_OF_WIDTH[target.vector_bytes]


def _target(machine: Machine, real: Callable[[], Target]) -> Target:
    """Whom code is made for."""
    if machine.cpu is None or this_machine()[0] != "x86_64":
        made = real()
        made = _with_caches(made, of_any_architecture(kind_of(made)))
    else:
        made = of_any_architecture(machine.cpu)
        listed = CPUS_OF_X86[machine.cpu]
        lacking = sorted(set(listed) - available(listed))
        if set(lacking) & set(CPUS_OF_X86[_V_OF_WIDTH[made.vector_bytes]]):
            made = _with_caches(real(), made)
        else:
            features = filter(None, [made.features, *(f"-{feature}" for feature in lacking)])
            made = replace(made, features=",".join(features))
    caches = {name: size for name in ("l1_bytes", "l2_bytes", "l3_bytes") if (size := getattr(machine, name))}
    return replace(made, **caches)


def _with_caches(made: Target, like: Target) -> Target:
    """A target with the caches and cores of another one."""
    return replace(made, l1_bytes=like.l1_bytes, l2_bytes=like.l2_bytes, l3_bytes=like.l3_bytes, core=like.core)
