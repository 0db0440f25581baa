"""The session configuration entry `jitonnx.precision` = "auto": bfloat16 where it is exact enough for the user.

The model is run in float32 and in bfloat16 on feeds that the user gives, and what it is compiled for is bfloat16 if no
output is further off than the bound. Both runs have the same bits every time, so the same model, feeds and bound lead
to the same choice. The kernel cache keeps the error for a model file, as it keeps compiled models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.api.arguments import thread_count
from jitonnx.api.entries import (
    CALIBRATION,
    COMPILE,
    CPU_NAME,
    PRECISION,
    PRECISION_BOUND,
    TUNE,
    asks_for_artifact,
    calibration_paths,
)
from jitonnx.api.inputs import stored_feeds
from jitonnx.api.saved import model_cache
from jitonnx.errors import InvalidArgument
from jitonnx.support.digest import sha256
from jitonnx.support.kernel_cache import KernelCache, default_directory
from jitonnx.support.records import NamedTuple
from jitonnx.target.machine import host

if TYPE_CHECKING:
    from jitonnx.api.options import SessionOptions

_FORMAT = "precision 1"


class PrecisionChoice(NamedTuple):
    """What was chosen, and why. precision: float32 or bfloat16; "" of an artifact. error: the largest one that was
    measured; None if nothing was."""

    precision: str
    error: float | None
    reason: str


def is_asked(options: SessionOptions) -> bool:
    """Whether the options leave the precision to what is measured. InvalidArgument for entries that go with that."""
    if options.entry(PRECISION) == "auto":
        return True
    for key in (CALIBRATION, PRECISION_BOUND):
        if options.entry(key) and not (key == CALIBRATION and options.entry(TUNE)):
            raise InvalidArgument(
                f"the session configuration entry {key} goes with {PRECISION} = 'auto', which is "
                f"{options.entry(PRECISION) or 'float32'!r}"
            )
    return False


def choose(
    source: Any,
    options: SessionOptions,
    disabled: frozenset[str],
    run: Callable[[SessionOptions, Sequence[Mapping[str, np.ndarray]]], Sequence[Sequence[Any]]],
) -> PrecisionChoice:
    """What to compile a model for.

    source, disabled: as a session keeps them. run: gives the outputs of a session with other options, for feeds.
    InvalidArgument for a bound or feeds that cannot be used, or are missing.
    """
    bound, paths = _bound(options), _paths(options)
    if asks_for_artifact(options):
        return PrecisionChoice("", None, "an artifact has the precision that it was compiled for")
    if options.entry(CPU_NAME) not in (None, "", "host"):
        raise InvalidArgument(
            f"{PRECISION} is 'auto', which runs the model; code for another CPU ({CPU_NAME}) cannot be run here: give "
            "float32 or bfloat16"
        )
    if not host().bfloat16_products:
        return PrecisionChoice("float32", None, "the CPU has no matrix instructions for bfloat16 that may be used")
    cache, key = KernelCache(default_directory()), _key(source, options, disabled, paths)
    known = None if key is None else cache.get(key)
    if known is not None:
        return _made(float(known), bound)
    feeds = [stored_feeds(str(path)) for path in paths]
    expected, found = (run(_with(options, precision), feeds) for precision in ("float32", "bfloat16"))
    error = max(error_of(*both) for both in zip(expected, found, strict=True))
    if key is not None:
        cache.put(key, repr(error).encode())
    return _made(error, bound)


def applied(options: SessionOptions, choice: PrecisionChoice) -> SessionOptions:
    """The options with what was chosen in the place of "auto"."""
    chosen = copy.copy(options)
    kept = options.entry(CALIBRATION) or "" if options.entry(TUNE) else ""
    for key, value in ((PRECISION, choice.precision), (CALIBRATION, kept), (PRECISION_BOUND, "")):
        chosen.add_session_config_entry(key, value)
    return chosen


def error_of(expected: Sequence[Any], found: Sequence[Any]) -> float:
    """The largest error of any output, over the largest magnitude of that output. Infinite where outputs are of another
    size, other integers, truth values or texts, or not finite in other places.
    """
    return max((_error(*both) for both in zip(expected, found, strict=True)), default=0.0)


def _error(expected: Any, found: Any) -> float:
    if isinstance(expected, list | tuple):
        return error_of(expected, found) if len(expected) == len(found) else np.inf
    expected, found = np.asarray(expected), np.asarray(found)
    if expected.shape != found.shape:
        return np.inf
    if expected.dtype.kind in "iubOSUT":
        return 0.0 if np.array_equal(expected, found) else np.inf
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = expected.astype(kind), found.astype(kind)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        return np.inf
    largest = float(np.abs(a[finite]).max(initial=0.0))
    difference = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    return difference / largest if largest else (np.inf if difference else 0.0)


def _made(error: float, bound: float) -> PrecisionChoice:
    precision = "bfloat16" if error <= bound else "float32"
    return PrecisionChoice(
        precision, error, f"in bfloat16 outputs are off by {error:.2g} of their largest element; allowed is {bound:g}"
    )


def _with(options: SessionOptions, precision: str) -> SessionOptions:
    """The options of a session that measures."""
    measuring = applied(options, PrecisionChoice(precision, None, ""))
    measuring.enable_profiling = False
    measuring.add_session_config_entry(TUNE, "")
    if measuring.entry(COMPILE) == "background":
        measuring.add_session_config_entry(COMPILE, "before")
    return measuring


def _bound(options: SessionOptions) -> float:
    text = options.entry(PRECISION_BOUND) or ""
    try:
        bound = float(text)
    except ValueError:
        bound = -1.0
    if not 0 <= bound < np.inf:
        raise InvalidArgument(
            f"{PRECISION} is 'auto': give the session configuration entry {PRECISION_BOUND}, the greatest error of an "
            f"output that is allowed over its largest element, a number such as 0.01; it is {text!r}"
        )
    return bound


def _paths(options: SessionOptions) -> list[Path]:
    paths = list(map(Path, calibration_paths(options)))
    if not paths:
        raise InvalidArgument(
            f"{PRECISION} is 'auto': give the session configuration entry {CALIBRATION}, .npz files of inputs by name "
            "(numpy.savez writes them) with ';' between them, on which the error is measured"
        )
    return paths


def _key(source: Any, options: SessionOptions, disabled: frozenset[str], paths: Sequence[Path]) -> str | None:
    """What the error is kept under; None for models that are always loaded."""
    plain = applied(options, PrecisionChoice("auto", None, ""))
    found = model_cache.key_of(source, plain, disabled, thread_count(options.intra_op_num_threads))
    if found is None:
        return None
    digests = [sha256(path.read_bytes()).hexdigest() for path in paths]
    return repr((_FORMAT, found.digest, digests))
