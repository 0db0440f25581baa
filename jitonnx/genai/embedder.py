"""`Embedder`: texts as vectors, by models that sentence-transformers or optimum exports."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jitonnx import errors
from jitonnx.errors import InvalidArgument
from jitonnx.genai.text_encoder import Encoded, Ran, TextEncoder

_POOLED = ("sentence_embedding", "text_embeds")
"""Outputs that are a vector a text already."""
_STEPS = ("token_embeddings", "last_hidden_state")
"""Outputs of a vector a token."""


def _first(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return rows[:, 0]


def _last(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    found: np.ndarray = rows[np.arange(len(rows)), mask.sum(1) - 1]
    return found


def _greatest(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.where(mask[:, :, None], rows, -np.inf).max(1)
    return found


def _sum(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.einsum("rsd,rs->rd", rows, mask.astype(rows.dtype))
    return found


def _mean(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    found: np.ndarray = _sum(rows, mask) / np.maximum(mask.sum(1, keepdims=True), 1)
    return found


def _mean_of_root(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    found: np.ndarray = _sum(rows, mask) / np.sqrt(np.maximum(mask.sum(1, keepdims=True), 1))
    return found


_POOLINGS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cls": _first,
    "lasttoken": _last,
    "max": _greatest,
    "mean": _mean,
    "mean_sqrt_len": _mean_of_root,
}
"""sentence-transformers' ways from vectors of tokens [texts, tokens, size], and where tokens are, to [texts, size]."""


class Embedder:
    """A folder's model of texts: `model.onnx` or `onnx/model.onnx`, `tokenizer.json`, and what sentence-transformers
    says of it (`modules.json`, `1_Pooling/config.json`, `config_sentence_transformers.json`)."""

    def __init__(self, folder: str | os.PathLike[str], *, file: str | None = None, threads: int | None = None) -> None:
        """file: the model's, below the folder. threads: of a run.

        NoSuchFile and InvalidArgument as for `TextEncoder`; NotImplemented for layers behind the pooling, and for ways
        of pooling that are unknown.
        """
        self.encoder = TextEncoder(folder, file=file, threads=threads)
        names = [one.name for one in self.encoder.session.get_outputs()]
        ranks = {one.name: len(one.shape) for one in self.encoder.session.get_outputs()}
        self._pooled = next((name for name in names if name in _POOLED), None)
        if self._pooled is None and len(names) == 1 and ranks[names[0]] == 2:
            self._pooled = names[0]
        steps = [name for name in names if name in _STEPS] or [name for name in names if ranks[name] == 3]
        if self._pooled is None and not steps:
            raise InvalidArgument(
                f"the outputs of {self.encoder.folder}'s model are {', '.join(names)}: a vector a token "
                f"({' or '.join(_STEPS)}) or a text ({' or '.join(_POOLED)}) is needed"
            )
        self._steps = steps[0] if steps else ""
        self._poolings = self._told_poolings()
        told = self.encoder.told("config_sentence_transformers.json")
        self.prompts: dict[str, str] = told.get("prompts") or {}
        """Texts that go in front of others, by names such as "query"."""
        self._prompt_name: str | None = told.get("default_prompt_name")

    def _told_poolings(self) -> list[str]:
        """How the vectors of tokens become one: side by side where there are several."""
        if self._pooled is not None:
            return []
        for module in self.encoder.told_list("modules.json"):
            kind = str(module.get("type", "")).rpartition(".")[2]
            if kind not in ("Transformer", "Pooling", "Normalize"):
                raise errors.NotImplemented(
                    f"{self.encoder.folder}/modules.json has a layer {kind}: Transformer, Pooling and Normalize are "
                    "supported; export the whole model, with the output sentence_embedding"
                )
        told = self.encoder.told("1_Pooling", "config.json")
        mode = told.get("pooling_mode")
        found = list(mode) if isinstance(mode, list | tuple) else [mode] if isinstance(mode, str) else []
        prefix = "pooling_mode_"
        found = found or [
            name.removeprefix(prefix).removesuffix("_tokens").removesuffix("_token")
            for name, value in told.items()
            if name.startswith(prefix) and value is True
        ]
        for name in found:
            if name not in _POOLINGS:
                raise errors.NotImplemented(
                    f"{self.encoder.folder}/1_Pooling/config.json asks for {name!r}: {', '.join(_POOLINGS)} are known"
                )
        return found or ["mean"]

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool = True,
    ) -> np.ndarray:
        """The vectors of texts, float32 [texts, size]; of one text, [size].

        prompt: goes in front of each text; prompt_name: one of `prompts` (default: the folder's). normalize: have them
        of length 1. InvalidArgument for a name that is none, and for what is no text.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        made = self.embed_tokens(self.encode(several, prompt=prompt, prompt_name=prompt_name), normalize=normalize)
        return made[0] if isinstance(texts, str) else made

    def encode(
        self, texts: Sequence[str], *, prompt: str | None = None, prompt_name: str | None = None
    ) -> list[Encoded]:
        """Texts as tokens. prompt, prompt_name: as for `embed`, and so are errors."""
        if not all(isinstance(text, str) for text in texts):
            raise InvalidArgument(f"texts are {texts!r}: a text, or a list of texts, is needed")
        if prompt is None:
            name = prompt_name if prompt_name is not None else self._prompt_name
            if name is not None and name not in self.prompts:
                raise InvalidArgument(f"there is no prompt {name!r}: {', '.join(self.prompts) or 'none'} are known")
            prompt = self.prompts[name] if name is not None else ""
        return self.encoder.encode([prompt + text for text in texts])

    def embed_tokens(self, encoded: Sequence[Encoded], *, normalize: bool = True) -> np.ndarray:
        """As `embed`, of texts as tokens, encoded by `encode`. normalize: have the vectors be of length 1."""
        made: np.ndarray | None = None
        for ran in self.encoder.run(encoded):
            rows = self._vectors(ran).astype(np.float32)
            if normalize:
                rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
            if made is None:
                made = np.zeros((len(encoded), rows.shape[1]), np.float32)
            made[ran.places] = rows
        return np.zeros((0, 0), np.float32) if made is None else made

    def _vectors(self, ran: Ran) -> np.ndarray:
        """A vector a text of a run."""
        if self._pooled is not None:
            return ran.outputs[self._pooled]
        rows = ran.outputs[self._steps].astype(np.float32)
        return np.concatenate([_POOLINGS[name](rows, ran.mask) for name in self._poolings], 1)
