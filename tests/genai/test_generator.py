"""Generating tokens: against onnxruntime-genai where it is there, and against the session step by step."""

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

import jitonnx
import jitonnx.genai as ours
from jitonnx.genai.last_logits import with_last_logits
from tests.genai.folders import SHAPE, WINDOW, with_state, write_folder, write_windowed_folder

PROMPT = np.random.default_rng(1).integers(4, SHAPE.vocabulary, 23).astype(np.int32)
ROWS = np.full((3, 9), 3, np.int32)  # 3 pads
ROWS[0], ROWS[1, :4], ROWS[2, :1] = PROMPT[:9], PROMPT[9:13], 7


@pytest.fixture(scope="module")
def model(model_folder: Path) -> ours.Model:
    return ours.Model(str(model_folder))


def generate(genai: Any, model: Any, prompt: np.ndarray, **options: Any) -> tuple[list[list[int]], list[list[int]]]:
    """The sequences, and the tokens of each step."""
    params = genai.GeneratorParams(model)
    params.set_search_options(**options)
    generator = genai.Generator(model, params)
    generator.append_tokens(prompt)
    steps = []
    while not generator.is_done():
        generator.generate_next_token()
        steps.append(generator.get_next_tokens().tolist())
    return [generator.get_sequence(row).tolist() for row in range(options.get("batch_size", 1))], steps


def greedy(session: jitonnx.InferenceSession, prompt: np.ndarray, count: int) -> list[int]:
    """Tokens by whole runs of the session, without any past."""
    tokens = prompt.tolist()
    empty = {one.name: np.zeros((1, 2, 0, SHAPE.depth), np.float32) for one in session.get_inputs()[2:]}
    for _ in range(count):
        feeds = {"ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
        tokens.append(int(session.run(["logits"], feeds | empty)[0][0, -1].argmax()))
    return tokens


@pytest.mark.parametrize("options", [{}, {"past_present_share_buffer": False}, {"chunk_size": 5}])
def test_greedy_tokens_are_those_of_whole_runs(model: ours.Model, model_folder: Path, options: dict[str, Any]) -> None:
    session = jitonnx.InferenceSession(str(model_folder / "model.onnx"))
    sequences, _ = generate(ours, model, PROMPT, max_length=40, **options)
    assert sequences[0] == greedy(session, PROMPT, 17)[: len(sequences[0])]
    assert len(sequences[0]) == 40


@pytest.mark.parametrize("share", [True, False])
def test_caches_grow_with_the_sequences(model: ours.Model, model_folder: Path, share: bool) -> None:
    """Beyond the rows that caches have at first."""
    session = jitonnx.InferenceSession(str(model_folder / "model.onnx"))
    prompt = np.tile(PROMPT, 6)[:125]
    sequences, _ = generate(ours, model, prompt, max_length=140, past_present_share_buffer=share, min_length=140)
    assert sequences[0][:130] == greedy(session, prompt, 5)


def test_rows_of_a_batch_are_as_alone(model: ours.Model) -> None:
    together, _ = generate(ours, model, ROWS, max_length=30, min_length=30, batch_size=3)
    for row, count in ((0, 9), (1, 4), (2, 1)):
        alone, _ = generate(ours, model, ROWS[row, :count], max_length=count + 21, min_length=count + 21)
        assert together[row][9:] == alone[0][count:]


CASES: list[dict[str, Any]] = [
    {"max_length": 60},
    {"max_length": 60, "past_present_share_buffer": False},
    {"max_length": 60, "chunk_size": 7},
    {"max_length": 60, "batch_size": 3},
    {"max_length": 60, "batch_size": 3, "do_sample": True, "random_seed": 7, "top_k": 5},
    {"max_length": 60, "do_sample": True, "random_seed": 7, "top_k": 20, "top_p": 0.8},
    {"max_length": 60, "do_sample": True, "random_seed": 7, "top_k": 0, "top_p": 0.9, "temperature": 0.2},
    {"max_length": 60, "do_sample": True, "random_seed": 7, "top_k": 0, "top_p": 0.0},
    {"max_length": 60, "do_sample": True, "top_k": 1},
    {"max_length": 60, "do_sample": True, "random_seed": 7, "repetition_penalty": 1.5, "min_length": 40},
    {"max_length": 60, "no_repeat_ngram_size": 1},
    {"max_length": 60, "no_repeat_ngram_size": 3, "batch_size": 3},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_tokens_are_onnxruntime_genais(model: ours.Model, model_folder: Path, options: dict[str, Any]) -> None:
    """Also those that are drawn: a seed gives the same ones."""
    theirs = pytest.importorskip("onnxruntime_genai")
    prompt = ROWS if "batch_size" in options else PROMPT
    assert generate(ours, model, prompt, **options) == generate(
        theirs, theirs.Model(str(model_folder)), prompt, **options
    )


def test_the_last_token_that_ends_is_not_in_the_sequence(
    language_model: ModelProto, model: ours.Model, tmp_path: Path
) -> None:
    """As with onnxruntime-genai; get_next_tokens has it."""
    sequences, _ = generate(ours, model, ROWS, max_length=60, batch_size=3)
    ends = sorted({sequences[0][14], sequences[1][20], sequences[2][12]})
    folder = write_folder(tmp_path / "ending", language_model, eos_token_id=ends)
    made = generate(ours, ours.Model(str(folder)), ROWS, max_length=60, batch_size=3)
    length = len(made[0][0])
    assert length < 60 and len(made[1]) == length - 9 + 1
    assert set(made[1][-1]) <= {*ends, 3} and 3 in made[1][-1]
    theirs = pytest.importorskip("onnxruntime_genai")
    assert made == generate(theirs, theirs.Model(str(folder)), ROWS, max_length=60, batch_size=3)


def started(model: ours.Model, prompt: np.ndarray = PROMPT, **options: Any) -> ours.Generator:
    params = ours.GeneratorParams(model)
    params.set_search_options(**{"max_length": 100, **options})
    generator = ours.Generator(model, params)
    generator.append_tokens(prompt)
    return generator


def steps(generator: ours.Generator, count: int) -> list[int]:
    for _ in range(count):
        generator.generate_next_token()
    found: list[int] = generator.get_sequence(0).tolist()
    return found


@pytest.mark.parametrize("share", [True, False])
def test_rewinding_goes_the_same_way_again(model: ours.Model, share: bool) -> None:
    generator = started(model, past_present_share_buffer=share)
    first = steps(generator, 12)
    generator.rewind_to(len(PROMPT) + 3)
    assert generator.token_count() == len(PROMPT) + 3
    assert steps(generator, 9) == first
    generator.rewind_to(10)
    generator.append_tokens(PROMPT[10:])
    assert steps(generator, 12) == first
    generator.rewind_to(0)
    generator.append_tokens(PROMPT)
    assert steps(generator, 12) == first


def test_a_batch_is_rewound_to_its_beginning(model: ours.Model) -> None:
    generator = started(model, ROWS, batch_size=3)
    first = steps(generator, 5)
    with pytest.raises(jitonnx.errors.InvalidArgument, match="batch_size"):
        generator.rewind_to(9)
    with pytest.raises(jitonnx.errors.InvalidArgument, match="only be called once"):
        generator.append_tokens(ROWS)
    generator.rewind_to(0)
    generator.append_tokens(ROWS)
    assert steps(generator, 5) == first


def test_seeds(model: ours.Model) -> None:
    options: dict[str, Any] = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 3.0}
    once, again, other = (generate(ours, model, PROMPT, max_length=60, random_seed=s, **options)[0] for s in (5, 5, 6))
    assert once == again != other
    free = [generate(ours, model, PROMPT, max_length=60, **options)[0] for _ in range(2)]
    assert free[0] != free[1]


def test_logits_can_be_looked_at_and_set(model: ours.Model) -> None:
    generator = started(model)
    logits = generator.get_logits()
    assert logits.shape == (1, 1, SHAPE.vocabulary) and logits.dtype == np.float32
    wanted = np.zeros((1, SHAPE.vocabulary), np.float32)
    wanted[0, 77] = 1
    generator.set_logits(wanted)
    generator.generate_next_token()
    assert generator.get_next_tokens().tolist() == [77]
    np.testing.assert_array_equal(generator.get_output("logits")[0, -1], logits[0, 0])
    assert generator.get_input("past.0.key").shape[2] >= generator.token_count()


def test_a_prompt_that_is_appended_to_is_as_one(model: ours.Model) -> None:
    generator = started(model, PROMPT[:11])
    generator.append_tokens(PROMPT[11:])
    assert steps(generator, 9) == generate(ours, model, PROMPT, max_length=len(PROMPT) + 9)[0][0]


def test_a_fresh_token_and_an_appended_one(model: ours.Model) -> None:
    """A token that was chosen and not read yet goes in front of those that are appended."""
    generator = started(model)
    steps(generator, 1)
    generator.append_tokens(PROMPT[:3])
    tokens = generator.get_sequence(0)
    assert steps(generator, 4) == generate(ours, model, tokens, max_length=len(tokens) + 4)[0][0]


@pytest.mark.parametrize("share", [True, False])
def test_runs_that_are_ended_are_made_again(model: ours.Model, share: bool) -> None:
    generator = started(model, past_present_share_buffer=share)
    first = steps(generator, 9)
    generator.rewind_to(len(PROMPT))
    steps(generator, 2)
    generator.set_runtime_option("terminate_session", "1")
    with pytest.raises(jitonnx.errors.Error):
        steps(generator, 1)
    with pytest.raises(jitonnx.errors.Error):
        generator.append_tokens(PROMPT)
    assert generator.token_count() == len(PROMPT) + 2
    generator.set_runtime_option("terminate_session", "0")
    assert steps(generator, 7) == first


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_length": 10000}, r"max_length \(10000\) cannot be greater than model context_length \(256\)"),
    ({"batch_size": 0}, "batch_size"),
    ({"do_sample": True, "top_p": 1.5}, "top_p must be between"),
    ({"do_sample": True, "top_k": 400}, r"top_k \(400\)"),
    ({"do_sample": True, "top_k": -1}, "top_k"),
    ({"do_sample": True, "temperature": -1.0}, "temperature"),
    ({"num_beams": 3, "do_sample": True}, "cannot be drawn in a beam search"),
    ({"num_beams": 0}, "num_beams"),
    ({"num_beams": 3, "num_return_sequences": 4}, r"num_return_sequences \(4\) must be in \[1, 3\]"),
    ({"num_beams": 3, "early_stopping": "never"}, "early_stopping is 'never'"),
    ({"top_q": 3}, "'top_q' is no search option"),
    ({"top_k": 2.5}, "whole number"),
    ({"do_sample": 1}, "True or False"),
    ({"top_p": "much"}, "a number is needed"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=str)
def test_wrong_options(model: ours.Model, options: dict[str, Any], message: str) -> None:
    params = ours.GeneratorParams(model)
    with pytest.raises(jitonnx.errors.Error, match=message):
        params.set_search_options(**options)
        ours.Generator(model, params)


def test_states_take_in_no_padding(language_model: ModelProto, tmp_path: Path) -> None:
    model = ours.Model(str(write_folder(tmp_path / "state", with_state(language_model))))
    params = ours.GeneratorParams(model)
    params.set_search_options(batch_size=2)
    generator = ours.Generator(model, params)
    with pytest.raises(NotImplementedError, match="which would take in the padding"):
        generator.append_tokens(np.array([[5, 6, 7], [8, 3, 3]], np.int32))
    generator.append_tokens(np.array([[5, 6, 7], [8, 9, 10]], np.int32))
    generator.generate_next_token()


def test_wrong_tokens(model: ours.Model) -> None:
    for tokens, message in (
        (np.array([], np.int32), "empty"),
        (np.array([1.5]), "whole numbers"),
        (np.array([4, 5000]), "token 5000 is none of the model's 300"),
        (np.array([-1]), "token -1"),
        (np.full(300, 5), r"exceeds max length \(100\)"),
    ):
        with pytest.raises(jitonnx.errors.InvalidArgument, match=message):
            started(model, tokens)
    params = ours.GeneratorParams(model)
    for call in (ours.Generator.generate_next_token, ours.Generator.get_logits):
        with pytest.raises(jitonnx.errors.InvalidArgument, match="append_tokens"):
            call(ours.Generator(model, params))
    generator = started(model, max_length=len(PROMPT) + 1)
    steps(generator, 1)
    assert generator.is_done()
    with pytest.raises(jitonnx.errors.InvalidArgument, match="max_length"):
        generator.generate_next_token()


def _without(config: dict[str, Any], *path: str) -> None:
    for name in path[:-1]:
        config = config[name]
    del config[path[-1]]


def _with(config: dict[str, Any], value: Any, *path: str) -> None:
    for name in path[:-1]:
        config = config[name]
    config[path[-1]] = value


CONFIGS: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (lambda c: _without(c, "model", "decoder", "filename"), "model.decoder.filename"),
    (lambda c: _with(c, "other.onnx", "model", "decoder", "filename"), "other.onnx does not exist"),
    (lambda c: _with(c, 5, "model", "decoder"), r"model\.decoder in .* is 5: an object"),
    (lambda c: _with(c, [1], "model", "decoder", "session_options"), "session_options in .*: an object"),
    (lambda c: _with(c, "2", "model", "decoder", "session_options", "intra_op_num_threads"), "intra_op_num_threads"),
    (lambda c: _with(c, {"cuda": {}}, "model", "decoder", "session_options", "provider_options"), "list of objects"),
    (lambda c: _with(c, [{"cuda": {}}], "model", "decoder", "session_options", "provider_options"), "asks for cuda"),
    (lambda c: _with(c, "much", "model", "context_length"), "context_length in .*genai_config.json is 'much'"),
    (lambda c: _with(c, 0, "model", "context_length"), "context_length"),
    (lambda c: _with(c, 999, "model", "vocab_size"), "vocab_size in .* is 999"),
    (lambda c: _with(c, [301], "model", "eos_token_id"), "eos_token_id in .* has 301"),
    (lambda c: _with(c, ["2"], "model", "eos_token_id"), "eos_token_id"),
    (lambda c: _with(c, "tokens", "model", "decoder", "inputs", "input_ids"), "no input 'tokens'"),
    (lambda c: _with(c, "now.%d.key", "model", "decoder", "outputs", "present_key_names"), "no output 'now.0.key'"),
    (
        lambda c: _with(
            c, {"window_size": "8", "slide_key_value_cache": False, "layers": [0]}, "model", "decoder", "sliding_window"
        ),
        "window_size in .* is '8'",
    ),
    (lambda c: _with(c, 4, "search"), "search in .* is 4: an object"),
    (lambda c: _with(c, "x", "search", "top_k"), "search.top_k in .*a number is needed"),
    (lambda c: _with(c, {"filename": "vision.onnx"}, "model", "vision"), "model.vision"),
]


@pytest.mark.parametrize(("change", "message"), CONFIGS, ids=[message for _, message in CONFIGS])
def test_wrong_configurations(
    model_folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    """Errors name the file and the value."""
    config = json.loads((model_folder / "genai_config.json").read_text())
    change(config)
    (tmp_path / "genai_config.json").write_text(json.dumps(config))
    (tmp_path / "model.onnx").symlink_to(model_folder / "model.onnx")
    with pytest.raises(jitonnx.errors.Error, match=message):
        ours.GeneratorParams(ours.Model(str(tmp_path)))


def _paths(config: dict[str, Any], below: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in config.items():
        yield (*below, name)
        if isinstance(value, dict):
            yield from _paths(value, (*below, name))


def test_any_value_of_another_kind(model_folder: Path, tmp_path: Path) -> None:
    """In each place: either it does no harm, or an error of ours says what is wrong."""
    config = json.loads((model_folder / "genai_config.json").read_text())
    config["search"] |= {"do_sample": True, "top_k": 5, "random_seed": 1, "chunk_size": 0}
    (tmp_path / "model.onnx").symlink_to(model_folder / "model.onnx")
    values: list[Any] = [None, -1, "x", [], {}, 1.5, [None], 10**30, [{}], {"x": {}}, "%d"]
    for number, path in enumerate(_paths(config)):
        for value in values[number % 3 :: 3]:
            changed = json.loads(json.dumps(config))
            _with(changed, value, *path)
            (tmp_path / "genai_config.json").write_text(json.dumps(changed))
            try:
                model = ours.Model(str(tmp_path))
                generator = ours.Generator(model, ours.GeneratorParams(model))
                generator.append_tokens(PROMPT)
                generator.generate_next_token()
            except jitonnx.errors.Error:
                pass  # anything else fails


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a folder with a genai_config"):
        ours.Model(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="has no genai_config"):
        ours.Config(str(tmp_path))
    for text in (b"{", b"\xff\xfe\x00", b"[1]"):
        (tmp_path / "genai_config.json").write_bytes(text)
        with pytest.raises(jitonnx.errors.InvalidArgument, match="JSON"):
            ours.Config(str(tmp_path))


def test_configurations_are_changed_by_programs(model_folder: Path) -> None:
    config = ours.Config(str(model_folder))
    config.overlay('{"search": {"max_length": 31}, "model": {"decoder": {"filename": "memory.onnx"}}}')
    config.add_model_data("memory.onnx", (model_folder / "model.onnx").read_bytes())
    config.clear_providers()
    model = ours.Model(config)
    assert ours.GeneratorParams(model).get_search_options()["max_length"] == 31
    assert model.type == "llama" and model.device_type == "CPU"
    with pytest.raises(jitonnx.errors.InvalidArgument, match="cuda"):
        config.append_provider("cuda")
    config.append_provider("cpu")


def test_what_is_not_there_says_so(model: ours.Model) -> None:
    for refused in (ours.StreamingProcessor.open, model.create_multimodal_processor):
        with pytest.raises(NotImplementedError, match="not"):
            refused()


def test_all_names_are_there() -> None:
    theirs = pytest.importorskip("onnxruntime_genai")
    names = {name for name in dir(theirs) if not name.startswith("_") and name != "onnxruntime_genai"}
    assert names <= set(dir(ours))
    for name in ("Adapters", "Config", "Generator", "GeneratorParams", "Model", "NamedTensors", "Tensor", "Tokenizer"):
        members = {member for member in dir(getattr(theirs, name)) if not member.startswith("_")}
        assert members <= set(dir(getattr(ours, name))), name


# ------------------------------------------------------------ models of other forms


def rewritten(model: ModelProto, ids: str = "ids") -> ModelProto:
    data = with_last_logits(model.SerializeToString(), ids, "logits")
    assert data is not None
    made = ModelProto()
    made.ParseFromString(data)
    return made


@pytest.mark.parametrize("options", [{}, {"chunk_size": 5}, {"past_present_share_buffer": False}, {"batch_size": 3}])
def test_last_logits_alone(model: ours.Model, model_folder: Path, options: dict[str, Any]) -> None:
    lean = ours.Model(str(model_folder), last_logits=True)
    assert lean.decoder.indices and not lean.decoder.has_all_logits
    prompt = ROWS if "batch_size" in options else PROMPT
    wanted = generate(ours, model, prompt, max_length=40, **options)
    assert generate(ours, lean, prompt, max_length=40, **options) == wanted
    generators = [started(one) for one in (model, lean)]
    every, last = (generator.get_output("logits") for generator in generators)
    assert every.shape == (1, len(PROMPT), SHAPE.vocabulary) and last.shape == (1, 1, SHAPE.vocabulary)
    np.testing.assert_allclose(last[0, 0], every[0, -1], rtol=1e-4, atol=1e-4)


def capped(model: ModelProto, is_read_elsewhere: bool) -> ModelProto:
    """With tanh(logits / 30) * 30, as Gemma has it."""
    made = ModelProto()
    made.CopyFrom(model)
    node = next(node for node in made.graph.node if "logits" in node.output)
    node.output[0] = "raw"
    made.graph.initializer.append(numpy_helper.from_array(np.array(30, np.float32), "cap"))
    made.graph.node.extend(
        [
            helper.make_node("Div", ["raw", "cap"], ["divided"]),
            helper.make_node("Tanh", ["divided"], ["bent"]),
            helper.make_node("Mul", ["bent", "cap"], ["logits"]),
        ]
    )
    if is_read_elsewhere:
        made.graph.node.append(helper.make_node("Identity", ["raw"], ["copy"]))
        made.graph.output.append(helper.make_tensor_value_info("copy", 1, ["batch", "steps", SHAPE.vocabulary]))
    return made


def test_last_logits_behind_a_cap(language_model: ModelProto, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "capped", capped(language_model, False))
    models = [ours.Model(str(folder), last_logits=last) for last in (False, True)]
    assert [one.decoder.has_all_logits for one in models] == [True, False]
    first, second = (generate(ours, one, PROMPT, max_length=40) for one in models)
    assert first == second
    read = write_folder(tmp_path / "read", capped(language_model, True))
    assert ours.Model(str(read), last_logits=True).decoder.has_all_logits


def test_models_of_last_logits(language_model: ModelProto, model: ours.Model, tmp_path: Path) -> None:
    """As the builder writes them with prune_lm_head: the last column's."""
    made = rewritten(language_model)
    graph = made.graph
    gather = next(node for node in graph.node if node.op_type == "GatherND")
    gather.op_type, gather.input[1] = "Gather", "last"
    del gather.attribute[:]
    gather.attribute.append(helper.make_attribute("axis", 1))
    graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last"))
    del graph.input[-1]
    pruned = ours.Model(str(write_folder(tmp_path / "pruned", made)))
    assert generate(ours, pruned, PROMPT, max_length=40) == generate(ours, model, PROMPT, max_length=40)
    with pytest.raises(NotImplementedError, match="prune_lm_head"):
        started(pruned, ROWS, batch_size=3)


def test_a_model_that_is_none_is_the_sessions_matter(tmp_path: Path, model_folder: Path) -> None:
    (tmp_path / "genai_config.json").write_text((model_folder / "genai_config.json").read_text())
    (tmp_path / "model.onnx").write_bytes(b"no model")
    for last in (False, True):
        with pytest.raises(jitonnx.errors.Error, match="protobuf"):
            ours.Model(str(tmp_path), last_logits=last)


def test_windows(language_model: ModelProto, tmp_path: Path) -> None:
    """Caches of windows forget what is behind; rewinding says so where it needs it."""
    folder = write_windowed_folder(tmp_path / "windows", language_model)
    model = ours.Model(str(folder))
    wanted = generate(ours, model, PROMPT, max_length=90)
    for options in ({"chunk_size": 5}, {"past_present_share_buffer": False}):
        assert generate(ours, model, PROMPT, max_length=90, **options) == wanted
    generator = started(model)
    assert generator.get_input("past.0.key").shape[2] == WINDOW + 16
    first = steps(generator, 8)
    generator.rewind_to(len(PROMPT))
    assert steps(generator, 8) == first
    steps(generator, 20)
    with pytest.raises(NotImplementedError, match="Cannot rewind"):
        generator.rewind_to(10)
    generator.rewind_to(0)
    generator.append_tokens(PROMPT)
    assert steps(generator, 8) == first
    theirs = pytest.importorskip("onnxruntime_genai")
    assert generate(theirs, theirs.Model(str(folder)), PROMPT, max_length=90) == wanted


# ------------------------------------------------------------ adapters


def adapted(model: ModelProto) -> ModelProto:
    """Logits plus a bias, which is an input that has a value."""
    made = ModelProto()
    made.CopyFrom(model)
    next(node for node in made.graph.node if "logits" in node.output).output[0] = "raw"
    made.graph.node.append(helper.make_node("Add", ["raw", "bias"], ["logits"]))
    made.graph.input.append(helper.make_tensor_value_info("bias", 1, [SHAPE.vocabulary]))
    made.graph.initializer.append(numpy_helper.from_array(np.zeros(SHAPE.vocabulary, np.float32), "bias"))
    return made


def test_adapters(language_model: ModelProto, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "adapted", adapted(language_model))
    for name, token in (("seventy", 70), ("eighty", 80)):
        bias = np.zeros(SHAPE.vocabulary, np.float32)
        bias[token] = 1000
        file = jitonnx.AdapterFormat()
        file.set_parameters({"bias": jitonnx.OrtValue.ortvalue_from_numpy(bias)})
        file.set_adapter_version(1)
        file.set_model_version(1)
        file.export_adapter(str(tmp_path / f"{name}.onnx_adapter"))
    packages = [ours]
    if importlib.util.find_spec("onnxruntime_genai") is not None:
        packages.append(importlib.import_module("onnxruntime_genai"))
    made = []
    for genai in packages:
        model = genai.Model(str(folder))
        adapters = genai.Adapters(model)
        for name in ("seventy", "eighty"):
            adapters.load(str(tmp_path / f"{name}.onnx_adapter"), name)
        found = []
        for name in (None, "seventy", "eighty"):
            params = genai.GeneratorParams(model)
            params.set_search_options(max_length=30)
            generator = genai.Generator(model, params)
            if name is not None:
                generator.set_active_adapter(adapters, name)
            generator.append_tokens(PROMPT)
            found.append(steps(generator, 4)[len(PROMPT) :])
        assert found[1:] == [[70] * 4, [80] * 4] and found[0] not in found[1:]
        made.append(found)
        with pytest.raises(RuntimeError, match="already"):
            adapters.load(str(tmp_path / "eighty.onnx_adapter"), "eighty")
        del generator
        adapters.unload("eighty")
        with pytest.raises(RuntimeError, match="eighty"):
            adapters.unload("eighty")
    assert all(found == made[0] for found in made)


def concatenating(model: ModelProto) -> ModelProto:
    """A decoder whose presents are its pasts with one row more for each token, and whose caches say nothing else."""
    made = ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    del graph.node[:], graph.initializer[:]
    embedding = np.random.default_rng(5).normal(size=(SHAPE.vocabulary, 2, SHAPE.depth)).astype(np.float32)
    vocabulary = embedding.reshape(SHAPE.vocabulary, -1).T
    graph.initializer.extend(
        [
            numpy_helper.from_array(embedding, "embedding"),
            numpy_helper.from_array(vocabulary, "vocabulary"),
            numpy_helper.from_array(np.array([2]), "rows"),
            numpy_helper.from_array(np.array([0, 0, 2 * SHAPE.depth]), "flat"),
        ]
    )
    graph.node.extend(
        [
            helper.make_node("Gather", ["embedding", "ids"], ["x"]),
            helper.make_node("Transpose", ["x"], ["new"], perm=[0, 2, 1, 3]),
            *(
                helper.make_node("Concat", [f"past.{layer}.{kind}", "new"], [f"present.{layer}.{kind}"], axis=2)
                for layer in range(SHAPE.layers)
                for kind in ("key", "value")
            ),
            helper.make_node("ReduceMean", ["present.0.key", "rows"], ["mean"], keepdims=1),
            helper.make_node("Transpose", ["mean"], ["turned"], perm=[0, 2, 1, 3]),
            helper.make_node("Sub", ["turned", "x"], ["difference"]),
            helper.make_node("Reshape", ["difference", "flat"], ["hidden"]),
            helper.make_node("MatMul", ["hidden", "vocabulary"], ["logits"]),
        ]
    )
    return made


def test_caches_that_are_concatenated(language_model: ModelProto, tmp_path: Path) -> None:
    """They grow beyond their first memory, and what cannot be in place says so."""
    model = ours.Model(str(write_folder(tmp_path / "concatenating", concatenating(language_model))))
    generator = started(model, max_length=200, past_present_share_buffer=False)
    made = steps(generator, 150)
    values = np.random.default_rng(5).normal(size=(SHAPE.vocabulary, 2, SHAPE.depth)).astype(np.float32)
    keys = values[made[:-1]]
    np.testing.assert_array_equal(generator.get_output("present.0.key")[0], keys.transpose(1, 0, 2))
    generator.rewind_to(40)
    assert steps(generator, 60) == made[:100]
    with pytest.raises(jitonnx.errors.InvalidArgument, match="set past_present_share_buffer to False"):
        started(model, past_present_share_buffer=True)
