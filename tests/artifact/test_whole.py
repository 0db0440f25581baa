"""Sessions opened from what the kernel cache keeps of a model file: the same as those that load the model."""

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitonnx
import jitonnx.kernels.spec
import jitonnx.passes.pipeline
import jitonnx.plan.make
import jitonnx.proto.messages
from jitonnx.api.saved import model_cache
from jitonnx.api.saved.engine import SavedEngine
from jitonnx.api.session import InferenceSession
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.runtime.artifact import open_artifact
from jitonnx.support.background_jobs import BackgroundExecutor
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.tools.explain import as_text, explain
from tests.artifact.models import elementwise, images, pairs, small_cnn
from tests.session.models import model as model_of
from tests.session.models import node, tensor
from tests.targets import on_x86_64

OLD = 2 * model_cache.SETTLED_SECONDS


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model file that was not changed just now, and a kernel cache of the test's own, whose kernels are there."""
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "cnn.onnx"
    path.write_bytes(small_cnn())
    InferenceSession(small_cnn(), options())
    time.sleep(OLD)
    return path


def options(threads: int = 1, **entries: str) -> jitonnx.SessionOptions:
    made = jitonnx.SessionOptions()
    made.intra_op_num_threads = threads
    for key, entry in entries.items():
        made.add_session_config_entry(f"jitonnx.{key}", entry)
    return made


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "cache").glob("*.model"))


def wait_for(folder: Path, ready: Callable[[list[Path]], Any] = bool) -> list[Path]:
    """The models in the cache, once they are as expected."""
    deadline = time.monotonic() + 60
    while not ready(kept(folder)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ready(kept(folder))
    return kept(folder)


def is_cached(session: InferenceSession) -> bool:
    """Whether the session was opened from the kernel cache and has not loaded the model since."""
    return session._model.opened_as is not None


def test_a_process_that_ends_at_once_keeps_the_model(model: Path) -> None:
    """Its background thread, which has not come to the job yet, does so while the interpreter ends."""
    script = "import sys, jitonnx\nsys.setswitchinterval(5)\nsession = jitonnx.InferenceSession(sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, str(model)], check=True, timeout=60)
    assert len(kept(model.parent)) == 1


def test_a_session_that_is_gone_at_once_is_kept(model: Path) -> None:
    """Before the background thread has come to it: what held it last is gone then, too."""
    executor = BackgroundExecutor()
    go_on = threading.Event()
    executor.submit(lambda stop: go_on.wait(60), always=True)
    engine = weakref.ref(InferenceSession(model, options())._model.main.engine)
    gc.collect()
    assert engine() is not None and not kept(model.parent)
    go_on.set()
    wait_for(model.parent)
    executor.submit(lambda stop: None).wait(60)
    gc.collect()
    assert engine() is None
    assert is_cached(InferenceSession(model, options()))


@pytest.fixture
def opened(model: Path) -> tuple[InferenceSession, InferenceSession]:
    """A session that loaded the model, and one opened from what it kept."""
    first = InferenceSession(model, options())
    wait_for(model.parent)
    second = InferenceSession(model, options())
    assert not is_cached(first) and is_cached(second)
    return first, second


def test_second_session_is_the_same(opened: tuple[InferenceSession, InferenceSession]) -> None:
    first, second = opened
    for ask in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        assert repr(getattr(first, ask)()) == repr(getattr(second, ask)())
    assert first.get_modelmeta() == second.get_modelmeta()
    assert first.declared_inputs == second.declared_inputs and first.title == second.title
    assert first.compile_status == second.compile_status and second.wait_until_compiled()
    for ours, theirs in zip(first.run(None, images()), second.run(None, images()), strict=True):
        assert np.array_equal(ours, theirs)
    assert is_cached(second)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_dropped_session_leaves_no_garbage(opened: tuple[InferenceSession, InferenceSession], threads: int) -> None:
    """Which Python would look for some time: references alone free what was opened."""
    first, _ = opened
    path = str(Path(first._model.path or "").with_suffix(".jitonnx"))
    feeds = images()
    first.save(path, {name: array.shape for name, array in feeds.items()})

    def use() -> None:
        InferenceSession(first._model.path, options()).run(None, feeds)
        SavedEngine(open_artifact(path), threads).run(list(feeds.values()))

    use()
    gc.collect()
    gc.disable()
    try:
        use()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_same_errors(opened: tuple[InferenceSession, InferenceSession]) -> None:
    feeds = images()
    name = next(iter(feeds))
    wrong: list[dict[str, Any]] = [
        {},
        {**feeds, "other": feeds[name]},
        {**feeds, name: feeds[name][:, :1]},
        {**feeds, name: feeds[name].astype(np.float64)},
    ]
    for given in wrong:
        texts = []
        for session in opened:
            with pytest.raises(InvalidArgument) as caught:
                session.run(None, given)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


def test_model_is_loaded_where_it_is_needed(
    opened: tuple[InferenceSession, InferenceSession], model: Path, tmp_path: Path
) -> None:
    first, second = opened
    shapes = {name: array.shape for name, array in images().items()}
    ours, theirs = (as_text(explain(session, shapes)) for session in opened)
    assert [line for line in ours.splitlines() if " ms" not in line] == [
        line for line in theirs.splitlines() if " ms" not in line
    ]
    assert not is_cached(second) and second.model_nodes == first.model_nodes
    third = InferenceSession(model, options())
    assert is_cached(third) and third.save(tmp_path / "saved.jitonnx") == first.save(tmp_path / "first.jitonnx")
    expected = first.run(None, images())[0]
    for session in (second, third, jitonnx.load(tmp_path / "saved.jitonnx")):
        assert np.array_equal(session.run(None, images())[0], expected)


def test_pickling_before_and_after_the_model_is_loaded(opened: tuple[InferenceSession, InferenceSession]) -> None:
    session = opened[1]
    session.note = "mine"  # type: ignore[attr-defined]
    for _ in range(2):
        again = pickle.loads(pickle.dumps(session))
        assert is_cached(again) and again.note == "mine"
        assert np.array_equal(again.run(None, images())[0], opened[0].run(None, images())[0])
        assert session.engine is not None and not is_cached(session)


def test_changed_model_is_loaded_anew(opened: tuple[InferenceSession, InferenceSession], model: Path) -> None:
    content = model.read_bytes()
    model.write_bytes(content)
    (before,) = kept(model.parent)
    time.sleep(OLD)
    third = InferenceSession(model, options())
    assert not is_cached(third)
    wait_for(model.parent, lambda paths: paths and before not in paths)
    assert len(kept(model.parent)) == 1 and is_cached(InferenceSession(model, options()))
    with pytest.raises(Fail, match="was written to since the session was made"):
        _ = opened[1].engine
    assert opened[1].run(None, images())


@pytest.mark.parametrize("replaced", [True, False])
def test_a_model_that_is_replaced_or_removed(
    opened: tuple[InferenceSession, InferenceSession], model: Path, replaced: bool
) -> None:
    """Sessions go on with the file that they were made for."""
    if replaced:
        other = model.with_name("other.onnx")
        other.write_bytes(elementwise())
        os.replace(other, model)
    else:
        model.unlink()
    first, second = opened
    assert is_cached(second) and second.model_nodes == first.model_nodes and not is_cached(second)
    assert np.array_equal(first.run(None, images())[0], second.run(None, images())[0])


def test_other_settings_are_kept_apart(opened: tuple[InferenceSession, InferenceSession], model: Path) -> None:
    for other in (options(threads=2), options(winograd="0"), options(compile="before")):
        assert not is_cached(InferenceSession(model, other))
    named = options()
    named.logid = "mine"
    assert is_cached(InferenceSession(model, named))


OTHER_CPU = pytest.param({"cpu": "x86-64-v3"}, marks=on_x86_64)


@pytest.mark.parametrize("entries", [{"keep_model": "0"}, {"compile": "background"}, OTHER_CPU])
def test_what_is_not_kept(model: Path, entries: dict[str, str]) -> None:
    for _ in range(2):
        session = InferenceSession(model, options(**entries))
        assert not is_cached(session) and session._model.cache_key is None


def settled(model: Path, name: str, content: bytes) -> Path:
    """A model file beside another, not changed just now."""
    path = model.with_name(name)
    path.write_bytes(content)
    time.sleep(OLD)
    return path


def opened_again(path: Path) -> tuple[InferenceSession, InferenceSession]:
    """A session that loaded a model of a settled file, and one opened from what it kept."""
    first = InferenceSession(path, options())
    wait_for(path.parent)
    second = InferenceSession(path, options())
    assert not is_cached(first) and is_cached(second)
    return first, second


def same(sessions: tuple[InferenceSession, InferenceSession], feeds: dict[str, Any]) -> bool:
    """Whether both sessions give the same bits."""
    ours, theirs = (session.run(None, feeds) for session in sessions)
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_open_sizes(model: Path) -> None:
    """Every size is served by what was kept; sizes that the plan does not hold for, by the model behind it."""
    sessions = opened_again(settled(model, "elementwise.onnx", elementwise()))
    first, second = sessions
    assert repr(first.get_inputs()) == repr(second.get_inputs()) and first.declared_inputs == second.declared_inputs
    assert repr(first.get_outputs()) == repr(second.get_outputs())
    for rows, columns in ((3, 5), (1, 1), (0, 4), (64, 33), (3, 5)):
        assert same(sessions, pairs(rows, columns))
    for wrong in ({}, {"a": np.zeros(3, np.float32), "b": np.zeros((2, 3), np.float32)}):
        texts = []
        for session in sessions:
            with pytest.raises(InvalidArgument) as caught:
                session.run(None, wrong)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]
    assert is_cached(second)
    feeds = {"a": np.ones((4, 3), np.float32), "b": np.ones((1, 3), np.float32)}
    before = kept(model.parent)[0].stat().st_ino
    with pytest.warns(UserWarning, match="inputs disagree"):
        assert same((second, second), feeds)
    assert not is_cached(second) and same(sessions, pairs(7, 2))
    wait_for(model.parent, lambda paths: paths[0].stat().st_ino != before)
    third = InferenceSession(model.with_name("elementwise.onnx"), options())
    with pytest.warns(UserWarning, match="inputs disagree"):  # which what was kept has a plan for by now
        assert same((second, third), feeds)
    assert same((second, third), {"a": np.ones((6, 2), np.float32), "b": np.ones((1, 2), np.float32)}) and is_cached(
        third
    )


def test_an_input_of_unknown_rank(model: Path) -> None:
    """There is nothing to keep until a run has shown shapes."""
    path = settled(model, "ranks.onnx", model_of([node("Neg", ["x"], ["y"])], [tensor("x", None)], [tensor("y", None)]))
    first = InferenceSession(path, options())
    feeds = [{"x": numbers} for numbers in (np.ones((2, 3), np.float32), np.ones(4, np.float32))]
    for number, feed in enumerate(feeds):
        first.run(None, feed)
        wait_for(path.parent)
        second = InferenceSession(path, options())
        assert is_cached(second) and same((first, second), feed)
        if number == 0:
            assert is_cached(second) and same((first, second), {"x": np.ones((5, 2), np.float32)})


def test_inputs_with_a_default(model: Path) -> None:
    """They have their default in what was kept; feeding one loads the model."""
    nodes, constants = [node("Mul", ["x", "factor"], ["y"])], {"factor": np.full(3, 2, np.float32)}
    source = model_of(nodes, [tensor("x", ("n", 3)), tensor("factor", (3,))], [tensor("y", ("n", 3))], constants)
    sessions = opened_again(settled(model, "default.onnx", source))
    second = sessions[1]
    assert repr(sessions[0].get_overridable_initializers()) == repr(second.get_overridable_initializers())
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert same(sessions, feeds) and is_cached(second)
    assert same(sessions, {**feeds, "factor": np.arange(3, dtype=np.float32)}) and not is_cached(second)


def test_warnings_are_given_again(model: Path) -> None:
    nodes = [node("Relu", ["x"], ["y"])]
    path = settled(model, "warned.onnx", model_of(nodes, [tensor("x", (2, 3))], [tensor("y", (7,))]))
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"output 'y' is declared with the shape \[7\], but is float\[2,3\]"):
            session = InferenceSession(path, options())
        wait_for(path.parent)
    assert is_cached(session)


def test_models_that_are_not_kept(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those too large, and those of a file that was changed just now."""
    model.touch()
    InferenceSession(model, options())
    time.sleep(OLD)
    with monkeypatch.context() as patched:
        patched.setattr(KernelCache, "model_limit", 1)
        InferenceSession(model, options())
        BackgroundExecutor().submit(lambda stop: None).wait(60)  # behind what keeps the model
    assert not kept(model.parent)


@pytest.mark.parametrize("damage", ["empty", "half", "changed", "writable"])
def test_damaged_entries_are_written_again(
    opened: tuple[InferenceSession, InferenceSession], model: Path, damage: str
) -> None:
    (path,) = kept(model.parent)
    content, before = path.read_bytes(), path.stat().st_ino
    broken = path.with_name("broken")
    middle = 200  # in the header
    changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    broken.write_bytes({"empty": b"", "half": content[: len(content) // 2], "changed": changed}.get(damage, content))
    broken.chmod(0o666 if damage == "writable" else 0o644)
    os.replace(broken, path)
    damaged = path.stat().st_ino
    assert damaged != before
    session = InferenceSession(model, options())
    assert not is_cached(session)
    assert np.array_equal(session.run(None, images())[0], opened[0].run(None, images())[0])
    wait_for(model.parent, lambda paths: paths[0].stat().st_ino != damaged)
    assert is_cached(InferenceSession(model, options()))


def test_cache_counts_and_removes_models(opened: tuple[InferenceSession, InferenceSession], model: Path) -> None:
    cache = KernelCache()
    info = cache.info()
    assert info.models == 1 and info.entries > 1 and info.bytes > info.model_bytes
    assert info.model_bytes == kept(model.parent)[0].stat().st_size <= info.model_limit
    assert cache.clear() == info.entries and not kept(model.parent)
    assert opened[1].run(None, images())


def test_least_recently_used_model_is_removed(opened: tuple[InferenceSession, InferenceSession], model: Path) -> None:
    (path,) = kept(model.parent)
    os.utime(path, (1, 1))
    assert is_cached(InferenceSession(model, options())) and path.stat().st_mtime > 1
    os.utime(path, (1, 1))
    size = path.stat().st_size
    KernelCache(model_limit=size).keep_model("place", "key", lambda other: other.write_bytes(bytes(10)))
    assert not path.exists()


def test_every_source_of_ours_is_told_apart() -> None:
    """A model that other sources of jitonnx compiled is not opened: each of its packages counts."""
    stamped = {path for path, _, _ in model_cache._stamps()}
    modules = [
        jitonnx.api.session,
        jitonnx.plan.make,
        jitonnx.passes.pipeline,
        jitonnx.kernels.spec,
        jitonnx.proto.messages,
    ]
    assert {str(module.__file__) for module in modules} <= stamped
