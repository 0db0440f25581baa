"""What a start imports and compiles, and what a run costs."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jitonnx.runtime.program import Slot, Step
from tests.runtime.kernels import executable, floats

ROOT = Path(__file__).parents[2]


def _modules_after(source: str, cache: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{source}\nimport sys\nprint(*sys.modules)"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JITONNX_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.split())


def test_runtime_imports_no_compiler(tmp_path: Path) -> None:
    """Nor does a second process build the driver: its object code is in the cache."""
    source = "import jitonnx.runtime.executable\nfrom jitonnx.runtime.driver import driver\ndriver()"
    first, second = _modules_after(source, tmp_path), _modules_after(source, tmp_path)
    assert not {"jitonnx.codegen", "jitonnx.plan", "jitonnx.passes"} & first
    assert {name for name in first if name.startswith("jitonnx.emit")} == {"jitonnx.emit", "jitonnx.emit.llvm_ir"}
    assert not {name for name in first if name.startswith("jitonnx.kernels")}
    assert "jitonnx.runtime.native.walk" in first
    assert not {name for name in second if name.startswith(("jitonnx.runtime.native", "jitonnx.emit."))}


def test_driver_is_made_ahead(tmp_path: Path) -> None:
    """A process may end meanwhile, or fork; the next one takes it from the cache and begins no thread."""
    ahead = "from jitonnx.runtime.driver import make_ahead\nmake_ahead(['runs', 'sizes'])\nimport threading, os\n"
    _modules_after(f"{ahead}assert threading.active_count() == 2", tmp_path)
    assert "llvmlite.binding" not in _modules_after(f"{ahead}assert threading.active_count() == 1", tmp_path)
    forked = (
        "from jitonnx.runtime.driver import driver, image\nif child := os.fork():\n assert os.waitpid(child, 0)[1] == 0"
    )
    made = "driver(), image('sizes')"
    _modules_after(f"{ahead}{forked}\n {made}\nelse:\n {made}\n os._exit(0)", tmp_path / "other")


def _microseconds(call: Callable[[], object], calls: int = 300, rounds: int = 30) -> float:
    """The median over rounds of the time of one call."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - started) / calls)
    return float(np.median(times)) * 1e6


def test_costs(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed for whoever looks; bounded only against gross mistakes, as machines are noisy."""
    trivial = executable(
        [Step("add_one", (Slot("input", 0), Slot("output", 0)), (4,))],
        inputs=[floats("x", 4)],
        outputs=[floats("y", 4)],
    )
    x = np.zeros(4, np.float32)
    feeds = {"x": x}
    entry = trivial.entry(release_gil=False)
    assert entry is not None
    trivial.run([x])
    costs = {"entry": _microseconds(lambda: entry(feeds)), "run": _microseconds(lambda: trivial.run([x]))}
    for name, threads in (("100 steps alone", 1), ("100 steps shared by 2 threads", 2)):
        steps = executable([Step("nothing", (), (), 2, threads)] * 100, threads=2)
        call = steps.entry()
        assert call is not None
        steps.run([])
        costs[name] = _microseconds(lambda call=call: call({}))
    once = executable([Step("nothing", (), (), 2, 2)], threads=2)
    dispatch = once.entry()
    assert dispatch is not None
    once.run([])
    costs["one step shared by 2 threads"] = _microseconds(lambda: dispatch({}))
    with capsys.disabled():
        print("\n" + "\n".join(f"{name}: {cost:.2f} us" for name, cost in costs.items()))
    assert costs["entry"] < 20
