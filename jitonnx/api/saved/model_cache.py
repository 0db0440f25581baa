"""The model cache: compiled models in the kernel cache, as a whole, so that the next start with the same model file
opens what this one made.

What is kept is an artifact (docs/artifacts.md): code, packed weights and steps. It is found by the model file's
identity and all that its contents depend on, so that whatever changes leads to another key. A session that was opened
from one has no graph and no plan; it loads the model file when they are asked for. Here is the only place that decides
which models are kept and opened again. Imports nothing that compiles.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from typing import TYPE_CHECKING

import jitonnx
from jitonnx.api.entries import COMPILE, CPU_NAME, EXTERNAL_DATA_FOLDER, GEMM, KEEP_MODEL, switch
from jitonnx.errors import Error
from jitonnx.runtime.artifact import Artifact, ArtifactError, open_artifact
from jitonnx.support import fork_safety
from jitonnx.support.background_jobs import LAST_SECONDS, StoppedError
from jitonnx.support.digest import sha256, sha256_of_tensor
from jitonnx.support.mapped_files import DataFile, OpenFile, identity_of
from jitonnx.support.records import NamedTuple
from jitonnx.support.sources import package_folder, source_stamps
from jitonnx.support.versions import versions
from jitonnx.target.cpu import cpu_identity

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from jitonnx.api.description import ModelDescription
    from jitonnx.api.options import SessionOptions
    from jitonnx.engine.pipeline import Engine
    from jitonnx.model import Model
    from jitonnx.runtime.program import Shapes
    from jitonnx.support.kernel_cache import KernelCache

SETTLED_SECONDS = 0.1
"""How long before it was read a file must have changed last: its times tell changes apart that lie further apart than a
tick of the system's clock, at most 10 ms."""

VARIANTS = 8
"""How many further plans are kept at most, for sizes that the first is not for."""

_FORMAT = "whole 6"


class CacheKey(NamedTuple):
    """A model as it is now, and the key under which what is compiled of it is kept.

    place: model and settings, whatever states its file and our sources are in: of these only the last one is kept.
    digest: of all that the compiled model depends on.
    named: the path of its own file, absolute, "" of a model that was given as bytes. folder: where the locations of
    other files start, absolute, too. files: those that are known; its own is the first.
    file: its own, to load the model from later; None where it is loaded by now, and for bytes.
    """

    place: str
    digest: str
    named: str
    folder: str
    files: Sequence[DataFile]
    file: OpenFile | None

    def data_path(self, location: str) -> str:
        """The path of one of its files, by its location: see `DataFile`."""
        return os.path.join(self.folder, location) if location else self.named


def key_of(source: object, options: SessionOptions, disabled: Collection[str], threads: int) -> CacheKey | None:
    """What a session for this model is kept under; None for those that are always compiled from the model.

    source: as a session keeps it; paths count, and bytes of a model with a folder for its other files.
    disabled: the rewrites that are not made. threads: of a run.
    """
    folder = options.entry(EXTERNAL_DATA_FOLDER) or ""
    if not isinstance(source, str | bytes) or (isinstance(source, bytes) and not folder) or _is_excluded(options):
        return None
    cpu = cpu_identity()
    if cpu is None:  # asking LLVM for the CPU would cost more than is gained
        return None
    files: list[DataFile] = []
    file, named = None, ""
    if isinstance(source, bytes):
        model: object = sha256_of_tensor(memoryview(source)).hex()
    else:
        named = os.path.join(os.getcwd(), source)
        folder = folder or os.path.dirname(named)
        if identity_of(named) is None:  # a pipe would be waited for
            return None
        try:
            file = OpenFile(named)
        except OSError:
            return None
        identity = file.identity()
        if identity is None:
            return None
        model, files = os.path.realpath(named), [DataFile("", identity)]
    place = repr(
        (_FORMAT, model, options.canonical_text(), sorted(disabled), threads, cpu, os.path.dirname(jitonnx.__file__))
    )
    facts = (place, files, versions(), _stamps())
    digest = sha256(repr(facts).encode()).hexdigest()
    return CacheKey(place, digest, named, os.path.join(os.getcwd(), folder), files, file)


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
    if options.has_weights():
        return True
    return bool(options.optimized_model_filepath) or options.load_cancelled()  # one needs the model, one is refused


def changed_file(key: CacheKey) -> str | None:
    """The path of a file of the model that has changed; None if there is none.

    The model's own file is held open: it is the same as long as nobody has written to it, be it under its name or not
    any more. Taking away its name changes the time of its last change, but not that of its content.
    """
    for location, identity in key.files:
        path = key.data_path(location)
        now = named = identity_of(path)
        if not location and key.file is not None:
            now = key.file.identity()
            if now is not None and (named is None or named[:2] != identity[:2]):
                now, identity = now[:-1], identity[:-1]
        if now != identity:
            return path
    return None


def is_settled(key: CacheKey) -> bool:
    """Whether the files just read are those that were looked at, and a later change would show in their times."""
    return all(
        identity_of(key.data_path(location)) == identity and time.time() - identity[-1] * 1e-9 > SETTLED_SECONDS
        for location, identity in key.files
    )


def open_cached(cache: KernelCache, key: CacheKey, options: SessionOptions, *, verify: bool) -> Artifact | None:
    """The compiled model that is kept; None if there is none, or none that can be used with these options."""
    path = cache.model(key.place, key.digest)
    if path is None:
        return None
    try:
        artifact = open_artifact(path, verify_constants=verify, data_path=key.data_path)
    except (ArtifactError, OSError):
        return None
    kept = artifact.model.operators
    return artifact if artifact.open and kept == _digests(kept, options) else None


def operators_of(model: Model, options: SessionOptions) -> dict[str, str] | None:
    """What `ModelInfo.operators` says of a model that is kept; None for one that is not: the key says nothing of
    users' documents, and of some operators nobody can tell what they do."""
    if model.documented:
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


def _fitting(engines: Iterable[Engine], room: int) -> list[Engine]:
    """The engines that have a plan, as many as have no more bytes of weights together than there is room for."""
    fitting: list[Engine] = []
    counted = set[int]()
    for engine in engines:
        arrays = {id(array): array.nbytes for code in engine.codes for array in code.outline.arrays()}
        room -= sum(nbytes for number, nbytes in arrays.items() if number not in counted)
        if room >= 0 and not engine.unplanned:
            fitting.append(engine)
            counted |= arrays.keys()
    return fitting


class _Newest:
    """The engine that is to be kept, of the newest job: held, whatever becomes of its session."""

    def __init__(self) -> None:
        self._lock = fork_safety.lock()
        self._engine: Engine | None = None

    def take(self, engine: Engine) -> None:
        """Hold this one, and let go of the one before."""
        with self._lock:
            self._engine = engine

    def release(self, engine: Engine | None) -> None:
        """Let go of this one, if it is still the newest."""
        with self._lock:
            if self._engine is engine:
                self._engine = None

    def forget(self) -> None:
        """Let go of any: a child has no job of the process it was forked from."""
        self._engine = None


_newest = _Newest()
fork_safety.in_child(_newest.forget)


def caching(
    engine: Engine,
    key: CacheKey,
    description: ModelDescription,
    operators: Mapping[str, str],
    options: SessionOptions,
    examples: Sequence[Shapes],
) -> Callable[[threading.Event], None]:
    """A job for the background that keeps a compiled model.

    Its engine is held until then, so that what a single run made is kept, too, unless a newer job holds another:
    however many sessions are made and dropped, one engine at most outlives its session.

    operators: what tells users' operators in the model from others. options: of the session, whose log is told.
    examples: shapes that the engine itself has no plan for, and another engine is kept for, each for one of these at
    least.

    What cannot be written, or is not in the cache any more when it comes to that, is not kept, and the log says so. A
    job goes on to its end, and is begun if the process ends before: most that end soon were started for a single run.
    It takes a few tenths of a second, or a few seconds for each GB of weights, and who ends the interpreter waits for
    it (`background_jobs.LAST_SECONDS`); what takes longer is given up then.
    """
    made = weakref.ref(engine)
    _newest.take(engine)

    def keep(stop: threading.Event) -> None:
        kept = made()
        _newest.release(kept)
        if kept is None:
            return
        from jitonnx.api.saved.saving import model_info, write_cached
        from jitonnx.engine.schedule_message import NotStorable

        info = model_info(description)._replace(operators=operators)
        try:
            engines = _fitting(dict.fromkeys([kept, *map(kept.serving, examples)]), kept.cache.model_limit)
            if not engines:
                return
            size = kept.cache.keep_model(
                key.place,
                key.digest,
                lambda path: write_cached(engines, examples, info, key.files, path, _until_late(stop)),
            )
        except (OSError, Error, NotStorable, StoppedError) as error:
            text = f"the compiled model is not kept in the kernel cache: {error}"
        else:
            text = f"the compiled model is kept in the kernel cache: {size} bytes"
        if "logging" in sys.modules:  # else nobody has asked for messages
            from jitonnx.support.log import session_logger

            session_logger(options.log_severity_level, options.logid).info(text)

    return keep


def _until_late(stop: threading.Event) -> Callable[[], None]:
    """What raises StoppedError when it is called too long after a job was called off."""
    called_off: list[float] = []

    def go_on() -> None:
        if stop.is_set():
            called_off.append(time.monotonic())
            if called_off[-1] - called_off[0] > LAST_SECONDS:
                raise StoppedError("the process was about to end, and writing it took too long")

    return go_on


def _stamps() -> list[tuple[str, int, int]]:
    """The stamps of all of jitonnx's own sources."""
    package = os.path.dirname(jitonnx.__file__)
    found = source_stamps(package)
    for folder in map(package_folder, ("jitonnx.kernels", "jitonnx.proto")):
        if os.path.dirname(folder) != package:
            found += source_stamps(folder)
    return found
