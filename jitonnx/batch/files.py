"""Tables in files to tables in files: parts that are there whole or not at all, and are not made twice.

Each file of the source becomes files `NAME-00000.parquet`, … of `PART_ROWS` rows in the target folder, the last of them
with what is left. A part takes its name when it is written (`atomic_files`), so whoever goes on with a folder, after
an interrupt, a full disk or a killed process, begins behind the parts that are there. `MANIFEST` in the folder says
what they were made by.

An engine (Ray, Dask, Spark) has its workers make parts, each a task of its own, or a CSV file or a folder of images as
a whole. Source,
target and a model with data in other files have to be seen by all workers. A task that is begun again finds what is
there.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jitonnx.batch.images import Pixels, images_of
from jitonnx.batch.prediction import Settings, open_settings, read_rows, read_table, stream, stream_images
from jitonnx.batch.tables import Columns
from jitonnx.batch.workers import Prediction, prepared, worker_of
from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.support.atomic_files import replacing

if TYPE_CHECKING:
    import pyarrow

MANIFEST = "jitonnx-map.json"
"""What the parts of a folder were made by: the model's digest, columns, outputs, rows of a part."""
PART_ROWS = 1 << 20
SUFFIXES = (".parquet", ".pq", ".csv")


class Progress(NamedTuple):
    """How far it is: rows done in this call, those that were there, and all, None while they are not known (CSV)."""

    done: int
    found: int
    total: int | None


def map_files(  # noqa: PLR0913  (a call's options, by name)
    model: str | os.PathLike[str],
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    outputs: Sequence[str] | Mapping[str, str] | None = None,
    batch_rows: int | None = None,
    threads: int | None = None,
    on_error: str = "raise",
    keep_columns: Sequence[str] | None = None,
    pixels: Pixels | None = None,
    part_rows: int = PART_ROWS,
    engine: str = "local",
    tell: Callable[[Progress], object] = lambda progress: None,
) -> Progress:
    """Predict over a Parquet or CSV file, or a folder of these or of images, into a folder of Parquet files; see
    `predict`.

    engine: one of `ENGINES`; "local" is this process. threads: with another engine, its workers, where it has none yet.
    tell: called after each batch of rows, or each task of an engine. InvalidArgument where the target holds what
    another model, other columns or other parts were made by; NoSuchFile for a source that is not there; OSError where
    nothing can be written.
    """
    model, source, target = Path(model), Path(source), Path(target)
    files = _files(source)
    settings = open_settings(model, outputs, batch_rows, threads, on_error, keep_columns)
    said = {name: [one] if isinstance(one, str) else list(one) for name, one in (columns or {}).items()}
    made_by = {"model": _digest(model), "columns": said, "outputs": dict(settings.names), "part_rows": part_rows}
    made_by["pixels"] = None if pixels is None else [list(pixels.mean), list(pixels.std)]
    made_by["keep_columns"] = None if settings.keep_columns is None else list(settings.keep_columns)
    _claim(target, {**made_by, "on_error": on_error})
    done, found, total = 0, sum(_parts(target, file, part_rows)[0] for file in files), _rows(files)
    if engine == "local":
        counts = (rows for file in files for rows in _map_file(file, target, columns, settings, part_rows, pixels))
    else:
        prediction = prepared(
            model,
            columns=columns,
            outputs=outputs,
            batch_rows=batch_rows,
            on_error=on_error,
            keep_columns=keep_columns,
        )
        job = _Job(prediction, target.resolve(), part_rows, pixels)
        counts = _engine(engine).each(job.work, list(_tasks(files, target, part_rows)), threads)
    for rows in counts:
        done += rows
        tell(Progress(done, found, total))
    return Progress(done, found, total)


def _map_file(
    file: Path, target: Path, columns: Columns | None, settings: Settings, part_rows: int, pixels: Pixels | None
) -> Iterator[int]:
    """Make the parts of a file, or a folder of images, that are missing; the rows of each batch when it is written."""
    skip, finished = _parts(target, file, part_rows)
    if finished:
        return
    if file.is_dir():
        images = stream_images(images_of(file)[skip:], file.name, settings, pixels, skip)
        yield from _write(_cut(images, 0, part_rows), target, file, skip, part_rows)
    else:
        reader = _cut(read_table(file, columns, settings), skip, part_rows)
        yield from _write(stream(reader, file.name, columns, settings, skip), target, file, skip, part_rows)


class _Task(NamedTuple):
    """What a worker does at a time: a part of a Parquet file, or all that is missing of another (None)."""

    file: Path
    part: int | None


def _tasks(files: list[Path], target: Path, part_rows: int) -> Iterator[_Task]:
    """Those that are left."""
    import pyarrow.parquet

    for file in files:
        if file.suffix == ".csv" or file.is_dir():
            if not _parts(target, file, part_rows)[1]:
                yield _Task(file.resolve(), None)
            continue
        rows = pyarrow.parquet.read_metadata(file).num_rows
        for part in range(rows // part_rows + 1):
            if not _part(target, file, part).exists():
                yield _Task(file.resolve(), part)


class _Job(NamedTuple):
    """What all tasks have in common, as it is sent to workers."""

    prediction: Prediction
    target: Path
    part_rows: int
    pixels: Pixels | None

    def work(self, task: _Task) -> int:
        """Do a task, in a worker; returns the rows written."""
        worker = worker_of(self.prediction)
        columns, settings = self.prediction.columns, worker.settings
        if task.part is None:
            return sum(_map_file(task.file, self.target, columns, settings, self.part_rows, self.pixels))
        path, first = _part(self.target, task.file, task.part), task.part * self.part_rows
        if path.exists():  # by a worker that was taken for lost
            return 0
        rows = read_rows(task.file, columns, settings, first, first + self.part_rows)
        made = stream(rows, task.file.name, columns, settings, first)
        schema = worker.schema(rows.schema) if worker.knows_types else made.schema
        with replacing(path) as out:
            count = 0
            with _writer(out, schema) as writer:
                for batch in made:
                    writer.write_batch(batch.cast(schema))
                    count += batch.num_rows
        return count


ENGINES = ("local", "ray", "dask", "spark")


def _engine(name: str) -> Any:
    """The module of an engine. InvalidArgument for one that nobody knows, or that is not installed."""
    if name not in ENGINES[1:]:
        raise InvalidArgument(f"there is no engine {name!r}; there are {', '.join(ENGINES)}")
    try:
        return importlib.import_module(f"jitonnx.batch.{name}")
    except ModuleNotFoundError as error:
        raise InvalidArgument(f'{error.name} is not installed: pip install "jitonnx[{name}]"') from error


def _files(source: Path) -> list[Path]:
    if not source.exists():
        raise NoSuchFile(f"{source} is not there")
    if source.is_file():
        return [source]
    files = sorted(file for file in source.iterdir() if file.suffix in SUFFIXES)
    if not files and images_of(source):
        return [source]
    if not files:
        raise InvalidArgument(f"{source} holds no tables ({', '.join(SUFFIXES)}), and no images")
    stems = [file.stem for file in files]
    for file in files:
        if stems.count(file.stem) > 1:
            raise InvalidArgument(
                f"{source} holds several files named {file.stem}: their parts would have the same names"
            )
    return files


def _digest(model: Path) -> str:
    with open(model, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest_of(file)


def _digest_of(file: Any) -> str:
    """Before Python 3.11."""
    made = hashlib.sha256()
    while piece := file.read(1 << 20):
        made.update(piece)
    return made.hexdigest()


def _claim(target: Path, made_by: Mapping[str, Any]) -> None:
    """Write the manifest into a new folder; InvalidArgument where another one lies there."""
    target.mkdir(parents=True, exist_ok=True)
    manifest = target / MANIFEST
    if manifest.exists():
        try:
            found = json.loads(manifest.read_text())
        except ValueError:
            found = {}
        differs = [name for name in made_by if found.get(name) != made_by[name]]
        if differs:
            raise InvalidArgument(
                f"{target} holds parts made with another {', '.join(differs)} ({MANIFEST}): choose another folder, or "
                "remove it"
            )
        return
    if next(target.glob("*.parquet"), None) is not None:
        raise InvalidArgument(f"{target} holds Parquet files and no {MANIFEST}: choose an empty folder")
    with replacing(manifest) as file:
        file.write(json.dumps(made_by, indent=1).encode())


def _rows(files: list[Path]) -> int | None:
    """The number of rows of all files; None where one does not say."""
    import pyarrow.parquet

    if any(file.suffix == ".csv" for file in files):
        return None
    return sum(
        len(images_of(file)) if file.is_dir() else int(pyarrow.parquet.read_metadata(file).num_rows) for file in files
    )


def _part(target: Path, file: Path, number: int) -> Path:
    return target / f"{file.stem}-{number:05}.parquet"


def _parts(target: Path, file: Path, part_rows: int) -> tuple[int, bool]:
    """The rows in a file's parts, and whether these are all there are."""
    import pyarrow.parquet

    rows = number = 0
    while (part := _part(target, file, number)).exists():
        own = pyarrow.parquet.read_metadata(part).num_rows
        rows, number = rows + own, number + 1
        if own < part_rows:
            return rows, True
    return rows, False


def _cut(reader: pyarrow.RecordBatchReader, skip: int, part_rows: int) -> pyarrow.RecordBatchReader:
    """The rows behind the first `skip`, in batches that end where a part does."""
    import pyarrow as pa

    def batches() -> Iterator[pyarrow.RecordBatch]:
        seen = 0
        for batch in reader:
            begin = min(batch.num_rows, max(0, skip - seen))
            while begin < batch.num_rows:
                end = min(batch.num_rows, begin + part_rows - (seen + begin) % part_rows)
                yield batch.slice(begin, end - begin)
                begin = end
            seen += batch.num_rows

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _write(made: pyarrow.RecordBatchReader, target: Path, file: Path, skip: int, part_rows: int) -> Iterator[int]:
    """Write the parts behind the first `skip` rows; gives the rows of each batch when it is written.

    A file whose rows fill its parts ends with an empty one, so that it is known to be whole.
    """
    number, batches = skip // part_rows, iter(made)
    ended = False
    while not ended:
        with replacing(_part(target, file, number)) as out:
            rows = 0
            with _writer(out, made.schema) as writer:
                while rows < part_rows:
                    batch = next(batches, None)
                    if batch is None:
                        ended = True
                        break
                    writer.write_batch(batch)
                    rows += batch.num_rows
                    yield batch.num_rows
        number += 1


def _writer(out: Any, schema: pyarrow.Schema) -> Any:
    """A writer of Parquet files. Numbers with fractions get no dictionary: they hardly ever repeat, and to find that
    takes most of the time of writing."""
    import pyarrow.parquet

    with_dictionary = [path for field in schema for path in _leaves(field.name, field.type)]
    return pyarrow.parquet.ParquetWriter(out, schema, use_dictionary=with_dictionary or False)


def _leaves(path: str, kind: pyarrow.DataType) -> Iterator[str]:
    """Parquet's names of a column's parts that are no numbers with fractions."""
    import pyarrow.types as types

    if types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif types.is_nested(kind):  # of maps no part has such a name, and none gets a dictionary
        yield from _leaves(f"{path}.list.element", getattr(kind, "value_type", kind.field(0).type))
    elif not types.is_floating(kind):
        yield path
