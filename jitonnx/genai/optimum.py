"""Folders that optimum writes, as configurations: `config.json` and a decoder whose caches grow by concatenation."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from jitonnx.errors import InvalidArgument

FILE = "config.json"
BRANCH = "use_cache_branch"
"""An input of merged decoders: whether there are caches, be they empty."""

CROSS = ".encoder."
"""What the names of caches have that hold keys and values of an encoder's output."""

_ENCODER = "encoder_model.onnx"
_FIRST = "decoder_model.onnx"
"""The decoder without caches."""
_SEARCH = "generation_config.json"
_FILES = ("decoder_model_merged.onnx", "decoder_with_past_model.onnx", "model.onnx")
"""Decoders with caches, the best first."""
_PLACES = ("", "onnx")
_LENGTHS = (
    "max_target_positions",
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_sequence_length",
    "seq_length",
)
_RELATIVE = 4096
"""The most tokens of models whose positions are relative (T5), which have no end of their own."""
_OPTIONS = (
    "do_sample",
    "early_stopping",
    "length_penalty",
    "min_p",
    "no_repeat_ngram_size",
    "num_beams",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
)


def is_folder(folder: str) -> bool:
    """Whether a folder may be one of optimum's."""
    return os.path.isfile(os.path.join(folder, FILE)) and _decoder(folder) is not None


def configuration(folder: str) -> dict[str, Any]:
    """What `genai_config.json` would say of a folder.

    InvalidArgument for files that are no JSON or tell too little.
    """
    told = _read(folder, FILE)
    search = _read(folder, _SEARCH) if os.path.isfile(os.path.join(folder, _SEARCH)) else {}
    tokens = {name: search.get(name, told.get(name)) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    length = _number(told, *_LENGTHS)
    if length is None and "relative_attention_num_buckets" in told:
        length = _RELATIVE
    if length is None:
        raise InvalidArgument(f"{folder}/{FILE} does not tell the most tokens: {' or '.join(_LENGTHS)} is needed")
    heads = _number(told, "num_attention_heads", "n_head", "decoder_attention_heads")
    width = _number(told, "hidden_size", "n_embd", "d_model")
    size = _number(told, "head_dim") or (width // heads if width and heads else 0)
    decoder: dict[str, Any] = {
        "filename": _decoder(folder),
        "head_size": size,
        "num_key_value_heads": _number(told, "num_key_value_heads") or heads,
    }
    more: dict[str, Any] = {}
    if told.get("is_encoder_decoder"):
        place = os.path.dirname(str(decoder["filename"]))
        more["encoder"] = {"filename": os.path.join(place, _ENCODER)}
        start = _number(search, "decoder_start_token_id")
        more["decoder_start_token_id"] = _number(told, "decoder_start_token_id") if start is None else start
        for side, kind in (("inputs", "past"), ("outputs", "present")):
            name = "past_key_values" if kind == "past" else kind
            decoder[side] = {f"{kind}_{part}_names": f"{name}.%d.decoder.{part}" for part in ("key", "value")}
        if not str(decoder["filename"]).endswith(_FILES[0]):
            decoder["first"] = os.path.join(place, _FIRST)
    return {
        "model": {
            **more,
            **tokens,
            "context_length": length,
            "decoder": decoder,
            "type": told.get("model_type"),
            "vocab_size": told.get("vocab_size"),
        },
        "search": {
            "early_stopping": False,
            **{name: search[name] for name in _OPTIONS if search.get(name) is not None},
            "past_present_share_buffer": False,
            # What PyTorch's tracing saw of a step with caches was one token: of several each would see those behind it.
            **({"chunk_size": 1} if told.get("is_encoder_decoder") else {}),
        },
    }


def _decoder(folder: str) -> str | None:
    """The decoder's file, below the folder."""
    names = (os.path.join(place, file) for place in _PLACES for file in _FILES)
    return next((name for name in names if os.path.isfile(os.path.join(folder, name))), None)


def _read(folder: str, name: str) -> dict[str, Any]:
    place = os.path.join(folder, name)
    try:
        with open(place, encoding="utf-8") as file:
            told = json.load(file)
    except ValueError as error:
        raise InvalidArgument(f"{place} is no JSON: {error}") from error
    if not isinstance(told, dict):
        raise InvalidArgument(f"{place} holds {type(told).__name__}: a JSON object is needed")
    return told


def _number(told: Mapping[str, Any], *names: str) -> int | None:
    """The first whole number among some names."""
    found = (told.get(name) for name in names)
    return next((value for value in found if isinstance(value, int) and not isinstance(value, bool)), None)
