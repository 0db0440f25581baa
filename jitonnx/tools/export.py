"""Models as Python packages that need NumPy and Numba alone.

    exported = export("model.onnx", "package")
    import package
    (y,) = package.run(x)

A package is a folder: `model.py` with a Numba function for each fused region and the function `run`, which calls them
in order; `operators.py` with what else that calls, on NumPy; and `weights/`, whose files are mapped into memory.
"""

from __future__ import annotations

import keyword
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jitonnx import errors
from jitonnx.codegen.numba.export.model import CannotExport, Package, write_package
from jitonnx.engine.partition import host_nodes
from jitonnx.ir.computation.lowering import Lowered, LoweringDefect, lower
from jitonnx.ir.declaration import is_named
from jitonnx.ir.defects import told
from jitonnx.ir.errors import GraphError
from jitonnx.ir.extract import solved, specialise
from jitonnx.ir.graph import Graph, short_name
from jitonnx.ir.types import TensorType, Type
from jitonnx.model.load import load
from jitonnx.model.types import Model
from jitonnx.passes.pipeline import optimize
from jitonnx.support.records import NamedTuple


class Exported(NamedTuple):
    """What was written."""

    folder: Path
    regions: int
    kernels: int
    """Numba functions: equal regions are one."""
    weights: int
    weight_bytes: int


def export(
    source: Any,
    folder: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
    dimensions: Mapping[str, int] | None = None,
    *,
    level: int = 99,
) -> Exported:
    """Write a model as a Python package to a folder, which is there as a whole or not at all.

    source: as of `load`. folder: where nothing is yet, under a name that can be imported. shapes, dimensions: sizes of
    inputs by their names, and of dimensions by theirs; what they leave open stays open. level: which rewrites are made.

    NotImplemented names all nodes that cannot be exported; InvalidArgument a folder, or sizes that do not fit; Fail
    says that no sizes fit the model; OSError that the folder cannot be written.
    """
    place = Path(folder)
    _check_place(place)
    model = load(source)
    title = os.path.basename(os.fspath(source)) if isinstance(source, str | os.PathLike) else place.name
    package = _package(model, str(title), shapes or {}, dimensions or {}, level)
    _write(package, place)
    total = sum(array.nbytes for array in package.weights.values())
    return Exported(place, package.regions, package.kernels, len(package.weights), total)


def _check_place(place: Path) -> None:
    name = place.resolve().name
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise errors.InvalidArgument(f"{name!r} cannot be imported: give a folder whose name is a Python identifier")
    if not place.parent.is_dir():
        raise errors.InvalidArgument(f"there is no folder {str(place.parent)!r} for {str(place)!r} to be in")
    if os.path.lexists(place) and not (place.is_dir() and not any(place.iterdir())):
        raise errors.InvalidArgument(f"{str(place)!r} is there already: give another folder, or remove it")


def _package(
    model: Model, title: str, shapes: Mapping[str, Sequence[int]], dimensions: Mapping[str, int], level: int
) -> Package:
    types = _input_types(model, shapes, dimensions)
    is_open = any(not kind.static for kind in types)
    hint = "Fixed sizes may help: --shape NAME=1,3,224,224 or --dim NAME=1. " if is_open else ""
    try:
        graph = solved(specialise(model.graph, types))
        optimize(graph, level)
        lowered = _lowered(graph)
        bindings = {name: binding for name, binding in graph.bindings.items() if binding.element}
        return write_package(lowered, title, [one.name for one in model.outputs], bindings)
    except GraphError as error:
        if hint:  # sizes that nobody gave were taken for those that are open
            raise errors.NotImplemented(
                f"the model cannot be exported for open sizes: {error}. {hint.strip()}"
            ) from error
        raise errors.Fail(f"the model cannot be exported: {error}") from error
    except CannotExport as error:
        lines = "".join(f"\n  {what}: {reason}" for what, reason in error.reasons.items())
        raise errors.NotImplemented(
            f"the model cannot be exported, for what has no plain form in Python:{lines}\n{hint}"
            "A part of the model without these may be exported by itself (onnx.utils.extract_model); "
            "jitonnx.InferenceSession runs the whole"
        ) from None


def _lowered(graph: Graph) -> Lowered:
    """The graph's computations. CannotExport with the nodes that have none."""
    refused = {
        f"{what} {value.name!r}": "it is no tensor"
        for what, values in (("input", graph.inputs), ("output", graph.outputs))
        for value in values
        if not isinstance(value.type, TensorType) or value.type.shape is None or value.dtype is None
    }
    refused |= {short_name(node): reason for node, reason in host_nodes(graph).items()}
    for binding in graph.bindings.values():
        if not binding.element and binding.value.producer is not None:
            refused.setdefault(short_name(binding.value.producer), "the size of what it gives depends on data")
    if refused:
        raise CannotExport(refused)
    try:
        return lower(graph)
    except LoweringDefect as defect:
        raise CannotExport({short_name(defect.node): f"jitonnx failed to lower it: {told(defect.error)}"}) from defect


def _input_types(model: Model, shapes: Mapping[str, Sequence[int]], dimensions: Mapping[str, int]) -> list[Type]:
    """The types of the inputs with the sizes that are given."""
    from jitonnx.api.inputs import choose_shapes

    given = {name: tuple(shape) for name, shape in shapes.items()}
    types = [value.type for value in model.graph.inputs]
    tensors = [isinstance(kind, TensorType) for kind in types]
    declared = [one for one, is_tensor in zip(model.inputs, tensors, strict=True) if is_tensor or one.name in given]
    chosen = choose_shapes(declared, given, dimensions)
    open_sizes = set(chosen.assumed)
    for number, (one, is_tensor) in enumerate(zip(model.inputs, tensors, strict=True)):
        if not is_tensor:
            continue
        kind, sizes = types[number], chosen.shapes[one.name]
        axes = one.shape if one.shape is not None else (None,) * len(sizes)
        names = [dim if is_named(dim) else f"{one.name}[{axis}]" for axis, dim in enumerate(axes)]
        dims = kind.shape if kind.shape is not None else sizes
        stay = [name in open_sizes and one.name not in given for name in names]
        fixed = (dim if keeps else size for keeps, dim, size in zip(stay, dims, sizes, strict=True))
        types[number] = TensorType(kind.dtype, tuple(fixed))
    return types


def _write(package: Package, place: Path) -> None:
    """Write a package beside the folder that it is to be, and give it that name at last."""
    made = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        umask = os.umask(0)
        os.umask(umask)
        made.chmod(0o777 & ~umask)
        for name, text in package.modules.items():
            (made / name).write_text(text, encoding="utf-8")
        if package.weights:
            (made / "weights").mkdir()
        for name, array in package.weights.items():
            np.save(made / "weights" / f"{name}.npy", array, allow_pickle=False)
        os.replace(made, place)
    except BaseException:
        shutil.rmtree(made)
        raise
