"""Which models there are processors for, by the type that the configuration names."""

from __future__ import annotations

from jitonnx import errors
from jitonnx.genai.model import Model
from jitonnx.genai.multimodal import MultiModalProcessor
from jitonnx.genai.speech import SpeechProcessor
from jitonnx.genai.vision_processor import TYPES, VisionProcessor

PROCESSORS: dict[str, type[MultiModalProcessor]] = {"whisper": SpeechProcessor, **dict.fromkeys(TYPES, VisionProcessor)}


def processor_of(model: Model) -> MultiModalProcessor:
    """The processor of a model. NotImplemented for one of another type."""
    kind = PROCESSORS.get(model.type)
    if kind is None:
        raise errors.NotImplemented(
            f"{model.config.folder} is of type {model.type!r}, which prompts with images or audio are not made for: "
            f"they are for {', '.join(PROCESSORS)}; use Tokenizer for text"
        )
    return kind(model)
