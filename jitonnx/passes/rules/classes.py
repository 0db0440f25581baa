"""Classifiers whose labels are strings: generated code finds the classes' numbers, and only their names are Python's.

before: TreeEnsembleClassifier(x, classlabels_strings) -> names, scores
after:  TreeEnsembleClassifier(x, classlabels_int64s = 0, 1, …) -> numbers, scores; LabelEncoder(numbers) -> names
"""

from __future__ import annotations

from jitonnx.ir.graph import Node
from jitonnx.passes.rewriting import Edit, Result, rule


@rule("names of classes", equation="classifier with names = names of (classifier with numbers)")
def names_of_classes(node: Node, edit: Edit) -> Result:
    """Labels that are strings, looked up by the numbers of classes."""
    numbered = node.operator.numbered()
    if numbered is None:
        return None
    from jitonnx.ops.ml.labels import LabelEncoder

    operator, names = numbered
    numbers, *others = edit.add_many(operator, node.inputs, len(node.outputs))
    table = LabelEncoder(keys_int64s=tuple(range(len(names))), values_strings=names)
    return [edit.add(table, numbers), *others]


RULES = (names_of_classes,)
