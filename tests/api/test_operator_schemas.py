"""Operators as data: signatures are onnxruntime's wherever both know a version, and what runs is told."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
from onnxruntime.capi import _pybind_state as theirs

from jitonnx.capi import _pybind_state as ours
from tests.ops.coverage import KERNELS_OF


def told(schema: Any) -> dict[str, Any]:
    return {
        "counts": (schema.min_input, schema.max_input, schema.min_output, schema.max_output),
        "attributes": {name: (int(one.type), one.required) for name, one in schema.attributes.items()},
        "parameters": [
            (one.name, one.typeStr, one.types, int(one.option), one.isHomogeneous)
            for one in (*schema.inputs, *schema.outputs)
        ],
    }


def test_signatures() -> None:
    """Those of com.microsoft's operators are of the version whose kernels docs/coverage.md lists: a newer one adds
    inputs and attributes."""
    known = {(one.domain, one.name, one.since_version): one for one in ours.get_all_operator_schema()}
    common = [one for one in theirs.get_all_operator_schema() if (one.domain, one.name, one.since_version) in known]
    assert len(common) > 750
    older = onnxruntime.__version__.startswith(f"{KERNELS_OF}.")
    for one in common if older else [each for each in common if each.domain != "com.microsoft"]:
        same = known[one.domain, one.name, one.since_version]
        assert told(same) == told(one), (one.domain, one.name, one.since_version)
        constraints = {each.type_param_str: set(each.allowed_type_strs) for each in same.type_constraints}
        if not any("map" in text for each in one.type_constraints for text in each.allowed_type_strs):
            wanted = {each.type_param_str: set(each.allowed_type_strs) for each in one.type_constraints}
            assert all(
                wanted[name] == types for name, types in constraints.items()
            )  # some stand for no input or output


def test_members() -> None:
    for name in ("get_all_operator_schema", "get_all_opkernel_def"):
        them, us = (getattr(package, name)()[0] for package in (theirs, ours))
        assert {each for each in dir(them) if not each.startswith("_")} <= set(dir(us))
    assert isinstance(ours.get_all_operator_schema()[0], ours.schemadef.OpSchema)
    assert isinstance(ours.get_all_opkernel_def()[0], ours.opkernel.KernelDef)


def test_what_runs() -> None:
    kernels = {(one.domain, one.op_name, one.version_range): one for one in ours.get_all_opkernel_def()}
    cast = [versions for domain, name, versions in kernels if (domain, name) == ("", "Cast")]
    assert cast[-1][1] == 2**31 - 1 and {(13, 18), (19, 20)} <= set(cast)
    assert "tensor(float)" in kernels["", "Add", (14, 2**31 - 1)].type_constraints["T"]
    assert all(one.provider == "CPUExecutionProvider" for one in kernels.values())


def test_kernels_of_a_library() -> None:
    for package in (theirs, ours):
        with pytest.raises(RuntimeError, match="No devices found for EP 'x'"):
            package.get_registered_ep_kernel_defs("x")
