"""Control flow that is known before the run."""

from __future__ import annotations

from jitonnx.ir.graph import Node
from jitonnx.ops.onnx.control_flow import If
from jitonnx.passes.rewriting import Edit, Result, array, rule


@rule("settled if", If, equation="If(true, then_branch, else_branch) = then_branch")
def settled_if(node: Node, edit: Edit) -> Result:
    """A choice that is known before the run: the nodes of one branch stand in the place of the node."""
    condition = None if node.inputs[0] is None else array(node.inputs[0])
    if condition is None or condition.size != 1:
        return None
    return edit.inline(node.bodies[0 if condition.item() else 1], node.captured)


RULES = (settled_if,)
