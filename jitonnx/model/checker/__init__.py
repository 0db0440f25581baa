"""Whether a model keeps to ONNX's rules: all that can be told before it is run, with place, severity and hint.

    report = jitonnx.model.checker.check_model("model.onnx")
    for finding in report:
        print(finding.severity, finding.place, finding.text, finding.hint)

The rules stand in `model/checker/rules.py`; `model/checker/walk.py` goes through the messages of a model and asks the
modules beside it, each of a subject. A session walks in the same way before it builds anything, and refuses what
`model/checker/rules.py` says it refuses.

Our own, as `onnx.checker` ends at the first fault, which it names without a hint, and costs a start 135 ms of import.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from jitonnx.model.checker.report import Finding, Place, Report

if TYPE_CHECKING:
    from jitonnx.ops.registry import Registry

__all__ = ["Finding", "Place", "Report", "check_model"]


def check_model(
    model: Any, *, external_data_folder: str | os.PathLike[str] | None = None, registry: Registry | None = None
) -> Report:
    """Everything that is wrong with a model.

    model: a path, the file's bytes, an open binary file, or a ModelProto of jitonnx.proto or of the onnx package.
    external_data_folder: where the locations of external data start; by default the folder of the path.
    registry: the operators that the model may use.

    A model that cannot be read is an error (NoSuchFile, InvalidProtobuf), and no report.
    """
    from jitonnx.model.load import report_of

    return report_of(model, external_data_folder=external_data_folder, registry=registry)
