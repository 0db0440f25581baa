"""docs/coverage.md: what is there of every operator, version and type of ONNX, from the registry and ONNX's schemas.

    python -m tests.ops.coverage        writes it

Whether a type is compiled is not declared but found out: a case of the operator's table, its elements converted to the
type, is loaded, rewritten and planned, which says what is left to the host.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import defs, helper

from jitonnx import errors
from jitonnx.engine.partition import host_nodes, without_kernel
from jitonnx.ir.computation.lowering import lower
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, GraphError
from jitonnx.ir.operator import Operator
from jitonnx.ir.schema import versions_of
from jitonnx.ir.strings import strings_of
from jitonnx.model import load
from jitonnx.ops.registry import FOLDERS, registry
from jitonnx.passes import optimize
from jitonnx.plan.make import make_plan
from jitonnx.plan.planner import UnplannableError
from tests.models.node_tests import node_tests
from tests.ops.harness import Case, build
from tests.ops.tables import all_cases
from tests.targets import named

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
HANDLED_BY_THE_LOADER = {
    ("", "Constant"): "a constant",
    ("ai.onnx.preview.training", "Gradient"): "the nodes of the derivative",
}
TRIED = 4
"""Cases of an operator that are tried for each type."""

HEAD = """# Coverage of ONNX

Written by `python -m tests.ops.coverage`; do not edit. What the schemas of the onnx package list, and what jitonnx does
with it. A node of an older version becomes one of the newest when a model is loaded; behind an older version stands
what was otherwise: attributes that are gone or mean something else now, with another default (`=`), inputs that came
later (`+`). Versions without a note differ in types or in words alone. What of an operator has kernels, in the types of
its first input, is *compiled*; the rest is *evaluated* on NumPy between native code. Types that a schema lists and
jitonnx refuses are *refused*.
"""

REASONS = """
## What has no kernel, and why

| what | why |
|---|---|
| strings, maps, sequences and optionals | they are Python's objects, which native code must not touch |
| complex numbers, floats of 8 bits and less, integers of 4 bits and less, as elements | what models do with them \
is to store weights, which are decoded when a model is loaded |
| ImageDecoder, TfIdfVectorizer | the first is Pillow's, the second looks n-grams up in a table: Python's |
| results whose rank is open, as of reductions over axes that are computed | strides and loops are planned, for a rank |
| Conv, ConvTranspose with an open number of taps; LSTM, GRU, RNN with an open number of units | kernels are written \
out for them; where weights of known sizes are computed, or the number of input channels or features is open, there is \
code |
| LSTM, GRU, RNN whose two directions have different activations | one time loop does both; no exporter writes these |
| Resize, linear and cubic: of double, and of integers of 32 and 64 bits | sums of float32 would not be exact; images \
are float or of 8 bits |
| GatherElements, ScatterElements, Pad of more than 8 axes, index tuples of more than 8 elements, GridSample over more \
than three axes, Col2Im and pooling as well | kernels have that many loops, and exporters \
write up to 6 axes |
| GroupQueryAttention over caches of 8-bit floats, or with q_norm_weight and k_norm_weight \
| refused when the model is loaded; its caches may be float, float16, bfloat16, int8, or integers \
of 4 bits, two a byte |
| GatherPacked of IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS | refused when the model is loaded: their elements stand in tables \
of ggml's, and other formats of GGUF are decoded |
| GatedDeltaNet, VarlenCausalConvWithState, CausalConvWithState, GatedAdd, MoE, QMoE, GroupQueryAttention with what \
onnxruntime 1.32 runs on GPUs alone (kernel_delta, state_window, input_channels, state_length, gate_weight, \
swiglu_limit_after_activation); query_seqlens with sliding_window_cache | refused when the model is loaded |
| operators that a user registers without an expression | they are Python functions |

A value of a type or rank with no kernel is evaluated on NumPy alone: what is before and behind it is compiled
([starting.md](starting.md), `jitonnx explain` says which nodes it is and why).
"""


KERNELS_OF = "1.32"
"""The version of onnxruntime whose kernels are listed."""

KERNELS = f"""
## Kernels of onnxruntime

What onnxruntime {KERNELS_OF} registers for CPUs, by `get_all_opkernel_def`. An operator is *here* if models may use it
in all the versions that have a kernel there.

| domain | operator | versions with a kernel | |
|---|---|---|---|
"""

LAYOUT = "onnxruntime's own optimiser alone writes it, for its layout of channels"
REFUSED = {
    **dict.fromkeys([("", "MemcpyFromHost"), ("", "MemcpyToHost")], "copies between devices, which sessions add"),
    **dict.fromkeys(
        [
            ("com.microsoft.nchwc", name)
            for name in ("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReorderInput")
        ],
        LAYOUT,
    ),
    **dict.fromkeys([("com.microsoft.nchwc", name) for name in ("ReorderOutput", "Upsample")], LAYOUT),
    **dict.fromkeys(
        [("com.microsoft", name) for name in ("AttnLSTM", "WordConvEmbedding")], "no exporter writes it any more"
    ),
    ("com.microsoft", "MatMulFpQ4"): "no exporter writes it any more: MatMulNBits took its place",
}
"""Why there is no declaration of an operator that onnxruntime has a kernel of."""


def kernels() -> dict[tuple[str, str], list[tuple[int, int]]]:
    """The versions that onnxruntime's kernels for CPUs are for, first and last, by domain and operator."""
    found: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for kernel in onnxruntime.capi.onnxruntime_pybind11_state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            found[kernel.domain, kernel.op_name].add(tuple(kernel.version_range))
    return {key: sorted(ranges) for key, ranges in sorted(found.items())}


def kernel_rows() -> Iterator[str]:
    """A line for each operator that onnxruntime has kernels of. ValueError where REFUSED is not what there is."""
    listed_kernels = kernels()
    unlisted = [key for key in REFUSED if key not in listed_kernels or registry.find(*key) is not None]
    if unlisted:
        raise ValueError(f"REFUSED has a reason for {unlisted}, which are here, or have no kernel")
    for key, ranges in listed_kernels.items():
        declared = key in HANDLED_BY_THE_LOADER or registry.find(*key) is not None
        missing = [first for first, last in ranges if not usable(key, first, last)] if declared else []
        if missing or (not declared and key not in REFUSED):
            raise ValueError(f"{key}: no declaration for version {missing or ranges}, and no reason in REFUSED")
        texts = [f"{first}-{last}" if last != first else str(first) for first, last in ranges]
        versions = ", ".join(texts).replace(f"-{np.iinfo(np.int32).max}", " on")
        state = "here" if declared else f"refused: {REFUSED[key]}"
        yield f"| {key[0] or 'ai.onnx'} | {key[1]} | {versions} | {state} |"


def usable(key: tuple[str, str], first: int, last: int) -> bool:
    """Whether a version of an operator, or one behind it that the kernel is for too, is declared."""
    signature = registry.signature(*key, first)
    return signature is not None and signature.version <= last


def kernel_section() -> str:
    """The section on onnxruntime's kernels: what the page has, where another version of onnxruntime is installed."""
    if not onnxruntime.__version__.startswith(f"{KERNELS_OF}."):
        return KERNELS + PAGE.read_text(encoding="utf-8").partition(KERNELS)[2]
    return KERNELS + "\n".join(kernel_rows()) + "\n"


def schemas() -> dict[tuple[str, str], dict[int, Any]]:
    """All of ONNX's schemas: by domain and name, by version."""
    found: dict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    for schema in defs.get_all_schemas_with_history():
        found[schema.domain, schema.name][schema.since_version] = schema
    return found


def page() -> str:
    """The whole page."""
    cases = cases_by_operator()
    lines, counts = [], [0, 0]
    for domain in FOLDERS:
        rows = [
            row(domain, name, versions, cases.get((domain, name), []), counts)
            for (place, name), versions in sorted(schemas().items())
            if place == domain
        ]
        if rows:
            head = "| operator | versions | compiled | evaluated | refused |\n|---|---|---|---|---|"
            lines.append(f"\n## {domain or 'ai.onnx'}\n\n{head}\n" + "\n".join(rows) + "\n")
    total = f"\nOf {counts[1]} operator versions {counts[0]} are loaded.\n"
    return HEAD + total + "".join(lines) + REASONS + kernel_section()


def row(domain: str, name: str, versions: Mapping[int, Any], cases: Sequence[Case], counts: list[int]) -> str:
    """An operator's line; adds to the numbers of versions that are loaded and of all."""
    declaration = registry.find(domain, name)
    known = sorted(version for version, schema in versions.items() if not schema.deprecated)
    counts[1] += len(versions)
    if (domain, name) in HANDLED_BY_THE_LOADER:
        counts[0] += len(versions)
        return f"| {name} | {listed(versions, known)} | {HANDLED_BY_THE_LOADER[domain, name]}, when loaded | | |"
    if declaration is None:
        return f"| {name} | {listed(versions, known)} | | | **missing** |"
    counts[0] += len(versions)  # a version that ONNX dropped the operator in is refused, as it has to be
    found: dict[str, list[str]] = {"compiled": [], "evaluated": [], "refused": []}
    if cases:
        for dtype in first_types(versions[known[-1]]):
            found[state(dtype, cases)].append(dtype.text)
    if not any(found.values()):
        found[state_as_a_whole(declaration, cases)].append("its graphs" if declaration.bodies else "all")
    return f"| {name} | {listed(versions, known)} | {' | '.join(', '.join(entry) for entry in found.values())} |"


def listed(versions: Mapping[int, Any], known: Sequence[int]) -> str:
    """The versions, newest first, with what the older ones had otherwise."""
    if not known:
        return "; ".join(map(str, sorted(versions, reverse=True)))
    newest = versions[known[-1]]
    parts = []
    for version in sorted(versions, reverse=True):
        schema = versions[version]
        note = "removed" if schema.deprecated else ", ".join(differences(schema, newest))
        parts.append(f"{version}: {note}" if note else str(version))
    return "; ".join(parts)


def differences(old: Any, new: Any) -> Iterator[str]:
    """What an older schema has otherwise, apart from types."""
    if old is new:
        return
    for name, attribute in old.attributes.items():
        if name not in new.attributes:
            yield f"`{name}`"
        elif default(attribute) != default(new.attributes[name]):
            yield f"`{name}={default(attribute)}`"
        elif attribute.type != new.attributes[name].type:
            yield f"`{name}` {attribute.type.name.lower()}"
    for entry in new.inputs[len(old.inputs) :]:
        if entry.name in old.attributes:
            continue
        yield f"+`{entry.name}`"


def default(attribute: Any) -> Any:
    """An attribute's default as text, None without one."""
    if not attribute.default_value.name:
        return "required" if attribute.required else None
    value = helper.get_attribute_value(attribute.default_value)
    value = value.decode() if isinstance(value, bytes) else value
    return f"{value:.7g}" if isinstance(value, float) else value


def first_types(schema: Any) -> list[DType]:
    """The element types of tensors that the first input may have, in ONNX's order."""
    if not schema.inputs:
        return []
    texts = {
        text.removeprefix("tensor(").removesuffix(")") for text in schema.inputs[0].types if text.startswith("tensor(")
    }
    return [dtype for dtype in DType if dtype.text in texts]


def cases_by_operator() -> dict[tuple[str, str], list[Case]]:
    """The cases of each operator's newest version."""
    found: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in all_cases():
        declaration = registry.find(case.domain, case.operator)
        if declaration is not None and case.opset >= versions_of(declaration)[-1]:
            found[case.domain, case.operator].append(case)
    return found


def state_as_a_whole(declaration: type[Operator], cases: Sequence[Case]) -> str:
    """What becomes of an operator without inputs or a table of cases: of one that runs graphs these are compiled; of
    others the models say it that ONNX tests them with."""
    if declaration.bodies:
        return "compiled"
    if cases:
        return state_of(build(cases[0]))
    for test in node_tests().values():
        nodes = test.model.graph.node
        if len(nodes) == 1 and (nodes[0].domain, nodes[0].op_type) == (declaration.domain, declaration.name):
            return state_of(test.model)
    return "evaluated"


def state(dtype: DType, cases: Sequence[Case]) -> str:
    """What becomes of an operator of a type: compiled if any of its first cases is, not counting those on nothing."""
    states = set()
    whole = [case for case in cases if case.inputs and all(x is None or x.size for x in case.inputs)]
    given = [case for case in whole if case.inputs[0] is not None]
    same = [case for case in given if case.inputs[0].dtype == dtype.numpy]
    for case in (*same[:TRIED], *given[:TRIED]):
        alike = converted(case, dtype)
        integers = tuple(at for at, x in enumerate(alike.inputs) if at and x is not None and x.dtype == np.int64)
        states.update(state_of(build(replace(alike, constants=known))) for known in {alike.constants, integers})
        if "compiled" in states:
            break
    return next(one for one in ("compiled", "evaluated", "refused") if one in states or one == "refused")


def converted(case: Case, dtype: DType) -> Case:
    """The case with its first input, and others of the same type variable, in another type."""
    schema = defs.get_schema(case.operator, case.opset, case.domain)
    first = case.inputs[0]
    names = [entry.type_str for entry in schema.inputs]
    names += names[-1:] * (len(case.inputs) - len(names))
    inputs = tuple(
        x if x is None or names[at] != names[0] or x.dtype != first.dtype else as_type(x, dtype)
        for at, x in enumerate(case.inputs)
    )
    attributes = case.attributes
    if case.operator == "BitCast":  # to a type of as many bits
        attributes = {"to": dtype}
    return replace(case, inputs=inputs, attributes=attributes, expected=None)


def as_type(x: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype is DType.STRING:
        return x if x.dtype == object else strings_of([str(element) for element in x.ravel().tolist()], x.shape)
    if x.dtype == object:
        x = np.arange(x.size).reshape(x.shape)
    with np.errstate(all="ignore"):
        return x.astype(np.float32).astype(dtype.numpy) if dtype.itemsize == 1 else x.astype(dtype.numpy)


def state_of(model: Any) -> str:
    """What becomes of a model."""
    try:
        graph = load(model.SerializeToString()).graph
    except (errors.Error, ValueError, TypeError, NotImplementedError):
        return "refused"
    optimize(graph)
    return "compiled" if is_compiled(graph) else "evaluated"


def is_compiled(graph: Graph) -> bool:
    """Whether nothing of a graph is left to the host."""
    if host_nodes(graph) or without_kernel(lower(graph)):
        return False
    try:
        make_plan(lower(graph), named("haswell"))
    except (UnplannableError, GraphError):
        return False
    return True


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
