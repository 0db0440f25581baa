"""The configuration entry `jitonnx.tune`: kernels are chosen by measuring, and give the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jitonnx
from jitonnx.engine import tuning
from jitonnx.errors import InvalidArgument
from jitonnx.target.choosing import Choice, Measured, Problem, cheapest, choosing, is_tuned, made_choices
from jitonnx.tools.explain import explain
from tests.session.models import model, node, tensor


def layers(size: int | str = 14) -> bytes:
    """A convolution, a depthwise one and a product."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.standard_normal((32, 16, 3, 3), np.float32) / 12,
        "d": random.standard_normal((32, 1, 3, 3), np.float32) / 3,
        "m": random.standard_normal((32, 40), np.float32) / 6,
    }
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "d"], ["b"], pads=[1, 1, 1, 1], group=32),
        node("ReduceMean", ["b", "axes"], ["c"], keepdims=0),
        node("MatMul", ["c", "m"], ["y"]),
    ]
    inputs = [tensor("x", ("N", 16, size, size))]
    return model(nodes, inputs, [tensor("y", ("N", 40))], constants | {"axes": np.array([2, 3])})


def options(**entries: str) -> jitonnx.SessionOptions:
    """Of one thread, with entries of jitonnx."""
    made = jitonnx.SessionOptions()
    made.intra_op_num_threads = 1
    for name, value in entries.items():
        made.add_session_config_entry(f"jitonnx.{name}", value)
    return made


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache in which nothing was measured."""
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("size", [14, "S"])
def test_a_tuned_model_gives_the_same_results(own_cache: None, size: int | str, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((2, 16, 14, 14), np.float32)
    np.savez(tmp_path / "feeds.npz", x=x)
    expected = jitonnx.InferenceSession(layers(size), options()).run(None, {"x": x})[0]
    session = jitonnx.InferenceSession(layers(size), options(tune="20", calibration=str(tmp_path / "feeds.npz")))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
    tuned = session.tuning
    assert tuned is not None and {choice.problem.kind for choice, _ in tuned.comparisons} >= {"depthwise tile"}
    assert str(tuned).startswith("tuned: of ")
    for choice, shares in tuned.comparisons:
        assert choice.taken == min(choice.costs, key=choice.costs.__getitem__) and choice.taken not in shares
        assert all(share > 0 for share in shares.values())
    again = jitonnx.InferenceSession(layers(size), options(tune="20")).tuning  # what the cache keeps is not measured
    assert again is not None and (again.share is None or tuned.share == 1.0)


def test_what_is_measured_to_be_faster_is_taken(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are made up: of depthwise tiles 3 x 4 is the fastest, all other choices are as estimated."""
    wanted = "3 x 4 pixels"
    seconds = tuning._Variant.seconds

    def made_up(
        variant: tuning._Variant, inputs: list[np.ndarray], runs: int = 1
    ) -> tuple[dict[Problem, float], float]:
        problems = {choice.problem: choice.taken for made in variant.choices(inputs) for choice in made}
        assert seconds(variant, inputs)[0].keys() == problems.keys()
        times = {problem: 0.5 if taken == wanted else 1.0 for problem, taken in problems.items()}
        return times, sum(times.values())

    monkeypatch.setattr(tuning._Variant, "seconds", made_up)
    session = jitonnx.InferenceSession(layers(), options(tune="20"))
    assert session.tuning is not None and session.tuning.share is not None and session.tuning.share < 1
    taken = {measured.problem.kind: measured for measured in session.tuning.measured}
    assert taken["depthwise tile"].taken == wanted != taken["depthwise tile"].estimated
    kernels = explain(session.compiled_model, {"x": (1, 16, 14, 14)}).kernels
    (depthwise,) = [kernel for kernel in kernels if kernel.label.startswith("depthwise")]
    assert any(f"{wanted} 0.50 (estimated 1." in note for note in depthwise.notes)
    other = jitonnx.InferenceSession(layers(), options(tune="20")).tuning
    assert other is not None and other.share is None and other.measured == session.tuning.measured


def test_a_slower_whole_is_not_taken(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_compared", lambda usual, other, inputs: dict.fromkeys(_problems(usual, inputs), 0.5))
    monkeypatch.setattr(tuning, "_share", lambda usual, other, inputs: 1.01)
    session = jitonnx.InferenceSession(layers(), options(tune="20"))
    assert session.tuning is not None and session.tuning.share == 1.0 and not session.tuning.measured


def _problems(variant: tuning._Variant, inputs: list[np.ndarray]) -> set[Problem]:
    return {choice.problem for made in variant.choices(inputs) for choice in made}


def test_a_round_tries_nothing_twice_of_a_call() -> None:
    first, second, third = (
        Choice(Problem("tile", str(number)), {str(way): 1.0 for way in range(2 + number)}, "0") for number in range(3)
    )
    rounds = list(tuning._rounds([[first, second], [second, third], [first]]))
    assert all(len(tried) == 1 for tried in rounds if second.problem in tried)
    tried = sorted((problem.sizes, text) for each in rounds for problem, text in each.items())
    assert tried == [("0", "1"), ("1", "1"), ("1", "2"), ("2", "1"), ("2", "2"), ("2", "3")]
    assert {first.problem: "1", third.problem: "1"} in rounds


def test_candidates() -> None:
    costs = {4: 1.0, 3: 1.2, 2: 1.1, 1: 9.0}
    assert cheapest("tile", lambda: "8", costs, str) == 4
    with choosing({}):
        assert cheapest("tile", lambda: "8", costs, str, alike=lambda size: size % 2) == 4
        problem = Problem("tile", "8")
        assert made_choices() == (Choice(problem, {"4": 1.0, "3": 1.2}, "4"),) and made_choices() == ()
    with choosing({problem: Measured(problem, "2", "4", "it was faster")}):
        assert cheapest("tile", lambda: "8", costs, str) == 2
        assert cheapest("tile", lambda: "9", costs, str) == 4
        made = made_choices()
    assert [(choice.reason, choice.is_usual) for choice in made] == [("it was faster", False), ("", True)]
    assert made_choices() == () and not is_tuned()


@pytest.mark.parametrize(
    "entries, text",
    [
        ({"tune": "soon"}, "give the seconds"),
        ({"tune": "-1"}, "give the seconds"),
        ({"tune": "5", "cpu": "haswell"}, "cannot be run here"),
        ({"tune": "5", "calibration": "nowhere.npz"}, "nowhere.npz, which is no file"),
        ({"tune": "5", "compile": "background"}, "jitonnx.compile cannot be 'background'"),
    ],
)
def test_what_tuning_cannot_go_with(entries: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        jitonnx.InferenceSession(layers(), options(**entries))
