"""The kernel cache: right after damage, with many processes, in folders it cannot or must not use."""

import errno
import multiprocessing
import os
import pwd
import time
import warnings
from pathlib import Path

import pytest

from jitonnx.support import kernel_cache as cache_module
from jitonnx.support.kernel_cache import CacheWarning, KernelCache, default_directory


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "cache")


def _files(cache: KernelCache) -> list[Path]:
    return sorted(cache.directory.iterdir())


def test_get_and_put(cache: KernelCache) -> None:
    assert cache.get("a") is None
    cache.put("a", b"one")
    cache.put("b", b"")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"one", b"", None)
    cache.put("a", b"two")
    assert KernelCache(cache.directory).get("a") == b"two"
    assert len(_files(cache)) == 2
    assert cache.directory.stat().st_mode & 0o777 == 0o700


def test_info_and_clear(cache: KernelCache) -> None:
    cache.put("a", bytes(1000))
    cache.put("b", bytes(500))
    (cache.directory / "README").write_text("not ours")
    info = cache.info()
    assert info.entries == 2 and 1500 < info.bytes < 1700 and info.problem is None
    assert cache.clear() == 2
    assert cache.get("a") is None and cache.info().entries == 0
    assert _files(cache) == [cache.directory / "README"]


@pytest.mark.parametrize("damage", ["empty", "truncated", "header", "changed", "longer", "renamed"])
def test_damaged_files_count_as_absent(cache: KernelCache, damage: str) -> None:
    cache.put("a", bytes(range(200)))
    (path,) = _files(cache)
    content = path.read_bytes()
    if damage == "renamed":
        cache.put("b", b"other")
        other = next(file for file in _files(cache) if file != path)
        os.replace(other, path)
    else:
        path.write_bytes(
            {
                "empty": b"",
                "truncated": content[:-1],
                "header": content[:20],
                "changed": content[:100] + bytes([content[100] ^ 1]) + content[101:],
                "longer": content + b"x",
            }[damage]
        )
    assert cache.get("a") is None
    cache.put("a", b"whole")
    assert cache.get("a") == b"whole"


def test_files_that_others_can_write_count_as_absent(cache: KernelCache) -> None:
    cache.put("a", b"one")
    _files(cache)[0].chmod(0o666)
    assert cache.get("a") is None


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_folders_that_others_can_write_are_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.warns(CacheWarning, match="can be written by one.*Set JITONNX_CACHE_DIR"):
        cache = KernelCache(folder)
    cache.put("a", b"one")
    assert cache.get("a") == b"one"
    assert not list(folder.iterdir())
    assert cache.info().problem and cache.info().entries == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KernelCache(folder).get("a") is None  # warned already, and nothing on disk


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheWarning, match="cannot be used"):
        cache = KernelCache(tmp_path / "file" / "cache")
    cache.put("a", b"one")
    assert cache.get("a") == b"one"
    assert cache.clear() == 1 and cache.get("a") is None


def test_folder_that_cannot_be_written(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only cache still serves what it has; the rest stays in memory, with one warning."""
    cache.put("a", b"one")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.warns(CacheWarning, match="Read-only file system") as caught:
        cache.put("b", b"two")
        cache.put("c", b"three")
    assert len(caught) == 1
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"one", b"two", b"three")


def test_memory_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheWarning):
        cache = KernelCache(tmp_path / "file" / "cache", limit=1000)
    for number in range(10):
        cache.put(str(number), bytes(300))
    assert cache.info().entries == 3 and cache.get("9") == bytes(300)


def test_least_recently_used_go(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, limit=10_000)
    for number in range(9):
        cache.put(str(number), bytes(1000))
        path = cache.directory / cache_module._name(str(number))
        aged = time.time() - 100_000 + number
        os.utime(path, (aged, aged))
    assert cache.get("0") is not None  # used now, so it stays
    cache.put("9", bytes(1000))
    assert [number for number in range(10) if cache.get(str(number)) is None] == [1]
    assert cache.info().bytes <= cache.limit


def test_temporary_files_of_killed_processes_are_removed(cache: KernelCache) -> None:
    old, new = (cache.directory / f".{number * 32}.kernel.{number * 8}.tmp" for number in ("0a", "b1"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    cache.put("a", b"one")
    assert not old.exists() and new.exists()


def test_files_of_others_stay(cache: KernelCache) -> None:
    """The folder may be one that its user keeps other things in: names that the cache does not make are not its own."""
    cache.put("a", b"one")
    (entry,) = _files(cache)
    hidden = cache_module.temporary_name(entry.name)
    names = ["notes.tmp", "tokenizer.model", "weights.kernel", "tmpab12cd_9.tmp", f"x{entry.name}", f"{entry.name}.bak"]
    names += [
        entry.name.upper(),
        entry.name[1:],
        f"{entry.stem[:32]}-{entry.stem[:31]}.model",
        hidden[1:],
        f"{hidden}~",
    ]
    for name in names:
        (cache.directory / name).write_bytes(bytes(2000))
        os.utime(cache.directory / name, (1e9, 1e9))
    again = KernelCache(cache.directory, limit=1000)  # measures the folder at its first write
    again.put("b", bytes(2000))
    assert again.info().entries == 0 and again.clear() == 0
    assert sorted(names) == [path.name for path in _files(cache)]


def test_a_folder_that_is_full(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_warned", set())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left on device"):
        cache.put("a", b"one")
    assert cache.get("a") == b"one" and _files(cache) == []


def test_a_home_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a container's user who has no entry: nothing is kept, and nothing fails."""

    def nobody(number: int) -> None:
        raise KeyError(number)

    for name in ("JITONNX_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(cache_module, "_warned", set())
    with pytest.warns(CacheWarning, match="HOME is not set, and the user, number .* JITONNX_CACHE_DIR"):
        cache = KernelCache()
    cache.put("a", b"one")
    assert cache.get("a") == b"one" and cache.model("a", "b") is None and not Path("~").exists()
    assert cache.keep_model("a", "b", lambda path: 1) is None and cache.info().problem and cache.clear() == 1


def test_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", "/chosen")
    assert default_directory() == Path("/chosen")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("JITONNX_CACHE_DIR", "~/chosen")
    assert default_directory() == Path("/home/somebody/chosen")
    monkeypatch.delenv("JITONNX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_directory() == Path("/xdg/jitonnx")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_directory() == Path("/home/somebody/.cache/jitonnx")


def _content(key: int) -> bytes:
    return f"kernel {key} ".encode() * (200 + key)


def _hammer(directory: str, seed: int) -> None:
    """Write and read all the time, with eviction going on; whatever is found must be right."""
    cache = KernelCache(directory, limit=60_000)
    for turn in range(10_000_000 if seed < 0 else 400):
        key = (turn * 7 + seed) % 40
        found = cache.get(str(key))
        if found is None:
            cache.put(str(key), _content(key))
        elif found != _content(key):
            raise SystemExit(1)


def test_many_processes_one_of_them_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_hammer, args=(str(tmp_path), seed)) for seed in range(3)]
    victim = context.Process(target=_hammer, args=(str(tmp_path), -1))
    for process in (*workers, victim):
        process.start()
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*.kernel")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    victim.kill()
    for process in (*workers, victim):
        process.join(60)
    assert [process.exitcode for process in workers] == [0, 0, 0]
    cache = KernelCache(tmp_path)
    for key in range(40):
        assert cache.get(str(key)) in (None, _content(key))
