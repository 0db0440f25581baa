"""Options out of a model's metadata, where the environment asks for them."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import onnx
import onnx.parser
import pytest

from tests.api.faces import assert_alike


def options(ort: ModuleType, text: str, threads: int = 0) -> Any:
    text_of_model = '<ir_version: 10, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    model = onnx.parser.parse_model(text_of_model)
    model.metadata_props.add(key="ort_config", value=text)
    given = ort.SessionOptions()
    given.intra_op_num_threads = threads
    made = ort.InferenceSession(model.SerializeToString(), given, providers=["CPUExecutionProvider"])
    found = made.get_session_options()
    return [
        *(found.intra_op_num_threads, found.inter_op_num_threads),
        *(int(found.execution_mode), int(found.graph_optimization_level)),
    ]


def told(**given: Any) -> str:
    return json.dumps({"session_options": given})


ALL = told(intra_op_num_threads=5, inter_op_num_threads=2, execution_mode=1, graph_optimization_level=1)

ALIKE = {
    "all": (lambda ort: options(ort, ALL), ""),
    "more than the program says": (lambda ort: options(ort, ALL, 3), ""),
    "an unknown one": (lambda ort: options(ort, told(foo=1)), ""),
    "no options": (lambda ort: options(ort, '{"foo": 1}'), ""),
    "no object": (lambda ort: options(ort, "[1]"), ""),
    "a text for a number": (
        lambda ort: options(ort, told(intra_op_num_threads="x")),
        "intra_op_num_threads option in the model file must be an integer",
    ),
    "a truth for a number": (
        lambda ort: options(ort, told(enable_profiling=True)),
        "enable_profiling option in the model file must be an integer",
    ),
    "a negative number": (
        lambda ort: options(ort, told(intra_op_num_threads=-1)), "Unsupported value for intra_op_num_threads: -1"
    ),
    "an unknown mode": (
        lambda ort: options(ort, told(execution_mode=7)), "Unsupported execution_mode value in ORT config: 7"
    ),
    "no JSON": (lambda ort: options(ort, "{"), "Json stored in the `ort_config` key cannot be parsed."),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    assert_alike(*ALIKE[name])


def test_only_if_asked_for() -> None:
    assert_alike(lambda ort: options(ort, ALL), "")
