"""Speculative decoding: tokens that are proposed, and verified together by one run of the model.

A run over some tokens takes little longer than one over a single one, whose time the reading of weights is. Where the
model would choose what is proposed, several tokens come of one run; where it would not, what is proposed is forgotten.
Each token is chosen as it would be without, so that the same ones come.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from jitonnx import errors
from jitonnx.errors import InvalidArgument
from jitonnx.genai.decoder import Decoder, Steps
from jitonnx.genai.model import Model

MOST_TOKENS = 16
"""That are proposed at once."""


@dataclass
class SpeculativeOptions:
    """onnxruntime-genai's options, under their names."""

    max_draft_tokens: int = 4
    ngram_size: int = 0
    """Tokens that what is proposed has stood behind before; 0: nothing is looked up."""
    ngram_chained_lookup: bool = False
    """Accepted without effect, as the next two: how many tokens are proposed goes by how many were chosen."""
    min_adaptive_k: int = 0
    cooldown: bool = False

    def set(self, name: str, value: Any) -> None:
        """Set an option by name. InvalidArgument for a name or a value that is none."""
        kinds: dict[str, Any] = {field.name: type(field.default) for field in fields(self)}
        if name not in kinds:
            raise InvalidArgument(f"{name!r} is no option of speculative decoding; these are: {', '.join(kinds)}")
        if int(value) != value:
            raise InvalidArgument(f"speculative.{name} is {value!r}: a whole number is needed")
        if name == "max_draft_tokens" and not 1 <= value <= MOST_TOKENS:
            raise InvalidArgument(f"speculative.{name} must be between 1 and {MOST_TOKENS}, is {value}")
        if name == "ngram_size" and value != 0 and not 2 <= value <= MOST_TOKENS:
            raise InvalidArgument(f"speculative.{name} must be 0 or between 2 and {MOST_TOKENS}, is {value}")
        setattr(self, name, kinds[name](value))


class Proposer(Protocol):
    """What proposes tokens."""

    def propose(self, tokens: np.ndarray, count: int) -> np.ndarray:
        """What may follow tokens, int32 [tokens]: so many at most."""


class Lookup:
    """Proposes what has followed before, where the last tokens have stood already (prompt lookup)."""

    def __init__(self, size: int) -> None:
        self._size = size

    def propose(self, tokens: np.ndarray, count: int) -> np.ndarray:
        """The tokens behind the last place where the end of the sequence, of `size` tokens, has stood before."""
        begin = len(tokens) - self._size
        if begin < 1:
            return tokens[:0]
        ends = tokens[begin:]
        # The last place, the end itself, is none.
        places = np.flatnonzero(tokens[self._size - 1 : -1] == ends[-1])
        for offset in range(self._size - 1):
            places = places[tokens[places + offset] == ends[offset]]
        if not len(places):
            return tokens[:0]
        first = int(places[-1]) + self._size
        return tokens[first : first + count]


class Draft:
    """Proposes what a smaller model of the same tokens would choose."""

    def __init__(self, model: Model) -> None:
        self.model = model
        in_place = model.config.flag("search", "past_present_share_buffer")
        self._steps = Steps(model.decoder, 1, in_place=in_place, limit=model.context_length)
        self._read = np.zeros(0, np.int32)
        """Which tokens the model has read."""

    def propose(self, tokens: np.ndarray, count: int) -> np.ndarray:
        """The most probable tokens, one after the other."""
        shared = min(len(self._read), len(tokens) - 1)
        differing = self._read[:shared] != tokens[:shared]
        self._steps.shorten(int(differing.argmax()) if differing.any() else shared)
        made: list[int] = []
        missing = tokens[self._steps.width :]
        count = min(count, self.model.context_length - len(tokens))
        while len(made) < count:
            made.append(int(self._steps.read(missing[None])[0].argmax()))
            missing = np.array(made[-1:], np.int32)
        self._read = np.concatenate([tokens, np.array(made[:-1], np.int32)])
        return np.array(made, np.int32)


class Speculation:
    """How many tokens are proposed for a sequence, and what became of them."""

    def __init__(self, proposer: Proposer, most: int) -> None:
        self.proposer, self._most, self._count = proposer, most, most
        self.rounds = self.proposed = self.accepted = 0
        self._draft = np.zeros(0, np.int32)
        self._rows = np.zeros((0, 0), np.float32)
        self._place = 0
        """How many of the draft's tokens were chosen."""

    def propose(self, tokens: np.ndarray, room: int) -> np.ndarray:
        """Tokens that may follow: no more than there is room for, and fewer where few were accepted before."""
        found = self.proposer.propose(tokens, min(self._count, room)) if room > 0 else tokens[:0]
        self.rounds += bool(len(found))
        self.proposed += len(found)
        return found

    def begin(self, draft: np.ndarray, rows: np.ndarray) -> None:
        """Begin a round: proposed tokens [tokens], and the logits behind each, float32 [tokens, vocabulary]."""
        self._draft, self._rows, self._place = draft, rows, 0

    def chosen(self, token: int | None) -> np.ndarray | None:
        """Tell which token was chosen (None: the sequence has ended): the logits behind it, float32 [1, vocabulary], if
        it was proposed; else None, and the rest of the round is void."""
        place = self._place
        if place == len(self._draft):
            return None
        if token == self._draft[place]:
            self._place += 1
            self.accepted += 1
            if self._place == len(self._draft):
                self._count = min(2 * self._count, self._most)
            return self._rows[place : place + 1]
        self._count = place + 1
        self._draft = self._draft[:place]
        return None

    def stats(self) -> dict[str, Any]:
        """Under onnxruntime-genai's names."""
        return {
            "rounds": self.rounds,
            "draft_tokens_proposed": self.proposed,
            "draft_tokens_accepted": self.accepted,
            "acceptance_rate": self.accepted / self.proposed if self.proposed else 0.0,
        }


def check(decoder: Decoder, batch: int) -> None:
    """NotImplemented for models and batches that tokens cannot be proposed for."""
    if batch != 1:
        raise errors.NotImplemented(f"speculative decoding is for one sequence, and batch_size is {batch}")
    if not all(slot.grows for slot in decoder.slots):
        raise errors.NotImplemented(
            "speculative decoding needs a cache that can be rewound: models with windows or states are not supported"
        )
    if not decoder.can_choose:
        raise errors.NotImplemented(
            "speculative decoding needs logits for each token: the model gives the last ones alone (prune_lm_head)"
        )


def check_draft(draft: Model, model: Model) -> None:
    """InvalidArgument for a draft of other tokens; NotImplemented as `check`."""
    if draft.decoder.vocabulary != model.decoder.vocabulary:
        raise InvalidArgument(
            f"the draft model has {draft.decoder.vocabulary} tokens, and the model {model.decoder.vocabulary}: a draft "
            "has the same tokenizer"
        )
    check(draft.decoder, 1)
