"""Broken models, a rule each (`tests/model/checker/broken.py`): `check` and sessions refuse all of them, with a place
and a cause.

As many as `onnx.checker` and onnxruntime refuse, and no sound model beside them.
"""

from __future__ import annotations

import contextlib
import re
import resource
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.backend.test.case.node import collect_testcases

import jitonnx
from bench import zoo
from jitonnx.errors import Error
from jitonnx.model.checker import Report, check_model
from tests.model.checker import broken
from tests.model.checker.broken import SOUND, Broken, cases

SECONDS = 5.0
MEMORY = 2 << 20
"""KiB that refusing a model may take."""
STATUS = Path("/proc/self/status")
RAW = re.compile(r"\bBug\b|KeyError|IndexError|AttributeError|TypeError|Traceback|object has no attribute")
"""What no error says: it would be Python's and not ours."""
OURS = {
    "called, node 0: an attribute that it does not have",
    "called, node 2: an attribute that it does not have",
    "called, attribute 1: another name",
    "LayerNormalization: an unknown attribute",
}
"""Models that neither onnx's checker nor onnxruntime refuses: attributes that nobody declares."""
FEEDS = {
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
}


def refusal(model: onnx.ModelProto, run: bool) -> str:
    """What a session says of a broken model: at the latest when it is run, if `run`."""
    started = time.perf_counter()
    with pytest.raises(Error) as caught:
        session = jitonnx.InferenceSession(model.SerializeToString())
        if run:
            session.run(None, {each.name: np.ones(each.shape, FEEDS[each.type]) for each in session.get_inputs()})
    assert time.perf_counter() - started < SECONDS
    return str(caught.value)


def memory_now() -> np.ndarray:
    """Resident memory, and the address space that the process has had at most, in KiB. Peaks of resident memory are
    counted from here on, where the system allows that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory_peaks()


def memory_peaks() -> np.ndarray:
    """The most memory of both kinds since `memory_now`."""
    if not STATUS.exists():
        return np.full(2, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return of_status("VmHWM", "VmPeak")


def of_status(*names: str) -> np.ndarray:
    lines = dict(line.split(":", 1) for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines())
    return np.array([int(lines[name].split()[0]) for name in names])


def test_memory_is_measured() -> None:
    before = memory_now()
    taken = np.ones(60 << 20, np.uint8)
    del taken
    assert not STATUS.exists() or (memory_peaks() - before)[0] >= 50 << 10


def refused_by_others(model: onnx.ModelProto, run: bool) -> bool:
    """Whether onnx's checker or shape inference, or onnxruntime, refuses a model."""
    try:
        if run:
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        else:
            onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        if run:
            session.run(None, {each.name: np.ones(each.shape, FEEDS[each.type]) for each in session.get_inputs()})
    except Exception:
        return True
    return False


def assert_refused(models: Iterable[Broken], run: bool = False) -> int:
    """All of them are refused, by us and by others; returns how many they are."""
    count = 0
    faults: list[str] = []
    for name, model in models:
        count += 1
        before = memory_now()
        text = refusal(model, run)
        started = time.perf_counter()
        report = check_model(model)
        if time.perf_counter() - started > SECONDS:
            faults.append(f"{name}: checking takes long")
        grown = memory_peaks() - before
        if grown.max() > MEMORY:
            faults.append(f"{name}: resident and reserved memory grow by {grown.tolist()} KiB")
        if not report.refused:
            faults.append(f"{name}: check finds nothing, a session says {text}")
        for each in (text, *(finding.sentence() for finding in report)):
            if RAW.search(each):
                faults.append(f"{name}: {each}")
        if not has_place(report) or not re.search(r"\b(graph|function|node|model|initializer)\b", text):
            faults.append(f"{name}: no place in {text}")
        if name not in OURS and not refused_by_others(model, run):
            faults.append(f"{name}: nobody else refuses it: {text}")
    assert faults == []
    return count


def has_place(report: Report) -> bool:
    """Whether all that is refused has a place; the model itself is one for its own fields."""
    of_the_model = ("model.",)
    return all(finding.place.graph or finding.rule.startswith(of_the_model) for finding in report if finding.refused)


@pytest.mark.parametrize("base", SOUND)
def test_rules_of_the_ir(base: str) -> None:
    models = (each for each in broken.structural() if each.name.startswith(f"{base},"))
    assert assert_refused(models) > 40


@pytest.mark.parametrize("part", range(8))
def test_signatures_of_all_operators(part: int) -> None:
    models = [each for each in broken.signatures() if hash_of(each.name) % 8 == part]
    assert assert_refused(models) > 60


def hash_of(name: str) -> int:
    """A number of an operator, the same in every process."""
    return sum(name.partition(":")[0].encode())


def test_values_that_operators_do_not_take() -> None:
    assert assert_refused(broken.values(), run=True) > 80


# ---------------------------------------------------------------------------------------------- no false alarm


def alarms(report: Report) -> list[str]:
    return [finding.sentence() for finding in report if finding.severity == "error"]


@pytest.mark.parametrize("base", SOUND)
def test_sound_models(base: str) -> None:
    onnx.checker.check_model(SOUND[base]())
    assert alarms(check_model(SOUND[base]())) == []


def test_no_false_alarm_on_the_cases_of_operators() -> None:
    found: dict[str, Sequence[str]] = {}
    for case in all_cases():
        try:
            onnx.checker.check_model(case.model)
        except onnx.checker.ValidationError:
            continue  # some use operators that were dropped, on purpose
        texts = alarms(check_model(case.model))
        if texts:
            found[case.name] = texts
    assert found == {}


def all_cases() -> list[Any]:
    cases()  # which warns of nothing
    with np.errstate(all="ignore"):
        return collect_testcases("")


def test_no_false_alarm_on_the_files_of_backend_tests() -> None:
    """Models that were converted from PyTorch, and others, as the onnx package has them."""
    files = sorted((Path(onnx.__path__[0]) / "backend" / "test" / "data").rglob("*.onnx"))
    assert len(files) > 100
    found = {str(path): texts for path in files if (texts := alarms(check_model(path)))}
    assert found == {}


@pytest.mark.parametrize("name", ["gru_ctc", "lstm_tagger", "mlp_tiny", "mobilenet_v2", "squeezenet1_1", "unet_gn"])
def test_no_false_alarm_on_trained_models(name: str) -> None:
    assert alarms(check_model(zoo.model(name))) == []
