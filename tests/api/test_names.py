"""The names of onnxruntime's modules are here, and what they are worth."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import jitonnx
from jitonnx import errors
from tests.api.faces import assert_alike, session, sum_and_product


def names(of: Any) -> set[str]:
    """The names in a module, class or object, without modules of Python's own that it imports, and without packages:
    which of onnxruntime's other packages are there depends on who has imported them."""
    public = {name: getattr(of, name) for name in dir(of) if not name.startswith("_")}
    return {name for name, value in public.items() if not isinstance(value, ModuleType) or is_told(name, value)}


def is_told(name: str, module: ModuleType) -> bool:
    return name not in sys.stdlib_module_names and not hasattr(module, "__path__")


PLACES = [
    "", "backend", "backend.backend", "backend.backend_rep", "capi._pybind_state", "capi.convert_npz_to_onnx_adapter",
    "capi.onnxruntime_inference_collection", "capi.onnxruntime_pybind11_state", "capi.onnxruntime_validation",
]  # fmt: skip
OTHERS = {"Any", "Callable", "IntEnum", "Sequence", "annotations"}
"""What onnxruntime's modules import for themselves."""


def modules(place: str) -> tuple[ModuleType, ModuleType]:
    theirs, ours = (importlib.import_module(f"{name}.{place}".rstrip(".")) for name in ("onnxruntime", "jitonnx"))
    return theirs, ours


@pytest.mark.parametrize("place", PLACES)
def test_names_of_modules(place: str) -> None:
    """Of the onnxruntime that is installed, whichever version that is."""
    theirs, ours = modules(place)
    assert {name for name in names(theirs) - OTHERS if not hasattr(ours, name)} == set()


@pytest.mark.parametrize("place", PLACES)
def test_names_of_classes(place: str) -> None:
    """Their members, and the methods by which they take part in Python's syntax."""
    theirs, ours = modules(place)
    lacking = {}
    for name in names(theirs) - OTHERS:
        them, us = getattr(theirs, name), getattr(ours, name)
        if isinstance(them, type) and them.__module__.startswith("onnxruntime") and name != "Session":  # a base alone
            members = names(them) | {f"__{name}__" for name in SYNTAX if hasattr(them, f"__{name}__")}
            lacking[name] = {member for member in members if not hasattr(us, member)}
    assert {name: members for name, members in lacking.items() if members} == {}


SYNTAX = ["iter", "len", "getitem", "setitem", "delitem", "contains", "eq", "hash", "bool", "enter", "exit", "dlpack"]


MODULES = {
    "onnxruntime_inference_collection": (
        "InferenceSession Session IOBinding OrtValue OrtDevice SparseTensor ModelCompiler AdapterFormat C "
        "OrtDeviceVendorId check_and_normalize_provider_args copy_tensors get_ort_device_type"
    ),
    "onnxruntime_validation": "check_distro_info check_training_module get_package_name_and_version_info",
    "build_and_package_info": "package_name __version__",
}


@pytest.mark.parametrize("place", MODULES)
def test_modules_that_packages_import_from(place: str) -> None:
    for package in ("onnxruntime", "jitonnx"):
        module = importlib.import_module(f"{package}.capi.{place}")
        assert all(hasattr(module, name) for name in MODULES[place].split())


def test_members() -> None:
    """Sessions, options, values and bindings have all methods, and attributes of objects."""
    theirs, ours = session(onnxruntime), session(jitonnx)
    for them, us in (
        (theirs, ours),
        (theirs._sess, ours._sess),
        (theirs.io_binding(), ours.io_binding()),
        (theirs.io_binding()._iobinding, ours.io_binding()._iobinding),
        (theirs.get_inputs()[0], ours.get_inputs()[0]),
        (theirs.get_modelmeta(), ours.get_modelmeta()),
        (onnxruntime.SessionOptions(), jitonnx.SessionOptions()),
        (onnxruntime.RunOptions(), jitonnx.RunOptions()),
        (onnxruntime.OrtDevice.make("cpu", 0), jitonnx.OrtDevice.make("cpu", 0)),
        (onnxruntime.OrtValue, jitonnx.OrtValue),
        (onnxruntime.capi._pybind_state.OrtValue, jitonnx.OrtValue),
        (onnxruntime.SparseTensor, jitonnx.SparseTensor),
        (onnxruntime.get_ep_devices()[0], jitonnx.get_ep_devices()[0]),
    ):
        assert {name for name in names(them) if not hasattr(us, name)} == set(), type(them)


def memory(ort: ModuleType) -> list[Any]:
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    other = ort.OrtMemoryInfo.create_v2(
        "Test", ort.OrtMemoryInfoDeviceType.CPU, 0, 0, ort.OrtDeviceMemoryType.DEFAULT, 64,
        ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
    )  # fmt: skip
    told = [
        [one.name, one.device_id, one.allocator_type, one.mem_type, one.device_mem_type, one.device_vendor_id]
        for one in (info, other)
    ]
    return [*told, ort.create_and_register_allocator(info, None)]


def arena(ort: ModuleType) -> list[int]:
    made = [ort.OrtArenaCfg(0, -1, -1, -1), ort.OrtArenaCfg({"max_mem": 3, "arena_extend_strategy": 1})]
    fields = ["max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk"]
    return [getattr(one, name) for one in made for name in [*fields, "max_power_of_two_extend_bytes"]]


def inner_adapter(state: ModuleType) -> list[Any]:
    made = state.AdapterFormat()
    made.adapter_version, made.model_version = 3, 4
    device = state.OrtDevice(0, 0, 0)
    made.parameters = {"w": state.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, device)}
    shapes = {name: list(value.shape()) for name, value in made.parameters.items()}
    return [made.format_version, made.adapter_version, made.model_version, shapes]


def unreleased() -> Any:
    return onnx.ModelProto(opset_import=[onnx.helper.make_opsetid("", 9999)])


def device(ort: ModuleType, name: str) -> list[int]:
    made = ort.OrtDevice.make(name, 2)
    inner = made._get_c_device()
    return [
        *(made.device_id(), made.device_type(), made.device_vendor_id(), made.device_mem_type()),
        *(inner.device_id(), inner.device_type(), inner.vendor_id(), inner.mem_type()),
    ]


def compiled_elsewhere() -> bytes:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18], metadata_props: ["ep_compatibility_info.X": "abc"]> '
        "g (float[2] x) => (float[2] y) { y = Neg(x) }"
    )
    return bytes(model.SerializeToString())


def assignment(ort: ModuleType) -> list[Any]:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    made = ort.InferenceSession(compiled_elsewhere(), options)
    return [
        (part.ep_name, [(node.op_type, node.domain) for node in part.get_nodes()])
        for part in made.get_provider_graph_assignment_info()
    ]


ENUMERATIONS = [
    "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "OrtAllocatorType", "OrtCompileApiFlags",
    "OrtDeviceMemoryType", "OrtDeviceVendorId", "OrtExecutionProviderDevicePolicy", "OrtHardwareDeviceType",
    "OrtMemType", "OrtMemoryInfoDeviceType", "OrtSparseFormat",
]  # fmt: skip

ALIKE = {
    "memory": (memory, ""),
    "unknown memory": (
        lambda ort: ort.OrtMemoryInfo("foo", ort.OrtAllocatorType.INVALID, 0, ort.OrtMemType.DEFAULT),
        "Specified device is not supported. Try CreateMemoryInfo_V2.",
    ),
    "arena": (arena, ""),
    "unknown arena": (lambda ort: ort.OrtArenaCfg({"foo": 1}), "Invalid OrtArenaCfg option: foo"),
    "devices": (lambda ort: [device(ort, name) for name in ("cpu", "cuda", "cann", "dml", "gpu", "npu", "webgpu")], ""),
    "numbers of devices": (
        lambda ort: [
            getattr(ort.capi._pybind_state.OrtDevice, name)()
            for name in ("cpu", "cuda", "cann", "dml", "fpga", "gpu", "npu", "webgpu", "default_memory")
        ],
        "",
    ),
    "type of a device": (
        lambda ort: ort.capi.onnxruntime_inference_collection.get_ort_device_type("cuda"), ""
    ),
    "enumerations": (
        lambda ort: [
            [(name, int(value)) for name, value in getattr(ort, kind).__members__.items()] for kind in ENUMERATIONS
        ],
        "",
    ),
    "texts of enumerations": (
        lambda ort: [
            f(ort.GraphOptimizationLevel.ORT_ENABLE_ALL) for f in (str, repr, int, hash, "{}".format)
        ],
        "",
    ),
    "enumeration by number": (lambda ort: ort.GraphOptimizationLevel(99), ""),
    "equal to a number": (lambda ort: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC == 1, ""),
    "providers": (
        lambda ort: ort.capi.onnxruntime_inference_collection.check_and_normalize_provider_args(
            ["CPUExecutionProvider", ("CUDAExecutionProvider", {"device_id": 0})], None, ["CPUExecutionProvider"]
        ),
        "",
    ),
    "providers that are no sequence": (
        lambda ort: ort.capi.onnxruntime_inference_collection.check_and_normalize_provider_args(3, None, ["a"]),
        "'providers' should be a sequence",
    ),
    "options of providers that are no dicts": (
        lambda ort: ort.capi.onnxruntime_inference_collection.check_and_normalize_provider_args(["a"], ["x"], ["a"]),
        "'provider_options'",
    ),
    "options of providers that are no sequence": (
        lambda ort: ort.capi.onnxruntime_inference_collection.check_and_normalize_provider_args(["a"], 3, ["a"]),
        "'provider_options' should be a sequence",
    ),
    "options of providers in both places": (
        lambda ort: ort.capi.onnxruntime_inference_collection.check_and_normalize_provider_args(
            [("a", {1: 2})], [{3: 4}], ["a"]
        ),
        "Only string values for 'providers' are supported if 'provider_options' is given.",
    ),
    "tuning": (lambda ort: session(ort).get_tuning_results(), ""),
    "memory of inputs": (lambda ort: [info.device_id for info in session(ort).get_input_memory_infos()], ""),
    "memory of outputs": (lambda ort: [info.device_id for info in session(ort).get_output_memory_infos()], ""),
    "memory of an inner session": (lambda ort: len(session(ort)._sess.input_meminfos), ""),
    "devices of inputs": (lambda ort: [one.ep_name for one in session(ort).get_input_epdevices()], ""),
    "inner session": (
        lambda ort: (inner := session(ort)._sess) and [
            inner.get_providers(), inner.get_provider_options(), inner.set_tuning_results([], True),
            inner.is_webgpu_graph_capture_enabled(), inner.webgpu_context_id(), inner.end_profiling(),
            inner.release_captured_graph(0),
        ],
        "",
    ),
    "inner binding": (
        lambda ort: (inner := session(ort).io_binding()._iobinding) and [
            inner.synchronize_inputs(), inner.synchronize_outputs(), inner.clear_binding_inputs(),
            inner.clear_binding_outputs(), list(inner.get_outputs()), inner.copy_outputs_to_cpu(),
        ],
        "",
    ),
    "inner adapter": (lambda ort: inner_adapter(ort.capi._pybind_state), ""),
    "memory of a device that is not there": (
        lambda ort: ort.OrtValue.ortvalue_from_shape_and_type(
            [2], np.float32, memory_info=ort.OrtMemoryInfo(
                "Cuda", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
            )
        ),
        "No shared allocator found for: OrtMemoryInfo:[name:Cuda",
    ),
    "makers of devices": (
        lambda ort: [
            ort.capi.onnxruntime_inference_collection.get_vendor_id_for_device_type(name)
            for name in ("cpu", "cuda", "dml", "cann", "webgpu", "npu")
        ],
        "",
    ),
    "released operator sets": (
        lambda ort: [
            importlib.import_module(f"{ort.__name__}.backend.backend").OnnxRuntimeBackend.is_opset_supported(model)
            for model in (onnx.load_from_string(sum_and_product()), unreleased())
        ],
        "",
    ),
    "no library": (
        lambda ort: ort.register_execution_provider_library("x", "/nope.so"), "Failed to load library /nope.so"
    ),
    "no such library": (
        lambda ort: ort.unregister_execution_provider_library("x"), "Execution provider library: x was not registered."
    ),
    "initializer elsewhere": (
        lambda ort: (one := ort.OrtExternalInitializerInfo("a", 1, 2)) and [one.filepath, one.file_offset], ""
    ),
    "logging": (lambda ort: ort.set_default_logger_verbosity(1), ""),
    "no compiled model": (
        lambda ort: ort.capi._pybind_state.get_model_compatibility_for_ep_devices(ort.get_ep_devices(), "x").name, ""
    ),
    "incompatibility of another": (
        lambda ort: ort.capi._pybind_state.get_hardware_device_ep_incompatibility_details(
            "foo", ort.capi._pybind_state.get_hardware_devices()[0]
        ),
        "No valid factory found for execution provider 'foo'.",
    ),
    "incompatibility": (
        lambda ort: ort.capi._pybind_state.get_hardware_device_ep_incompatibility_details(
            "CPUExecutionProvider", ort.capi._pybind_state.get_hardware_devices()[0]
        ),
        "",
    ),
    "compatibility of a model": (
        lambda ort: [
            ort.capi._pybind_state.get_compatibility_info_from_model_bytes(compiled_elsewhere(), name) for name in "XY"
        ],
        "",
    ),
    "compatibility of no model": (
        lambda ort: ort.capi._pybind_state.get_compatibility_info_from_model_bytes(b"", "X"),
        "Invalid argument provided to GetCompatibilityInfoFromModelBytes.",
    ),
    "compatibility with no provider": (
        lambda ort: ort.capi._pybind_state.get_compatibility_info_from_model("model.onnx", ""),
        "Invalid argument provided to GetCompatibilityInfoFromModel.",
    ),
    "compatibility without a text": (
        lambda ort: ort.capi._pybind_state.get_model_compatibility_for_ep_devices(ort.get_ep_devices(), None), "None"
    ),
    "FP4": (
        lambda ort: ort.capi._pybind_state.pack_fp4_weights_for_cuda_moe_gemm(
            np.arange(40, dtype=np.uint8).reshape(8, 5), 8, 10
        ),
        "",
    ),
    "nodes of providers": (assignment, ""),
    "nodes of providers, not asked for": (
        lambda ort: session(ort).get_provider_graph_assignment_info(),
        "Session configuration entry 'session.record_ep_graph_assignment_info' must be set to \"1\"",
    ),
    "members of classes": (lambda ort: [ort.OrtMemType.DEFAULT.name, ort.OrtMemType.CPU.value], ""),
    "seed": (lambda ort: ort.set_seed(1), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_alike(name: str) -> None:
    assert_alike(*ALIKE[name])


def test_errors_are_ours_wherever_they_are_imported_from() -> None:
    from jitonnx.compat.capi import _pybind_state, onnxruntime_pybind11_state

    for name in names(onnxruntime.capi.onnxruntime_pybind11_state):
        kind = getattr(onnxruntime.capi.onnxruntime_pybind11_state, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert getattr(_pybind_state, name) is getattr(onnxruntime_pybind11_state, name) is getattr(errors, name)


REFUSED = ["OrtSyncStream", "OrtEpContextData", "OrtEpContextDataBuffer"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_means_nothing_here_says_so(name: str) -> None:
    with pytest.raises(errors.NotImplemented, match=f"{name}: "):
        getattr(jitonnx, name)("x")


def test_converting_parameters_to_an_adapter(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.arange(6, dtype=np.float32).reshape(2, 3), b=np.ones(4, np.float16))
    written = []
    for package in ("onnxruntime", "jitonnx"):
        module = importlib.import_module(f"{package}.capi.convert_npz_to_onnx_adapter")
        target = tmp_path / package
        module.export_lora_parameters(tmp_path / "a.npz", 3, 4, str(target))
        read = jitonnx.capi.onnxruntime_inference_collection.AdapterFormat.read_adapter(str(target))
        parameters = {name: value.numpy() for name, value in read.get_parameters().items()}
        written.append((read.get_adapter_version(), read.get_model_version(), parameters))
    assert written[0][:2] == written[1][:2] == (3, 4)
    assert all(np.array_equal(value, written[1][2][name]) for name, value in written[0][2].items())
