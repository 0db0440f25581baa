"""`jitonnx diff OLD NEW`: how grave the change of a model's signature is, and which bump it asks for."""

from __future__ import annotations

import argparse
import json
from typing import Any

STATUS = {"none": 0, "compatible": 3, "breaking": 4}
"""The exit status by how the signature changed; 1 and 2 are those of errors."""


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "diff",
        help="tell whether a model's signature changed, and which bump of its version that asks for",
        description="The exit status is 0 where the signature did not change, 3 after a compatible change, 4 after a "
        "breaking one; 1 and 2 after an error.",
    )
    parser.add_argument("old", metavar="OLD", help="an ONNX file")
    parser.add_argument("new", metavar="NEW", help="an ONNX file that is to take its place")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON, for machines")
    parser.add_argument(
        "--bumped", action="store_true", help="only ask for the bump: the exit status is 0 if NEW has it, else 3"
    )
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> int:
    """Print the changes; the exit status tells how grave they are."""
    from jitonnx.tools.changes import compare
    from jitonnx.versioning import semver_of

    comparison = compare(options.old, options.new)
    if options.json:
        print(json.dumps({"old": options.old, "new": options.new, **comparison.as_json()}, indent=2))
    else:
        for change in comparison.changes:
            print(f"{change.severity}: {change.place}: {change.text}")
        for note in comparison.notes:
            print(f"note: {note}")
        old, new = (f"{semver_of(version) or version}" for version in comparison.versions)
        asked = "no bump" if comparison.bump == "none" else f"a bump of the {comparison.bump} version"
        found = "which it has" if comparison.is_bumped else "which it lacks"
        print(f"signature: {comparison.signature}; asks for {asked}, {found} (model_version {old} -> {new})")
    if options.bumped:
        return 0 if comparison.is_bumped else STATUS["compatible"]
    return STATUS[comparison.signature]
