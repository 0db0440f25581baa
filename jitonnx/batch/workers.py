"""A model for processes that an engine starts (Ray, Dask, Spark): compiled once, opened once in each of them.

What travels is a `Prediction`: the ONNX file, and beside it the compiled model, where the sizes of a row are known. A
machine keeps the compiled model in its kernel cache, where all of its processes map one file, weights included. On a
machine with another CPU it is of no use, and the ONNX file is compiled there, into that machine's cache.

Engines send pickles, so whoever starts workers is trusted by them as a writer of programs (SECURITY.md).
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jitonnx.api.session import InferenceSession, load
from jitonnx.batch.packing import Arrays
from jitonnx.batch.prediction import (
    SIZES,
    kept_names,
    one_thread,
    open_settings,
    output_types,
    predict_feeds,
    settled,
    stream,
)
from jitonnx.batch.signature import signature_of
from jitonnx.batch.tables import Columns, map_columns
from jitonnx.errors import Error, Fail, InvalidArgument
from jitonnx.model.load import load as read_model
from jitonnx.support.kernel_cache import KernelCache, default_directory
from jitonnx.support.log import logger

if TYPE_CHECKING:
    import pyarrow

MOST_ROWS = SIZES[-1]
"""The most rows of a batch that the compiled model takes."""


class Prediction(NamedTuple):
    """What is to be predicted, as it is sent to workers. The arguments of `jitonnx.batch.predict`, and

    model: the ONNX file's content; its path, where it has data in other files, which every worker has to see.
    compiled: an artifact of it for any batch, b"" where sizes of a row are open.
    digest: of all but what follows from it; what workers know it by.
    """

    model: bytes | str
    compiled: bytes
    columns: Columns | None
    outputs: Sequence[str] | Mapping[str, str] | None
    batch_rows: int | None
    on_error: str
    keep_columns: tuple[str, ...] | None
    digest: str


def prepared(
    model: str | os.PathLike[str] | bytes,
    *,
    columns: Columns | None = None,
    outputs: Sequence[str] | Mapping[str, str] | None = None,
    batch_rows: int | None = None,
    on_error: str = "raise",
    keep_columns: Sequence[str] | None = None,
) -> Prediction:
    """The model, compiled, to be sent to workers. The arguments are those of `jitonnx.batch.predict`.

    InvalidArgument for arguments that do not fit the model.
    """
    if isinstance(model, InferenceSession):
        raise InvalidArgument("a session cannot be sent to workers: give the model's path or its bytes")
    path = None if isinstance(model, bytes) else os.path.abspath(os.fspath(model))
    read = model if isinstance(model, bytes) else Path(model).read_bytes()
    kept = kept_names(keep_columns)
    told = columns, outputs, batch_rows, on_error, kept
    digest = _digest(told, read)
    opened = (worker.prediction for (known, _), worker in list(_workers.items()) if known == digest)
    if (found := next(opened, None)) is not None:  # the same pipeline once more
        return found
    content: bytes | str = read
    if path is not None and _has_other_files(path):
        content, digest = path, _digest(told, path.encode())
    session = InferenceSession(content, one_thread())
    open_settings(session, outputs, batch_rows, None, on_error, kept)
    return Prediction(content, _compiled(session, batch_rows), *told, digest)


def _digest(told: object, model: bytes) -> str:
    """What tells a prediction from others: its arguments, and the model's content or path."""
    return hashlib.sha256(repr(told).encode() + model).hexdigest()


def _has_other_files(path: str) -> bool:
    """Whether a model needs more than its own file."""
    return bool(read_model(path).external)


def _compiled(session: InferenceSession, batch_rows: int | None) -> bytes:
    signature = signature_of(session)
    if any(None in one.shape for one in signature.inputs):
        return b""
    rows: Any = signature.rows or (1, max(MOST_ROWS, batch_rows or 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.jitonnx"
        shapes: dict[str, Any] = {one.name: (rows, *one.shape) for one in signature.inputs}
        try:
            session.save(path, shapes)
        except Error:  # models that are planned for a run's sizes alone: workers compile, or find it in their cache
            return b""
        return path.read_bytes()


def row_seconds(prediction: Prediction) -> float | None:
    """What a row takes a thread, about: one of zeros, or of empty texts, the second time. None where sizes of a row are
    open, and where the model makes nothing of these."""
    session = _opened(prediction)
    signature = signature_of(session)
    if any(None in one.shape for one in signature.inputs):
        return None
    rows = signature.rows or 1
    shapes: dict[str, Any] = {one.name: (rows, *one.shape) for one in signature.inputs}
    feeds = {
        one.name: np.full(shapes[one.name], "" if one.dtype == np.dtype(object) else 0, one.dtype)
        for one in signature.inputs
    }
    try:
        session.run(None, feeds)
        begin = time.perf_counter()
        session.run(None, feeds)
    except Error:
        return None
    return (time.perf_counter() - begin) / rows


class Worker:
    """A prediction in the process that makes it. Threads of that process may share it.

    threads: batches that are run beside each other for one table. An engine's worker of one CPU has no other thread.
    """

    def __init__(self, prediction: Prediction, threads: int) -> None:
        self.prediction = prediction
        self.session = _opened(prediction)
        own = threads if threads > 1 else 0
        given = prediction.outputs, prediction.batch_rows, own, prediction.on_error, prediction.keep_columns
        self.settings = open_settings(self.session, *given)
        self._lock = threading.Lock()

    def table(self, rows: pyarrow.Table, origin: str = "the data") -> Any:
        """The rows with columns for outputs, a `pyarrow.Table`; if only rows tell their types, null where none fits.

        origin: what rows are called in errors. RowError, if they are not kept, names the first row that does not fit.
        """
        reader = rows.combine_chunks().to_reader()
        with self._lock:  # what pays is measured once
            self.settings = settled(self.settings, rows, self.prediction.columns)
        types = self.types if self.knows_types else None
        return stream(reader, origin, self.prediction.columns, self.settings, types=types).read_all()

    def array(self, feeds: Arrays, output: str) -> np.ndarray:
        """An output [rows, ...] for rows as arrays [rows, ...] by input. RowError for those that do not fit."""
        with self._lock:
            self.settings = settled(self.settings, feeds)
        settings = self.settings._replace(names={output: output}, keeps=False)
        (made,) = predict_feeds(iter([feeds]), settings)
        array: np.ndarray = made[output]
        return array

    @property
    def knows_types(self) -> bool:
        """Whether the types of outputs' columns are known before there are rows."""
        return all(None not in one.shape for one in self.settings.signature.inputs)

    @functools.cached_property
    def types(self) -> dict[str, pyarrow.DataType]:
        """The types of outputs' columns, by name. InvalidArgument where only rows tell."""
        return output_types(self.settings)

    def schema(self, given: pyarrow.Schema) -> pyarrow.Schema:
        """What `table` has for rows of that schema. InvalidArgument where only rows tell."""
        import pyarrow as pa

        map_columns(self.settings.signature, given, self.prediction.columns)
        kept = [given.field(place) for place in self.settings.kept_of(given)]
        return pa.schema([*kept, *(pa.field(name, kind) for name, kind in self.types.items())], given.metadata)


def _opened(prediction: Prediction) -> InferenceSession:
    options = one_thread()
    if prediction.compiled:
        key = hashlib.sha256(prediction.compiled).hexdigest()
        cache, place = KernelCache(default_directory()), f"sent to workers {key}"
        try:
            if cache.model(place, key) is None:
                cache.keep_model(place, key, lambda path: _write(path, prediction.compiled))
            return load(cache.model(place, key) or prediction.compiled, options)
        except (Fail, OSError) as error:  # it is for another CPU, or the disk is full
            logger.info("the model is compiled here, as what was sent compiled cannot be used: %s", error)
    return InferenceSession(prediction.model, options)


def _write(target: Path, content: bytes) -> int:
    from jitonnx.support.atomic_files import replacing

    with replacing(target) as file:
        file.write(content)
    return len(content)


_workers: dict[tuple[str, int], Worker] = {}
_opening = threading.Lock()


def worker_of(prediction: Prediction, threads: int = 1) -> Worker:
    """The worker of this process for a prediction: one, however often it is asked for."""
    key = prediction.digest, threads
    with _opening:
        if key not in _workers:
            _workers[key] = Worker(prediction, threads)
        return _workers[key]
