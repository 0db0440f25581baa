"""What code needs of a CPU, and whether this one has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jitonnx.target import cpu, machine
from jitonnx.target.cores import HALF_WIDTH
from jitonnx.target.cpu import CpuNeeded, available, this_machine
from jitonnx.target.machine import Target, host, named
from tests.targets import on_x86_64

ROOT = Path(__file__).parents[2]


def test_this_machine_runs_its_own_code() -> None:
    assert host().needed.problem() is None


def test_linux_and_llvm_agree() -> None:
    """What /proc/cpuinfo tells of the features that LLVM knows by name is what LLVM finds."""
    import llvmlite.binding as llvm

    found = llvm.get_host_cpu_features()
    known = {name for name in cpu._LINUX_NAMES if name in found} or {"fp"}
    assert available(known) == {name for name in known if found[name]}


@on_x86_64
def test_named() -> None:
    assert set(named("x86-64-v3").needed.features) < set(named("x86-64-v4").needed.features)
    for name in cpu.CPUS_OF_X86:
        assert named(name).needed.name == name
    with pytest.raises(ValueError, match="CPU 'z80' has is not known"):
        _ = Target("z80", "", 16, 16, 1, 1, 1, HALF_WIDTH).needed


@on_x86_64
def test_tiles_are_needed_where_code_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """And count as missing where Linux does not let this process use them."""
    code = Target("x86-64-v4", "+avx512f,+amx-tile,+amx-int8", 64, 32, 1, 1, 1, HALF_WIDTH)
    assert code.needed.features == ("avx512f",)
    needed = code.needed_by(("amx-int8", "amx-tile"))
    assert needed.features == ("amx-int8", "amx-tile", "avx512f")
    monkeypatch.setattr(cpu, "_linux_flags", lambda: frozenset({"avx512f", "amx_int8", "amx_tile"}))
    monkeypatch.setattr(cpu, "_tiles_permitted", lambda: False)
    assert str(needed.problem()).endswith("lacks: amx-int8, amx-tile")
    monkeypatch.setattr(cpu, "_tiles_permitted", lambda: True)
    assert needed.problem() is None


def test_cpus_of_another_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM would end the process."""
    monkeypatch.setattr(machine, "this_machine", lambda: ("aarch64", "linux"))
    with pytest.raises(ValueError, match="'haswell' is one of x86-64, and this machine is aarch64; code is made for"):
        machine.named.__wrapped__("haswell")
    assert machine.named("host") is host()


def test_unknown_features_are_missing() -> None:
    needed = CpuNeeded(*this_machine(), host().cpu, ("avx4096",), 512)
    assert str(needed.problem()).endswith("lacks: avx4096")


_STARTS = """
import sys
from jitonnx.target.cpu import available
print(*available(["avx2", *sys.argv[1:]]))
print(*sys.modules)
"""


@pytest.mark.skipif(cpu.cpu_identity() is None, reason="nothing tells whether a CPU is still the same one")
def test_unknown_features_are_asked_once(tmp_path: Path) -> None:
    """LLVM is asked for names that Linux does not have by the first process that wants them, and then no more."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    unknown = {name for name in features if name not in cpu._LINUX_NAMES}
    assert len(unknown) > 20

    def start(*names: str) -> tuple[set[str], set[str]]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JITONNX_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", _STARTS, *names]
        output = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        found, modules = output.splitlines()
        return set(found.split()) - {"avx2"}, set(modules.split())

    if "avx2" in cpu._LINUX_NAMES and cpu._linux_flags():
        assert "llvmlite" not in start()[1] and not (tmp_path / "cache").exists()
    for names, asks in ((unknown, True), (unknown, False), ({"of-next-year"}, False)):
        found, modules = start(*names)
        assert found == {name for name in names if features.get(name)}
        assert ("llvmlite.binding" in modules) == asks
