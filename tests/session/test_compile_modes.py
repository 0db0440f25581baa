"""When code is compiled: before a run, behind the runs, or never; and how compiling ends early."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitonnx
from jitonnx.codegen import compiler
from jitonnx.engine import pending
from jitonnx.engine.pipeline import Engine
from jitonnx.errors import Fail, InvalidArgument, ModelRequiresCompilation
from jitonnx.kernels.parts import packing
from jitonnx.support import background_jobs, short_turns
from jitonnx.support.background_jobs import BackgroundExecutor, Job, StoppedError
from tests.session import models
from tests.session.models import model, node, tensor

X = np.array([[-1, 0.5, 2], [3, -4, 0]], np.float32)
WEIGHTS = np.random.default_rng(0).standard_normal((130, 140), np.float32) / 16
"""More than engines keep of the weights once a graph is compiled; rows times them are sums whose order hardly shows."""


def options(mode: str) -> jitonnx.SessionOptions:
    made = jitonnx.SessionOptions()
    made.add_session_config_entry("jitonnx.compile", mode)
    return made


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def layers(shape: models.Shape = ("N", 130)) -> bytes:
    """tanh(x w) and its softmax."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Tanh", ["m"], ["t"]),
        node("Softmax", ["t"], ["y"]),
    ]
    return model(nodes, [tensor("x", shape)], [tensor("t", None), tensor("y", None)], {"w": WEIGHTS})


def feeds(rows: int = 4) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((rows, 130)).astype(np.float32)}


# ------------------------------------------------------------------------------------------------ background


@pytest.mark.parametrize("shape", [(4, 130), ("N", 130)])
def test_background(empty_cache: Path, shape: tuple[int | str, ...]) -> None:
    """Runs are useful at once, and give the same within rounding when the code takes over."""
    session = jitonnx.InferenceSession(layers(shape), options("background"))
    assert session.compile_status.state == "compiling"
    first = session.run(None, feeds())
    assert session.compile_status.numpy_runs == 1
    assert session.run(["y"], feeds())[0].shape == (4, 140)
    assert session.wait_until_compiled()
    second = session.run(None, feeds())
    status = session.compile_status
    assert status.state == "compiled" and status.kernels_done == status.kernels > 0 and status.numpy_runs == 2
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert session.engine.known_program(((4, 130),)) is not None
    again = session.run(None, feeds())
    assert all(np.array_equal(a, b) for a, b in zip(second, again, strict=True))
    assert session.compile_status.numpy_runs == 2


def test_background_tells_in_the_log(empty_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="jitonnx"):
        session = jitonnx.InferenceSession(layers(), options("background"))
        session.run(None, feeds())
        session.wait_until_compiled()
    assert "runs are evaluated on NumPy until it is compiled" in caplog.text
    assert "the model is compiled; 1 runs were evaluated on NumPy" in caplog.text


def test_outputs_of_runs_on_numpy_belong_to_the_caller(empty_cache: Path) -> None:
    nodes = [node("Reshape", ["x", "to"], ["y"]), node("Identity", ["c"], ["z"])]
    made = model(nodes, [tensor("x", [2, 3])], [tensor("y", None), tensor("z", None), tensor("x", [2, 3])], {
        "to": np.array([6]), "c": models.OFFSET,
    })  # fmt: skip
    session = jitonnx.InferenceSession(made, options("background"))
    x = X.copy()
    for array in session.run(None, {"x": x}):
        assert array.flags.c_contiguous and array.flags.writeable and not np.shares_memory(array, x)
        array[...] = 0
    assert session.compile_status.numpy_runs == 1
    np.testing.assert_array_equal(session.run(["z"], {"x": x})[0], models.OFFSET)


def test_an_error_in_the_background_is_raised_by_the_next_run(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jitonnx.engine.planning

    def broken(*_: object) -> None:
        raise MemoryError("no memory for the plan")

    monkeypatch.setattr(jitonnx.engine.planning, "make_plan", broken)
    session = jitonnx.InferenceSession(layers(), options("background"))
    with pytest.raises(Fail, match="could not be compiled in the background: no memory for the plan"):
        session.wait_until_compiled()
    assert session.compile_status.state == "failed"
    with pytest.raises(Fail, match="no memory for the plan"):
        session.run(None, feeds())


def test_closing_calls_off_the_background(empty_cache: Path) -> None:
    session = jitonnx.InferenceSession(layers(), options("background"))
    engine = session._model.main.engine
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(None, feeds())
    with pytest.raises(Fail, match=r"called off|compiling stopped"):
        engine.wait()


def test_deleting_calls_off_the_background(empty_cache: Path) -> None:
    session = jitonnx.InferenceSession(layers(), options("background"))
    engine = session._model.main.engine
    del session
    with pytest.raises(Fail, match=r"called off|compiling stopped"):
        engine.wait()


def test_runs_behind_the_compile_are_never_evaluated_on_numpy(empty_cache: Path) -> None:
    """The first run that begins when the compile has ended finds the code, and so do all that follow, of any size."""
    session = jitonnx.InferenceSession(layers(), options("background"))
    ended = threading.Event()

    def wait() -> None:
        session.wait_until_compiled()
        ended.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    behind, on_numpy = 0, []
    while behind < 20:
        late, before = ended.is_set(), session.compile_status.numpy_runs
        session.run(None, feeds(4 + behind))
        behind += late
        on_numpy.append(session.compile_status.numpy_runs > before)
        assert not (late and on_numpy[-1])
    waiter.join()
    assert on_numpy[0] and on_numpy == sorted(on_numpy, reverse=True)


@pytest.mark.parametrize(("cpus", "threads", "helpers"), [(1, 1, 1), (2, 2, 1), (4, 2, 2), (8, 1, 1)])
def test_a_compile_in_the_background_leaves_the_cores_to_the_runs(
    cpus: int, threads: int, helpers: int, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compiles are processes of low priority, as many as there are CPUs that runs leave, and one at least."""
    drivers: list[object] = []
    priorities: list[int] = []
    drive, receive = compiler._Compilation._drive_worker, compiler._receive

    def driven(self: compiler._Compilation) -> None:
        drivers.append(self)
        drive(self)

    def received(stream: Any) -> Any:
        answer = receive(stream)
        answering = [process for process in list(compiler._workers) if process.stdout is stream]
        priorities.extend(os.getpriority(os.PRIO_PROCESS, process.pid) for process in answering)
        return answer

    monkeypatch.setattr(compiler, "allowed_cpus", lambda: cpus)
    monkeypatch.setattr(compiler._Compilation, "_drive_worker", driven)
    monkeypatch.setattr(compiler._Compilation, "_compile_here", None)
    monkeypatch.setattr(compiler, "_receive", received)
    made = options("background")
    made.intra_op_num_threads = threads
    session = jitonnx.InferenceSession(layers(), made)
    assert session.wait_until_compiled()
    assert len(drivers) == helpers
    low = os.getpriority(os.PRIO_PROCESS, 0) + compiler.BACKGROUND_NICENESS
    assert priorities and set(priorities) == {min(low, 19)}


@pytest.mark.parametrize(("cpus", "threads", "expected"), [(1, 1, 1), (2, 2, 1), (8, 4, 4), (8, 8, 7)])
def test_runs_on_numpy_leave_a_core_to_the_compile(
    cpus: int, threads: int, expected: int, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []

    @contextmanager
    def limited(number: int) -> Iterator[None]:
        limits.append(number)
        yield

    monkeypatch.setattr(pending, "allowed_cpus", lambda: cpus)
    monkeypatch.setattr(pending.blas, "limited", limited)
    made = options("background")
    made.intra_op_num_threads = threads
    session = jitonnx.InferenceSession(layers(), made)
    session.run(None, feeds())
    assert session.compile_status.numpy_runs == 1 and limits == [expected]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_compiles_for_itself(empty_cache: Path) -> None:
    session = jitonnx.InferenceSession(layers(), options("background"))
    child = os.fork()
    if child == 0:
        session.run(None, feeds())
        os._exit(0 if session.wait_until_compiled(120) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.wait_until_compiled()


# ------------------------------------------------------------------------------------------------ shapes that come back


def rows_chosen() -> bytes:
    """Rows chosen by a run."""
    nodes = [node("Compress", ["x", "chosen"], ["rows"], axis=0), node("MatMul", ["rows", "w"], ["y"])]
    inputs = [tensor("x", ("N", 130)), tensor("chosen", ("N",), models.BOOL)]
    return model(nodes, inputs, [tensor("y", None)], {"w": WEIGHTS})


def test_what_is_behind_sizes_that_a_run_tells_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session = jitonnx.InferenceSession(rows_chosen())
    _, step = session.engine.schedule.native_steps()  # what Compress gives, and what is behind it
    monkeypatch.setattr(Engine, "_compile", None)  # nothing is compiled from now on
    x = feeds(6)["x"]
    for rows in (1, 2, 3, 0, 6, 2):
        (y,) = session.run(None, {"x": x, "chosen": np.arange(6) < rows})
        np.testing.assert_allclose(y, x[:rows] @ WEIGHTS, rtol=1e-4, atol=1e-4)
    assert len(step.programs) <= 5
    assert session.compile_status.numpy_runs == 0


def test_inputs_that_disagree_are_planned_for_once() -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])]
    data = model(nodes, [tensor("x", ("N", 130)), tensor("b", ("N", 140))], [tensor("y", None)], {"w": WEIGHTS})
    session = jitonnx.InferenceSession(data)
    x, b = feeds(5)["x"], np.ones((1, 140), np.float32)
    with pytest.warns(UserWarning, match="inputs disagree"):
        session.run(None, {"x": x, "b": b})
    (plan,) = session.engine.variants
    for rows in (5, 2, 1000):
        x = feeds(rows)["x"]
        (y,) = session.run(None, {"x": x, "b": b})
        np.testing.assert_allclose(y, x @ WEIGHTS + b, rtol=1e-4, atol=1e-4)
        assert session.engine.known_program((x.shape, b.shape)) is not None
    assert session.engine.variants == [plan]


# ------------------------------------------------------------------------------------------------ cached


def test_cached(empty_cache: Path) -> None:
    with pytest.raises(ModelRequiresCompilation, match=r"(\d+) of \1 kernels are not in the kernel cache .*'before'"):
        jitonnx.InferenceSession(layers(), options("cached"))
    expected = jitonnx.InferenceSession(layers()).run(None, feeds())
    session = jitonnx.InferenceSession(layers(), options("cached"))
    for a, b in zip(session.run(None, feeds()), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_mode_that_there_is_not() -> None:
    with pytest.raises(InvalidArgument, match=r"jitonnx\.compile is 'later'; give one of 'before', 'background', 'cac"):
        jitonnx.InferenceSession(layers(), options("later"))


# ------------------------------------------------------------------------------------------------ ending early

SCRIPT = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell of a job in the background ignores interrupts
import numpy as np
import jitonnx
from jitonnx.codegen import compiler
options = jitonnx.SessionOptions()
options.add_session_config_entry("jitonnx.compile", sys.argv[1])
options.intra_op_num_threads = 2
def tell():
    while not compiler._workers:
        time.sleep(0.005)
    print(*(process.pid for process in compiler._workers), flush=True)
threading.Thread(target=tell, daemon=True).start()
try:
    session = jitonnx.InferenceSession(sys.argv[2], options)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
if sys.argv[1] == "before":
    sys.exit("nobody interrupted")
while session.compile_status.kernels_done == 0:
    time.sleep(0.005)
"""


def start(mode: str, tmp_path: Path) -> subprocess.Popen[str]:
    path = tmp_path / "model.onnx"
    nodes = [node("Relu", ["x"], ["r"])]
    nodes += [node("Softmax", ["r"], [f"s{axis}"], axis=axis) for axis in range(4)]
    nodes += [node("LogSoftmax", ["r"], [f"l{axis}"], axis=axis) for axis in range(4)]
    nodes += [node("MaxPool", ["r"], [f"p{size}"], kernel_shape=[size, size]) for size in range(2, 9)]
    functions = (
        "Exp",
        "Log",
        "Tanh",
        "Erf",
        "Sin",
        "Cos",
        "Tan",
        "Atan",
        "Softplus",
        "Elu",
        "Sigmoid",
        "Mish",
        "Sinh",
        "Asinh",
    )
    nodes += [node(function, ["r"], [function]) for function in functions]
    outputs = [tensor(name, None) for n in nodes[1:] for name in n.output]
    path.write_bytes(model(nodes, [tensor("x", (1, 16, 20, 20))], outputs))
    environment = {**os.environ, "JITONNX_CACHE_DIR": str(tmp_path / "kernels")}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, mode, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )


def gone(process: int) -> bool:
    """Whether a process has ended, waited for up to 10 s."""
    for _ in range(1000):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{process}/stat").exists() and ") Z " in Path(f"/proc/{process}/stat").read_text():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("mode", ["before", "background"])
def test_an_interrupt_or_the_end_of_the_interpreter_ends_compiling(mode: str, tmp_path: Path) -> None:
    with start(mode, tmp_path) as process:
        assert process.stdout is not None
        workers = list(map(int, process.stdout.readline().split()))
        assert workers
        if mode == "before":
            # Python drops an interrupt that comes while it is in a callback of the collector; people press again.
            process.send_signal(signal.SIGINT)
            while not select.select([process.stdout], [], [], 0.2)[0]:
                process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
        assert process.wait(timeout=60) == (3 if mode == "before" else 0)
    assert all(map(gone, workers))


# ------------------------------------------------------------------------------------------------ jobs


def test_a_job_leaves_the_cores_and_pythons_lock_to_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_allowed_cpus", lambda: 4)

    def packers() -> int:
        found = set()
        packing.for_each(lambda part: found.add(threading.get_ident()), 64, 1 << 30)
        return len(found)

    threads = []

    def work(stop: threading.Event) -> tuple[bool, int, float]:
        threads.append(threading.current_thread())
        return background_jobs.behind_runs(), packers(), sys.getswitchinterval()

    before = sys.getswitchinterval()
    assert BackgroundExecutor().submit(work).wait() == (True, 1, pytest.approx(short_turns.TURN_SECONDS))
    assert not background_jobs.behind_runs()
    threads[0].join(60)
    assert sys.getswitchinterval() == before


def test_jobs_are_done_in_turn_and_stop_with_their_workshop() -> None:
    executor, order, first = BackgroundExecutor(), [], threading.Event()

    def one(stop: threading.Event) -> int:
        first.set()
        assert stop.wait(60)
        order.append(1)
        raise StoppedError("called off")

    def two(stop: threading.Event) -> int:
        order.append(2)
        return 2

    started: Job[int] = executor.submit(one)
    waiting: Job[int] = executor.submit(two)
    other: Job[int] = BackgroundExecutor().submit(two)
    assert first.wait(60) and started.found() is None and started.state == "compiling"
    executor.close()
    assert other.wait() == 2 and order == [1, 2]
    for job in (started, waiting, executor.submit(two)):
        with pytest.raises(Fail, match="called off"):
            job.wait()
