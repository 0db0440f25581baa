"""Outputs whose shapes are not what the model declares: a warning, once, or an error in strict mode."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitonnx import InferenceSession, SessionOptions, errors
from tests.session.models import BOOL, INT64, model, node, tensor

DOUBLED = [node("Concat", ["x", "x"], ["a"], axis=0)]
FOUND = [node("NonZero", ["x"], ["a"])]
CASES = {
    "a dimension of an input": (
        model(DOUBLED, [tensor("x", ("N",))], [tensor("a", ("N",))]),
        {"x": np.ones(2, np.float32)},
        "dimension 'N' is 2 on axis 0 of 'x', but 4 on axis 0 of output 'a'",
    ),
    "a number": (
        model(DOUBLED, [tensor("x", ("N",))], [tensor("a", (5,))]),
        {"x": np.ones(2, np.float32)},
        "output 'a' is declared with the size 5 on axis 0, but has 4",
    ),
    "a size that a run tells": (
        model(FOUND, [tensor("x", ("N",))], [tensor("a", (1, "N"), INT64)]),
        {"x": np.array([1, 0, 1], np.float32)},
        "dimension 'N' is 3 on axis 0 of 'x', but 2 on axis 1 of output 'a'",
    ),
    "two outputs": (
        model(
            [*FOUND, node("Relu", ["x"], ["b"])],
            [tensor("x", ("N",))],
            [tensor("a", (1, "K"), INT64), tensor("b", ("K",))],
        ),
        {"x": np.array([1, 0, 1], np.float32)},
        "dimension 'K' is 2 on axis 1 of 'a', but 3 on axis 0 of output 'b'",
    ),
    "another rank": (
        model(
            [node("Reshape", ["x", "s"], ["a"])],
            [tensor("x", ("N",)), tensor("s", ("R",), INT64)],
            [tensor("a", ("P", "Q"))],
        ),
        {"x": np.ones(4, np.float32), "s": np.array([4])},
        "output 'a' is declared with 2 axes, but has the shape [4]",
    ),
}


def made(source: Any, strict: bool = False) -> InferenceSession:
    options = SessionOptions()
    if strict:
        options.add_session_config_entry("session.strict_shape_type_inference", "1")
    return InferenceSession(source, options)


def told(session: InferenceSession, feed: dict[str, Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.run(None, feed)
    return [str(each.message) for each in caught]


@pytest.mark.conformance("declared-shapes", "variables")
@pytest.mark.parametrize("name", CASES)
def test_other_sizes_than_declared(name: str) -> None:
    data, feed, text = CASES[name]
    session = made(data)
    (warning,) = told(session, feed)
    assert text in warning and "The declaration is ignored" in warning
    for _ in range(3):
        assert told(session, feed) == []
    session = made(data, strict=True)
    for _ in range(3):
        with pytest.raises(errors.InvalidArgument) as caught:
            session.run(None, feed)
        assert text in str(caught.value)
    binding = session.io_binding()
    for each, array in feed.items():
        binding.bind_cpu_input(each, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    with pytest.raises(errors.InvalidArgument, match="is not as it is declared"):
        session.run_with_iobinding(binding)


@pytest.mark.conformance("declared-shapes")
def test_strict_sessions_run_what_is_as_declared() -> None:
    """Sizes that agree are run, in front of others that do not and behind them."""
    data = model([node("Reshape", ["x", "s"], ["a"])], [tensor("x", ("N",)), tensor("s", ("R",), INT64)],
                 [tensor("a", (2, "M"))])  # fmt: skip
    session, x = made(data, strict=True), np.arange(4, dtype=np.float32)
    for _ in range(3):
        (a,) = session.run(None, {"x": x, "s": np.array([2, 2])})
        np.testing.assert_array_equal(a, x.reshape(2, 2))
        with pytest.raises(errors.InvalidArgument, match="declared with the size 2 on axis 0, but has 4"):
            session.run(None, {"x": x, "s": np.array([4, 1])})
    sized = made(CASES["a number"][0], strict=True)
    with pytest.raises(errors.InvalidArgument):
        sized.run(None, {"x": np.ones(2, np.float32)})


@pytest.mark.conformance("declared-shapes")
def test_a_present_that_is_no_buffer_is_told_of() -> None:
    """A cache that grows otherwise than by the steps, of which the declaration does not say that it is one buffer."""
    data = model([node("Concat", ["past", "new"], ["present"], axis=1)],
                 [tensor("past", (1, "P", 2)), tensor("new", (1, "S", 2)), tensor("mask", (1, "T"))],
                 [tensor("present", (1, "T", 2))])  # fmt: skip
    for past, new, mask, count in ((3, 1, 4, 0), (3, 2, 4, 1)):
        sizes = {"past": (1, past, 2), "new": (1, new, 2), "mask": (1, mask)}
        found = told(made(data), {name: np.ones(size, np.float32) for name, size in sizes.items()})
        assert len(found) == count and all("dimension 'T' is 4 on axis 1 of 'mask', but 5" in text for text in found)


@pytest.mark.conformance("declared-shapes")
def test_names_that_an_exporter_made_up_say_nothing() -> None:
    """As torch's TorchScript exporter declares images: one name for axes that are not alike. An input's names count."""
    made_up, feed = "Relua_dim_0", {"x": np.ones((2, 3), np.float32)}
    relu = [node("Relu", ["x"], ["a"])]
    data = model(relu, [tensor("x", ("N", "W"))], [tensor("a", (made_up, made_up))])
    assert told(made(data), feed) == []
    made(data, strict=True).run(None, feed)
    data = model(relu, [tensor("x", (made_up, "W"))], [tensor("a", (made_up, made_up))])
    (text,) = told(made(data), feed)
    assert f"dimension {made_up!r} is 2 on axis 0 of 'x', but 3 on axis 1 of output 'a'" in text


@pytest.mark.conformance("declared-shapes")
def test_what_is_known_when_the_model_is_loaded(tmp_path: Path) -> None:
    ranks = model([node("Unsqueeze", ["x", "axes"], ["a"])], [tensor("x", ("N",))], [tensor("a", (7,))],
                  {"axes": np.array([0])})  # fmt: skip
    with pytest.warns(UserWarning, match=r"output 'a' is declared with the shape \[7\]"):
        session = made(ranks)
    assert told(session, {"x": np.ones(2, np.float32)}) == [], "it was told of by then"
    data = model(DOUBLED, [tensor("x", (2,))], [tensor("a", (5,))])
    with pytest.warns(UserWarning, match=r"output 'a' is declared with the shape \[5\], but is float\[4\]"):
        session = made(data)
    assert told(session, {"x": np.ones(2, np.float32)}) == []
    (path := tmp_path / "model.onnx").write_bytes(data)
    for source in (data, str(path), str(path)):
        with pytest.raises(errors.Fail, match="is declared with the shape"):
            made(source, strict=True)


@pytest.mark.conformance("variables")
def test_inputs_that_disagree_are_told_alone() -> None:
    data = model([node("Relu", ["x"], ["a"]), node("Relu", ["y"], ["b"])],
                 [tensor("x", ("N",)), tensor("y", ("N",))], [tensor("a", ("N",)), tensor("b", ("N",))])  # fmt: skip
    (text,) = told(made(data), {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)})
    assert text.startswith("inputs disagree")


@pytest.mark.conformance("variables")
def test_a_variable_is_the_same_in_nested_graphs() -> None:
    """What a branch gives by way of a variable of the graph around it is known to have its size."""
    from onnx import helper

    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(operator, ["x"], [name])], name, [],
                                            [helper.make_tensor_value_info(name, 1, ["N"])])
        for name, operator in (("then", "Neg"), ("else", "Abs"))
    }  # fmt: skip
    nodes = [node("If", ["flag"], ["h"], **branches), node("Add", ["h", "x"], ["a"])]
    session = made(model(nodes, [tensor("x", ("N",)), tensor("flag", (), BOOL)], [tensor("a", ("N",))]), strict=True)
    for size in (1, 3):
        feed = {"x": np.arange(size, dtype=np.float32), "flag": np.array(False)}
        np.testing.assert_array_equal(session.run(None, feed)[0], 2 * feed["x"])
