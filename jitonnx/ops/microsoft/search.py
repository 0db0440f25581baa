"""Loops that generate text: greedy, by sampling, and of beams. They run the model's own graphs, which are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from jitonnx.ir.bodies import Bodies
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType, Type
from jitonnx.ops.microsoft.search_scores import (
    MinimalStandard,
    Rules,
    Timestamps,
    largest,
    log_softmax,
)
from jitonnx.ops.onnx.control_flow import Body
from jitonnx.support.hypotheses import Hypotheses

GPT, T5, WHISPER = 0, 1, 2
"""model_type: a decoder alone; an encoder of tokens; an encoder of sound."""
LONGEST = 4096
"""What max_length is at most, and if it is not given."""


class _Search(Operator):
    """What the loops share: their graphs, and how these are run step by step.

    decoder of a model_type of 0: input_ids, position_ids and attention_mask [B, S], pasts [2, B, heads, steps, size] to
    logits [B, S, vocabulary] and presents; init_decoder is the same for the first step. Of other types: input_ids
    [B, 1], or [B, S] for all tokens so far, encoder_attention_mask and encoder_hidden_states if it has them, pasts
    [B, heads, steps, size] of itself and of the encoder, to logits and presents of itself. encoder: encoder_input_ids
    and encoder_attention_mask to the caches of the encoder; with decoder_input_ids, to the decoder's first logits,
    encoder_hidden_states and all caches.
    """

    domain = "com.microsoft"
    bodies = ("decoder", "encoder?", "init_decoder?")
    declared_bodies: ClassVar[bool] = True

    eos_token_id: int
    pad_token_id: int
    decoder_start_token_id: int = -1
    model_type: int = 0
    no_repeat_ngram_size: int = 0
    vocab_size: int = -1

    def body_inputs(self, context: InferenceContext, index: int, *inputs: Value | None) -> list[Type]:
        return []  # that of one that is absent

    def _infer_graphs(self, bodies: Bodies) -> None:
        for index in range(len(bodies.graphs)):
            if types := [_open(value.type) for value in bodies.inputs(index)]:
                bodies.infer(index, bodies.opened(index, types))
        has_encoder = bool(bodies.graphs[1].outputs)
        if has_encoder != (self.model_type != GPT) or self.model_type not in (GPT, T5, WHISPER):
            raise InferenceError(
                f"model_type is {self.model_type}; 0 is for a decoder alone, 1 and 2 are for one with an encoder"
            )
        shapes = [value.type.shape for value in bodies.inputs(0)]
        if any(shape is not None and len(shape) < 2 for shape in shapes):
            raise InferenceError(
                "decoder is given past_sequence_length: caches that past and present share are not supported; export "
                "it with caches that grow"
            )
        if self.eos_token_id < 0 or self.pad_token_id < 0:
            raise InferenceError(
                f"eos_token_id is {self.eos_token_id}, pad_token_id {self.pad_token_id}: they are not negative"
            )

    def _rules(
        self,
        least: np.ndarray | None,
        repetition: np.ndarray | None,
        vocabulary: np.ndarray | None,
        first_vocabulary: np.ndarray | None,
    ) -> Rules:
        """What the inputs min_length, repetition_penalty, vocab_mask and prefix_vocab_mask, and attributes, say."""
        return Rules(
            self.eos_token_id,
            _number(repetition, 1.0),
            self.no_repeat_ngram_size,
            vocabulary,
            first_vocabulary,
            _number(least, 0),
        )

    def _vocabulary(self, logits: np.ndarray) -> np.ndarray:
        """The logits of the last step, float32 [rows, vocabulary]."""
        count = self.vocab_size if self.vocab_size > 0 else logits.shape[2]
        if count > logits.shape[2]:
            raise ValueError(f"vocab_size is {count}, and the decoder gives logits of {logits.shape[2]}")
        return logits[:, -1, :count].astype(np.float32)


class _Decoder:
    """A decoder alone, step by step."""

    def __init__(self, search: _Search, bodies: Sequence[Body], ids: np.ndarray, mask: np.ndarray | None) -> None:
        self._step, _, self._first = bodies
        self._counted = ids != search.pad_token_id  # by which positions go, whatever the mask says
        self._mask = (self._counted if mask is None else mask).astype(np.int32)
        self.sequences = ids.astype(np.int32)

    def first(self, count: int) -> np.ndarray:
        """The logits of the tokens that are given, each `count` times."""
        self.sequences, self._mask, counted = (
            np.repeat(x, count, 0) for x in (self.sequences, self._mask, self._counted)
        )
        seen = np.cumsum(counted, 1, dtype=np.int32)
        positions = np.where(counted, seen - 1, 0).astype(np.int32)
        self._next = seen[:, -1:].copy()
        pasts = [_empty(type, {1: len(self.sequences)}) for type in self._step.inputs[3:]]
        run = self._first if self._first.inputs else self._step
        logits, *self._presents = run(self.sequences, positions, self._mask, *pasts)
        return logits

    def following(self, sequences: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        """The logits behind the last tokens of sequences [B, S]. rows: which each goes on from, None: its own."""
        pasts = self._presents if rows is None else [present[:, rows] for present in self._presents]
        self._mask = np.concatenate([self._mask, np.ones((len(self._mask), 1), np.int32)], 1)
        tokens = np.ascontiguousarray(sequences[:, -1:])
        logits, *self._presents = self._step(tokens, self._next, self._mask, *pasts)
        self._next = self._next + np.int32(1)
        return logits


class _EncoderDecoder:
    """A decoder with an encoder, step by step."""

    def __init__(
        self,
        search: _Search,
        bodies: Sequence[Body],
        given: np.ndarray,
        mask: np.ndarray | None,
        start: np.ndarray | None,
    ) -> None:
        self._step, self._encoder, _ = bodies
        self._given, self._model_type = given, search.model_type
        self._around: dict[str, np.ndarray] = {}
        if start is None:
            if search.decoder_start_token_id < 0:
                raise ValueError(
                    f"decoder_start_token_id is {search.decoder_start_token_id}, and there are no decoder_input_ids: "
                    "one of the two is needed"
                )
            start = np.full((len(given), 1), search.decoder_start_token_id, np.int32)
        self.sequences = start.astype(np.int32)
        if search.model_type == T5:
            # Padding is on the left alone: the end may be marked by the same token.
            seen = np.maximum.accumulate(given != search.pad_token_id, 1) if mask is None else mask
            self._around["mask"] = seen.astype(np.int32)

    def first(self, count: int) -> np.ndarray:
        """The logits of the first tokens, each `count` times."""
        results, logits = self._encoder(*self._encoder_inputs()), None
        self._own = len(self._step.types) - 1
        leading = len(self._step.inputs) - 2 * self._own
        if len(results) > self._own:  # those of the decoder's first step are among them
            logits, self._around["hidden"], *caches = results
        else:
            empty = [_empty(type, {0: len(self._given)}) for type in self._step.inputs[leading : leading + self._own]]
            caches = [*empty, *results]
        self._caches = [np.repeat(cache, count, 0) for cache in caches]
        self.sequences = np.repeat(self.sequences, count, 0)
        around = (("hidden",), ("mask", "hidden"))[self._model_type == T5][: leading - 1]
        self._leading = [np.repeat(self._around[name], count, 0) for name in around]
        return self.following(self.sequences, None) if logits is None else np.repeat(logits, count, 0)

    def _encoder_inputs(self) -> list[np.ndarray]:
        around = [self._around["mask"]] if self._model_type == T5 else []
        return [self._given, *around, self.sequences][: len(self._encoder.inputs)]

    def following(self, sequences: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        """What that of `_Decoder` gives."""
        own = self._own
        if rows is not None:
            self._caches[:own] = [cache[rows] for cache in self._caches[:own]]
        shape = self._step.inputs[0].shape
        alone = shape is not None and shape[1] == 1
        tokens = np.ascontiguousarray(sequences[:, -1:] if alone else sequences)
        logits, *self._caches[:own] = self._step(tokens, *self._leading, *self._caches)
        return logits


def _open(type: Type) -> Type:
    """The type with sizes that only a run tells where they are no numbers."""
    if not isinstance(type, TensorType) or type.shape is None:
        return type
    sizes: Any = tuple(size if isinstance(size, int) else None for size in type.shape)
    return TensorType(type.dtype, sizes)


def _empty(type: Type, sizes: dict[int, int]) -> np.ndarray:
    """A past without steps. sizes: of axes, where they are known; the others are the type's, or 0."""
    assert isinstance(type, TensorType) and type.dtype is not None
    if type.shape is None or len(type.shape) < 2:
        raise ValueError(f"a past is declared as {type}; sizes for heads and their elements are needed")
    shape = [sizes.get(axis, size if isinstance(size, int) else 0) for axis, size in enumerate(type.shape)]
    shape[-2] = 0
    return np.zeros(shape, type.dtype.numpy)


def _number(given: np.ndarray | None, default: Any) -> Any:
    return default if given is None else given.reshape(-1)[0].item()


def _size(value: Value | None) -> Any:
    """A size that an input has, None if only a run tells it."""
    return int(value.constant.reshape(-1)[0]) if value is not None and value.constant is not None else None


class _Beams(_Search):
    """The search of beams: of each sequence num_beams are kept, those with the largest sums of logarithms of
    probabilities, until as many have ended, or max_length is reached."""

    early_stopping: bool = False
    with_scores: bool = internal(default=True)
    """Whether the scores of all tokens are an output of the node: they take much memory."""

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.attributes["with_scores"] = len(node.outputs) > 2 and node.outputs[2] != ""

    def _types(self, bodies: Bodies, inputs: Sequence[Value | None]) -> list[TensorType]:
        self._infer_graphs(bodies)
        given, longest, _, beams, returned = inputs[:5]
        assert given is not None
        batch, penalty = given.shape[0], inputs[5] if len(inputs) > 5 else None
        kind = DType.FLOAT if penalty is None else penalty.dtype
        most: Any = _size(longest)
        return [
            TensorType(DType.INT32, (batch, _size(returned), most)),
            TensorType(kind, (batch, _size(returned))),
            TensorType(kind, (None, batch, _size(beams), None)),  # type: ignore[arg-type]
        ]

    def _searched(
        self,
        decoder: _Decoder | _EncoderDecoder,
        inputs: Sequence[np.ndarray | None],
        timestamps: Timestamps | None = None,
        temperature: float = 1.0,
    ) -> tuple[np.ndarray, ...]:
        """Sequences, their scores, the scores of all tokens, and the first logits [B, vocabulary]."""
        _, longest, least, *others = (*inputs, *[None] * 12)[:12]
        most, beams, returned = _number(longest, LONGEST), _number(others[0], 1), _number(others[1], 1)
        penalty = _number(others[2], 1.0)
        batch, start = decoder.sequences.shape
        if not start < most <= LONGEST or not 1 <= returned <= beams:
            raise ValueError(
                f"max_length is {most}, num_beams {beams}, num_return_sequences {returned}: more than the {start} "
                f"tokens that are given, at most {LONGEST}, and no more sequences than beams, are needed"
            )
        logits = self._vocabulary(decoder.first(beams))
        opening = logits[::beams]
        first_vocabulary = None if others[5] is None else np.repeat(others[5], beams, 0)
        rules = self._rules(least, others[3], others[4], first_vocabulary)
        rules = rules._replace(temperature=temperature, timestamps=timestamps)
        totals = np.tile(np.array([0] + [-1e9] * (beams - 1), np.float32), batch)
        found = [Hypotheses(beams, penalty, early=self.early_stopping) for _ in range(batch)]
        kept = np.zeros((most - start if self.with_scores else 0, batch, beams, logits.shape[1]), np.float32)
        sequences, rows = decoder.sequences, np.arange(batch * beams)
        for step in range(most - start):
            if step:
                logits = self._vocabulary(decoder.following(sequences, rows if beams > 1 else None))
            scores = log_softmax(logits)
            rules.apply(scores, sequences, first=step == 0)
            scores += totals[:, None]
            if self.with_scores:
                kept[step] = scores.reshape(batch, beams, -1)
            rows, tokens, totals = self._chosen(scores, sequences, found, beams)
            sequences = np.concatenate([sequences[rows], tokens[:, None]], 1)
            if all(each.done for each in found):
                break
        result = np.full((batch, returned, most), self.pad_token_id, np.int32)
        best = np.zeros((batch, returned), np.float32)
        for number, each in enumerate(found):
            if not each.done:
                for row in range(number * beams, (number + 1) * beams):
                    each.add(sequences[row], totals[row], sequences.shape[1])
            for place, (score, sequence) in enumerate(each.best(returned)):
                result[number, place, : len(sequence)] = sequence
                best[number, place] = score
        kind = np.float32 if others[2] is None else others[2].dtype
        return result, best.astype(kind), kept.astype(kind), opening

    def _chosen(
        self, scores: np.ndarray, sequences: np.ndarray, found: Sequence[Hypotheses], beams: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which rows go on, with which tokens, and their sums; sequences that end are added to those found."""
        count = scores.shape[1]
        by_batch = scores.reshape(len(found), -1)
        places = largest(by_batch, 2 * beams)
        sums = np.take_along_axis(by_batch, places, 1)
        rows, tokens = np.zeros((len(found), beams), np.int64), np.zeros((len(found), beams), np.int32)
        totals = np.zeros((len(found), beams), np.float32)
        for number, each in enumerate(found):
            if each.done:
                tokens[number] = self.pad_token_id
                continue
            taken = 0
            for rank in range(places.shape[1]):
                beam, token = divmod(int(places[number, rank]), count)
                row, total = number * beams + beam, sums[number, rank]
                if token == self.eos_token_id:
                    if rank < beams:
                        each.add(sequences[row], total, sequences.shape[1])
                    continue
                rows[number, taken], tokens[number, taken], totals[number, taken] = row, token, total
                taken += 1
                if taken == beams:
                    break
            each.settle(sums[number].max(), sequences.shape[1])
        return rows.reshape(-1), tokens.reshape(-1), totals.reshape(-1)


class BeamSearch(_Beams):
    """The best num_return_sequences of num_beams: tokens [B, sequences, max_length], their scores, and the scores of
    all tokens [max_length - S, B, num_beams, vocabulary].

    input_ids [B, S] of tokens, or of sound [B, features, frames]. length_penalty: the power of the length by which
    scores are divided. attention_mask has the shape of input_ids; decoder_input_ids [B, S] are the decoder's first.
    """

    def infer_bodies(self, bodies: Bodies, *inputs: Value | None) -> list[TensorType]:
        return self._types(bodies, inputs)

    def evaluate(self, *inputs: np.ndarray | None, bodies: Sequence[Body]) -> tuple[np.ndarray, ...]:
        given, mask, start = (*inputs, *[None] * 12)[0], *(*inputs, *[None] * 12)[9:11]
        assert given is not None
        decoder: _Decoder | _EncoderDecoder
        if self.model_type == GPT:
            decoder = _Decoder(self, bodies, given, mask)
        else:
            decoder = _EncoderDecoder(self, bodies, given, mask, start)
        return self._searched(decoder, inputs)[:3]


class _Single(_Search):
    """One token after the other, chosen by its scores alone."""

    def _type(self, bodies: Bodies, given: Value, longest: Value) -> TensorType:
        self._infer_graphs(bodies)
        if self.model_type != GPT:
            raise InferenceError(f"model_type is {self.model_type}; a decoder alone, 0, is supported")
        return TensorType(DType.INT32, (given.shape[0], _size(longest)))

    def _generated(
        self, bodies: Sequence[Body], inputs: Sequence[np.ndarray | None], rules: Rules, choose: Any
    ) -> np.ndarray:
        """Tokens [B, max_length]. choose: a token for each row of scores."""
        given, longest = inputs[:2]
        mask = (*inputs, *[None] * 7)[6]
        assert given is not None
        decoder = _Decoder(self, bodies, given, mask)
        batch, start = given.shape
        most = _number(longest, LONGEST)
        if not start < most <= LONGEST:
            raise ValueError(
                f"max_length is {most}: more than the {start} tokens that are given, and at most {LONGEST}, are needed"
            )
        sequences, ended = decoder.sequences, np.zeros(batch, bool)
        result = np.full((batch, most), self.pad_token_id, np.int32)
        for step in range(most - start):
            logits = decoder.following(sequences, None) if step else decoder.first(1)
            scores = self._vocabulary(logits)
            rules.apply(scores, sequences, first=step == 0)
            tokens = choose(scores)
            ended |= tokens == self.eos_token_id
            tokens = np.where(ended, self.pad_token_id, tokens).astype(np.int32)
            sequences = np.concatenate([sequences, tokens[:, None]], 1)
            if ended.all():
                break
        result[:, : sequences.shape[1]] = sequences
        return result


class GreedySearch(_Single):
    """The likeliest token, again and again: [B, max_length], of input_ids [B, S] and what follows, up to eos_token_id,
    which is replaced by pad_token_id, as all behind it."""

    def infer_bodies(self, bodies: Bodies, given: Value, longest: Value, *others: Value | None) -> TensorType:
        return self._type(bodies, given, longest)

    def evaluate(self, *inputs: np.ndarray | None, bodies: Sequence[Body]) -> np.ndarray:
        rules = self._rules(*(*inputs, *[None] * 4)[2:6])
        return self._generated(bodies, inputs, rules, lambda scores: scores.argmax(1))


class Sampling(_Single):
    """As GreedySearch, of tokens that are drawn by their probabilities, from the likeliest whose probabilities sum up
    to top_p.

    Scores are divided by temperature, and presence_penalty times presence_mask [B, vocabulary] is taken from them.
    filter_value: the score of tokens that are left out, but for the likeliest min_tokens_to_keep. custom: the sum
    counts from the likeliest on, and the token that reaches it is left in. seed draws the same tokens as in onnxruntime
    on Linux.
    """

    custom: int = 0
    filter_value: float = -1e20
    min_tokens_to_keep: int = 0
    presence_penalty: float = 0.0
    temperature: float = 1.0
    top_p: float = 0.0

    def infer_bodies(self, bodies: Bodies, given: Value, longest: Value, *others: Value | None) -> list[TensorType]:
        kind = TensorType(DType.FLOAT, (given.shape[0], None))  # type: ignore[arg-type]
        return [self._type(bodies, given, longest), kind]

    def evaluate(self, *inputs: np.ndarray | None, bodies: Sequence[Body]) -> tuple[np.ndarray, ...]:
        *held_to, _, presence, seed = (*inputs, *[None] * 7)[2:9]
        penalty = None if presence is None else presence * np.float32(self.presence_penalty)
        rules = self._rules(*held_to)._replace(temperature=self.temperature, presence=penalty)
        numbers = MinimalStandard(_number(seed, 0))
        last: list[np.ndarray] = []

        def choose(scores: np.ndarray) -> np.ndarray:
            self._filter(scores)
            last[:] = [scores]
            return np.array([self._drawn(row, numbers) for row in scores])

        tokens = self._generated(bodies, inputs, rules, choose)
        return tokens, last[0]

    def _filter(self, scores: np.ndarray) -> None:
        """Leave tokens out, in place."""
        order = np.argsort(-scores if self.custom else scores, axis=1, kind="stable")
        ordered = np.take_along_axis(scores, order, 1)
        exponentials = np.exp(ordered - ordered.max(1, keepdims=True))
        sums = np.cumsum(exponentials / exponentials.sum(1, keepdims=True), 1, dtype=np.float32)
        count = scores.shape[1]
        if self.custom:
            out = np.zeros(scores.shape, bool)
            out[:, 1:] = sums[:, :-1] > np.float32(self.top_p)
        else:
            out = sums <= np.float32(1 - np.float32(self.top_p))
            out[:, max(count - self.min_tokens_to_keep, 1) :] = False
        for row, places, left in zip(scores, order, out, strict=True):
            row[places[left]] = self.filter_value

    @staticmethod
    def _drawn(scores: np.ndarray, numbers: MinimalStandard) -> int:
        """A token, by probabilities that are the softmax of its scores."""
        finite = np.isfinite(scores)
        wide = scores.astype(np.float64) - float(scores[finite].max())
        sums = np.cumsum(np.where(finite, np.exp(wide), 0))
        return int(np.searchsorted(sums, numbers.uniform() * sums[-1], "right"))


class WhisperBeamSearch(_Beams):
    """BeamSearch of Whisper, whose tokens that are times follow rules if logits_processor is 1; temperature divides the
    scores. non_speech_probs [B]: the probability of no_speech_token_id behind the tokens that are given."""

    beginning_timestamp_token_id: int = -1
    decoder_output_cross_qk: int = 0
    model_type: int = 2
    no_speech_token_id: int = -1
    no_timestamps_token_id: int = -1
    start_of_lm_token_id: int = -1
    transcribe_token_id: int = -1
    translate_token_id: int = -1

    def infer_bodies(self, bodies: Bodies, *inputs: Value | None) -> list[TensorType]:
        if self.model_type != WHISPER:
            raise InferenceError(f"model_type is {self.model_type}; it is 2 for Whisper")
        if self.decoder_output_cross_qk:
            raise InferenceError("decoder_output_cross_qk is 1: the output cross_qk is not supported")
        given = inputs[0]
        assert given is not None
        types = self._types(bodies, inputs)
        nothing = TensorType(DType.FLOAT, (given.shape[0], 0))
        return [*types, nothing, TensorType(types[1].dtype, (given.shape[0],))]

    def evaluate(self, *inputs: np.ndarray | None, bodies: Sequence[Body]) -> tuple[np.ndarray, ...]:
        every = (*inputs, *[None] * 15)[:15]
        given, mask, start, processor, temperature = every[0], every[9], every[10], every[11], every[14]
        assert given is not None
        timestamps = None
        if _number(processor, 0) == 1:
            later = (self.decoder_start_token_id, self.translate_token_id, self.transcribe_token_id)
            timestamps = Timestamps(
                self.beginning_timestamp_token_id,
                self.eos_token_id,
                (self.no_timestamps_token_id, self.start_of_lm_token_id),
                later,
            )
        decoder = _EncoderDecoder(self, bodies, given, mask, start)
        *results, opening = self._searched(decoder, inputs[:12], timestamps, _number(temperature, 1.0))
        nothing = np.zeros((len(given), 0), np.float32)
        return *results, nothing, self._silence(opening).astype(results[1].dtype)

    def _silence(self, logits: np.ndarray) -> np.ndarray:
        """The probability of silence [B]; 0 where there is no such token."""
        if self.no_speech_token_id < 0:
            return np.zeros(len(logits), np.float32)
        if self.no_speech_token_id >= logits.shape[1]:
            raise ValueError(f"no_speech_token_id is {self.no_speech_token_id}, and there are {logits.shape[1]} tokens")
        return np.exp(log_softmax(logits))[:, self.no_speech_token_id]
