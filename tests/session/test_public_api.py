"""The public names, and what importing the package costs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jitonnx
from jitonnx.api.environment import get_build_info

ROOT = Path(__file__).parents[2]

NAMES = [
    "AdapterFormat",
    "Error",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "TrainingSession",
    "__version__",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "install_as_onnxruntime",
    "load",
    "preload_dlls",
    "print_debug_info",
    "register",
    "register_execution_provider_library",
    "register_opset",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]

SESSION = [
    "close",
    "compile_status",
    "compiled_model",
    "create_ortvalue_from_shape_and_type",
    "declared_inputs",
    "disable_fallback",
    "enable_fallback",
    "end_profiling",
    "engine",
    "fed_inputs",
    "get_input_epdevices",
    "get_input_memory_infos",
    "get_inputs",
    "get_modelmeta",
    "get_output_memory_infos",
    "get_outputs",
    "get_overridable_initializers",
    "get_profiling_start_time_ns",
    "get_provider_graph_assignment_info",
    "get_provider_options",
    "get_providers",
    "get_session_options",
    "get_tuning_results",
    "io_binding",
    "model_nodes",
    "native_program",
    "precision",
    "release_captured_graph",
    "run",
    "run_async",
    "run_with_iobinding",
    "run_with_ort_values",
    "run_with_ortvaluevector",
    "save",
    "set_ep_dynamic_options",
    "set_providers",
    "set_tuning_results",
    "shape_ends",
    "title",
    "tuning",
    "wait_until_compiled",
]


def test_names() -> None:
    """Whoever adds or removes a public name changes this list, and the changelog."""
    assert sorted(jitonnx.__all__) == sorted(NAMES)
    assert set(NAMES) <= set(dir(jitonnx))
    for name in NAMES:
        assert getattr(jitonnx, name) is not None
    assert sorted(name for name in dir(jitonnx.InferenceSession) if not name.startswith("_")) == sorted(SESSION)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        jitonnx.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_environment() -> None:
    assert re.match(r"\d+\.\d+", jitonnx.__version__) and jitonnx.get_version_string() == jitonnx.__version__
    assert jitonnx.get_available_providers() == ["CPUExecutionProvider"]
    assert jitonnx.get_all_providers()[-1] == "CPUExecutionProvider"
    assert jitonnx.get_device() == "CPU"
    assert "Build Info" in get_build_info()
    assert jitonnx.has_collective_ops() is False
    jitonnx.preload_dlls()
    jitonnx.enable_telemetry_events()
    jitonnx.disable_telemetry_events()


def test_log_severity() -> None:
    from jitonnx.support.log import logger

    before = logger.level
    for severity, level in enumerate((10, 20, 30, 40, 50)):
        jitonnx.set_default_logger_severity(severity)
        assert logger.level == level
    logger.setLevel(before)
    with pytest.raises(RuntimeError, match="Invalid logging severity"):
        jitonnx.set_default_logger_severity(9)


def _python(source: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_cheap() -> None:
    modules = set(_python("import jitonnx, sys; print(*sys.modules)").split())
    assert "jitonnx" in modules
    assert not {"numpy", "llvmlite", "google.protobuf", "jitonnx.api.session", "jitonnx.engine"} & modules
    timed = "import numpy, time; t = time.perf_counter(); import jitonnx; print(time.perf_counter() - t)"
    assert float(_python(timed)) < 0.1


def test_a_second_start_does_not_import_the_compiler(tmp_path: Path) -> None:
    source = (
        "import sys, numpy as np, jitonnx; from tests.session.models import relu_add\n"
        "session = jitonnx.InferenceSession(relu_add())\n"
        "session.run(None, {'x': np.zeros((2, 3), np.float32)})\n"
        "print('jitonnx.codegen.build' in sys.modules)"
    )
    first, second = (_python(source, JITONNX_CACHE_DIR=str(tmp_path), PYTHONPATH=str(ROOT)) for _ in range(2))
    assert (first.strip(), second.strip()) == ("True", "False")


def test_a_clone_works_in_place(tmp_path: Path) -> None:
    """In a clone's folder its own sources are imported, all of them, whatever is installed besides."""
    (tmp_path / "jitonnx").symlink_to(ROOT / "jitonnx")
    for part in ("kernels", "proto"):
        (tmp_path / part).symlink_to(ROOT / part)
    code = (
        "import jitonnx.kernels.spec, jitonnx.proto.messages as m, sys\n"
        "for module in (jitonnx, jitonnx.kernels.spec, m): print(module.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, env=_numpy_path()
    )
    assert all(Path(line).is_relative_to(tmp_path) for line in done.stdout.splitlines()), done.stdout


def _numpy_path() -> dict[str, str]:
    """An environment in which the packages we need are found, and no installed jitonnx."""
    import numpy

    return {**os.environ, "PYTHONPATH": str(Path(numpy.__file__).parents[1])}
