"""Predicting over tables and iterables of feeds."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jitonnx.api.options import SessionOptions
from jitonnx.api.session import InferenceSession
from jitonnx.batch.blocks import Block, block_of_feeds
from jitonnx.batch.errors import RowError
from jitonnx.batch.images import FILE_COLUMN, Pixels, images_of, read_images
from jitonnx.batch.images import SUFFIXES as IMAGES
from jitonnx.batch.packing import Arrays, run_blocks
from jitonnx.batch.signature import Signature, signature_of
from jitonnx.batch.tables import ERROR_COLUMN, Columns, block_of, map_columns, with_outputs
from jitonnx.errors import InvalidArgument
from jitonnx.runtime.threads import allowed_cpus

if TYPE_CHECKING:
    import pyarrow

SIZES = (1, 8, 64, 256, 1024, 4096, 16384)
"""Rows of a batch that are tried where the model takes any number."""
_NEARLY = 0.95
"""The share of the best rate, in rows a second, that a smaller batch has to have: it takes less memory."""
_SLOWER = 0.5
"""Larger sizes are not tried behind one that has less than this share."""
BLOCK_ROWS = SIZES[-1]
"""Rows of a table that are read together at most."""
_READ_ROWS = 4 * BLOCK_ROWS
"""And that a reader of files gives together."""
_FIRST_ROWS = 64
"""Before it is known what their outputs take."""
_BLOCK_BYTES = 8 << 20
"""What they take, with their outputs: little enough to stay in a cache on their way."""
_BATCH_BYTES = 64 << 20
"""The most bytes that a batch's inputs take."""
_TRIAL_SECONDS = 0.003
"""How long a size of batches is timed."""
_LONG_SECONDS = 0.05
"""Larger sizes are not tried behind one that takes as long, or that is no faster than those before and would: against
that what a run costs is nothing beside its rows."""


class _BlockSize:
    """How many rows of a table are read together, by what they and their outputs take."""

    def __init__(self) -> None:
        self._most = _FIRST_ROWS
        self._output_bytes = 0.0
        """The bytes of a row's outputs."""

    def learn(self, outputs: Arrays, rows: int) -> None:
        """Note what the outputs of a run of so many rows take."""
        self._output_bytes = sum(array.nbytes for array in outputs.values()) / max(1, rows)
        self._most = BLOCK_ROWS

    def rows(self, batch: pyarrow.RecordBatch) -> int:
        """The number of rows to read together next, of rows like those of `batch`."""
        return min(self._most, _rows_within(batch.nbytes / batch.num_rows + self._output_bytes))


def _rows_within(row_bytes: float) -> int:
    """The rows that take `_BLOCK_BYTES` at most, a power of two, as sizes of batches are; one at least."""
    return 1 << max(0, int(_BLOCK_BYTES / max(1.0, row_bytes)).bit_length() - 1)


class Plan(NamedTuple):
    """How rows are run: by whom, how many at once, on how many threads beside each other."""

    run: Callable[[Arrays], Arrays]
    signature: Signature
    rows: int
    pads: bool
    threads: int


def predict(  # noqa: PLR0913  (a call's options, by name)
    data: Any,
    model: str | os.PathLike[str] | bytes | InferenceSession,
    *,
    columns: Columns | None = None,
    outputs: Sequence[str] | Mapping[str, str] | None = None,
    batch_rows: int | None = None,
    threads: int | None = None,
    on_error: str = "raise",
    keep_columns: Sequence[str] | None = None,
    pixels: Pixels | None = None,
) -> Any:
    """The model's outputs for all rows of `data`, in order, with bounded memory.

    data:
        a `pyarrow.Table`, or a pandas or polars frame: the same comes back, with a column for each output;
        a `pyarrow.RecordBatchReader` or `RecordBatch`, or the path of a Parquet or CSV file: a RecordBatchReader;
        the path of a folder of images: a RecordBatchReader with a column `file` and those for outputs;
        an iterable of feeds (dicts of arrays [rows, ...] by input): an iterator of dicts of arrays, one for each.
    model: an ONNX file, its content, or a session. A session of its own runs each batch on one thread.
    columns: by input the column that it is made of, or several that stand side by side along its last axis. By default
        those of the inputs' names, or all columns of numbers for an only input of as many elements.
    outputs: which are given, or a dict of columns' names by output. All by default.
    batch_rows: rows of a batch. By default as many as pay, which is measured on the first rows. A model whose batch is
        fixed is run on so many, the last ones padded.
    threads: batches that are run beside each other. By default one for each CPU, or one for a session of yours; 0 runs
        them in the thread that reads.
    on_error: "raise" ends at the first row that does not fit with RowError, which names it. "keep" goes on: tables have
        a column `error`, and nulls for what such rows lack; in the place of feeds with such a row stands a RowError.
    keep_columns: of a table's, those that stand in front of the outputs'. All by default; none is the empty list.
    pixels: what numbers the pixels of images become. By default 0 to 1, or the bytes that they are for inputs of bytes.

    InvalidArgument for a model whose inputs or outputs have no rows, and for data and columns that do not fit it.
    """
    settings = open_settings(model, outputs, batch_rows, threads, on_error, keep_columns)
    kind = type(data).__module__.partition(".")[0]
    if kind in ("pyarrow", "pandas", "polars") or isinstance(data, str | os.PathLike):
        if not isinstance(data, str | os.PathLike) or not os.path.isdir(data):
            return _predict_tables(data, kind, columns, settings)
        if columns is not None:
            raise InvalidArgument("columns are of tables; data is a folder of images")
        return stream_images(images_of(Path(data)), os.fspath(data), settings, pixels)
    if isinstance(data, Mapping):
        raise InvalidArgument("data is a dict: give a list of feeds, each a dict of arrays by input")
    if columns is not None or keep_columns is not None:
        raise InvalidArgument("columns are of tables; data is an iterable of feeds, which name inputs")
    return predict_feeds(iter(data), settings)


class Settings(NamedTuple):
    """What `predict` was asked for."""

    session: InferenceSession
    own: bool
    """Whether the session is ours."""
    signature: Signature
    names: Mapping[str, str]
    batch_rows: int | None
    threads: int | None
    keeps: bool
    """Rows that do not fit."""
    keep_columns: tuple[str, ...] | None = None
    """The columns of a table that stand in front of the outputs'; None for all."""

    def kept_of(self, schema: pyarrow.Schema) -> list[int]:
        """The columns of a table that stand in front of the outputs', by number.

        InvalidArgument for those that it has not, and where one has the name of what is to be made.
        """
        names: list[str] = schema.names
        kept = names if self.keep_columns is None else self.keep_columns
        for name in kept:
            if name not in names:
                known = ", ".join(map(repr, names)) or "none"
                raise InvalidArgument(f"no column {name!r} to keep; the columns are {known}")
        for name in (*self.names.values(), *([ERROR_COLUMN] if self.keeps else [])):
            if name in kept:
                raise InvalidArgument(
                    f"the data have a column {name!r} already, which is to be made: name it otherwise with "
                    "outputs={'output': 'column'}, or leave it out with keep_columns=[...]"
                )
        return list(range(len(names))) if self.keep_columns is None else [names.index(name) for name in kept]


def open_settings(
    model: str | os.PathLike[str] | bytes | InferenceSession,
    outputs: Sequence[str] | Mapping[str, str] | None,
    batch_rows: int | None,
    threads: int | None,
    on_error: str,
    keep_columns: Sequence[str] | None = None,
) -> Settings:
    """The arguments of `predict`, looked at."""
    if on_error not in ("raise", "keep"):
        raise InvalidArgument(f"on_error is {on_error!r}; 'raise' or 'keep' is needed")
    session, own = _session(model)
    signature = signature_of(session)
    names, kept = _names(outputs, signature), kept_names(keep_columns)
    return Settings(session, own, signature, names, batch_rows, threads, on_error == "keep", kept)


def kept_names(keep_columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The columns that `keep_columns` names: a single name is one. None for all."""
    return (keep_columns,) if isinstance(keep_columns, str) else None if keep_columns is None else tuple(keep_columns)


def _session(model: str | os.PathLike[str] | bytes | InferenceSession) -> tuple[InferenceSession, bool]:
    if isinstance(model, InferenceSession):
        return model, False
    return InferenceSession(model, one_thread()), True


def one_thread() -> SessionOptions:
    """Options of sessions that batches share, which run beside each other."""
    options = SessionOptions()
    options.intra_op_num_threads = 1
    return options


def _names(outputs: Sequence[str] | Mapping[str, str] | None, signature: Signature) -> Mapping[str, str]:
    """Columns by output."""
    if isinstance(outputs, str):
        outputs = (outputs,)
    chosen = outputs if isinstance(outputs, Mapping) else {one: one for one in outputs or signature.outputs}
    for name in chosen:
        if name not in signature.outputs:
            known = ", ".join(map(repr, signature.outputs))
            raise InvalidArgument(f"the model has no output {name!r}; its outputs are {known}")
    return chosen


def _plan(settings: Settings, first: Block | None, size: _BlockSize | None = None) -> Plan:
    """size: learns from runs."""
    session, signature, names = settings.session, settings.signature, list(settings.names)

    def run(arrays: Arrays) -> Arrays:
        count = len(next(iter(arrays.values())))
        made = dict(zip(names, session.run(names, dict(arrays)), strict=True))
        for name, array in made.items():
            shape = np.shape(array)
            if not isinstance(array, np.ndarray) or not shape or shape[0] != count:
                raise InvalidArgument(
                    f"output {name!r} has shape {list(shape)} for {count} rows: as many are needed along the first "
                    "axis; choose others with `outputs`"
                )
        if size is not None:
            size.learn(made, count)
        return made

    threads = settings.threads
    if threads is None:
        threads = allowed_cpus() if settings.own else 1
    if threads < 0:
        raise InvalidArgument(f"threads is {threads}; at least 0 is needed, which is the caller's own")
    rows = signature.rows or settings.batch_rows
    if rows is not None and rows < 1:
        raise InvalidArgument(f"batch_rows is {rows}; at least 1 is needed")
    if signature.rows is not None and settings.batch_rows not in (None, signature.rows):
        raise InvalidArgument(f"batch_rows is {settings.batch_rows}, the model's batch is {signature.rows}")
    if rows is None:
        rows = 1 if first is None else rows_that_pay(run, first.arrays)
    return Plan(run, signature, rows, signature.rows is not None, threads)


def rows_that_pay(run: Callable[[Arrays], Arrays], arrays: Arrays) -> int:
    """The least number of rows in a batch that is nearly as fast, row by row, as any; measured on these rows."""
    return size_that_pays(rates_of(run, arrays, SIZES))


def size_that_pays(rates: Mapping[int, float]) -> int:
    """The least of the sizes that is nearly as fast as any. rates: rows a second, by size."""
    best = max(rates.values(), default=0.0)
    return next((rows for rows, rate in rates.items() if rate >= _NEARLY * best), 1)


def rates_of(run: Callable[[Arrays], Arrays], arrays: Arrays, sizes: Iterable[int]) -> dict[int, float]:
    """Rows a second in batches of these rising sizes; measured on these rows, up to a size that fails or is slow."""
    count = len(next(iter(arrays.values())))
    rates: dict[int, float] = {}
    if not count:
        return rates
    row_bytes = sum(array.nbytes for array in arrays.values()) / count
    for rows in sizes:
        if rows > 1 and rows * row_bytes > _BATCH_BYTES:
            break
        if len(rates) > 1 and size_that_pays(rates) != max(rates) and rows / max(rates.values()) > _LONG_SECONDS:
            break
        places = np.arange(rows) % count
        given = {name: array[places] for name, array in arrays.items()}
        try:
            run(given)  # makes the program
            seconds: list[float] = []
            began = time.perf_counter()
            while len(seconds) < 3 or time.perf_counter() - began < _TRIAL_SECONDS:
                start = time.perf_counter()
                run(given)
                seconds.append(time.perf_counter() - start)
                if seconds[-1] > _TRIAL_SECONDS:
                    break
        except (RuntimeError, ValueError):  # a row that fails is found, and named, when it is its turn
            break
        rates[rows] = rows / min(seconds)
        if rates[rows] < _SLOWER * max(rates.values()) or min(seconds) > _LONG_SECONDS:
            break
    return rates


def settled(settings: Settings, rows: pyarrow.Table | Arrays, columns: Columns | None = None) -> Settings:
    """The settings with the rows of a batch that pay, measured on the first of these, where nobody says how many."""
    if settings.batch_rows is not None or settings.signature.rows is not None:
        return settings
    if isinstance(rows, Mapping):
        block = block_of_feeds({name: array[:BLOCK_ROWS] for name, array in rows.items()}, settings.signature, 0)
    elif rows.num_rows:
        mapped = map_columns(settings.signature, rows.schema, columns)
        first = rows.slice(0, BLOCK_ROWS).combine_chunks().to_batches()[0]
        block = block_of(first, settings.signature, mapped, "", 0)
    else:
        return settings
    return settings._replace(batch_rows=_plan(settings, block).rows) if len(block.faults) < block.count else settings


def output_types(settings: Settings) -> dict[str, pyarrow.DataType]:
    """The types of the columns that are made, told by a run of rows of zeros.

    InvalidArgument where sizes of a row are open.
    """
    signature = settings.signature
    if unknown := [one for one in signature.inputs if None in one.shape]:
        raise InvalidArgument(
            f"what outputs look like depends on the data, as sizes of a row are open: input {unknown[0].name!r} takes "
            f"{unknown[0]}"
        )
    rows = signature.rows or 1
    zeros = {
        one.name: np.full((rows, *(size or 0 for size in one.shape)), "" if one.dtype == object else 0, one.dtype)
        for one in signature.inputs
    }
    return _types(_plan(settings._replace(batch_rows=rows), None).run(zeros), settings)


def _run(blocks: Iterator[Block], settings: Settings, size: _BlockSize | None = None) -> Iterator[tuple[Block, Arrays]]:
    skipped: list[Block] = []
    for block in blocks:
        skipped.append(block)
        if len(block.faults) < block.count or not settings.keeps:
            break
    first = skipped[-1] if skipped else None
    if first is not None and not settings.keeps:
        first.refuse()
    plan = _plan(settings, first, size)
    yield from run_blocks(
        plan.run, itertools.chain(skipped, blocks), plan.rows, plan.threads, pad=plan.pads, keep_faults=settings.keeps
    )


def predict_feeds(feeds: Iterator[Mapping[str, Any]], settings: Settings) -> Iterator[Any]:
    """The outputs of each of the feeds, by column; a RowError in the place of what does not fit, if that is kept."""
    blocks = (block_of_feeds(one, settings.signature, number) for number, one in enumerate(feeds))
    for block, outputs in _run(blocks, settings):
        if block.faults:
            place = min(block.faults)
            yield RowError(f"{block.name(place)}: {block.faults[place]}")
        else:
            yield {settings.names[name]: array for name, array in outputs.items()}


def _predict_tables(data: Any, kind: str, columns: Columns | None, settings: Settings) -> Any:
    import pyarrow as pa

    origin = "the table"
    if isinstance(data, str | os.PathLike):
        origin = Path(data).name
        reader = read_table(Path(data), columns, settings)
    elif kind == "pandas":
        reader = pa.Table.from_pandas(data).to_reader()
    elif kind == "polars":
        reader = data.to_arrow().to_reader()
    elif isinstance(data, pa.RecordBatch):
        reader = pa.RecordBatchReader.from_batches(data.schema, [data])
    else:
        reader = data.to_reader() if isinstance(data, pa.Table) else data
    made = stream(reader, origin, columns, settings)
    if isinstance(data, pa.Table):
        return made.read_all()
    if kind == "pandas":
        return made.read_pandas()
    if kind == "polars":
        import polars

        return polars.from_arrow(made.read_all())
    return made


def read_table(path: Path, columns: Columns | None, settings: Settings) -> pyarrow.RecordBatchReader:
    """A Parquet or CSV file, read as it is asked for. InvalidArgument for other files, NoSuchFile's kind of OSError."""
    if path.suffix == ".csv":
        import pyarrow.csv

        found: pyarrow.RecordBatchReader = pyarrow.csv.open_csv(path)
        return found
    if path.suffix not in (".parquet", ".pq"):
        raise InvalidArgument(f"{path} is no table that can be read here: .parquet or .csv is needed")
    return read_rows(path, columns, settings)


def read_rows(
    path: Path, columns: Columns | None, settings: Settings, begin: int = 0, end: int | None = None
) -> pyarrow.RecordBatchReader:
    """The rows from `begin` up to `end` of a Parquet file: those of its row groups that have some, and of its columns
    those that are kept or inputs are made of. InvalidArgument for columns that it has not."""
    import pyarrow as pa
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)
    schema, groups = file.schema_arrow, [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    names = None
    if settings.keep_columns is not None:
        kept = {schema.names[place] for place in settings.kept_of(schema)}
        kept.update(*map_columns(settings.signature, schema, columns).values())
        names = [name for name in schema.names if name in kept]
        schema = pa.schema([schema.field(name) for name in names], schema.metadata)
    firsts = [0, *itertools.accumulate(group.num_rows for group in groups)]
    last = firsts[-1] if end is None else end
    read = [
        number for number, first in enumerate(firsts[:-1]) if first < last and begin < first + groups[number].num_rows
    ]
    row_bytes = max((groups[number].total_byte_size / groups[number].num_rows for number in read), default=0.0)

    def batches() -> Iterator[pyarrow.RecordBatch]:
        at = firsts[read[0]]
        for batch in file.iter_batches(min(_READ_ROWS, _rows_within(row_bytes)), row_groups=read, columns=names):
            cut = batch.slice(max(0, begin - at), max(0, min(last, at + batch.num_rows) - max(begin, at)))
            at += batch.num_rows
            if cut.num_rows:
                yield cut if names is None else cut.select(names)

    return pa.RecordBatchReader.from_batches(schema, batches() if read else iter(()))


def stream(
    reader: pyarrow.RecordBatchReader,
    origin: str,
    columns: Columns | None,
    settings: Settings,
    first: int = 0,
    types: Mapping[str, pyarrow.DataType] | None = None,
) -> pyarrow.RecordBatchReader:
    """The reader's batches with columns for outputs.

    origin: what rows are called in errors, the first of them by the number `first`. types: of the columns; by default
    those of the first batches, which are run before it returns.
    """
    import pyarrow as pa

    kept = settings.kept_of(reader.schema)
    mapped = map_columns(settings.signature, reader.schema, columns)

    size = _BlockSize()

    def blocks() -> Iterator[Block]:
        number = first
        for batch in reader:
            left = batch
            while left.num_rows:
                part = left.slice(0, size.rows(left))
                yield block_of(part, settings.signature, mapped, origin, number)
                number, left = number + part.num_rows, left.slice(part.num_rows)

    results = _run(blocks(), settings, size)
    begun: list[tuple[Block, Arrays]] = []
    if types is None:
        for result in results:
            begun.append(result)
            if result[1]:
                break
        types = _types(begun[-1][1] if begun else {}, settings)
    fields = [*map(reader.schema.field, kept), *(pa.field(name, kind) for name, kind in types.items())]
    schema = pa.schema(fields, reader.schema.metadata)

    def batches() -> Iterator[pyarrow.RecordBatch]:
        for block, outputs in itertools.chain(begun, results):
            made = with_outputs(block, kept, outputs, settings.names, types, keep_faults=settings.keeps)
            yield made.cast(schema) if made.schema != schema else made

    return pa.RecordBatchReader.from_batches(schema, batches())


def stream_images(
    files: Sequence[Path], origin: str, settings: Settings, pixels: Pixels | None, first: int = 0
) -> pyarrow.RecordBatchReader:
    """The images' names with columns for outputs; see `stream`. InvalidArgument where there are no images."""
    if not files:
        raise InvalidArgument(f"{origin} holds no images ({', '.join(IMAGES)})")
    if settings.keep_columns is None:
        settings = settings._replace(keep_columns=(FILE_COLUMN,))  # and not the pixels
    return stream(read_images(files, settings.signature, pixels or Pixels()), origin, None, settings, first)


def _types(outputs: Arrays, settings: Settings) -> dict[str, pyarrow.DataType]:
    """The types of the columns that are made."""
    import pyarrow as pa

    from jitonnx.batch.tables import type_of

    types = {
        column: type_of(outputs[name]) if name in outputs else pa.null() for name, column in settings.names.items()
    }
    return {**types, **({ERROR_COLUMN: pa.string()} if settings.keeps else {})}
