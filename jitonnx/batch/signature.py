"""What a model takes and gives a row at a time: its inputs and outputs without their first axis, the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.ir.dtypes import DType

if TYPE_CHECKING:
    from jitonnx.api.session import InferenceSession

_OF_TEXT = {f"tensor({dtype.text})": dtype for dtype in DType}


class Input(NamedTuple):
    """An input of a model. shape: of one row, None for sizes that are open; dtype: what its arrays have."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype} [{sizes}]"

    def misfit(self, shape: tuple[int, ...]) -> bool:
        """Whether a row of that shape is none for this input."""
        return len(shape) != len(self.shape) or any(
            size not in (None, given) for size, given in zip(self.shape, shape, strict=True)
        )


class Signature(NamedTuple):
    """Inputs, names of outputs, and the rows of a batch: None where any number will do."""

    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    rows: int | None


def signature_of(session: InferenceSession) -> Signature:
    """What a session's model takes a row at a time.

    InvalidArgument for inputs that are no tensors, have no axis for rows, or disagree about how many these are.
    """
    inputs, batches = [], {}
    for one in session.get_inputs():
        dtype = _OF_TEXT.get(one.type)
        if dtype is None or not one.shape:
            raise InvalidArgument(
                f"input {one.name!r} is {one.type} of shape {one.shape}: rows can be given to tensors alone, "
                "whose first axis is the batch"
            )
        sizes = tuple(size if isinstance(size, int) else None for size in one.shape)
        batches[one.name] = sizes[0]
        inputs.append(Input(one.name, sizes[1:], np.dtype(object) if dtype is DType.STRING else dtype.numpy))
    fixed = {rows for rows in batches.values() if rows is not None}
    if len(fixed) > 1 or (fixed and None in batches.values()):
        said = ", ".join(f"{name!r}: {'open' if rows is None else rows}" for name, rows in batches.items())
        raise InvalidArgument(f"the model's inputs disagree about the rows of a batch, their first axis ({said})")
    outputs = tuple(one.name for one in session.get_outputs())
    return Signature(tuple(inputs), outputs, fixed.pop() if fixed else None)
