"""The session configuration entries that mean something to jitonnx, by their keys."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jitonnx import errors
from jitonnx.engine.programs import PROGRAM_BYTES
from jitonnx.errors import InvalidArgument

if TYPE_CHECKING:
    from jitonnx.api.options import SessionOptions
    from jitonnx.plan.choices import Precision

STRICT = "session.strict_shape_type_inference"
EXTERNAL_DATA_FOLDER = "session.model_external_initializers_file_folder_path"
MODEL_FORMAT = "session.load_model_format"
ARTIFACT_FORMAT = "JITONNX"
"""The format of compiled models, which are code: docs/artifacts.md."""
SAVED_FORMAT = "session.save_model_format"
OPTIMIZED_EXTERNAL = "session.optimized_model_external_initializers_file_name"
OPTIMIZED_EXTERNAL_LEAST = "session.optimized_model_external_initializers_min_size_in_bytes"
DENORMAL_AS_ZERO = "session.set_denormal_as_zero"
RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
VALUE_LAYOUT = "session.gqa_value_layout"
DISABLED = "optimization.disable_specified_optimizers"
GEMM = "jitonnx.gemm"
"""Configuration entry: "blas" calls SciPy's BLAS for matrix products instead of our own kernel."""
WINOGRAD = "jitonnx.winograd"
"""Configuration entry: "0" keeps convolutions to direct sums, whose rounding errors are some ten times smaller."""
FIXED24 = "jitonnx.fixed24"
"""Configuration entry: "0" keeps weights as they are given where 24-bit fixed-point numbers are read faster."""
CPU_NAME = "jitonnx.cpu"
"""Configuration entry: compile for this CPU (LLVM's name, as "x86-64-v3"), to save the model for other machines."""
CODEGEN = "jitonnx.codegen"
"""Configuration entry: "numba" has Numba compile the kernels of regions, from sources that `jitonnx explain` prints."""
COMPILE = "jitonnx.compile"
"""Configuration entry: when code is compiled, "before", "background" or "cached"; docs/starting.md tells about them."""
PROGRAM_MEGABYTES = "jitonnx.program_megabytes"
"""Configuration entry: how much memory the programs kept for different input shapes may hold."""
VERIFY = "jitonnx.verify"
"""Configuration entry: "1" compares all of an artifact with its checksums, its constants too."""
KEEP_MODEL = "jitonnx.keep_model"
"""Configuration entry: "0" neither keeps the compiled model in the kernel cache nor opens one that is kept there."""
PRECISION = "jitonnx.precision"
"""Configuration entry: "bfloat16" rounds the operands of products and convolutions of float32, where that is faster."""
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
CALIBRATION = "jitonnx.calibration"
"""Configuration entry: .npz files of inputs on which `jitonnx.precision` = "auto" measures, with ";" between them."""
PRECISION_BOUND = "jitonnx.precision_bound"
"""Configuration entry: the error over the largest element of an output up to which "auto" chooses bfloat16."""
TUNE = "jitonnx.tune"
"""Configuration entry: the seconds that measuring which kernels are fastest may take when the model is loaded."""

_SWITCHES = (WINOGRAD, FIXED24, VERIFY, KEEP_MODEL)
_OWN = (GEMM, CPU_NAME, CODEGEN, COMPILE, PROGRAM_MEGABYTES, PRECISION, CALIBRATION, PRECISION_BOUND, TUNE, *_SWITCHES)
_CHECKED = (*_SWITCHES, DENORMAL_AS_ZERO)


def check_entries(options: SessionOptions) -> None:
    """InvalidArgument for keys that look like jitonnx's own and are not, and for switches that are neither "0" nor "1".
    NotImplemented for a layout of caches that is not read here.

    Keys of onnxruntime that mean nothing here are no errors.
    """
    for key in options.entry_keys():
        if key.startswith("jitonnx.") and key not in _OWN:
            raise InvalidArgument(f"there is no session configuration entry {key}; jitonnx has {', '.join(_OWN)}")
    for key in _CHECKED:
        if options.entry(key) not in (None, "", "0", "1"):
            raise InvalidArgument(f"the session configuration entry {key} is {options.entry(key)!r}; give '0' or '1'")
    layout = options.entry(VALUE_LAYOUT)
    if layout == "BNHS":
        raise errors.NotImplemented(f"the session configuration entry {VALUE_LAYOUT}: caches of values are BNSH here")
    if layout not in (None, "BNSH"):
        raise InvalidArgument(f"Invalid value for session option '{VALUE_LAYOUT}': '{layout}'. Expected 'BNSH'.")


def switch(options: SessionOptions, key: str, *, default: bool) -> bool:
    """What an entry that is "0" or "1" says."""
    return options.entry(key) == "1" if options.entry(key) else default


def asks_for_artifact(options: SessionOptions) -> bool:
    """Whether the options say that the source is a compiled model: nothing else has its code opened."""
    return options.entry(MODEL_FORMAT) == ARTIFACT_FORMAT


def byte_count(options: SessionOptions, key: str, default: int) -> int:
    """What an entry that is a number of bytes says. InvalidArgument for what is none."""
    text = options.entry(key) or ""
    if text and not (text.isascii() and text.isdigit()):
        raise InvalidArgument(f"the session configuration entry {key} is {text!r}; give a number of bytes")
    return int(text) if text else default


def program_bytes(options: SessionOptions) -> int:
    """The memory that programs for different shapes may hold. InvalidArgument for what is no number above 0."""
    text = options.entry(PROGRAM_MEGABYTES) or ""
    if not text:
        return PROGRAM_BYTES
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgument(
            f"the session configuration entry {PROGRAM_MEGABYTES} is {text!r}; give a number of megabytes above 0"
        )
    return int(text) << 20


def calibration_paths(options: SessionOptions) -> list[str]:
    """The .npz files of inputs that are to be measured on. InvalidArgument for what is no file."""
    paths = [path for path in (options.entry(CALIBRATION) or "").split(";") if path]
    for path in paths:
        if not os.path.isfile(path):
            raise InvalidArgument(f"the session configuration entry {CALIBRATION} names {path}, which is no file")
    return paths
