"""Loops that generate text, against onnxruntime, of small random models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import GraphProto, TensorProto, ValueInfoProto, helper, numpy_helper

from jitonnx import InferenceSession, errors
from jitonnx.ops.microsoft.search_scores import largest

VOCABULARY, HEADS, DEPTH = 11, 2, 4
WIDTH = HEADS * DEPTH
EOS, PAD = 3, 0
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


class Builder:
    """Nodes and weights of a graph."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, operator: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        names = [f"{operator}_{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant((self.random.normal(size=shape) * scale).astype(np.float32))

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def named(self, source: str, name: str) -> None:
        self.nodes.append(helper.make_node("Identity", [source], [name]))

    def graph(self, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> GraphProto:
        return helper.make_graph(self.nodes, "body", inputs, outputs, self.weights)


def tensor(name: str, kind: int, *shape: Any) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def gpt(layers: int = 2, seed: int = 0, vocabulary: int = VOCABULARY) -> GraphProto:
    """A decoder with learned positions."""
    b = Builder(seed)
    x = b.add("Gather", b.weight(vocabulary, WIDTH), "input_ids")
    x = b.add("Add", x, b.add("Gather", b.weight(40, WIDTH), "position_ids"))
    inputs = [tensor(name, INT32, "batch", "steps") for name in ("input_ids", "position_ids")]
    inputs.append(tensor("attention_mask", INT32, "batch", "total"))
    outputs = [tensor("logits", FLOAT, "batch", "steps", vocabulary)]
    for layer in range(layers):
        y, present = b.add(
            "Attention",
            x,
            b.weight(WIDTH, 3 * WIDTH, scale=0.5),
            b.weight(3 * WIDTH, scale=0.3),
            "attention_mask",
            f"past_{layer}",
            outputs=2,
            domain="com.microsoft",
            num_heads=HEADS,
            unidirectional=1,
        )
        x = b.add("Add", x, y)
        b.named(present, f"present_{layer}")
        inputs.append(tensor(f"past_{layer}", FLOAT, 2, "batch", HEADS, "past", DEPTH))
        outputs.append(tensor(f"present_{layer}", FLOAT, 2, "batch", HEADS, "all", DEPTH))
    b.named(b.add("MatMul", x, b.weight(WIDTH, vocabulary)), "logits")
    return b.graph(inputs, outputs)


def heads(b: Builder, x: str) -> str:
    apart = b.add("Reshape", x, b.constant(np.array([0, 0, HEADS, DEPTH])))
    return b.add("Transpose", apart, perm=[0, 2, 1, 3])


def attended(b: Builder, x: str, keys: str, values: str, mask: str = "") -> str:
    """x and what it attends to of keys and values [B, heads, steps, size]. mask: what is added to the scores."""
    queries = heads(b, b.add("MatMul", x, b.weight(WIDTH, WIDTH, scale=0.5)))
    scores = b.add("MatMul", queries, b.add("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = b.add("Add", scores, mask) if mask else scores
    y = b.add("MatMul", b.add("Softmax", scores, axis=3), values)
    side = b.add("Reshape", b.add("Transpose", y, perm=[0, 2, 1, 3]), b.constant(np.array([0, 0, WIDTH])))
    return b.add("Add", x, side)


def added_mask(b: Builder, mask: str) -> str:
    """[B, 1, 1, steps]: 0 for 1, -1e4 for 0."""
    wide = b.add("Unsqueeze", b.add("Cast", mask, to=FLOAT), b.constant(np.array([1, 2])))
    return b.add("Mul", b.add("Sub", wide, b.constant(np.float32(1))), b.constant(np.float32(1e4)))


CACHE = ("batch", HEADS, "past", DEPTH)


def decoder_parts(
    b: Builder, tokens: str, mask: str, cross: list[str], own: list[str] | None, vocabulary: int = VOCABULARY
) -> tuple[str, list[str]]:
    """Logits, and the caches of the decoder itself, of one layer."""
    x = b.add("Gather", b.weight(vocabulary, WIDTH), tokens)
    new = [heads(b, b.add("MatMul", x, b.weight(WIDTH, WIDTH, scale=0.5))) for _ in range(2)]
    presents = new if own is None else [b.add("Concat", a, c, axis=2) for a, c in zip(own, new, strict=True)]
    x = attended(b, x, *presents)
    x = attended(b, x, *cross, mask)  # type: ignore[call-arg]  # as many as there are
    return b.add("MatMul", x, b.weight(WIDTH, vocabulary)), presents


def encoder_of_tokens(*, old: bool) -> GraphProto:
    b = Builder(5)
    hidden = b.add("Gather", b.weight(VOCABULARY, WIDTH), "encoder_input_ids")
    inputs = [tensor(name, INT32, "batch", "steps") for name in ("encoder_input_ids", "encoder_attention_mask")]
    cross = [heads(b, b.add("MatMul", hidden, b.weight(WIDTH, WIDTH))) for _ in range(2)]
    names = ["present_key_cross_0", "present_value_cross_0"]
    outputs = [tensor(name, FLOAT, *CACHE) for name in names]
    if old:
        inputs.append(tensor("decoder_input_ids", INT32, "batch", 1))
        d = Builder(9)  # the decoder's weights
        d.nodes, d.weights = b.nodes, b.weights
        logits, own = decoder_parts(d, "decoder_input_ids", added_mask(b, "encoder_attention_mask"), cross, None)
        given = {"logits": logits, "encoder_hidden_states": hidden}
        given |= dict(zip(("present_key_self_0", "present_value_self_0"), own, strict=True))
        for name, source in given.items():
            b.named(source, name)
        outputs = [
            tensor("logits", FLOAT, "batch", 1, VOCABULARY),
            tensor("encoder_hidden_states", FLOAT, "batch", "steps", WIDTH),
            *(tensor(name, FLOAT, "batch", HEADS, 1, DEPTH) for name in ("present_key_self_0", "present_value_self_0")),
            *outputs,
        ]
    for source, name in zip(cross, names, strict=True):
        b.named(source, name)
    return b.graph(inputs, outputs)


def decoder_behind(*, hidden: bool, mask: bool = True, vocabulary: int = VOCABULARY) -> GraphProto:
    b = Builder(9)
    around = added_mask(b, "encoder_attention_mask") if mask else ""
    cross, own = ([f"past_{part}_{kind}_0" for part in ("key", "value")] for kind in ("cross", "self"))
    logits, presents = decoder_parts(b, "input_ids", around, cross, own, vocabulary)
    b.named(logits, "logits")
    inputs = [tensor("input_ids", INT32, "batch", 1)]
    if mask:
        inputs.append(tensor("encoder_attention_mask", INT32, "batch", "given"))
    if hidden:
        inputs.append(tensor("encoder_hidden_states", FLOAT, "batch", "given", WIDTH))
    outputs = [tensor("logits", FLOAT, "batch", 1, vocabulary)]
    for source, part in zip(presents, ("key", "value"), strict=True):
        b.named(source, f"present_{part}_self_0")
        inputs.append(tensor(f"past_{part}_self_0", FLOAT, *CACHE))
        outputs.append(tensor(f"present_{part}_self_0", FLOAT, "batch", HEADS, "all", DEPTH))
    for part in ("key", "value"):
        inputs.append(tensor(f"past_{part}_cross_0", FLOAT, "batch", HEADS, "given", DEPTH))
    return b.graph(inputs, outputs)


FRAMES, FEATURES, TOKENS = 6, 3, 80


def whisper() -> dict[str, GraphProto]:
    """An encoder of sound and a decoder behind it."""
    b, d = Builder(5), Builder(9)
    d.nodes, d.weights = b.nodes, b.weights
    frames = b.add("Transpose", "encoder_input_ids", perm=[0, 2, 1])
    hidden = b.add("MatMul", frames, b.weight(FEATURES, WIDTH))
    cross = [heads(b, b.add("MatMul", hidden, b.weight(WIDTH, WIDTH))) for _ in range(2)]
    logits, own = decoder_parts(d, "decoder_input_ids", "", cross, None, TOKENS)
    given = {"logits": logits, "encoder_hidden_states": hidden}
    given |= dict(zip(("present_key_self_0", "present_value_self_0"), own, strict=True))
    given |= dict(zip(("present_key_cross_0", "present_value_cross_0"), cross, strict=True))
    for name, source in given.items():
        b.named(source, name)
    outputs = [
        tensor("logits", FLOAT, "batch", "steps", TOKENS),
        tensor("encoder_hidden_states", FLOAT, "batch", FRAMES, WIDTH),
    ]
    outputs += [tensor(name, FLOAT, "batch", HEADS, "past", DEPTH) for name in list(given)[2:]]
    inputs = [
        tensor("encoder_input_ids", FLOAT, "batch", FEATURES, FRAMES),
        tensor("decoder_input_ids", INT32, "batch", "steps"),
    ]
    return {"encoder": b.graph(inputs, outputs), "decoder": decoder_behind(hidden=False, mask=False, vocabulary=TOKENS)}


def model(operator: str, inputs: list[Any], outputs: dict[str, int], **attributes: Any) -> tuple[bytes, dict[str, Any]]:
    """A model of one loop, and its feeds. inputs: arrays, None for those that are absent."""
    names = ["" if x is None else f"x{n}" for n, x in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    feeds = {f"x{n}": np.asarray(x) for n, x in enumerate(inputs) if x is not None}
    node = helper.make_node(
        operator,
        names,
        list(outputs),
        domain="com.microsoft",
        **{"eos_token_id": EOS, "pad_token_id": PAD, **attributes},
    )
    graph = helper.make_graph(
        [node],
        "search",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{name}_{axis}" for axis in range(x.ndim)]
            )
            for name, x in feeds.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), feeds


def check(made: tuple[bytes, dict[str, Any]], *, ending: bool = False) -> None:
    """Two runs of ours against onnxruntime's. ending: what is behind the last token is padding; onnxruntime leaves
    whatever was in that memory."""
    content, feeds = made
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    expected = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"]).run(None, feeds)
    session = InferenceSession(content)
    for _ in range(2):
        for ours, theirs in zip(session.run(None, feeds), expected, strict=True):
            end = np.flatnonzero((ours != PAD).any(0))[-1] + 1 if ending else None
            ours, theirs = ours[:, :end], theirs[:, :end]
            np.testing.assert_allclose(ours, theirs, 1e-4, 1e-4)


IDS = np.array([[5, 2, 7], [1, 4, 6]], np.int32)
PADDED = np.array([[0, 0, 7], [0, 4, 6], [1, 2, 4]], np.int32)


def scalar(value: Any) -> np.ndarray:
    return np.array(value, np.float32 if isinstance(value, float) else np.int32)


def beams(
    ids: np.ndarray = IDS,
    *,
    most: int = 9,
    least: int = 0,
    count: int = 3,
    returned: int = 2,
    penalty: float = 1.0,
    repetition: float = 1.0,
    rest: tuple[Any, ...] = (),
    scores: bool = True,
    graphs: dict[str, GraphProto] | None = None,
    **attributes: Any,
) -> tuple[bytes, dict[str, Any]]:
    inputs = [ids, *map(scalar, (most, least, count, returned, penalty, repetition)), *rest]
    outputs = {"sequences": INT32, **({"best": FLOAT, "scores": FLOAT} if scores else {})}
    return model("BeamSearch", inputs, outputs, **(graphs or {"decoder": gpt()}), **attributes)


MASK = np.ones(VOCABULARY, np.int32)
MASK[[5, 9]] = 0
FIRST = np.random.default_rng(3).integers(0, 2, (2, VOCABULARY)).astype(np.int32)
T5_NEW = {"decoder": decoder_behind(hidden=False), "encoder": encoder_of_tokens(old=False)}
T5_OLD = {"decoder": decoder_behind(hidden=True), "encoder": encoder_of_tokens(old=True)}
BEAMS = [
    beams(),
    beams(scores=False, returned=3),
    beams(PADDED, most=20, penalty=2.0),
    beams(PADDED, most=12, least=9, penalty=-1.0, early_stopping=1),
    beams(most=14, early_stopping=1, count=4),
    beams(count=1, returned=1),
    beams(IDS[:1], most=4),
    beams(repetition=1.7, no_repeat_ngram_size=2, most=16),
    beams(rest=(MASK, FIRST)),
    beams(rest=(None, None, np.array([[0, 1, 1], [1, 1, 1]], np.int32))),
    beams(graphs={"decoder": gpt(), "init_decoder": gpt()}),
    *(beams(most=15, graphs={"decoder": gpt(1, seed)}, penalty=0.6) for seed in range(1, 6)),
    *(
        beams(ids, graphs=graphs, model_type=1, decoder_start_token_id=2, most=most, vocab_size=VOCABULARY)
        for graphs in (T5_NEW, T5_OLD)
        for ids, most in ((IDS, 8), (PADDED, 15))
    ),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", range(len(BEAMS)))
def test_beams(place: int) -> None:
    check(BEAMS[place])


def single(operator: str, ids: np.ndarray, rest: list[Any], most: int = 9, **attributes: Any) -> Any:
    graphs = {"decoder": attributes.pop("decoder", gpt())}
    return model(operator, [ids, scalar(most), *rest], {"sequences": INT32}, **graphs, **attributes)


GREEDY = [
    single("GreedySearch", IDS, []),
    single("GreedySearch", PADDED, [scalar(0), scalar(1.3)], most=30, no_repeat_ngram_size=3),
    single("GreedySearch", IDS, [scalar(6), scalar(1.0), MASK, FIRST], vocab_size=VOCABULARY),
    single("GreedySearch", PADDED, [scalar(0), None, None, None, np.minimum(PADDED, 1)], most=12),
    *(single("GreedySearch", PADDED, [], most=25, decoder=gpt(1, seed)) for seed in range(1, 5)),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", range(len(GREEDY)))
def test_greedy(place: int) -> None:
    check(GREEDY[place], ending=True)


SAMPLED = [
    *(
        single("Sampling", PADDED, [scalar(0), None, None, None, None, None, scalar(seed)], most=20, **attributes)
        for seed in (0, 7, 12345)
        for attributes in ({"top_p": 0.9}, {"top_p": 0.5, "custom": 1}, {"top_p": 0.0, "min_tokens_to_keep": 3})
    ),
    single(
        "Sampling",
        PADDED,
        [scalar(4), scalar(1.2), MASK, None, None, None, scalar(3)],
        temperature=1.5,
        top_p=0.8,
        vocab_size=VOCABULARY,
    ),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", range(len(SAMPLED)))
def test_sampled(place: int) -> None:
    check(SAMPLED[place])


SOUND = np.random.default_rng(6).normal(size=(2, FEATURES, FRAMES)).astype(np.float32)
SPECIAL = {
    "decoder_start_token_id": 21,
    "translate_token_id": 22,
    "transcribe_token_id": 23,
    "start_of_lm_token_id": 24,
    "no_speech_token_id": 25,
    "no_timestamps_token_id": 26,
    "beginning_timestamp_token_id": 27,
    "eos_token_id": 20,
    "pad_token_id": 20,
}


def of_sound(start: Any = None, processor: int = 0, temperature: float | None = None, *, most: int = 14) -> Any:
    tokens = None if start is None else np.tile(np.array(start, np.int32), (2, 1))
    inputs = [SOUND, *map(scalar, (most, 0, 3, 2, 1.0, 1.0)), None, None, None, tokens, scalar(processor)]
    inputs += [None, None, None if temperature is None else scalar(temperature)]
    outputs = {"sequences": INT32, "best": FLOAT, "scores": FLOAT}
    content, feeds = model("WhisperBeamSearch", inputs, outputs, **whisper(), **SPECIAL)
    return content, feeds


SOUNDS = [
    of_sound(),
    of_sound([21, 23, 26]),
    of_sound([21, 23], 1, most=20),
    of_sound([21, 23, 30, 5], 1),
    of_sound([21], 0, 0.5),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", range(len(SOUNDS)))
def test_sound(place: int) -> None:
    check(SOUNDS[place])


def test_presence() -> None:
    """onnxruntime 1.32 takes the sum of the mask from the first token of the first row alone."""
    mask = np.zeros((3, VOCABULARY), np.int32)
    mask[1, 5:] = 1
    content, feeds = single(
        "Sampling",
        PADDED,
        [scalar(0), None, None, None, None, mask, scalar(3)],
        most=30,
        presence_penalty=1e9,
        top_p=0.9,
    )
    tokens = InferenceSession(content).run(None, feeds)[0][:, 3:]
    assert (tokens[1] < 5).all() and (tokens[[0, 2]] >= 5).any()


def test_largest() -> None:
    scores = np.random.default_rng(8).integers(0, 5, (4, 30)).astype(np.float32)
    scores[1, ::2], scores[2, 3] = -np.inf, np.nan
    for count in (1, 7, 30, 40):
        np.testing.assert_array_equal(largest(scores, count), np.argsort(-scores, 1, kind="stable")[:, :count])


def test_refused() -> None:
    shared = gpt()
    shared.input.append(tensor("past_sequence_length", INT32, 1))
    with pytest.raises(errors.Error, match="caches that past and present share"):
        InferenceSession(beams(graphs={"decoder": shared})[0])
    with pytest.raises(errors.Error, match="model_type is 1"):
        InferenceSession(beams(model_type=1)[0])
    with pytest.raises(errors.Error, match="eos_token_id is -1"):
        InferenceSession(beams(eos_token_id=-1)[0])
    content, feeds = beams(most=3)
    with pytest.raises(errors.Error, match="max_length is 3"):
        InferenceSession(content).run(None, feeds)
