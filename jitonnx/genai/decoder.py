"""A model that gives logits for tokens, step by step, and the steps of some sequences through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jitonnx import errors
from jitonnx.api.options import RunOptions
from jitonnx.api.session import InferenceSession
from jitonnx.api.values import OrtValue
from jitonnx.errors import InvalidArgument
from jitonnx.genai.caches import Caches, Slot, slots_of
from jitonnx.genai.config import Config
from jitonnx.genai.last_logits import INDICES
from jitonnx.ir.dtypes import DType

_TEXTS = {f"tensor({dtype.text})": dtype for dtype in DType}
_LEAST_COLUMNS = 128
"""Of a mask's memory."""


class Decoder:
    """A session of a decoder, and what its inputs and outputs are."""

    def __init__(self, config: Config, session: InferenceSession) -> None:
        """InvalidArgument for a model whose inputs and outputs are not those of a decoder."""
        self.session = session
        inputs = {one.name: one for one in session.get_inputs()}
        outputs = {one.name: one for one in session.get_outputs()}
        self.ids = _named(config, "inputs", "input_ids", inputs, is_needed=True)
        self.mask = _named(config, "inputs", "attention_mask", inputs)
        self.positions = _named(config, "inputs", "position_ids", inputs)
        past_length = _named(config, "inputs", "past_sequence_length", inputs)
        total_length = _named(config, "inputs", "total_sequence_length", inputs)
        self.logits = _named(config, "outputs", "logits", outputs, is_needed=True)
        self.indices = INDICES if INDICES in inputs else ""
        """The input that says which token of each sequence logits are for."""
        batch = inputs[self.ids].shape[0]
        self.slots: list[Slot] = slots_of(config, list(inputs.values()), list(outputs.values()), batch)
        pasts = {slot.past for slot in self.slots}
        known = {self.ids, self.indices, self.mask, self.positions, past_length, total_length} | pasts
        self.extras = [name for name in inputs if name not in known]
        """Inputs that a program has to set."""
        self.counters = [(name, total) for name, total in ((past_length, False), (total_length, True)) if name]
        """Inputs of one number, and whether it is that of all tokens, or of those before."""
        presents = {slot.present for slot in self.slots}
        self.others = [name for name in outputs if name != self.logits and name not in presents]
        """Outputs that are neither logits nor caches."""
        self.types = {name: _dtype(name, one.type) for name, one in (inputs | outputs).items()}
        self.ranks = {name: len(one.shape) for name, one in inputs.items()}
        if not self.slots:
            raise errors.NotImplemented(
                f"the model has no inputs for caches among {', '.join(inputs)}: models without them are not supported"
            )
        self.has_all_logits = outputs[self.logits].shape[1:2] != [1]
        """Whether there are logits of all tokens, or of the last one of each sequence."""
        self.vocabulary = self._width(config, outputs[self.logits])

    def _width(self, config: Config, logits: Any) -> int:
        """The number of logits a token: as the model says, or as the configuration."""
        told, sizes = config.number("model", "vocab_size"), list(logits.shape)
        if len(sizes) != 3:
            raise InvalidArgument(f"output {logits.name!r} has shape {sizes}; [sequences, tokens, logits] is needed")
        if isinstance(sizes[2], int):
            if told and told != sizes[2]:
                raise InvalidArgument(
                    f"output {logits.name!r} has {sizes[2]} logits a token, and {config.name('model', 'vocab_size')} "
                    f"is {told}: the configuration is another model's"
                )
            return sizes[2]
        if told < 1:
            raise InvalidArgument(
                f"{config.name('model', 'vocab_size')} is {told}, and output {logits.name!r} does not tell its size "
                f"either ({sizes}): set it to the number of logits a token"
            )
        return told

    def numpy(self, name: str) -> np.dtype[Any]:
        """The type of an input's or output's elements in NumPy."""
        return self.types[name].numpy


def _named(config: Config, side: str, key: str, entries: Mapping[str, Any], *, is_needed: bool = False) -> str:
    """The name of an input or output; "" where the model has none of that name."""
    name = config.text("model", "decoder", side, key, default=key)
    if name in entries:
        return name
    if is_needed or config.get("model", "decoder", side, key) is not None:
        raise InvalidArgument(
            f"the model has no {side[:-1]} {name!r}, which model.decoder.{side}.{key} in genai_config.json "
            f"names; its {side} are: {', '.join(entries)}"
        )
    return ""


def _dtype(name: str, text: str) -> DType:
    if text not in _TEXTS:
        raise InvalidArgument(f"{name!r} is {text}: inputs and outputs of a decoder are tensors")
    return _TEXTS[text]


class Steps:
    """Some sequences on their way through a decoder.

    Sequences of unequal length are padded behind their ends: their rows in caches follow each other nonetheless, and
    the next token's come behind the last one that is no padding.

    All inputs and outputs lie in memory that stays, and are bound once: a step writes a token, and a mask that is one
    column longer. What is bound anew is the memory of a piece of another length, of caches that have grown, and of all
    caches of models that cannot update them in place.
    """

    def __init__(self, decoder: Decoder, batch: int, *, in_place: bool, limit: int) -> None:
        """limit: the most tokens of a sequence."""
        self.decoder, self.batch, self._limit = decoder, batch, limit
        self.caches = Caches(decoder.slots, decoder.types, batch, in_place=in_place, limit=limit)
        self.run_options: RunOptions | None = None
        self.width = 0
        """Columns of the mask: tokens and padding."""
        self._lengths = np.zeros(batch, np.int64)
        self._binding = decoder.session.io_binding()
        self._extras: dict[str, np.ndarray] = {}
        self._mask = self._ids = self._logits = np.zeros((batch, 0))
        self._positions: np.ndarray | None = None
        self._indices: np.ndarray | None = None
        if decoder.indices:
            self._indices = np.zeros((batch, 1, 1), np.int64)
            self._binding.bind_cpu_input(decoder.indices, self._indices)
        self._counters = [(self._counter(name), own) for name, own in decoder.counters]
        self._count = 0
        """The tokens of a run, in each sequence, that the memory of tokens and logits is for."""
        self._version = -1
        """Of the caches that are bound."""
        self._outputs: list[str] = []

    # ------------------------------------------------------------ running

    def read(self, tokens: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
        """The logits, float32 [batch, vocabulary], behind more tokens, int [batch, steps]; they are valid until the
        next run.

        counts [batch]: how many of each row are tokens, and not padding; None: all. InvalidArgument where the model
        has an input that nobody has set.
        """
        steps = tokens.shape[1]
        self._check_extras()
        if counts is not None and not (self.decoder.has_all_logits or self.decoder.indices):
            raise errors.NotImplemented(
                "the model gives logits of the last column alone (prune_lm_head), and sequences are padded there: "
                "give those of equal length together"
            )
        self.caches.reserve(self.width, self.width + steps)
        if steps != self._count:
            self._size(steps)
        self._ids[...] = tokens
        if self._positions is not None:
            np.add(self._lengths[:, None], np.arange(steps), out=self._positions, casting="unsafe")
            if counts is not None:
                self._positions[np.arange(steps) >= counts[:, None]] = 0
        if self.decoder.mask:
            self._binding.bind_cpu_input(self.decoder.mask, self._masked(steps, counts))
        last = steps - 1 if counts is None else np.maximum(counts, 1) - 1
        if self._indices is not None:
            self._indices[:, 0, 0] = last
        for counter, is_total in self._counters:
            counter[...] = self.width + steps if is_total else self.width
        if self._version != self.caches.version:
            self._bind_caches()
        try:
            self.decoder.session.run_with_iobinding(self._binding, self.run_options)
        except InvalidArgument as error:
            raise self._misfit(steps, error) from error
        self.caches.advance()
        self.width += steps
        self._lengths += steps if counts is None else counts
        rows = self._logits[np.arange(self.batch), last] if self._logits.shape[1] > 1 else self._logits[:, 0]
        return _float32(rows, self.decoder.types[self.decoder.logits])

    def _misfit(self, steps: int, error: InvalidArgument) -> InvalidArgument:
        """An error of a run with what may be the cause: not every model does all that there are options for."""
        if self.width == 0 and self.caches.in_place:
            advice = (
                "if the model does not write keys and values into the memory of the past ones, as GroupQueryAttention "
                "does, set past_present_share_buffer to False"
            )
        elif self.width and steps > 1:
            advice = (
                f"if the model takes no more than one token behind {self.width} others, leave chunk_size out, and "
                "append tokens once, or after rewind_to(0)"
            )
        else:
            return error
        return InvalidArgument(f"a run of {steps} tokens behind {self.width} failed; {advice}. {error.text}")

    def rewind(self, tokens: int) -> None:
        """Forget what comes behind the first `tokens`, where `Caches.can_rewind` says that this can be."""
        self.caches.rewind(tokens)
        self.width = tokens
        self._lengths = np.minimum(self._lengths, tokens)

    # ------------------------------------------------------------ what is bound

    def set_extra(self, name: str, value: np.ndarray) -> None:
        """Set an input that is neither tokens nor a cache. InvalidArgument for an unknown name, and another type."""
        if name not in self.decoder.extras:
            known = ", ".join(self.decoder.extras) or "none"
            raise InvalidArgument(f"input {name!r} is none that can be set; these are: {known}")
        self._binding.bind_cpu_input(name, value)
        self._extras[name] = value

    def get_input(self, name: str) -> np.ndarray:
        """An input as it is. InvalidArgument for an unknown one."""
        decoder = self.decoder
        if name in self._extras:
            return self._extras[name]
        if name in self.caches.values:
            return self.caches.values[name].numpy()
        if self._count and name == decoder.ids:
            return self._ids
        if self._count and name == decoder.positions and self._positions is not None:
            return self._positions
        if name == decoder.mask and name:
            return self._mask[:, : self.width]
        raise InvalidArgument(
            f"there is no input {name!r}; these are: {', '.join([*self._extras, *self.caches.values])}"
        )

    def get_output(self, name: str) -> np.ndarray:
        """An output of the last run. InvalidArgument for an unknown one, and before the first run."""
        outputs = dict(zip(self._outputs, self._binding.get_outputs(), strict=True)) if self._count else {}
        if name not in outputs:
            raise InvalidArgument(
                f"there is no output {name!r}; these are: {', '.join(outputs) or 'none, as nothing was run'}"
            )
        return outputs[name].numpy()

    def _check_extras(self) -> None:
        for name in self.decoder.extras:
            if name not in self._extras:
                raise InvalidArgument(
                    f"input {name!r} of the model is not set: give it with Generator.set_model_input before tokens"
                )

    def _counter(self, name: str) -> np.ndarray:
        """Memory of an input that holds one number, bound."""
        array = np.zeros([1] * self.decoder.ranks[name], self.decoder.numpy(name))
        self._binding.bind_cpu_input(name, array)
        return array

    def _size(self, steps: int) -> None:
        """Have memory for runs of so many tokens, bound."""
        decoder, binding, batch = self.decoder, self._binding, self.batch
        self._ids = np.zeros((batch, steps), decoder.numpy(decoder.ids))
        binding.bind_cpu_input(decoder.ids, self._ids)
        if decoder.positions:
            self._positions = np.zeros((batch, steps), decoder.numpy(decoder.positions))
            binding.bind_cpu_input(decoder.positions, self._positions)
        shape = (batch, steps if decoder.has_all_logits else 1, decoder.vocabulary)
        logits = OrtValue.ortvalue_from_shape_and_type(shape, int(decoder.types[decoder.logits]))
        binding.bind_ortvalue_output(decoder.logits, logits)
        self._logits, self._count = logits.numpy(), steps

    def _masked(self, steps: int, counts: np.ndarray | None) -> np.ndarray:
        """The attention mask [batch, width + steps]; for one sequence a view of ones."""
        begin, end = self.width, self.width + steps
        if end > self._mask.shape[1]:
            columns = min(max(end, 2 * self._mask.shape[1], _LEAST_COLUMNS), max(end, self._limit))
            larger = np.ones((self.batch, columns), self.decoder.numpy(self.decoder.mask))
            larger[:, :begin] = self._mask[:, :begin]
            self._mask = larger
        self._mask[:, begin:end] = 1 if counts is None else np.arange(steps) < counts[:, None]
        return np.ascontiguousarray(self._mask[:, :end])

    def _bind_caches(self) -> None:
        """Bind what the caches are now."""
        binding, caches, decoder = self._binding, self.caches, self.decoder
        for slot in decoder.slots:
            binding.bind_ortvalue_input(slot.past, caches.values[slot.past])
            binding.bind_ortvalue_output(slot.present, caches.presents[slot.past])
        if not self._outputs:
            self._outputs = [decoder.logits, *(slot.present for slot in decoder.slots)]
            for name in decoder.others:
                binding.bind_output(name)
            self._outputs += decoder.others
        self._version = caches.version


def _float32(rows: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers as float32. dtype: what they are, as bfloat16 lies in uint16."""
    if dtype is DType.BFLOAT16:
        return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32, copy=False)
