"""Maps as inputs of graphs."""

from __future__ import annotations

from typing import Any

from jitonnx.ir.dtypes import DType


class Map(dict[Any, Any]):
    """A dict that knows the type of its values, which it would not tell if it were empty."""

    def __init__(self, items: dict[Any, Any], dtype: DType) -> None:
        super().__init__(items)
        self.dtype = dtype
