"""Text to tokens and back, by Hugging Face's `tokenizers`, and chats as prompts, by their templates in Jinja."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.genai.config import Config, read_object
from jitonnx.genai.extras import needed
from jitonnx.genai.model import Model
from jitonnx.genai.tensors import Tensor

FILE = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"


class Tokenizer:
    """The tokenizer of a model's folder. Tokens are int32 arrays.

    Special tokens are neither added in front of a text nor written when tokens become text, unless `update_options`
    asks: a chat template writes its own.
    """

    def __init__(self, source: Model | Config | str | os.PathLike[str]) -> None:
        """NoSuchFile for a folder without tokenizer.json; InvalidArgument for a tokenizer that does not fit the model;
        ImportError without the package `tokenizers`."""
        config = source if isinstance(source, Config) else source.config if isinstance(source, Model) else None
        self.config = config = config or Config(source)  # type: ignore[arg-type]
        self.folder = os.path.join(config.folder, config.text("model", "tokenizer_dir"))
        self.file = place = os.path.join(self.folder, FILE)
        """(Not in onnxruntime-genai.)"""
        self._inner = read(self.folder)
        self._new_stream = needed("tokenizers.decoders", "a tokenizer").DecodeStream
        known = config.number("model", "vocab_size")
        # Added tokens may be beyond: Gemma's tokenizer has one for images that the model of text lacks.
        highest = max(self._inner.get_vocab(with_added_tokens=False).values(), default=-1)
        if known and highest >= known:
            raise InvalidArgument(
                f"{place} has token {highest}, and {config.name('model', 'vocab_size')} is {known}: the tokenizer is "
                "another model's"
            )
        self._adds_special, self._skips_special = False, True
        self._templates: _Templates | None = None

    def update_options(self, **options: Any) -> None:
        """add_special_tokens: in front of and behind texts, as the tokenizer says; skip_special_tokens: when tokens
        become text. InvalidArgument for other options."""
        for name, value in options.items():
            chosen = str(value).lower() in ("true", "1")
            if name == "add_special_tokens":
                self._adds_special = chosen
            elif name == "skip_special_tokens":
                self._skips_special = chosen
            else:
                raise InvalidArgument(
                    f"{name!r} is no option of a tokenizer; these are: add_special_tokens, skip_special_tokens"
                )

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text, int32."""
        return self.encode_with(text, self._adds_special)

    def encode_with(self, text: str, add_special_tokens: bool) -> np.ndarray:
        """`encode`, special tokens being added or not. (Not in onnxruntime-genai.)"""
        if not isinstance(text, str):
            raise InvalidArgument(f"a text is needed, and {text!r} was given")
        return np.array(self._inner.encode(text, add_special_tokens=add_special_tokens).ids, np.int32)

    def encode_batch(self, texts: Sequence[str]) -> Tensor:
        """The tokens of texts, int32 [texts, tokens], with pad_token_id behind the shorter ones."""
        rows = [self.encode(text) for text in texts]
        return Tensor(padded(rows, self.pad_token_id))

    def decode(self, tokens: Any) -> str:
        """The text of tokens."""
        found: str = self._inner.decode(_list(tokens), skip_special_tokens=self._skips_special)
        return found

    def decode_batch(self, tokens: Any) -> list[str]:
        """The texts of rows of tokens."""
        rows = tokens.as_numpy() if isinstance(tokens, Tensor) else np.asarray(tokens)
        return [self.decode(row) for row in rows]

    def create_stream(self) -> TokenizerStream:
        """A stream that gives the text of tokens one by one."""
        return TokenizerStream(self)

    def token_text(self, token: int) -> str:
        """What a token is as a part of a text; U+FFFD for bytes that are no character. Special tokens are as they are
        written. (Not in onnxruntime-genai.)"""
        # Behind others: at the beginning of a text decoders leave out what a word has in front of it.
        before = self._inner.encode("a", add_special_tokens=False).ids
        texts = [self._inner.decode(ids, skip_special_tokens=False) for ids in (before, [*before, token])]
        return str(texts[1]).removeprefix(texts[0])

    def to_token_id(self, text: str) -> int:
        """The id of a token. InvalidArgument if there is none of this text."""
        found: int | None = self._inner.token_to_id(text)
        if found is None:
            raise InvalidArgument(f"the tokenizer has no token {text!r}")
        return found

    def tokens(self) -> dict[str, int]:
        """All tokens, by their texts. (Not in onnxruntime-genai.)"""
        found: dict[str, int] = self._inner.get_vocab(with_added_tokens=True)
        return found

    def apply_chat_template(
        self,
        messages: str | Sequence[Any],
        *,
        template_str: str | None = None,
        tools: str | Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt that a chat's messages are.

        messages, tools: lists of dicts, or JSON. template_str: a template of Jinja (default: the model's). variables:
        what the template may ask for besides, as `enable_thinking` (not in onnxruntime-genai).
        InvalidArgument for messages that the template refuses, and where there is no template; ImportError without the
        package `jinja2`.
        """
        given = {"messages": _parsed(messages, "messages"), "tools": _parsed(tools or None, "tools")}
        given["add_generation_prompt"] = add_generation_prompt
        return self._known_templates().rendered(template_str or None, {**(variables or {}), **given})

    @property
    def has_chat_template(self) -> bool:
        """Whether the model comes with a template for chats."""
        return self._known_templates().default is not None

    @property
    def tool_template(self) -> str:
        """The text of the template for chats with tools; "" without any. (Not in onnxruntime-genai.)"""
        return self._known_templates().of_tools or ""

    def is_special(self, token: int) -> bool:
        """Whether a token is one that texts leave out. (Not in onnxruntime-genai.)"""
        added = self._inner.get_added_tokens_decoder().get(token)
        return added is not None and bool(added.special)

    def _known_templates(self) -> _Templates:
        if self._templates is None:
            self._templates = _Templates(self.folder)
        return self._templates

    # ------------------------------------------------------------ tokens that mean something

    @property
    def bos_token_id(self) -> int:
        """The token in front of a text."""
        return self.config.number("model", "bos_token_id")

    @property
    def eos_token_ids(self) -> np.ndarray:
        """The tokens that end a text."""
        return np.array(self.config.tokens("model", "eos_token_id"), np.int32)

    @property
    def pad_token_id(self) -> int:
        """The token that fills shorter texts of a batch."""
        return self.config.number("model", "pad_token_id")

    @property
    def bot_token_id(self) -> int:
        """The token in front of a tool call. InvalidArgument if the configuration has none."""
        return self._told("bot_token_id")

    @property
    def eot_token_id(self) -> int:
        """The token behind a tool call. InvalidArgument if the configuration has none."""
        return self._told("eot_token_id")

    @property
    def bor_token_id(self) -> int:
        """The token in front of reasoning. InvalidArgument if the configuration has none."""
        return self._told("bor_token_id")

    @property
    def eor_token_id(self) -> int:
        """The token behind reasoning. InvalidArgument if the configuration has none."""
        return self._told("eor_token_id")

    def _told(self, name: str) -> int:
        if self.config.get("model", name) is None:
            raise InvalidArgument(f"{name} is not defined for this model: genai_config.json does not tell it")
        return self.config.number("model", name)

    def step(self, stream: Any, token: int) -> str:
        """The text that a token adds to a stream of the package's."""
        added: str | None = stream.step(self._inner, token)
        return added or ""

    def new_stream(self, *, keeps_special: bool = False) -> Any:
        """A stream of the package's, with the options as they are, unless it keeps special tokens."""
        return self._new_stream(skip_special_tokens=self._skips_special and not keeps_special)


class TokenizerStream:
    """Tokens to text one by one: what is no whole character yet is held back."""

    def __init__(self, tokenizer: Tokenizer, *, keeps_special: bool = False) -> None:
        """keeps_special: special tokens become text. (Not in onnxruntime-genai.)"""
        self._tokenizer = tokenizer
        self._stream = tokenizer.new_stream(keeps_special=keeps_special)

    def decode(self, token: int) -> str:
        """The text that a token adds; "" while a character is not whole."""
        return self._tokenizer.step(self._stream, int(token))


def read(folder: str) -> Any:
    """A folder's tokenizer of the package `tokenizers`, which neither pads texts nor cuts them.

    NoSuchFile for a folder without one, InvalidArgument for what cannot be read; ImportError without the package.
    """
    place = os.path.join(folder, FILE)
    if not os.path.isfile(place):
        raise NoSuchFile(f"{folder} has no {FILE}: it comes with the model")
    package = needed("tokenizers", "a tokenizer")
    try:
        made = package.Tokenizer.from_file(place)
    except Exception as error:  # the package raises nothing narrower
        raise InvalidArgument(f"{place} cannot be read: {error}") from error
    made.no_padding()
    made.no_truncation()
    return made


def padded(rows: Sequence[np.ndarray], pad: int) -> np.ndarray:
    """Rows of tokens as one array, int32 [rows, tokens], with `pad` behind the shorter ones."""
    made = np.full((len(rows), max(map(len, rows), default=0)), pad, np.int32)
    for place, row in zip(made, rows, strict=True):
        place[: len(row)] = row
    return made


def _list(tokens: Any) -> list[int]:
    found: list[int] = np.asarray(tokens.as_numpy() if isinstance(tokens, Tensor) else tokens).reshape(-1).tolist()
    return found


def _parsed(given: Any, what: str) -> Any:
    """A list of dicts, also from JSON."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise InvalidArgument(f"{what} are no JSON: {error}") from error
    if given is not None and not (isinstance(given, Iterable) and all(isinstance(one, dict) for one in given)):
        raise InvalidArgument(f"{what} are {given!r}: a list of dicts is needed, as [{{'role': 'user', ...}}]")
    return given


class _Templates:
    """The chat templates of a folder, and what they may write of tokens."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        place = os.path.join(folder, _CONFIG)
        self._config: dict[str, Any] = read_object(place) if os.path.isfile(place) else {}
        self._named = _named(self._config.get("chat_template"), place)
        place = os.path.join(folder, _TEMPLATE)
        if os.path.isfile(place):
            with open(place, encoding="utf-8") as file:
                self._named["default"] = file.read()

    @property
    def default(self) -> str | None:
        """The template of chats without tools."""
        return self._named.get("default")

    @property
    def of_tools(self) -> str | None:
        """The template of chats with tools."""
        return self._named.get("tool_use") or self.default

    def rendered(self, template: str | None, given: Mapping[str, Any]) -> str:
        """The prompt. given: variables of the template."""
        sandbox = needed("jinja2.sandbox", "a chat template")
        text = template or (self.of_tools if given["tools"] else self.default)
        if text is None:
            raise InvalidArgument(
                f"{self._folder} has no chat template ({_TEMPLATE}, or chat_template in {_CONFIG}): give one as "
                "template_str, or a prompt instead of messages"
            )
        environment = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _json
        environment.globals.update(raise_exception=_refuse, strftime_now=_now)
        tokens = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in self._config.items()
            if name.endswith("_token") and isinstance(value, str | dict)
        }
        try:
            made: str = environment.from_string(text).render({**tokens, **given})
        except Exception as error:  # also what operators of Python raise, as a text and None are added
            raise InvalidArgument(f"the chat template refuses the messages: {error}") from error
        return made


def _named(told: Any, place: str) -> dict[str, str]:
    """Templates by names: of one text, or of a list of names and texts. InvalidArgument for anything else."""
    if told is None or isinstance(told, str):
        return {"default": told} if told else {}
    found = told
    if isinstance(told, list) and all(isinstance(one, dict) for one in told):
        found = {one.get("name"): one.get("template") for one in told}
    if not (isinstance(found, dict) and all(isinstance(text, str) for pair in found.items() for text in pair)):
        raise InvalidArgument(
            f"chat_template in {place} is {told!r}: a text, or a list of objects with name and template, is needed"
        )
    return found


def _json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """A value as JSON, by Jinja's `tojson` without its escapes of HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _refuse(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _now(form: str) -> str:
    import datetime

    return datetime.datetime.now().strftime(form)
