"""The kernel cache: object code on disk, found by its content key, shared by all processes of a user.

One file an entry, named by the SHA-256 of its key, with a checksum of key and content in front. Files are written under
another name and then moved into place, so a reader sees a whole file or none, and a killed process leaves at most a
temporary file that a later one removes. There are no locks: processes that write the same key write the same content.
What has no name that the cache makes is not its own, and stays: users name the folder, and may keep other files there.

Cached code is executed, so the cache trusts only what the user (or root) alone could have written.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

from .digest import SHA256_BYTES, sha256

DEFAULT_LIMIT = 1 << 30
"""Bytes of kernels on disk above which the least recently used go."""
DEFAULT_MODEL_LIMIT = 16 << 30
"""Bytes of whole models on disk above which the least recently used go; of what is free they take half at most."""

_MAGIC = b"jitonnx1"
_CHECKSUM_BYTES = SHA256_BYTES
_KERNEL = r"[0-9a-f]{64}\.kernel"
_MODEL = r"[0-9a-f]{32}-[0-9a-f]{32}\.model"
_TEMPORARY = rf"\.({_KERNEL}|{_MODEL})\.[0-9a-f]{{16}}\.tmp"
"""All names that the cache makes: of entries, of whole models, and of either before it is complete."""
_TEMPORARY_LIFETIME = 3600.0
"""Seconds after which a temporary file must have been left by a killed process."""
_TOUCH_INTERVAL = 3600.0
"""Seconds after which a read entry is marked as used again; marking each read would cost a write each."""

_warned: set[str] = set()


class CacheWarning(UserWarning):
    """The kernel cache cannot be kept on disk; kernels are compiled anew in each process."""


class CacheInfo(NamedTuple):
    """What a cache holds: `entries` of `bytes` in all, kept in `directory`, or in memory where `problem` says why.

    limit: of the bytes of kernels. models, model_bytes: how many of the entries are whole compiled models, and their
    bytes, of which there may be model_limit.
    """

    directory: Path
    entries: int
    bytes: int
    limit: int
    problem: str | None
    models: int = 0
    model_bytes: int = 0
    model_limit: int = 0


def default_directory() -> Path:
    """JITONNX_CACHE_DIR, else XDG_CACHE_HOME/jitonnx, else ~/.cache/jitonnx; with the `~` where nobody knows the home,
    as of a container's user without an entry: no cache is kept there.
    """
    chosen = os.environ.get("JITONNX_CACHE_DIR")
    if chosen:
        return Path(os.path.expanduser(chosen))
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or os.path.expanduser("~/.cache")) / "jitonnx"


class KernelCache:
    """A content-addressed store of bytes.

    `directory` is made if it is not there. Where it cannot be used (not writable, or writable by other users, or in a
    home that is not known) the cache lives in memory, with one `CacheWarning` a process that says what to do. `limit`
    bounds the bytes of kernels it keeps, `model_limit` those of whole models.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        limit: int = DEFAULT_LIMIT,
        model_limit: int = DEFAULT_MODEL_LIMIT,
    ) -> None:
        self.directory = default_directory() if directory is None else Path(directory)
        self.limit, self._model_limit = limit, model_limit
        self._lock = fork_safety.lock()
        """Held where `_memory` and `_written` change."""
        self._memory: dict[str, bytes] = {}
        self._written: int | None = None  # bytes since the folder was last measured; None: not measured yet
        self._problem = self._open()
        if self._problem:
            self._warn(self._problem)

    def get(self, key: str) -> bytes | None:
        """What was put under this key; None if nothing was, or it is damaged."""
        name = _name(key)
        held = self._memory.get(name)
        if held is not None or self._problem:
            return held
        try:
            with open(self.directory / name, "rb") as file:
                status = os.fstat(file.fileno())
                content = file.read() if _is_private(status) else b""
        except OSError:
            return None
        header = len(_MAGIC) + _CHECKSUM_BYTES
        data = content[header:]
        if content[:header] != _MAGIC + _checksum(key, data):
            return None
        self._touch(self.directory / name, status)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`, replacing what was there."""
        name = _name(key)
        if not self._problem:
            try:
                self._write(name, _MAGIC + _checksum(key, data) + data)
            except OSError as error:
                self._warn(f"{self.directory} cannot be written: {error.strerror or error}")
            else:
                with self._lock:
                    self._memory.pop(name, None)
                return
        with self._lock:
            self._memory[name] = data
            while len(self._memory) > 1 and sum(map(len, self._memory.values())) > self.limit:
                del self._memory[next(iter(self._memory))]

    def model(self, place: str, key: str) -> Path | None:
        """The file of the compiled model that was kept under this key, marked as used; None if there is none.

        place: as for `keep_model`. What is in the file has to be checked by who opens it.
        """
        if self._problem:
            return None
        path = self.directory / _model_name(place, key)
        try:
            status = path.stat()
        except OSError:
            return None
        if not _is_private(status):
            return None
        self._touch(path, status)
        return path

    def keep_model(self, place: str, key: str, write: Callable[[Path], int]) -> int | None:
        """Have `write(path)` put a compiled model's file under this key; its bytes, None where nothing can be kept.

        place: what the model replaces: one of the same place and another key, which nobody will ask for again, goes.
        write: moves the file into place as a whole, and returns its size. Its OSErrors are raised.
        """
        if self._problem:
            return None
        name = _model_name(place, key)
        written = write(self.directory / name)
        for path, _ in list(self._files(_MODEL)):
            if path.name.startswith(_model_name(place, "")) and path.name != name:
                path.unlink(missing_ok=True)
        self._bound(_MODEL, self.model_limit)
        self._remove_left()
        return written

    @property
    def model_limit(self) -> int:
        """How many bytes of whole models are kept, as the disk is now; those that are kept already count as free."""
        if self._problem:
            return 0
        free = shutil.disk_usage(self.directory).free + sum(status.st_size for _, status in self._files(_MODEL))
        return min(self._model_limit, free // 2)

    def info(self) -> CacheInfo:
        """What the cache holds now."""
        with self._lock:
            sizes = [len(data) for data in self._memory.values()]
        models: list[int] = []
        if not self._problem:
            entries = list(self._entries())
            sizes += [status.st_size for _, status in entries]
            models = [status.st_size for path, status in entries if path.suffix == ".model"]
        return CacheInfo(
            self.directory,
            len(sizes),
            sum(sizes),
            self.limit,
            self._problem,
            len(models),
            sum(models),
            self.model_limit,
        )

    def clear(self) -> int:
        """Remove all entries; returns how many there were. Other files in the folder stay."""
        with self._lock:
            removed = len(self._memory)
            self._memory.clear()
            self._written = None
        if not self._problem:
            for path, _ in list(self._entries()):
                path.unlink(missing_ok=True)
                removed += 1
        return removed

    def _open(self) -> str | None:
        """Make the folder and look whether it can be trusted; what is wrong with it, or None."""
        if self.directory.parts[:1] == ("~",):
            return f"{self.directory} is nowhere: HOME is not set, and the user, number {os.getuid()}, has no entry"
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.directory.stat()
        except OSError as error:
            return f"{self.directory} cannot be used: {error.strerror or error}"
        if not _is_private(status):
            return (
                f"{self.directory} belongs to another user or can be written by one (owner {status.st_uid}, mode "
                f"{stat.S_IMODE(status.st_mode):o}), who could put code there that this process would run"
            )
        return None

    def _warn(self, problem: str) -> None:
        if str(self.directory) not in _warned:
            _warned.add(str(self.directory))
            warnings.warn(
                f"kernels are not kept on disk: {problem}. Set JITONNX_CACHE_DIR to a folder that you alone can write",
                CacheWarning,
                stacklevel=4,
            )

    def _write(self, name: str, content: bytes) -> None:
        temporary = self.directory / temporary_name(name)
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            os.replace(temporary, self.directory / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self._shrink(len(content))

    def _shrink(self, written: int) -> None:
        """Remove the kernels that were not used for longest while they are over the limit.

        Measuring the folder takes a system call a file, so it is done at the first write of a process, and then each
        time that it wrote a sixteenth of the limit.
        """
        with self._lock:
            if self._written is not None and self._written + written < self.limit // 16:
                self._written += written
                return
            self._written = 0
        self._bound(_KERNEL, self.limit)
        self._remove_left()

    def _bound(self, pattern: str, limit: int) -> None:
        """Remove what was not used for longest of the files with such names while they are over a limit."""
        entries = sorted(self._files(pattern), key=lambda entry: entry[1].st_mtime)
        total = sum(status.st_size for _, status in entries)
        for path, status in entries:
            if total <= limit:
                break
            path.unlink(missing_ok=True)
            total -= status.st_size

    def _remove_left(self) -> None:
        """Remove what killed processes left."""
        oldest = time.time() - _TEMPORARY_LIFETIME
        for path, status in self._files(_TEMPORARY):
            if status.st_mtime < oldest:
                path.unlink(missing_ok=True)

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        return self._files(f"{_KERNEL}|{_MODEL}")

    def _files(self, pattern: str) -> Iterator[tuple[Path, os.stat_result]]:
        """The folder's files with such names; another process may remove them at any time."""
        with os.scandir(self.directory) as listing:
            for file in listing:
                if re.fullmatch(pattern, file.name):
                    try:
                        yield Path(file.path), file.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue

    @staticmethod
    def _touch(path: Path, status: os.stat_result) -> None:
        """Mark an entry as used. Failing is harmless: another process removed it, or the folder is read-only."""
        if time.time() - status.st_mtime > _TOUCH_INTERVAL:
            try:
                os.utime(path)
            except OSError:
                return


def temporary_name(name: str) -> str:
    """A new name for a file that will be called `name` once it is complete."""
    return f".{name}.{os.urandom(8).hex()}.tmp"


def _name(key: str) -> str:
    return f"{sha256(key.encode()).hexdigest()}.kernel"


def _model_name(place: str, key: str) -> str:
    """The name of a model's file; without a key, how the names of that place begin."""
    first, second = (sha256(text.encode()).hexdigest()[:32] for text in (place, key))
    return f"{first}-{second}.model" if key else f"{first}-"


def _checksum(key: str, data: bytes) -> bytes:
    digest = sha256(key.encode())
    digest.update(b"\0")
    digest.update(data)
    return digest.digest()


def _is_private(status: os.stat_result) -> bool:
    """Whether nobody but this user and root can have written it."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
