"""Defects: what is done where code of ours fails in itself. The model stays usable, and whoever runs it is told.

Whatever only makes a model faster (a rewrite, a fusion, native code for a node) can be done without: where it fails, it
is left out, and `survive` warns and asks for a report. Errors about the model or its inputs are none of these and pass.
Tests are strict: there a defect is raised.
"""

from __future__ import annotations

import os
import warnings

from jitonnx.errors import Error
from jitonnx.ir.errors import FunctionError, GraphError, InferenceError
from jitonnx.support.background_jobs import StoppedError

STRICT = "JITONNX_STRICT"
"""The environment variable that, set to 1, has defects raised."""


_survived = 0


class DefectWarning(RuntimeWarning):
    """Something of jitonnx failed in itself and was done another way: results are right, and may take longer."""


def is_defect(error: BaseException) -> bool:
    """Whether an error is one of our code, and not about the model, its inputs, the machine or the end of a run."""
    if not isinstance(error, Exception) or isinstance(error, (MemoryError, StoppedError)):
        return False
    return not isinstance(error, (Error, FunctionError, GraphError, InferenceError)) or "Bug:" in str(error)


def strict() -> bool:
    """Whether defects are to be raised."""
    return os.environ.get(STRICT) == "1"


def survive(error: Exception, doing: str, instead: str) -> None:
    """Go on without what failed. The error is raised where it is no defect, and where defects are asked for.

    doing: what failed, of the form "planning Conv node 'x'"; instead: what is done now, a clause.
    """
    if not is_defect(error) or strict():
        raise error
    global _survived
    _survived += 1
    warnings.warn(
        f"jitonnx failed while {doing}; {instead}. Results are right, runs may take longer. Please report this "
        f"with the model (or a part of it): {told(error)}",
        DefectWarning,
        stacklevel=2,
    )


def survived() -> int:
    """How many defects this process has survived."""
    return _survived


def told(error: BaseException) -> str:
    """A defect in a line: its type, text and place."""
    import traceback  # takes a start 3 ms, which has no defects

    while error.__cause__ is not None:  # the first one is the reason
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {str(error).replace('Bug: ', '')}{place}"
