"""Tuning by measurement: kernels whose estimated costs are close are timed in place, in the model's own runs.

`tune` plans a model as usual and notes what was chosen for what (`jitonnx.target.choosing`). Then it compiles the model
with other candidates, of many choices at once, but of no two that a call has in common (`_rounds`), runs both in turns
and compares what the calls of each choice take. What was measured to be faster is settled, and kept in the kernel cache
by problem, core and threads, so that another model with the same layers measures less.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.engine.programs import shape_of
from jitonnx.ir.defects import survive
from jitonnx.ir.extract import specialise
from jitonnx.ir.graph import Graph
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.support.records import NamedTuple
from jitonnx.support.versions import VERSION, versions
from jitonnx.target.choosing import Choice, Measured, Problem

GAIN = 0.03
"""What a candidate has to save of the time of the one that is estimated to be best; less is noise."""
SURE_GAIN = 0.1
"""What one has to save where all that save `GAIN` do not make the whole faster: each further kernel is code to load."""
WHOLE_GAIN = 0.005
"""What the whole run has to save."""
TURNS, RUNS = 3, 3
"""How often two ways take turns, and runs in each, at least: the least time of all counts."""
TURN_SECONDS, MOST_RUNS = 0.03, 50
"""About how long a turn lasts, with more runs of short models, up to so many."""
_FORMAT = "tuning 1"


class Tuned(NamedTuple):
    """The result of tuning a model.

    measured: what is settled. share: the time of a run over that without tuning; None where nothing was measured now.
    comparisons: what was: each choice, with the times of its candidates over that of the one estimated to be best.
    """

    measured: tuple[Measured, ...]
    share: float | None
    comparisons: tuple[tuple[Choice, Mapping[str, float]], ...]

    def __str__(self) -> str:
        others = sum(measured.taken != measured.estimated for measured in self.measured)
        text = f"tuned: of {len(self.measured)} choices {others} are others than the estimated best"
        return text + ("" if self.share is None else f"; a run takes {self.share:.3f} of the time")


def tune(
    graph: Graph,
    settings: Settings,
    cache: KernelCache,
    feeds: Callable[[Mapping[str, Sequence[int | None]]], Sequence[np.ndarray]],
    seconds: float,
) -> Tuned:
    """Measures the choices of a model's plan for about so many seconds: where that is not enough, the candidates that
    are estimated to be worst go without.

    graph: as it was loaded; it stays as it is. settings: what the model is to be compiled with. feeds: gives inputs
    to run it on, for the sizes that operators tell of inputs by name (None: any).
    """
    end = time.perf_counter() + seconds
    usual = _Variant(graph, settings, cache, ())
    inputs = feeds(usual.engine.usual_sizes)
    calls = [[choice for choice in made if len(choice.costs) > 1] for made in usual.choices(inputs)]
    choices = {choice.problem: choice for made in calls for choice in made}
    keys = {problem: _key(usual.engine, problem) for problem in choices}
    known = {problem: kept for problem in choices if (kept := _known(cache, problem, keys[problem])) is not None}
    shares: dict[Problem, dict[str, float]] = {problem: {} for problem in choices if problem not in known}
    measured_calls = [[choice for choice in made if choice.problem in shares] for made in calls]
    for tried in _rounds(measured_calls):
        began = time.perf_counter()
        try:
            variant = _Variant(graph, settings, cache, [Measured(*each) for each in tried.items()])
            found = _compared(usual, variant, inputs)
        except Exception as error:
            survive(error, "trying other kernels", "those that are estimated to be best stay")
            continue
        for problem, text in tried.items():
            if problem in found:
                shares[problem][text] = found[problem]
        now = time.perf_counter()
        if now + (now - began) > end:  # the next candidates take as long
            break
    comparisons = tuple((choices[problem], measured) for problem, measured in shares.items() if measured)
    settled = {choice.problem: _settled(choice, measured) for choice, measured in comparisons}
    if not settled:
        return Tuned(tuple(known.values()), None, ())
    # What is faster beside others' usual ways may not be beside what is taken of these.
    together = _Variant(graph, settings, cache, [*known.values(), *settled.values()])
    for problem, part in _compared(usual, together, inputs).items():
        if problem in settled and part > 1 - GAIN:
            settled[problem] = settled[problem]._replace(taken=settled[problem].estimated)
    share = 1.0
    for least in (GAIN, SURE_GAIN):
        for problem, measured in settled.items():
            if shares[problem].get(measured.taken, 1.0) > 1 - least:
                settled[problem] = measured._replace(taken=measured.estimated)
        if all(measured.taken == measured.estimated for measured in settled.values()):
            break
        share = _share(usual, _Variant(graph, settings, cache, (*known.values(), *settled.values())), inputs)
        if share < 1 - WHOLE_GAIN:
            break
    every = (*known.values(), *settled.values())
    if share >= 1 - WHOLE_GAIN and any(measured.taken != measured.estimated for measured in settled.values()):
        return Tuned((), 1.0, comparisons)
    for problem, measured in settled.items():
        cache.put(keys[problem], json.dumps(measured[1:]).encode())
    return Tuned(every, min(share, 1.0), comparisons)


def _rounds(calls: Sequence[Sequence[Choice]]) -> Iterator[dict[Problem, str]]:
    """Candidates to be tried together, by problem: each other than the one taken once, and in no round two of choices
    that a call has in common, whose times could not be told apart. calls: what was chosen for each."""
    left = {
        choice.problem: [text for text in choice.costs if text != choice.taken] for made in calls for choice in made
    }
    beside: defaultdict[Problem, set[Problem]] = defaultdict(set)
    for made in calls:
        for choice in made:
            beside[choice.problem].update(other.problem for other in made)
    while any(left.values()):
        tried: dict[Problem, str] = {}
        for problem in sorted(left, key=lambda problem: -len(left[problem])):
            if left[problem] and not beside[problem] & tried.keys():
                tried[problem] = left[problem].pop(0)
        yield tried


class _Variant:
    """The model compiled with some choices settled."""

    def __init__(self, graph: Graph, settings: Settings, cache: KernelCache, measured: Sequence[Measured]) -> None:
        copy = specialise(graph, [value.type for value in graph.inputs], graph.assumptions.apart())
        choices = replace(settings.choices, measured=tuple(measured))
        self.engine = Engine(copy, replace(settings, choices=choices), cache)

    def choices(self, inputs: Sequence[np.ndarray]) -> Iterator[tuple[Choice, ...]]:
        """What was chosen for each call of a run of these inputs."""
        engine = self._serving(inputs)
        for code in engine.codes:
            for call in code.plan.calls:
                yield call.choices

    def seconds(self, inputs: Sequence[np.ndarray], runs: int = RUNS) -> tuple[dict[Problem, float], float]:
        """What the calls of each choice take in a run, the least of some, and what all calls do."""
        every = self.engine.times(inputs, runs)
        found: defaultdict[Problem, float] = defaultdict(float)
        whole = 0.0
        for step in every[0].kernels:
            if not all(step in run.kernels for run in every):
                continue
            times = np.stack([run.kernels[step] for run in every])
            whole += float(times.sum(1).min())
            for call, taken in zip(step.compiled.plan.calls, times.min(0).tolist(), strict=True):
                for problem in {choice.problem for choice in call.choices}:
                    found[problem] += taken
        return found, whole

    def _serving(self, inputs: Sequence[np.ndarray]) -> Engine:
        return self.engine.serving(tuple([shape_of(array) for array in inputs]))


def _in_turns(
    usual: _Variant, other: _Variant, inputs: Sequence[np.ndarray], turns: int
) -> tuple[tuple[dict[Problem, float], float], ...]:
    """The least of what `_Variant.seconds` gives of both, which take turns."""
    found: tuple[list[tuple[dict[Problem, float], float]], ...] = ([], [])
    _, run = usual.seconds(inputs)
    runs = max(RUNS, min(MOST_RUNS, int(TURN_SECONDS / max(run, 1e-9))))
    for _ in range(turns):
        for variant, each in zip((usual, other), found, strict=True):
            each.append(variant.seconds(inputs, runs))
    return tuple(
        ({problem: min(of[problem] for of, _ in each) for problem in each[0][0]}, min(whole for _, whole in each))
        for each in found
    )


def _compared(usual: _Variant, other: _Variant, inputs: Sequence[np.ndarray]) -> dict[Problem, float]:
    """The time of each choice's calls in the other variant over that in the usual one."""
    (before, _), (after, _) = _in_turns(usual, other, inputs, TURNS)
    return {problem: after[problem] / taken for problem, taken in before.items() if taken and problem in after}


def _share(usual: _Variant, other: _Variant, inputs: Sequence[np.ndarray]) -> float:
    """The time of all calls of a run of the other variant over that of the usual one."""
    (_, before), (_, after) = _in_turns(usual, other, inputs, 2 * TURNS)
    return after / before if before else 1.0


def _settled(choice: Choice, shares: Mapping[str, float]) -> Measured:
    """What measuring says of a choice. shares: of candidates, the time over that of the one taken."""
    best = min(shares, key=shares.__getitem__)
    taken = best if shares[best] < 1 - GAIN else choice.taken
    others = ", ".join(f"{text} {share:.2f} (estimated {choice.costs[text]:.2f})" for text, share in shares.items())
    reason = f"measured against {choice.taken}: {others}"
    return Measured(choice.problem, taken, choice.taken, reason)


def _key(engine: Engine, problem: Problem) -> str:
    """What a problem is kept under: what was measured on one core says nothing of another, or of other code of ours."""
    return repr((_FORMAT, VERSION, versions(), engine.target, engine.settings.threads, problem))


def _known(cache: KernelCache, problem: Problem, key: str) -> Measured | None:
    kept = cache.get(key)
    return None if kept is None else Measured(problem, *json.loads(kept))
