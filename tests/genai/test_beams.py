"""Beam search: as onnxruntime-genai's for its programs, as transformers' for `generate`, with caches of all kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

import jitonnx
import jitonnx.genai as ours
from jitonnx.errors import InvalidArgument, NotImplemented
from jitonnx.genai.beams import TransformersBeams
from jitonnx.genai.caches import Move
from jitonnx.genai.places import Places
from tests.genai.folders import SHAPE, with_state, write_folder, write_windowed_folder
from tests.genai.test_optimum import encoder_folder, optimum_folder

PROMPT = np.random.default_rng(3).integers(4, SHAPE.vocabulary, 21).astype(np.int32)
ROWS = np.full((3, 9), 3, np.int32)  # 3 pads
ROWS[0], ROWS[1, :4], ROWS[2, :1] = PROMPT[:9], PROMPT[9:13], 7
ENDS = {1: [100], 3: [100, 11, 12], 60: list(range(200, 260))}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, language_model: ModelProto) -> dict[int, Path]:
    """By numbers of tokens that end sequences."""
    place = tmp_path_factory.mktemp("beams")
    return {count: write_folder(place / str(count), language_model, eos_token_id=ends) for count, ends in ENDS.items()}


def started(model: Any, prompt: np.ndarray, genai: Any = ours, **options: Any) -> Any:
    params = genai.GeneratorParams(model)
    params.set_search_options(**options)
    generator = genai.Generator(model, params)
    generator.append_tokens(prompt)
    return generator


def searched(generator: Any, count: int) -> tuple[list[list[int]], list[tuple[int, list[int]]]]:
    """The sequences, and of each step the length and the tokens."""
    steps = []
    while not generator.is_done():
        generator.generate_next_token()
        steps.append((generator.token_count(), generator.get_next_tokens().tolist()))
    return [generator.get_sequence(index).tolist() for index in range(count)], steps


CASES: list[tuple[int, dict[str, Any]]] = [
    (1, {"num_beams": 4, "num_return_sequences": 4}),
    (60, {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.3}),
    (60, {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 2.0, "early_stopping": False}),
    (60, {"num_beams": 5, "length_penalty": -1.0, "early_stopping": False, "past_present_share_buffer": False}),
    (3, {"num_beams": 2, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_length": 40}),
    (60, {"num_beams": 3, "num_return_sequences": 2, "batch_size": 3, "diversity_penalty": 0.5}),
    (60, {"num_beams": 4, "num_return_sequences": 4, "batch_size": 3, "early_stopping": False, "length_penalty": 0.0}),
    (60, {"num_beams": 2, "batch_size": 3, "repetition_penalty": 0.8, "no_repeat_ngram_size": 3}),
]


@pytest.mark.parametrize(("ends", "options"), CASES, ids=str)
def test_sequences_are_onnxruntime_genais(folders: dict[int, Path], ends: int, options: dict[str, Any]) -> None:
    """Also each step's tokens, and what is peculiar: beams of sequences that have ended, and those that nothing goes on
    from as too many tokens end sequences."""
    theirs = pytest.importorskip("onnxruntime_genai")
    prompt, folder = ROWS if "batch_size" in options else PROMPT, str(folders[ends])
    count, options = (
        options.get("batch_size", 1) * options.get("num_return_sequences", 1),
        {"max_length": 45, **options},
    )
    expected = searched(started(theirs.Model(folder), prompt, theirs, **options), count)
    assert searched(started(ours.Model(folder), prompt, **options), count) == expected


def test_a_sequence_that_is_asked_for_ends_the_search(folders: dict[int, Path]) -> None:
    """As there: beams that go on are taken for ended once."""
    theirs = pytest.importorskip("onnxruntime_genai")
    made = []
    for genai in (ours, theirs):
        generator = started(genai.Model(str(folders[1])), PROMPT, genai, max_length=60, num_beams=3)
        for _ in range(4):
            generator.generate_next_token()
        first = generator.get_sequence(0).tolist()
        made.append((first, *searched(generator, 1)))
    assert made[0] == made[1]


# ------------------------------------------------------------ by hand, each step from the beginning


def by_hand(logits: Callable[[list[int]], np.ndarray], prompt: list[int], beams: int, length: int) -> list[list[int]]:
    """The beams of a prompt, the best one first, of a model that nothing ends."""
    found = [(np.float32(0), prompt)]
    for _ in range(length - len(prompt)):
        following = []
        for total, tokens in found:
            row = logits(tokens).astype(np.float64)
            row -= row.max() + np.log(np.exp(row - row.max()).sum())
            following += [(total + row[token], [*tokens, int(token)]) for token in np.argsort(-row)[:beams]]
        found = sorted(following, key=lambda one: -one[0])[:beams]
    return [tokens for _, tokens in found]


@pytest.mark.parametrize("kind", ["in place", "growing", "window", "state"])
def test_caches_follow_the_beams(language_model: ModelProto, tmp_path: Path, kind: str) -> None:
    if kind == "window":
        folder = write_windowed_folder(tmp_path / "window", language_model)
    else:
        made = with_state(language_model) if kind == "state" else language_model
        folder = write_folder(tmp_path / "model", made, eos_token_id=[2])
    model = ours.Model(str(folder))

    def logits(tokens: list[int]) -> np.ndarray:
        row: np.ndarray = started(model, np.array(tokens, np.int32)).get_logits()[0, 0]
        row[2] = np.finfo(np.float32).min
        return row

    prompt, length = PROMPT[:12], 36
    share = kind != "growing"
    generator = started(
        model,
        prompt,
        max_length=length,
        min_length=length,
        num_beams=4,
        num_return_sequences=4,
        past_present_share_buffer=share,
    )
    assert searched(generator, 4)[0] == by_hand(logits, prompt.tolist(), 4, length)


def test_a_batch_is_as_each_alone(folders: dict[int, Path]) -> None:
    model = ours.Model(str(folders[60]))
    options = {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.0}  # padding counts for lengths
    together, _ = searched(started(model, ROWS, batch_size=3, max_length=24, **options), 6)
    for row, count in ((0, 9), (1, 4), (2, 1)):
        alone, _ = searched(started(model, ROWS[row, :count], max_length=count + 15, **options), 2)
        assert [one[9:] for one in together[2 * row : 2 * row + 2]] == [one[count:] for one in alone]


def test_rows_that_are_copied() -> None:
    """Against all rows copied, for random beams: the first one of a row stays, and of others what differs is copied."""
    random = np.random.default_rng(5)
    for _ in range(30):
        count, groups = int(random.integers(2, 6)), int(random.integers(1, 4))
        rows, length = count * groups, 3
        lengths = np.full(rows, length)
        caches = np.repeat(random.normal(size=(groups, length)), count, 0)
        expected, places = caches.copy(), Places(lengths, count)
        for _ in range(8):
            sources = np.concatenate([random.integers(0, count, count) + count * group for group in range(groups)])
            if random.random() < 0.3:  # a sequence that has ended takes the first one's beam
                sources[-count:] = 0
            moves: list[Move] = places.pick(sources, lengths)
            for source, target, begin in moves:
                assert (caches[target, :begin] == caches[source, :begin]).all()
                caches[target, begin:] = caches[source, begin:]
            assert len(moves) <= rows - len(set(sources.tolist())) + count
            expected = expected[sources]
            assert (caches[places.rows] == expected).all()
            new = random.normal(size=rows)
            expected = np.concatenate([expected, new[:, None]], 1)
            caches = np.concatenate([caches, new[places.beams()][:, None]], 1)
            lengths = lengths + 1


def test_inputs_and_outputs_are_the_beams(folders: dict[int, Path]) -> None:
    generator = started(ours.Model(str(folders[1])), PROMPT, max_length=60, num_beams=3)
    assert generator.get_logits().shape == (3, 1, SHAPE.vocabulary)
    assert generator.get_output("logits").shape == (3, len(PROMPT), SHAPE.vocabulary)
    assert generator.get_input("ids").tolist() == [PROMPT.tolist()] * 3
    for _ in range(9):
        generator.generate_next_token()
        np.testing.assert_array_equal(generator.get_logits(), generator.get_output("logits"))
        assert generator.get_input("ids")[:, 0].tolist() == generator.get_next_tokens().tolist()
    other = np.zeros((3, SHAPE.vocabulary), np.float32)
    other[1, 77] = 1e6
    generator.set_logits(other)
    generator.generate_next_token()
    assert generator.get_next_tokens().tolist()[0] == 77


def test_a_run_that_is_ended(folders: dict[int, Path]) -> None:
    model = ours.Model(str(folders[1]))
    expected = searched(started(model, PROMPT, max_length=40, num_beams=3), 1)[0]
    generator = started(model, PROMPT, max_length=40, num_beams=3)
    for _ in range(4):
        generator.generate_next_token()
    generator.set_runtime_option("terminate_session", "1")
    with pytest.raises(jitonnx.errors.Error):
        generator.generate_next_token()
    generator.set_runtime_option("terminate_session", "0")
    assert searched(generator, 1)[0] == expected


def test_what_does_not_go_with_beams(folders: dict[int, Path]) -> None:
    model = ours.Model(str(folders[1]))
    generator = started(model, PROMPT, max_length=40, num_beams=3, num_return_sequences=2)
    with pytest.raises(InvalidArgument, match=r"can only be called once for num_beams > 1"):
        generator.append_tokens(PROMPT)
    generator.generate_next_token()
    with pytest.raises(NotImplemented, match="rewind_to is not supported with beam search"):
        generator.rewind_to(0)
    with pytest.raises(InvalidArgument, match="there is no sequence 2: batch_size is 1, num_return_sequences 2"):
        generator.get_sequence(2)
    generator.set_logits(np.full((3, SHAPE.vocabulary), np.nan))
    with pytest.raises(InvalidArgument, match="the greatest logit of a beam is nan"):
        generator.generate_next_token()
    params = ours.GeneratorParams(model)
    params.set_search_options(num_beams=2)
    params.set_guidance("regex", "a+")
    with pytest.raises(NotImplemented, match=r"constrained .* does not go with beam search"):
        ours.Generator(model, params)
    params.set_guidance("", "")
    params.set_speculative_options(ngram_size=2)
    with pytest.raises(NotImplemented, match="speculative decoding does not go with beam search"):
        ours.Generator(model, params)
    engine = ours.Engine(model)
    request = engine.create_request()
    options = ours.TurnOptions(request)
    options.search.num_beams = 2
    with pytest.raises(InvalidArgument, match="beam search is not supported by the engine"):
        request.begin_turn(PROMPT, options)


# ------------------------------------------------------------ transformers


def by_transformers(
    logits: Callable[[np.ndarray], np.ndarray], prompt: list[int], ends: list[int], length: int, **options: Any
) -> list[int]:
    """What follows a prompt as transformers searches, by a model's logits, [beams, vocabulary], behind tokens."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

    class Model(transformers.PreTrainedModel, transformers.GenerationMixin):  # type: ignore[misc, name-defined]
        config_class = transformers.PretrainedConfig
        _supports_cache_class = False

        def __init__(self) -> None:
            super().__init__(transformers.PretrainedConfig(vocab_size=SHAPE.vocabulary))
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids: Any, **_: Any) -> Any:
            made = torch.from_numpy(logits(input_ids.numpy()))[:, None]
            return transformers.modeling_outputs.CausalLMOutput(logits=made)

    with torch.no_grad():
        made = Model().generate(
            torch.tensor([prompt]),
            do_sample=False,
            use_cache=False,
            pad_token_id=3,
            eos_token_id=ends,
            max_new_tokens=length,
            **options,
        )
    tokens = made[0, len(prompt) :].tolist()
    return tokens[: next((place for place, token in enumerate(tokens) if token in ends), len(tokens))]


def as_transformers(
    logits: Callable[[np.ndarray], np.ndarray], prompt: list[int], ends: list[int], length: int, **options: Any
) -> list[int]:
    """The same, written down once more: all beams that end are kept, and looked through at the end."""
    beams, penalty = options["num_beams"], options.get("length_penalty", 1.0)
    going: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for count in range(1, length + 1):
        scores = logits(np.array([prompt + tokens for _, tokens in going])).astype(np.float64)
        scores -= scores.max(1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(1, keepdims=True))
        for row, (_, tokens) in zip(scores, going, strict=True):
            seen = sorted({*prompt, *tokens})
            row[seen] *= options.get("repetition_penalty", 1.0)
        following = [
            (total + row[token], tokens, int(token))
            for row, (total, tokens) in zip(scores, going, strict=True)
            for token in np.argsort(-row)[: (1 + len(ends)) * beams]
        ]
        following.sort(key=lambda one: -one[0])
        for total, tokens, token in following[:beams]:
            if token in ends or count == length:
                ended.append((total / count**penalty, tokens + ([] if token in ends else [token])))
        ended = sorted(ended, key=lambda one: -one[0])[:beams]
        going = [(total, [*tokens, token]) for total, tokens, token in following if token not in ends][:beams]
        longest = length if options["early_stopping"] == "never" and penalty > 0 else count
        is_worse = len(ended) == beams and ended[-1][0] >= going[0][0] / longest**penalty
        if is_worse or (len(ended) == beams and options["early_stopping"] is True):
            break
    return ended[0][1]


SEARCHES: list[dict[str, Any]] = [
    {"num_beams": 4},
    {"num_beams": 3, "length_penalty": 0.0, "early_stopping": True},
    {"num_beams": 2, "length_penalty": 2.0, "early_stopping": False, "repetition_penalty": 1.4},
    {"num_beams": 5, "length_penalty": 0.5, "early_stopping": "never"},
]


def check_texts(folder: Path, options: dict[str, Any], reference: Callable[..., list[int]]) -> None:
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    empty = [one.name for one in session.get_inputs()[2:]]

    def logits(tokens: np.ndarray) -> np.ndarray:
        pasts = {name: np.zeros((len(tokens), 2, 0, SHAPE.depth), np.float32) for name in empty}
        feeds = {"ids": tokens, "attention_mask": np.ones_like(tokens)}
        made: np.ndarray = session.run(["logits"], feeds | pasts)[0][:, -1]
        return made

    model = ours.load(folder)
    for text in ("hello world", "kernel cache"):
        prompt = model.tokenizer.encode(text).tolist()
        stops = {"early_stopping": True, **options}  # as the folder's configuration has it
        expected = reference(logits, prompt, ENDS[60], 14, **stops)
        said = model.tokenizer.decode(expected).rstrip("\ufffd")
        assert model.generate(text, max_new_tokens=14, **options) == said
        assert "".join(model.generate(text, max_new_tokens=14, stream=True, **options)) == said
    with pytest.raises(InvalidArgument, match="cannot be drawn"):
        model.generate("hello", temperature=0.5, **options)


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_texts(folders: dict[int, Path], options: dict[str, Any]) -> None:
    check_texts(folders[60], options, as_transformers)


@pytest.mark.slow
@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_texts_are_those_of_transformers(folders: dict[int, Path], options: dict[str, Any]) -> None:
    check_texts(folders[60], options, by_transformers)


@pytest.mark.parametrize("is_merged", [False, True])
def test_optimums_folders(language_model: ModelProto, tmp_path: Path, is_merged: bool) -> None:
    """Keys and values that are concatenated; by hand, as of one length no penalty matters."""
    model = ours.load(optimum_folder(tmp_path / "model", language_model, is_merged=is_merged, eos_token_id=None))
    prompt = model.tokenizer.encode("hello world").tolist()

    def logits(tokens: list[int]) -> np.ndarray:
        row: np.ndarray = started(model.model, np.array(tokens, np.int32)).get_logits()[0, 0]
        return row

    expected = by_hand(logits, prompt, 3, len(prompt) + 10)[0][len(prompt) :]
    assert model.generate("hello world", max_new_tokens=10, num_beams=3) == model.tokenizer.decode(expected).rstrip(
        "\ufffd"
    )
    assert model.usage.generated_tokens == 10


def test_models_with_an_encoder(language_model: ModelProto, tmp_path: Path) -> None:
    """What the encoder made is there for each beam."""
    folder = encoder_folder(tmp_path / "model", language_model, is_merged=False)
    model = ours.load(folder)
    encoder, decoder = (
        onnxruntime.InferenceSession(str(folder / f"{one}_model.onnx")) for one in ("encoder", "decoder")
    )
    ids = model.tokenizer.encode("kernel cache of the token")[None].astype(np.int64)
    (hidden,) = encoder.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})

    def logits(tokens: list[int]) -> np.ndarray:
        feeds = {"encoder_attention_mask": np.ones_like(ids), "encoder_hidden_states": hidden}
        row: np.ndarray = decoder.run(["logits"], feeds | {"input_ids": np.array([tokens])})[0][0, -1]
        row[2] = -1e9
        return row

    params = ours.GeneratorParams(model.model)
    params.beams = TransformersBeams
    params.set_search_options(num_beams=4, max_length=14, min_length=14)
    generator = ours.Generator(model.model, params)
    assert model.model.encoder is not None
    for name, value in model.model.encoder.read(ids[0].astype(np.int32)).items():
        generator.set_model_input(name, value)
    generator.append_tokens(np.array([1], np.int32))
    assert searched(generator, 1)[0] == by_hand(logits, [1], 4, 14)[:1]
    assert model.generate("kernel cache of the token", max_new_tokens=13, num_beams=4)
