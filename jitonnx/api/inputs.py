"""Shapes and random arrays for a model's inputs, for the commands that run a model without anybody's data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.ir.declaration import Declaration, is_named
from jitonnx.ir.dtypes import DType
from jitonnx.runtime.program import Shapes, TensorSpec, beyond_memory
from jitonnx.support.records import dataclass

Shape = tuple[int, ...]

Size = int | tuple[int, int]
"""A size, or the least and the largest of a range."""

NamedShapes = Mapping[str, Sequence[Size]]
"""Shapes by the inputs' names."""
Ends = tuple[Shapes, Shapes]
"""The least and the largest shapes of the inputs, in order; the same for one set of shapes."""

DEFAULT_SIZE = 1
"""The size of a dimension that the model leaves open and nobody gives."""


@dataclass
class ChosenShapes:
    """A concrete shape for every input."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    dimensions: dict[str, int] = field(default_factory=dict)
    """Sizes of dimensions by what the model calls them; where the shapes given disagree, the first."""
    assumed: list[str] = field(default_factory=list)
    """Named dimensions, and axes ("x[0]"), that nobody gave a size: they got DEFAULT_SIZE."""

    def in_order(self, inputs: Sequence[Declaration]) -> tuple[Shape, ...]:
        """The shapes in the order of the inputs."""
        return tuple(self.shapes[declared.name] for declared in inputs)


def ends(shapes: Mapping[str, Sequence[Size]]) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The least and the largest of shapes that may have ranges of sizes. InvalidArgument for what is no range."""
    low: dict[str, Shape] = {}
    high: dict[str, Shape] = {}
    for name, shape in shapes.items():
        if not hasattr(shape, "__iter__"):
            raise InvalidArgument(f"{shape!r} is no shape for {name!r}: give a tuple of sizes")
        low[name], high[name] = (tuple(_end(name, size, which) for size in shape) for which in (0, 1))
    return low, high


def ends_in_order(
    declared: Sequence[Declaration], shapes: NamedShapes, usual: Mapping[str, Sequence[int | None]]
) -> Ends:
    """The ends of shapes, completed by what the model says. usual: as for `choose_shapes`.

    InvalidArgument for shapes that do not fit or leave something open.
    """
    low, high = (choose_shapes(declared, end, usual=usual) for end in ends(shapes))
    if low.assumed:
        given = ", ".join(f"{name}={list(shape)}" for name, shape in shapes.items()) or "nothing"
        raise InvalidArgument(f"the shapes leave {', '.join(low.assumed)} open (given: {given})")
    return low.in_order(declared), high.in_order(declared)


def joined(low: Mapping[str, Shape], high: Mapping[str, Shape]) -> dict[str, tuple[Size, ...]]:
    """Shapes with ranges of sizes, from their `ends`."""
    return {
        name: tuple(a if a == b else (a, b) for a, b in zip(shape, high[name], strict=True))
        for name, shape in low.items()
    }


def _end(name: str, size: Size, which: int) -> int:
    if isinstance(size, int | np.integer):
        return int(size)
    if not isinstance(size, tuple):
        raise InvalidArgument(f"{size!r} is no size for {name!r}: give an integer, or a range as (1, 512)")
    whole = all(isinstance(end, int | np.integer) for end in size)
    if len(size) != 2 or not whole or not 0 <= size[0] <= size[1]:
        raise InvalidArgument(f"{size} is no range of sizes for {name!r}: give the least and the largest, as (1, 512)")
    return int(size[which])


def choose_shapes(
    inputs: Sequence[Declaration],
    shapes: Mapping[str, Shape] | None = None,
    dimensions: Mapping[str, int] | None = None,
    usual: Mapping[str, Sequence[int | None]] | None = None,
) -> ChosenShapes:
    """Concrete shapes for inputs: as given, and where the model leaves open what nobody gives, DEFAULT_SIZE.

    shapes: shapes by input name, as a session takes them: inputs may disagree on a dimension. dimensions: sizes by
    dimension name. usual: the sizes that an input has, by its name, as far as the operators
    tell; they take the place of DEFAULT_SIZE. InvalidArgument for what does not fit the model.
    """
    shapes, chosen = dict(shapes or {}), ChosenShapes(dimensions=dict(dimensions or {}))
    for name in set(shapes) - {declared.name for declared in inputs}:
        raise InvalidArgument(
            f"the model has no input {name!r}; its inputs are: {', '.join(entry.name for entry in inputs)}"
        )
    _check_dimensions(inputs, chosen.dimensions)
    for declared in inputs:
        if declared.name in shapes:
            _take_over(declared, shapes[declared.name], chosen, dimensions or {})
    for declared in inputs:
        if declared.name not in chosen.shapes:
            chosen.shapes[declared.name] = _completed(declared, chosen, (usual or {}).get(declared.name))
    return chosen


def _check_dimensions(inputs: Sequence[Declaration], dimensions: Mapping[str, int]) -> None:
    known = {dim for declared in inputs for dim in declared.shape or () if isinstance(dim, str)}
    for name in set(dimensions) - known:
        raise InvalidArgument(
            f"the model has no dimension {name!r}; its named dimensions are: {', '.join(sorted(known)) or 'none'}"
        )
    for name, size in dimensions.items():
        if size < 0:
            raise InvalidArgument(f"dimension {name!r} is given the size {size}; give one of at least 0")


def _take_over(declared: Declaration, shape: Shape, chosen: ChosenShapes, dimensions: Mapping[str, int]) -> None:
    """Use a shape that was given, and the sizes it gives to named dimensions, but for those given by name."""
    if any(size < 0 for size in shape):
        raise InvalidArgument(f"{declared.name!r} is given the shape {list(shape)}, which has a negative size")
    if declared.shape is not None:
        misfit = f"{declared.name!r} has the shape {list(declared.shape)}; {list(shape)} does not fit"
        if len(shape) != len(declared.shape):
            raise InvalidArgument(misfit)
        for dim, size in zip(declared.shape, shape, strict=True):
            expected = dimensions.get(dim, size) if isinstance(dim, str) else dim
            if expected is not None and expected != size:
                raise InvalidArgument(misfit + (f", as {dim!r} is {expected}" if isinstance(dim, str) else ""))
            if is_named(dim):
                chosen.dimensions.setdefault(dim, size)
    chosen.shapes[declared.name] = tuple(shape)


def _completed(declared: Declaration, chosen: ChosenShapes, usual: Sequence[int | None] | None) -> Shape:
    """The declared shape with the chosen sizes."""
    if declared.shape is None:
        raise InvalidArgument(
            f"nothing is known about the shape of input {declared.name!r}; give it: --shape {declared.name}=1,2,3"
        )
    sizes = []
    for axis, dim in enumerate(declared.shape):
        if isinstance(dim, int):
            sizes.append(dim)
        elif dim is not None and dim in chosen.dimensions:
            sizes.append(chosen.dimensions[dim])
        else:
            size = None if usual is None else usual[axis]
            if size is None:
                chosen.assumed.append(dim if is_named(dim) else f"{declared.name}[{axis}]")
                size = DEFAULT_SIZE
            if is_named(dim):
                chosen.dimensions[dim] = size
            sizes.append(size)
    return tuple(sizes)


def random_feeds(inputs: Sequence[Declaration], shapes: Mapping[str, Shape], seed: int = 0) -> dict[str, np.ndarray]:
    """Random arrays for the inputs: floats are normal, integers 0 or 1 (which any index may be), texts "0" or "1".

    Fail for shapes beyond all memory.
    """
    rng = np.random.default_rng(seed)
    return {declared.name: _random(rng, declared, shapes[declared.name]) for declared in inputs}


def _random(rng: np.random.Generator, declared: Declaration, shape: Shape) -> np.ndarray:
    assert declared.dtype is not None
    if math.prod(max(size, 1) for size in shape) * 8 >= 1 << 63:  # bytes of the numbers that a generator makes
        raise beyond_memory(TensorSpec(declared.name, declared.dtype.numpy, shape))
    if declared.dtype is DType.STRING:
        return rng.integers(0, 2, shape).astype(str).astype(object)
    if declared.dtype.is_float or declared.dtype in (DType.COMPLEX64, DType.COMPLEX128):
        return rng.standard_normal(shape).astype(declared.dtype.numpy)
    return rng.integers(0, 2, shape).astype(declared.dtype.numpy)


def stored_feeds(path: str) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name. InvalidArgument for a file that is none."""
    import zipfile

    try:
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise InvalidArgument(f"{path} holds one array without a name: give an .npz file (numpy.savez writes them)")
        with stored:
            return dict(stored)
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"{path} is no .npz file of inputs, as numpy.savez writes them: {error}") from error
