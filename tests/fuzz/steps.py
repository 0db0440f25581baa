"""The steps that random graphs grow by, each with how often it is taken: operators with attributes at random.

A step leaves (`Left`) what has no defined result: division of integers by 0, casts beyond a type's range, comparisons
of numbers that may differ in their last bit, extrema of NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from tests.fuzz.growing import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    Growing,
    Left,
    Value,
    numpy_type,
    onnx_type,
    pruned,
    reads,
    tensor,
)

Step = Callable[[Growing], object]
STEPS: dict[Step, float] = {}
"""Steps with their weights, for general graphs."""
FUSION: dict[Step, float] = {}
"""Those that planning fuses, with other weights."""
REAL = ("float32", "float64", "float16")
SIGNED = ("int8", "int16", "int32", "int64")


def step(weight: float, fusion: float = 0) -> Callable[[Step], Step]:
    """Enter a step with its weight in general graphs, and in those of what is fused."""

    def enter(function: Step) -> Step:
        STEPS[function] = weight
        if fusion:
            FUSION[function] = fusion
        return function

    return enter


def demand(condition: object) -> None:
    """Left unless something holds."""
    if not condition:
        raise Left


def _zero(value: Value) -> bool:
    return any((np.abs(np.asarray(array, np.float64)) < 1e-3).any() for array in value.arrays)


def _jumps_alike(g: Growing, x: Value, multiple: float) -> bool:
    """Whether rounding decides no jump at the multiples of a number; of a body only its first iteration is known."""
    return x.exact or (not g.around and x.far_from(multiple))


# ---------------------------------------------------------------- elementwise


@step(6, 8)
def unary(g: Growing) -> None:
    bounded = ("Exp", "Sinh", "Cosh", "Tan")
    positive = ("Sqrt", "Log", "Acosh", "Atanh", "Acos", "Asin")
    since = {"HardSwish": 14, "Mish": 18}
    kept = ("Abs", "Neg", "Relu", "Identity")
    others = ("Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Softplus", "Softsign", "Reciprocal", "Sign", "Atan", "Asinh")
    operator = g.choose((*bounded, *positive, *since, *kept, *others))
    x = g.pick(FLOATS, largest=8000)
    demand(g.opset >= since.get(operator, 0))
    if operator in positive and g.chance(0.6):
        x = g.add("Abs", x)
    demand(operator not in bounded or x.within(-8, 8))
    demand(operator not in ("Sin", "Cos") or x.within(-1e3, 1e3))
    # Those whose slope is unbounded, or that jump, tell apart what rounding does.
    demand(operator not in ("Sign", "Tan", "Acosh", "Atanh", "Acos", "Asin") or x.exact)
    demand(operator not in ("Reciprocal", "Log") or x.exact or not _zero(x))
    g.add(operator, x, exact=operator in kept)


@step(2)
def unary_of_integers(g: Growing) -> None:
    types = {"Abs": INTEGERS, "Neg": SIGNED, "Relu": SIGNED if g.opset >= 14 else (), "Sign": INTEGERS}
    operator = g.choose(list(types))
    g.add(operator, g.pick(types[operator]))


@step(3, 4)
def activation(g: Growing) -> None:
    x = g.pick(REAL, largest=8000)
    alphas: dict[str, tuple[float, ...]] = {
        "LeakyRelu": (0.01, 0.5, -0.3, 0.0, 1.5),
        "Elu": (1.0, 0.5, 2.0),
        "Celu": (1.0, 0.5, 2.0),
        "HardSigmoid": (0.2, 0.25),
        "ThresholdedRelu": (0.3, 1.0, -0.5),
        "Swish": (1.0, 0.5, 1.702),
    }
    operator = g.choose((*alphas, "Selu", "Gelu", "Shrink"))
    demand(g.opset >= {"Gelu": 20, "Swish": 24}.get(operator, 0))
    demand(x.exact or operator not in ("ThresholdedRelu", "Shrink"))
    demand(operator != "Celu" or x.type == "float32")
    attributes: dict[str, Any] = {"alpha": g.choose(alphas[operator])} if operator in alphas else {}
    if operator == "Gelu":
        attributes = {"approximate": g.choose(("none", "tanh"))}
        demand(x.type != "float64" or attributes["approximate"] == "tanh")  # the reference has its constants in float32
    if operator == "Shrink":
        attributes = {"lambd": 0.5, "bias": 0.25}
    g.add(operator, x, exact=False, **attributes)


@step(2)
def rounding(g: Growing) -> None:
    x = g.pick(FLOATS)
    demand(_jumps_alike(g, x, 0.5))
    g.add(g.choose(("Floor", "Ceil", "Round")), x)


@step(9, 10)
def binary(g: Growing) -> None:
    operator = g.choose(("Add", "Sub", "Mul", "Div", "Max", "Min", "Add", "Mul"))
    a = g.pick(NUMBERS)
    b = g.beside(a)
    if a.type in INTEGERS:
        demand(g.opset >= 14 or operator in ("Max", "Min") or a.type in ("int32", "int64"))
        if operator == "Div":
            b = _divisor(g, a, b)
    elif operator == "Div":
        demand(b.exact or not _zero(b))
    elif operator in ("Max", "Min"):
        demand(not g.special)
    if operator in ("Add", "Mul", "Max", "Min") and g.chance(0.4):
        a, b = b, a
    g.add(operator, a, b, exact=operator in ("Max", "Min"))


def _divisor(g: Growing, a: Value, b: Value) -> Value:
    """b without 0, and -1 where a has the least number."""
    if any((array == 0).any() for array in b.arrays):
        b = g.constant(np.asarray(g.number(1, 4), a.type))
    least = np.iinfo(a.type).min
    overflows = any((array == least).any() for array in a.arrays) and any((array == -1).any() for array in b.arrays)
    demand(a.type not in SIGNED or not overflows)
    return b


@step(1)
def remainder(g: Growing) -> None:
    a = g.pick(NUMBERS, exact=True)
    b = _divisor(g, a, g.beside(a)) if a.type in INTEGERS else g.beside(a)
    demand(b.exact and not _zero(b))
    g.add("Mod", a, b, fmod=1 if a.type in FLOATS else int(g.chance(0.4)))


@step(1)
def power(g: Growing) -> None:
    x = g.pick(("float32", "float64", "float16", "int32", "int64"))
    demand(x.within(-100, 100) if x.type in FLOATS else x.within(-1000, 1000))  # beyond 2**53 some have floats between
    if x.type in INTEGERS:
        demand(not g.around)  # a loop would come there
        exponent = g.constant(np.asarray(g.number(0, 3), x.type))
    else:
        kind = x.type if g.chance(0.8) else g.choose(("int32", "int64", "float32"))
        number = g.choose((2, 3, 0, 1, 0.5, -1, -2, -0.5)) if kind in FLOATS else g.number(0, 3)
        demand(number >= 0 or x.exact or not _zero(x))
        demand(number != 0.5 or x.exact)
        exponent = g.constant(np.asarray(number, kind))
    g.add("Pow", x, exponent, exact=False)


@step(1, 1)
def parametric_relu(g: Growing) -> None:
    x = g.pick((*FLOATS, "int32", "int64", "uint32", "uint64"))
    slope = g.beside(x)
    demand(all(np.broadcast_shapes(a, b) == a for a, b in zip(x.shapes, slope.shapes, strict=True)))
    demand(slope.type not in FLOATS or slope.within(-1e30, 1e30))  # the reference multiplies 0, too
    g.add("PRelu", x, slope, exact=False)


@step(2, 2)
def variadic(g: Growing) -> None:
    operator = g.choose(("Sum", "Mean", "Max", "Min"))
    x = g.pick(FLOATS)
    demand(not g.special or operator in ("Sum", "Mean"))
    g.add(operator, x, *(g.beside(x) for _ in range(g.number(0, 2))), exact=False)


@step(3, 2)
def comparison(g: Growing) -> None:
    a = g.pick(NUMBERS)
    b = g.beside(a)
    demand(a.type in INTEGERS or (a.exact and b.exact))
    operator = g.choose(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"))
    demand(g.opset >= 16 or a.type != "bfloat16" or operator in ("Greater", "Less"))
    g.add(operator, a, b)


@step(2)
def logic(g: Growing) -> None:
    a, operator = g.pick(("bool",)), g.choose(("And", "Or", "Xor", "Not", "Equal"))
    g.add(operator, *((a,) if operator == "Not" else (a, g.beside(a))))


@step(2)
def bits(g: Growing) -> None:
    operator = g.choose(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    if operator == "BitShift":
        x = g.pick(("uint8", "uint16", "uint32", "uint64"))
        g.add(operator, x, g.constant(np.asarray(g.number(0, 7), x.type)), direction=g.choose(("LEFT", "RIGHT")))
        return
    demand(g.opset >= 18)
    x = g.pick(INTEGERS)
    g.add(operator, *((x,) if operator == "BitwiseNot" else (x, g.beside(x))))


@step(2, 3)
def where(g: Growing) -> None:
    x = g.pick()
    g.add("Where", g.beside(x, "bool"), x, g.beside(x))


@step(2, 3)
def clip(g: Growing) -> None:
    x = g.pick(NUMBERS)
    demand(not g.special or x.exact)
    low, high = (g.constant(np.asarray(n, numpy_type(x.type))) if g.chance(0.8) else None for n in (1, 3))
    g.add("Clip", x, low, high)


@step(5, 5)
def cast(g: Growing) -> None:
    x, to = g.pick(), g.type()
    if x.type in FLOATS and to in INTEGERS:
        limits = np.iinfo(to)
        demand(x.within(max(limits.min, -1e6), min(limits.max, 1e6)) and _jumps_alike(g, x, 1))
        demand(limits.min < 0 or x.within(0, 1e6))
    demand(to != "bool" or x.exact)
    demand(to != "float16" or x.type == "bool" or x.within(-6e4, 6e4))
    g.add("Cast", x, to=onnx_type(to))


@step(1)
def is_special(g: Growing) -> None:
    x = g.pick(FLOATS if g.opset >= 20 else ("float32", "float64"), exact=True)
    if g.chance(0.5):
        g.add("IsNaN", x)
    else:
        g.add("IsInf", x, detect_negative=g.number(0, 1), detect_positive=g.number(0, 1))


# ---------------------------------------------------------------- movement


@step(6, 7)
def transpose(g: Growing) -> None:
    x = g.pick(least=2)
    order = [int(axis) for axis in g.rng.permutation(x.rank)]
    g.add("Transpose", x, **({} if g.chance(0.15) else {"perm": order}))


@step(6, 6)
def slices(g: Growing) -> None:
    x, most = g.pick(least=1), 2**31 - 1
    axes = [int(axis) for axis in g.rng.permutation(x.rank)[: g.number(1, x.rank)]]
    steps = [g.choose((1, 1, 1, 2, 3, -1, -1, -2)) for _ in axes]
    starts = [g.choose((0, 1, -3, 2, -100) if s > 0 else (-1, 100, 3, -2, most)) for s in steps]
    ends = [g.choose((100, most, -1, 4, 2**63 - 1, 7) if s > 0 else (-100, 0, 1, -most - 1, -(2**63))) for s in steps]
    kind = np.int64 if g.chance(0.8) else np.int32
    if kind is np.int32:
        ends = [max(min(end, most), -most - 1) for end in ends]
    named = [axis - x.rank if g.chance(0.3) else axis for axis in axes]
    given: list[Value | None] = [g.constant(np.array(part, kind)) for part in (starts, ends, named, steps)]
    if steps == [1] * len(axes) and g.chance(0.5):
        given.pop()
    elif axes == list(range(x.rank)) and g.chance(0.3):
        given[2] = None
    g.add("Slice", x, *given)


@step(5, 5)
def reshape(g: Growing) -> None:
    x = g.pick(some=True)
    kept = g.number(0, max(0, x.rank - 2))
    target = [0] * kept + [-1]
    if g.chance(0.5) and x.rank > kept + 1 and x.settled(*range(kept + 2, x.rank)):
        target += x.shapes[0][kept + 2 :]
    elif not kept and (factors := [f for f in (2, 3, 4, 5, 8) if all(a.size % f == 0 for a in x.arrays)]):
        target = [g.choose(factors), -1][:: g.choose((1, -1))]
        if g.chance(0.3):
            target.insert(g.number(0, 2), 1)
    g.add("Reshape", x, g.integers(*target))


@step(3, 3)
def reshape_to_computed(g: Growing) -> None:
    x = g.pick(least=2, most=4, some=True)
    shape, joined = g.add("Shape", x), g.number(0, x.rank - 2)
    parts = [
        g.integers(-1) if axis == joined + 1 else g.add("Gather", shape, g.integers(axis))
        for axis in range(x.rank)
        if axis != joined
    ]
    g.add("Reshape", x, g.add("Concat", *parts, axis=0))


@step(2, 1)
def flatten(g: Growing) -> None:
    x = g.pick(least=1)
    g.add("Flatten", x, axis=g.number(-x.rank, x.rank))


@step(2, 2)
def squeeze(g: Growing) -> None:
    x = g.pick(least=1)
    ones = [axis for axis in range(x.rank) if all(shape[axis] == 1 for shape in x.shapes)]
    g.add("Squeeze", x, g.integers(*(axis - x.rank if g.chance(0.3) else axis for axis in ones or g.choose(()))))


@step(3, 3)
def unsqueeze(g: Growing) -> None:
    x, more = g.pick(most=4), g.number(1, 2)
    axes = g.rng.permutation(x.rank + more)[:more]
    g.add("Unsqueeze", x, g.integers(*(int(a) - (x.rank + more if g.chance(0.3) else 0) for a in axes)))


@step(3, 4)
def expand(g: Growing) -> None:
    x = g.pick(most=3)
    ones = [all(shape[axis] == 1 for shape in x.shapes) for axis in range(x.rank)]
    target = [g.number(1, 5) if one and g.chance(0.7) else 1 for one in ones]
    g.add("Expand", x, g.integers(*([g.number(1, 3)] if g.chance(0.4) else []), *target))


@step(2, 1)
def tile(g: Growing) -> None:
    x = g.pick(least=1, most=4, largest=2000)
    g.add("Tile", x, g.integers(*(g.number(0 if g.chance(0.05) else 1, 3) for _ in range(x.rank))))


@step(5, 4)
def concat(g: Growing) -> None:
    x = g.pick(least=1)
    axis = g.number(0, x.rank - 1)

    def others(value: Value) -> list[tuple[int, ...]]:
        return [shape[:axis] + shape[axis + 1 :] for shape in value.shapes]

    fitting = [v for v in g.values if v.type == x.type and v.rank == x.rank and others(v) == others(x)]
    parts = [x, *(g.choose(fitting) for _ in range(g.number(1, 3)))]
    g.add("Concat", *parts, axis=axis - (x.rank if g.chance(0.4) else 0))


@step(3, 4)
def split(g: Growing) -> None:
    x = g.pick(least=1)
    axis = g.axis(x)
    size = x.shapes[0][axis]
    if x.settled(axis) and size >= 2:
        first = g.number(1, size - 1)
        sizes = [first, 0, size - first] if g.chance(0.2) else [first, size - first]
        g.add_all("Split", x, g.integers(*sizes), outputs=len(sizes), axis=axis)
    else:
        demand(g.opset >= 18)
        parts = g.number(2, 3)
        g.add_all("Split", x, outputs=parts, axis=axis, num_outputs=parts)


@step(4, 3)
def gather(g: Growing) -> None:
    x = g.pick(least=1)
    axis = g.axis(x)
    size, kind = x.least()[axis], g.choose(("int64", "int64", "int32"))
    demand(size)
    shape = g.choose(((), (3,), (3,), (2, 2), (1,), (0,)))
    places = [np.asarray(g.rng.integers(-size, size, shape)).astype(kind) for _ in range(g.sets)]
    g.add("Gather", x, g.constant(places[0]) if g.chance(0.6) else g.fed(places, shape), axis=axis)


@step(2)
def gather_elements(g: Growing) -> None:
    x = g.pick(least=1)
    axis, shape = g.axis(x), x.least()
    demand(0 not in shape)
    g.add("GatherElements", x, g.constant(g.rng.integers(-shape[axis], shape[axis], shape)), axis=axis)


@step(2)
def gather_nd(g: Growing) -> None:
    x = g.pick(least=1, most=4)
    sizes = x.least()[: g.number(1, x.rank)]
    demand(0 not in sizes)
    g.add("GatherND", x, g.constant(np.stack([g.rng.integers(-size, size, (3, 2)) for size in sizes], -1)))


@step(2)
def scatter(g: Growing) -> None:
    x = g.pick(least=1, most=4)
    sizes = x.least()
    allowed = ("none", "add", "mul", "max", "min") if g.opset >= 18 else ("none", "add", "mul")
    reduction = g.choose(allowed if g.opset >= 16 and x.type != "bool" else ("none",))
    demand(0 not in sizes and (not g.special or reduction == "none"))
    attributes = {} if reduction == "none" else {"reduction": reduction}
    exact = reduction in ("none", "max", "min")
    if g.chance(0.5):
        axis = g.axis(x)
        if reduction == "none":  # of places that are named twice, either may win
            shape = [1] * x.rank
            shape[axis] = max(1, sizes[axis] // 2)
            places = g.rng.permutation(sizes[axis])[: shape[axis]].reshape(shape)
        else:
            places = g.rng.integers(-sizes[axis], sizes[axis], sizes)
        updates = g.constant(g.data(places.shape, x.type))
        g.add("ScatterElements", x, g.constant(places), updates, axis=axis, exact=exact, **attributes)
        return
    depth = g.number(1, x.rank)
    demand(x.settled(*range(depth, x.rank)))
    count = 1 if reduction == "none" else 4
    places = np.stack([g.rng.integers(-size, size, count) for size in sizes[:depth]], -1)
    updates = g.constant(g.data((count, *x.shapes[0][depth:]), x.type))
    g.add("ScatterND", x, g.constant(places), updates, exact=exact, **attributes)


@step(4, 4)
def pad(g: Growing) -> None:
    x = g.pick(least=1, most=4, largest=5000)
    mode = g.choose(("constant", "constant", "reflect", "edge", *(["wrap"] if g.opset >= 19 else [])))
    sizes = x.least()
    demand(mode == "constant" or 0 not in sizes)
    most = [3 if mode in ("constant", "edge") else min(3, max(0, size - 1)) for size in sizes]
    before, after = [g.number(0, m) for m in most], [g.number(0, m) for m in most]
    if mode == "constant" and g.chance(0.3) and sizes[0] > 1:
        before[0] = -g.number(0, sizes[0])
        demand(before[0] + after[0] + sizes[0] >= 0)
    axes = g.axes(x) if g.opset >= 18 and g.chance(0.3) else None
    chosen = range(x.rank) if axes is None else [axis % x.rank for axis in axes]
    widths = g.integers(*(before[a] for a in chosen), *(after[a] for a in chosen))
    filling = g.constant(g.data((), x.type)) if mode == "constant" and g.chance(0.5) else None
    g.add("Pad", x, widths, filling, None if axes is None else g.integers(*axes), mode=mode)


@step(2)
def depth_and_space(g: Growing) -> None:
    x = g.pick(least=4, most=4)
    demand(all(s[1] % 4 == 0 for s in x.shapes) or all(s[2] % 2 == 0 and s[3] % 2 == 0 for s in x.shapes))
    if all(s[1] % 4 == 0 for s in x.shapes):
        g.add("DepthToSpace", x, blocksize=2, mode=g.choose(("DCR", "CRD")))
    else:
        g.add("SpaceToDepth", x, blocksize=2)


@step(1)
def triangle(g: Growing) -> None:
    demand(g.opset >= 14)
    x = g.pick(least=2)
    k = g.constant(np.array(g.number(-4, 4), np.int64)) if g.chance(0.7) else None
    g.add("Trilu", x, k, upper=g.number(0, 1))


@step(1)
def reverse_sequence(g: Growing) -> None:
    x, time = g.pick(least=2), g.number(0, 1)
    demand(x.settled(1 - time) and x.least()[time])
    lengths = g.constant(g.rng.integers(1, x.least()[time] + 1, x.shapes[0][1 - time]))
    g.add("ReverseSequence", x, lengths, time_axis=time, batch_axis=1 - time)


@step(1)
def center_crop_pad(g: Growing) -> None:
    demand(g.opset >= 18)
    x = g.pick(least=1)
    axes = [axis % x.rank for axis in g.axes(x)]
    g.add("CenterCropPad", x, g.integers(*(g.number(1, 8) for _ in axes)), axes=axes)


# ---------------------------------------------------------------- shapes, and what data decide


@step(2)
def shape(g: Growing) -> None:
    attributes = {}
    if g.opset >= 15:
        attributes |= {"start": g.number(-3, 2)} if g.chance(0.5) else {}
        attributes |= {"end": g.number(-2, 3)} if g.chance(0.3) else {}
    g.add("Shape", g.pick(), **attributes)


@step(1)
def size(g: Growing) -> None:
    g.add("Size", g.pick())


@step(1)
def constant_of_shape(g: Growing) -> None:
    def fit(value: Value) -> bool:
        return value.within(0, 20) and all(1 <= a.size <= 4 and a.prod() < 5000 for a in value.arrays)

    filling = tensor(g.data((1,), g.type(("float32", "int64", "float64", "int32", "bool"))), "value")
    g.add("ConstantOfShape", g.pick(("int64",), 1, 1, fit=fit), value=filling)


@step(1)
def nonzero(g: Growing) -> None:
    g.add("NonZero", g.pick(("float32", "int64", "int32", "bool", "uint8"), 1, exact=True, largest=500))


@step(1)
def compress(g: Growing) -> None:
    x = g.pick(least=1)
    axis = g.axis(x)
    g.add("Compress", x, g.constant(g.rng.random(x.least()[axis]) < 0.6), axis=axis)


@step(1)
def unique(g: Growing) -> None:
    x = g.pick(("float32", "int64", "int32"), 1, exact=True, largest=500, some=True)
    demand(not g.special)
    g.add_all("Unique", x, outputs=4, sorted=1, **({"axis": g.axis(x)} if g.chance(0.4) else {}))


@step(2)
def top_k(g: Growing) -> None:
    x = g.pick(("float32", "float64", "int64", "int32", "float16"), 1, exact=True, largest=3000, some=True)
    axis = g.axis(x)
    demand(not g.special)
    k = g.integers(g.number(1, x.least()[axis]))
    g.add_all("TopK", x, k, outputs=2, axis=axis, largest=g.number(0, 1), sorted=1)


@step(2)
def arg_reduce(g: Growing) -> None:
    types = ("float32", "float64", "int64", "int32", "float16", "uint8", "int8")
    x = g.pick(types, 1, exact=True, some=True)
    demand(not g.special)
    attributes = {"axis": g.axis(x), "keepdims": g.number(0, 1), "select_last_index": int(g.chance(0.4))}
    g.add(g.choose(("ArgMax", "ArgMin")), x, **attributes)


@step(1)
def one_hot(g: Growing) -> None:
    x, kind = g.pick(("int64", "int32"), most=3, largest=500), g.type(("float32", "int64", "int32", "float64"))
    depth, values = g.constant(np.array(5, np.int64)), g.constant(g.data((2,), kind))
    demand(kind not in FLOATS or values.within(-1e30, 1e30))  # the reference multiplies with what is off
    g.add("OneHot", x, depth, values, axis=g.number(-x.rank - 1, x.rank))


@step(1)
def range_(g: Growing) -> None:
    kind = g.choose(("float32", "int64", "int32"))
    g.add(
        "Range", *(g.constant(np.asarray(n, kind)) for n in g.choose(((0, 7, 2), (5, -3, -2), (3, 3, 1), (1, 12, 1))))
    )


@step(1)
def eye_like(g: Growing) -> None:
    g.add("EyeLike", g.pick(("float32", "int64", "int32", "float64", "bool", "uint8"), 2, 2), k=g.number(-3, 3))


@step(1)
def cumulative_sum(g: Growing) -> None:
    x = g.pick(("float32", "float64", "int64", "int32"), 1)
    axis = g.constant(np.array(g.axis(x), np.int64))
    g.add("CumSum", x, axis, exact=False, exclusive=g.number(0, 1), reverse=g.number(0, 1))


# ---------------------------------------------------------------- reductions and normalisations


@step(7, 8)
def reduction(g: Growing) -> None:
    kind = g.choose(
        ("Sum", "Sum", "Mean", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp", "LogSum")
    )
    if kind in ("Max", "Min"):
        x = g.pick(("float32", "float64", "float16", "int32", "int64", "uint8", "int8"), some=True)
        demand(not g.special)
    else:
        whole = ("int32", "int64") if kind in ("Sum", "Prod", "L1", "SumSquare") else ()
        x = g.pick((*FLOATS, *whole), some=kind.startswith("Log"))
    demand(kind != "Prod" or x.within(-3, 3))
    if kind == "LogSumExp":
        demand(not g.special)
    if kind == "LogSum":
        x = g.add("Add", g.add("Abs", x), g.constant(np.asarray(0.1, numpy_type(x.type))), exact=False)
    attributes: dict[str, Any] = {"keepdims": g.number(0, 1)}
    axes = g.axes(x) if x.rank and g.chance(0.85) else None
    given: tuple[Value, ...] = ()
    if axes is not None and (kind == "Sum" or g.opset >= 18):
        given = (g.integers(*axes),)
    elif axes is not None:
        attributes["axes"] = axes
    g.add(f"Reduce{kind}", x, *given, exact=kind in ("Max", "Min"), **attributes)


@step(5, 4)
def softmax(g: Growing) -> None:
    operator = g.choose(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    x = g.pick(FLOATS, 1, exact=operator == "Hardmax", some=True)
    demand(x.within(-1e3, 1e3) and (operator != "Hardmax" or x.type in ("float32", "float64")))
    g.add(operator, x, exact=False, **({"axis": g.axis(x)} if g.chance(0.8) else {}))


@step(2, 3)
def layer_normalization(g: Growing) -> None:
    operator = g.choose(("LayerNormalization", *(["RMSNormalization"] if g.opset >= 23 else [])))
    x = g.pick(REAL, 1, largest=5000)
    axis = g.number(0, x.rank - 1)
    rows = range(axis, x.rank)
    demand(g.opset >= 17 and x.within(-1e3, 1e3) and x.settled(*rows) and 0 not in x.shapes[0][axis:])
    demand(all(_spread(array, axis) for array in x.arrays))
    weights = [g.constant(g.data(x.shapes[0][axis:], x.type)) for _ in range(2)]
    given = weights if operator.startswith("L") and g.chance(0.6) else weights[:1]
    named = axis - (x.rank if g.chance(0.5) else 0)
    g.add(operator, x, *given, exact=False, axis=named, epsilon=g.choose((1e-5, 1e-2)))


def _spread(array: Any, axis: int) -> bool:
    """Whether rows vary by more than their rounding: a variance near 0 is nobody's."""
    rows = np.asarray(array, np.float64).reshape(math.prod(array.shape[:axis]), math.prod(array.shape[axis:]))
    return bool((rows.std(axis=1) > 1e-2 * (1 + np.abs(rows).max(axis=1, initial=0))).all())


@step(2, 2)
def normalization(g: Growing) -> None:
    operator = g.choose(
        ("InstanceNormalization", "BatchNormalization", "GroupNormalization", "LpNormalization", "LRN", "MVN")
    )
    x = g.pick(("float32", "float64"), 3, 5, largest=5000, some=True)
    demand(x.within(-1e3, 1e3))
    if operator == "LpNormalization":
        demand(x.exact)  # of rows near 0 only rounding is left
        g.add(operator, x, exact=False, axis=g.axis(x), p=g.number(1, 2))
        return
    if operator == "MVN":
        axes = [0, 2, 3] if x.rank == 4 else [axis % x.rank for axis in g.axes(x)]
        kept = [axis for axis in range(x.rank) if axis not in axes]
        demand(x.exact and all(_spread(a.transpose(*kept, *axes), len(kept)) for a in x.arrays))
        g.add("MeanVarianceNormalization", x, exact=False, **({} if x.rank == 4 else {"axes": axes}))
        return
    if operator == "LRN":
        demand(x.rank == 4)
        g.add(operator, x, exact=False, size=g.choose((1, 3, 5)), alpha=0.01, beta=0.75, bias=1.0)
        return
    demand(x.settled(1))
    channels = x.shapes[0][1]
    scale, bias, mean = (g.constant(g.data((channels,), x.type)) for _ in range(3))
    if operator == "BatchNormalization":
        variance = g.constant(np.abs(g.data((channels,), x.type)) + np.asarray(0.1, x.type))
        g.add(operator, x, scale, bias, mean, variance, exact=False)
        return
    demand(all(_spread(a.reshape(*a.shape[:2], -1), 2) for a in x.arrays))
    if operator == "InstanceNormalization":
        g.add(operator, x, scale, bias, exact=False)
    else:
        demand(g.opset >= 21)
        groups = g.choose([n for n in range(1, channels + 1) if channels % n == 0])
        g.add(operator, x, scale, bias, exact=False, num_groups=groups)


# ---------------------------------------------------------------- products and windows


def _finite(g: Growing, *values: Value) -> None:
    demand(all(value.type not in FLOATS or value.within(-1e3, 1e3) for value in values))


@step(5, 3)
def matmul(g: Growing) -> None:
    a = g.pick(("float32", "float64", "float16", "int32", "int64"), 1, largest=4000)

    def fit(b: Value) -> bool:
        return all(y[max(len(y) - 2, 0)] == x[-1] for x, y in zip(a.shapes, b.shapes, strict=True))

    if g.chance(0.5):
        b = g.pick((a.type,), 1, largest=4000, fit=fit)
    else:
        demand(a.settled(a.rank - 1))
        depth, width = a.shapes[0][-1], g.choose((1, 2, 3, 5, 8, 16, 17, 33))
        batch = a.shapes[0][:-2] if a.settled(*range(max(a.rank - 2, 0))) else ()
        shape = g.choose(((depth, width), (depth, width), (depth,), (1, depth, width), (*batch, depth, width)))
        b = g.constant(g.data(shape, a.type))
    _finite(g, a, b)
    g.add("MatMul", a, b, exact=False)


@step(2)
def gemm(g: Growing) -> None:
    a = g.pick(("float32", "float64", "int32"), 2, 2)
    turned, turned_b = g.number(0, 1), g.number(0, 1)
    demand(a.settled(1 - turned))
    depth, width = a.shapes[0][1 - turned], g.choose((1, 3, 8, 17))
    given = [a, g.constant(g.data((width, depth) if turned_b else (depth, width), a.type))]
    if g.chance(0.7):
        given.append(g.constant(g.data(g.choose(((width,), (1, width), (1,), (), (1, 1))), a.type)))
    _finite(g, *given)
    attributes: dict[str, Any] = {"transA": turned, "transB": turned_b}
    if a.type != "int32":
        attributes |= {"alpha": g.choose((1.0, 0.5)), "beta": g.choose((1.0, 2.0, 0.0))}
    g.add("Gemm", *given, exact=False, **attributes)


@step(2)
def einsum(g: Growing) -> None:
    x = g.pick(("float32", "float64"), 2, 3, largest=2000)
    _finite(g, x)
    flat = ("ij->ji", "ij->i", "ij,ij->ij", "ij,kj->ik", "ij->", "ij,ij->i", "ij,ij->j")
    deep = ("bij->bji", "bij->b", "bij,bkj->bik", "bij,bij->bi", "...ij->...ji", "bij,bij->bij")
    equation = g.choose(flat if x.rank == 2 else deep)
    g.add("Einsum", *((x, x) if "," in equation else (x,)), exact=False, equation=equation)


@step(3, 1)
def convolution(g: Growing) -> None:
    x = g.pick(REAL, 3, 5, largest=6000, some=True)
    rank, transposed = x.rank - 2, g.chance(0.25)
    demand(x.settled(1))
    channels = x.shapes[0][1]
    group = g.choose([n for n in range(1, channels + 1) if channels % n == 0])
    outputs = group * g.number(1, 4)
    kernel = [g.choose((1, 2, 3, 3, 5)) for _ in range(rank)]
    attributes: dict[str, Any] = {
        "group": group,
        "strides": [g.choose((1, 1, 2, 3)) for _ in range(rank)],
        "dilations": [g.choose((1, 1, 2)) for _ in range(rank)],
    }
    around = g.choose(("pads", "pads", "auto_pad", "none"))
    if around == "pads":
        attributes["pads"] = [g.number(0, 2) for _ in range(2 * rank)]
    elif around == "auto_pad":
        attributes["auto_pad"] = g.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
        attributes["dilations"] = [1] * rank  # which onnxruntime asks for
    if transposed and g.chance(0.3):
        attributes["output_padding"] = [g.number(0, stride - 1) for stride in attributes["strides"]]
    shape = (channels, outputs // group, *kernel) if transposed else (outputs, channels // group, *kernel)
    given = [x, g.constant(g.data(shape, x.type))]
    if g.chance(0.6):
        given.append(g.constant(g.data((outputs,), x.type)))
    _finite(g, *given)
    g.add("ConvTranspose" if transposed else "Conv", *given, exact=False, **attributes)


@step(3)
def pooling(g: Growing) -> None:
    x = g.pick(("float32", "float64"), 3, 5, largest=6000, some=True)
    rank, kind = x.rank - 2, g.choose(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"))
    demand(x.within(-1e4, 1e4))
    if kind.startswith("Global"):
        g.add(kind, x, exact=False)
        return
    kernel = [g.number(1, 3) for _ in range(rank)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [g.number(1, 2) for _ in range(rank)]}
    if g.chance(0.3):
        attributes["auto_pad"] = g.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attributes["pads"] = [g.number(0, size - 1) for size in kernel] * 2
        if kind != "LpPool" or g.opset >= 18:
            attributes["ceil_mode"] = int(g.chance(0.4))
        if (kind == "MaxPool" or (kind == "AveragePool" and g.opset >= 19)) and g.chance(0.3):
            attributes["dilations"] = [g.number(1, 2) for _ in range(rank)]
    if kind == "AveragePool":
        attributes["count_include_pad"] = g.number(0, 1)
    # Of a window that is longer than the padded axis there is none; onnxruntime gives one where strides are above 1.
    pads = attributes.get("pads", [0] * 2 * rank)
    covers = [(size - 1) * by + 1 for size, by in zip(kernel, attributes.get("dilations", [1] * rank), strict=True)]
    room = [size + pad + more for size, pad, more in zip(x.least()[2:], pads[:rank], pads[rank:], strict=True)]
    same = attributes.get("auto_pad", "").startswith("SAME")
    demand(same or all(cover <= size for cover, size in zip(covers, room, strict=True)))
    # Strides beyond the window make SAME pad by negative numbers, which no text settles: onnxruntime refuses MaxPool.
    demand(not same or all(step <= cover for step, cover in zip(attributes["strides"], covers, strict=True)))
    g.add(kind, x, exact=False, **attributes)


@step(2)
def resize(g: Growing) -> None:
    x = g.pick(("float32", "uint8"), 2, 4, largest=3000, some=True)
    mode = g.choose(("nearest", "linear", *(["cubic"] if x.rank == 4 else []))) if x.type == "float32" else "nearest"
    demand(mode == "nearest" or x.within(-1e4, 1e4))
    modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": g.choose(modes)}
    if mode == "nearest":
        attributes["nearest_mode"] = g.choose(("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"))
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": g.choose((-0.75, -0.5)), "exclude_outside": int(g.chance(0.3))}
    if g.chance(0.6):
        scales = [1.0] * (x.rank - 2) + [g.choose((2, 0.5, 1.5, 0.75, 3, 1)) for _ in range(2)]
        g.add("Resize", x, None, g.constant(np.array(scales, np.float32)), exact=mode == "nearest", **attributes)
    else:
        demand(x.settled(*range(x.rank - 2)))
        sizes = g.integers(*x.shapes[0][:-2], g.number(1, 11), g.number(1, 11))
        g.add("Resize", x, None, None, sizes, exact=mode == "nearest", **attributes)


@step(1)
def recurrent(g: Growing) -> None:
    x = g.pick(("float32",), 3, 3, largest=3000, some=True)
    demand(x.settled(2) and x.within(-1e3, 1e3))
    operator, direction = g.choose(("LSTM", "GRU", "RNN")), g.choose(("forward", "reverse", "bidirectional"))
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator], 2 if direction == "bidirectional" else 1
    hidden, width = g.choose((1, 3, 5, 8)), x.shapes[0][2]
    shapes = [(ways, gates * hidden, width), (ways, gates * hidden, hidden)]
    if g.chance(0.6):
        shapes.append((ways, 2 * gates * hidden))
    weights = [g.constant((g.rng.standard_normal(shape) / 2).astype(np.float32)) for shape in shapes]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if operator == "GRU":
        attributes["linear_before_reset"] = g.number(0, 1)
    g.add_all(operator, x, *weights, outputs=3 if operator == "LSTM" else 2, exact=False, **attributes)


@step(2, 3)
def quantization(g: Growing) -> None:
    x = g.pick(("float32",), largest=5000)
    demand(x.exact or not g.around)
    width, zero = g.choose((0.1, 0.25, 0.5)), g.number(0, 4)
    kind = g.choose(("uint8", "int8"))
    demand(x.within(-1e4, 1e4) and all((np.abs(np.abs(a / width % 1) - 0.5) > 1e-2).all() for a in x.arrays))
    scale, point = g.constant(np.float32(width)), g.constant(np.asarray(zero, kind))
    bytes_ = g.add("QuantizeLinear", x, scale, point)
    bytes_.exact = True  # no element lies where rounding decides
    if g.chance(0.7):
        g.add("DequantizeLinear", bytes_, scale, point)


@step(1)
def dynamic_quantization(g: Growing) -> None:
    x = g.pick(("float32",), exact=True, largest=2000, some=True)
    demand(x.within(-1e4, 1e4))
    g.add_all("DynamicQuantizeLinear", x, outputs=3)


@step(1)
def matmul_of_bytes(g: Growing) -> None:
    a = g.pick(("uint8", "int8"), 2, 3)
    demand(a.settled(a.rank - 1))
    other = g.choose(("uint8", "int8"))
    b = g.constant(g.data((a.shapes[0][-1], g.choose((1, 3, 8, 17))), other))
    zeros = (g.constant(np.asarray(2, a.type)), g.constant(np.asarray(1, other))) if g.chance(0.5) else ()
    g.add("MatMulInteger", a, b, *zeros)


@step(1)
def determinant(g: Growing) -> None:
    x = g.pick(("float32", "float64"), 2, exact=True)
    demand(x.within(-20, 20))
    g.add("Det", x, exact=False)


@step(1)
def grid_sample(g: Growing) -> None:
    demand(g.opset >= 20)
    x = g.pick(("float32",), 4, 4, largest=3000, some=True)
    demand(x.settled(0) and x.within(-1e4, 1e4))
    grid = g.constant((g.rng.random((x.shapes[0][0], 3, 4, 2)) * 2.4 - 1.2).astype(np.float32))
    attributes = {"padding_mode": g.choose(("zeros", "border", "reflection")), "align_corners": g.number(0, 1)}
    g.add("GridSample", x, grid, exact=False, mode=g.choose(("linear", "nearest", "cubic")), **attributes)


@step(1)
def losses(g: Growing) -> None:
    x = g.pick(("float32",), 2, 2, some=True)
    demand(x.settled(0, 1) and x.within(-100, 100))
    labels = g.constant(g.rng.integers(0, x.shapes[0][1], x.shapes[0][0]))
    operator = g.choose(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"))
    g.add(operator, x, labels, exact=False, reduction=g.choose(("mean", "sum", "none")))


# ---------------------------------------------------------------- bodies


def _inside(outer: Growing, inner: Growing, count: int) -> None:
    """Grow a body by steps that have no bodies of their own."""
    inner.grow(list(STEPS), list(STEPS.values()), count)
    outer.absorb(inner)


def _graph(inner: Growing, inputs: list[Any], outputs: list[Value]) -> Any:
    """A body of what its outputs need."""
    nodes = pruned(inner.nodes, [value.name for value in outputs])
    needed = {name for node in nodes for name in reads(node)}
    given = [helper.make_tensor_value_info(v.name, onnx_type(v.type), None) for v in outputs]
    return helper.make_graph(nodes, "body", inputs, given, [t for t in inner.constants if t.name in needed])


def choice(g: Growing) -> None:
    """An If, whose condition is fed."""
    seen = [g.pick() for _ in range(g.number(1, 3))]
    bodies = []
    for _ in range(2):
        inner = g.body(seen)
        _inside(g, inner, g.number(1, 3))
        bodies.append(inner)
    pairs = [(a, b) for a in bodies[0].made() for b in bodies[1].made() if a.type == b.type and a.rank == b.rank]
    a, b = g.choose(pairs)
    condition = g.fed([np.asarray(g.chance(0.5)) for _ in range(g.sets)], [])
    branches = {"then_branch": _graph(bodies[0], [], [a]), "else_branch": _graph(bodies[1], [], [b])}
    g.add("If", condition, exact=a.exact and b.exact, **branches)


def _next_state(inner: Growing, state: Value) -> Value:
    """What a body hands on as its state: bounded, so that it neither overflows nor settles nothing."""
    fitting = [v for v in inner.made() if v.type == state.type and v.shapes == state.shapes]
    chosen = inner.choose(fitting) if fitting else state
    return inner.add("Tanh" if state.type in FLOATS else "Identity", chosen, exact=False)


def loop(g: Growing) -> None:
    """A Loop, whose number of iterations is fed."""
    state = g.pick((*REAL, "int64", "int32"), largest=600)
    demand(state.type not in FLOATS or state.within(-100, 100))
    inner = g.body([g.pick(largest=600) for _ in range(g.number(0, 2))])
    count, going = Value(g.name("i"), [np.array(0, np.int64)] * g.sets, True), g.name("going")
    current = Value(g.name("state"), state.arrays, False)
    inner.values += [count, current]
    _inside(g, inner, g.number(1, 4))
    after = _next_state(inner, current)
    others = [v for v in inner.made() if v is not after]
    scanned = [inner.add("Identity", inner.choose(others))] if others and g.chance(0.6) else []
    condition_out = Value(g.name("on"), [np.array(True)] * g.sets, True)
    inner.nodes.append(helper.make_node("Identity", [going], [condition_out.name]))
    inputs = [
        helper.make_tensor_value_info(count.name, onnx_type("int64"), []),
        helper.make_tensor_value_info(going, onnx_type("bool"), []),
        helper.make_tensor_value_info(current.name, onnx_type(current.type), None),
    ]
    trips = g.fed([np.array(g.number(1 if scanned else 0, 4), np.int64) for _ in range(g.sets)], [])
    body = _graph(inner, inputs, [condition_out, after, *scanned])
    g.add_all("Loop", trips, g.constant(np.array(True)), state, outputs=1 + len(scanned), exact=False, body=body)


def scan(g: Growing) -> None:
    """A Scan of one input, with a state."""
    rows = g.pick(("float32", "int64", "float64"), 2, 4, largest=2000)
    demand(all(shape[0] for shape in rows.shapes))
    state = g.pick((rows.type,), largest=200)
    demand(state.type not in FLOATS or state.within(-100, 100))
    row = Value(g.name("row"), [array[0] for array in rows.arrays], False)
    current = Value(g.name("state"), state.arrays, False)
    inner = g.body([row, current])
    _inside(g, inner, g.number(1, 3))
    after = _next_state(inner, current)
    others = [v for v in inner.made() if v is not after]
    given = inner.add("Identity", inner.choose(others) if others else row)
    inputs = [helper.make_tensor_value_info(v.name, onnx_type(v.type), None) for v in (current, row)]
    attributes: dict[str, Any] = {"body": _graph(inner, inputs, [after, given]), "num_scan_inputs": 1}
    for name in ("scan_input_directions", "scan_output_directions"):
        if g.chance(0.3):
            attributes[name] = [1]
    g.add_all("Scan", state, rows, outputs=2, exact=False, **attributes)


BODIES: dict[Step, float] = {choice: 3, loop: 3, scan: 1}
"""Steps of nodes that run graphs, which are not taken within such a graph."""
