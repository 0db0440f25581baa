"""What users give by mistake, to sessions, options and `save`: each is refused with words that name it."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import jitonnx
from jitonnx import errors
from tests.session.models import FLOAT, model, node, relu_add, tensor

X = np.zeros((2, 3), np.float32)


def options(**entries: str) -> jitonnx.SessionOptions:
    """Options with configuration entries of jitonnx's own."""
    made = jitonnx.SessionOptions()
    for key, value in entries.items():
        made.add_session_config_entry(f"jitonnx.{key}", value)
    return made


def session(*arguments: Any, **keywords: Any) -> jitonnx.InferenceSession:
    return jitonnx.InferenceSession(relu_add(), *arguments, **keywords)


def threads(count: int) -> jitonnx.SessionOptions:
    made = jitonnx.SessionOptions()
    made.intra_op_num_threads = count
    return made


def fixed(size: Any) -> jitonnx.SessionOptions:
    made = jitonnx.SessionOptions()
    made.add_free_dimension_override_by_name("N", size)
    return made


def expanded(*shape: int) -> jitonnx.InferenceSession:
    """y = x, expanded to a shape."""
    nodes = [node("Expand", ["x", "shape"], ["y"])]
    return jitonnx.InferenceSession(
        model(nodes, [tensor("x", [2, 3])], [tensor("y", None)], {"shape": np.array(shape, np.int64)})
    )


def beyond(dim: int | str) -> jitonnx.InferenceSession:
    """An entry of x's shape that it does not have."""
    nodes = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "place"], ["y"])]
    return jitonnx.InferenceSession(
        model(nodes, [tensor("x", [dim, 3], FLOAT)], [tensor("y", None, 7)], {"place": np.array([8])})
    )


def split_by(size: int | list[int]) -> jitonnx.InferenceSession:
    """x [4], split to a sequence of parts of a size, or of sizes."""
    declared = helper.make_tensor_sequence_value_info("y", FLOAT, None)
    nodes = [node("SplitToSequence", ["x", "size"], ["y"])]
    return jitonnx.InferenceSession(model(nodes, [tensor("x", [4])], [declared], {"size": np.array(size)}))


def quantised(scale: list[int], **attributes: int) -> jitonnx.InferenceSession:
    """x [2, 3] in bytes, by ones of a shape."""
    nodes = [node("QuantizeLinear", ["x", "scale"], ["q"], **attributes)]
    imports = [helper.make_opsetid("", 23)]
    inputs, outputs = [tensor("x", [2, 3])], [tensor("q", [2, 3], TensorProto.UINT8)]
    return jitonnx.InferenceSession(
        model(nodes, inputs, outputs, {"scale": np.ones(scale, np.float32)}, opset_imports=imports)
    )


def convolved(**attributes: Any) -> jitonnx.InferenceSession:
    """x [1, 2, 5, 5] under ones of 3x3."""
    nodes, weights = [node("Conv", ["x", "w"], ["y"], **attributes)], np.ones((2, 2, 3, 3), np.float32)
    return jitonnx.InferenceSession(model(nodes, [tensor("x", [1, 2, 5, 5])], [tensor("y", None)], {"w": weights}))


def stored_at(location: str) -> jitonnx.InferenceSession:
    """x + w, whose w is said to lie in another file."""
    made = ModelProto.FromString(
        model([node("Add", ["x", "w"], ["y"])], [tensor("x", [2])], [tensor("y", [2])], {"w": np.ones(2, np.float32)})
    )
    weights = made.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=location)
    settings = jitonnx.SessionOptions()
    settings.add_session_config_entry("session.model_external_initializers_file_folder_path", ".")
    return jitonnx.InferenceSession(made.SerializeToString(), settings)


REFUSED: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("split by 0", lambda: split_by(0), errors.Error, "split is 0; a positive size"),
    ("split by -1", lambda: split_by(-1), errors.Error, "split is -1; a positive size"),
    (
        "split with a size below 0",
        lambda: split_by([5, -1]),
        errors.Error,
        "split has the size -1; sizes of at least 0",
    ),
    ("long location", lambda: stored_at("a" * 5000), errors.Fail, "cannot be read: 'aaa.*File name too long"),
    ("below a file", lambda: stored_at("pyproject.toml/a"), errors.Fail, "does not exist"),
    ("precision", lambda: session(options(precision="float16")), errors.InvalidArgument, "precision is 'float16'"),
    ("entry unknown", lambda: session(options(nonsense="1")), errors.InvalidArgument, "no session .* jitonnx.nonsense"),
    ("winograd", lambda: session(options(winograd="x")), errors.InvalidArgument, "winograd is 'x'; give '0' or '1'"),
    ("keep_model", lambda: session(options(keep_model="no")), errors.InvalidArgument, "keep_model is 'no'"),
    ("threads", lambda: session(threads(2**70)), errors.InvalidArgument, "intra_op_num_threads is 118059.*at most"),
    ("dimension below 0", lambda: fixed(-1), errors.InvalidArgument, "dimension 'N' is fixed to -1"),
    ("dimension as text", lambda: fixed("3"), TypeError, "size of dimension 'N' as an int; got '3'"),
    ("providers", lambda: session(providers=5), TypeError, "sequence of names.*got 5"),
    ("run options", lambda: session().run(None, {"x": X}, 5), TypeError, "run_options is a int"),
    ("path", lambda: jitonnx.InferenceSession("a\0b"), errors.NoSuchFile, "null character"),
    ("save: size below 0", lambda: session().save("a", {"x": (-2, 3)}), errors.InvalidArgument, "negative size"),
    ("save: text", lambda: session().save("a", {"x": "23"}), errors.InvalidArgument, "'2' is no size for 'x'"),
    ("save: fraction", lambda: session().save("a", {"x": (2.5, 3)}), errors.InvalidArgument, "2.5 is no size for 'x'"),
    ("save: list", lambda: session().save("a", [(2, 3)]), TypeError, "dict of shapes by input name"),
    ("save: folder", lambda: session().save("/no/a", {"x": (2, 3)}), FileNotFoundError, "no such folder.*: '/no'"),
    ("no memory", lambda: expanded(2**40, 2, 3).run(None, {"x": X}), errors.RuntimeException, "not enough memory"),
    ("beyond memory", lambda: expanded(2**62, 2, 3), errors.Fail, "beyond all memory"),
    (
        "block_size below 0",
        lambda: quantised([1, 3], block_size=-1),
        errors.Error,
        "make_q.*attribute block_size is -1",
    ),
    ("block_size of 0", lambda: quantised([1, 3], block_size=0), errors.Error, "make_q.*block_size is 0"),
    (
        "no element type",
        lambda: quantised([], output_dtype=1 << 62),
        errors.Error,
        "make_q.*output_dtype is 46.*no elem",
    ),
    ("group", lambda: convolved(group=1 << 62), errors.Error, "Conv node 'make_y'"),
    ("strides", lambda: convolved(strides=[1, -(1 << 63)]), errors.Error, "Conv node 'make_y'.*strides"),
    ("dilations", lambda: convolved(dilations=[1 << 62] * 2), errors.Error, "Conv node 'make_y'"),
    ("pads", lambda: convolved(pads=[1 << 62] * 4), errors.Error, "'y' would have the shape .* beyond all memory"),
    ("index, symbolic", lambda: beyond("N"), errors.Fail, "Gather node 'make_y'.*index 8 is out of bounds"),
    ("index, constant", lambda: beyond(4), errors.Fail, "Gather node 'make_y'.*index 8 is out of bounds"),
]


@pytest.mark.parametrize(("call", "error", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused_with_a_reason(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_one_disabled_rewrite_need_not_be_a_list() -> None:
    with pytest.warns(UserWarning, match="no rewrite is named nothing;"):
        session(disabled_optimizers="nothing")


def test_a_model_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "model.onnx"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(relu_add()))
    writer.start()
    made = jitonnx.InferenceSession(str(pipe))
    writer.join()
    assert made.run(None, {"x": X})[0].tolist() == [[1, 2, 3]] * 2


def test_an_array_whose_shape_is_a_list() -> None:
    """Some libraries' arrays say their shapes as lists: they are read as arrays, by `__array__`."""

    class Odd:
        shape, dtype = [2, 3], np.dtype("f4")

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.full((2, 3), 2, np.float32)

    made, x = jitonnx.InferenceSession(relu_add()), np.full((2, 3), 2, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(made.run(None, {"x": Odd()})[0], made.run(None, {"x": x})[0])
