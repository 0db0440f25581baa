"""Attention of one step to caches, and to blocks of them, against onnxruntime."""

import re
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession
from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-4)
RANDOM = np.random.default_rng(31)
BATCH, HEADS, DEPTH, ROWS = 4, 2, 4, 8


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def step(
    past: int = 3,
    *,
    packed: bool = False,
    mask: bool = False,
    added: tuple[int, ...] = (),
    beams: int = 0,
    bias: bool = False,
    **attributes: Any,
) -> Case:
    """A DecoderMaskedMultiHeadAttention behind `past` steps."""
    width = HEADS * DEPTH
    query, key, value = (normal(BATCH, 1, width) for _ in range(3))
    if packed:
        query, key, value = np.concatenate([query, key, value], 2), None, None
    inputs: list[Any] = [query, key, value]
    inputs.append(RANDOM.integers(0, 2, (BATCH, past + 1)).astype(np.int32) if mask else None)
    inputs.append(normal(*added, 1, past + 1) if added else None)
    inputs += [normal(BATCH, HEADS, ROWS, DEPTH), normal(BATCH, HEADS, ROWS, DEPTH), np.array([past], np.int32)]
    inputs.append(np.array([beams], np.int32) if beams else None)
    inputs.append(RANDOM.integers(0, beams, (BATCH // beams, beams, ROWS)).astype(np.int32) if beams else None)
    inputs.append(normal(3 * width) if bias else None)
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"num_heads": HEADS, "past_present_share_buffer": 1, **attributes}
    return case("DecoderMaskedMultiHeadAttention", 1, *inputs, outputs=3, **attributes)


KEYS, VALUES = normal(BATCH, HEADS, 5, DEPTH), normal(BATCH, HEADS, 5, DEPTH)
QUERY = normal(BATCH, 1, HEADS * DEPTH)
across = partial(case, "DecoderMaskedMultiHeadAttention", 1, QUERY, KEYS, VALUES, num_heads=HEADS)
CASES: list[Case] = [
    step(),
    step(0),
    step(7, mask=True, scale=0.3),
    step(added=(1, HEADS)),
    step(added=(BATCH, 1), mask=True),
    step(beams=2),
    step(5, beams=4, mask=True, added=(1, HEADS)),
    step(bias=True),
    across(),
    across(RANDOM.integers(0, 2, (BATCH, 5)).astype(np.int32)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_step(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", [step(mask=True, output_qk=1), step(6, beams=2, added=(1, 1), output_qk=1)], ids=str)
def test_scores(case: Case) -> None:
    """qk, whose type onnxruntime wants to be told."""
    names = ["" if x is None else f"x{n}" for n, x in enumerate(case.inputs)]
    node = helper.make_node(case.operator, names, ["y", "keys", "values", "qk"], domain=case.domain, **case.attributes)
    feeds = {f"x{n}": x for n, x in enumerate(case.inputs) if x is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    model = helper.make_model(
        helper.make_graph([node], "scores", inputs, outputs),
        opset_imports=[helper.make_opsetid(case.domain, 1), helper.make_opsetid("", 20)],
        ir_version=10,
    ).SerializeToString()
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    for ours, theirs in zip(InferenceSession(model).run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-3)


def layouts(count: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of blocks at random, those of a query's own among them, with -1 behind a layout's last."""
    masks = np.tril(RANDOM.integers(0, 2, (count, blocks, blocks))) | np.eye(blocks, dtype=np.int64)
    ends = np.cumsum(masks.sum(2), 1)
    columns = np.full((count, ends.max()), -1, np.int32)
    for layout, mask in enumerate(masks):
        columns[layout, : ends[layout, -1]] = np.nonzero(mask)[1]
    return np.concatenate([np.zeros((count, 1)), ends], 1).astype(np.int32), columns


APART = ("x0", "x1", "x2", "x3", "x4", "x8")
"""The inputs that have rows of the batch."""


def sparse(
    steps: int, lengths: list[int], *, count: int = 2, packed: bool = False, rotary: bool = False, **attributes: Any
) -> tuple[bytes, dict[str, np.ndarray]]:
    """A SparseAttention of four heads to two with 64 rows, and feeds. onnxruntime shares the caches' memory."""
    batch, depth, rows, total = len(lengths), 16, 64, max(lengths)
    widths = [(4 + 2 * 2) * depth] if packed else [4 * depth, 2 * depth, 2 * depth]
    inputs: list[Any] = [*(normal(batch, steps, width) for width in widths), *[None] * (3 - len(widths))]
    caches = [normal(batch, 2, rows, depth) for _ in range(2)]
    inputs += [*caches, *layouts(count, 4), np.array(total, np.int32), np.array(lengths, np.int32)]
    if rotary:
        angles = RANDOM.uniform(0, 6, (rows, depth // 2))
        inputs += [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
        attributes["do_rotary"] = 1
    names = ["" if x is None else f"x{n}" for n, x in enumerate(inputs)]
    node = helper.make_node(
        "SparseAttention",
        names,
        ["y", "keys", "values"],
        name="node",
        domain="com.microsoft",
        **{"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16, **attributes},
    )
    feeds = {f"x{n}": x for n, x in enumerate(inputs) if x is not None}
    graph = helper.make_graph(
        [node],
        "sparse",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(x.dtype), ("batch", *x.shape[1:]) if name in APART else x.shape
            )
            for name, x in feeds.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output],
    )
    opsets = [helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), feeds


def shared(model: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """onnxruntime's outputs, with the presents in the memory of the pasts."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()) for name, x in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    binding.bind_ortvalue_output("keys", values["x3"])
    binding.bind_ortvalue_output("values", values["x4"])
    session.run_with_iobinding(binding)
    return [x.numpy().copy() for x in (binding.get_outputs()[0], values["x3"], values["x4"])]


SPARSE: list[tuple[bytes, dict[str, np.ndarray]]] = [
    sparse(40, [40, 40]),
    sparse(64, [64], count=4, packed=True, rotary=True),
    sparse(1, [64, 17], rotary=True),
    sparse(1, [1]),
    sparse(3, [50, 35], count=1, packed=True, scale=0.4),
    sparse(3, [50, 35], rotary=True, rotary_interleaved=1),
]


@pytest.mark.parametrize("place", range(len(SPARSE)))
def test_blocks(place: int) -> None:
    """Each row of the batch against a run of its own: onnxruntime 1.32 takes the weights of one row for another's where
    their lengths differ."""
    model, feeds = SPARSE[place]
    ours = InferenceSession(model).run(None, feeds)
    for row, length in enumerate(feeds["x8"]):
        alone = {name: x[row : row + 1] if name in APART else x for name, x in feeds.items()}
        expected = shared(model, {**alone, "x7": np.asarray(length)})
        for one, other in zip(ours, expected, strict=True):
            np.testing.assert_allclose(one[row : row + 1], other, 1e-4, 1e-5)


REFUSED = [
    (step(past_present_share_buffer=0), "past_present_share_buffer is 0"),
    (across(None, normal(1, 1, 1, 5)), "no attention_bias"),
    (case("DecoderMaskedMultiHeadAttention", 1, normal(2, 2, 8), KEYS, VALUES, num_heads=2), r"\[batch, 1"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)


def test_layouts_are_refused() -> None:
    model, _ = sparse(40, [40, 40], count=3)
    with pytest.raises(Exception, match=re.escape("num_heads, 4, is a multiple")):
        InferenceSession(model)
    assert onnx.load_model_from_string(model).graph.node
