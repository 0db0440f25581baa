"""What does nothing with the parameters or to the sizes that it is given, taken out."""

from __future__ import annotations

from jitonnx.ir.graph import Node
from jitonnx.ops.onnx.dropout import Dropout
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.pooling import AveragePool, MaxPool
from jitonnx.ops.onnx.reduction import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from jitonnx.ops.onnx.resize import Resize
from jitonnx.ops.onnx.shape import Expand
from jitonnx.ops.onnx.tile import Tile
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Result, array, ranked, rule, scalar


@rule("dropout", Dropout, equation="Dropout(x) = x, outside of training")
def dropout(node: Node, edit: Edit) -> Result:
    """Dropout keeps everything in inference, if nobody asks which elements it kept."""
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is not None and scalar(training) is None:
        raise Decline(Reason.NOT_CONSTANT, "training_mode")
    if training is not None and scalar(training):
        raise Decline(Reason.ATTRIBUTE, "training_mode")
    if any(value.users or value in edit.graph.results for value in node.outputs[1:]):
        raise Decline(Reason.OTHER_USES, "the mask")
    return [node.inputs[0], *node.outputs[1:]]  # type: ignore[list-item]


@rule("pad by nothing", Pad, equation="Pad(x, 0) = x")
def pad_by_nothing(node: Node, edit: Edit) -> Result:
    """A Pad whose pads are all 0."""
    pads = array(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    return node.inputs[0] if pads is not None and not pads.any() else None


@rule("tile by one", Tile, equation="Tile(x, 1) = x")
def tile_by_one(node: Node, edit: Edit) -> Result:
    """A Tile whose repeats are all 1."""
    repeats = array(node.inputs[1]) if node.inputs[1] is not None else None
    return node.inputs[0] if repeats is not None and (repeats == 1).all() else None


@rule("pool by one", MaxPool, AveragePool, equation="a pool over windows of one element, at every element = x")
def pool_by_one(node: Node, edit: Edit) -> Result:
    """A pool that looks at one element at a time (an adaptive pool to the size that the image already has)."""
    operator = node.operator
    assert isinstance(operator, MaxPool | AveragePool)
    ones = all(size == 1 for size in (*operator.kernel_shape, *(operator.strides or ())))
    if not ones or any(operator.pads or ()):
        return None
    if any(value.users or value in edit.graph.results for value in node.outputs[1:]):
        raise Decline(Reason.OTHER_USES, "the indices")
    return [node.inputs[0], *node.outputs[1:]]  # type: ignore[list-item]


@rule(
    "reduce over one",
    ReduceSum,
    ReduceMean,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    equation="a reduction over axes of size 1 = Reshape",
)
def reduce_over_one(node: Node, edit: Edit) -> Result:
    """A sum, mean, product or extremum of one element each."""
    x, axes = (*node.inputs, None)[:2]
    if x is None or axes is None or not ranked(node) or (given := array(axes)) is None or not given.size:
        return None
    if any(x.shape[axis] != 1 for axis in node.operator.axes_of(x, axes)):  # type: ignore[attr-defined]
        return None
    return edit.reshape(x, node.output.shape)


@rule("resize of one", Resize, equation="Resize of axes of size 1 = Expand")
def resize_of_one(node: Node, edit: Edit) -> Result:
    """One pixel enlarged is that pixel everywhere (pooled features spread over the image again)."""
    operator, x = node.operator, node.inputs[0]
    assert isinstance(operator, Resize)
    if x is None or not ranked(node) or operator.coordinate_transformation_mode == "tf_crop_and_resize":
        return None
    if any(a != b and a != 1 for a, b in zip(x.shape, node.output.shape, strict=False)):
        return None
    if operator.mode == "cubic" and operator.exclude_outside:
        return None
    return edit.add(Expand(), x, edit.dims(node.output.shape))


RULES = (dropout, pad_by_nothing, tile_by_one, pool_by_one, reduce_over_one, resize_of_one)
