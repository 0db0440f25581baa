"""`load` and `LanguageModel.generate`: the short way from a folder and a prompt to text."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from jitonnx import errors
from jitonnx.errors import InvalidArgument
from jitonnx.genai.audio import Source
from jitonnx.genai.beams import TransformersBeams
from jitonnx.genai.cache_type import TEXT, CacheType
from jitonnx.genai.config import Config
from jitonnx.genai.generator import Generator, GeneratorParams
from jitonnx.genai.image_messages import has_images, without_images
from jitonnx.genai.images import Images
from jitonnx.genai.model import Model
from jitonnx.genai.speculation import check_draft
from jitonnx.genai.stops import Stops
from jitonnx.genai.tensors import NamedTensors
from jitonnx.genai.tokenizer import Tokenizer
from jitonnx.genai.transcription import Transcriber, Transcript

_LOOKED_UP = 2
"""Tokens that a prompt is looked through for."""


@dataclass
class Usage:
    """What an answer took."""

    prompt_tokens: int = 0
    kept_tokens: int = 0
    """Tokens of the prompt that the answer before had left, and that were not read again."""
    generated_tokens: int = 0
    prompt_seconds: float = 0.0
    """Until the model had read the prompt."""
    generated_seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """How many tokens were generated a second."""
        return self.generated_tokens / self.generated_seconds if self.generated_seconds else 0.0


def load(
    folder: str | os.PathLike[str],
    *,
    threads: int | None = None,
    draft: str | os.PathLike[str] | None = None,
    cache_type: str | None = None,
    calibration: str = TEXT,
) -> LanguageModel:
    """A folder's model with its tokenizer. threads: of products and attention (default: as its configuration says).
    draft: the folder of a smaller model of the same tokens, which proposes tokens (speculative decoding). cache_type:
    keys and values are kept as "float32", "float16", "bfloat16" or "int8" (default: as the model has them), of models
    whose attention is GroupQueryAttention. calibration: a text on which is measured how large they are, for int8.

    NoSuchFile for files that are not there, InvalidArgument for those that do not go together, NotImplemented for
    models of several parts; ImportError without the package `tokenizers`.
    """
    tokenizer = kept = None
    if cache_type is not None:
        tokenizer = Tokenizer(folder)
        kept = CacheType(cache_type, tokenizer.encode_with(calibration, add_special_tokens=True))
    model = _model(folder, threads, kept)
    smaller = None if draft is None else _model(draft, threads)
    if smaller is not None:
        check_draft(smaller, model)
    return LanguageModel(model, tokenizer or Tokenizer(model), smaller)


def _model(folder: str | os.PathLike[str], threads: int | None, cache_type: CacheType | None = None) -> Model:
    config = Config(folder)
    if threads is not None:
        options = {"session_options": {"intra_op_num_threads": threads}}
        config.overlay(json.dumps({"model": {"decoder": options}}))
    return Model(config, last_logits=True, cache_type=cache_type)


class LanguageModel:
    """A model and a tokenizer, perhaps a draft model that proposes tokens. What a prompt has in common with
    the one before, and its answer, is not read again."""

    def __init__(self, model: Model, tokenizer: Tokenizer, draft: Model | None = None) -> None:
        self.model, self.tokenizer, self.draft = model, tokenizer, draft
        self.usage = Usage()
        """The usage of the last answer; counted on while it streams."""
        self._kept: Generator | None = None
        """That of the last answer, while nobody uses it."""
        self._processor: Any = None
        """What makes prompts with images, once there was one."""
        self._lock = threading.Lock()
        """Held while one takes it."""
        self._transcriber: Transcriber | None = None

    @overload
    def generate(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        max_new_tokens: int | None = ...,
        temperature: float | None = ...,
        top_k: int | None = ...,
        top_p: float | None = ...,
        min_p: float | None = ...,
        repetition_penalty: float | None = ...,
        num_beams: int | None = ...,
        length_penalty: float | None = ...,
        early_stopping: bool | Literal["never"] | None = ...,
        stop: str | Sequence[str] = ...,
        seed: int | None = ...,
        guidance: tuple[str, str] | None = ...,
        prompt_lookup: int = ...,
        stream: Literal[False] = False,
    ) -> str: ...

    @overload
    def generate(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        max_new_tokens: int | None = ...,
        temperature: float | None = ...,
        top_k: int | None = ...,
        top_p: float | None = ...,
        min_p: float | None = ...,
        repetition_penalty: float | None = ...,
        num_beams: int | None = ...,
        length_penalty: float | None = ...,
        early_stopping: bool | Literal["never"] | None = ...,
        stop: str | Sequence[str] = ...,
        seed: int | None = ...,
        guidance: tuple[str, str] | None = ...,
        prompt_lookup: int = ...,
        stream: Literal[True],
    ) -> Iterator[str]: ...

    def generate(  # noqa: PLR0913  (a call's options, by name)
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | Literal["never"] | None = None,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        guidance: tuple[str, str] | None = None,
        prompt_lookup: int = 0,
        stream: bool = False,
    ) -> str | Iterator[str]:
        """The text behind a prompt, or with `stream` an iterator over its pieces, as they come.

        prompt: a text, in front of which the tokenizer puts what it puts in front of texts, or the messages of a chat,
        [{"role": "user", "content": ...}], which the model's template makes a prompt of. A content is a text, or for
        models of images a list of parts, [{"type": "image", "image": ...}, {"type": "text", "text": ...}], whose images
        are paths, files' bytes or arrays (`Images.of`). temperature: 0 for the most
        probable token each time; of a temperature, top_k, top_p, min_p and seed each makes tokens be drawn.
        repetition_penalty: above 1 makes tokens that stand there already less probable. What is None is as the folder's
        configuration says; max_new_tokens: until the model ends or its context is full. stop: texts at which to end,
        which are not given. guidance: what the text has to be, as ("json_schema", ...), ("regex", ...) or
        ("lark_grammar", ...), which needs the package `llguidance`. prompt_lookup: how many tokens at most are read
        ahead where the last ones have stood before, as in answers that repeat their prompt: the text is the same, and
        comes faster or, at times, slower.

        num_beams: how many texts go on beside each other (beam search); the one that is most probable as a whole is
        given, in one piece, as the library transformers finds it. length_penalty: the power of the number of tokens
        that the logarithm of a text's probability is divided by. early_stopping: when to end: True, once as many have
        ended as there are beams; False, once those that go on are less probable so far; "never", once they cannot
        become more probable.

        InvalidArgument for a prompt without tokens, or too long for the model, and for options that make no sense.
        """
        if self.is_speech:
            raise InvalidArgument(
                f"{self.model.config.folder} has a model of speech ({self.model.type}): use transcribe"
            )
        inputs = None
        if isinstance(prompt, str):
            tokens = self.tokenizer.encode_with(prompt, add_special_tokens=True)
        elif has_images(prompt):
            inputs = self._with_images(prompt)
            tokens = inputs["input_ids"].as_numpy()[0]
        else:
            text = self.tokenizer.apply_chat_template(prompt)
            tokens = self.tokenizer.encode_with(text, add_special_tokens=False)
        stops = [stop] if isinstance(stop, str) else list(stop)
        if not all(isinstance(one, str) and one for one in stops):
            raise InvalidArgument(f"stop is {stop!r}: a text that is not empty, or several, is needed")
        params = self._params(len(tokens), max_new_tokens)
        drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "random_seed": seed}
        given = {name: value for name, value in drawing.items() if value is not None}
        if given:
            params.set_search_options(do_sample=temperature != 0, **given)
        elif num_beams is not None and num_beams > 1:
            params.set_search_options(do_sample=False)
        others = {
            "repetition_penalty": repetition_penalty,
            "num_beams": num_beams,
            "length_penalty": length_penalty,
            "early_stopping": early_stopping,
        }
        params.set_search_options(**{name: value for name, value in others.items() if value is not None})
        params.beams = TransformersBeams
        if guidance is not None:
            params.set_guidance(*guidance)
        if prompt_lookup:
            params.set_speculative_options(ngram_size=_LOOKED_UP, max_draft_tokens=prompt_lookup)
        if self.draft is not None:
            params.set_draft_model(self.draft)
        params.check()
        answer = self._best if params.options.num_beams > 1 else self._pieces
        pieces = _until(answer(params, tokens, inputs), stops)
        return pieces if stream else "".join(pieces)

    @property
    def is_speech(self) -> bool:
        """Whether it is a model of speech, which transcribes audio, and generates nothing from text."""
        return self.model.encoder is not None and bool(self.model.encoder.features)

    def transcribe(
        self,
        audio: Source,
        *,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: bool = False,
        max_new_tokens: int | None = None,
    ) -> Transcript:
        """What is said in audio, by a model of speech (Whisper).

        audio: a file's path, what a file holds, or samples at 16 kHz, floating-point. language: its code, as "en";
        None: the model says which it is. task: "translate" for English. timestamps: have segments with the seconds at
        which they begin and end. Audio of more than 30 s is read in windows, each of which begins at the last timestamp
        of the one before, so segments have their seconds anyhow. max_new_tokens: of a window (default: until it ends).

        InvalidArgument for a model that takes no audio, for what is no audio, and for a language or a task that the
        model does not know; ImportError for a form or a rate of audio that a package is needed for.
        """
        if self._transcriber is None:
            self._transcriber = Transcriber(self.model, self.tokenizer)
        return self._transcriber.transcript(
            audio, language=language, task=task, timestamps=timestamps, max_new_tokens=max_new_tokens
        )

    def embed(self, tokens: np.ndarray) -> np.ndarray:
        """What the model makes of tokens, int32 [tokens], a vector of length 1, float32 [size]: its last hidden state.

        NotImplemented for a model that does not give hidden states. InvalidArgument as `generate`.
        """
        params = self._params(len(tokens), 1)
        name = self.model.config.text("model", "decoder", "outputs", "hidden_states", default="hidden_states")
        if name not in self.model.decoder.others:
            raise errors.NotImplemented(
                f"the model has no output {name!r}, and so no embeddings: onnxruntime-genai's model builder "
                "writes it with include_hidden_states=true"
            )
        generator = Generator(self.model, params)
        generator.append_tokens(tokens)
        last = generator.get_output(name)[0, -1].astype(np.float32)
        made: np.ndarray = last / max(float(np.linalg.norm(last)), 1e-12)
        return made

    def _params(self, count: int, max_new_tokens: int | None) -> GeneratorParams:
        """The configuration's options, for so many tokens of a prompt."""
        context = self.model.context_length
        if not count:
            raise InvalidArgument("the prompt has no tokens: there is nothing to go on from")
        if count >= context:
            raise InvalidArgument(
                f"the prompt has {count} tokens, and the model's context_length is {context}: shorten it, as one token "
                "at least is to follow"
            )
        if max_new_tokens is not None and max_new_tokens < 1:
            raise InvalidArgument(f"max_new_tokens is {max_new_tokens}: 1 or more is needed")
        params = GeneratorParams(self.model)
        if self.model.encoder is not None:  # texts begin with one token
            count = 1
        most = context if max_new_tokens is None else min(context, count + max_new_tokens)
        params.set_search_options(max_length=most, batch_size=1)
        return params

    def _with_images(self, messages: Sequence[Mapping[str, Any]]) -> NamedTensors:
        """The inputs that a chat with images is."""
        if self.draft is not None:
            raise errors.NotImplemented("a draft model does not see images: load the model without draft for these")
        if self._processor is None:
            self._processor = self.model.create_multimodal_processor()
        prompts = self._processor.prompts
        chat, images = without_images(messages, None if prompts.takes_parts else prompts.mark)
        inputs: NamedTensors = self._processor(self.tokenizer.apply_chat_template(chat), images=Images.of(images))
        return inputs

    def _pieces(self, params: GeneratorParams, tokens: np.ndarray, inputs: NamedTensors | None) -> Iterator[str]:
        """The text of token after token. inputs: of a prompt with images. Leaves the generator for the next prompt."""
        usage = self.usage = Usage(len(tokens))
        with self._lock:
            generator, self._kept = self._kept, None
        if generator is None or self.model.encoder is not None or not generator.is_alike(params):
            generator = Generator(self.model, params)
        self._read(generator, params, tokens, inputs)
        stream, ends = self.tokenizer.create_stream(), set(self.model.ends)
        try:
            while not generator.is_done():
                begin = time.perf_counter()
                generator.generate_next_token()
                token = int(generator.get_next_tokens()[0])
                text = "" if token in ends else stream.decode(token)
                usage.generated_tokens += 1
                usage.generated_seconds += time.perf_counter() - begin
                if text:
                    yield text
        finally:
            self._kept = generator

    def _best(self, params: GeneratorParams, tokens: np.ndarray, inputs: NamedTensors | None) -> Iterator[str]:
        """The text of the best of beams, as a whole. `Usage` counts a token of each beam as one."""
        usage = self.usage = Usage(len(tokens))
        generator = Generator(self.model, params)
        self._read(generator, params, tokens, inputs)
        begin, before = time.perf_counter(), generator.token_count()
        while not generator.is_done():
            generator.generate_next_token()
        stream = self.tokenizer.create_stream()
        text = "".join(stream.decode(token) for token in generator.get_sequence(0)[before:].tolist())
        usage.generated_tokens = generator.token_count() - before
        usage.generated_seconds = time.perf_counter() - begin
        yield text

    def _read(
        self, generator: Generator, params: GeneratorParams, tokens: np.ndarray, inputs: NamedTensors | None
    ) -> None:
        """Have a generator read a prompt, of which `usage` is told."""
        begin, encoder = time.perf_counter(), self.model.encoder
        if encoder is None:
            self.usage.kept_tokens = generator.restart(params, tokens, inputs)
        else:
            self.model.check_tokens(tokens)
            for name, value in encoder.read(tokens).items():
                generator.set_model_input(name, value)
            generator.append_tokens(np.array([encoder.start], np.int32))
        self.usage.prompt_seconds = time.perf_counter() - begin


def _until(pieces: Iterator[str], stops: Sequence[str]) -> Iterator[str]:
    """Pieces of text up to the first of some texts."""
    text = Stops(stops)
    for piece in pieces:
        if ready := text.push(piece):
            yield ready
        if text.matched is not None:
            break
    pieces.close()  # type: ignore[attr-defined]
    if rest := text.rest():
        yield rest
