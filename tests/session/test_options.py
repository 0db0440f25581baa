"""Session and run options: defaults, types, copies; the enumerations."""

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import jitonnx
import jitonnx.errors
from jitonnx import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions
from jitonnx.api import entries
from jitonnx.errors import NotImplemented


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_same_attributes_and_defaults_as_onnxruntime(name: str) -> None:
    ours, theirs = getattr(jitonnx, name)(), getattr(onnxruntime, name)()
    for attribute in dir(theirs):
        if not attribute.startswith("_") and not callable(getattr(theirs, attribute)):
            default = getattr(theirs, attribute)
            if hasattr(default, "__members__"):  # onnxruntime's enumerations differ from every other
                assert int(getattr(ours, attribute)) == int(default), attribute
            else:
                assert getattr(ours, attribute) == default, attribute


@pytest.mark.parametrize("name", ["GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"])
def test_same_enumerations_as_onnxruntime(name: str) -> None:
    ours, theirs = getattr(jitonnx, name), getattr(onnxruntime, name)
    assert {key: int(value) for key, value in ours.__members__.items()} == {
        key: int(value) for key, value in theirs.__members__.items()
    }


def test_enumerations() -> None:
    level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert level == 1 and int(level) == 1 and level.name == "ORT_ENABLE_BASIC" and level.value == 1
    assert GraphOptimizationLevel(1) is level and pickle.loads(pickle.dumps(level)) is level
    assert len({level, GraphOptimizationLevel.ORT_ENABLE_ALL}) == 2


def test_values() -> None:
    options = SessionOptions()
    options.intra_op_num_threads = np.int64(4)  # type: ignore[assignment]
    assert options.intra_op_num_threads == 4 and type(options.intra_op_num_threads) is int
    options.enable_profiling = 1  # type: ignore[assignment]
    assert options.enable_profiling is True
    options.execution_mode = ExecutionMode.ORT_PARALLEL
    assert options.execution_mode is ExecutionMode.ORT_PARALLEL


@pytest.mark.parametrize(
    "name, value",
    [
        ("intra_op_num_threads", 2.0),
        ("graph_optimization_level", 99),
        ("graph_optimization_level", "all"),
        ("logid", 3),
        ("enable_profiling", "yes"),
    ],
)
def test_values_of_a_wrong_type(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"SessionOptions\.{name} takes an? "):
        setattr(SessionOptions(), name, value)


def test_unknown_attributes() -> None:
    for options in (SessionOptions(), RunOptions()):
        with pytest.raises(AttributeError):
            options.intra_op_threads = 2  # type: ignore[union-attr]


def test_configuration_entries() -> None:
    options = SessionOptions()
    options.add_session_config_entry("a key of any kind", "value")
    assert options.get_session_config_entry("a key of any kind") == "value"
    with pytest.raises(RuntimeError, match="SessionOptions does not have configuration with key: other"):
        options.get_session_config_entry("other")
    for key, value, error in (("", "", RuntimeError), ("k" * 1025, "", RuntimeError), ("k", 1, TypeError)):
        with pytest.raises(error):
            options.add_session_config_entry(key, value)  # type: ignore[arg-type]
    run = RunOptions()
    run.add_run_config_entry("k", "v")
    assert run.get_run_config_entry("k") == "v"


def test_all_configuration_entries_are_documented() -> None:
    keys = {value for name, value in vars(entries).items() if name.isupper() and re.match(r"[a-z]+\.", str(value))}
    text = (Path(__file__).parents[2] / "docs" / "onnxruntime.md").read_text(encoding="utf-8")
    _, _, table = text.partition("## Configuration entries")
    assert set(re.findall(r"^\| `([a-z]+\.\w+)` \|", table, re.MULTILINE)) == keys


def test_layouts_of_caches() -> None:
    for layout, error in (("BNHS", jitonnx.errors.NotImplemented), ("x", jitonnx.errors.InvalidArgument)):
        options = SessionOptions()
        options.add_session_config_entry("session.gqa_value_layout", layout)
        with pytest.raises(error, match="gqa_value_layout"):
            jitonnx.InferenceSession("never.read", options)


def filled() -> SessionOptions:
    options = SessionOptions()
    options.intra_op_num_threads = 3
    options.add_session_config_entry("k", "v")
    options.add_free_dimension_override_by_name("N", 2)
    options.add_provider("CPUExecutionProvider", {})
    return options


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda options: pickle.loads(pickle.dumps(options))])
def test_copies(duplicate: Any) -> None:
    options = filled()
    copied = duplicate(options)
    options.intra_op_num_threads = 1
    options.add_session_config_entry("k", "other")
    options.add_free_dimension_override_by_name("N", 9)
    assert copied.intra_op_num_threads == 3 and copied.get_session_config_entry("k") == "v"
    assert copied.fixed_dimensions() == {"N": 2} and copied.has_providers()


def test_a_subclass_that_pickles_itself_attribute_by_attribute() -> None:
    """The way in which applications make onnxruntime's options picklable."""
    options = _Picklable()
    options.intra_op_num_threads = 5
    copied = pickle.loads(pickle.dumps(options))
    assert type(copied) is _Picklable and copied.intra_op_num_threads == 5


class _Picklable(SessionOptions):
    def __getstate__(self) -> Any:
        names = [name for name in dir(self) if not callable(getattr(self, name))]
        return pickle.dumps([(name, getattr(self, name)) for name in names])

    def __setstate__(self, state: Any) -> None:
        self.__init__()  # type: ignore[misc]
        for name, value in pickle.loads(state):
            setattr(self, name, value)


def test_what_is_not_supported_says_so() -> None:
    options = SessionOptions()
    with pytest.raises(NotImplemented):
        options.set_ep_context_data_read_func(print)
