"""`Model`: a folder's model as a session, and `Adapters` for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx import errors
from jitonnx.api.adapters import LoraAdapter
from jitonnx.api.enumerations import GraphOptimizationLevel
from jitonnx.api.options import SessionOptions
from jitonnx.api.session import InferenceSession
from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.genai import optimum
from jitonnx.genai.cache_type import CacheType, measured, with_cache_type
from jitonnx.genai.config import Config
from jitonnx.genai.decoder import Decoder, Steps
from jitonnx.genai.encoder import Encoder
from jitonnx.genai.last_logits import LARGEST_BYTES, with_last_logits
from jitonnx.genai.vision import Embedding, Parts, Vision

if TYPE_CHECKING:
    from jitonnx.genai.multimodal import MultiModalProcessor

_NUMBERS = ("intra_op_num_threads", "inter_op_num_threads", "log_severity_level", "log_verbosity_level")
_FLAGS = ("enable_cpu_mem_arena", "enable_mem_pattern")
"""Options of sessions that a configuration may tell: numbers, and true or false."""
_PARTS = ("encoder", "speech", "joiner", "draft")
"""Models that a folder may have beside its decoder, and that not every type's are run of."""
_SPEECH = ("whisper",)
"""Types of models whose encoder is one of audio."""
_SPEECH_TOO = "phi4mm"
"""The type that is read without its model of speech."""

_Rewrite = Callable[[bytes], bytes | None]
"""What makes another model of one, or None where it is to stay."""


class Model:
    """A decoder of a folder that onnxruntime-genai's model builder writes, and what it has beside it."""

    def __init__(
        self,
        source: Config | str | os.PathLike[str],
        *,
        last_logits: bool = False,
        cache_type: CacheType | None = None,
    ) -> None:
        """last_logits: of prompts, compute no logits but the last ones, as far as the model's form allows: `get_output`
        then has those alone. cache_type: that of keys and values (default: the model's). (Neither in
        onnxruntime-genai.)

        NoSuchFile for files that are not there, InvalidArgument for a configuration that does not fit the model,
        NotImplemented for models of several parts but encoders and decoders of text or speech, and images with text."""
        self.config = config = source if isinstance(source, Config) else Config(source)
        for part in _PARTS:
            if part == "encoder" and (config.source == optimum.FILE or self.type in _SPEECH):
                continue
            if part == "speech" and self.type == _SPEECH_TOO and config.get("model", "vision", "filename"):
                continue
            if config.get("model", part, "filename"):
                raise errors.NotImplemented(
                    f"{config.folder} has model.{part} beside the decoder, and is {self.type!r}: of models of several "
                    f"parts those of speech ({', '.join(_SPEECH)}), and of images and text, are supported"
                )
        for part in ("decoder", "vision"):
            if config.get("model", part, "pipeline"):
                raise errors.NotImplemented(
                    f"{config.folder} has model.{part}.pipeline: models in such parts are not supported"
                )
        self.context_length = config.number("model", "context_length")
        """The most tokens of a sequence."""
        if self.context_length < 1:
            raise InvalidArgument(
                f"{config.name('model', 'context_length')} is {self.context_length}: it is the most tokens there can be"
            )
        parts = self._parts()
        rewrites: list[_Rewrite] = [self._with_last_logits] if last_logits else []
        if cache_type is not None:
            rewrites.append(self._with_cache_type(cache_type, rewrites, parts))
        self.decoder = Decoder(config, self._session("decoder", "filename", rewrites), parts)
        self.encoder: Encoder | None = None
        """What reads the prompt, in models that have one. (Not in onnxruntime-genai.)"""
        if config.get("model", "encoder", "filename"):
            self.encoder = Encoder(config, self.decoder, self._session)
        self.guided_tokens: Any = None
        """The tokenizer as `Guide` has it, once there is one. (Not in onnxruntime-genai.)"""
        self.ends = config.tokens("model", "eos_token_id")
        """The tokens that end a sequence."""
        for token in self.ends:
            if not 0 <= token < self.decoder.vocabulary:
                raise InvalidArgument(
                    f"{config.name('model', 'eos_token_id')} has {token}: it must be in range "
                    f"[0, {self.decoder.vocabulary}) (vocab_size)"
                )

    @property
    def type(self) -> str:
        """The architecture, as the configuration names it."""
        return self.config.text("model", "type")

    @property
    def device_type(self) -> str:
        """Always "CPU"."""
        return "CPU"

    def check_tokens(self, tokens: np.ndarray, images: int = 0) -> None:
        """InvalidArgument for tokens that the model does not have. images: how many are stood for by the numbers from
        -1 down. (Not in onnxruntime-genai.)"""
        check_tokens(tokens, self.decoder.vocabulary, images)

    def create_multimodal_processor(self) -> MultiModalProcessor:
        """What makes inputs of prompts with images or audio. NotImplemented for models that take text alone; errors of
        `Tokenizer`, and of what the folder says of images or audio; ImportError without the packages of
        `jitonnx[vision]`."""
        from jitonnx.genai.processors import processor_of

        return processor_of(self)

    def create_streaming_processor(self) -> Any:
        """NotImplemented, always."""
        raise errors.NotImplemented(
            "models that take audio as it comes (nemotron_speech) are not supported: those of whole sounds are, by "
            "create_multimodal_processor"
        )

    def _parts(self) -> Parts | None:
        """What makes rows of tokens and images, where the decoder reads these."""
        config = self.config
        has_vision = bool(config.get("model", "vision", "filename"))
        if not config.get("model", "embedding", "filename"):
            if has_vision:
                raise InvalidArgument(
                    f"{config.name('model', 'vision')} names a model, and model.embedding names none: it is needed to "
                    "put images between tokens"
                )
            return None
        vision = Vision(config, self._session("vision", "filename")) if has_vision else None
        return Parts(config, Embedding(config, self._session("embedding", "filename")), vision)

    def _session(self, part: str, key: str, rewrites: Sequence[_Rewrite] = ()) -> InferenceSession:
        """A session of a file that the configuration names in a section. rewrites: what makes another model of it, or
        None where it is to stay."""
        config, named = self.config, ("model", part, key)
        name = config.text(*named)
        if not name:
            raise InvalidArgument(f"{config.name(*named)} is not there: it names the model")
        given: str | bytes | None = config.model_data.get(name)
        path = config.file(*named)
        if given is None:
            if not os.path.isfile(path):
                raise NoSuchFile(f"{path} does not exist, which {config.name(*named)} names")
            given = path
        if rewrites:
            data = given
            if isinstance(data, str):
                with open(data, "rb") as file:
                    data = file.read()
            for rewrite in rewrites:
                if (made := rewrite(data)) is not None:
                    given = data = made
        folder = os.path.dirname(path) if isinstance(given, bytes) else ""
        return InferenceSession(given, self._options(part, folder), providers=["CPUExecutionProvider"])

    def _with_last_logits(self, data: bytes) -> bytes | None:
        """The model with the last logits alone, if it is small enough, without its weights, and has that form."""
        if len(data) > LARGEST_BYTES:
            return None
        key = "inputs_embeds" if self.config.get("model", "embedding", "filename") else "input_ids"
        ids = self.config.text("model", "decoder", "inputs", key, default=key)
        logits = self.config.text("model", "decoder", "outputs", "logits", default="logits")
        return with_last_logits(data, ids, logits)

    def _with_cache_type(self, cache_type: CacheType, rewrites: Sequence[_Rewrite], parts: Parts | None) -> _Rewrite:
        """What gives a model's caches another type. rewrites: those before; parts: the decoder's."""
        scales: dict[str, np.ndarray] = {}
        if cache_type.is_integer and cache_type.tokens is not None:
            decoder = Decoder(self.config, self._session("decoder", "filename", rewrites), parts)
            tokens = cache_type.tokens[: self.context_length]
            check_tokens(tokens, decoder.vocabulary)
            in_place = self.config.flag("search", "past_present_share_buffer")
            scales = measured(Steps(decoder, 1, in_place=in_place, limit=self.context_length), tokens)
        return lambda data: with_cache_type(data, cache_type.name, scales)

    def _options(self, part: str, folder: str) -> SessionOptions:
        """The options of a part, or the decoder's where it has none of its own."""
        options, config, path = SessionOptions(), self.config, ("model", part, "session_options")
        if config.get(*path) is None:
            path = ("model", "decoder", "session_options")
        told = config.section(*path)
        for name in _NUMBERS:
            if told.get(name) is not None:
                setattr(options, name, config.number(*path, name))
        for name in _FLAGS:
            if told.get(name) is not None:
                setattr(options, name, config.flag(*path, name))
        options.logid = config.text(*path, "log_id")
        level = config.text(*path, "graph_optimization_level", default="ORT_ENABLE_ALL")
        options.graph_optimization_level = getattr(GraphOptimizationLevel, level, GraphOptimizationLevel.ORT_ENABLE_ALL)
        for name, value in config.section(*path, "config_entries").items():
            options.add_session_config_entry(name, str(value))
        others = [name for name in config.providers() if name.lower() not in ("cpu", "cpuexecutionprovider")]
        if others:
            place = config.name("model", "decoder", "session_options", "provider_options")
            raise InvalidArgument(
                f"{place} asks for {', '.join(others)}: jitonnx runs on CPUs; "
                "Config.clear_providers() leaves the others out, if the model is one for CPUs"
            )
        if folder:  # of a model in memory
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        return options


def check_tokens(tokens: np.ndarray, vocabulary: int, images: int = 0) -> None:
    """InvalidArgument for tokens that are none of so many. images: as for `Model.check_tokens`."""
    wrong = tokens[(tokens < -images) | (tokens >= vocabulary)]
    if wrong.size:
        raise InvalidArgument(f"token {wrong[0]} is none of the model's {vocabulary}: the tokenizer is another model's")


class Adapters:
    """Adapters of a model, by names, for `Generator.set_active_adapter`."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._loaded: dict[str, LoraAdapter] = {}

    def load(self, path: str, name: str) -> None:
        """Read an adapter's file. InvalidArgument for a name that is taken."""
        if name in self._loaded:
            raise InvalidArgument(f"Adapter already loaded: {name}")
        adapter = LoraAdapter()
        adapter.Load(path)
        self._loaded[name] = adapter

    def unload(self, name: str) -> None:
        """Forget an adapter; a generator that uses it goes on. InvalidArgument for an unknown name."""
        self.named(name)
        del self._loaded[name]

    def named(self, name: str) -> LoraAdapter:
        """An adapter. InvalidArgument for an unknown name."""
        if name not in self._loaded:
            known = ", ".join(self._loaded) or "none"
            raise InvalidArgument(f"Adapter {name!r} is not loaded; these are: {known}")
        return self._loaded[name]
