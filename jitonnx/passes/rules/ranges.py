"""Ranges whose size only a run tells: the size is computed first, and is a size as any other from then on.

before: Range(start, limit, delta), floats, or integers with a delta that is computed -> [range.0]
after:  RangeSize(start, limit, delta) -> size; RangeOfSize(start, delta, size) -> [size]
"""

from __future__ import annotations

from jitonnx.ir.graph import Node
from jitonnx.ops.onnx.generators import Range, RangeOfSize, RangeSize
from jitonnx.passes.rewriting import Edit, Result, ranked, rule


@rule("range by its size", Range, equation="Range(start, limit, delta) = start + delta * (0, 1, …), size of it")
def range_by_its_size(node: Node, edit: Edit) -> Result:
    """Generated code fills memory of a size that is known, and so tells that first."""
    start, limit, delta = node.arguments
    if start is None or not ranked(node) or all(one.value is not node.output for one in edit.graph.bindings.values()):
        return None
    return edit.add(RangeOfSize(), start, delta, edit.add(RangeSize(), start, limit, delta))


RULES = (range_by_its_size,)
