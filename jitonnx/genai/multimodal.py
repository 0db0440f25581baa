"""`MultiModalProcessor`: prompts with what is no text, as inputs of a model, under onnxruntime-genai's name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from jitonnx.genai.model import Model
from jitonnx.genai.tensors import NamedTensors
from jitonnx.genai.tokenizer import Tokenizer, TokenizerStream


class MultiModalProcessor(ABC):
    """What makes inputs of prompts, and text of tokens; `Model.create_multimodal_processor` gives one for the model."""

    def __init__(self, model: Model) -> None:
        """Errors of `Tokenizer`."""
        self.model = model
        self.tokenizer = Tokenizer(model)
        """(Not in onnxruntime-genai.)"""

    @abstractmethod
    def __call__(
        self, prompt: str | Sequence[str] | None = None, *, images: Any = None, audios: Any = None
    ) -> NamedTensors:
        """The inputs of the model, for `Generator.set_inputs`: of a prompt, or several, and of what comes with them."""

    def decode(self, tokens: Any) -> str:
        """The text of tokens."""
        return self.tokenizer.decode(tokens)

    def create_stream(self) -> TokenizerStream:
        """A stream that gives the text of tokens one by one."""
        return self.tokenizer.create_stream()
