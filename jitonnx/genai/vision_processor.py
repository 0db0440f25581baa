"""Prompts with images, as inputs of models of images and text, by the model's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitonnx import errors
from jitonnx.errors import InvalidArgument
from jitonnx.genai.image_prompts import Gemma3Prompts, ImagePrompts, Phi3Prompts, Phi4Prompts, QwenPrompts
from jitonnx.genai.images import Images
from jitonnx.genai.model import Model
from jitonnx.genai.multimodal import MultiModalProcessor
from jitonnx.genai.tensors import NamedTensors

TYPES: dict[str, type[ImagePrompts]] = {
    "fara": QwenPrompts,
    "gemma3": Gemma3Prompts,
    "phi3v": Phi3Prompts,
    "phi4mm": Phi4Prompts,
    "qwen2_5_vl": QwenPrompts,
    "qwen3_vl": QwenPrompts,
}
"""What makes prompts of models of each type."""


class VisionProcessor(MultiModalProcessor):
    """Prompts with images."""

    def __init__(self, model: Model) -> None:
        """InvalidArgument and NoSuchFile for a folder that does not say what is to be done with images; errors of
        `Tokenizer`."""
        super().__init__(model)
        self.prompts = TYPES[model.type](model, self.tokenizer)

    def __call__(
        self, prompt: str | Sequence[str] | None = None, *, images: Any = None, audios: Any = None
    ) -> NamedTensors:
        """The inputs that a prompt is, for `Generator.set_inputs`.

        prompt: a text with a mark for each image, as the model's template writes it. InvalidArgument for marks that are
        not as many as the images, and for images that cannot be processed; NotImplemented for audio and for several
        prompts.
        """
        if audios is not None:
            raise errors.NotImplemented("prompts with audio are not supported by models of images: leave audios out")
        if images is not None and not isinstance(images, Images):
            raise InvalidArgument(f"images are {type(images).__name__}: give what Images.open returns")
        if isinstance(prompt, list | tuple) and len(prompt) == 1:
            prompt = prompt[0]
        if prompt is not None and not isinstance(prompt, str):
            if isinstance(prompt, list | tuple):
                raise errors.NotImplemented(f"{len(prompt)} prompts are given: one at once is supported")
            raise InvalidArgument(f"the prompt is {type(prompt).__name__}: a text is needed")
        return self.prompts.read(prompt or "", images if images is not None and len(images) else None)
