"""A model that gives logits for tokens, step by step, and the steps of some sequences through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from jitonnx.genai.optimum import BRANCH
from jitonnx.genai.places import Places
from jitonnx.genai.tensors import TYPES
from jitonnx.genai.vision import EmbeddingRuns, Parts, Prompts
from jitonnx.ir.dtypes import DType

_LEAST_COLUMNS = 128
"""The least columns of a mask's memory."""


class Decoder:
    """A session of a decoder, and what its inputs and outputs are."""

    def __init__(self, config: Config, session: InferenceSession, parts: Parts | None = None) -> None:
        """parts: what makes rows of tokens, where the model reads these. InvalidArgument for a model whose inputs and
        outputs are not those of a decoder."""
        self.session, self.parts = session, parts
        inputs = {one.name: one for one in session.get_inputs()}
        outputs = {one.name: one for one in session.get_outputs()}
        self.rows = _named(config, "inputs", "inputs_embeds", inputs, is_needed=True) if parts is not None else ""
        """The input of rows that `parts` make of tokens; "" where there are no parts."""
        has_ids = config.text("model", "decoder", "inputs", "input_ids", default="input_ids") in inputs
        self.ids = _named(config, "inputs", "input_ids", inputs, is_needed=True) if has_ids or not self.rows else ""
        self.mask = _named(config, "inputs", "attention_mask", inputs)
        self.positions = _named(config, "inputs", "position_ids", inputs)
        past_length = _named(config, "inputs", "past_sequence_length", inputs)
        total_length = _named(config, "inputs", "total_sequence_length", inputs)
        self.logits = _named(config, "outputs", "logits", outputs, is_needed=True)
        self.indices = INDICES if INDICES in inputs else ""
        """The input that says which token of each sequence logits are for."""
        batch = inputs[self.ids or self.rows].shape[0]
        self.slots: list[Slot] = slots_of(config, list(inputs.values()), list(outputs.values()), batch)
        pasts = {slot.past for slot in self.slots}
        known = {self.ids, self.rows, self.indices, self.mask, self.positions, past_length, total_length} | pasts
        self.branch = BRANCH if BRANCH in inputs else ""
        """The input that says whether there are caches, which is always so."""
        self.extras = [name for name in inputs if name not in known and name != BRANCH]
        """Inputs that a program has to set."""
        self.counters = [(name, total) for name, total in ((past_length, False), (total_length, True)) if name]
        """Inputs of one number, and whether it is that of all tokens, or of those before."""
        presents = {slot.present for slot in self.slots}
        self.others = [name for name in outputs if name != self.logits and name not in presents]
        """Outputs that are neither logits nor caches."""
        self.types = {name: dtype_of(name, one.type) for name, one in (inputs | outputs).items()}
        self.batch_axes = {name: axis for name, one in (inputs | outputs).items() for axis in _batch_axis(one, batch)}
        """The axes of sequences, of inputs and outputs that have one."""
        self.ranks = {name: len(one.shape) for name, one in inputs.items()}
        if parts is not None and parts.embedding.dtype is not self.types[self.rows]:
            raise InvalidArgument(
                f"input {self.rows!r} of the decoder is {self.types[self.rows].text}, and the embedding model, "
                f"{config.file('model', 'embedding', 'filename')}, gives {parts.embedding.dtype.text}: they are of "
                "different models"
            )
        if not self.slots:
            raise errors.NotImplemented(
                f"the model has no inputs for caches among {', '.join(inputs)}: models without them are not supported"
            )
        self.has_all_logits = not self.indices and outputs[self.logits].shape[1:2] != [1]
        """Whether there are logits of all tokens, or of the last one of each sequence."""
        self.can_choose = self.has_all_logits or bool(self.indices)
        """Whether logits can be had of any token that is read."""
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

    @property
    def mask_type(self) -> np.dtype[Any]:
        """The type of the attention mask's elements, also where the model does without."""
        return self.numpy(self.mask) if self.mask else np.dtype(np.int64)

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


def dtype_of(name: str, text: str) -> DType:
    """The type of an input's or output's elements. InvalidArgument for what is no tensor."""
    if text not in TYPES:
        raise InvalidArgument(f"{name!r} is {text}: inputs and outputs of a decoder are tensors")
    return TYPES[text]


def _batch_axis(entry: Any, batch: Any) -> list[int]:
    """The axis of sequences: that of the dimension `batch`, or the first one if its size is open; none else."""
    sizes = list(entry.shape)
    if isinstance(batch, str) and batch in sizes:
        return [sizes.index(batch)]
    return [0] if sizes and not isinstance(sizes[0], int) else []


class Bound:
    """Inputs and outputs of runs of some sequences, but for their caches, in memory that is bound once.

    A step writes a token, and a mask that is one column longer. What is bound anew is the memory of a piece of another
    length.
    """

    def __init__(self, decoder: Decoder, batch: int, prompts: Prompts | None = None) -> None:
        """prompts: what the one sequence has of prompts with images."""
        self.decoder, self.batch, self._prompts = decoder, batch, prompts
        self.binding = decoder.session.io_binding()
        self.ids = np.zeros((batch, 0), np.int64)
        self.positions: np.ndarray | None = None
        """[batch, steps]; [3, batch, steps] where the model takes them in three dimensions."""
        self._rows: OrtValue | None = None
        self._embedding = EmbeddingRuns(decoder.parts.embedding, batch) if decoder.parts is not None else None
        self._logits = np.zeros((batch, 0, 0), np.float32)
        self._indices = np.zeros((batch, 0, 1), np.int64)
        self._counters = [(self._counter(name), is_total) for name, is_total in decoder.counters]
        self._outputs: list[str] = []
        self.has_run = False
        if decoder.branch:
            self.binding.bind_cpu_input(decoder.branch, np.ones(1, bool))

    def bind_caches(
        self, slots: Sequence[Slot], pasts: Mapping[str, OrtValue], presents: Mapping[str, OrtValue]
    ) -> None:
        """Have runs read and write other memory of caches."""
        for slot in slots:
            self.binding.bind_ortvalue_input(slot.past, pasts[slot.past])
            self.binding.bind_ortvalue_output(slot.present, presents[slot.past])
        if not self._outputs:
            for name in self.decoder.others:
                self.binding.bind_output(name)
            self._outputs = [self.decoder.logits, *(slot.present for slot in slots), *self.decoder.others]

    def fill(self, tokens: np.ndarray, lengths: np.ndarray, mask: np.ndarray, kept: np.ndarray) -> None:
        """Set the inputs of a run.

        tokens [batch, steps], the first of each sequence at the position that lengths [batch] tells; mask [batch, all
        tokens]; kept [batch, any number]: which of the steps logits are wanted of.
        """
        decoder, steps = self.decoder, tokens.shape[1]
        if steps != self.ids.shape[1] or kept.shape[1] != self._indices.shape[1]:
            self._size(steps, kept.shape[1])
        self.ids[...] = tokens
        if self._embedding is not None and self._rows is not None:
            if self._prompts is None:
                self._embedding.make(tokens, self._rows)
            else:
                self._prompts.fill(tokens[0], int(lengths[0]), self._rows, self._embedding)
        if self.positions is not None:
            if self._prompts is not None and self.positions.ndim == 3:
                self.positions[:, 0] = self._prompts.positions(int(lengths[0]), steps)
            else:
                np.add(lengths[:, None], np.arange(steps), out=self.positions, casting="unsafe")
        if decoder.mask:
            self.binding.bind_cpu_input(decoder.mask, mask)
        self._indices[:, :, 0] = kept
        for counter, is_total in self._counters:
            counter[...] = mask.shape[1] if is_total else mask.shape[1] - steps

    def run(self, options: RunOptions | None) -> np.ndarray:
        """Run the model. The logits, float32 [batch, kept, vocabulary], valid until the next run."""
        decoder, kept = self.decoder, self._indices[:, :, 0]
        self.has_run = True
        decoder.session.run_with_iobinding(self.binding, options)
        rows = self._logits
        if rows.shape[1] > 1 and not decoder.indices:
            rows = rows[np.arange(self.batch)[:, None], kept]
        return _float32(rows, decoder.types[decoder.logits])

    def output(self, name: str) -> np.ndarray:
        """An output of the last run. InvalidArgument for an unknown one, and before the first run."""
        outputs = dict(zip(self._outputs, self.binding.get_outputs(), strict=True)) if self.has_run else {}
        if name not in outputs:
            raise InvalidArgument(
                f"there is no output {name!r}; these are: {', '.join(outputs) or 'none, as nothing was run'}"
            )
        return outputs[name].numpy()

    def _counter(self, name: str) -> np.ndarray:
        """Memory of an input that holds one number, bound."""
        array = np.zeros([1] * self.decoder.ranks[name], self.decoder.numpy(name))
        self.binding.bind_cpu_input(name, array)
        return array

    def _size(self, steps: int, kept: int) -> None:
        """Have memory for runs of so many tokens, bound."""
        decoder, batch = self.decoder, self.batch
        self.ids = np.zeros((batch, steps), decoder.numpy(decoder.ids) if decoder.ids else np.int64)
        if decoder.ids:
            self.binding.bind_cpu_input(decoder.ids, self.ids)
        if decoder.parts is not None:
            embedding = decoder.parts.embedding
            self._rows = OrtValue.ortvalue_from_shape_and_type((batch, steps, embedding.width), int(embedding.dtype))
            self.binding.bind_ortvalue_input(decoder.rows, self._rows)
        if decoder.positions:
            dimensions = [3] if decoder.ranks[decoder.positions] == 3 else []
            self.positions = np.zeros([*dimensions, batch, steps], decoder.numpy(decoder.positions))
            self.binding.bind_cpu_input(decoder.positions, self.positions)
        self._indices = np.zeros((batch, kept, 1), np.int64)
        if decoder.indices:
            self.binding.bind_cpu_input(decoder.indices, self._indices)
        rows = kept if decoder.indices else steps if decoder.has_all_logits else 1
        logits = OrtValue.ortvalue_from_shape_and_type(
            (batch, rows, decoder.vocabulary), int(decoder.types[decoder.logits])
        )
        self.binding.bind_ortvalue_output(decoder.logits, logits)
        self._logits = logits.numpy()


def misfit(error: InvalidArgument, steps: int, before: int, *, in_place: bool) -> InvalidArgument:
    """An error of a run with what may be the cause: not every model does all that there are options for."""
    if before == 0 and in_place:
        advice = (
            "if the model does not write keys and values into the memory of the past ones, as GroupQueryAttention "
            "does, set past_present_share_buffer to False"
        )
    elif before and steps > 1:
        advice = (
            f"if the model takes no more than one token behind {before} others, leave chunk_size out, and "
            "append tokens once, or after rewind_to(0)"
        )
    else:
        return error
    return InvalidArgument(f"a run of {steps} tokens behind {before} failed; {advice}. {error.text}")


class Steps:
    """Some sequences on their way through a decoder.

    Sequences of unequal length are padded behind their ends: their rows in caches follow each other nonetheless, and
    the next token's come behind the last one that is no padding.

    Beside what `Bound` says, caches that have grown are bound anew, and all caches of models that cannot update them in
    place.
    """

    def __init__(self, decoder: Decoder, batch: int, *, in_place: bool, limit: int) -> None:
        """limit: the most tokens of a sequence."""
        self.decoder, self.batch, self._limit = decoder, batch, limit
        self.caches = Caches(decoder.slots, decoder.types, batch, in_place=in_place, limit=limit)
        self.run_options: RunOptions | None = None
        self.width = 0
        """Columns of the mask: tokens and padding."""
        self._lengths = np.zeros(batch, np.int64)
        self.prompts = Prompts(decoder.parts) if decoder.parts is not None and batch == 1 else None
        """What the one sequence has of prompts with images; None where it cannot have any."""
        self._bound = Bound(decoder, batch, self.prompts)
        self._extras: dict[str, np.ndarray] = {}
        self._mask = np.zeros((batch, 0))
        self._version = -1
        """The version of the caches that are bound."""
        self._places: Places | None = None
        """The rows of the beams, once there are several copies of each sequence."""

    # ------------------------------------------------------------ running

    def read(self, tokens: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
        """The logits, float32 [batch, vocabulary], behind more tokens, int [batch, steps]; they are valid until the
        next run.

        counts [batch]: how many of each row are tokens, and not padding; None: all. InvalidArgument where the model
        has an input that nobody has set.
        """
        if counts is not None and not self.decoder.can_choose:
            raise errors.NotImplemented(
                "the model gives logits of the last column alone (prune_lm_head), and sequences are padded there: "
                "give those of equal length together"
            )
        if counts is not None and (states := [slot.past for slot in self.decoder.slots if slot.rows_axis is None]):
            raise errors.NotImplemented(
                f"the model has states, as {states[0]!r}, which would take in the padding of shorter sequences: give "
                "those of equal length together, or each to a Generator or as a request to an Engine"
            )
        last = np.full(self.batch, tokens.shape[1] - 1) if counts is None else np.maximum(counts, 1) - 1
        return self.read_kept(tokens, last[:, None], counts)[:, 0]

    def read_kept(self, tokens: np.ndarray, kept: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
        """As `read`, the logits, float32 [batch, number, vocabulary], behind the tokens that kept [batch, number] tells
        by their places among those that are read."""
        steps, places = tokens.shape[1], self._places
        self._check_extras()
        if places is not None:
            beams = places.beams()
            tokens, kept, counts = tokens[beams], kept[beams], None if counts is None else counts[beams]
        self.caches.reserve(self.width, self.width + steps)
        self._bound.fill(tokens, self._lengths, self._masked(steps, counts), kept)
        if counts is not None and self._bound.positions is not None:
            self._bound.positions[..., np.arange(steps) >= counts[:, None]] = 0
        if self._version != self.caches.version:
            self._bound.bind_caches(self.decoder.slots, self.caches.values, self.caches.presents)
            self._version = self.caches.version
        try:
            logits = self._bound.run(self.run_options)
        except InvalidArgument as error:
            raise misfit(error, steps, self.width, in_place=self.caches.in_place) from error
        self.caches.advance()
        self.width += steps
        self._lengths += steps if counts is None else counts
        return logits if places is None else logits[places.rows]

    def spread(self, times: int) -> None:
        """Go on with several copies of each sequence, which lie behind each other."""
        self.caches.spread(times, self.width)
        before, self.batch = self.batch, self.batch * times
        self._lengths, self._mask = np.repeat(self._lengths, times), np.repeat(self._mask, times, 0)
        self._places = Places(self._lengths, times)
        self._bound, self._version = Bound(self.decoder, self.batch), -1
        for name, value in self._extras.items():
            axis = self.decoder.batch_axes.get(name)
            is_of_sequences = axis is not None and value.shape[axis] == before
            self.set_extra(name, np.repeat(value, times, axis) if is_of_sequences else value)

    def pick(self, sources: np.ndarray) -> None:
        """Have each of the copies go on from the one that sources [batch] tells."""
        assert self._places is not None
        self.caches.copy(self._places.pick(sources, self._lengths), self.width)

    def shorten(self, tokens: int) -> None:
        """`rewind`, where there are more tokens."""
        if self.width > tokens:
            self.rewind(tokens)

    def rewind(self, tokens: int) -> None:
        """Forget what comes behind the first `tokens`, where `Caches.can_rewind` says that this can be."""
        self.caches.rewind(tokens)
        self.width = tokens
        self._lengths = np.minimum(self._lengths, tokens)

    # ------------------------------------------------------------ what is bound

    def set_extra(self, name: str, value: np.ndarray) -> None:
        """Set an input that is neither tokens nor a cache, or one of the vision model, for the tokens that are appended
        next. InvalidArgument for an unknown name, and another type."""
        if self.prompts is not None and self.prompts.set(name, value):
            return
        parts = self.decoder.parts
        if self.prompts is None and parts is not None and parts.vision is not None and parts.vision.takes(name):
            raise InvalidArgument(
                f"input {name!r} is of images, which one sequence may have, and batch_size is {self.batch}: set it to 1"
            )
        if name not in self.decoder.extras:
            known = ", ".join(self.decoder.extras) or "none"
            raise InvalidArgument(f"input {name!r} is none that can be set; these are: {known}")
        self._bound.binding.bind_cpu_input(name, value)
        self._extras[name] = value

    def get_input(self, name: str) -> np.ndarray:
        """An input as it is. InvalidArgument for an unknown one."""
        decoder = self.decoder
        if name in self._extras:
            return self._extras[name]
        if name in self.caches.values:
            return self._ordered(name, self.caches.values[name].numpy())
        if self._bound.has_run and name == decoder.ids:
            return self._ordered(name, self._bound.ids)
        if self._bound.has_run and name == decoder.positions and self._bound.positions is not None:
            return self._ordered(name, self._bound.positions)
        if name == decoder.mask and name:
            return self._mask[:, : self.width]
        raise InvalidArgument(
            f"there is no input {name!r}; these are: {', '.join([*self._extras, *self.caches.values])}"
        )

    def get_output(self, name: str) -> np.ndarray:
        """An output of the last run. InvalidArgument for an unknown one, and before the first run."""
        return self._ordered(name, self._bound.output(name))

    def _ordered(self, name: str, array: np.ndarray) -> np.ndarray:
        """What has sequences along an axis, in their order."""
        axis = self.decoder.batch_axes.get(name)
        return array if self._places is None or axis is None else np.take(array, self._places.rows, axis)

    def _check_extras(self) -> None:
        for name in self.decoder.extras:
            if name not in self._extras:
                raise InvalidArgument(
                    f"input {name!r} of the model is not set: give it with Generator.set_model_input before tokens"
                )

    def _masked(self, steps: int, counts: np.ndarray | None) -> np.ndarray:
        """The attention mask [batch, width + steps]; for one sequence a view of ones."""
        begin, end = self.width, self.width + steps
        if end > self._mask.shape[1]:
            columns = min(max(end, 2 * self._mask.shape[1], _LEAST_COLUMNS), max(end, self._limit))
            larger = np.ones((self.batch, columns), self.decoder.mask_type)
            larger[:, :begin] = self._mask[:, :begin]
            self._mask = larger
        self._mask[:, begin:end] = 1 if counts is None else np.arange(steps) < counts[:, None]
        return np.ascontiguousarray(self._mask[:, :end])


def _float32(rows: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers as float32. dtype: what they are, as bfloat16 lies in uint16."""
    if dtype is DType.BFLOAT16:
        return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32, copy=False)
