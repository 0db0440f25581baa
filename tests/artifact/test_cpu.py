"""What code needs of a CPU, and whether this one has it."""

import pytest

from jitonnx.runtime import cpu
from jitonnx.runtime.cpu import CpuNeeded, available, this_machine
from jitonnx.target import Target, host, named


def test_this_machine_runs_its_own_code() -> None:
    assert host().needed.problem() is None


def test_linux_and_llvm_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """What /proc/cpuinfo tells of the features that LLVM knows by name is what LLVM finds."""
    import llvmlite.binding as llvm

    known = {name for name in cpu._LINUX_NAMES if name in llvm.get_host_cpu_features()}
    asked = known or {"fp"}
    told = available(asked)
    monkeypatch.setattr(cpu, "_linux_flags", frozenset)
    assert available(asked) == told


@pytest.mark.skipif(this_machine()[0] != "x86_64", reason="the names are those of x86-64")
def test_named() -> None:
    assert set(named("x86-64-v3").needed.features) < set(named("x86-64-v4").needed.features)
    for name in cpu._NAMED:
        assert named(name).needed.name == name
    with pytest.raises(ValueError, match="CPU 'z80' has is not known"):
        _ = Target("z80", "", 16, 16, 1, 1, 1).needed


def test_unknown_features_are_missing() -> None:
    needed = CpuNeeded(*this_machine(), host().cpu, ("avx4096",), 512)
    assert str(needed.problem()).endswith("lacks: avx4096")
