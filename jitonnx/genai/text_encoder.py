"""Encoders of texts in folders of Hugging Face's form (BERT and its like): a session, and tokens for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jitonnx.api.options import SessionOptions
from jitonnx.api.session import InferenceSession
from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.genai import tokenizer
from jitonnx.genai.config import read_object

_FILES = ("model.onnx", os.path.join("onnx", "model.onnx"))
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_ROWS = 32
"""Texts of a run: those of about the same length go together, and shorter ones are padded."""
_ENDLESS = 1_000_000
"""What tokenizers have as the most tokens where they do not know it is larger."""


class Encoded(NamedTuple):
    """A text, or a pair of texts, as tokens: int64 [tokens] each."""

    ids: np.ndarray
    types: np.ndarray
    """0 in the first text, 1 in the second."""


@dataclass
class Ran:
    """What a run gave. places [rows]: of the texts among those that were given; mask, bool [rows, steps]: where tokens
    are, and not padding; outputs: the model's, by name, [rows, ...]."""

    places: np.ndarray
    mask: np.ndarray
    outputs: dict[str, np.ndarray]


class TextEncoder:
    """A model of `input_ids`, and perhaps attention_mask, token_type_ids and position_ids, [texts, tokens]."""

    def __init__(self, folder: str | os.PathLike[str], *, file: str | None = None, threads: int | None = None) -> None:
        """file: the model's, below the folder (default: model.onnx or onnx/model.onnx). threads: of a run.

        NoSuchFile for what is not there, InvalidArgument for a model of other inputs, and for files that cannot be
        read; ImportError without the package `tokenizers`.
        """
        self.folder = os.fspath(folder)
        self.config = self.told("config.json")
        options = SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = threads
        self.session = InferenceSession(self._place(file), options, providers=["CPUExecutionProvider"])
        self._inputs = {one.name: np.int32 if "int32" in one.type else np.int64 for one in self.session.get_inputs()}
        if "input_ids" not in self._inputs or not set(self._inputs) <= set(_INPUTS):
            raise InvalidArgument(
                f"the inputs of {self.folder}'s model are {', '.join(self._inputs)}: input_ids is needed, and "
                f"{', '.join(_INPUTS[1:])} are all that can be made besides"
            )
        self._tokenizer = tokenizer.read(self.folder)
        self._tokenizer.enable_truncation(self.longest)
        pad = self.config.get("pad_token_id")
        self._pad = pad if isinstance(pad, int) and not isinstance(pad, bool) else 0

    def told(self, *names: str) -> dict[str, Any]:
        """What a file below the folder says, a JSON object; nothing where there is none."""
        place = os.path.join(self.folder, *names)
        return read_object(place) if os.path.isfile(place) else {}

    def told_list(self, name: str) -> list[dict[str, Any]]:
        """What a file in the folder says, a list of JSON objects; nothing where there is none."""
        place = os.path.join(self.folder, name)
        if not os.path.isfile(place):
            return []
        try:
            with open(place, encoding="utf-8") as file:
                told = json.load(file)
        except ValueError as error:
            raise InvalidArgument(f"{place} is no JSON: {error}") from error
        if not isinstance(told, list) or not all(isinstance(one, dict) for one in told):
            raise InvalidArgument(f"{place} holds {type(told).__name__}: a list of JSON objects is needed")
        return told

    def _place(self, file: str | None) -> str:
        """The model's path."""
        places = [os.path.join(self.folder, name) for name in ([file] if file is not None else _FILES)]
        found = next((place for place in places if os.path.isfile(place)), None)
        if found is None:
            raise NoSuchFile(
                f"there is no {' and no '.join(places)}: an encoder's model, as optimum writes it, is needed"
            )
        return found

    @property
    def longest(self) -> int:
        """The most tokens of a text: of longer ones the front is taken."""
        numbers = [
            self.told("sentence_bert_config.json").get("max_seq_length"),
            self.told("tokenizer_config.json").get("model_max_length"),
            self.config.get("max_position_embeddings"),
        ]
        known = [int(one) for one in numbers if isinstance(one, int | float) and 0 < one < _ENDLESS]
        return min(known, default=512)

    def encode(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[Encoded]:
        """Texts, or pairs of texts, as tokens."""
        found = self._tokenizer.encode_batch(list(texts))
        return [Encoded(np.array(one.ids, np.int64), np.array(one.type_ids, np.int64)) for one in found]

    def run(self, encoded: Sequence[Encoded]) -> Iterator[Ran]:
        """Run the model on texts, some at a time."""
        order = np.argsort([len(one.ids) for one in encoded], kind="stable")
        for begin in range(0, len(order), _ROWS):
            places = order[begin : begin + _ROWS]
            rows = [encoded[place] for place in places.tolist()]
            steps = max(len(row.ids) for row in rows)
            feeds = {name: np.zeros((len(rows), steps), dtype) for name, dtype in self._inputs.items()}
            feeds["input_ids"][...] = self._pad
            mask = np.zeros((len(rows), steps), bool)
            for place, row in enumerate(rows):
                count = len(row.ids)
                mask[place, :count] = True
                feeds["input_ids"][place, :count] = row.ids
                if "token_type_ids" in feeds:
                    feeds["token_type_ids"][place, :count] = row.types
            if "attention_mask" in feeds:
                feeds["attention_mask"][...] = mask
            if "position_ids" in feeds:
                feeds["position_ids"][...] = np.arange(steps)
            names = [one.name for one in self.session.get_outputs()]
            yield Ran(places, mask, dict(zip(names, self.session.run(None, feeds), strict=True)))
