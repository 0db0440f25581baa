"""The small language model that tests share."""

from pathlib import Path

import pytest
from onnx import ModelProto

from bench.decoder import decoder
from tests.genai.folders import SHAPE, write_folder


@pytest.fixture(scope="session")
def language_model() -> ModelProto:
    return decoder(SHAPE)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, language_model: ModelProto) -> Path:
    return write_folder(tmp_path_factory.mktemp("genai") / "model", language_model)
