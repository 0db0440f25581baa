"""Random models: a few with fixed seeds, those whose seeds found faults, and an hour of others.

CONTRIBUTING.md says how to look into a seed that fails.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import jitonnx
from tests.fuzz.growing import Left, Model
from tests.fuzz.judging import Finding, difference, judge, judge_guarded
from tests.fuzz.minimising import minimise, text
from tests.fuzz.profiles import GROWN, PROFILES, again, draw, level

SEEDS = range(8)
GUARDED = range(100, 102)
FAILED = (
    ("general", 11),  # a slice of a negative step from before the start
    ("fusion", 1000000),  # as above, without rewrites
    ("general", 77017),  # a count that nothing but a branch reads
    ("general", 8001179),  # a branch that reads sizes computed in front of it
    ("parametric", 8001949),  # a Resize with aligned corners of open sizes
)
"""Seeds that found faults. What they draw changes with the steps, so small models are kept with the parts' tests."""


def _hold(profile: str, seed: int, guarded: bool = False) -> None:
    try:
        model = draw(profile, seed)
    except Left:
        return
    found = (judge_guarded if guarded else judge)(model, level(seed), again(seed))
    assert found is None, f"python -m tests.fuzz --first {seed} --count 1 --profile {profile} --minimise\n{found}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("profile", PROFILES)
def test_random_models(profile: str, seed: int) -> None:
    _hold(profile, seed)


@pytest.mark.parametrize(("profile", "seed"), FAILED)
def test_seeds_that_failed(profile: str, seed: int) -> None:
    _hold(profile, seed)


@pytest.mark.parametrize("seed", GUARDED)
@pytest.mark.parametrize("profile", PROFILES)
def test_under_guard_pages(profile: str, seed: int) -> None:
    _hold(profile, seed, guarded=True)


def test_a_seed_draws_one_model() -> None:
    for profile in PROFILES:
        assert draw(profile, 3).data == draw(profile, 3).data


def test_what_is_wrong_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fault in an operator: its node is all that is left."""
    from jitonnx.ir.computation import expressions
    from jitonnx.ops.onnx.activation import Softsign

    monkeypatch.setattr(Softsign, "scalar", lambda self, x: x / (expressions.absolute(x) + 2))
    for seed in range(200):
        growing = GROWN["fusion"](seed)
        if any(node.op_type == "Softsign" for node in growing.nodes):
            found = minimise(growing, 99)
            if found is not None:
                assert [node.op_type for node in found[0].proto.graph.node] == ["Softsign"]
                assert found[1].kind == "wrong" and "Softsign" in text(found[0])
                return
    raise AssertionError("no seed finds a wrong Softsign")


ADDITION = """<ir_version: 10, opset_import: ["": 18]> g (float[2] x, float[n] z) => (float[m] y) { y = Add(x, z) }"""


def test_a_refusal_is_found_unless_all_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    two, three = np.ones(2, np.float32), np.ones(3, np.float32)
    assert judge(Model(onnx.parser.parse_model(ADDITION), [{"x": two, "z": three}], None)) is None
    fine = Model(onnx.parser.parse_model(ADDITION), [{"x": two, "z": two}], None)
    assert judge(fine) is None

    def refuse(data: bytes, level: int) -> jitonnx.InferenceSession:
        raise jitonnx.errors.Fail("no")

    monkeypatch.setattr("tests.fuzz.judging.session", refuse)
    assert judge(fine) == Finding("refused", f"Fail: {jitonnx.errors.Fail('no')}")


@pytest.mark.parametrize(
    ("got", "wanted", "text"),
    [
        (np.array([1, np.nan], np.float32), np.array([1, np.nan], np.float32), ""),
        (np.array([1, 2], np.float32), np.array([1, np.nan], np.float32), "1 of 2 elements are NaN"),
        (np.array([1, np.inf], np.float32), np.array([1, 3e38], np.float32), ""),
        (np.array([1, np.inf], np.float32), np.array([1, 3], np.float32), "infinite in one only"),
        (np.array([1, 2], np.float32), np.array([1, 2.1], np.float32), "1 of 2 elements"),
        (np.array([1, 2], np.int32), np.array([1, 3], np.int32), "1 of 2 elements differ"),
        (np.array([1, 2], np.int32), np.array([1, 2], np.int64), "int32"),
        (np.zeros((2, 1), np.float32), np.zeros(2, np.float32), "float32[2, 1]"),
        (np.zeros(0, np.float32), np.zeros(0, np.float32), ""),
    ],
)
def test_differences(got: np.ndarray, wanted: np.ndarray, text: str) -> None:
    found = difference(got, wanted, 0.0)
    assert text in found if text else not found


@pytest.mark.slow
def test_for_an_hour() -> None:
    """Other seeds in each run, in a process of its own, which a crash ends with the seed in its last line."""
    first = int(time.time()) * 1000
    arguments = ["--first", str(first), "--count", "1000000", "--seconds", "3600", "--minimise", "--progress"]
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "tests.fuzz", *arguments], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-1000:]}"
