"""Open sizes for which what is usual does not hold: parts of one element, starts beyond an axis, nothing at all.

Each model is run by kernels under guard pages (`tests.guards`), rewritten and not, and compared with onnxruntime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import jitonnx
from jitonnx.ir.computation.computations import Slice
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.defects import STRICT, DefectWarning
from jitonnx.plan import tensor as tensors
from tests import guards

LARGEST, SMALLEST = 2**63 - 1, -(2**63)
Feeds = Sequence[dict[str, np.ndarray]]


def parsed(text: str, **initializers: object) -> bytes:
    """A model of opset 18 in ONNX's textual syntax: `(inputs) => (outputs) { nodes }`."""
    read = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> g {text}')
    read.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in initializers.items())
    return read.SerializeToString()


def ramp(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.int64).astype(dtype).reshape(shape)


def check(source: bytes, feeds: Feeds) -> None:
    """Sessions with rewrites and without give what onnxruntime gives, for the feeds in turn, within their memory.

    Guard pages lie behind the memory with rewrites, in front of it without.
    """
    plain = onnxruntime.SessionOptions()
    plain.log_severity_level = 4
    peer = onnxruntime.InferenceSession(source, plain, providers=["CPUExecutionProvider"])
    wanted = [peer.run(None, feed) for feed in feeds]

    def run() -> list[list[list[np.ndarray]]]:
        found = []
        for level in (99, 0):
            with guards.guarded(in_front=level == 0):
                options = jitonnx.SessionOptions()
                options.graph_optimization_level = jitonnx.GraphOptimizationLevel(level)
                session = jitonnx.InferenceSession(source, options)
                found.append([session.run(None, feed) for feed in feeds])
        return found

    for found in guards.survives(run):
        for feed, ours, theirs in zip(feeds, found, wanted, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                shapes = {name: array.shape for name, array in feed.items()}
                assert one.shape == other.shape and one.dtype == other.dtype, shapes
                np.testing.assert_allclose(one, other, 1e-5, 1e-5, err_msg=str(shapes))


@pytest.mark.parametrize("divisor", [-4, -2, 2, 3])
def test_sizes_and_their_differences_are_divided_towards_zero(divisor: int) -> None:
    text = "(float[a,b] x) => (int64[2] y, int64[2] z) { s = Shape(x) y = Div(s, d) t = Sub(s, five) z = Div(t, d) }"
    sizes = ((9, 31), (2, 33), (3, 8), (7, 6), (2, 2), (1, 9))
    numbers = {"d": np.array([divisor, divisor], np.int64), "five": np.array([5, 5], np.int64)}
    check(parsed(text, **numbers), [{"x": ramp(*size)} for size in sizes])


@pytest.mark.parametrize("node", ["Add(a, b)", "Mul(b, a)", "Where(t, b, a)", "Where(t, a, b)"])
def test_a_last_part_of_one_element_is_repeated(node: str) -> None:
    text = f"(float[n] x) => (float[m] y) {{ a, b = Split<axis=0, num_outputs=2>(x) y = {node} }}"
    check(parsed(text, t=np.array([True])), [{"x": ramp(n)} for n in (4, 3, 6, 3, 2)])


def test_a_last_part_of_one_column_is_repeated() -> None:
    text = "(float[m,n] x) => (float[m,k] y) { a, b = Split<axis=1, num_outputs=2>(x) y = Mul(a, b) }"
    check(parsed(text), [{"x": ramp(2, n)} for n in (4, 3, 3)])


def test_a_part_of_one_element_is_repeated_in_several_regions() -> None:
    text = """(float[n] x) => (float[m] y, float[k] z) {
        a, b, c = Split<axis=0, num_outputs=3>(x)  p = Mul(a, c)
        y = Tanh(p)  s = Softmax<axis=0>(p)  z = Sub(c, s) }"""
    check(parsed(text), [{"x": ramp(n)} for n in (9, 5, 6, 5)])


def test_a_last_part_of_one_matrix_is_repeated() -> None:
    text = "(float[m,2,2] x) => (float[k,2,2] y) { a, b = Split<axis=0, num_outputs=2>(x) y = MatMul(a, b) }"
    check(parsed(text), [{"x": ramp(n, 2, 2)} for n in (4, 3, 3)])


def test_a_rest_of_one_element_is_expanded() -> None:
    text = """(float[n] x) => (float[m] y) {
        a, b = Split<axis=0, num_outputs=2>(x)  s = Shape(a)  y = Expand(b, s) }"""
    check(parsed(text), [{"x": ramp(n)} for n in (4, 3, 6, 3)])


@pytest.mark.parametrize(
    "text",
    [
        "(int64[2,n] x) => (int64[q] y) { u = Slice(x, s, e, a) y = Gather<axis=0>(u, i) }",
        "(int64[2,n] x) => (int64[p,q] y) { u = Slice(x, s, all, a) y = Slice(u, z, three, a) }",
        "(int64[2,n] x) => (int64[p,q] y) { u = Transpose<perm=[1,0]>(x) y = Slice(u, s, e, z) }",
        "(int64[2,n] x) => (int64[p,q] y) { u = Slice(x, s, all, a) y = Slice(u, z, a, z) }",
        "(int64[2,n] x) => (int64[p,q] y) { u = Slice(x, s, all, a, three) y = Slice(u, a, all, a) }",
        "(int64[2,n] x) => (int64[p,q] y) { u = Slice(x, last, s, a, back) y = Transpose<perm=[1,0]>(u) }",
    ],
)
def test_a_slice_begins_before_the_first_element(text: str) -> None:
    numbers = {"s": -100, "e": 7, "all": LARGEST, "z": 0, "a": 1, "three": 3, "last": -2, "back": -2}
    bounds = {name: np.array([number], np.int64) for name, number in numbers.items() if f" {name}" in text}
    if "Gather" in text:
        bounds["i"] = np.int64(0)
    check(parsed(text, **bounds), [{"x": ramp(2, n, dtype="i8") + 1000} for n in (120, 65, 102, 0)])


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (-2, SMALLEST, -1),
        (-9, SMALLEST, -2),
        (0, SMALLEST, -1),
        (-1, -4, -1),
        (5, 1, -3),
        (-3, -1, -1),
        (LARGEST, 0, -1),
    ],
)
def test_a_negative_step(start: int, end: int, step: int) -> None:
    text = "(int64[n] x) => (int64[k] y) { y = Slice(x, s, e, a, t) }"
    bounds = {
        "s": np.array([start], np.int64),
        "e": np.array([end], np.int64),
        "a": np.array([0], np.int64),
        "t": np.array([step], np.int64),
    }
    check(parsed(text, **bounds), [{"x": ramp(n, dtype="i8")} for n in (7, 1, 3, 2, 0, 12)])


# ---------------------------------------------------------------------------------------------- no elements


def test_a_product_of_views_without_elements() -> None:
    text = "(float[n] x) => (float y) { v = Slice(x, s, e) y = MatMul(v, v) }"
    check(
        parsed(text, s=np.array([2], np.int64), e=np.array([2**62], np.int64)),
        [{"x": ramp(n)} for n in (5, 1, 2, 0, 3)],
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_a_part_without_elements_is_padded(axis: int) -> None:
    text = f"(int64[d,2] x) => (int64[a,b] y) {{ p, q, r = Split<axis={axis}>(x, n) y = Pad(q, w) }}"
    source = parsed(text, n=np.array([1, 0, 1], np.int64), w=np.array([0, 1, 0, 1], np.int64))
    check(source, [{"x": ramp(2 if axis == 0 else n, 2, dtype="i8")} for n in (3, 1)])


@pytest.mark.parametrize(
    "nodes",
    [
        "y = ReduceSum(v)",
        "y = Softmax(v)",
        "t = Transpose<perm=[1,0]>(v) y = MatMul(t, v)",
        "y = Concat<axis=0>(v, x)",
        "y = Gemm<transA=1>(v, v)",
        "y = CumSum(v, z)",
        "y = Add(v, w)",
        "y = LayerNormalization<axis=1>(v, w)",
    ],
)
def test_a_view_without_elements_is_read(nodes: str) -> None:
    text = f"(float[n,3] x) => (float[a,b] y) {{ v = Slice(x, s, e) {nodes} }}"
    given = {"s": np.array([2], np.int64), "e": np.array([2**62], np.int64), "z": np.int64(0), "w": ramp(3)}
    source = parsed(text, **{name: array for name, array in given.items() if f", {name}" in text})
    check(source, [{"x": ramp(n, 3)} for n in (5, 1, 2, 0, 3)])


# ---------------------------------------------------------------------------------------------- wrong plans


def test_a_wrong_plan_never_reads_beyond_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is wrong for some sizes is seen to be so; these get one of their own, and a report is asked for."""
    monkeypatch.delenv(STRICT)
    monkeypatch.setattr(Lowering, "_with_ones", lambda self, x, shape: x)
    text = "(float[m,n] x) => (float[m,k] y) { a, b = Split<axis=1, num_outputs=2>(x) y = Mul(a, b) }"
    session = jitonnx.InferenceSession(parsed(text))
    with pytest.warns(DefectWarning, match=r"Please report .*step 0 \(region Mul\)") as warned:
        for n in (4, 3, 3, 6):
            x = ramp(2, n)
            (y,) = session.run(None, {"x": x})
            np.testing.assert_array_equal(y, x[:, : (n + 1) // 2] * x[:, (n + 1) // 2 :])
    assert len(warned) == 1


def test_a_kernel_that_would_go_beyond_its_operands_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = tensors.apply_view

    def beyond(view: Any, tensor: tensors.StridedTensor) -> tensors.StridedTensor | None:
        seen = apply(view, tensor)
        return replace(seen, offset=seen.offset + 3) if isinstance(view, Slice) and seen is not None else seen

    monkeypatch.setattr("jitonnx.plan.make.apply_view", beyond)
    text = "(float[2,4] x) => (float[2,2] y) { v = Slice(x, s, e) y = Tanh(v) }"
    session = jitonnx.InferenceSession(parsed(text, s=np.array([0, 2], np.int64), e=np.array([2, 4], np.int64)))
    np.testing.assert_allclose(session.run(None, {"x": ramp(2, 4)})[0], np.tanh(ramp(2, 4)[:, 2:]), 1e-6)
    assert "please report" in session.engine.schedule.explained()


@pytest.mark.parametrize("n", [1, 3, 4, 120])
def test_slices_that_assume_what_contradicts(n: int) -> None:
    """The first leaves 4 elements of an axis, the second begins 100 from its end, and both are behind a reshape."""
    nodes = "u = Unsqueeze(x, two) z = Slice(u, three, four, both) y = Slice(z, hundred, last, one)"
    constants = {"two": [2, 0], "three": [-3, -3], "four": [4, 4], "both": [1, 3], "hundred": [-100], "last": [-1]}
    source = parsed(f"(float[n,n,1] x) => (float[a,b,c,d,e] y) {{ {nodes} }}", **constants, one=[1])
    check(source, [{"x": ramp(n, n, 1)}])


@pytest.mark.parametrize("factor", [1091132459785027061, -(2**62)])
def test_what_is_made_of_sizes_and_is_none(factor: int) -> None:
    """Products of sizes and large numbers wrap round, as those of other integers do."""
    source = parsed("(float[2,n] x) => (int64[2] y) { s = Shape(x) y = Mul(s, factor) }", factor=factor)
    check(source, [{"x": ramp(2, n)} for n in (32, 1, 0)])


@pytest.mark.parametrize("added", [-9118561487834887916, LARGEST, SMALLEST, SMALLEST + 1])
@pytest.mark.parametrize("nodes", ["t = Add(s, added) u = Neg(t) y = Mul(s, u)", "t = Sub(added, s) y = Sub(t, s)"])
def test_sums_of_sizes_that_are_none(nodes: str, added: int) -> None:
    """Sums of sizes and large numbers wrap round, too."""
    source = parsed(f"(float[2,n] x) => (int64[2] y) {{ s = Shape(x) {nodes} }}", added=added)
    check(source, [{"x": ramp(2, n)} for n in (4, 1, 0, 9)])


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Expand(f, three) z = Expand(f, two)",  # of one element each, which is not taken for granted
        "y = Slice(f, before, four, zero) z = Add(f, row)",  # of 17, where 100 and more are taken for granted
        "y = Add(f, row) s = Slice(f, before, four, zero) z = Mul(s, s)",
    ],
)
@pytest.mark.parametrize("told", ["r = NonZero(x) m = Reshape(r, all)", "m, i = Unique<sorted=1>(x)"])
def test_what_a_run_tells_is_assumed_to_be_what_contradicts(told: str, nodes: str) -> None:
    text = f"(float[n] x) => (float[a] y, float[b] z) {{ {told} f = Cast<to=1>(m) {nodes} }}"
    numbers = {"three": [3], "two": [2], "before": [-100], "four": [4], "zero": [0], "all": [-1]}
    constants = {name: np.array(number, np.int64) for name, number in numbers.items()}
    sizes = (1, 1) if "Expand" in nodes else (17, 1, 17)
    check(parsed(text, row=ramp(17), **constants), [{"x": ramp(n)} for n in sizes])


@pytest.mark.parametrize("sizes", [(4, 0, 4, 1, 7, 4), (1, 4, 2, 8, 8)])
@pytest.mark.parametrize(
    "nodes",
    [
        "v = NonZero(x) y = Slice(v, three, end, last) z = Neg(v)",  # it gets the name of the output
        "v = NonZero(x) w = NonZero(x) y = Slice(w, three, end, last) z = Neg(v)",
        "c = Cast<to=9>(x) y = Compress<axis=0>(x, c) s = Slice(y, three, end, last) z = Expand(s, one)",
    ],
)
def test_a_slice_that_keeps_all_of_what_a_run_tells(nodes: str, sizes: tuple[int, ...]) -> None:
    """Where fewer than 3 elements were told the slice is left out: what it rested on is looked at all the same."""
    numbers = {"three": [-3], "end": [LARGEST], "last": [-1], "one": [1]}
    constants = {name: np.array(number, np.int64) for name, number in numbers.items()}
    outputs = "int64[a] y, int64[b] z" if "Compress" in nodes else "int64[a,b] y, int64[c,d] z"
    source = parsed(f"(int64[k] x) => ({outputs}) {{ {nodes} }}", **constants)
    check(source, [{"x": ramp(n, dtype="i8")} for n in sizes])


def test_a_slice_in_a_branch_that_keeps_all_of_what_a_run_tells() -> None:
    told = "c = Cast<to=9>(x) v = Compress<axis=0>(x, c) o = Slice(v, three, end, last)"
    branches = f"then_branch=a() => (int64[p] o) {{ {told} }}, else_branch=b() => (int64[q] o) {{ o = Neg(x) }}"
    numbers = {"three": [-3], "end": [LARGEST], "last": [-1]}
    constants = {name: np.array(number, np.int64) for name, number in numbers.items()}
    source = parsed(f"(int64[k] x, bool t) => (int64[n] y) {{ y = If<{branches}>(t) }}", **constants)
    sizes = (4, 0, 4, 4, 1, 7, 2, 2, 8)
    check(source, [{"x": ramp(n, dtype="i8"), "t": np.array(t)} for n in sizes for t in (True, False)])


@pytest.mark.parametrize("sizes", [(15, 255, 27, 120), (255, 15, 0, 101)])
def test_a_slice_in_a_loop_that_keeps_all_of_what_a_run_tells(sizes: tuple[int, ...]) -> None:
    body = (
        "body=b(int64 i, bool go, float[z] s) => (bool on, float[z] t, float[h] u) "
        "{ on = Identity(go) t = Identity(s) n = Neg(s) l = Slice(n, start, end) u = Abs(l) }"
    )
    text = f"(float[k] x) => (float[p,q] y) {{ v = Unique<sorted=1>(x) w, y = Loop<{body}>(count, go, v) }}"
    constants = {"start": np.array([-100]), "end": np.array([LARGEST]), "count": np.array(2), "go": np.array(True)}
    check(parsed(text, **constants), [{"x": ramp(n)} for n in sizes])


@pytest.mark.parametrize(
    "nodes",
    [
        "y = If(t) <then_branch: graph = b() => (int64[a] p) { p = Concat<axis=0>(n, n) }, "
        "else_branch: graph = c() => (int64[b] q) { q = Neg(n) }>",
        "y = If(t) <then_branch: graph = b() => (int64[a] p) { p = If(t) "
        "<then_branch: graph = d() => (int64[e] r) { r = Concat<axis=0>(n, n) }, "
        "else_branch: graph = f() => (int64[g] s) { s = Identity(n) }> }, "
        "else_branch: graph = c() => (int64[b] q) { q = Neg(n) }>",
        "y = Loop(count, t, n) <body: graph = b(int64 i, bool go, int64[1] s) => (bool on, int64[1] u) "
        "{ on = Identity(go) u = Add(s, n) }>",
    ],
)
def test_what_a_body_reads_of_the_sizes_around_it(nodes: str) -> None:
    """A size that is a number for what was assumed of the inputs is no constant of the body."""
    before = "z = Slice(x, start, end, axis, step) n = Shape<end=1>(z)"
    text = f"(float[k, 2] x, bool t) => (int64[m] y) {{ {before} {nodes} }}"
    constants = {"start": [LARGEST], "end": [-100], "axis": [0], "step": [-1]}
    source = parsed(text, **{k: np.array(v) for k, v in constants.items()}, count=np.array(2))
    check(source, [{"x": ramp(n, 2), "t": np.array(t)} for n in (5, 200, 0) for t in (True, False)])


CONTRADICTIONS = {
    "inputs": "z = Slice(x, start, end, axis) u = Expand(z, whole) y = Neg(u)",
    "branches": "y = If(t) <then_branch: graph = b() => (float[p, q] v) "
    "{ z = Slice(x, start, end, axis) u = Expand(z, whole) v = Neg(u) }, "
    "else_branch: graph = c() => (float[r, s] w) { w = Neg(x) }>",
    "data": "o = NonZero(x) f = Cast<to=1>(o) z = Slice(f, start, end, axis) y = Add(z, whole9)",
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_models_that_fit_no_usual_sizes(kind: str) -> None:
    """100 before the end is taken to lie behind the start, which no sizes that fit the rest allow."""
    source = parsed(
        f"(float[2, k] x, bool t) => (float[m, n] y) {{ {CONTRADICTIONS[kind]} }}",
        **{"start": np.array([-100]), "end": np.array([LARGEST]), "axis": np.array([1])},
        **({"whole9": ramp(2, 9)} if kind == "data" else {"whole": np.array([2, 9])}),
    )
    sizes = (9, 1, 9) if kind != "data" else (9, 30, 12)
    feeds = []
    for n in sizes:
        x = ramp(2, n)
        if kind == "data":
            x.reshape(-1)[9:] = 0
        feeds += [{"x": x, "t": np.array(True)}, {"x": x, "t": np.array(False)}]
    check(source, feeds)


@pytest.mark.parametrize("size", [7, 0, 3, 1])
def test_a_demand_that_rests_on_an_assumption(size: int) -> None:
    """Parts of an even axis differ from it unless they are empty; of one element, the first part is all of it."""
    nodes = "v = Slice(x, start, end, axis, step) p, q = Split<axis=-1, num_outputs=2>(v) y = Concat<axis=0>(v, p)"
    constants = {"start": np.array([3]), "end": np.array([1]), "axis": np.array([-1]), "step": np.array([-2])}
    session = jitonnx.InferenceSession(parsed(f"(float[5,n] x) => (float[p,q] y) {{ {nodes} }}", **constants))
    for n in (size, 5, 2):  # onnxruntime refuses parts without elements
        x = np.arange(5 * n, dtype=np.float32).reshape(5, n)
        (found,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(found, np.concatenate([x[:, 3:1:-2]] * 2))


@pytest.mark.parametrize("size, dilation, pads", [((2, 2), 9, [3, 3, 16, 16]), ((1, 1), 4, [2, 2, 6, 6])])
def test_a_convolution_that_reads_padding_alone(size: tuple[int, int], dilation: int, pads: list[int]) -> None:
    """Its kernel is chosen by how many taps read anything."""
    weights = np.random.default_rng(0).standard_normal((16, 16, 3, 3), np.float32)
    nodes = f"y = Conv<dilations=[{dilation},{dilation}], pads={pads}>(x, w)"
    text = f"(float[1,16,{size[0]},{size[1]}] x) => (float[a,b,c,d] y) {{ {nodes} }}"
    check(parsed(text, w=weights), [{"x": np.ones((1, 16, *size), np.float32)}])
