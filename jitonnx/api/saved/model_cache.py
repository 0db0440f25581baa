"""The model cache: compiled models in the kernel cache, as a whole, so that the next start with the same model file
opens what this one made.

What is kept is an artifact (docs/artifacts.md): code, packed weights and steps. It is found by the model file's
identity and all that its contents depend on, so that whatever changes leads to another key. A session that was opened
from one has no graph and no plan; it loads the model file when they are asked for. Here is the only place that decides
which models are kept and opened again. Imports nothing that compiles.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import weakref
from typing import TYPE_CHECKING

import jitonnx
from jitonnx.api.entries import COMPILE, CPU_NAME, EXTERNAL_DATA_FOLDER, GEMM, KEEP_MODEL, switch
from jitonnx.errors import Error
from jitonnx.runtime.artifact import Artifact, ArtifactError, ModelInfo, open_artifact
from jitonnx.support.digest import sha256
from jitonnx.support.kernel_cache import DEFAULT_LIMIT
from jitonnx.support.mapped_files import content_of
from jitonnx.support.records import NamedTuple
from jitonnx.support.sources import package_folder, source_stamps
from jitonnx.support.versions import versions
from jitonnx.target.cpu import cpu_identity

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Sequence

    from jitonnx.api.options import SessionOptions
    from jitonnx.engine.pipeline import Engine
    from jitonnx.model import Model
    from jitonnx.runtime.program import Shapes
    from jitonnx.support.kernel_cache import KernelCache

LIMIT = DEFAULT_LIMIT // 4
"""Bytes of weights above which a model is not kept: a few of them would push everything else out of the cache."""
SETTLED_SECONDS = 0.1
"""How long before it was read a file must have changed last: its times tell changes apart that lie further apart than a
tick of the system's clock, at most 10 ms."""

VARIANTS = 8
"""How many further plans are kept at most, for sizes that the first is not for."""

_FORMAT = "whole 6"


class OpenFile:
    """A file that is held open: it can be read also when another has taken its place, or its name is gone."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = os.open(path, os.O_RDONLY)

    def identity(self) -> tuple[int, ...] | None:
        """What `identity_of` tells, now."""
        return _identity(os.fstat(self._number))

    def content(self) -> memoryview:
        """What is in it, mapped into memory."""
        return content_of(self._number, self._path)

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            os.close(self._number)


class CacheKey(NamedTuple):
    """A model file as it is now, and the key under which what is compiled of it is kept.

    place: file and settings, whatever states the file and our sources are in: of these only the last one is kept.
    digest: of all that the compiled model depends on. path: the real one, absolute.
    identity: what changes whenever the file does. file: to load the model from later; None where it is loaded by now.
    """

    place: str
    digest: str
    path: str
    identity: tuple[int, ...]
    file: OpenFile | None


def key_of(source: object, options: SessionOptions, disabled: Collection[str], threads: int) -> CacheKey | None:
    """What a session for this model is kept under; None for those that are always compiled from the model.

    source: as a session keeps it; only paths count. disabled: the rewrites that are not made. threads: of a run.
    """
    if not isinstance(source, str) or _is_excluded(options):
        return None
    path = os.path.realpath(source)
    cpu = cpu_identity()
    if identity_of(path) is None or cpu is None:  # asking LLVM for the CPU would cost more than is gained
        return None
    try:
        file = OpenFile(path)
    except OSError:
        return None
    identity = file.identity()
    if identity is None:
        return None
    place = repr(
        (_FORMAT, path, options.canonical_text(), sorted(disabled), threads, cpu, os.path.dirname(jitonnx.__file__))
    )
    facts = (place, identity, versions(), _stamps())
    return CacheKey(place, sha256(repr(facts).encode()).hexdigest(), path, identity, file)


def _is_excluded(options: SessionOptions) -> bool:
    """Whether sessions with these options always load and compile the model."""
    if not switch(options, KEEP_MODEL, default=True):
        return True
    if options.enable_profiling:  # of the loading too
        return True
    if options.entry(COMPILE) == "background":  # first runs are evaluated on NumPy
        return True
    if options.entry(CPU_NAME) not in (None, "", "host") or options.entry(GEMM) not in (None, "", "own"):
        return True  # the code is for another CPU, or calls a library of this process
    if options.entry(EXTERNAL_DATA_FOLDER) or options.has_weights():  # weights come from elsewhere
        return True
    return bool(options.optimized_model_filepath) or options.load_cancelled()  # one needs the model, one is refused


def identity_of(path: str) -> tuple[int, ...] | None:
    """What changes whenever a file does: its place, size and times. None for what is no regular file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a null character in the path
        return None
    return _identity(found)


def _identity(found: os.stat_result) -> tuple[int, ...] | None:
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_unchanged(key: CacheKey) -> bool:
    """Whether nobody has written to the file that is held open, be it under its name or not any more.

    Taking away its name changes the time of its last change, but not that of its content.
    """
    assert key.file is not None
    now, named = key.file.identity(), identity_of(key.path)
    if now is None or named is None or named[:2] != key.identity[:2]:
        return now is not None and now[:-1] == key.identity[:-1]
    return now == key.identity


def is_settled(key: CacheKey) -> bool:
    """Whether the file just read is the one that was looked at, and whether a later change would show in its times."""
    return identity_of(key.path) == key.identity and time.time() - key.identity[-1] * 1e-9 > SETTLED_SECONDS


def open_cached(cache: KernelCache, key: CacheKey, options: SessionOptions, *, verify: bool) -> Artifact | None:
    """The compiled model that is kept; None if there is none, or none that can be used with these options."""
    path = cache.model(key.place, key.digest)
    if path is None:
        return None
    try:
        artifact = open_artifact(path, verify_constants=verify)
    except (ArtifactError, OSError):
        return None
    kept = artifact.model.operators
    return artifact if artifact.open and kept == _digests(kept, options) else None


def operators_of(model: Model, options: SessionOptions) -> dict[str, str] | None:
    """What `ModelInfo.operators` says of a model that is kept; None for one that is not: the key says nothing of other
    files and of users' documents, and of some operators nobody can tell what they do."""
    if model.external or model.documented:
        return None
    return _digests([f"{domain}::{name}" for domain, name in sorted(model.custom)], options)


def _digests(operators: Collection[str], options: SessionOptions) -> dict[str, str] | None:
    """What tells users' operators, as these options have them, from others of their names; None where nothing does."""
    if not operators:
        return {}
    from jitonnx.support.identity import Unknown, definition, surroundings  # of few starts

    found = {}
    try:
        for operator in operators:
            domain, _, name = operator.rpartition("::")
            declaration = options.declaration(domain, name)
            if declaration is None:
                return None
            found[operator] = sha256((surroundings() + definition(declaration)).encode()).hexdigest()
    except Unknown:
        return None
    return found


def _fitting(engines: Iterable[Engine]) -> list[Engine]:
    """The engines that have a plan, as many as are not too large together."""
    fitting: list[Engine] = []
    room = LIMIT
    for engine in engines:
        room -= sum(array.nbytes for code in engine.codes for array in code.outline.arrays())
        if room >= 0 and not engine.unplanned:
            fitting.append(engine)
    return fitting


def caching(
    engine: Engine, key: CacheKey, info: ModelInfo, options: SessionOptions, examples: Sequence[Shapes]
) -> Callable[[threading.Event], None]:
    """A job for the background that keeps a compiled model, and does not hold its engine.

    options: of the session, whose log is told. examples: shapes that the engine itself has no plan for, and another
    engine is kept for, each for one of these at least.

    What cannot be written, or is not in the cache any more when it comes to that, is not kept, and the log says so. A
    job goes on to its end, and is begun if the process ends before: most that end soon were started for a single run.
    It takes a few tenths of a second, and who ends the interpreter waits for it (`jobs.EXIT_SECONDS`).
    """
    made = weakref.ref(engine)

    def keep(_: threading.Event) -> None:
        kept = made()
        if kept is None:
            return
        from jitonnx.api.saved.saving import write_cached
        from jitonnx.engine.schedule_message import NotStorable

        try:
            engines = _fitting(dict.fromkeys([kept, *map(kept.serving, examples)]))
            if not engines:
                return
            size = kept.cache.keep_model(
                key.place, key.digest, lambda path: write_cached(engines, examples, info, path)
            )
        except (OSError, Error, NotStorable) as error:
            text = f"the compiled model is not kept in the kernel cache: {error}"
        else:
            text = f"the compiled model is kept in the kernel cache: {size} bytes"
        if "logging" in sys.modules:  # else nobody has asked for messages
            from jitonnx.support.log import session_logger

            session_logger(options.log_severity_level, options.logid).info(text)

    return keep


def _stamps() -> list[tuple[str, int, int]]:
    """The stamps of all of jitonnx's own sources."""
    package = os.path.dirname(jitonnx.__file__)
    found = source_stamps(package)
    for folder in map(package_folder, ("jitonnx.kernels", "jitonnx.proto")):
        if os.path.dirname(folder) != package:
            found += source_stamps(folder)
    return found
