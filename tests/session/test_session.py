"""What a session is besides its runs: sources, metadata, defaults, fixed dimensions, pickling, profiles, closing."""

import copy
import cProfile
import io
import json
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from jitonnx import InferenceSession, SessionOptions
from jitonnx.errors import (
    Error,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    NoSuchFile,
    RuntimeException,
)
from tests.session import models
from tests.session.models import model, node, tensor

X = np.array([[-1, 0.5, 2], [3, -4, 0]], np.float32)


def run(session: InferenceSession, x: np.ndarray = X) -> np.ndarray:
    return session.run(None, {"x": x})[0]


# ------------------------------------------------------------------------------------------------ sources


def test_sources(tmp_path: Path) -> None:
    data = models.relu_add()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    for source in (str(path), path, data, bytearray(data), memoryview(data), io.BytesIO(data), onnx.load(path)):
        np.testing.assert_array_equal(run(InferenceSession(source)), models.relu_add_result(X))
    with open(path, "rb") as file:
        np.testing.assert_array_equal(run(InferenceSession(file)), models.relu_add_result(X))
    assert InferenceSession(str(path))._model_path == str(path)


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match=r"nope\.onnx failed\. File doesn't exist"):
        InferenceSession(str(tmp_path / "nope.onnx"))
    with pytest.raises(InvalidProtobuf):
        InferenceSession(b"\xff" * 40)
    with pytest.raises(TypeError, match="Unable to load from type '<class 'int'>'"):
        InferenceSession(3)
    with pytest.raises(InvalidGraph, match="No Op registered for Foo"):
        InferenceSession(model([node("Foo", ["x"], ["y"])], [tensor("x")], [tensor("y")]))


def test_a_type_error_in_the_model_names_the_node() -> None:
    bad = model([node("Add", ["x", "i"], ["y"])], [tensor("x"), tensor("i", [3], models.INT64)], [tensor("y")])
    with pytest.raises(Fail, match="Add node 'make_y'"):
        InferenceSession(bad)


def test_models_that_are_ready_when_made() -> None:
    """Where shapes are fixed, the first run has nothing left to make."""
    session = InferenceSession(models.relu_add([2, 3]))
    assert session.engine.known_program(((2, 3),)) is not None
    np.testing.assert_array_equal(run(session), models.relu_add_result(X))


# ------------------------------------------------------------------------------------------------ metadata


def test_inputs_and_outputs() -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("ReduceMax", ["y"], ["z"], keepdims=0)]
    session = InferenceSession(
        model(
            nodes,
            [tensor("x", ["batch size", None, 4]), tensor("unused", [0], models.BOOL)],
            [tensor("y", None), tensor("z", [])],
            {"w": np.ones((4, 5), np.float32)},
        )
    )
    x, unused = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["batch size", None, 4])
    assert (unused.name, unused.type, unused.shape) == ("unused", "tensor(bool)", [0])
    y, z = session.get_outputs()
    assert (y.name, y.type, y.shape) == ("y", "tensor(float)", ["batch size", None, 5])
    assert z.shape == []
    assert session.get_inputs() is session.get_inputs()
    assert str(x) == "NodeArg(name='x', type='tensor(float)', shape=['batch size', None, 4])"
    with pytest.raises(AttributeError):
        x.name = "other"  # type: ignore[misc]


def test_model_metadata() -> None:
    plain = InferenceSession(models.relu_add()).get_modelmeta()
    assert plain.version == 2**63 - 1
    assert (plain.producer_name, plain.graph_name, plain.custom_metadata_map) == ("", "graph", {})
    proto = onnx.load_from_string(models.relu_add(producer_name="me", model_version=7, doc_string="about", domain="d"))
    proto.graph.doc_string = "of the graph"
    helper.set_model_props(proto, {"key": "value"})
    told = InferenceSession(proto).get_modelmeta()
    assert (told.producer_name, told.version, told.domain) == ("me", 7, "d")
    assert (told.description, told.graph_description) == ("about", "of the graph")
    assert told.custom_metadata_map == {"key": "value"}


# ------------------------------------------------------------------------------------------------ initializers


def with_default(ir_version: int = 10) -> bytes:
    """y = x * factor + offset, where factor = 2 may be fed."""
    proto = models.proto(
        [node("Mul", ["x", "factor"], ["m"]), node("Add", ["m", "offset"], ["y"])],
        [tensor("x"), tensor("factor", [1])],
        [tensor("y")],
        {"factor": np.array([2], np.float32), "offset": np.ones(3, np.float32)},
        ir_version=ir_version,
    )
    if ir_version < 4:  # every initializer is an input then
        proto.graph.input.append(tensor("offset", [3]))
    return proto.SerializeToString()


def test_overridable_initializers() -> None:
    session = InferenceSession(with_default())
    assert [entry.name for entry in session.get_inputs()] == ["x"]
    assert [entry.name for entry in session.get_overridable_initializers()] == ["factor"]
    for _ in range(2):
        np.testing.assert_array_equal(run(session), X * 2 + 1)
        (output,) = session.run(None, {"x": X, "factor": np.array([5], np.float32)})
        np.testing.assert_array_equal(output, X * 5 + 1)
    with pytest.raises(InvalidArgument, match="Invalid rank for input: factor"):
        session.run(None, {"x": X, "factor": np.float32(5)})
    with pytest.raises(InvalidArgument, match="Invalid input name: offset"):
        session.run(None, {"x": X, "offset": np.zeros(3, np.float32)})


def test_initializers_of_old_models_cannot_be_fed() -> None:
    session = InferenceSession(with_default(ir_version=3))
    assert session.get_overridable_initializers() == []
    with pytest.raises(InvalidArgument, match="Invalid input name: factor"):
        session.run(None, {"x": X, "factor": np.array([5], np.float32)})


def test_replaced_initializers() -> None:
    options = SessionOptions()
    options.add_initializer("offset", np.full(3, 10, np.float32))
    np.testing.assert_array_equal(run(InferenceSession(with_default(), options)), X * 2 + 10)
    for name, array, text in (
        ("nobody", np.zeros(3, np.float32), "no initializer 'nobody'"),
        ("offset", np.zeros(3), r"'offset' is float\[3\], but double\[3\]"),
    ):
        options = SessionOptions()
        options.add_initializer(name, array)
        with pytest.raises(InvalidArgument, match=text):
            InferenceSession(with_default(), options)


# ------------------------------------------------------------------------------------------------ dimensions


def test_fixed_dimensions() -> None:
    options = SessionOptions()
    options.add_free_dimension_override_by_name("N", 2)
    session = InferenceSession(models.relu_add(), options)
    assert session.get_inputs()[0].shape == [2, 3] and session.get_outputs()[0].shape == [2, 3]
    assert session.engine.known_program(((2, 3),)) is not None
    np.testing.assert_array_equal(run(session), models.relu_add_result(X))
    with pytest.raises(InvalidArgument, match="index: 0 Got: 1 Expected: 2"):
        run(session, X[:1])


def test_fixed_dimensions_that_the_model_does_not_have() -> None:
    options = SessionOptions()
    options.add_free_dimension_override_by_name("M", 2)
    with pytest.warns(UserWarning, match="no dimension named 'M'.*'N'"):
        session = InferenceSession(models.relu_add(), options)
    assert session.get_inputs()[0].shape == ["N", 3]


# ------------------------------------------------------------------------------------------------ cuts


def test_a_shape_that_depends_on_data() -> None:
    """The graph is cut at the Reshape: what is before it and what is behind it still run natively."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Shape", ["r"], ["before"]),
        node("Reshape", ["r", "to"], ["reshaped"]),
        node("Neg", ["reshaped"], ["y"]),
        node("Shape", ["reshaped"], ["behind"]),
        node("Reshape", ["y", "before"], ["back"]),
    ]
    outputs = [tensor(name, None) for name in ("reshaped", "y", "back")]
    outputs += [tensor(name, [None], models.INT64) for name in ("before", "behind")]
    session = InferenceSession(model(nodes, [tensor("x"), tensor("to", [2], models.INT64)], outputs))
    assert session.engine.schedule is not None
    for x, to in ((X, (3, 2)), (X, (1, -1)), (X[:1], (3, 1)), (X[:1], (1, 3))):
        feeds = {"x": x, "to": np.array(to)}
        reshaped, y, back, before, behind = session.run(None, feeds)
        expected = np.maximum(x, 0).reshape(to)
        np.testing.assert_array_equal(reshaped, expected)
        np.testing.assert_array_equal(y, -expected)
        np.testing.assert_array_equal(back, -np.maximum(x, 0))
        np.testing.assert_array_equal(before, x.shape)
        np.testing.assert_array_equal(behind, expected.shape)


def test_every_run_of_a_cut_graph_checks_its_feeds() -> None:
    """Plain arrays of shapes that were run before go a short way; all else is looked at as before."""
    nodes = [node("Relu", ["x"], ["r"]), node("Reshape", ["r", "to"], ["s"]), node("Neg", ["s"], ["y"])]
    inputs = [tensor("x", ["n", 3]), tensor("to", [2], models.INT64)]
    session = InferenceSession(model(nodes, inputs, [tensor("y", None)]))
    to, big = np.array([3, 2]), np.arange(12, dtype=np.float32).reshape(4, 3)[::-1]
    for x in (X, X, X[::-1], X.astype(">f4"), np.asfortranarray(X), X.tolist(), X, X[:1], big, np.abs(X)):
        given = np.asarray(x, np.float32)
        (y,) = session.run(None, {"x": x, "to": np.array([given.size, 1])})
        np.testing.assert_array_equal(y, -np.maximum(given, 0).reshape(-1, 1))
        assert y.flags.owndata and y.dtype == np.float32
    for feeds, text in (
        ({"x": X.astype(float), "to": to}, "Unexpected input data type"),
        ({"x": X}, "missing"),
        ({"x": X, "to": to, "z": to}, "Invalid input name"),
        ({"x": X[:, :2], "to": to}, "invalid dimensions"),
        ({"x": X, "to": np.array([4, 4])}, "Reshape"),
    ):
        with pytest.raises(Error, match=text):
            session.run(None, feeds)
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(None, {"x": X, "to": to})


def test_a_graph_of_one_node_on_numpy_costs_few_python_calls() -> None:
    inputs = [tensor("x"), tensor("to", [None], models.INT64)]
    session = InferenceSession(model([node("Reshape", ["x", "to"], ["y"])], inputs, [tensor("y", None)]))
    feeds = {"x": X, "to": np.array([3, 2])}
    session.run(None, feeds)
    profile = cProfile.Profile()
    (y,) = profile.runcall(session.run, None, feeds)
    np.testing.assert_array_equal(y, X.reshape(3, 2))
    assert sum(entry.callcount for entry in profile.getstats()) < 100


def test_outputs_of_a_cut_graph_belong_to_the_caller() -> None:
    """Where NumPy gives a view of an input, it is copied."""
    nodes = [node("Reshape", ["x", "to"], ["y"])]
    inputs = [tensor("x"), tensor("to", [None], models.INT64)]
    session = InferenceSession(model(nodes, inputs, [tensor("y", None), tensor("x")]))
    x = X.copy()
    y, same = session.run(None, {"x": x, "to": np.array([6])})
    for array in (y, same):
        assert array.flags.c_contiguous and array.flags.writeable and not np.shares_memory(array, x)


def test_an_output_that_is_a_shape() -> None:
    nodes = [node("Shape", ["x"], ["shape"]), node("Relu", ["x"], ["y"])]
    session = InferenceSession(model(nodes, [tensor("x")], [tensor("shape", [2], models.INT64), tensor("y")]))
    for x in (X, X[:1]):
        shape, y = session.run(None, {"x": x})
        assert shape.dtype == np.int64
        np.testing.assert_array_equal(shape, x.shape)
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_a_node_that_fails_in_the_run_is_named() -> None:
    nodes = [node("Reshape", ["x", "to"], ["y"], "the_reshape")]
    session = InferenceSession(model(nodes, [tensor("x"), tensor("to", [2], models.INT64)], [tensor("y", None)]))
    with pytest.raises(RuntimeException, match=r"running Reshape node\. Name:'the_reshape'.*float32\[2, 3\]"):
        session.run(None, {"x": X, "to": np.array([4, 5])})


# ------------------------------------------------------------------------------------------------ life


def test_pickle(tmp_path: Path) -> None:
    options = SessionOptions()
    options.intra_op_num_threads = 1
    path = tmp_path / "model.onnx"
    path.write_bytes(models.relu_add())
    for source in (path, models.relu_add()):
        session = InferenceSession(source, options)
        session.label = "mine"  # type: ignore[attr-defined]
        for copied in (pickle.loads(pickle.dumps(session)), copy.deepcopy(session)):
            np.testing.assert_array_equal(run(copied), run(session))
            assert copied.get_session_options().intra_op_num_threads == 1
            assert copied.label == "mine"


def test_a_subclass_that_loads_itself_again(tmp_path: Path) -> None:
    """The way in which libraries make onnxruntime's sessions picklable."""
    path = tmp_path / "model.onnx"
    path.write_bytes(models.relu_add())
    session = pickle.loads(pickle.dumps(_Reloading(str(path))))
    assert isinstance(session, _Reloading)
    np.testing.assert_array_equal(run(session), models.relu_add_result(X))


class _Reloading(InferenceSession):
    def __init__(self, model_path: str, **options: Any) -> None:
        super().__init__(model_path, **options)
        self.model_path = model_path

    def __getstate__(self) -> dict[str, Any]:
        return {"model_path": self.model_path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["model_path"])  # type: ignore[misc]


def test_closing() -> None:
    with InferenceSession(models.relu_add()) as session:
        run(session)
        alive = weakref.ref(session.engine)
    assert alive() is None
    for call in (lambda: run(session), lambda: session.run_async(None, {"x": X}), lambda: session.run(["y"], {"x": X})):
        with pytest.raises(RuntimeError, match="the session is closed"):
            call()
    assert session.get_inputs()[0].name == "x"
    session.close()


def test_a_session_goes_when_nobody_holds_it() -> None:
    session = InferenceSession(models.relu_add())
    run(session)
    alive = weakref.ref(session)
    del session
    assert alive() is None


def test_private_names_that_are_used_in_the_wild() -> None:
    session = InferenceSession(models.relu_add())
    np.testing.assert_array_equal(session._sess.run(["y"], {"x": X}, None)[0], models.relu_add_result(X))


# ------------------------------------------------------------------------------------------------ options


def test_options_are_copied() -> None:
    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(models.relu_add(), options)
    options.intra_op_num_threads = 2
    session.get_session_options().intra_op_num_threads = 3
    assert session.get_session_options().intra_op_num_threads == 1


@pytest.mark.parametrize("level", [0, 1, 2, 3, 99])
def test_optimization_levels(level: int) -> None:
    from jitonnx import GraphOptimizationLevel

    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel(level)
    np.testing.assert_array_equal(run(InferenceSession(models.relu_add(), options)), models.relu_add_result(X))


def test_thread_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from jitonnx.runtime.threads import allowed_cpus

    def threads(asked: int = 0) -> int:
        options = SessionOptions()
        options.intra_op_num_threads = asked
        return InferenceSession(models.relu_add(), options).engine.settings.threads

    for name in ("JITONNX_NUM_THREADS", "ORT_INTRA_OP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert threads() == threads(-1) == allowed_cpus()
    assert threads(3) == 3
    monkeypatch.setenv("ORT_INTRA_OP_NUM_THREADS", "2")
    assert threads() == 2 and threads(1) == 1
    monkeypatch.setenv("JITONNX_NUM_THREADS", "4")
    assert threads() == 4
    monkeypatch.setenv("JITONNX_NUM_THREADS", "many")
    with pytest.raises(InvalidArgument, match="JITONNX_NUM_THREADS is 'many'"):
        threads()


def test_options_that_a_session_refuses() -> None:
    def with_option(**values: Any) -> SessionOptions:
        options = SessionOptions()
        for name, value in values.items():
            setattr(options, name, value)
        return options

    def with_entry(key: str, value: str) -> SessionOptions:
        options = SessionOptions()
        options.add_session_config_entry(key, value)
        return options

    cancelled = SessionOptions()
    cancelled.set_load_cancellation_flag(True)
    for options, error, text in (
        (with_entry("session.load_model_format", "TORCH"), Fail, "format 'TORCH'"),
        (with_entry("session.disable_cpu_ep_fallback", "1"), InvalidArgument, "disable_cpu_ep_fallback"),
        (cancelled, ModelLoadCanceled, "called off"),
        (["CPUExecutionProvider"], TypeError, "give providers as providers="),
        ({}, TypeError, "sess_options is a dict"),
    ):
        with pytest.raises(error, match=text):
            InferenceSession(models.relu_add(), options)  # type: ignore[arg-type]


def test_unknown_keywords() -> None:
    with pytest.warns(UserWarning, match="does not know the arguments session_options"):
        InferenceSession(models.relu_add(), session_options=SessionOptions())


def test_disabled_rewrites() -> None:
    def applied(**keywords: Any) -> set[str]:
        nodes = [node("Relu", ["x"], ["r"]), node("Relu", ["r"], ["y"])]
        session = InferenceSession(model(nodes, [tensor("x")], [tensor("y")]), **keywords)
        assert (run(session) == np.maximum(X, 0)).all()
        return set(session.engine.report.counts)

    (rewrite,) = applied()
    assert applied(disabled_optimizers=[rewrite]) == set()
    options = SessionOptions()
    options.add_session_config_entry("optimization.disable_specified_optimizers", f"{rewrite};")
    assert applied(sess_options=options) == set()
    with pytest.warns(UserWarning, match="no rewrite is named NchwcTransformer"):
        assert applied(disabled_optimizers={"NchwcTransformer"}) == {rewrite}


def test_external_data_folder(tmp_path: Path) -> None:
    proto = models.proto([node("Add", ["x", "w"], ["y"])], [tensor("x")], [tensor("y")], {"w": models.OFFSET})
    stored = numpy_helper.from_array(models.OFFSET, "w")
    onnx.external_data_helper.set_external_data(stored, "w.bin")
    (tmp_path / "w.bin").write_bytes(stored.raw_data)
    stored.ClearField("raw_data")
    proto.graph.initializer[0].CopyFrom(stored)
    with pytest.raises(Fail, match="give external_data_folder"):
        InferenceSession(proto.SerializeToString())
    options = SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    np.testing.assert_array_equal(run(InferenceSession(proto.SerializeToString(), options)), X + models.OFFSET)


# ------------------------------------------------------------------------------------------------ providers


def test_providers(recwarn: pytest.WarningsRecorder) -> None:
    session = InferenceSession(models.relu_add())
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    cpu = "CPUExecutionProvider"
    for providers in (None, [], cpu, [cpu], (cpu,), [(cpu, {"use_arena": "1"})]):
        InferenceSession(models.relu_add(), providers=providers)
        session.set_providers(providers)
    InferenceSession(models.relu_add(), providers=[cpu], provider_options=[{}])
    session.disable_fallback()
    session.enable_fallback()
    assert not recwarn.list


def test_providers_that_are_not_here() -> None:
    cpu = "CPUExecutionProvider"
    with pytest.warns(UserWarning, match=r"^Specified provider 'CUDAExecutionProvider' is not in available provider "):
        InferenceSession(models.relu_add(), providers=["CUDAExecutionProvider", cpu])
    with pytest.warns(UserWarning, match="No such provider is known"):
        InferenceSession(models.relu_add(), providers="Cpu")
    with pytest.warns(UserWarning, match="Duplicate provider"):
        InferenceSession(models.relu_add(), providers=[cpu, cpu])


@pytest.mark.parametrize(
    ("providers", "provider_options", "text"),
    [
        (["CPUExecutionProvider"], [], "same length"),  # as diffusers' pipelines give them
        (["CPUExecutionProvider"], [{}, {}], "same length"),
        (["CPUExecutionProvider"], ["x"], "a sequence of dicts"),
        ([("CPUExecutionProvider", {})], [{}], "Only string values"),
        ([["CPUExecutionProvider", 3]], None, "pairs of a name and a dict"),
    ],
)
def test_wrong_providers(providers: Any, provider_options: Any, text: str) -> None:
    """A session falls back to the CPU's with a warning, unless it is told not to."""
    with pytest.warns(UserWarning, match=text):
        session = InferenceSession(models.relu_add(), providers=providers, provider_options=provider_options)
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(ValueError, match=text):
        session.set_providers(providers, provider_options)
    with pytest.raises(ValueError, match=text):
        InferenceSession(models.relu_add(), providers=providers, provider_options=provider_options, enable_fallback=0)


# ------------------------------------------------------------------------------------------------ profiles


def test_profile(tmp_path: Path) -> None:
    options = SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = InferenceSession(models.relu_add(), options)
    assert session.get_profiling_start_time_ns() > 0
    for _ in range(2):
        np.testing.assert_array_equal(run(session), models.relu_add_result(X))
    path = session.end_profiling()
    assert path.startswith(str(tmp_path / "profile_")) and path.endswith(".json")
    events = json.loads(Path(path).read_text())
    names = [event["name"] for event in events if event["cat"] == "Session"]
    assert names == ["model_loading", "session_initialization", "model_run", "model_run"]
    kernels = [event for event in events if event["cat"] == "Node"]
    assert len(kernels) == 2 and all(event["ph"] == "X" and event["dur"] >= 0 for event in kernels)
    assert session.end_profiling() == "" and session.get_profiling_start_time_ns() == 0
    np.testing.assert_array_equal(run(session), models.relu_add_result(X))


def test_no_profile_unless_asked_for() -> None:
    session = InferenceSession(models.relu_add())
    assert session.end_profiling() == "" and session.get_profiling_start_time_ns() == 0
