"""An input or output of a model as the outside knows it."""

from __future__ import annotations

from typing import NamedTuple

from jitonnx.ir.dtypes import DType


class Declaration(NamedTuple):
    """A graph input or output as the file declares it."""

    name: str
    type: str
    """In onnxruntime's words: `tensor(float)`, `seq(tensor(int64))`, `map(string,tensor(float))`, …"""
    dtype: DType | None
    """Element type of a tensor; None for other kinds, and where the file says nothing."""
    shape: tuple[int | str | None, ...] | None
    """Integers, names of dimension variables, None for unknown ones; None: not even the rank is known."""

    @property
    def is_tensor(self) -> bool:
        return self.type.startswith("tensor(")
