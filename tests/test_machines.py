"""No result of a test goes by the machine that runs it: what reads it is known, and pretended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jitonnx.runtime import threads
from jitonnx.target import machine as targets
from tests import machines
from tests.machines import MACHINES, USUAL

_ROOT = Path(__file__).parent.parent
_SOURCES = re.compile(
    r"sched_getaffinity|cpu_count|get_host_cpu|/proc/cpuinfo|/sys/devices/system/cpu|/proc/self/auxv|\b_caches\(\)|"
    r"\bcore_of_host\(|\bcgroup_quota\(|\bcpu_info\(|\bcpu_identity\(|\bcpu\.described\("
)
"""What tells of the machine."""
_READERS = {
    "jitonnx/target/cpu.py": "what the CPU is, and whether code runs on it",
    "jitonnx/runtime/threads.py": "how many CPUs there are; pretended",
    "jitonnx/target/machine.py": "the CPU that code is made for; pretended",
    "jitonnx/target/cores.py": "of that, what a core does in a cycle",
    "jitonnx/target/calibration.py": "the same, measured",
    "jitonnx/api/saved/model_cache.py": "a key: kept models are for one CPU",
    "kernels/parts/packing.py": "threads that pack weights, alike for any number of them; pretended",
    "tests/machines.py": "pretends",
    "tests/test_machines.py": "is about that",
    "tests/target/test_cores.py": "kinds of cores that are told apart, and measured ones: any figure will do",
    "tests/artifact/test_cpu.py": "whether we find what LLVM finds",
    "tests/runtime/test_threads.py": "how CPUs are counted",
}
"""The files that may read it, and what for."""


def _found() -> set[str]:
    """The files that read the machine."""
    paths = [path for folder in ("jitonnx", "kernels", "tests") for path in (_ROOT / folder).rglob("*.py")]
    return {path.relative_to(_ROOT).as_posix() for path in paths if _SOURCES.search(path.read_text())}


def test_the_machine_is_read_where_it_is_named() -> None:
    assert sorted(_found() - set(_READERS)) == [], "reads the machine: let it take what tests/machines.py pretends"
    assert sorted(set(_READERS) - _found()) == [], "no longer reads the machine"


def test_tests_see_a_pretended_machine(request: pytest.FixtureRequest) -> None:
    machine = MACHINES[request.config.getoption("--machine")]
    assert threads.allowed_cpus() == machine.cpus
    target = targets.host()
    like = targets.of_any_architecture(machine.cpu or machines.kind_of(target))
    expected = machine.l1_bytes or like.l1_bytes, machine.l2_bytes or like.l2_bytes, machine.l3_bytes or like.l3_bytes
    assert (target.l1_bytes, target.l2_bytes, target.l3_bytes, target.core) == (*expected, like.core)


@pytest.mark.parametrize("name", sorted(set(MACHINES) - {USUAL}))
def test_code_for_pretended_machines_runs_here(name: str) -> None:
    assert machines.made(name).needed.problem() is None


@pytest.mark.parametrize("cpu", ["haswell", "znver4", "sapphirerapids", "x86-64-v2", "neoverse-n1"])
def test_named_cpus_have_the_caches_of_their_kind(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(targets, "_caches")  # of this machine
    target = targets.of_any_architecture(cpu)
    assert target.l1_bytes < target.l2_bytes < target.l3_bytes
