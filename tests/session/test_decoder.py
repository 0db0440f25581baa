"""A small decoder with packed weights and caches: the tokens that onnxruntime makes, caches in place."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import jitonnx
from bench.decoder import SIZES, Generator, decoder
from jitonnx.api import targets

PROMPT = np.array([5, 17, 300, 2, 9, 44, 121])


def generator(module: Any, model: bytes, capacity: int) -> Generator:
    options = module.SessionOptions()
    options.intra_op_num_threads = 2
    return Generator(module, module.InferenceSession(model, options, providers=["CPUExecutionProvider"]), capacity)


@pytest.mark.parametrize("bits", [4, 8])
def test_greedy_tokens_are_those_of_onnxruntime(bits: int) -> None:
    model = decoder(SIZES["tiny"], bits).SerializeToString()
    both = [generator(module, model, 256) for module in (jitonnx, onnxruntime)]
    logits = [one.read(PROMPT) for one in both]
    np.testing.assert_allclose(*logits, rtol=1e-3, atol=1e-4)
    first = int(logits[0].argmax())
    ours, theirs = (one.tokens(first, 200) for one in both)
    assert ours == theirs
    assert len(set(ours)) > 10


def test_a_chunk_goes_on_where_the_prompt_ended() -> None:
    model = decoder(SIZES["tiny"], 4).SerializeToString()
    whole, parts = (generator(jitonnx, model, 64) for _ in range(2))
    expected = whole.read(PROMPT)
    parts.read(PROMPT[:3])
    np.testing.assert_allclose(parts.read(PROMPT[3:]), expected, rtol=1e-3, atol=1e-4)
    for one, other in zip(whole.caches, parts.caches, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-4)


def test_caches_that_are_past_and_present_are_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """No output but the logits is new, and what others left behind the rows that are written stays."""
    placed = []

    def noted(*given: Any) -> Any:
        placed.append(targets.in_place(*given))
        return placed[-1]

    monkeypatch.setattr("jitonnx.api.running.in_place", noted)
    one = generator(jitonnx, decoder(SIZES["tiny"], 4).SerializeToString(), 32)
    for cache in one.caches:
        cache.numpy()[:, :, 20:] = 7
    one.read(PROMPT)
    one.tokens(3, 2)
    assert [sum(target is not None for target in run) for run in placed] == [len(one.caches)] * 3
    for cache in one.caches:
        assert (cache.numpy()[:, :, 20:] == 7).all()
        assert (cache.numpy()[:, :, : len(PROMPT) + 2] != 0).any(-1).all()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["total", "past"])
def test_a_buffer_that_is_past_and_present_is_as_declared(name: str, strict: bool) -> None:
    """Its size is that of the buffer, whatever the dimension is called: exporters write "total", as of the mask."""
    model = decoder(SIZES["tiny"], 4)
    for output in model.graph.output:
        if output.name.startswith("present"):
            output.type.tensor_type.shape.dim[2].dim_param = name
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("session.strict_shape_type_inference", str(int(strict)))
    session = jitonnx.InferenceSession(model.SerializeToString(), options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound = Generator(jitonnx, session, 32)
        bound.read(PROMPT)
        bound.tokens(3, 2)
        feeds: dict[str, Any] = {"ids": PROMPT.reshape(1, -1), "attention_mask": np.ones((1, 7), np.int64)}
        feeds |= {
            one.name: np.zeros((1, one.shape[1], 16, one.shape[3]), np.float32) for one in session.get_inputs()[2:]
        }
        session.run(None, feeds)


def test_a_cache_of_its_own_leaves_the_past_as_it_was() -> None:
    session = jitonnx.InferenceSession(decoder(SIZES["tiny"], 4).SerializeToString())
    feeds: dict[str, Any] = {"ids": PROMPT.reshape(1, -1), "attention_mask": np.ones((1, 7), np.int64)}
    pasts = {one.name: np.zeros((1, one.shape[1], 16, one.shape[3]), np.float32) for one in session.get_inputs()[2:]}
    names = [one.name for one in session.get_outputs()]
    given = dict(zip(names, session.run(None, feeds | pasts), strict=True))
    assert not any(past.any() for past in pasts.values())
    assert all(given[name.replace("past", "present")][:, :, :7].any(-1).all() for name in pasts)


@pytest.mark.parametrize("element", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_caches_of_half_precision_are_read_as_they_lie(element: int) -> None:
    """The tokens are those of the same numbers in float32, but for what is rounded between operators."""
    depth, heads, steps, capacity = 32, (4, 2), 5, 48
    shapes = {"qkv": (1, "S", (heads[0] + 2 * heads[1]) * depth), "past_key": (1, heads[1], capacity, depth)}
    shapes["past_value"] = shapes["past_key"]
    runs = {}
    random = np.random.default_rng(0)
    steps_given = [random.standard_normal((1, n, shapes["qkv"][2])) for n in (steps, 1, 1, 9, 1)]
    for kind in (TensorProto.FLOAT, element):
        value = helper.make_tensor_value_info
        inputs = [value(name, kind, shape) for name, shape in shapes.items()]
        inputs += [value("lengths", TensorProto.INT32, [1]), value("total", TensorProto.INT32, [])]
        names = ["qkv", "", "", "past_key", "past_value", "lengths", "total"]
        options = {"num_heads": heads[0], "kv_num_heads": heads[1]}
        node = helper.make_node("GroupQueryAttention", names, ["y", "key", "value"], domain="com.microsoft", **options)
        outputs = [value("y", kind, [1, "S", heads[0] * depth])]
        outputs += [value(name, kind, [1, heads[1], capacity, depth]) for name in ("key", "value")]
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph([node], "attention", inputs, outputs)
        made = helper.make_model(graph, opset_imports=imports, ir_version=10)
        session = jitonnx.InferenceSession(made.SerializeToString())
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        caches = {name: np.zeros(shapes[name], dtype) for name in ("past_key", "past_value")}
        total, found = 0, []
        for given in steps_given:
            total += given.shape[1]
            feeds = {"qkv": given.astype(dtype), "lengths": np.array([total - 1], np.int32), **caches}
            feeds["total"] = np.array(total, np.int32)
            y, caches["past_key"], caches["past_value"] = session.run(None, feeds)
            found.append(y.astype(np.float32))
        runs[kind] = found
        if kind == element:
            calls = [call for code in session.engine.codes for call in code.plan.calls]
            (call,) = [call for call in calls if call.label.startswith("attention")]
            assert call.spec.stored == ("float16" if element == TensorProto.FLOAT16 else "bfloat16")
    error = 4e-3 if element == TensorProto.FLOAT16 else 3e-2
    for one, other in zip(*runs.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=error, atol=error)


@pytest.mark.parametrize("bits", [8, 4])
def test_caches_of_integers_are_written_in_place_and_read_as_they_lie(bits: int) -> None:
    """A chunk, then step by step, beside onnxruntime: the same bytes, what was there behind them stays."""
    depth, heads, capacity, total = 32, (4, 2), 48, 0
    stored, element = depth * bits // 8, TensorProto.INT8 if bits == 8 else TensorProto.UINT8
    value, width = helper.make_tensor_value_info, (heads[0] + 2 * heads[1]) * depth
    inputs = [value("qkv", TensorProto.FLOAT, [1, "S", width]), value("mask", TensorProto.INT64, [1, "T"])]
    inputs += [value(name, element, [1, heads[1], capacity, stored]) for name in ("past_key", "past_value")]
    inputs += [value("lengths", TensorProto.INT32, [1])]
    options = {"num_heads": heads[0], "kv_num_heads": heads[1], "kv_cache_bit_width": bits}
    options |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
    names = ["qkv", "", "", "past_key", "past_value", "lengths", "total", *[""] * 5, "k_scale", "v_scale"]
    nodes = [
        helper.make_node("Shape", ["mask"], ["size"], start=1, end=2),
        helper.make_node("Cast", ["size"], ["total"], to=TensorProto.INT32),
        helper.make_node("GroupQueryAttention", names, ["y", "key", "value"], domain="com.microsoft", **options),
    ]
    outputs = [value("y", TensorProto.FLOAT, [1, "S", heads[0] * depth])]
    outputs += [value(name, element, [1, heads[1], capacity, stored]) for name in ("key", "value")]
    random = np.random.default_rng(0)
    scales = [
        numpy_helper.from_array((random.uniform(1, 2, heads[1] * depth) * 3 / 2**bits).astype(np.float32), name)
        for name in ("k_scale", "v_scale")
    ]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, scales)
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    sessions = [module.InferenceSession(model) for module in (jitonnx, onnxruntime)]
    caches = [np.full((1, heads[1], capacity, stored), 7, helper.tensor_dtype_to_np_dtype(element)) for _ in "kv"]
    bound = [[module.OrtValue.ortvalue_from_numpy(x.copy()) for x in caches] for module in (jitonnx, onnxruntime)]
    for steps in (9, 1, 1, 5, 1):
        total += steps
        qkv = random.standard_normal((1, steps, width)).astype(np.float32)
        feeds = {"qkv": qkv, "mask": np.ones((1, total), np.int64), "lengths": np.array([total - 1], np.int32)}
        results = []
        for session, values in zip(sessions, bound, strict=True):
            binding = session.io_binding()
            for name, array in feeds.items():
                binding.bind_cpu_input(name, array)
            binding.bind_output("y")
            for past, present, one in zip(("past_key", "past_value"), ("key", "value"), values, strict=True):
                binding.bind_ortvalue_input(past, one)
                binding.bind_ortvalue_output(present, one)
            session.run_with_iobinding(binding)
            results.append(binding.copy_outputs_to_cpu()[0])
        np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)
        for ours, theirs in zip(*bound, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
            assert (ours.numpy()[:, :, total:] == 7).all()
    calls = [call for code in sessions[0].engine.codes for call in code.plan.calls]
    (call,) = [call for call in calls if call.label.startswith("attention")]
    assert call.spec.stored == f"int{bits}" and call.spec.in_place


def test_caches_of_a_window_are_moved_in_place() -> None:
    """A prompt, steps and a chunk beside onnxruntime, with more rows than the window: these go some at a time."""
    depth, heads, capacity, window, total = 16, (4, 2), 9, 6, 0
    value, element = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [value("qkv", element, [1, "S", (heads[0] + 2 * heads[1]) * depth])]
    inputs += [value(name, element, [1, heads[1], "C", depth]) for name in ("past_key", "past_value")]
    inputs += [value("lengths", TensorProto.INT32, [1]), value("total", TensorProto.INT32, [])]
    outputs = [
        value("y", element, None),
        *(value(name, element, [1, heads[1], "C", depth]) for name in ("key", "value")),
    ]
    names = ["qkv", "", "", "past_key", "past_value", "lengths", "total"]
    options = {"num_heads": heads[0], "kv_num_heads": heads[1], "local_window_size": window, "sliding_window_cache": 1}
    node = helper.make_node("GroupQueryAttention", names, ["y", "key", "value"], domain="com.microsoft", **options)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    sessions = [module.InferenceSession(model) for module in (jitonnx, onnxruntime)]
    caches = [np.zeros((1, heads[1], capacity, depth), np.float32) for _ in "kv"]
    bound = [[module.OrtValue.ortvalue_from_numpy(x.copy()) for x in caches] for module in (jitonnx, onnxruntime)]
    random, rows = np.random.default_rng(0), 0
    for steps in (5, *[1] * 9, 7, 1, 1, 1):
        total += steps
        for _ in range(steps):
            rows = window if rows == capacity else rows + 1
        feeds = {"qkv": random.standard_normal((1, steps, 8 * depth)).astype(np.float32)}
        feeds |= {"lengths": np.array([total - 1], np.int32), "total": np.array(total, np.int32)}
        results = []
        for session, values in zip(sessions, bound, strict=True):
            binding = session.io_binding()
            for name, array in feeds.items():
                binding.bind_cpu_input(name, array)
            binding.bind_output("y")
            for past, present, one in zip(("past_key", "past_value"), ("key", "value"), values, strict=True):
                binding.bind_ortvalue_input(past, one)
                binding.bind_ortvalue_output(present, one)
            session.run_with_iobinding(binding)
            results.append(binding.copy_outputs_to_cpu()[0])
        np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)
        for ours, theirs in zip(*bound, strict=True):
            np.testing.assert_array_equal(ours.numpy()[:, :, :rows], theirs.numpy()[:, :, :rows])
    (code, *_) = [one for one in sessions[0].engine.codes if one.plan.calls]
    assert [call.label for call in code.plan.calls].count("cache") == 2


def test_tensor_scatter_writes_a_cache_in_place() -> None:
    value, float32, int64 = helper.make_tensor_value_info, TensorProto.FLOAT, TensorProto.INT64
    inputs = [value("past", float32, [2, 3, 8, 4]), value("new", float32, [2, 3, "steps", 4]), value("at", int64, [2])]
    node = helper.make_node("TensorScatter", ["past", "new", "at"], ["present"], axis=-2)
    graph = helper.make_graph([node], "caches", inputs, [value("present", float32, [2, 3, 8, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    session = jitonnx.InferenceSession(model.SerializeToString())
    shapes = [(2, 3, 8, 4), (2, 3, 2, 4), (2,)]
    program = session.engine.program(tuple(shapes))
    assert program is not None and program.executable.shared == {(0, 0)}
    cache = jitonnx.OrtValue.ortvalue_from_numpy(np.zeros(shapes[0], np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("past", cache)
    binding.bind_ortvalue_output("present", cache)
    binding.bind_cpu_input("new", np.ones(shapes[1], np.float32))
    binding.bind_cpu_input("at", np.array([1, 6]))
    session.run_with_iobinding(binding)
    expected = np.zeros(shapes[0], np.float32)
    expected[0, :, 1:3] = expected[1, :, 6:8] = 1
    np.testing.assert_array_equal(cache.numpy(), expected)


def _logits(module: Any, model: bytes, element: int, tokens: list[int], steps: int) -> list[np.ndarray]:
    """The logits of each step of a model whose past grows by one: behind `tokens`, then behind the greatest logits'."""
    session = module.InferenceSession(model, providers=["CPUExecutionProvider"])
    key = value = np.zeros((1, 2, 0, 16), helper.tensor_dtype_to_np_dtype(element))
    found: list[np.ndarray] = []
    for step in range(steps):
        token = tokens[step] if step < len(tokens) else int(found[-1].argmax())
        feeds = {"ids": np.array([[token]]), "past_key": key, "past_value": value}
        logits, key, value = session.run(["logits", "key", "value"], feeds)
        found.append(logits.ravel().astype(np.float32))
    return found


def _small_decoder(element: int) -> bytes:
    """One layer of ONNX's Attention with past and present, to logits."""
    random, dtype, make = np.random.default_rng(5), helper.tensor_dtype_to_np_dtype(element), helper.make_node
    shapes = {"table": (64, 64), "q": (64, 64), "k": (64, 32), "v": (64, 32), "out": (64, 64), "head": (64, 64)}
    weights = [
        numpy_helper.from_array((random.standard_normal(s) * (1 if n == "table" else 0.25)).astype(dtype), f"w_{n}")
        for n, s in shapes.items()
    ]
    nodes = [make("Gather", ["w_table", "ids"], ["x"])]
    nodes += [make("MatMul", ["x", f"w_{name}"], [name]) for name in "qkv"]
    names = ["q", "k", "v", "", "past_key", "past_value"]
    nodes += [make("Attention", names, ["y", "key", "value"], q_num_heads=4, kv_num_heads=2, is_causal=1)]
    nodes += [make("MatMul", ["y", "w_out"], ["z"]), make("Add", ["x", "z"], ["s"])]
    nodes += [make("MatMul", ["s", "w_head"], ["logits"])]
    value = helper.make_tensor_value_info
    inputs = [value("ids", TensorProto.INT64, [1, 1])]
    inputs += [value(name, element, [1, 2, "past", 16]) for name in ("past_key", "past_value")]
    outputs = [value("logits", element, [1, 1, 64])]
    outputs += [value(name, element, [1, 2, "total", 16]) for name in ("key", "value")]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, weights)
    imports = [helper.make_opsetid("", 23)]
    return helper.make_model(graph, opset_imports=imports, ir_version=11).SerializeToString()


def test_greedy_tokens_of_attention_with_a_past_are_those_of_onnxruntime() -> None:
    model = _small_decoder(TensorProto.FLOAT)
    ours, theirs = (_logits(module, model, TensorProto.FLOAT, [3], 200) for module in (jitonnx, onnxruntime))
    tokens = [int(logits.argmax()) for logits in ours]
    assert len(set(tokens)) > 10
    assert tokens == [int(logits.argmax()) for logits in theirs]


def test_tokens_behind_a_past_of_float16_are_those_of_onnxruntime() -> None:
    """They are the same wherever two numbers of float16 apart tell which is the greatest. Both engines are given
    onnxruntime's tokens: each rounds in other places, so that nearer logits may change places."""
    model, kind = _small_decoder(TensorProto.FLOAT16), TensorProto.FLOAT16
    theirs = _logits(onnxruntime, model, kind, [3], 200)
    ours = _logits(jitonnx, model, kind, [3, *(int(logits.argmax()) for logits in theirs)], 200)
    told = 0
    for one, other in zip(ours, theirs, strict=True):
        second, first = np.sort(other)[-2:]
        step = float(np.spacing(np.float16(np.abs(other).max())))
        np.testing.assert_allclose(one, other, rtol=0, atol=4 * step)
        if first - second > 2 * step:
            told += 1
            assert one.argmax() == other.argmax()
    assert told > 150


@pytest.mark.parametrize("element", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_scattered_caches_of_half_precision_are_read_as_they_lie(element: int) -> None:
    """Attention-24 over caches that TensorScatter writes in place: the float32 of the same numbers, rounded."""
    shape, rows, capacity = [1, 2, 1, 32], 6, 24
    results = {}
    for kind in (TensorProto.FLOAT, element):
        value, make, dtype = helper.make_tensor_value_info, helper.make_node, helper.tensor_dtype_to_np_dtype(kind)
        inputs = [value(name, kind, shape) for name in ("q", "k", "v")]
        inputs += [value(name, kind, [1, 2, capacity, 32]) for name in ("keys", "values")]
        inputs += [value(name, TensorProto.INT64, [1]) for name in ("at", "count")]
        nodes = [
            make("TensorScatter", [name, new, "at"], [f"new_{name}"], axis=2)
            for name, new in (("keys", "k"), ("values", "v"))
        ]
        nodes += [make("Attention", ["q", "new_keys", "new_values", "", "", "", "count"], ["y"])]
        outputs = [value("y", kind, shape)]
        outputs += [value(name, kind, [1, 2, capacity, 32]) for name in ("new_keys", "new_values")]
        graph = helper.make_graph(nodes, "caches", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
        session = jitonnx.InferenceSession(model.SerializeToString())
        labels = {call.label: call for code in session.engine.codes for call in code.plan.calls}
        (call,) = [call for label, call in labels.items() if label.startswith("attention")]
        assert call.spec.stored == {1: "float32", 10: "float16", 16: "bfloat16"}[kind]
        numbers = np.random.default_rng(0).standard_normal((rows, 3, *shape))
        numbers = numbers.astype(helper.tensor_dtype_to_np_dtype(element)).astype(dtype)
        caches, found = [np.zeros((1, 2, capacity, 32), dtype) for _ in range(2)], []
        for row, (q, k, v) in enumerate(numbers):
            feeds = {"q": q, "k": k, "v": v, "keys": caches[0], "values": caches[1]}
            y, *caches = session.run(None, feeds | {"at": np.array([row]), "count": np.array([row + 1])})
            found.append(y.astype(np.float32))
        results[kind] = np.array(found)
    step = 2.0**-10 if element == TensorProto.FLOAT16 else 2.0**-7
    np.testing.assert_allclose(results[element], results[TensorProto.FLOAT], rtol=step, atol=step)
