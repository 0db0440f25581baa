"""The small language model, as tests/genai has it."""

from tests.genai.conftest import language_model, model_folder

__all__ = ["language_model", "model_folder"]
