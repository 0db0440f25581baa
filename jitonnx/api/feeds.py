"""Makes the arrays that a model takes of what users feed: checks, conversions, and errors that name the input.

Element types are never converted silently: an array must have the input's own. Python numbers and lists, which have
none, become arrays of the input's type if that type can hold them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.errors import InvalidArgument, RuntimeException
from jitonnx.ir.declaration import Declaration, is_named
from jitonnx.ir.defects import is_defect
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.strings import may_hold_text, string_array
from jitonnx.support import fork_safety

if TYPE_CHECKING:
    from jitonnx.runtime.strings import StringCheck

_PLEASE_FIX = "Please fix either the inputs/outputs or the model."


def check_names(feeds: Any, required: Sequence[str], optional: Iterable[str]) -> None:
    """InvalidArgument for inputs that are missing or unknown, TypeError for feeds that are no mapping from names."""
    if not isinstance(feeds, Mapping):
        raise TypeError(f"input_feed is a {type(feeds).__name__}; give a dict of arrays by input name")
    for name in feeds:
        if not isinstance(name, str):
            raise TypeError(f"the names of inputs are str; input_feed has the key {name!r} ({type(name).__name__})")
    missing = [name for name in required if name not in feeds]
    if missing:
        raise InvalidArgument(
            f"Required inputs ({missing}) are missing from input feed ({list(feeds)}).{_similar(missing[0], feeds)}"
        )
    known = [*required, *optional]
    among = frozenset(known)
    for name in feeds:
        if name not in among:
            raise InvalidArgument(
                f"Invalid input name: {name}. The model's inputs are: {', '.join(known) or 'none'}"
                f"{_similar(name, known)}"
            )


def unknown_output(name: str, known: Sequence[str]) -> InvalidArgument:
    """The error for an output that a model does not have."""
    return InvalidArgument(
        f"Invalid output name:{name}. The model's outputs are: {', '.join(known)}{_similar(name, known)}"
    )


def _similar(name: str, names: Iterable[str]) -> str:
    with fork_safety.critical:
        import difflib

    close = difflib.get_close_matches(name, list(names), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def read(value: Any, declared: Declaration) -> np.ndarray:
    """The array for one input: C-contiguous, aligned, in native byte order, of the declared type and shape.

    Takes arrays (any layout, byte order or subclass), what offers `__array__` or `__dlpack__`, numbers for scalars, and
    nested lists or tuples. InvalidArgument says what does not fit.
    """
    array = value if type(value) is np.ndarray else _as_array(value, declared)
    if declared.dtype is DType.STRING:
        array = _strings(array, declared)
    else:
        _check_type(array, declared)
    array = _check_shape(array, declared)
    try:
        return np.require(array, array.dtype.newbyteorder("="), ["C", "A", "E"])
    except MemoryError as error:
        raise RuntimeException(f"There is not enough memory for a copy of input {declared.name!r}: {error}") from error


_IN_PLACE = 0x0101
"""The bits of `flags.num` of an array that is C-contiguous and aligned."""


class PlainInputs:
    """A quick test whether feeds are what most are: a dict of arrays that can be used as they are.

    The elements of arrays of objects are looked at one by one.
    """

    def __init__(self, declared: Sequence[Declaration]) -> None:
        self._expected: list[tuple[str, np.dtype[Any], tuple[int, ...] | None, int, list[tuple[int, int]]]] | None = []
        """Of each input its name, type, shape (None if an axis is open), rank, and the sizes that axes are to have."""
        self._are_strings: StringCheck | None = None
        for entry in declared:
            if entry.dtype is None or entry.shape is None:
                self._expected = None  # these need a closer look at every run
                return
            if entry.dtype is DType.STRING and self._are_strings is None:
                from jitonnx.runtime.strings import StringCheck  # most models have none

                self._are_strings = StringCheck()
            fixed = [(axis, dim) for axis, dim in enumerate(entry.shape) if isinstance(dim, int)]
            whole = tuple([size for _, size in fixed]) if len(fixed) == len(entry.shape) else None
            self._expected.append((entry.name, entry.dtype.numpy, whole, len(entry.shape), fixed))

    @property
    def possible(self) -> bool:
        """Whether any feeds are: there are none for inputs that are no tensors, or of unknown rank."""
        return self._expected is not None

    def arrays(self, feeds: Any) -> list[np.ndarray] | None:
        """The arrays, in order, as `read` would give them; None if anything about the feeds is unusual."""
        expected = self._expected
        if expected is None or type(feeds) is not dict or len(feeds) != len(expected):
            return None
        arrays = []
        for name, dtype, whole, rank, fixed in expected:
            array = feeds.get(name)
            if type(array) is not np.ndarray or (array.dtype is not dtype and array.dtype != dtype):
                return None
            if array.flags.num & _IN_PLACE != _IN_PLACE:
                return None
            if whole is not None:
                if array.shape != whole:
                    return None
            elif array.ndim != rank or any([array.shape[axis] != size for axis, size in fixed]):
                return None
            arrays.append(array)
        return arrays if self._are_strings is None else _with_strings(arrays, self._are_strings)


def _with_strings(arrays: list[np.ndarray], are_strings: StringCheck) -> list[np.ndarray] | None:
    """The arrays, those of objects as strings: as they are if native code has found only such in them, else copied;
    None if one holds something else."""
    try:
        return [
            array if array.dtype != object or are_strings(array) else string_array(array, "an input")
            for array in arrays
        ]
    except ValueError:
        return None


def plain_entry(
    declared: Sequence[Declaration], shapes: Sequence[tuple[int, ...]], run: Callable[[list[Any]], list[Any]]
) -> Callable[[Any], list[Any] | None] | None:
    """What runs a dict of plain arrays of these shapes, and gives None where anything about it is unusual.

    None if inputs are no tensors: those need a closer look at every run.
    """
    plain = PlainInputs([entry._replace(shape=shape) for entry, shape in zip(declared, shapes, strict=True)])
    if not plain.possible:
        return None

    def enter(feeds: Any) -> list[Any] | None:
        arrays = plain.arrays(feeds)
        try:
            return None if arrays is None else run(arrays)
        except Exception as error:
            if not is_defect(error):
                raise
            return None  # a closer look tells what to do without

    return enter


# ---------------------------------------------------------------------------------------------- kinds of values


def _as_array(value: Any, declared: Declaration) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        warnings.warn(f"input {declared.name!r} is a masked array: its mask is ignored", stacklevel=2)
        return np.asarray(value.data)
    if isinstance(value, str | bytes):
        return np.array(value, object)
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if isinstance(value, list | tuple | bool | int | float | complex):
        return _converted(value, declared)
    if value is None:
        raise InvalidArgument(f"input {declared.name!r} is None, but it is not optional: give a {_expected(declared)}")
    for read_array in (_of_array_interface, _of_ort_value, _of_dlpack):
        array = read_array(value)
        if array is not None:
            return array
    raise InvalidArgument(
        f"Input must be a list of dictionaries or a single numpy array for input {declared.name!r}. "
        f"It is a {type(value).__name__}; give a {_expected(declared)}"
    )


def _of_array_interface(value: Any) -> np.ndarray | None:
    return np.asarray(value) if hasattr(value, "__array__") or hasattr(value, "__array_interface__") else None


def _of_ort_value(value: Any) -> np.ndarray | None:
    return np.asarray(value.numpy()) if callable(getattr(value, "numpy", None)) else None


def _of_dlpack(value: Any) -> np.ndarray | None:
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else None


def _converted(value: Any, declared: Declaration) -> np.ndarray:
    """Python numbers, or nested lists, as an array of the declared type. InvalidArgument if it can't hold them."""
    assert declared.dtype is not None
    if declared.dtype is DType.STRING:
        return np.array(value, object)
    what = "number" if np.isscalar(value) else type(value).__name__
    refused = f"Could not create tensor from given input {what}: input {declared.name!r} takes a {_expected(declared)}"
    try:
        given = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"{refused}; {error}") from error
    if given.dtype == object or given.dtype.kind in "USMm":
        raise InvalidArgument(f"{refused}, and not one that holds {_kinds(given)}")
    is_complex = declared.dtype in (DType.COMPLEX64, DType.COMPLEX128)
    if given.dtype.kind == "c" and not is_complex:
        raise InvalidArgument(f"{refused}, which cannot hold complex numbers")
    with np.errstate(all="ignore"):
        made = given.astype(declared.dtype.numpy)
    if not (is_complex or declared.dtype.is_float or np.array_equal(made, given)):
        raise InvalidArgument(f"{refused}, which cannot hold all of its numbers")
    return made


def _kinds(array: np.ndarray) -> str:
    return ", ".join(sorted({type(element).__name__ for element in array.flat}))


def _strings(array: np.ndarray, declared: Declaration) -> np.ndarray:
    """An array of its own with the texts as str. Bytes are decoded as UTF-8, other objects written out."""
    if not may_hold_text(array.dtype):
        _check_type(array, declared)
    try:
        return string_array(array, f"input {declared.name!r}")
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


# ---------------------------------------------------------------------------------------------- types and shapes


def _check_type(array: np.ndarray, declared: Declaration) -> None:
    try:
        kind = array.dtype.newbyteorder("=")
        actual = f"tensor({of_numpy(kind).text})" if kind.kind != "O" else "NumPy's object"
    except TypeError:
        actual = f"NumPy's {array.dtype}, which ONNX does not have"
    if actual != declared.type:
        assert declared.dtype is not None
        raise InvalidArgument(
            f"Unexpected input data type. Actual: ({actual}) , expected: ({declared.type}) for input "
            f"{declared.name!r}. Types are not converted silently: if it is meant, feed it as "
            f".astype({'str' if declared.dtype is DType.STRING else repr(declared.dtype.numpy.name)})"
        )


def _check_shape(array: np.ndarray, declared: Declaration) -> np.ndarray:
    """The array, if its shape is one that the input takes. A declared scalar may be fed as one element of rank 1."""
    wanted = declared.shape
    if wanted is None:
        return array
    if wanted == () and array.shape == (1,):
        return array.reshape(())
    if array.ndim != len(wanted):
        raise InvalidArgument(
            f"Invalid rank for input: {declared.name} Got: {array.ndim} Expected: {len(wanted)} {_PLEASE_FIX} "
            f"It has the shape {list(array.shape)}; give a {_expected(declared)}"
        )
    wrong = [
        f" index: {axis} Got: {got} Expected: {dim}\n"
        for axis, (got, dim) in enumerate(zip(array.shape, wanted, strict=True))
        if isinstance(dim, int) and got != dim
    ]
    if wrong:
        raise InvalidArgument(
            f"Got invalid dimensions for input: {declared.name} for the following indices\n{''.join(wrong)} "
            f"{_PLEASE_FIX} It has the shape {list(array.shape)}; give a {_expected(declared)}"
        )
    return array


def _expected(declared: Declaration) -> str:
    if declared.shape is None:
        return f"{declared.type} of any shape"
    dims = ", ".join("?" if dim is None else str(dim) for dim in declared.shape)
    return f"{declared.type} of shape [{dims}]"


class NamedSizes:
    """The dimensions of tensors among the inputs that have a name: inputs should agree on their sizes."""

    def __init__(self, declared: Sequence[Declaration]) -> None:
        self._declared = declared
        self._places = [
            (number, axis, dim)
            for number, entry in enumerate(declared)
            for axis, dim in enumerate(entry.shape or ())
            if entry.is_tensor and is_named(dim)
        ]

    def disagreement(self, shapes: Sequence[Sequence[int]]) -> str | None:
        """How inputs of these shapes disagree on the size of a named dimension; None if they do not."""
        seen: dict[str, tuple[int, int, int]] = {}
        for number, axis, dim in self._places:
            size = shapes[number][axis]
            first = seen.setdefault(dim, (size, number, axis))
            if first[0] != size:
                there, here = self._where(*first[1:]), self._where(number, axis)
                return f"dimension {dim!r} is {first[0]} on {there}, but {size} on {here}"
        return None

    def _where(self, number: int, axis: int) -> str:
        return f"axis {axis} of {self._declared[number].name!r}"


_MADE_UP = re.compile(r".+_dim_\d+")
"""Names that torch's TorchScript exporter makes for sizes that it does not know: of an operator, a value and its axis.

It takes sizes for equal that are not: `Conv388_dim_0` for the batch and the height of one image.
"""


class OutputSizes:
    """What a model declares of its outputs' sizes: numbers, and names that other axes have, too.

    A name says nothing where a past and a present are one buffer. A decoder declares them alike but for an axis that is
    `past_sequence_length` in the one and `total_sequence_length` in the other; both have the buffer's size there, and
    how much of that is filled is told by other inputs. A name that torch's exporter made up (`_MADE_UP`) says
    nothing either, unless an input has it.

    told: what was warned of when the model was loaded; outputs that it names are not told of again.
    """

    def __init__(self, inputs: Sequence[Declaration], outputs: Sequence[Declaration], told: Sequence[str] = ()) -> None:
        self._inputs = [
            (number, axis, dim)
            for number, entry in enumerate(inputs)
            for axis, dim in enumerate(entry.shape or ())
            if entry.is_tensor and is_named(dim)
        ]
        self._names = [entry.name for entry in inputs]
        shapes = [(number, entry.name, entry.shape) for number, entry in enumerate(outputs) if entry.is_tensor]
        self._outputs = [
            (number, name, shape)
            for number, name, shape in shapes
            if shape is not None and not any(text.startswith(f"output {name!r} is declared") for text in told)
        ]
        self._pasts = {
            number: places
            for number, _, shape in self._outputs
            if (places := [place for place, entry in enumerate(inputs) if _is_past(entry, outputs[number])])
        }
        """The inputs that may be an output's past, by the output's place."""

    def contradiction(
        self, inputs: Sequence[Sequence[DimLike]], outputs: Sequence[Sequence[DimLike] | None]
    ) -> str | None:
        """How outputs differ from what is declared; None if they do not.

        inputs: their shapes, which agree on named dimensions. outputs: their shapes, None for what is no array. Over
        dimension variables, None says that they never differ.
        """
        seen = {dim: (inputs[number][axis], axis, self._names[number]) for number, axis, dim in self._inputs}
        for number, name, declared in self._outputs:
            shape = outputs[number]
            if shape is None:
                continue
            if len(shape) != len(declared):
                return f"output {name!r} is declared with {len(declared)} axes, but has the shape {list(shape)}"
            if any(tuple(inputs[place]) == tuple(shape) for place in self._pasts.get(number, ())):
                continue
            for axis, (dim, size) in enumerate(zip(declared, shape, strict=True)):
                if isinstance(dim, int):
                    if size != dim:
                        return f"output {name!r} is declared with the size {dim} on axis {axis}, but has {size}"
                elif is_named(dim) and (dim in seen or not _MADE_UP.fullmatch(dim)):
                    other, place, owner = seen.setdefault(dim, (size, axis, name))
                    if other != size:
                        there = f"axis {place} of {owner!r}"
                        return f"dimension {dim!r} is {other} on {there}, but {size} on axis {axis} of output {name!r}"
        return None


def _is_past(past: Declaration, present: Declaration) -> bool:
    """Whether two tensors are declared alike but for the names of one axis, as those of a cache (of three axes or more:
    batch, rows, and what a row is).
    """
    if not past.is_tensor or past.dtype is not present.dtype or past.shape is None or present.shape is None:
        return False
    if len(past.shape) != len(present.shape) or len(past.shape) < 3:
        return False
    differing = [(one, other) for one, other in zip(past.shape, present.shape, strict=True) if one != other]
    return len(differing) == 1 and all(map(is_named, differing[0]))
