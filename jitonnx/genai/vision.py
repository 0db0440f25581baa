"""Models of images and text in parts: what `model.vision` and `model.embedding` of a folder give its decoder.

The vision session makes features of pixels, the embedding session rows of numbers of tokens, in which features take the
place of tokens that stand for an image. The decoder reads these rows. A prompt's rows are made once, with its images;
tokens behind it have rows of their own, without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx import errors
from jitonnx.api.values import OrtValue
from jitonnx.errors import InvalidArgument
from jitonnx.genai.config import Config
from jitonnx.genai.tensors import TYPES
from jitonnx.ir.dtypes import DType

if TYPE_CHECKING:
    from jitonnx.api.session import InferenceSession

PIXELS, GRID, SIZES, MASK = "pixel_values", "image_grid_thw", "image_sizes", "image_attention_mask"
"""What a processor makes of images, by onnxruntime-genai's names."""

UNREAD = ("token_type_ids", "num_image_tokens", "audio_projection_mode")
"""What it makes beside these, and what no model has to take."""
_KEYS = {MASK: "attention_mask"}
"""Names that genai_config.json has other keys for."""
_ONE_BY_ONE = ("fara", "qwen2_5_vl", "qwen3_vl")
"""Types whose patches of all images lie one behind the other."""


def positions_of(tokens: np.ndarray, first: int, grids: np.ndarray, config: Config) -> np.ndarray:
    """Positions in three dimensions (time, height, width) of a prompt's tokens, int64 [3, tokens].

    A text's tokens have the same number three times, from `first` on; those of an image theirs in it, behind the text's
    last one, and the text behind goes on from the largest of these (`get_rope_index` of transformers' Qwen2-VL). grids:
    int64 [images, 3], the patches of each. InvalidArgument for images that do not fit the tokens.
    """
    merged = config.number("model", "vision", "spatial_merge_size", default=2)
    start, stands = (config.number("model", name, default=-1) for name in ("vision_start_token_id", "image_token_id"))
    begins = 1 + np.flatnonzero((tokens[:-1] == start) & (tokens[1:] == stands))
    if len(begins) != len(grids):
        raise InvalidArgument(
            f"the prompt has {len(begins)} places for images (token {start} with {stands} behind it, by "
            f"{config.name('model', 'vision_start_token_id')} and image_token_id), and {len(grids)} images are given"
        )
    made = np.empty((3, len(tokens)), np.int64)
    end, position = 0, first
    for begin, (time, height, width) in zip(begins.tolist(), grids.tolist(), strict=True):
        sizes = (time, height // merged, width // merged)
        count = sizes[0] * sizes[1] * sizes[2]
        if begin < end or begin + count > len(tokens) or count < 1:
            raise InvalidArgument(
                f"an image of {time} x {height} x {width} patches takes {count} tokens, which the prompt does not have "
                f"from token {begin} on ({len(tokens)} in all)"
            )
        made[:, end:begin] = position + np.arange(begin - end)
        position += begin - end
        places = np.indices(sizes).reshape(3, -1)
        places[0] = 0  # an image is one moment
        made[:, begin : begin + count] = position + places
        position += int(places.max()) + 1
        end = begin + count
    made[:, end:] = position + np.arange(len(tokens) - end)
    return made


class Vision:
    """A session that makes features of images."""

    def __init__(self, config: Config, session: InferenceSession) -> None:
        """InvalidArgument for a model without an output for features."""
        self._session = session
        self._config = config
        path = ("model", "vision")
        self._entries = {one.name: one for one in session.get_inputs()}
        _check_tensors(config.file(*path, "filename"), session.get_inputs())
        self.names = {
            name: config.text(*path, "inputs", _KEYS.get(name, name), default=name)
            for name in (PIXELS, GRID, SIZES, MASK)
        }
        """The inputs' names, by what a processor calls them."""
        self._output = _entry(config, session.get_outputs(), *path, "outputs", "image_features").name
        self._patches = self.names[PIXELS]
        if self._patches not in self._entries:
            raise InvalidArgument(
                f"the vision model has no input {self._patches!r}, which {config.name(*path, 'inputs', PIXELS)} names; "
                f"its inputs are: {', '.join(self._entries)}"
            )

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type in which the model takes what a processor makes; float32 also for what NumPy has none for."""
        entry = self._entries.get(self.names[name])
        dtype = TYPES[entry.type] if entry is not None else DType.FLOAT
        return np.dtype(np.float32) if dtype is DType.BFLOAT16 else dtype.numpy

    def takes(self, name: str) -> bool:
        """Whether something that is set by this name is for this model."""
        return self.names.get(name, name) in self._entries

    def features(self, given: Mapping[str, np.ndarray]) -> OrtValue:
        """Features of images. given: by names, a processor's or the model's own; others are left out.

        InvalidArgument for inputs that are missing, and for shapes that do not fit; NotImplemented where the decoder
        would need an adapter.
        """
        if self._config.get("model", "vision", "adapter_filename"):
            raise errors.NotImplemented(
                f"{self._config.name('model', 'vision', 'adapter_filename')} names a LoRA adapter of the decoder for "
                "prompts with images: such models are read for text alone"
            )
        feeds = {self.names.get(name, name): value for name, value in given.items()}
        feeds = {name: value for name, value in feeds.items() if name in self._entries}
        missing = [name for name in self._entries if name not in feeds]
        if missing:
            raise InvalidArgument(
                f"the vision model needs {', '.join(missing)}, and {', '.join(feeds) or 'nothing'} was given: set all "
                "that a processor makes of images, as Generator.set_inputs does"
            )
        grids = feeds.get(self.names[GRID])
        if grids is not None and (grids.ndim != 2 or grids.shape[1] != 3):
            raise InvalidArgument(f"{GRID} has shape {list(grids.shape)}: [images, 3] is needed")
        if grids is None or self._config.text("model", "type") not in _ONE_BY_ONE or self._is_one_run(grids):
            return self._run(feeds)
        return self._one_by_one(feeds, grids)

    def _is_one_run(self, grids: np.ndarray) -> bool:
        """Whether a run takes all images: one, or several of one size where the model does not say how many."""
        is_open = not isinstance(self._entries[self.names[GRID]].shape[0], int)
        return len(grids) <= 1 or (is_open and bool((grids == grids[0]).all()))

    def _one_by_one(self, feeds: Mapping[str, np.ndarray], grids: np.ndarray) -> OrtValue:
        patches = feeds[self._patches]
        sizes = grids.prod(1)
        if len(patches) != sizes.sum():
            raise InvalidArgument(
                f"{self._patches} has {len(patches)} patches, and {GRID} tells of {sizes.sum()}: of other images"
            )
        ends = np.cumsum(sizes)
        parts = [
            self._run({**feeds, self._patches: patches[end - size : end], self.names[GRID]: grids[place : place + 1]})
            for place, (size, end) in enumerate(zip(sizes, ends, strict=True))
        ]
        whole = np.concatenate([part.numpy() for part in parts])
        return OrtValue.ortvalue_from_numpy_with_onnx_type(whole, parts[0].element_type())

    def _run(self, feeds: Mapping[str, np.ndarray]) -> OrtValue:
        binding = self._session.io_binding()
        for name, value in feeds.items():
            binding.bind_ortvalue_input(name, _value(value, TYPES[self._entries[name].type]))
        binding.bind_output(self._output)
        self._session.run_with_iobinding(binding)
        return binding.get_outputs()[0]


class Embedding:
    """A session that makes rows of tokens, and of features in the place of some."""

    def __init__(self, config: Config, session: InferenceSession) -> None:
        """InvalidArgument for a model whose inputs and outputs are not those; NotImplemented for one that asks for
        more."""
        path, inputs = ("model", "embedding"), session.get_inputs()
        _check_tensors(config.file(*path, "filename"), inputs)
        self.session = session
        ids = _entry(config, inputs, *path, "inputs", "input_ids")
        self.ids, self.ids_type = ids.name, TYPES[ids.type].numpy
        output = _entry(config, session.get_outputs(), *path, "outputs", "inputs_embeds")
        self.output, self.dtype = output.name, TYPES[output.type]
        width = output.shape[-1]
        self.width = width if isinstance(width, int) else config.number("model", "decoder", "hidden_size")
        """The numbers of a row."""
        if self.width < 1:
            raise InvalidArgument(
                f"{config.name('model', 'decoder', 'hidden_size')} is {self.width}, and output {self.output!r} of the "
                f"embedding model does not tell its size either ({list(output.shape)}): set it to the decoder's"
            )
        self.features = config.text(*path, "inputs", "image_features", default="image_features")
        audio = config.text(*path, "inputs", "audio_features", default="audio_features")
        self._features = [one for one in inputs if one.name in (self.features, audio)]
        others = [one.name for one in inputs if one not in self._features and one.name != self.ids]
        others += [one.name for one in session.get_outputs() if one.name != self.output]
        if others:
            raise errors.NotImplemented(
                f"{config.file(*path, 'filename')} has {', '.join(others)}: models whose embedding takes tokens and "
                "features, and gives rows, are supported"
            )

    def nothing(self) -> dict[str, OrtValue]:
        """The features of no images, by the names of inputs."""
        made = {}
        for one in self._features:
            sizes = [size if isinstance(size, int) else 0 for size in one.shape]
            sizes[0], sizes[-1] = 0, self.width
            made[one.name] = _value(np.zeros(sizes, TYPES[one.type].numpy), TYPES[one.type])
        return made


class EmbeddingRuns:
    """Runs of an embedding over some sequences, with inputs and outputs that stay bound."""

    def __init__(self, embedding: Embedding, batch: int) -> None:
        self._embedding = embedding
        self._binding = embedding.session.io_binding()
        self._ids = np.zeros((batch, 0), embedding.ids_type)
        self._nothing = embedding.nothing()
        self._bind_features(self._nothing)
        self._rows: OrtValue | None = None

    def make(self, tokens: np.ndarray, rows: OrtValue, features: OrtValue | None = None) -> None:
        """Write the rows of tokens [batch, steps] to `rows`, [batch, steps, width]. features: of images among them."""
        if tokens.shape != self._ids.shape:
            self._ids = np.zeros(tokens.shape, self._embedding.ids_type)
            self._binding.bind_cpu_input(self._embedding.ids, self._ids)
        if rows is not self._rows:
            self._binding.bind_ortvalue_output(self._embedding.output, rows)
            self._rows = rows
        self._ids[...] = tokens
        if features is None:
            self._embedding.session.run_with_iobinding(self._binding)
            return
        self._bind_features(self._nothing | {self._embedding.features: features})
        try:
            self._embedding.session.run_with_iobinding(self._binding)
        finally:
            self._bind_features(self._nothing)

    def _bind_features(self, features: Mapping[str, OrtValue]) -> None:
        for name, value in features.items():
            self._binding.bind_ortvalue_input(name, value)


@dataclass(frozen=True)
class Parts:
    """What a folder's model has beside its decoder."""

    config: Config
    embedding: Embedding
    vision: Vision | None


@dataclass(frozen=True)
class Segment:
    """Tokens that follow each other, with the rows that were made of them and their images."""

    begin: int
    """The place of the first among all tokens."""
    tokens: np.ndarray
    rows: np.ndarray
    """[tokens, width]."""
    positions: np.ndarray
    """Int64 [3, tokens]."""
    given: Mapping[str, np.ndarray]
    """What a processor made of their images."""

    @property
    def end(self) -> int:
        """The place behind the last."""
        return self.begin + len(self.tokens)

    def first(self, count: int) -> Segment:
        """The first tokens alone."""
        return replace(self, tokens=self.tokens[:count], rows=self.rows[:count], positions=self.positions[:, :count])


class Prompts:
    """What a sequence has of prompts with images: rows and positions that are not those of its tokens alone."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._runs = EmbeddingRuns(parts.embedding, 1)
        self.segments: list[Segment] = []
        """In the order of their tokens."""
        self._given: dict[str, np.ndarray] = {}

    def set(self, name: str, value: np.ndarray) -> bool:
        """Have an input of the vision model for the tokens that are appended next; False for a name of none."""
        vision = self._parts.vision
        if vision is None or not vision.takes(name):
            return False
        self._given[name] = value
        return True

    @property
    def placeholders(self) -> int:
        """How many numbers below 0 may stand for images among tokens that are appended."""
        return max(len(given.get(SIZES, ())) for given in (self._given, *(one.given for one in self.segments)))

    @property
    def has_images(self) -> bool:
        """Whether images are set for the tokens that are appended next."""
        return bool(self._given)

    def clear(self) -> None:
        """Forget the inputs that are set for tokens to come."""
        self._given = {}

    def append(self, tokens: np.ndarray, begin: int) -> None:
        """Make rows of tokens [tokens], which come from the place `begin` on, with the images that are set.

        InvalidArgument for images that do not fit the tokens.
        """
        vision, given, self._given = self._parts.vision, self._given, {}
        if not given or vision is None:
            return
        features = vision.features(given)
        first = int(self.positions(begin, 1)[0, 0])
        grids = next(
            (value for name, value in given.items() if vision.names.get(name, name) == vision.names[GRID]), None
        )
        if grids is None:
            positions = np.broadcast_to(first + np.arange(len(tokens)), (3, len(tokens)))
        else:
            positions = positions_of(tokens, first, grids, self._parts.config)
        self.segments.append(Segment(begin, tokens.copy(), self._rows(tokens, features), positions, given))

    def are_of(self, tokens: np.ndarray, given: Mapping[str, np.ndarray]) -> bool:
        """Whether these are all prompts with images that tokens [tokens] have. given: what a processor makes of their
        images."""
        vision = self._parts.vision
        asked = {name: value for name, value in given.items() if vision is not None and vision.takes(name)}
        if not self.segments or not asked:
            return not self.segments and not asked
        (first, *others) = self.segments
        return (
            not others
            and np.array_equal(first.tokens, tokens[first.begin : first.end])
            and first.given.keys() == asked.keys()
            and all(np.array_equal(first.given[name], value) for name, value in asked.items())
        )

    def cut(self, length: int) -> None:
        """Forget what is of tokens behind the first `length`."""
        self.segments = [one.first(length - one.begin) for one in self.segments if one.begin < length]

    def fill(self, tokens: np.ndarray, begin: int, rows: OrtValue, runs: EmbeddingRuns) -> None:
        """Write the rows of tokens [tokens] from the place `begin` on to `rows`, [1, tokens, width]. runs: makes those
        of tokens that came without images."""
        end = begin + len(tokens)
        kept = [one for one in self.segments if one.begin < end and begin < one.end]
        if not kept:
            runs.make(tokens[None], rows)
            return
        made, place = rows.numpy()[0], begin
        for one in kept:
            low, high = max(begin, one.begin), min(end, one.end)
            made[place - begin : low - begin] = self._rows(tokens[place - begin : low - begin])
            made[low - begin : high - begin] = one.rows[low - one.begin : high - one.begin]
            place = high
        made[place - begin :] = self._rows(tokens[place - begin :])

    def _rows(self, tokens: np.ndarray, features: OrtValue | None = None) -> np.ndarray:
        """The rows of tokens [tokens], [tokens, width]."""
        embedding = self._parts.embedding
        rows = OrtValue.ortvalue_from_shape_and_type((1, len(tokens), embedding.width), int(embedding.dtype))
        if len(tokens):
            self._runs.make(tokens[None], rows, features)
        made: np.ndarray = rows.numpy()[0]
        return made

    def positions(self, begin: int, count: int) -> np.ndarray:
        """Positions of tokens from `begin` on, int64 [3, tokens]."""
        places = begin + np.arange(count)
        made = np.repeat(places[None], 3, 0)
        for one in self.segments:
            inside = (places >= one.begin) & (places < one.end)
            made[:, inside] = one.positions[:, places[inside] - one.begin]
            behind = places >= one.end
            made[:, behind] = int(one.positions.max()) + 1 + places[behind] - one.end
        return made


def _check_tensors(place: str, entries: list[Any]) -> None:
    for one in entries:
        if one.type not in TYPES:
            raise errors.NotImplemented(f"input {one.name!r} of {place} is {one.type}: tensors are supported")


def _entry(config: Config, entries: list[Any], *path: str) -> Any:
    """An input or output that the configuration names. InvalidArgument where the model has none of that name."""
    name = config.text(*path, default=path[-1])
    found = next((one for one in entries if one.name == name), None)
    if found is None or found.type not in TYPES:
        raise InvalidArgument(
            f"{config.file(*path[:-2], 'filename')} has no tensor {name!r}, which {config.name(*path)} names: it has "
            f"{', '.join(one.name for one in entries)}"
        )
    return found


def _value(array: np.ndarray, dtype: DType) -> OrtValue:
    """Numbers as a model takes them."""
    if dtype is not DType.BFLOAT16 or array.dtype == np.uint16:
        kept = array if dtype is DType.BFLOAT16 else array.astype(dtype.numpy, copy=False)
        return OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(kept), int(dtype))
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # ties to even
    return OrtValue.ortvalue_from_numpy_with_onnx_type(nearest.astype(np.uint16), int(dtype))
