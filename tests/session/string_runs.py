"""`python -m tests.session.string_runs FILE`: models on strings, run again and again, in a process of their own.

FILE is a pickled list of models with feeds. Every run gets strings made for it; what it gives is compared with an
evaluation on NumPy; and the references to strings, fed and constant, have to be as many behind the runs as before.
"""

import gc
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load

RUNS = 300
WARM = 20
"""Runs before references to constants are counted."""


def fresh(array: Any, number: int, varied: bool) -> Any:
    """The array with strings that nobody else holds; varied: others than those of the run before."""
    if array.dtype != object:
        return array
    made = np.empty(array.shape, object)
    for place, text in np.ndenumerate(array):
        made[place] = f"{number}:{text}" if varied and text else "".join(["\0", text])[1:]
    return made


def strings_of(arrays: Sequence[Any]) -> Iterator[str]:
    """The strings in arrays of objects that are objects of their own: Python has one each of the shortest."""
    for array in arrays:
        if array.dtype == object:
            yield from (text for text in array.flat if len(text) > 1)


def counts(arrays: Sequence[Any]) -> list[int]:
    """How many references there are to each of the strings."""
    return [sys.getrefcount(text) for text in strings_of(arrays)]


def check(model: bytes, feeds: Mapping[str, Any], varied: bool) -> None:
    """AssertionError unless all runs are right and leave as many references as there were."""
    session = jitonnx.InferenceSession(model)
    graph = load(model).graph
    evaluated = {value.name for value in graph.inputs} >= feeds.keys()
    constant = []
    for number in range(RUNS):
        given = {name: fresh(array, number, varied) for name, array in feeds.items()}
        before = counts(list(given.values()))
        outputs = session.run(None, given)
        if evaluated and number % 10 == 0:
            for output, known in zip(outputs, evaluate(graph, given), strict=True):
                assert output.dtype == known.dtype and output.shape == known.shape, (output, known)
                assert repr(output.tolist()) == repr(known.tolist()), (output, known)
            del known
        assert all(type(text) is str for text in strings_of(outputs))
        if not feeds.keys() - {"x"}:  # all that comes out is constant
            constant.append(counts(outputs))
        for output in outputs:
            output.fill("gone" if output.dtype == object else 0)  # which concerns nobody else
        del outputs, output
        assert counts(list(given.values())) == before, f"references to what was fed: {before}"
    if constant:
        assert constant[WARM] == constant[-1], f"references to constants: {constant[WARM]}, {constant[-1]}"


def main() -> None:
    """Run all models of the file."""
    for name, model, feeds, varied in pickle.loads(Path(sys.argv[1]).read_bytes()):
        try:
            check(model, feeds, varied)
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error
    gc.collect()


if __name__ == "__main__":
    main()
