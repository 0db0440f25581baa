"""The native entry: the same answers as `run`, declines what is unusual, and keeps its references straight."""

import ctypes
import gc
import os
import resource
import subprocess
import sys
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jitonnx.errors import RuntimeException
from jitonnx.runtime import entry as entry_module
from jitonnx.runtime.blocks import ALIGNED_BYTES, KEPT_BYTES, LARGE_BYTES, blocks
from jitonnx.runtime.entry import Entry
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.layout import address
from jitonnx.runtime.program import Slot, Step, TensorSpec
from tests.runtime.kernels import chain, executable, floats

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def _sum(threads: int = 1) -> Executable:
    """c = a + b, d = a + 1."""
    a, b, c, d = Slot("input", 0), Slot("input", 1), Slot("output", 0), Slot("output", 1)
    steps = [Step("add", (a, b, c), (4,), 3, threads), Step("add_one", (a, d), (4,), 3, threads)]
    return executable(
        steps,
        inputs=[floats("a", 3, 4), floats("b", 3, 4)],
        outputs=[floats("c", 3, 4), floats("d", 12)],
        threads=threads,
    )


def _entry(program: Executable, release_gil: bool = True) -> Entry:
    entry = program.entry(release_gil=release_gil)
    assert entry is not None
    return entry


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("release_gil", [False, True])
def test_same_as_run(threads: int, release_gil: bool) -> None:
    program = _sum(threads)
    entry = _entry(program, release_gil)
    for _ in range(10):
        result = entry({"b": 2 * X, "a": X})
        assert isinstance(result, list) and all(type(array) is np.ndarray for array in result)
        for got, wanted in zip(result, program.run([X, 2 * X]), strict=True):
            np.testing.assert_array_equal(got, wanted)
            assert got.dtype == wanted.dtype and got.shape == wanted.shape
            assert got.flags.owndata and got.flags.c_contiguous and got.flags.writeable


def test_the_first_call_makes_a_frame() -> None:
    program = _sum()
    entry = program.entry()
    assert entry is not None and program.frames.kept == 0
    assert entry({"a": X, "b": X}) is not None and program.frames.kept == 1


class _Subclass(np.ndarray):
    pass


_UNALIGNED = np.zeros(49, np.uint8)[1:].view(np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    "feeds",
    [
        {},
        {"a": X},
        {"a": X, "c": X},
        {"a": X, "b": X, "c": X},
        {"a": X, 1: X},
        {"a": X, "b": None},
        {"a": X, "b": X.tolist()},
        {"a": X, "b": X.astype(np.float64)},
        {"a": X, "b": X.astype(np.int32)},
        {"a": X, "b": X.astype(">f4")},
        {"a": X, "b": X[:2]},
        {"a": X, "b": X.reshape(12)},
        {"a": X, "b": X.reshape(3, 4, 1)},
        {"a": X, "b": np.float32(1)},
        {"a": X, "b": np.asfortranarray(X)},
        {"a": X, "b": np.zeros((3, 8), np.float32)[:, ::2]},
        {"a": X, "b": X.view(_Subclass)},
        {"a": X, "b": _UNALIGNED},
        OrderedDict(a=X, b=X),
        [X, X],
        None,
        "ab",
    ],
)
def test_declines(feeds: object) -> None:
    program = _sum()
    entry = _entry(program)
    references = sys.getrefcount(X)
    assert entry(feeds) is None  # type: ignore[arg-type]
    assert sys.getrefcount(X) == references
    assert entry({"a": X, "b": X}) is not None, "the frame was given back"


class _Hostile(str):
    """A key that looks for trouble: comparing it fails."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")


def test_declines_keys_that_raise() -> None:
    entry = _entry(_sum())
    assert entry({_Hostile("a"): X, "b": X}) is None
    assert entry({"a": X, "b": X}) is not None


def test_names_need_not_be_the_same_object() -> None:
    entry = _entry(_sum())
    assert entry({bytes([97]).decode(): X, "".join(["b"]): X}) is not None


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int64, np.float16, np.float64, np.complex64])
def test_types(dtype: type[np.generic]) -> None:
    kind = np.dtype(dtype)
    spec = TensorSpec("x", kind, (2, 3))
    program = executable([], inputs=[spec], outputs=[TensorSpec("y", kind, (0, 3)), TensorSpec("z", kind, ())])
    result = _entry(program)({"x": np.zeros((2, 3), kind)})
    assert result is not None and [(array.dtype, array.shape) for array in result] == [(kind, (0, 3)), (kind, ())]


def test_user_types() -> None:
    kind = np.dtype(ml_dtypes.bfloat16)
    program = executable([], inputs=[TensorSpec("x", kind, (2,))], outputs=[TensorSpec("y", kind, (2,))])
    entry = _entry(program)
    result = entry({"x": np.zeros(2, kind)})
    assert result is not None and result[0].dtype == kind
    assert entry({"x": np.zeros(2, np.int16)}) is None


def test_no_entry_for_types_that_a_number_does_not_settle() -> None:
    assert executable([], inputs=[TensorSpec("x", np.dtype("U5"), (2,))]).entry() is None


def test_no_entry_where_objects_lie_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_module, "supported", lambda: False)
    assert _sum().entry() is None


def test_reference_counts() -> None:
    program = _sum(2)
    entry = _entry(program)
    a, b = X.copy(), X.copy()
    feeds = {"a": a, "b": b}
    counted = (a, b, a.dtype, feeds, np.ndarray, dict, *feeds)
    program.run([a, b])  # which keeps what it knows of the tensors
    gc.collect()  # what other tests left may hold the dtype
    before = [sys.getrefcount(item) for item in counted]
    result = None
    for _ in range(1000):
        result = entry(feeds)
    assert result is not None
    # As many as the list that Python code makes holds, whatever this Python counts for the loop variable.
    assert [sys.getrefcount(array) for array in result] == [sys.getrefcount(array) for array in program.run([a, b])]
    del result
    gc.collect()
    assert [sys.getrefcount(item) for item in counted] == before


def test_a_million_calls_do_not_grow() -> None:
    entry = _entry(_sum(), release_gil=False)
    feeds, unusual = {"a": X, "b": X}, {"a": X, "b": X[:2]}
    for _ in range(20_000):
        entry(feeds)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(500_000):
        entry(feeds)
        entry(unusual)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048


def test_short_memory_is_left_to_python_and_leaves_the_entry_usable() -> None:
    program = executable([], outputs=[floats("small", 2), floats("huge", 1 << 45)])
    entry = _entry(program)
    for _ in range(3):
        assert entry({}) is None
        with pytest.raises(RuntimeException, match="not enough memory for output 'huge'"):
            program.run([])
    assert program.frames.kept == 1 and not program.frames.frames["owner"].any()


def test_entry_keeps_its_program_alive() -> None:
    program = _sum(2)
    entry = _entry(program)
    del program
    gc.collect()
    result = entry({"a": X, "b": X})
    assert result is not None
    np.testing.assert_array_equal(result[0], 2 * X)


def test_several_python_threads() -> None:
    """More threads than frames."""
    program = chain(20, 4096, 16, 2)
    entry = _entry(program)

    def work(number: int) -> None:
        x = np.full(4096, number, np.float32)
        for _ in range(500):
            result = entry({"x": x})
            assert result is not None and (result[0] == number + 20).all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_inputs_are_held_while_kernels_read_them() -> None:
    """Another thread empties the dict during a run; the array lives until the run is over."""
    steps = [
        Step("burn", (), (20_000_000,), scratch=8),
        Step("add_one", (Slot("input", 0), Slot("output", 0)), (1024,)),
    ]
    program = executable(steps, inputs=[floats("x", 1024)], outputs=[floats("y", 1024)])
    entry = _entry(program)
    feeds = {"x": np.full(1024, 5, np.float32)}

    def empty() -> None:
        feeds.clear()
        for _ in range(100):
            np.full(1024, 7, np.float32)

    timer = threading.Timer(0.02, empty)
    timer.start()
    result = entry(feeds)
    timer.join()
    assert not feeds and result is not None
    np.testing.assert_array_equal(result[0], np.full(1024, 6))


def _large(elements: int) -> Executable:
    """y = x + 1, so large that the memory of y is kept for the next."""
    step = Step("add_one", (Slot("input", 0), Slot("output", 0)), (elements // 64,), 64, 2)
    return executable([step], inputs=[floats("x", elements)], outputs=[floats("y", elements)], threads=2)


def test_memory_of_large_outputs_is_used_again() -> None:
    gc.collect()
    elements = LARGE_BYTES // 4
    program, feeds = _large(elements), {"x": np.arange(elements, dtype=np.float32)}
    program.run([feeds["x"]])
    entry = _entry(program)

    def run(entry: Entry) -> np.ndarray:
        outputs = entry(feeds)
        assert outputs is not None
        return outputs[0]

    held = [run(entry) for _ in range(3)]
    assert len({address(y) for y in held}) == 3 and all(y.flags.owndata for y in held)
    places = {address(y) for y in held}
    view = held[0][5:]
    held.clear()
    assert blocks().kept_bytes == 2 * LARGE_BYTES, "a view keeps its array"
    np.testing.assert_array_equal(view, feeds["x"][5:] + 1)
    assert {address(run(entry)) for _ in range(3)} < places
    resized = run(entry)
    resized.resize(10, refcheck=False)
    np.testing.assert_array_equal(resized, np.arange(1, 11))
    resized.resize(3 * elements, refcheck=False)
    assert not resized[10:].any()
    del entry, program, view, resized
    gc.collect()
    assert blocks().kept_bytes == 0, "with the last program nothing is kept"


def test_outputs_of_some_size_begin_at_cache_lines() -> None:
    """They can be resized as others; those are neither kept nor lost."""
    gc.collect()
    before, held = blocks().kept_bytes, []
    for elements in (ALIGNED_BYTES // 4, ALIGNED_BYTES // 4 + 64, ALIGNED_BYTES):
        program, x = _large(elements), np.arange(elements, dtype=np.float32)
        program.run([x])
        entry = _entry(program)
        for _ in range(20):
            outputs = entry({"x": x})
            assert outputs is not None and address(outputs[0]) % 64 == 0 and outputs[0].flags.owndata
            held = [*held, outputs[0]][-7:]
        y = outputs[0].copy()
        for size in (elements // 2, 3 * elements, 5):
            held[-1].resize(size, refcheck=False)
            y.resize(size, refcheck=False)
            np.testing.assert_array_equal(held[-1], y)
    assert blocks().kept_bytes == before


def test_memory_kept_of_large_outputs_is_bounded() -> None:
    elements = LARGE_BYTES // 4
    sizes = [elements * factor for factor in (1, 2, 3, 5, 9)]
    programs = [_large(size) for size in sizes]
    entries = [_entry(program) for program in programs]
    feeds = [{"x": np.zeros(size, np.float32)} for size in sizes]
    for program, feed in zip(programs, feeds, strict=True):
        program.run([feed["x"]])

    def work(number: int) -> None:
        choices = np.random.default_rng(number)
        held: list[np.ndarray] = []
        for _ in range(20):
            index = choices.integers(len(sizes))
            for y in entries[index](feeds[index]) or []:
                assert y[0] == y[-1] == 1
                held = [*held, y][-3:]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert 0 < blocks().kept_bytes <= KEPT_BYTES


def test_large_outputs_may_outlive_everything() -> None:
    """Their memory is given back at the very end of the process, when modules are gone."""
    source = f"""
import sys, numpy as np
from tests.runtime.test_entry import _large
program = _large({LARGE_BYTES // 4})
x = np.zeros({LARGE_BYTES // 4}, np.float32)
program.run([x])
sys.last = program.entry()({{"x": x}})[0]
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", source], cwd=root, env=environment, timeout=60, check=False)
    assert done.returncode == 0


def test_is_a_builtin() -> None:
    entry = _entry(_sum())
    assert type(entry) is type(len)
    assert ctypes.pythonapi.PyCFunction_GetFlags(ctypes.py_object(entry)) == 0x8
