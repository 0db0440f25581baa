"""Prompts with images of each type of model: which marks a text has, and which tokens an image takes.

As onnxruntime-genai's processors of these types do it, from whose sources the marks and numbers are taken.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.genai.images import ImageProcessor, Images
from jitonnx.genai.tensors import NamedTensors, Tensor
from jitonnx.genai.vision import GRID, MASK, PIXELS, SIZES, Vision

if TYPE_CHECKING:
    from jitonnx.genai.model import Model
    from jitonnx.genai.tokenizer import Tokenizer

_COUNTS = "num_image_tokens"
_NUMBERED = re.compile(r"<\|image_(\d{1,9})\|>")


class ImagePrompts(ABC):
    """Makes inputs of a prompt and its images."""

    takes_parts = True
    """Whether chat templates of this type write the marks of images; else a message's text has them."""

    def __init__(self, model: Model, tokenizer: Tokenizer) -> None:
        """NoSuchFile and InvalidArgument as `ImageProcessor`; InvalidArgument for a model without a part for images."""
        config, parts = model.config, model.decoder.parts
        if parts is None or parts.vision is None:
            raise InvalidArgument(
                f"{config.folder} has no model.vision in its configuration: use Tokenizer, for text alone"
            )
        self._vision: Vision = parts.vision
        self._tokenizer = tokenizer
        self._config = config
        name = config.text("model", "vision", "config_filename", default="processor_config.json")
        self._process = ImageProcessor(os.path.join(config.folder, name))

    @staticmethod
    def mark(number: int) -> str:
        """The mark of an image, the first being 1, in texts for templates that do not write it."""
        raise NotImplementedError  # of types whose templates write it

    @abstractmethod
    def read(self, prompt: str, images: Images | None) -> NamedTensors:
        """The inputs, `input_ids` int32 [1, tokens] among them. InvalidArgument for images that do not fit the text."""

    def _typed(self, name: str, array: np.ndarray) -> np.ndarray:
        """An array as the vision model takes it."""
        return array.astype(self._vision.dtype(name), copy=False)

    def _check(self, marks: int, images: int, mark: str) -> None:
        if marks != images:
            raise InvalidArgument(f"Prompt contained {marks} image tokens ({mark}) but received {images} images.")


def _named(ids: np.ndarray, **others: np.ndarray) -> NamedTensors:
    """Inputs by names. InvalidArgument for a prompt without tokens."""
    if not ids.size:
        raise InvalidArgument("the prompt has no tokens: there is nothing to go on from")
    tensors = {"input_ids": ids.astype(np.int32, copy=False).reshape(1, -1), **others}
    return NamedTensors({name: Tensor(value) for name, value in tensors.items()})


class Gemma3Prompts(ImagePrompts):
    """Gemma 3: <start_of_image> becomes 256 tokens between two more."""

    _MARK, _TOKEN, _END, _COUNT = "<start_of_image>", "<image_soft_token>", "<end_of_image>", 256

    def read(self, prompt: str, images: Images | None) -> NamedTensors:
        """Inputs with `pixel_values` [images, 3, height, width] and `token_type_ids`, 1 where an image is."""
        made = self._process(images, [PIXELS]) if images is not None else {}
        count = len(images) if images is not None else 0
        text = prompt or " ".join([self._MARK] * count)
        self._check(text.count(self._MARK), count, self._MARK)
        whole = f"\n\n{self._MARK}{self._TOKEN * self._COUNT}{self._END}\n\n"
        ids = self._tokenizer.encode(text.replace(self._MARK, whole))
        if not made:
            return _named(ids)
        kinds = (ids == self._tokenizer.to_token_id(self._TOKEN)).astype(np.int32)[None]
        return _named(
            ids,
            token_type_ids=kinds,
            pixel_values=self._typed(PIXELS, made[PIXELS]),
            num_image_tokens=np.array([self._COUNT], np.int64),
        )


class Phi3Prompts(ImagePrompts):
    """Phi 3 and 3.5 vision: <|image_1|> becomes as many -1 as the image takes, and so on."""

    takes_parts = False

    @staticmethod
    def mark(number: int) -> str:
        """The mark of an image, in a line of its own."""
        return f"<|image_{number}|>\n"

    def read(self, prompt: str, images: Images | None) -> NamedTensors:
        """Inputs with `pixel_values` [images, crops, 3, 336, 336] and `image_sizes` [images, 2]."""
        names = (PIXELS, SIZES, _COUNTS)
        made = self._process(images, names) if images is not None else {}
        counts = made[_COUNTS].reshape(-1).tolist() if made else []
        numbers = [int(number) for number in _NUMBERED.findall(prompt)]
        if len(set(numbers)) != len(counts) or any(not 1 <= number <= len(counts) for number in numbers):
            raise InvalidArgument(
                f"the prompt has marks for the images {sorted(set(numbers))}, and {len(counts)} images are given: each "
                "has a mark <|image_1|>, <|image_2|> and so on"
            )
        ids = []
        for place, text in enumerate(_NUMBERED.split(prompt)):
            is_mark = place % 2
            ids.append(
                np.full(counts[int(text) - 1], -int(text), np.int32) if is_mark else self._tokenizer.encode(text)
            )
        whole = np.concatenate(ids)
        if not made:
            return _named(whole)
        return _named(
            whole,
            pixel_values=self._typed(PIXELS, made[PIXELS]),
            image_sizes=made[SIZES].astype(np.int64, copy=False),
            num_image_tokens=made[_COUNTS].astype(np.int64, copy=False),
        )


class Phi4Prompts(ImagePrompts):
    """Phi 4 multimodal, without audio: each <|image_1|> becomes as many tokens <|endoftext10|> as the image takes."""

    takes_parts = False
    _MARK = "<|endoftext10|>"

    @staticmethod
    def mark(number: int) -> str:
        """The mark of an image, in a line of its own."""
        return f"<|image_{number}|>\n"

    def read(self, prompt: str, images: Images | None) -> NamedTensors:
        """Inputs with `pixel_values`, `image_sizes` [images, 2] and `image_attention_mask`."""
        names = (PIXELS, SIZES, MASK, _COUNTS)
        made = self._process(images, names) if images is not None else {}
        counts = made[_COUNTS].reshape(-1) if made else np.zeros(0, np.int64)
        ids = self._tokenizer.encode(_NUMBERED.sub(self._MARK, prompt))
        is_mark = ids == self._tokenizer.to_token_id(self._MARK)
        self._check(int(is_mark.sum()), len(counts), "<|image_1|> and so on")
        repeats = np.ones(len(ids), np.int64)
        repeats[is_mark] = counts
        mode = np.array([1 if made else 0], np.int64)  # images, or text alone
        if not made:
            return _named(np.repeat(ids, repeats), audio_projection_mode=mode)
        return _named(
            np.repeat(ids, repeats),
            audio_projection_mode=mode,
            pixel_values=self._typed(PIXELS, made[PIXELS]),
            image_sizes=made[SIZES].astype(np.int64, copy=False),
            image_attention_mask=self._typed(MASK, made[MASK]),
            num_image_tokens=made[_COUNTS].astype(np.int64, copy=False),
        )


class QwenPrompts(ImagePrompts):
    """Qwen 2.5 VL and its kin: what lies from <|vision_start|> to <|vision_end|> becomes a token for each square of
    patches."""

    _START, _TOKEN, _END = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"

    def read(self, prompt: str, images: Images | None) -> NamedTensors:
        """Inputs with `pixel_values` [patches of all images, numbers of a patch] and `image_grid_thw` [images, 3]."""
        count = len(images) if images is not None else 0
        # Images of different sizes cannot be had together.
        each = self._process.each(images, [PIXELS, GRID]) if images is not None else []
        grids = np.concatenate([np.zeros((0, 3), np.int64), *(one[GRID].reshape(-1, 3) for one in each)])
        square = self._config.number("model", "vision", "spatial_merge_size", default=2) ** 2
        sizes = (grids.prod(1) // square).tolist()
        text = prompt or " ".join([f"{self._START} {self._END}"] * count)
        before, *behind = text.split(self._START)
        self._check(len(behind), count, self._START)
        for size, part in zip(sizes, behind, strict=True):
            rest = part.partition(self._END)
            before += self._START + self._TOKEN * size + self._END + (rest[2] if rest[1] else part)
        ids, total = self._tokenizer.encode(before), np.array([sum(sizes)], np.int64)
        if not each:
            return _named(ids, num_image_tokens=total)
        pixels = np.concatenate([one[PIXELS].reshape(-1, one[PIXELS].shape[-1]) for one in each])
        return _named(
            ids,
            pixel_values=self._typed(PIXELS, pixels),
            image_grid_thw=grids.astype(np.int64, copy=False),
            num_image_tokens=total,
        )
