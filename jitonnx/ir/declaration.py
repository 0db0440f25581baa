"""An input or output of a model as the outside knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.dtypes import DType
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from typing import TypeGuard


ANONYMOUS = frozenset({"any", "dynamic", "nan", "nil", "none", "null", "undefined", "unk", "unknown"})
"""What exporters write where they know nothing of a dimension; beside what has no letters, such as "?" and "-1"."""


def is_named(dim: int | str | None) -> TypeGuard[str]:
    """Whether a dimension has a name that says something: that it has the size of others of that name."""
    return isinstance(dim, str) and dim.strip().lower() not in ANONYMOUS and any(map(str.isalpha, dim))


class Declaration(NamedTuple):
    """A graph input or output as the file declares it."""

    name: str
    type: str
    """It is named in onnxruntime's words: `tensor(float)`, `seq(tensor(int64))`, `map(string,tensor(float))`, …"""
    dtype: DType | None
    """Element type of a tensor; None for other kinds, and where the file says nothing."""
    shape: tuple[int | str | None, ...] | None
    """Integers, names of dimension variables, None for unknown ones; None: not even the rank is known."""

    @property
    def is_tensor(self) -> bool:
        return self.type.startswith("tensor(")
