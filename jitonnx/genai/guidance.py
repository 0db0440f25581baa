"""Output that a JSON schema, a regular expression or a grammar constrains, by the package `llguidance`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.genai.extras import needed
from jitonnx.genai.tokenizer import Tokenizer

if TYPE_CHECKING:
    from jitonnx.genai.model import Model

KINDS = ("json_schema", "regex", "lark_grammar")


def check_kind(kind: str) -> None:
    """InvalidArgument for a kind of constraint that is unknown."""
    if kind not in KINDS:
        raise InvalidArgument(f"Unsupported guidance type: {kind} (only {', '.join(KINDS)} are supported).")


class Guide:
    """A sequence's place in what constrains it."""

    def __init__(self, model: Model, kind: str, data: str) -> None:
        """kind: one of `KINDS`. InvalidArgument for data that is none of that kind; ImportError without the package."""
        check_kind(kind)
        package = needed("llguidance", "output that is constrained", extra="guidance")
        if kind == "json_schema":
            try:
                data = json.dumps(json.loads(data))
            except ValueError as error:
                raise InvalidArgument(f"a json_schema is needed, and {data!r} is no JSON: {error}") from error
        grammar = getattr(package.LLMatcher, "grammar_from_" + kind.removesuffix("_grammar"))(data)
        self._matcher = package.LLMatcher(_tokens(model, package), grammar, log_level=0)
        self._check(f"{kind} {data!r}")
        self._count = 0
        """Tokens since the beginning."""

    @property
    def is_at_end(self) -> bool:
        """Whether nothing can follow."""
        ended: bool = self._matcher.is_stopped()
        return ended

    def mask(self, logits: np.ndarray) -> None:
        """Set the logits of tokens that must not follow to -inf, in place. logits: float32 [vocabulary]."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check("the constraint")
        may = np.unpackbits(bits, bitorder="little")[: len(logits)]
        logits[: len(may)][may == 0] = -np.inf
        logits[len(may) :] = -np.inf

    def accept(self, token: int) -> None:
        """Take a token that follows. InvalidArgument for one that must not."""
        self._matcher.consume_token(token)
        self._check("the constraint")
        self._count += 1

    def rewind(self, count: int) -> None:
        """Forget the last tokens; all if there are not so many."""
        count = min(count, self._count)
        if count:
            self._matcher.rollback(count)
            self._count -= count

    def restart(self) -> None:
        """Forget all tokens."""
        self._matcher.reset()
        self._count = 0

    def _check(self, what: str) -> None:
        if self._matcher.is_error():
            raise InvalidArgument(f"{what} is refused by llguidance: {self._matcher.get_error().strip()}")


def _tokens(model: Model, package: Any) -> Any:
    """The model's tokens as the package has them, made once for a model."""
    if model.guided_tokens is None:
        tokenizer = Tokenizer(model)
        ends = model.ends or [tokenizer.pad_token_id]
        model.guided_tokens = package.LLTokenizer(tokenizer.file, n_vocab=model.decoder.vocabulary, eos_token=ends)
    return model.guided_tokens
