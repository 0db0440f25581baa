"""Arrow: columns of record batches as a model's inputs, and its outputs as columns.

An axis of an input is a list in a column: fixed-size lists, or lists of that many elements. Several columns of numbers
may stand side by side as the last axis of one input. A null is a fault of its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.batch.blocks import Block
from jitonnx.batch.signature import Input, Signature
from jitonnx.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow

ERROR_COLUMN = "error"
"""The column that says what is wrong with a row, where such rows are kept."""

Columns = Mapping[str, str | Sequence[str]]


def map_columns(signature: Signature, schema: pyarrow.Schema, columns: Columns | None) -> dict[str, tuple[str, ...]]:
    """What each input is made of: the columns that are given, or that of its name; for a model's only input all columns
    of numbers, if these are as many as its last axis.

    InvalidArgument for names that are not there.
    """
    given = {name: (one,) if isinstance(one, str) else tuple(one) for name, one in (columns or {}).items()}
    known = ", ".join(map(repr, schema.names)) or "none"
    for name in given:
        if name not in [one.name for one in signature.inputs]:
            inputs = ", ".join(repr(one.name) for one in signature.inputs)
            raise InvalidArgument(f"columns name input {name!r}, which is none of the model's: {inputs}")
    found = {}
    for one in signature.inputs:
        names = given.get(one.name)
        if names is None and one.name in schema.names:
            names = (one.name,)
        if names is None and len(signature.inputs) == 1 and len(one.shape) == 1:
            numbers = tuple(field.name for field in schema if _is_number(field.type))
            names = numbers if len(numbers) == one.shape[0] else None
        if names is None or any(name not in schema.names for name in names):
            missing = one.name if names is None else next(name for name in names if name not in schema.names)
            raise InvalidArgument(
                f"no column {missing!r} for input {one.name!r} ({one} a row); the columns are {known}: say which with "
                f"columns={{{one.name!r}: ...}}"
            )
        found[one.name] = names
    return found


def _is_number(kind: pyarrow.DataType) -> bool:
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def block_of(
    batch: pyarrow.RecordBatch, signature: Signature, mapped: Mapping[str, tuple[str, ...]], origin: str, first: int
) -> Block:
    """A record batch's rows. origin, first: see `Block`."""
    count = batch.num_rows
    faults: dict[int, str] = {}
    read: dict[str, np.ndarray] = {}
    for one in signature.inputs:
        names = mapped[one.name]
        if len(names) == 1:
            read[one.name] = _array(batch, names[0], one.shape, one, faults)
        else:
            parts = [_array(batch, name, one.shape[:-1], one, faults) for name in names]
            read[one.name] = np.stack(parts, -1)
    if faults:
        good = Block({}, count, faults=faults).good
        read = {name: array[good] for name, array in read.items()}
    return Block(read, count, origin, first, faults, batch)


def _array(
    batch: pyarrow.RecordBatch, name: str, shape: tuple[int | None, ...], one: Input, faults: dict[int, str]
) -> np.ndarray:
    """A column as [rows, *shape]; rows with a fault hold zeros, or texts without characters."""
    import pyarrow.types as types

    column = batch.column(batch.schema.get_field_index(name))
    count = len(column)
    if types.is_nested(column.type):
        made = _of_lists(column, shape, one, name, faults)
    else:
        _note(faults, _valid(column), f"column {name!r} is null")
        made = _elements(column, one, name)
    wanted = tuple(size or 0 for size in shape)
    if None not in shape and made.size == count * int(np.prod(wanted, dtype=np.int64)):
        return made.reshape(count, *wanted)
    if made.ndim - 1 != len(shape):
        raise InvalidArgument(
            f"column {name!r} holds {column.type}, rows of shape {list(made.shape[1:])}; input {one.name!r} takes {one}"
        )
    return made


def _of_lists(
    column: pyarrow.Array, shape: tuple[int | None, ...], one: Input, name: str, faults: dict[int, str]
) -> np.ndarray:
    """Lists as arrays: of numbers without Python for each row, and without a copy where all rows fit."""
    import pyarrow as pa

    good = _valid(column)
    _note(faults, good, f"column {name!r} is null")
    wanted = None if None in shape else int(np.prod([size or 0 for size in shape], dtype=np.int64))
    if wanted is not None and _is_numbers(column.type) and not _is_fixed(column.type):
        lengths = np.diff(_ends(column))
        for place in np.flatnonzero(good & (lengths != wanted)):
            faults.setdefault(
                int(place), f"column {name!r} is of shape [{lengths[place]}]; input {one.name!r} takes {one}"
            )
        good = good & (lengths == wanted)
    if not good.any():
        return np.zeros((len(column), *(size or 0 for size in shape)), one.dtype)
    found = _regular(column if good.all() else column.filter(pa.array(good)))
    if found is None:
        return _by_rows([_nested(value) for value in column.to_pylist()], shape, one, name, faults)
    elements, sizes = found
    rows = np.flatnonzero(good)
    if elements.null_count:
        valid = _valid(elements).reshape(len(rows), -1).all(axis=1)
        for place in rows[~valid]:
            faults.setdefault(int(place), f"column {name!r} has a null in its list")
    made = _elements(elements, one, name).reshape(len(rows), *sizes)
    if len(rows) == len(column):
        return made
    filled = np.zeros((len(column), *sizes), made.dtype)
    filled[rows] = made
    return filled


def _regular(column: pyarrow.Array) -> tuple[pyarrow.Array, tuple[int, ...]] | None:
    """The elements of (nested) lists of numbers, and the lengths of lists; None where these are not all the same, or
    lists within lists are null."""
    sizes = []
    while _is_list(column.type):
        if column.null_count:
            return None
        if _is_fixed(column.type):
            size = column.type.list_size
            begin, end = column.offset * size, (column.offset + len(column)) * size
        else:
            ends = _ends(column)
            begin, end = int(ends[0]), int(ends[-1])
            size = (end - begin) // max(1, len(column))
            if not np.all(np.diff(ends) == size):
                return None
        sizes.append(size)
        column = column.values[begin:end]
    return (column, tuple(sizes)) if _is_number(column.type) else None


def _ends(column: pyarrow.Array) -> np.ndarray:
    """The bounds of a column's lists among its values, one more than there are lists: [rows + 1]."""
    found: np.ndarray = column.offsets.to_numpy()
    return found


def _is_list(kind: pyarrow.DataType) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_numbers(kind: pyarrow.DataType) -> bool:
    """Whether these are lists of numbers, not of lists."""
    return _is_list(kind) and _is_number(kind.value_type)


def _is_fixed(kind: pyarrow.DataType) -> bool:
    import pyarrow.types as types

    return bool(types.is_fixed_size_list(kind))


def _nested(value: Any) -> np.ndarray | None:
    """A list of lists as an array; None for a null, or where there is one within, or where lengths differ."""
    if value is None:
        return None
    try:
        array = np.array(value)
    except ValueError:
        return None
    return None if array.dtype == object else array


def _by_rows(
    rows: list[np.ndarray | None], shape: tuple[int | None, ...], one: Input, name: str, faults: dict[int, str]
) -> np.ndarray:
    """Lists of any kind: rows that do not have the input's shape are faults."""
    wanted = None if None in shape else int(np.prod([size or 0 for size in shape], dtype=np.int64))
    common: tuple[int, ...] | None = None if None in shape else tuple(size or 0 for size in shape)
    made: list[np.ndarray | None] = []
    for place, row in enumerate(rows):
        fitting = row is not None and (row.size == wanted if wanted is not None else len(row.shape) == len(shape))
        if fitting and row is not None and common is None:
            common = row.shape
        if not fitting or row is None or row.size != int(np.prod(common or (), dtype=np.int64)):
            what = "null, or has a null or lists of different lengths" if row is None else f"of shape {list(row.shape)}"
            faults.setdefault(place, f"column {name!r} is {what}; input {one.name!r} takes {one}")
            made.append(None)
        else:
            made.append(row.reshape(common or ()))
    blank = np.zeros(common or tuple(size or 0 for size in shape), one.dtype)
    return np.stack([blank if row is None else row.astype(one.dtype) for row in made]) if made else blank[None][:0]


def _valid(column: pyarrow.Array) -> np.ndarray:
    if column.null_count == 0:
        return np.ones(len(column), bool)
    found: np.ndarray = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _note(faults: dict[int, str], valid: np.ndarray, text: str) -> None:
    for place in np.flatnonzero(~valid):
        faults.setdefault(int(place), text)


def _elements(column: pyarrow.Array, one: Input, name: str) -> np.ndarray:
    """Numbers or texts without a shape, of the input's type; for nulls zeros."""
    import pyarrow as pa

    if one.dtype == object:
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise InvalidArgument(f"column {name!r} holds {column.type}; input {one.name!r} takes texts")
        return np.array([text or "" for text in column.to_pylist()] or [], object)
    if not _is_number(column.type):
        raise InvalidArgument(f"column {name!r} holds {column.type}; input {one.name!r} takes {one}")
    if column.null_count:
        column = column.fill_null(0)
    found = column.to_numpy(zero_copy_only=False)
    if found.dtype.kind == "f" and one.dtype.kind in "iub":
        raise InvalidArgument(f"column {name!r} holds {column.type}; input {one.name!r} takes {one}: cast it before")
    made = found.astype(one.dtype, copy=False)
    if one.dtype.kind in "iu" and not np.array_equal(made, found):
        raise InvalidArgument(f"column {name!r} has numbers beyond {one.dtype}, which input {one.name!r} takes")
    return np.asarray(made)


def type_of(array: np.ndarray) -> pyarrow.DataType:
    """The type of the column that an output [rows, ...] becomes: fixed-size lists, one within the other, of numbers."""
    import pyarrow as pa

    made = pa.string() if array.dtype == object else pa.from_numpy_dtype(array.dtype)
    for size in reversed(array.shape[1:]):
        made = pa.list_(made, size)
    return made


def column_of(array: np.ndarray, block: Block) -> pyarrow.Array:
    """An output [good rows, ...] as a column of all rows of a block, null where these have a fault."""
    import pyarrow as pa

    missing = np.zeros(block.count, bool)
    if block.faults:
        missing[list(block.faults)] = True
        filled = np.zeros((block.count, *array.shape[1:]), array.dtype)
        filled[~missing] = array
        array = filled
    flat = np.ascontiguousarray(array).reshape(-1)
    lists = array.shape[1:]
    mask = missing if block.faults else None
    made = pa.array(flat.tolist() if array.dtype == object else flat, type_of(flat), mask=None if lists else mask)
    for axis in reversed(range(len(lists))):
        made = pa.FixedSizeListArray.from_arrays(
            made, lists[axis], mask=pa.array(missing) if mask is not None and axis == 0 else None
        )
    return made


def with_outputs(
    block: Block,
    kept: Sequence[int],
    outputs: Mapping[str, np.ndarray],
    names: Mapping[str, str],
    types: Mapping[str, pyarrow.DataType],
    *,
    keep_faults: bool,
) -> pyarrow.RecordBatch:
    """The block's record batch, of its columns those whose numbers are kept, and one for each output.

    names: the columns of outputs; types: of columns.
    keep_faults: with a column that says what is wrong with a row.
    """
    import pyarrow as pa

    batch = block.source
    columns, fields = [batch.column(place) for place in kept], [batch.schema.names[place] for place in kept]
    for output, column in names.items():
        empty = output not in outputs  # no row was run
        columns.append(pa.nulls(block.count, types[column]) if empty else column_of(outputs[output], block))
        fields.append(column)
    if keep_faults:
        columns.append(pa.array([block.faults.get(place) for place in range(block.count)], pa.string()))
        fields.append(ERROR_COLUMN)
    return pa.RecordBatch.from_arrays(columns, fields)
