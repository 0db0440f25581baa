"""`jitonnx check MODEL`: what is wrong with a model, without running it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitonnx.model.checker import Report


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("check", help="tell what is wrong with a model, without running it")
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON, for machines")
    parser.add_argument("--strict", action="store_true", help="warnings, too, make the exit status 1")
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> int:
    """Print the findings; the exit status is 1 if there are errors, with --strict also if there are warnings."""
    from jitonnx.model.checker import check_model

    report = check_model(options.model)
    print(_as_json(options.model, report) if options.json else _as_text(options.model, report))
    return 1 if report.errors or (options.strict and report.warnings) else 0


def _as_json(model: str, report: Report) -> str:
    content = {
        "model": model,
        "errors": report.errors,
        "warnings": report.warnings,
        "refused": report.refused,
        "findings": [finding.as_json() for finding in report],
    }
    return json.dumps(content, indent=2)


def _as_text(model: str, report: Report) -> str:
    lines = []
    for finding in report:
        lines.append(f"{finding.severity}: {finding.text}")
        lines.append(f"    in {finding.place} [{finding.rule}]")
        if finding.hint:
            lines.append(f"    hint: {finding.hint}")
    if len(report) > len(report.findings):
        lines.append(f"… and {len(report) - len(report.findings)} more")
    counts = [f"{count} {what}{'s' * (count > 1)}" for count, what in _counts(report) if count]
    lines.append(f"{model}: {' and '.join(counts) or 'nothing found'}")
    if report.errors and not report.refused:
        lines.append("A session runs it nevertheless: what is wrong says nothing of what the model computes.")
    return "\n".join(lines)


def _counts(report: Report) -> tuple[tuple[int, str], ...]:
    return (report.errors, "error"), (report.warnings, "warning")
