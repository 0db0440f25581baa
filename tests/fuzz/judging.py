"""A model run by jitonnx, and what is wrong with the results.

Each output is held to what onnx's reference gave while the graph grew, and where it differs to onnxruntime: one that
agrees with either is right. So are differences that EXCUSES explains; a reason says why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx

import jitonnx
from tests import guards
from tests.fuzz.growing import FLOATS, TOLERANCES, Left, Model, run_onnxruntime, run_reference, type_of

Array = Any


@dataclass(frozen=True)
class Finding:
    """What is wrong with a model."""

    kind: str
    """refused, failed, wrong, crashed, or unlike (a second run gives other bits)."""
    text: str
    output: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Excuse:
    """Differences that are no faults."""

    applies: Callable[[onnx.ModelProto, str], bool]
    """Whether it explains a finding, from the model and the finding's text."""
    reason: str


def _has(operator: str, **attributes: Any) -> Callable[[onnx.ModelProto, str], bool]:
    """Whether a node of an operator has these attributes."""

    def applies(model: onnx.ModelProto, text: str) -> bool:
        for node in model.graph.node:
            given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            if node.op_type == operator and all(given.get(k) == v for k, v in attributes.items()):
                return True
        return False

    return applies


EXCUSES = (
    Excuse(
        lambda model, text: "Type 'tensor(bfloat16)'" in text,
        "operators of old versions have no bfloat16, which onnx's reference takes all the same",
    ),
    Excuse(
        lambda model, text: "larger than the padded input" in text,
        "a window that does not fit gives a negative size; onnxruntime says so only when it runs",
    ),
    Excuse(
        lambda model, text: (
            [node.op_type for node in model.graph.node] == ["QLinearConv"] and text.endswith("differ by at most 1")
        ),
        "of int8 and uint8, which onnxruntime refuses: the reference scales in other steps, and ties fall otherwise",
    ),
    Excuse(
        _has("Resize", coordinate_transformation_mode=b"half_pixel_symmetric", mode=b"nearest"),
        "a coordinate that is a whole number but for rounding: floor and ceil tell the last bit apart",
    ),
    Excuse(
        lambda model, text: (
            _has("HardSwish")(model, text)
            and onnx.TensorProto.DOUBLE in {value.type.tensor_type.elem_type for value in model.graph.input}
        ),
        "the text has a sixth, the reference the float32 next to it, which of doubles are seven digits",
    ),
    Excuse(
        lambda model, text: any(
            node.op_type in ("GRU", "LSTM", "RNN") and _unbounded(node) for node in model.graph.node
        ),
        "Softplus of onnxruntime's recurrent layers overflows, and what grows without a bound keeps no digit",
    ),
)


def _unbounded(node: onnx.NodeProto) -> bool:
    names = [name for a in node.attribute if a.name == "activations" for name in a.strings]
    return any(name in (b"Softplus", b"Relu") for name in names)


def difference(got: Array, expected: Array, tolerance: float) -> str:
    """How two arrays differ; nothing if they are alike."""
    if isinstance(got, list) or got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{getattr(got, 'dtype', list)}{list(np.shape(got))} for {expected.dtype}{list(expected.shape)}"
    if (type := type_of(got)) not in TOLERANCES:
        wrong = int((got != expected).sum())
        most = np.abs(got.astype(object) - expected.astype(object)).max() if wrong and type != "bool" else 1
        return f"{wrong} of {got.size} elements differ by at most {most}" if wrong else ""
    with np.errstate(all="ignore"):
        return _apart(got.astype(np.float64), expected.astype(np.float64), type, max(tolerance, TOLERANCES[type]))


def _apart(a: Array, b: Array, type: str, tolerance: float) -> str:
    if (unlike := int((np.isnan(a) != np.isnan(b)).sum())) > 0:
        return f"{unlike} of {a.size} elements are NaN in one only"
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    infinite = np.isinf(a) | np.isinf(b)
    # What one takes for infinity the other may have just below it.
    largest = float(ml_dtypes.finfo(type if type != "bfloat16" else ml_dtypes.bfloat16).max)
    close = np.abs(np.where(np.isinf(a), b, a)) > min(0.9 * largest, 1e30)
    if (infinite & (a != b) & ~close).any():
        return "infinite in one only"
    a, b = a[~infinite], b[~infinite]
    if not a.size:
        return ""
    away = np.abs(a - b) - tolerance * (np.abs(b) + 0.05 * min(np.abs(b).max(), 1e30) + 0.01)
    worst = int(np.argmax(away))
    return f"{int((away > 0).sum())} of {a.size} elements, {a[worst]:.6g} for {b[worst]:.6g}" if away[worst] > 0 else ""


def session(data: bytes, level: int) -> jitonnx.InferenceSession:
    """A quiet session with rewrites (99) or without (0)."""
    options = jitonnx.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = jitonnx.GraphOptimizationLevel(level)
    return jitonnx.InferenceSession(data, options)


def judge(model: Model, level: int = 99, again: bool = False) -> Finding | None:
    """What is wrong with a model, in four runs with each set of feeds.

    The third in succession has to give the second's bits; the first may have been another plan's.

    again: also with a second session, which finds the code of the first one in the cache, and has to give the same.
    """
    data = model.data
    try:
        first = session(data, level)
    except Exception as error:
        return _refusal(model, error)
    given: dict[int, list[Array]] = {}
    for opened in (first, *([session(data, level)] if again else [])):
        latest: list[int] = []
        for i in [i for i in range(len(model.feeds)) for _ in range(3)] + list(range(len(model.feeds))):
            try:
                results = opened.run(model.outputs, model.feeds[i])
            except Exception as error:
                return None if _refused_by_all(model, i, error) else _excused(model, Finding("failed", _said(error)))
            same = _same_bits if latest[-2:] == [i, i] else _alike
            if i in given and not all(map(same, given[i], results)):
                return Finding("unlike", f"set {i}: a second run gives other results")
            given[i] = [np.copy(array) for array in results]
            latest.append(i)
    for i, results in given.items():
        if (finding := _wrong(model, i, results)) is not None:
            return _excused(model, finding)
    return None


def judge_guarded(model: Model, level: int = 99, again: bool = False) -> Finding | None:
    """As `judge`, in a child process and under guard pages: what reads or writes beyond its memory is a finding."""

    def work() -> Finding | None:
        with guards.guarded():
            return judge(model, level, again)

    try:
        return guards.survives(work)
    except AssertionError as error:
        return Finding("crashed", str(error))


def _same_bits(a: Array, b: Array) -> bool:
    """Whether arrays are the same bit for bit, but for which NaN is where: threads may meet several in any order."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if type_of(a) in FLOATS:
        a, b = (np.where(np.isnan(array), array.dtype.type(np.nan), array) for array in (a, b))
    return a.tobytes() == b.tobytes()


def _alike(a: Array, b: Array) -> bool:
    """Whether arrays differ by rounding at most: a plan for other sizes may have served in between, and serve again."""
    return not difference(a, b, 0.0)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"


def _excused(model: Model, finding: Finding) -> Finding | None:
    return None if any(excuse.applies(model.proto, finding.text) for excuse in EXCUSES) else finding


def _refusal(model: Model, error: Exception) -> Finding | None:
    """A model that is not taken. A clear error is right where onnxruntime has one, too."""
    if isinstance(error, jitonnx.Error) and "Bug:" not in str(error):
        try:
            run_onnxruntime(model.data, model.feeds[0])
        except Left as refused:
            if "NOT_IMPLEMENTED" not in str(refused):
                return None
    return _excused(model, Finding("refused", _said(error)))


def _refused_by_all(model: Model, i: int, error: Exception) -> bool:
    """Whether feeds that have a clear error are refused by the oracles, too."""
    if model.expected is not None or not isinstance(error, jitonnx.Error) or "Bug:" in str(error):
        return False
    return all(oracle(i) is None for oracle in _oracles(model))


def _oracles(model: Model) -> list[Callable[[int], list[Array] | None]]:
    """What gives a set's expected outputs, or None: the nearest to hand first."""

    @functools.cache
    def by_onnxruntime(i: int) -> list[Array] | None:
        try:
            return run_onnxruntime(model.data, model.feeds[i])
        except Left:
            return None

    def by_reference(i: int) -> list[Array] | None:
        if model.expected is not None:
            return [model.expected[i][name] for name in model.outputs]
        try:
            return run_reference(model.proto, model.feeds[i])
        except Left:
            return None

    return [by_reference, by_onnxruntime] if model.expected is not None else [by_onnxruntime, by_reference]


def _wrong(model: Model, i: int, results: list[Array]) -> Finding | None:
    """The first output that agrees with no oracle."""
    remaining = dict.fromkeys(range(len(results)), "")
    for oracle in _oracles(model):
        if (expected := oracle(i)) is None:
            continue
        for position in list(remaining):
            name = model.outputs[position]
            text = difference(results[position], expected[position], model.tolerances.get(name, 0.0))
            if text:
                remaining[position] = remaining[position] or text
            else:
                del remaining[position]
        if not remaining:
            return None
    for position, text in remaining.items():
        if text:
            return Finding("wrong", f"set {i}: {model.outputs[position]}: {text}", model.outputs[position])
    return None  # no oracle runs it
