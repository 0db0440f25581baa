"""Texts in and out: tokenizers, chats, the short way, the command."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import jitonnx
import jitonnx.genai as ours
from jitonnx.errors import InvalidArgument
from jitonnx.tools.cli import main
from tests.genai.folders import write_folder

TEXTS = ["hello world", " the token of the cache", "", "naïve Ελλάδα 🎉 déjà", "tab\tand\nline", "<s>hello</s>"]
CHAT = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "world"},
    {"role": "user", "content": "?"},
]


@pytest.fixture(scope="module")
def model(model_folder: Path) -> ours.LanguageModel:
    return ours.load(model_folder)


def folder_with(tmp_path: Path, model_folder: Path, name: str, text: str) -> Path:
    """A folder whose file of this name is another one."""
    for path in model_folder.iterdir():
        if path.name != name:
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / name).write_text(text)
    return tmp_path


# ------------------------------------------------------------ tokenizers


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_onnxruntime_genais(model_folder: Path, text: str) -> None:
    theirs = pytest.importorskip("onnxruntime_genai")
    mine, other = ours.Tokenizer(str(model_folder)), theirs.Tokenizer(theirs.Model(str(model_folder)))
    tokens = mine.encode(text)
    assert tokens.dtype == np.int32 and tokens.tolist() == other.encode(text).tolist()
    assert mine.decode(tokens) == other.decode(tokens)
    assert (mine.bos_token_id, mine.pad_token_id) == (other.bos_token_id, other.pad_token_id)
    assert mine.eos_token_ids.tolist() == other.eos_token_ids.tolist()


def test_chats_are_onnxruntime_genais(model_folder: Path) -> None:
    theirs = pytest.importorskip("onnxruntime_genai")
    mine, other = ours.Tokenizer(str(model_folder)), theirs.Tokenizer(theirs.Model(str(model_folder)))
    for options in ({}, {"add_generation_prompt": False}, {"template_str": "{{ messages[0].content }}!"}):
        made = mine.apply_chat_template(json.dumps(CHAT), **options)  # type: ignore[arg-type]
        assert made == other.apply_chat_template(json.dumps(CHAT), **options)


def test_a_stream_gives_the_text_in_whole_characters(model: ours.LanguageModel) -> None:
    for text in TEXTS:
        stream = model.tokenizer.create_stream()
        pieces = [stream.decode(int(token)) for token in model.tokenizer.encode(text)]
        assert "".join(pieces) == model.tokenizer.decode(model.tokenizer.encode(text))
        assert "�" not in "".join(pieces)


def test_batches_of_texts(model: ours.LanguageModel) -> None:
    tokenizer = model.tokenizer
    batch = tokenizer.encode_batch(TEXTS[:2])
    rows = [tokenizer.encode(text) for text in TEXTS[:2]]
    assert batch.shape() == [2, max(map(len, rows))] and batch.type() == 6
    assert batch.as_numpy()[0].tolist() == rows[0].tolist() + [3] * (batch.shape()[1] - len(rows[0]))
    assert tokenizer.decode_batch(batch) == TEXTS[:2]


def test_options_of_tokenizers(model_folder: Path) -> None:
    tokenizer = ours.Tokenizer(str(model_folder))
    assert tokenizer.decode(tokenizer.encode("<s>hello</s>")) == "hello"
    tokenizer.update_options(skip_special_tokens="false")
    assert tokenizer.decode(tokenizer.encode("<s>hello</s>")) == "<s>hello</s>"
    with pytest.raises(InvalidArgument, match="'padding' is no option"):
        tokenizer.update_options(padding=True)
    assert tokenizer.to_token_id("</s>") == 2
    with pytest.raises(InvalidArgument, match="no token 'nothing'"):
        tokenizer.to_token_id("nothing")
    with pytest.raises(InvalidArgument, match="bot_token_id"):
        _ = tokenizer.bot_token_id


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tokenizer.json", "{", r"tokenizer\.json cannot be read"),
        ("tokenizer_config.json", "{", r"tokenizer_config\.json is no JSON"),
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json holds list"),
        ("tokenizer_config.json", '{"chat_template": 5}', r"chat_template in .*tokenizer_config\.json is 5"),
        ("tokenizer_config.json", '{"chat_template": [{"template": "x"}]}', "name and template"),
        ("tokenizer_config.json", '{"chat_template": "{% if %}"}', "chat template refuses the messages"),
        ("tokenizer_config.json", '{"chat_template": "{{ raise_exception(\'roles\') }}"}', "refuses .*: roles"),
        ("tokenizer_config.json", '{"chat_template": "{{ messages[7].content + 1 }}"}', "refuses the messages"),
        ("tokenizer_config.json", '{"chat_template": "{{ messages[0].content + 1 }}"}', "refuses the messages"),
        ("tokenizer_config.json", "{}", "has no chat template"),
    ],
)
def test_wrong_files(model_folder: Path, tmp_path: Path, name: str, text: str, message: str) -> None:
    folder = folder_with(tmp_path, model_folder, name, text)
    with pytest.raises(InvalidArgument, match=message):
        ours.Tokenizer(str(folder)).apply_chat_template(CHAT)


def test_a_tokenizer_of_another_model(language_model: ModelProto, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "other", language_model, vocab_size=200)
    with pytest.raises(InvalidArgument, match=r"the tokenizer is another\s+model's"):
        ours.Tokenizer(str(folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match="has no tokenizer"):
        ours.Tokenizer(str(folder))


def test_templates_cannot_reach_out(model: ours.LanguageModel) -> None:
    with pytest.raises(InvalidArgument, match="refuses"):
        model.tokenizer.apply_chat_template(CHAT, template_str="{{ ''.__class__.__mro__[1].__subclasses__() }}")
    for messages in ("hello", [5], "[1]", {"role": "user"}):
        with pytest.raises(InvalidArgument, match="messages"):
            model.tokenizer.apply_chat_template(messages)  # type: ignore[arg-type]


# ------------------------------------------------------------ the short way


def by_hand(model: ours.LanguageModel, tokens: np.ndarray, count: int, **options: Any) -> str:
    params = ours.GeneratorParams(model.model)
    params.set_search_options(max_length=len(tokens) + count, **options)
    generator = ours.Generator(model.model, params)
    generator.append_tokens(tokens)
    while not generator.is_done():
        generator.generate_next_token()
    return model.tokenizer.decode(generator.get_sequence(0)[len(tokens) :])


def whole(text: str) -> str:
    """Without the character that was not whole at the end, which a stream holds back."""
    return text.rstrip("�")


def test_generating(model: ours.LanguageModel) -> None:
    tokens = model.tokenizer.encode("hello world")
    assert model.generate("hello world", max_new_tokens=12) == whole(by_hand(model, tokens, 12))
    assert "".join(model.generate("hello world", max_new_tokens=12, stream=True)) == whole(by_hand(model, tokens, 12))
    drawn = model.generate("hello world", max_new_tokens=12, temperature=2.0, top_k=9, seed=4)
    assert drawn == whole(by_hand(model, tokens, 12, do_sample=True, temperature=2.0, top_k=9, random_seed=4))
    chat = model.tokenizer.encode(model.tokenizer.apply_chat_template(CHAT))
    assert model.generate(CHAT, max_new_tokens=9) == whole(by_hand(model, chat, 9))
    assert model.usage.prompt_tokens == len(chat) and model.usage.generated_tokens == 9


def test_what_prompts_have_in_common_is_read_once(model_folder: Path) -> None:
    model = ours.load(model_folder)
    prompt = "hello world the cache of the kernel"
    first = model.generate(prompt, max_new_tokens=10)
    count = model.usage.prompt_tokens
    assert model.usage.kept_tokens == 0
    again = model.generate(prompt, max_new_tokens=10)
    assert again == first and model.usage.kept_tokens == count - 1
    longer = model.generate(prompt + " token", max_new_tokens=10)
    assert model.usage.kept_tokens > 0 and longer == ours.load(model_folder).generate(
        prompt + " token", max_new_tokens=10
    )
    assert model.generate("quite other", max_new_tokens=5) == ours.load(model_folder).generate(
        "quite other", max_new_tokens=5
    )


def test_streams_beside_each_other_and_cut_off(model_folder: Path) -> None:
    model = ours.load(model_folder)
    alone = [model.generate(text, max_new_tokens=10) for text in ("hello", "world")]
    streams = [model.generate(text, max_new_tokens=10, stream=True) for text in ("hello", "world")]
    said = [next(stream) for stream in streams]
    assert [piece + "".join(stream) for piece, stream in zip(said, streams, strict=True)] == alone
    cut = model.generate("hello", max_new_tokens=10, stream=True)
    next(cut)
    cut.close()  # type: ignore[attr-defined]
    assert model.generate("hello", max_new_tokens=10) == alone[0]


def test_stopping(model: ours.LanguageModel) -> None:
    text = model.generate("hello world", max_new_tokens=40)
    for begin, end in ((3, 5), (len(text) - 3, len(text) - 1), (0, 2)):
        stop = text[begin:end]
        wanted = text[: text.find(stop)]
        assert model.generate("hello world", max_new_tokens=40, stop=stop) == wanted
        pieces = list(model.generate("hello world", max_new_tokens=40, stop=[stop, "never there"], stream=True))
        assert "".join(pieces) == wanted and all(pieces)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("", {}, "the prompt has no tokens"),
        ("hello " * 300, {}, "context_length is 256"),
        ("hello", {"max_new_tokens": 0}, "max_new_tokens is 0"),
        ("hello", {"stop": ""}, "stop is"),
        ("hello", {"temperature": -1}, "temperature"),
        ("hello", {"top_p": 2.0}, "top_p"),
        ("hello", {"min_p": -1.0}, "min_p"),
        ([5], {}, "messages are"),
    ],
)
def test_wrong_prompts_and_options(model: ours.LanguageModel, prompt: Any, options: Any, message: str) -> None:
    """At once, also where the text would come later."""
    for stream in (False, True):
        with pytest.raises(InvalidArgument, match=message):
            model.generate(prompt, stream=stream, **options)


# ------------------------------------------------------------ the command, and other ways to it


def test_the_command(model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = ours.load(model_folder)
    folder = str(model_folder)
    assert main(["chat", folder, "--prompt", "hello", "--raw", "-n", "9", "--threads", "1"]) == 0
    said = capsys.readouterr()
    assert said.out == model.generate("hello", max_new_tokens=9) + "\n" and "9 made" in said.err
    assert (
        main(["chat", folder, "--prompt", "hello", "--raw", "-n", "9", "--draft", folder, "--prompt-lookup", "3"]) == 0
    )
    assert capsys.readouterr().out == said.out
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n\nworld\n"))
    assert main(["chat", folder, "--system", "be short", "-n", "5"]) == 0
    chat: list[dict[str, str]] = [{"role": "system", "content": "be short"}]
    lines = ""
    for text in ("hello", "world"):
        chat.append({"role": "user", "content": text})
        chat.append({"role": "assistant", "content": model.generate(chat, max_new_tokens=5)})
        lines += chat[-1]["content"] + "\n"
    said = capsys.readouterr()
    assert said.out == lines and "of them kept" in said.err
    for wrong in (["--system", "x", "--raw", "-p", "y"], ["-p", ""], ["--temperature", "-1", "-p", "y"]):
        assert main(["chat", folder, *wrong, *(["--raw"] if wrong == ["-p", ""] else [])]) == 1
        assert "Bug" not in capsys.readouterr().err


def test_packages_that_are_missing(
    model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'jitonnx\[genai\]'"):
        ours.load(model_folder)
    assert main(["chat", str(model_folder), "-p", "x"]) == 1
    said = capsys.readouterr().err
    assert "jitonnx[genai]" in said and "Bug" not in said


def python(code: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    ).stdout


def test_starts_without_it_do_not_import_it() -> None:
    parts = "{name for name in sys.modules if name.partition('.')[0] in ('tokenizers', 'jinja2') or 'genai' in name}"
    assert python(f"import sys, jitonnx, jitonnx.api.session, jitonnx.tools.cli; print({parts})") == "set()\n"
    assert (
        python(f"import sys, jitonnx; jitonnx.install_as_onnxruntime(); import onnxruntime; print({parts})")
        == "set()\n"
    )
    code = "import sys, jitonnx.genai; print({'tokenizers', 'jinja2'} & set(sys.modules))"
    assert python(code) == "set()\n"


def test_programs_for_onnxruntime_genai(model_folder: Path) -> None:
    """By the function, and by the folder in front of Python's path."""
    app = (
        "import onnxruntime_genai as og, onnxruntime, sys\n"
        "model = og.Model(sys.argv[0] if False else FOLDER); params = og.GeneratorParams(model)\n"
        "params.set_search_options(max_length=12)\n"
        "generator = og.Generator(model, params); generator.append_tokens([5, 6, 7])\n"
        "while not generator.is_done(): generator.generate_next_token()\n"
        "print(og.Model.__module__, og.__version__, onnxruntime.InferenceSession.__module__, generator.token_count())"
    ).replace("sys.argv[0] if False else FOLDER", repr(str(model_folder)))
    wanted = "jitonnx.genai.model 0.18.0 jitonnx.api.session 12\n"
    assert python(f"import jitonnx; jitonnx.install_as_onnxruntime()\n{app}") == wanted
    from jitonnx.compat.alias import FOLDER

    root = str(Path(jitonnx.__file__).parents[1])
    assert python(app, PYTHONPATH=f"{FOLDER}{os.pathsep}{root}") == wanted
