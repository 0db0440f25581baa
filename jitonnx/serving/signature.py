"""A session's inputs and outputs as metadata of the Open Inference Protocol, and whether requests may share runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.serving.batching import Arrays

DTYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "BYTES": np.object_,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "INT8": np.int8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "UINT8": np.uint8,
}
"""NumPy's types by the protocol's."""
_DATATYPES = {f"tensor({name.lower()})": name for name in DTYPES if "INT" in name or name == "BOOL"} | {
    "tensor(double)": "FP64",
    "tensor(float)": "FP32",
    "tensor(float16)": "FP16",
    "tensor(string)": "BYTES",
}
"""The protocol's types by those of sessions."""
OPEN_SIZE = 8
"""The size that a row's open axes have in rows that are made up."""
_NEARLY = 1e-3
"""The part of their largest element by which outputs may differ for rounding."""


class Tensor(NamedTuple):
    """An input or output as metadata tell it. shape: -1 for sizes that are open."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def told(self) -> dict[str, Any]:
        """The tensor as metadata describe it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    def takes(self, shape: Sequence[int]) -> bool:
        """Whether an array of that shape fits."""
        return len(shape) == len(self.shape) and all(
            wanted in (-1, size) for wanted, size in zip(self.shape, shape, strict=True)
        )


def tensors_of(nodes: Sequence[Any]) -> tuple[Tensor, ...]:
    """A session's inputs or outputs. InvalidArgument for those that the protocol has no type for."""
    found = []
    for one in nodes:
        if one.type not in _DATATYPES:
            raise InvalidArgument(f"{one.name!r} is {one.type}, for which the Open Inference Protocol has no type")
        shape = tuple(size if isinstance(size, int) else -1 for size in one.shape or ())
        found.append(Tensor(one.name, _DATATYPES[one.type], shape))
    return tuple(found)


def made_up(inputs: Sequence[Tensor]) -> dict[str, np.ndarray]:
    """Three rows that differ, or as many as the inputs take: normal numbers, ones and zeros, texts."""
    random = np.random.default_rng(0)
    arrays = {}
    for one in inputs:
        sizes = [OPEN_SIZE if size < 0 else size for size in one.shape]
        if one.shape and one.shape[0] < 0:
            sizes[0] = 3
        if one.datatype == "BYTES":
            arrays[one.name] = np.array(["a", "b"], object)[random.integers(0, 2, sizes)]
        elif one.datatype.startswith("FP"):
            arrays[one.name] = random.standard_normal(sizes).astype(DTYPES[one.datatype])
        else:
            arrays[one.name] = random.integers(0, 2, sizes).astype(DTYPES[one.datatype])
    return arrays


def entanglement(run: Callable[[Arrays], Arrays], rows: Arrays) -> str:
    """What speaks against joining rows, found by runs of the first alone and beside the last; "" for nothing.

    rows: by input, [rows, ...]. Errors are those of the runs.
    """
    if all(np.array_equal(array[:1], array[-1:]) for array in rows.values()):
        return "the warm-up inputs have no two rows that differ"
    first = {name: array[:1] for name, array in rows.items()}
    beside = {name: np.concatenate([array[:1], array[-1:], array[-1:]]) for name, array in rows.items()}
    alone, joined = run(first), run(beside)
    for name, array in alone.items():
        other = joined[name]
        if not array.shape or len(array) != 1 or other.shape != (3, *array.shape[1:]):
            return f"output {name!r} is {list(array.shape)} for one row, {list(other.shape)} for three"
        if array.dtype == object:
            same = bool(np.array_equal(array, other[:1]))
        else:
            wide = array.astype(np.float64)
            bound = _NEARLY * max(1.0, float(np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))))
            same = bool(np.allclose(wide, other[:1].astype(np.float64), rtol=0, atol=bound, equal_nan=True))
        if not same:
            return f"output {name!r} of a row depends on the rows beside it"
    return ""
