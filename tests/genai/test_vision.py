"""Prompts with images: against onnxruntime-genai where it is there, and against prompts read in other ways."""

import base64
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import jitonnx
import jitonnx.genai as ours
from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.genai.images import smart_size
from tests.genai.vision_folders import SMALLEST, picture, vision, write_vision_folder

pytest.importorskip("onnxruntime_extensions")
KINDS = ["gemma3", "phi3v", "qwen2_5_vl"]
MARKS = {
    "gemma3": "<start_of_image>",
    "phi3v": "<|image_{}|>\n",
    "qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>",
}
PICTURES = [picture(90, 61), picture(84, 55, "JPEG", 1)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("vision")
    return {kind: write_vision_folder(place / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, ours.Model]:
    return {kind: ours.Model(str(folder)) for kind, folder in folders.items()}


def prompt_of(kind: str, count: int) -> str:
    return "hello " + "".join(MARKS[kind].format(number + 1) + " kernel of" for number in range(count)) + " the world"


def read(genai: Any, model: Any, kind: str, pictures: list[bytes]) -> Any:
    """A prompt's inputs."""
    processor = model.create_multimodal_processor()
    images = genai.Images.open_bytes(*pictures) if pictures else None
    return processor(prompt_of(kind, len(pictures)), images=images)


def started(genai: Any, model: Any, inputs: Any, more: int = 12, **options: Any) -> Any:
    length = inputs["input_ids"].as_numpy().size + more
    params = genai.GeneratorParams(model)
    params.set_search_options(**{"max_length": length, "min_length": length, **options})
    generator = genai.Generator(model, params)
    generator.set_inputs(inputs)
    return generator


def run(generator: Any) -> tuple[list[int], np.ndarray]:
    """The tokens to the end, and the logits of each step."""
    logits = []
    while not generator.is_done():
        logits.append(np.array(generator.get_logits(), np.float32).reshape(-1))
        generator.generate_next_token()
    return generator.get_sequence(0).tolist(), np.stack(logits)


CASES = [
    ("gemma3", 1),
    ("gemma3", 2),
    ("phi3v", 0),
    ("phi3v", 1),
    ("qwen2_5_vl", 0),
    ("qwen2_5_vl", 1),
    ("qwen2_5_vl", 2),
]


@pytest.mark.parametrize(("kind", "count"), CASES)
def test_inputs_and_tokens_are_onnxruntime_genais(
    folders: dict[str, Path], models: dict[str, ours.Model], kind: str, count: int
) -> None:
    theirs = pytest.importorskip("onnxruntime_genai")
    other = theirs.Model(str(folders[kind]))
    mine, given = (
        read(genai, model, kind, PICTURES[:count]) for genai, model in ((ours, models[kind]), (theirs, other))
    )
    assert set(mine) == set(given.keys())
    for name, value in mine.items():
        expected = given[name].as_numpy()
        assert value.as_numpy().dtype == expected.dtype
        np.testing.assert_array_equal(value.as_numpy(), expected)
    tokens, logits = run(started(ours, models[kind], mine))
    expected_tokens, expected_logits = run(started(theirs, other, given))
    assert tokens == expected_tokens
    np.testing.assert_allclose(logits, expected_logits, rtol=1e-4, atol=1e-4)


def test_gemma_reads_text_alone(models: dict[str, ours.Model]) -> None:
    """Which onnxruntime-genai does not, where the embedding takes features of three axes."""
    model = models["gemma3"]
    tokens, logits = run(started(ours, model, read(ours, model, "gemma3", [])))
    params = ours.GeneratorParams(model)
    params.set_search_options(max_length=len(tokens), min_length=len(tokens))
    generator = ours.Generator(model, params)
    generator.append_tokens(ours.Tokenizer(model).encode(prompt_of("gemma3", 0)))
    again, same = run(generator)
    assert again == tokens
    np.testing.assert_array_equal(same, logits)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gemma3", {"chunk_size": 7}),
        ("qwen2_5_vl", {"chunk_size": 7}),
        ("qwen2_5_vl", {"past_present_share_buffer": False}),
    ],
    ids=str,
)
def test_prompts_may_be_read_in_pieces(models: dict[str, ours.Model], kind: str, options: dict[str, Any]) -> None:
    model = models[kind]
    inputs = read(ours, model, kind, PICTURES)
    tokens, logits = run(started(ours, model, inputs))
    again, same = run(started(ours, model, inputs, **options))
    assert again == tokens
    np.testing.assert_allclose(same, logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_rewinding_goes_the_same_way_again(models: dict[str, ours.Model], kind: str) -> None:
    """Also into the prompt, behind whose image the same tokens are appended."""
    model = models[kind]
    inputs = read(ours, model, kind, PICTURES[:1])
    prompt = inputs["input_ids"].as_numpy()[0]
    generator = started(ours, model, inputs)
    tokens, logits = run(generator)
    generator.rewind_to(len(prompt))
    assert run(generator)[0] == tokens
    generator.rewind_to(len(prompt) - 2)
    generator.append_tokens(prompt[-2:])
    again, same = run(generator)
    assert again == tokens
    np.testing.assert_allclose(same, logits, rtol=1e-4, atol=1e-4)
    generator.rewind_to(0)
    generator.set_inputs(inputs)
    assert run(generator)[0] == tokens


@pytest.mark.parametrize("kind", ["gemma3", "qwen2_5_vl"])
def test_a_later_turn_may_have_an_image(models: dict[str, ours.Model], kind: str) -> None:
    """As in one prompt."""
    model = models[kind]
    processor = model.create_multimodal_processor()
    texts = [f"hello {MARKS[kind]} of", f" kernel {MARKS[kind]} the world"]
    whole = processor("".join(texts), images=ours.Images.open_bytes(*PICTURES))
    tokens, logits = run(started(ours, model, whole))
    turns = [processor(text, images=ours.Images.open_bytes(image)) for text, image in zip(texts, PICTURES, strict=True)]
    length = len(tokens)
    generator = started(ours, model, turns[0], max_length=length, min_length=length)
    generator.set_inputs(turns[1])
    again, same = run(generator)
    assert again == tokens
    np.testing.assert_allclose(same, logits, rtol=1e-4, atol=1e-4)


def test_engines_read_text_alone(models: dict[str, ours.Model]) -> None:
    """Two requests at once get what each gets alone, Qwen's positions included."""
    model = models["qwen2_5_vl"]
    prompts = [np.array([40, 51, 62, 73], np.int32), np.array([60, 71, 82, 93, 104, 115, 126], np.int32)]
    engine = ours.Engine(model)
    events, tokens = engine.create_event_buffer(16), {}
    for number, prompt in enumerate(prompts):
        request = engine.create_request()
        turn = ours.TurnOptions(request)
        turn.set_max_generated_tokens(8)
        tokens[id(request)] = (number, request, made := [])
        request.begin_turn(prompt, turn)
    while engine.has_pending_requests():
        for event in engine.run(events) or ():
            if event.token is not None:
                tokens[id(event.request)][2].append(event.token)
    for number, _, made in tokens.values():
        params = ours.GeneratorParams(model)
        params.set_search_options(max_length=len(prompts[number]) + 8)
        generator = ours.Generator(model, params)
        generator.append_tokens(prompts[number])
        expected = run(generator)[0][len(prompts[number]) :]
        assert made[: len(expected)] == expected


def test_packages_that_are_missing(models: dict[str, ours.Model], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIL.Image", "onnxruntime_extensions.pp_api"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, name.partition(".")[0], None)
    with pytest.raises(ImportError, match=r"jitonnx\[vision\]"):
        ours.Images.open_bytes(PICTURES[0])
    with pytest.raises(ImportError, match=r"jitonnx\[vision\]"):
        models["gemma3"].create_multimodal_processor()


def test_images_of_different_sizes_are_read_one_by_one(models: dict[str, ours.Model]) -> None:
    """Qwen's, where onnxruntime-genai's processor refuses them."""
    model = models["qwen2_5_vl"]
    inputs = read(ours, model, "qwen2_5_vl", [PICTURES[0], picture(40, 130)])
    np.testing.assert_array_equal(inputs["image_grid_thw"].as_numpy(), [[1, 4, 6], [1, 10, 2]])
    alone = [
        read(ours, model, "qwen2_5_vl", [one])["pixel_values"].as_numpy() for one in (PICTURES[0], picture(40, 130))
    ]
    np.testing.assert_array_equal(inputs["pixel_values"].as_numpy(), np.concatenate(alone))
    generator = started(ours, model, inputs)
    generator.generate_next_token()
    assert generator.get_input("position_ids").max() < inputs["input_ids"].as_numpy().size  # images take few


def test_vision_models_of_one_image(folders: dict[str, Path], tmp_path: Path) -> None:
    """Are run for each image, as by onnxruntime-genai."""
    theirs = pytest.importorskip("onnxruntime_genai")
    folder = changed(folders["qwen2_5_vl"], tmp_path / "one", lambda model: None)
    (folder / "vision.onnx").unlink()
    (folder / "vision.onnx").write_bytes(vision("qwen2_5_vl", images=1).SerializeToString())
    made = []
    for genai in (ours, theirs):
        model = genai.Model(str(folder))
        made.append(run(started(genai, model, read(genai, model, "qwen2_5_vl", PICTURES))))
    assert made[0][0] == made[1][0]
    np.testing.assert_allclose(made[0][1], made[1][1], rtol=1e-4, atol=1e-4)


def test_prompts_of_phi4(tmp_path: Path) -> None:
    """A mark becomes as many tokens as its image takes; the numbers are what onnxruntime-extensions says."""
    model = ours.Model(str(write_vision_folder(tmp_path / "phi4mm", "phi4mm")))
    processor = model.create_multimodal_processor()
    prompt = "hello <|image_1|> kernel of <|image_2|> the"
    images = ours.Images.open_bytes(picture(500, 261), picture(90, 172, "JPEG", 1))
    inputs = {name: value.as_numpy() for name, value in processor(prompt, images=images).items()}
    counts = inputs["num_image_tokens"].reshape(-1)
    np.testing.assert_array_equal(counts, [785, 433])
    ids = inputs["input_ids"][0]
    runs = np.split(ids, np.flatnonzero(np.diff((ids == SMALLEST).astype(int))) + 1)
    assert [len(part) for part in runs if part[0] == SMALLEST] == counts.tolist()
    assert inputs["pixel_values"].shape == (2, 3, 3, 448, 448)
    assert inputs["image_attention_mask"].shape == (2, 3, 32, 32)
    assert inputs["audio_projection_mode"].tolist() == [1]
    assert inputs["image_sizes"].tolist() == [[448, 896], [448, 448]]
    alone = processor("hello")
    assert set(alone) == {"input_ids", "audio_projection_mode"}
    run(started(ours, model, alone))


def test_prompts_are_read_in_batches_without_images(models: dict[str, ours.Model]) -> None:
    model = models["qwen2_5_vl"]
    rows = np.full((2, 6), 3, np.int32)
    rows[0], rows[1, :4] = [40, 51, 62, 73, 84, 95], [60, 71, 82, 93]

    def made(tokens: np.ndarray, count: int) -> list[list[int]]:
        params = ours.GeneratorParams(model)
        length = tokens.size // count + 10
        params.set_search_options(max_length=length, min_length=length, batch_size=count)
        generator = ours.Generator(model, params)
        generator.append_tokens(tokens)
        while not generator.is_done():
            generator.generate_next_token()
        return [generator.get_sequence(row).tolist() for row in range(count)]

    together = made(rows, 2)
    assert together[0] == made(rows[0], 1)[0]
    assert together[1][6:] == made(rows[1, :4], 1)[0][4:]


# ------------------------------------------------------------ what does not fit


@pytest.mark.parametrize("kind", KINDS)
def test_beams_go_on_from_text_alone(models: dict[str, ours.Model], kind: str) -> None:
    """As positions behind images are not those of tokens."""
    model = models[kind]
    params = ours.GeneratorParams(model)
    params.set_search_options(max_length=3000, num_beams=2)
    with pytest.raises(NotImplementedError, match="set num_beams to 1"):
        ours.Generator(model, params).set_inputs(read(ours, model, kind, [picture(40, 30)]))
    generator = ours.Generator(model, params)
    generator.append_tokens([5, 6, 7])
    generator.generate_next_token()


def test_marks_and_images_must_agree(models: dict[str, ours.Model]) -> None:
    images = ours.Images.open_bytes(PICTURES[0])
    for kind, model in models.items():
        processor = model.create_multimodal_processor()
        for count, given in ((0, images), (1, None), (2, images)):
            with pytest.raises(InvalidArgument, match="image"):
                processor(prompt_of(kind, count), images=given)
    processor = models["phi3v"].create_multimodal_processor()
    with pytest.raises(InvalidArgument, match=r"\[7\], and 1 images"):
        processor("<|image_7|>", images=images)
    with pytest.raises(InvalidArgument, match="no tokens"):
        processor("")
    with pytest.raises(jitonnx.errors.NotImplemented, match="2 prompts"):
        processor(["hello", "world"])
    with pytest.raises(jitonnx.errors.NotImplemented, match="audio"):
        processor("hello", audios=object())
    with pytest.raises(InvalidArgument, match=r"Images\.open"):
        processor("hello", images=[PICTURES[0]])


def test_inputs_must_be_of_one_prompt(models: dict[str, ours.Model]) -> None:
    model = models["qwen2_5_vl"]
    inputs = read(ours, model, "qwen2_5_vl", PICTURES)
    params = ours.GeneratorParams(model)
    params.set_search_options(max_length=200, min_length=200)
    generator = ours.Generator(model, params)
    for name, wrong, message in (
        ("input_ids", np.full((1, 9), 40, np.int32), "0 places for images"),
        ("input_ids", np.array([[SMALLEST, SMALLEST + 1]] * 2, np.int32).reshape(1, 4), "takes 6 tokens"),
        ("image_grid_thw", np.array([[1, 4, 6]]), "2 places for images"),
        ("image_grid_thw", np.array([1, 4, 6]), "images, 3"),
        ("pixel_values", inputs["pixel_values"].as_numpy()[:, :9], "pixel_values"),
    ):
        given = ours.NamedTensors({**inputs, name: ours.Tensor(wrong)})
        with pytest.raises(InvalidArgument, match=message):
            generator.set_inputs(given)
        assert generator.token_count() == 0
    del given["pixel_values"]
    with pytest.raises(InvalidArgument, match="needs pixel_values"):
        generator.set_inputs(given)
    generator.set_inputs(inputs)  # as if nothing had been
    assert run(generator)[0][:40] == run(started(ours, model, inputs, 40))[0][:40]
    params.set_search_options(batch_size=2)
    with pytest.raises(InvalidArgument, match="set it to 1"):
        ours.Generator(model, params).set_inputs(inputs)
    generator.rewind_to(0)
    with pytest.raises(InvalidArgument, match="token -1"):
        generator.append_tokens(np.array([-1], np.int32))


def changed(folder: Path, place: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The same folder with another configuration."""
    place.mkdir()
    for path in folder.iterdir():
        if path.name != "genai_config.json":
            (place / path.name).symlink_to(path)
    config = json.loads((folder / "genai_config.json").read_text())
    change(config["model"])
    (place / "genai_config.json").write_text(json.dumps(config))
    return place


def test_folders_that_lack_something(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["gemma3"]
    without = changed(folder, tmp_path / "embedding", lambda model: model.pop("embedding"))
    with pytest.raises(InvalidArgument, match="embedding names none"):
        ours.Model(str(without))
    audio = changed(folder, tmp_path / "speech", lambda model: model.update(speech={"filename": "speech.onnx"}))
    with pytest.raises(jitonnx.errors.NotImplemented, match=r"model\.speech"):
        ours.Model(str(audio))
    other = changed(folder, tmp_path / "type", lambda model: model.update(type="mistral3"))
    with pytest.raises(jitonnx.errors.NotImplemented, match="mistral3"):
        ours.Model(str(other)).create_multimodal_processor()
    text = changed(folder, tmp_path / "text", lambda model: model.pop("vision"))
    with pytest.raises(InvalidArgument, match="text alone"):
        ours.Model(str(text)).create_multimodal_processor()
    lacking = changed(folder, tmp_path / "file", lambda model: model["vision"].update(config_filename="none.json"))
    with pytest.raises(NoSuchFile, match=r"none\.json"):
        ours.Model(str(lacking)).create_multimodal_processor()
    for name, steps in (("no", {}), ("wrong", {"processor": {"transforms": [{"operation": {"type": "Turn"}}]}})):
        place = changed(folder, tmp_path / name, lambda model: model["vision"].update(config_filename="steps.json"))
        (place / "steps.json").write_text(json.dumps(steps))
        with pytest.raises(InvalidArgument, match=r"steps\.json"):
            ours.Model(str(place)).create_multimodal_processor()
    named = changed(folder, tmp_path / "named", lambda model: model["vision"].update(inputs={"pixel_values": "pixels"}))
    with pytest.raises(InvalidArgument, match="pixels"):
        ours.Model(str(named))


def test_adapters_of_images_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """Text goes without."""
    change = {"adapter_filename": "vision.onnx_adapter"}
    folder = changed(folders["phi3v"], tmp_path / "adapter", lambda model: model["vision"].update(change))
    model = ours.Model(str(folder))
    assert run(started(ours, model, read(ours, model, "phi3v", [])))[0]
    with pytest.raises(jitonnx.errors.NotImplemented, match="adapter_filename"):
        started(ours, model, read(ours, model, "phi3v", PICTURES[:1]))


def test_an_embedding_of_another_type(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = changed(folders["gemma3"], tmp_path / "half", lambda model: None)
    model = onnx.load(str(folder / "embedding.onnx"))
    model.graph.node[-1].output[0] = "rows"
    model.graph.node.append(onnx.helper.make_node("Cast", ["rows"], ["inputs_embeds"], to=onnx.TensorProto.FLOAT16))
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    (folder / "embedding.onnx").unlink()
    (folder / "embedding.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InvalidArgument, match="gives float16"):
        ours.Model(str(folder))


# ------------------------------------------------------------ images


def test_images_of_arrays_and_of_other_formats(models: dict[str, ours.Model], tmp_path: Path) -> None:
    """Are as their PNG."""
    from PIL import Image

    image = Image.open(io.BytesIO(PICTURES[0]))
    pixels, place = np.asarray(image), tmp_path / "image.bmp"
    image.save(place)
    opened = [
        ours.Images.open(str(place)),
        ours.Images.of([pixels]),
        ours.Images.of([image]),
        ours.Images.of([np.concatenate([pixels, pixels[:, :, :1]], 2)]),
    ]
    processor = models["gemma3"].create_multimodal_processor()
    expected = processor("", images=ours.Images.open_bytes(PICTURES[0]))["pixel_values"].as_numpy()
    for one in opened:
        assert one.sizes == [(90, 61)]
        np.testing.assert_array_equal(processor("", images=one)["pixel_values"].as_numpy(), expected)
    grey = processor("", images=ours.Images.of([pixels[:, :, 0], pixels[:, :, :1]]))["pixel_values"].as_numpy()
    np.testing.assert_array_equal(grey[0], grey[1])
    np.testing.assert_array_equal(grey[0, 0], grey[0, 2])
    file = io.BytesIO()
    image.convert("CMYK").save(file, "JPEG")
    assert processor("", images=ours.Images.open_bytes(file.getvalue()))["pixel_values"].shape() == [1, 3, 32, 32]


def test_what_is_no_image(tmp_path: Path) -> None:
    """Raises, also where onnxruntime-extensions ends the process."""
    jpeg, png = PICTURES[1], PICTURES[0]
    for data in (b"", b"hello world", b"GIF89a" + bytes(99), jpeg[:-200], jpeg[:30], png[:-50], png[:20] + bytes(9)):
        with pytest.raises(InvalidArgument, match="image 0"):
            ours.Images.open_bytes(data)
    place = tmp_path / "text.jpg"
    place.write_text("hello world")
    with pytest.raises(InvalidArgument, match=r"text\.jpg"):
        ours.Images.open(str(place))
    with pytest.raises(NoSuchFile, match="none"):
        ours.Images.open(str(tmp_path / "none.jpg"))
    for given in ((), (3,)):
        with pytest.raises(InvalidArgument):
            ours.Images.open(*given)
    for array in (np.zeros((4, 4, 2), np.uint8), np.zeros((4, 4)), np.zeros((0, 4), np.uint8), np.zeros(4, np.uint8)):
        with pytest.raises(InvalidArgument, match="uint8"):
            ours.Images.of([array])
    with pytest.raises(InvalidArgument, match="times 17000"):
        ours.Images.open_bytes(picture(1, 17000))


def test_sizes_that_patches_fit() -> None:
    settings = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 9000}
    random = np.random.default_rng(3)
    for size in random.integers(8, 900, (200, 2)).tolist():
        width, height = smart_size((size[0], size[1]), settings)
        assert width % 28 == height % 28 == 0
        assert width * height <= 9000 or 28 in (width, height)
        if min(width, height) > 28:
            assert smart_size((width, height), settings) == (width, height)
    with pytest.raises(InvalidArgument, match="200 times"):
        smart_size((1, 500), settings)


# ------------------------------------------------------------ the short way


@pytest.mark.parametrize("kind", KINDS)
def test_chats_with_images(folders: dict[str, Path], kind: str, tmp_path: Path) -> None:
    """Are prompts with their marks, whatever form the images have; what turns have in common is read once."""
    model, place = ours.load(folders[kind]), tmp_path / "image.png"
    place.write_bytes(PICTURES[0])
    from PIL import Image

    url = "data:image/png;base64," + base64.b64encode(PICTURES[0]).decode()
    sources: list[dict[str, Any]] = [
        {"type": "image", "image": str(place)},
        {"type": "image", "image": PICTURES[0]},
        {"type": "image", "image": np.asarray(Image.open(place))},
        {"type": "image", "url": url},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    answers = []
    for source in sources:
        chat = [{"role": "user", "content": [source, {"type": "text", "text": "hello"}]}]
        answers.append(model.generate(chat, max_new_tokens=9))
    assert len(set(answers)) == 1
    assert model.usage.kept_tokens == model.usage.prompt_tokens - 1
    prompt = f"<|user|>{MARKS[kind].format(1)}hello</s><|assistant|>"
    processor = model.model.create_multimodal_processor()
    inputs = processor(prompt, images=ours.Images.open(str(place)))
    tokens, _ = run(started(ours, model.model, inputs, 9, min_length=0))
    stream = processor.create_stream()
    assert answers[0] == "".join(map(stream.decode, tokens[inputs["input_ids"].as_numpy().size :]))
    # Another turn, and the same with another image.
    longer = [*chat, {"role": "assistant", "content": answers[0]}, {"role": "user", "content": "world"}]
    made = model.generate(longer, max_new_tokens=9)
    assert model.usage.kept_tokens >= inputs["input_ids"].as_numpy().size
    assert made == ours.load(folders[kind]).generate(longer, max_new_tokens=9)
    other = [
        {"role": "user", "content": [{"type": "image", "image": picture(90, 61, seed=5)}, *chat[0]["content"][1:]]}
    ]
    model.generate(other, max_new_tokens=9)
    assert model.usage.kept_tokens == 0
    assert model.generate("hello", max_new_tokens=4) == ours.load(folders[kind]).generate("hello", max_new_tokens=4)


def test_parts_that_are_no_image(folders: dict[str, Path], model_folder: Path) -> None:
    model = ours.load(folders["gemma3"])
    wrong: list[tuple[Any, str]] = [
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "nothing is fetched"),
        ({"type": "image", "url": "http://example.com/a.png"}, "nothing is fetched"),
        ({"type": "image_url", "image_url": {"url": "/etc/hosts"}}, "data: URL is needed"),
        ({"type": "image", "image": "data:image/png,hello"}, "base64"),
        ({"type": "image", "image": "data:image/png;base64,?"}, "no base64"),
        ({"type": "image", "image": b"hello"}, "cannot be read"),
        ({"type": "image"}, "has no image"),
        ({"type": "image", "image": 3}, "int"),
    ]
    for part, message in wrong:
        with pytest.raises(InvalidArgument, match=message):
            model.generate([{"role": "user", "content": [part]}])
    image = {"type": "image", "image": PICTURES[0]}
    with pytest.raises(InvalidArgument, match="the part"):
        model.generate([{"role": "user", "content": [image, {"type": "audio"}]}])
    with pytest.raises(jitonnx.errors.NotImplemented, match="llama"):
        ours.load(model_folder).generate([{"role": "user", "content": [image]}])
