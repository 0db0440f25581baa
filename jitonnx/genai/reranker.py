"""`Reranker`: how well texts answer a query, by models that read both at once (cross-encoders)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.genai.text_encoder import Encoded, TextEncoder


class Reranker:
    """A folder's model of pairs of texts, whose output is one logit a pair."""

    def __init__(self, folder: str | os.PathLike[str], *, file: str | None = None, threads: int | None = None) -> None:
        """file: the model's, below the folder. threads: of a run.

        NoSuchFile and InvalidArgument as for `TextEncoder`; InvalidArgument for a model of several logits a pair.
        """
        self.encoder = TextEncoder(folder, file=file, threads=threads)
        output = self.encoder.session.get_outputs()[0]
        self._output = output.name
        if len(output.shape) > 1 and isinstance(output.shape[1], int) and output.shape[1] != 1:
            raise InvalidArgument(
                f"output {output.name!r} of {self.encoder.folder}'s model is {output.shape}: one logit a pair is needed"
            )

    def score(self, query: str, texts: Sequence[str]) -> np.ndarray:
        """How well each text answers the query, from 0 to 1: float32 [texts], the sigmoid of the logits."""
        return self.score_tokens(self.encoder.encode([(query, text) for text in texts]))

    def score_tokens(self, encoded: Sequence[Encoded]) -> np.ndarray:
        """As `score`, of pairs as tokens."""
        made = np.zeros(len(encoded), np.float32)
        for ran in self.encoder.run(encoded):
            logits = ran.outputs[self._output].reshape(len(ran.places), -1).astype(np.float64)
            if logits.shape[1] != 1:
                raise InvalidArgument(f"output {self._output!r} has {logits.shape[1]} logits a pair: one is needed")
            with np.errstate(over="ignore"):
                made[ran.places] = 1 / (1 + np.exp(-logits[:, 0]))
        return made
