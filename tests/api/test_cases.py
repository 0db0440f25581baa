"""onnxruntime's interface case by case: the same call with both packages, and what differs on purpose."""

from __future__ import annotations

import collections
import gc
import types
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import jitonnx
from tests.api.faces import ANY, Call, assert_alike, outcome, plain, session
from tests.session.models import BOOL, FLOAT, INT64, STRING, model, node, proto, tensor

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.full((2, 3), 2, np.float32)
FEEDS = {"a": A, "b": B}


def run(feeds: Any = FEEDS, names: Any = None, **options: Any) -> Call:
    """A run of the sum and the product."""
    return lambda ort: session(ort, **options).run(names, feeds)


def one(x: Any, kind: int = FLOAT, shape: Any = (2,), operator: str = "Identity") -> Call:
    """A run of one operator, on one input of this type and shape."""
    made = model([node(operator, ["x"], ["y"])], [tensor("x", shape, kind)], [tensor("y", None, kind)])
    return lambda ort: session(ort, made).run(None, {"x": x})


def strided() -> np.ndarray:
    return np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::-2]


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


class Bare:
    """An array behind `__array__` alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


def with_default(ir_version: int = 10, is_input: bool = True) -> bytes:
    """y = x + w, where w has the value [1, 1]."""
    inputs = [tensor("x", [2])] + ([tensor("w", [2])] if is_input else [])
    constants = {"w": np.ones(2, np.float32)}
    return model([node("Add", ["x", "w"], ["y"])], inputs, [tensor("y", [2])], constants, ir_version=ir_version)


def on(source: bytes, feeds: Any) -> Call:
    return lambda ort: session(ort, source).run(None, feeds)


def chain(*nodes: str, name: str = "") -> bytes:
    """A model of unary nodes, each as "Operator input output", from x to y."""
    parts = [text.split() for text in nodes]
    made = [node(operator, [x], [y], name or operator) for operator, x, y in parts]
    return model(made, [tensor("x", [2])], [tensor("y", [2])])


X2 = np.array([1, 2], np.float32)

ALIKE: dict[str, tuple[Call, str] | Call] = {
    # ---------------------------------------------------------------- names and feeds
    "all outputs": run(),
    "no names": run(names=[]),
    "an empty tuple of names": run(names=()),
    "one name": run(names=["p"]),
    "a tuple of names": run(names=("p", "s")),
    "a name twice": run(names=["s", "s"]),
    "unknown output": (run(names=["zz"]), "Invalid output name:zz"),
    "missing input": (run({"a": A}), "Required inputs (['b']) are missing from input feed (['a'])."),
    "unknown input": (run(FEEDS | {"zz": A}), "Invalid input name: zz"),
    "names as a text": (run(names="s"), ANY),
    "ordered feeds": run(collections.OrderedDict(FEEDS)),
    "feeds that cannot be changed": run(types.MappingProxyType(FEEDS)),
    "a default is used": on(with_default(), {"x": X2}),
    "a default is fed": on(with_default(), {"x": X2, "w": X2}),
    "a default of IR version 3 is fed": (on(with_default(3), {"x": X2, "w": X2}), "Invalid input name: w"),
    "a constant is fed": (on(with_default(is_input=False), {"x": X2, "w": X2}), "Invalid input name: w"),
    "keywords": lambda ort: session(ort).run(output_names=["s"], input_feed=FEEDS, run_options=None),
    # ---------------------------------------------------------------- values
    "double for float": (
        run({"a": A.astype(float), "b": B}),
        "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))",
    ),
    "int32 for int64": (one(np.ones(2, np.int32), INT64), "Actual: (tensor(int32)) , expected: (tensor(int64))"),
    "uint8 for bool": (one(np.ones(2, np.uint8), BOOL), "Actual: (tensor(uint8)) , expected: (tensor(bool))"),
    "float16 for float": (one(np.ones(2, np.float16)), "Actual: (tensor(float16)) , expected: (tensor(float))"),
    "rank": (run({"a": A[0], "b": B}), "Invalid rank for input: a Got: 1 Expected: 2 Please fix either the inputs"),
    "size": (
        run({"a": A, "b": np.ones((2, 4), np.float32)}),
        "Got invalid dimensions for input: b for the following indices\n index: 1 Got: 4 Expected: 3\n",
    ),
    "no elements for some": (one(np.ones(0, np.float32)), "index: 0 Got: 0 Expected: 2"),
    "type before shape": (one(np.ones((3, 3))), "Unexpected input data type"),
    "Fortran order": run({"a": np.asfortranarray(A), "b": B}),
    "strides": run({"a": strided(), "b": B}),
    "stride 0": run({"a": np.broadcast_to(A[0], (2, 3)), "b": B}),
    "not aligned": run({"a": unaligned(A), "b": B}),
    "a matrix": run({"a": np.matrix(A), "b": B}),
    "a masked array": run({"a": np.ma.masked_array(A, mask=A > 2), "b": B}),
    "no elements": run({"a": A[:0], "b": B[:0]}),
    "lists": run({"a": [[1, 2, 3]], "b": [[1.5, 2, 3]]}),
    "a list of arrays": run({"a": [A[0], A[1]], "b": B}),
    "an empty list": one([], shape=("N",)),
    "a ragged list": (run({"a": [[1, 2, 3], [1]], "b": B}), "Could not create tensor from given input list"),
    "a list beyond the type": (one([300, 1], TensorProto.UINT8), "Could not create tensor from given input list"),
    "no list of numbers": (one([{}, {}]), ANY),
    "an array of rank 0": one(np.array(1.5, np.float32), shape=()),
    "bool": one(np.array([True, False]), BOOL),
    "objects as text": one(np.array(["a", "ü"], object), STRING),
    "text of a fixed width": one(np.array(["a", "bb"]), STRING),
    "a list of text": one(["a", "bb"], STRING),
    "text with a null character": one(np.array(["a\0b", "c"], object), STRING),
    "no text for text": (one(np.ones(2, np.float32), STRING), "Actual: (tensor(float)) , expected: (tensor(string))"),
    # ---------------------------------------------------------------- outputs
    "outputs are arrays of their own": lambda ort: [
        (made := session(ort, model([node("Identity", ["x"], ["y"])], [tensor("x", [2])], [tensor("y", [2])])))
        and (first := made.run(None, {"x": X2})[0]).flags.c_contiguous,
        first.flags.writeable,
        np.shares_memory(first, X2),
        np.shares_memory(first, made.run(None, {"x": X2})[0]),
    ],
    "an input as an output": on(model([], [tensor("x", [2])], [tensor("x", [2])]), {"x": X2}),
    "an output outlives its session": lambda ort: [out := run()(ort), gc.collect() and None, out][-1],
    "floats to int32": lambda ort: cast(ort, np.array([np.nan, np.inf, 3e9, -1.7], np.float32), TensorProto.INT32),
    "floats to text": lambda ort: cast(ort, np.array([1, 0.1, 1e10, 1e-7, np.nan, np.inf], np.float32), STRING),
    # ---------------------------------------------------------------- what a model says
    "inputs": lambda ort: session(ort).get_inputs(),
    "outputs": lambda ort: session(ort).get_outputs(),
    "overridable": lambda ort: session(ort, with_default()).get_overridable_initializers(),
    "inputs beside a default": lambda ort: session(ort, with_default()).get_inputs(),
    "the same lists": lambda ort: (s := session(ort)).get_inputs() is s.get_inputs(),
    "types": lambda ort: [
        session(ort, model([node("Identity", ["x"], ["y"])], [tensor("x", [1], kind)], [tensor("y", [1], kind)]))
        .get_inputs()[0]
        .type
        for kind in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16)
    ],
    "shapes": lambda ort: [
        session(ort, model([node("Identity", ["x"], ["y"])], [tensor("x", shape)], [tensor("y", shape)]))
        .get_inputs()[0]
        .shape
        for shape in ([], [2, "N"], [None, 3], [0, 2], None)
    ],
    "inferred outputs": lambda ort: session(
        ort, model([node("Flatten", ["x"], ["y"])], [tensor("x", [2, 3, 4])], [tensor("y", None)])
    ).get_outputs(),
    "metadata": lambda ort: [
        getattr(session(ort, described()).get_modelmeta(), name)
        for name in METADATA
    ],
    "metadata that is not there": lambda ort: [
        getattr(session(ort).get_modelmeta(), name) for name in ("domain", "description", "custom_metadata_map")
    ],
    "no version": lambda ort: session(ort, bare()).get_modelmeta().version,
    # ---------------------------------------------------------------- loading
    "no such file": (lambda ort: ort.InferenceSession("nope.onnx"), "failed. File doesn't exist"),
    "no protobuf": (lambda ort: ort.InferenceSession(b"\xff" * 40), "protobuf"),
    "no graph": (lambda ort: ort.InferenceSession(b""), "No graph was found in the protobuf."),
    "not a source": (lambda ort: ort.InferenceSession(3), "Unable to load from type '<class 'int'>'"),
    "no operator set": (lambda ort: session(ort, without_opset()), "Missing opset in the model."),
    "operator set of a strange domain": (
        lambda ort: session(ort, strange([])), "No opset import for domain 'my.dom'"
    ),
    "IR version": (lambda ort: session(ort, with_default(99)), "Unsupported model IR version: 99"),
    "cycle": (
        lambda ort: session(
            ort,
            model([node("Add", ["x", "z"], ["y"]), node("Neg", ["y"], ["z"])], [tensor("x", [2])], [tensor("z", [2])]),
        ),
        "the graph is not acyclic.",
    ),
    "undefined name": (
        lambda ort: session(ort, model([node("Neg", ["q"], ["y"])], [tensor("x", [2])], [tensor("y", [2])])),
        "is not a graph input, initializer, or output of a previous node.",
    ),
    "undefined output": (
        lambda ort: session(ort, model([node("Neg", ["x"], ["y"])], [tensor("x", [2])], [tensor("zz", [2])])), "zz"
    ),
    "output defined twice": (
        lambda ort: session(
            ort, chain("Neg x y", "Abs x y")
        ),
        "Duplicate definition of name (y)",
    ),
    "input defined twice": (
        lambda ort: session(ort, model([node("Neg", ["x"], ["y"])], [tensor("x", [2])] * 2, [tensor("y", [2])])),
        "Duplicate definition-site for (x)",
    ),
    "nodes out of order": on(
        model([node("Neg", ["h"], ["y"]), node("Abs", ["x"], ["h"])], [tensor("x", [2])], [tensor("y", [2])]), {"x": X2}
    ),
    "types that disagree": (
        lambda ort: session(
            ort,
            model([node("Add", ["x", "i"], ["y"])], [tensor("x", [2]), tensor("i", [2], INT64)], [tensor("y", [2])]),
        ),
        ANY,
    ),
    # ---------------------------------------------------------------- providers
    "no providers": lambda ort: ort.InferenceSession(with_default(), providers=[]).get_providers(),
    "providers with options": lambda ort: ort.InferenceSession(
        with_default(), providers=[("CPUExecutionProvider", {"use_arena": "1"})]
    ).get_providers(),
    "provider options": lambda ort: ort.InferenceSession(
        with_default(), providers=["CPUExecutionProvider"], provider_options=[{}]
    ).get_provider_options(),
    "absent provider": lambda ort: warned(
        lambda: ort.InferenceSession(with_default(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    ).startswith("Specified provider 'CUDAExecutionProvider' is not in available provider names.Available"),
    "a provider's name alone": lambda ort: ort.InferenceSession(
        with_default(), providers="CPUExecutionProvider"
    ).get_providers(),
    "duplicate provider": lambda ort: warned(
        lambda: ort.InferenceSession(with_default(), providers=["CPUExecutionProvider"] * 2)
    ),
    # ---------------------------------------------------------------- options
    "defaults": lambda ort: [getattr(ort.SessionOptions(), name) for name in OPTIONS],
    "defaults of runs": lambda ort: [getattr(ort.RunOptions(), name) for name in RUN_OPTIONS],
    "set and read": lambda ort: set_and_read(ort),
    "unknown option": (lambda ort: setattr(ort.SessionOptions(), "foo", 1), "foo"),
    "a float for an int": (lambda ort: setattr(ort.SessionOptions(), "intra_op_num_threads", 2.0), ANY),
    "an int of NumPy": lambda ort: setattr(ort.SessionOptions(), "intra_op_num_threads", np.int64(2)),
    "a number for a level": (lambda ort: setattr(ort.SessionOptions(), "graph_optimization_level", 99), ANY),
    "missing entry": (lambda ort: ort.SessionOptions().get_session_config_entry("x"), "does not have"),
    "empty key": (lambda ort: ort.SessionOptions().add_session_config_entry("", "x"), "onfig key is empty or longer"),
    "value that is no text": (lambda ort: ort.SessionOptions().add_session_config_entry("k", 1), ANY),
    "entry of a run": lambda ort: (o := ort.RunOptions()).add_run_config_entry("k", "v") or o.get_run_config_entry("k"),
    "missing entry of a run": (lambda ort: ort.RunOptions().get_run_config_entry("x"), "x"),
    "fixed dimension": lambda ort: fixed(ort).get_inputs(),
    "fixed dimension violated": (
        lambda ort: fixed(ort).run(None, {"a": A[:1], "b": B[:1]}), "index: 0 Got: 1 Expected: 2"
    ),
    "unknown dimension": lambda ort: fixed(ort, "Q").get_inputs()[0].shape,
    "options of a session": lambda ort: session(ort, intra_op_num_threads=1).get_session_options().intra_op_num_threads,
    "initializer replaced": lambda ort: replaced(ort),
    "ended before it began": (lambda ort: ended(ort), "Exiting due to terminate flag being set to true."),
    "loading called off": (lambda ort: called_off(ort), ANY),
    # ---------------------------------------------------------------- objects
    "attributes of a session": lambda ort: [s := session(ort), setattr(s, "mine", 1), s.mine][2],
    "references to a session": lambda ort: weakref.ref(session(ort)) is not None,
    "isinstance": lambda ort: isinstance(session(ort), ort.capi.onnxruntime_inference_collection.Session),
    "a subclass": lambda ort: type("Own", (ort.InferenceSession,), {})(with_default()).run(None, {"x": X2}),
    "private names": lambda ort: [
        (s := session(ort))._model_path, type(s._model_bytes).__name__, s._providers, s._enable_fallback,
        [i.name for i in s._inputs_meta], [o.name for o in s._outputs_meta], s._sess.run(["s"], FEEDS, None),
    ],
    "asynchronous": lambda ort: asynchronous(ort, FEEDS),
    "asynchronous, and wrong": lambda ort: asynchronous(ort, {"a": A, "b": B.astype(float)})[1:2],
    "asynchronous, and missing": (lambda ort: asynchronous(ort, {"a": A}), "Required inputs (['b']) are missing"),
    "threads": lambda ort: threads(ort),
}  # fmt: skip
"""By name: a call, and what the error says where it raises one."""

OPTIONS = """
    intra_op_num_threads inter_op_num_threads execution_mode execution_order graph_optimization_level
    optimized_model_filepath enable_profiling profile_file_prefix log_severity_level log_verbosity_level logid
    enable_cpu_mem_arena enable_mem_pattern enable_mem_reuse use_deterministic_compute use_per_session_threads
""".split()  # noqa: SIM905
RUN_OPTIONS = ("log_severity_level", "log_verbosity_level", "logid", "terminate", "only_execute_path_to_fetches")
METADATA = """
    producer_name graph_name domain description graph_description version custom_metadata_map
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", ALIKE)
def test_alike(name: str) -> None:
    case = ALIKE[name]
    assert_alike(*case) if isinstance(case, tuple) else assert_alike(case)


# ---------------------------------------------------------------------------------------------- what calls are made of


def cast(ort: ModuleType, x: np.ndarray, to: int) -> Any:
    made = model([node("Cast", ["x"], ["y"], to=to)], [tensor("x", ["N"])], [tensor("y", ["N"], to)])
    return session(ort, made).run(None, {"x": x})


def described() -> bytes:
    made = proto([node("Neg", ["x"], ["y"])], [tensor("x", [2])], [tensor("y", [2])], producer_name="p")
    made.domain, made.doc_string, made.model_version, made.graph.doc_string = (
        "d",
        "about the model",
        7,
        "about the graph",
    )
    helper.set_model_props(made, {"key": "value"})
    return made.SerializeToString()


def bare() -> bytes:
    made = proto([node("Neg", ["x"], ["y"])], [tensor("x", [2])], [tensor("y", [2])])
    made.ClearField("model_version")
    return made.SerializeToString()


def without_opset() -> bytes:
    made = proto([node("Neg", ["x"], ["y"])], [tensor("x", [2])], [tensor("y", [2])])
    del made.opset_import[:]
    return made.SerializeToString()


def strange(imports: list[tuple[str, int]]) -> bytes:
    nodes = [helper.make_node("Foo", ["x"], ["y"], domain="my.dom")]
    made = proto(nodes, [tensor("x", [2])], [tensor("y", [2])])
    made.opset_import.extend(helper.make_opsetid(*entry) for entry in imports)
    return made.SerializeToString()


def warned(call: Callable[[], Any]) -> str:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return str(seen[0].message)


def set_and_read(ort: ModuleType) -> list[Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.logid, options.enable_mem_pattern = 3, "me", False
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("any.key", "v")
    return [getattr(options, name) for name in OPTIONS] + [options.get_session_config_entry("any.key")]


def fixed(ort: ModuleType, name: str = "N") -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_free_dimension_override_by_name(name, 2)
    from tests.api.faces import sum_and_product

    return ort.InferenceSession(sum_and_product(), options, providers=["CPUExecutionProvider"])


def replaced(ort: ModuleType) -> Any:
    options = ort.SessionOptions()
    value = ort.OrtValue.ortvalue_from_numpy(np.array([10, 20], np.float32))
    options.add_initializer("w", value)
    return ort.InferenceSession(with_default(is_input=False), options, providers=["CPUExecutionProvider"]).run(
        None, {"x": X2}
    )


def ended(ort: ModuleType) -> Any:
    options = ort.RunOptions()
    options.terminate = True
    return session(ort).run(None, FEEDS, options)


def called_off(ort: ModuleType) -> Any:
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    return ort.InferenceSession(with_default(), options)


def asynchronous(ort: ModuleType, feeds: Any) -> list[Any]:
    import threading

    done, told = threading.Event(), []

    def callback(results: Any, data: Any, error: str) -> None:
        told.extend([plain(results), bool(error), data])
        done.set()

    session(ort, intra_op_num_threads=2).run_async(["s"], feeds, callback, "mine")
    assert done.wait(30)
    return told


def threads(ort: ModuleType) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    made = session(ort)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda k: made.run(["s"], {"a": A + k, "b": B})[0][0, 0], range(100)))
    return [float(one) for one in results]


# ---------------------------------------------------------------------------------------------- what differs on purpose

BETTER: dict[str, tuple[Call, Any]] = {
    "a declared scalar fed as one element": (one(np.ones(1, np.float32), shape=()), [np.float32(1)]),
    "bytes of a fixed width": (one(np.array([b"a", b"bb"]), STRING), [np.array(["a", "bb"], object)]),
    "big-endian": (run({"a": A.astype(">f4"), "b": B}), [A + B, A * B]),
    "bytes in objects": (one(np.array([b"a", "b"], object), STRING), [np.array(["a", "b"], object)]),
    "a fixed width with a null": (one(np.array(["a\0b"]), STRING, [1]), [np.array(["a\0b"], object)]),
    "None for a text": (one(np.array(["a", None], object), STRING), "element 1 of input 'x' is None"),
    "None for an input": (run({"a": A, "b": None}), "input 'b' is None, but it is not optional"),
    "a tuple": (one((1, 2)), [X2]),
    "a number": (one(1.5, shape=()), [np.float32(1.5)]),
    "a number of NumPy": (one(np.float32(1.5), shape=()), [np.float32(1.5)]),
    "behind __array__": (one(Bare(X2)), [X2]),
    "objects for floats": (one(np.array([1.0, 2.0], object)), "Actual: (NumPy's object) , expected: (tensor(float))"),
    "longdouble": (one(np.ones(2, np.longdouble)), "which ONNX does not have"),
    "a number for a name": (run({3: A}), "the names of inputs are str; input_feed has the key 3 (int)"),
    "feeds that are a list": (run([A, B]), "input_feed is a list; give a dict of arrays by input name"),
    "names that are none": (run(names=[None]), "output_names must be a list of str, or None for all outputs"),
    "a division by zero of the least integer": (
        lambda ort: session(
            ort,
            model(
                [node("Div", ["x", "z"], ["y"])],
                [tensor("x", [1], 6), tensor("z", [1], 6)],
                [tensor("y", [1], 6)],
            ),
        ).run(None, {"x": np.array([-(2**31)], np.int32), "z": np.array([-1], np.int32)}),
        [np.array([-(2**31)], np.int32)],
    ),
    "a model's message": (lambda ort: ort.InferenceSession(onnx_message()).run(None, {"x": X2}), [-X2]),
    "a buffer": (lambda ort: ort.InferenceSession(bytearray(with_default())).run(None, {"x": X2}), [X2 + 1]),
    "an empty path": (lambda ort: ort.InferenceSession(""), "File doesn't exist"),
    "providers in the place of options": (
        lambda ort: ort.InferenceSession(with_default(), ["CPUExecutionProvider"]), "give providers as providers=[...]"
    ),
    "equal names of nodes": (on(chain("Neg x h", "Neg h y", name="same"), {"x": X2}), [X2]),
    "a lacking operator": (lambda ort: session(ort, strange([("my.dom", 1)])), "my.dom:Foo(1) is not a registered"),
    "a library of operators": (
        lambda ort: ort.SessionOptions().register_custom_ops_library("/nope.so"), "the library needs onnxruntime itself"
    ),
    "an optimised model": (
        lambda ort: session(ort, optimized_model_filepath="out.onnx"), "optimized_model_filepath is not supported"
    ),
    "a session in a with statement": (lambda ort: within(ort), [A + B, A * B]),
}  # fmt: skip
"""By name: a call, and what jitonnx gives, or a part of what its error says; onnxruntime's outcome is another."""


@pytest.mark.parametrize("name", BETTER)
def test_better(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where onnxruntime writes files
    call, expected = BETTER[name]
    ours = outcome(call, jitonnx)
    if isinstance(expected, str):
        assert ours.error is not None and expected in str(ours.error), ours
    else:
        assert ours.error is None and ours.value == plain(expected), ours
    if name != "a division by zero of the least integer":  # which ends onnxruntime's process
        theirs = outcome(call, onnxruntime)
        assert theirs.value != ours.value or str(theirs.error) != str(ours.error), "onnxruntime does so too"


def onnx_message() -> ModelProto:
    return proto([node("Neg", ["x"], ["y"])], [tensor("x", [2])], [tensor("y", [2])])


def within(ort: ModuleType) -> Any:
    with session(ort) as made:
        return made.run(None, FEEDS)


# ---------------------------------------------------------------------------------------------- files


def external(folder: Path, location: str, **fields: int) -> Path:
    """A model whose weight w lies in another file."""
    (folder / "w.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    made = proto(
        [node("Add", ["x", "w"], ["y"])], [tensor("x", [2])], [tensor("y", [2])], {"w": np.zeros(2, np.float32)}
    )
    (weight,) = made.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **fields}.items():
        weight.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


FILES = {
    "beside": ("w.bin", {"offset": 0, "length": 8}, ""),
    "missing": ("nope.bin", {}, "External data path does not exist"),
    "outside": ("../w.bin", {}, "escapes model directory"),
    "absolute": ("/etc/hostname", {}, "Absolute path not allowed for external data location"),
    "too short": ("w.bin", {"offset": 4, "length": 8}, "w"),
    "another length": ("w.bin", {"offset": 0, "length": 4}, "w"),
}


@pytest.mark.parametrize("name", FILES)
def test_external_data(name: str, tmp_path: Path) -> None:
    location, fields, says = FILES[name]
    (tmp_path / "in").mkdir()
    path = external(tmp_path / "in", location, **fields)
    (tmp_path / "w.bin").write_bytes(bytes(8))
    assert_alike(lambda ort: ort.InferenceSession(str(path)).run(None, {"x": X2}), says)


def in_memory(ort: ModuleType, source: Any, **given: Any) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    names, buffers, lengths = given["names"], given["buffers"], given["lengths"]
    options.add_external_initializers_from_files_in_memory(names, buffers, lengths)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, {"x": X2})


WEIGHTS = np.array([9, 1, 2], np.float32)

IN_MEMORY = {
    "bytes": ("w.bin", WEIGHTS.tobytes(), 12, ""),
    "bytearray": ("w.bin", bytearray(WEIGHTS.tobytes()), 12, ""),
    "array": ("w.bin", WEIGHTS.view(np.uint8), 12, ""),
    "too short": ("w.bin", WEIGHTS.tobytes(), 8, "w"),
    "another name": ("v.bin", WEIGHTS.tobytes(), 12, "External file: w.bin not found from the table user provided"),
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_external_data_in_memory(name: str, tmp_path: Path) -> None:
    location, buffer, length, says = IN_MEMORY[name]
    path = external(tmp_path, "w.bin", offset=4, length=8)
    (tmp_path / "w.bin").unlink()
    for source in (path.read_bytes(), str(path)):
        assert_alike(
            lambda ort, source=source: in_memory(ort, source, names=[location], buffers=[buffer], lengths=[length]),
            says,
        )
    assert_alike(lambda ort: in_memory(ort, source, names=["w.bin"], buffers=[], lengths=[]), ANY)


def test_dimensions_by_denotation() -> None:
    made = proto([node("Add", ["a", "b"], ["s"])], [tensor("a"), tensor("b")], [tensor("s")])
    made.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"

    def shapes(ort: ModuleType, denotation: str = "DATA_BATCH") -> Any:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.add_free_dimension_override_by_denotation(denotation, 2)
        loaded = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [arg.shape for arg in (*loaded.get_inputs(), *loaded.get_outputs())], loaded.run(None, FEEDS)

    assert_alike(shapes)
    assert_alike(lambda ort: shapes(ort, "OTHER"))
    with pytest.raises(jitonnx.Error, match="fixed to -1"):
        jitonnx.SessionOptions().add_free_dimension_override_by_denotation("DATA_BATCH", -1)


def test_paths(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(with_default())
    assert_alike(lambda ort: ort.InferenceSession(str(path))._model_path)
    assert_alike(lambda ort: ort.InferenceSession(path).run(None, {"x": X2}))
    assert_alike(lambda ort: ort.InferenceSession(str(tmp_path)), "rotobuf")
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert_alike(lambda ort: ort.InferenceSession(str(tmp_path / "empty.onnx")), "No graph was found in the protobuf.")
    (tmp_path / "cut.onnx").write_bytes(with_default()[:-9])
    assert_alike(lambda ort: ort.InferenceSession(str(tmp_path / "cut.onnx")), "rotobuf")


def test_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def profiled(ort: ModuleType) -> list[Any]:
        import json

        made = session(ort, enable_profiling=True, profile_file_prefix=f"{ort.__name__}_")
        made.run(None, FEEDS)
        name = made.end_profiling()
        events = json.loads(Path(name).read_text())
        kinds = {event["cat"] for event in events if "cat" in event}
        return [name.startswith(f"{ort.__name__}_"), name.endswith(".json"), kinds, made.end_profiling()]

    assert_alike(profiled)


def test_sparse_weights_are_dense() -> None:
    def made() -> bytes:
        values = numpy_helper.from_array(np.array([5], np.float32), "w")
        indices = numpy_helper.from_array(np.array([1], np.int64), "i")
        message = proto([node("Add", ["x", "w"], ["y"])], [tensor("x", [2])], [tensor("y", [2])])
        message.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
        return message.SerializeToString()

    assert_alike(on(made(), {"x": X2}))
