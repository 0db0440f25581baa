"""Operators that generated code can do in part: the rest is operators of their own.

before: TreeEnsembleClassifier(x, classlabels_strings) -> names, scores
after:  TreeEnsembleClassifier(x, classlabels_int64s = 0, 1, …) -> numbers, scores; LabelEncoder(numbers) -> names
"""

from __future__ import annotations

from jitonnx.ir.graph import Node
from jitonnx.passes.rewriting import Edit, Result, rule


@rule("names of classes", equation="classifier with names = names of (classifier with numbers)")
def names_of_classes(node: Node, edit: Edit) -> Result:
    """Labels that are strings, looked up by the numbers of classes; probabilities of support vector machines."""
    return node.operator.decompose(edit, node.inputs, len(node.outputs))


RULES = (names_of_classes,)
