"""What is wrong with a row."""

from __future__ import annotations

from jitonnx.errors import InvalidArgument


class RowError(InvalidArgument):
    """A row that a model cannot be run on. The text names it, the column or input, and what fits."""
