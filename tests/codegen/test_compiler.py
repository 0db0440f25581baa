"""How many processes compile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jitonnx.codegen import compiler
from jitonnx.codegen.code import KernelCode
from jitonnx.kernels.gemm.spec import GemmSpec
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.target.machine import host


@pytest.mark.parametrize(
    ("kernels", "threads", "cpus", "behind", "processes"),
    [
        (3, 4, 4, False, 0),  # this process alone
        (11, 4, 4, False, 0),
        (12, 4, 4, False, 1),
        (27, 4, 4, False, 2),
        (100, 4, 4, False, 3),
        (100, 1, 4, False, 0),
        (100, 2, 2, True, 1),  # runs take all CPUs
        (100, 2, 3, True, 1),
        (100, 2, 64, True, 2),
        (1, 2, 64, True, 1),
    ],
)
def test_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernels: int, threads: int, cpus: int, behind: bool, processes: int
) -> None:
    started = []
    monkeypatch.setattr(compiler, "allowed_cpus", lambda: cpus)
    monkeypatch.setattr(compiler._Compilation, "_drive_worker", lambda self: started.append(threading.get_ident()))
    monkeypatch.setattr(compiler._Compilation, "_compile_here", lambda self: None)
    codes = [KernelCode(GemmSpec((number,), (16,)), None, None) for number in range(kernels)]
    stop = threading.Event() if behind else None
    with pytest.raises(compiler.StoppedError):
        compiler.compile_kernels(codes, host(), KernelCache(tmp_path), threads, stop=stop)
    assert len(started) == processes
