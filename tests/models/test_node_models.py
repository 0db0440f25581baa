"""The onnx package's own node tests: each model evaluated, rewritten and evaluated again, and run by a session.

These models are written by the people who write the standard, one or more an operator and version: operators in their
plainest use, and functions spelled out. A model with an operator that jitonnx lacks is skipped, and refused by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from jitonnx import InferenceSession
from jitonnx.errors import NotImplemented
from jitonnx.ir.dtypes import of_numpy
from jitonnx.model import evaluate, load
from jitonnx.ops.registry import registry
from jitonnx.passes import optimize

LACKING = frozenset(
    {
        "AffineGrid",
        "Bernoulli",
        "BlackmanWindow",
        "CausalConvWithState",
        "Col2Im",
        "ConvInteger",
        "DFT",
        "DeformConv",
        "DequantizeLinear",
        "Det",
        "DynamicQuantizeLinear",
        "GridSample",
        "HammingWindow",
        "HannWindow",
        "If",
        "ImageDecoder",
        "LinearAttention",
        "Loop",
        "MatMulInteger",
        "MaxUnpool",
        "MelWeightMatrix",
        "NegativeLogLikelihoodLoss",
        "NonMaxSuppression",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
        "RandomUniformLike",
        "RegexFullMatch",
        "RoiAlign",
        "STFT",
        "Scan",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "SoftmaxCrossEntropyLoss",
        "SplitToSequence",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
        "ai.onnx.ml.ArrayFeatureExtractor",
        "ai.onnx.ml.Binarizer",
        "ai.onnx.ml.LabelEncoder",
        "ai.onnx.ml.TreeEnsemble",
        "ai.onnx.preview.FlexAttention",
        "ai.onnx.preview.training.Adagrad",
        "ai.onnx.preview.training.Adam",
        "ai.onnx.preview.training.Momentum",
    }
)
"""The operators of these models that jitonnx cannot run, no more and no less: one that is added is taken off here."""
NO_TENSORS = frozenset({"test_identity_opt", "test_identity_sequence"})
"""Models whose operators are all there, but whose inputs are sequences or optionals."""
DISPUTED = {
    "test_resize_downsample_scales_linear_align_corners": "takes the size before rounding, onnxruntime the one after",
    "test_resize_downsample_scales_cubic_align_corners": "the same",
}
"""Expected values that onnxruntime, too, does not reproduce."""

EXACT_ENOUGH = {"bfloat16": 2e-2, "float16": 2e-3}
"""Tolerances behind rewrites: what is recognised rounds once where what it stands for rounds at each step."""
ROUNDED_ONCE = 0.05
"""The same for compiled code, where more is fused."""


@cache
def node_tests() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the cases overflows on purpose here and there
        return {test.name: test for test in load_model_tests(kind="node")}


def nodes_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from nodes_of(graph.node)


@cache
def lacking(name: str) -> frozenset[str]:
    """The operators of a test's model that jitonnx has no declaration of, with their domain where it is not ONNX's."""
    model = node_tests()[name].model
    own = {("", "Constant"), *((function.domain, function.name) for function in model.functions)}  # done by the loader
    used = {(node.domain.removesuffix("ai.onnx"), node.op_type) for node in nodes_of(model.graph.node)} - own
    return frozenset(".".join(filter(None, operator)) for operator in used if operator not in registry())


def test_the_list_of_what_is_lacking_is_exact() -> None:
    assert frozenset().union(*map(lacking, node_tests())) == LACKING
    assert set(node_tests()) >= NO_TENSORS | set(DISPUTED)


def arrays(values: Any) -> list[np.ndarray]:
    return [np.asarray(numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x) for x in values]


@pytest.mark.parametrize("name", sorted(set(node_tests()) - set(DISPUTED)))
def test_node(name: str) -> None:
    test = node_tests()[name]
    data = test.model.SerializeToString()
    if lacking(name) or name in NO_TENSORS:
        with pytest.raises(NotImplemented) as refused:
            load(data)
        assert all(operator.rpartition(".")[2] in str(refused.value) for operator in lacking(name))
        pytest.skip(f"jitonnx lacks {', '.join(sorted(lacking(name))) or 'sequences and optionals'}")
    graph, rewritten, session = load(data).graph, load(data).graph, InferenceSession(data)
    optimize(rewritten, verify_fully=True)
    for inputs, outputs in test.data_sets:
        feeds = dict(zip((value.name for value in test.model.graph.input), arrays(inputs), strict=False))
        wanted = arrays(outputs)
        evaluated = [np.asarray(result) for result in evaluate(graph, feeds)]
        for result, expected in zip(evaluated, wanted, strict=True):
            assert_close(result, expected, test)
        for result, expected in zip(evaluate(rewritten, feeds), evaluated, strict=True):
            tolerance = EXACT_ENOUGH.get(expected.dtype.name, 1e-4)
            assert_close(np.asarray(result), expected, test, tolerance, tolerance)
        for result, expected in zip(session.run(None, feeds), wanted, strict=True):
            narrow = of_numpy(expected.dtype).name in ("FLOAT16", "BFLOAT16")
            assert_close(np.asarray(result), expected, test, *([ROUNDED_ONCE, ROUNDED_ONCE] if narrow else []))


def assert_close(
    result: np.ndarray, expected: np.ndarray, test: Any, rtol: float | None = None, atol: float | None = None
) -> None:
    """Equal, or within the tolerances given, else those of the test or of its narrow types."""
    assert result.shape == expected.shape and of_numpy(result.dtype) is of_numpy(expected.dtype)
    dtype = of_numpy(expected.dtype)
    if not dtype.is_float and expected.dtype.kind != "c":
        np.testing.assert_array_equal(result, expected)
        return
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    if rtol is None:
        rtol = {1: 0.15, 2: 2e-2}.get(dtype.itemsize, test.rtol)  # a step of the narrow types is that large
        atol = max(test.atol, rtol * 1e-2)
    np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol, atol or 0)
