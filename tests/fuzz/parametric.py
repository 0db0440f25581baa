"""Single operators with parameters at random: convolutions, products, recurrent layers, attention, Resize, pooling.

The oracles are asked when a model is judged: onnx's reference has no activations of recurrent layers, say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from tests.fuzz.growing import Growing, Model, Value

SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33)
EDGES = (*SIZES, 63, 64, 65)
ACTIVATIONS = ("Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "Softplus")


class _Draw(Growing):
    """A model of one operator: inputs with a shape for each set of feeds, and its constants."""

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def arrays(self, make: Callable[[], Any]) -> Value:
        """An input that `make` gives an array for in each set; sizes that differ are open."""
        arrays = [make() for _ in range(self.sets)]
        value = Value(self.name("x"), arrays, True)
        return self.fed(arrays, self._dims(value))

    def node(self, operator: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> list[str]:
        given = list(inputs)
        while given[-1] is None:
            given.pop()
        names = [self.name() for _ in range(outputs)]
        read = ["" if value is None else value.name for value in given]
        self.nodes.append(helper.make_node(operator, read, names, **attributes))
        return names

    def done(self, *outputs: str, type: int = 1) -> Model:
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), d) for n, t, d in self.inputs
        ]
        given = [helper.make_tensor_value_info(name, type, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "fuzzed", inputs, given, self.constants)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        feeds = [{value.name: value.arrays[i] for value in self.values} for i in range(self.sets)]
        return Model(proto, feeds, None, {name: 1e-3 for name in outputs})


def convolution(g: _Draw) -> Model:
    g.opset = g.choose((18, 22))
    rank, channels, transposed = g.number(1, 3), g.choose((1, 2, 3, 4, 5, 8, 12, 16, 17, 32)), g.chance(0.3)
    group = g.choose([n for n in range(1, channels + 1) if channels % n == 0])
    outputs = group * g.choose((1, 1, 2, 3, 4, 8, 16))
    kernel = [g.choose((1, 2, 3, 3, 4, 5, 7)) for _ in range(rank)]
    attributes: dict[str, Any] = {
        "group": group,
        "strides": [g.choose((1, 1, 2, 3)) for _ in kernel],
        "dilations": [g.choose((1, 1, 2, 3)) for _ in kernel],
    }
    if g.chance(0.25):
        attributes["auto_pad"] = g.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
        attributes["dilations"] = [1] * rank
    else:
        attributes["pads"] = [g.number(0, 3) for _ in range(2 * rank)]
    if transposed and g.chance(0.3):
        attributes["output_padding"] = [g.number(0, stride - 1) for stride in attributes["strides"]]
    sizes = [size for size in SIZES if size >= 5] if rank < 3 else [5, 7, 9]
    images = [g.choose((1, 2, 3)) for _ in range(g.sets)]
    x = g.arrays(lambda: g.normal(g.choose(images), channels, *(g.choose(sizes) for _ in kernel)))
    shape = (channels, outputs // group, *kernel) if transposed else (outputs, channels // group, *kernel)
    bias = g.constant(g.normal(outputs)) if g.chance(0.5) else None
    operator = "ConvTranspose" if transposed else "Conv"
    (y,) = g.node(operator, x, g.constant(g.normal(*shape)), bias, **attributes)
    after = g.choose(("", "Relu", "Sigmoid", "Mul", "Clip", "Tanh"))
    if after:
        result = Value(y, [np.float32(0)], False)
        more = {"Mul": (result,), "Clip": (g.constant(np.float32(-0.2)),)}.get(after, ())
        (y,) = g.node(after, result, *more)
    return g.done(y)


def product(g: _Draw) -> Model:
    g.opset = 18
    type = g.choose(("float32", "float32", "float32", "float64", "int32", "float16"))
    ranks, depth, constant = (g.number(1, 4), g.number(1, 4)), g.choose(EDGES), g.chance(0.4)
    ones = [[g.chance(0.3) for _ in range(2)] for _ in range(2)]
    drawn = []
    for _ in range(g.sets):
        batch = [g.choose((1, 2, 3, 5)) for _ in range(2)]
        rows, columns = g.choose((*EDGES, 129)), g.choose((*EDGES, 129))
        pair = []
        for rank, narrow, last in zip(ranks, ones, ([rows, depth], [depth, columns]), strict=True):
            outer = [1 if one else size for one, size in zip(narrow, batch, strict=True)]
            shape = [*outer[len(outer) - max(rank - 2, 0) :], *(last if rank > 1 else [depth])]
            pair.append(g.data(shape, type))
        drawn.append(pair)
    lefts, rights = zip(*drawn, strict=True)
    left = iter(lefts)
    if constant and ranks[1] <= 2:
        a, b = g.arrays(lambda: next(left)), g.constant(rights[0])
    else:
        right = iter(rights)
        a, b = g.arrays(lambda: next(left)), g.arrays(lambda: next(right))
    (y,) = g.node("MatMul", a, b)
    return g.done(y, type=helper.np_dtype_to_tensor_dtype(np.dtype(type)))


def recurrent(g: _Draw) -> Model:
    g.opset = g.choose((14, 22))
    operator, direction = g.choose(("LSTM", "GRU", "RNN")), g.choose(("forward", "reverse", "bidirectional"))
    gates, functions = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}[operator]
    ways, width, hidden = (
        1 + (direction == "bidirectional"),
        g.choose((1, 3, 7, 8, 16, 17)),
        g.choose((1, 2, 5, 8, 17, 33)),
    )
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if g.chance(0.35):
        attributes["activations"] = [g.choose(ACTIVATIONS) for _ in range(functions)] * ways
    if g.chance(0.3):
        attributes["clip"] = g.choose((0.1, 0.5, 3.0))
    if operator == "GRU":
        attributes["linear_before_reset"] = g.number(0, 1)
    if operator == "LSTM" and g.chance(0.2):
        attributes["input_forget"] = 1
    sizes = [(g.choose((1, 2, 3, 7)), g.choose((1, 2, 3, 5))) for _ in range(g.sets)]
    # Longer sequences, or larger weights, of functions without a bound grow until only rounding is left.
    turn = iter(sizes)
    x = g.arrays(lambda: g.normal(*next(turn), width, scale=0.5))
    lengths = states = peepholes = bias = None
    if g.chance(0.4):
        ends = iter(sizes)
        lengths = g.arrays(lambda: (lambda t, n: g.rng.integers(1, t + 1, n).astype(np.int32))(*next(ends)))
    if g.chance(0.4):
        batches = iter(sizes)
        states = g.arrays(lambda: g.normal(ways, next(batches)[1], hidden, scale=0.5))
    w, r = (g.constant(g.normal(ways, gates * hidden, n, scale=0.5 / n**0.5)) for n in (width, hidden))
    if g.chance(0.6):
        bias = g.constant(g.normal(ways, 2 * gates * hidden, scale=0.3))
    if operator == "LSTM" and g.chance(0.3):
        peepholes = g.constant(g.normal(ways, 3 * hidden, scale=0.3))
    more = (None, peepholes) if peepholes else ()
    names = g.node(
        operator, x, w, r, bias, lengths, states, *more, outputs=3 if operator == "LSTM" else 2, **attributes
    )
    return g.done(*names)


def attention(g: _Draw) -> Model:
    g.opset = g.choose((23, 24))
    heads = g.choose((1, 2, 4, 6))
    shared = g.choose([n for n in (1, 2, 3, 4, 6) if heads % n == 0])
    width = g.choose((4, 8, 16, 17, 32))
    wide, split = g.choose((width, 8)), g.chance(0.6)
    attributes: dict[str, Any] = {}
    if g.chance(0.4):
        attributes["is_causal"] = 1
    if g.chance(0.3):
        attributes["scale"] = 0.3
    if g.chance(0.25):
        attributes["softcap"] = 2.0
    if not split:
        attributes |= {"q_num_heads": heads, "kv_num_heads": shared}
    sets = [
        (g.choose((1, 2, 3)), g.choose((1, 2, 7, 16, 33)), g.choose((1, 3, 8, 17, 64)), g.choose((1, 4, 9)))
        for _ in range(g.sets)
    ]
    cached = split and g.chance(0.35)

    def each(make: Callable[..., Any]) -> Value:
        turn = iter(sets)
        return g.arrays(lambda: make(*next(turn)))

    def rows(count: int, size: int, which: int) -> Value:
        return each(
            lambda *s: g.normal(s[0], count, s[which], size) if split else g.normal(s[0], s[which], count * size)
        )

    q, k, v = rows(heads, width, 1), rows(shared, width, 2), rows(shared, wide, 2)
    mask = None
    kind = g.choose(("", "", "bool", "float32"))
    if kind:

        def masked(_: int, queries: int, keys: int, past: int) -> Any:
            shape = (queries, keys + (past if cached else 0))
            if kind == "float32":
                return g.normal(*shape)
            allowed = g.rng.random(shape) < 0.7
            allowed[:, 0] = True
            return allowed

        mask = each(masked)
    past = [each(lambda b, _q, _k, p, n=n: g.normal(b, shared, p, n)) for n in (width, wide)] if cached else []
    return g.done(*g.node("Attention", q, k, v, mask, *past, outputs=3 if cached else 1, **attributes))


def resize(g: _Draw) -> Model:
    g.opset = g.choose((18, 19))
    mode = g.choose(("nearest", "linear", "cubic"))
    rank = 4 if mode == "cubic" else g.choose((3, 4, 4, 5))
    modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": g.choose(modes)}
    if mode == "nearest":
        attributes["nearest_mode"] = g.choose(("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"))
    elif g.chance(0.25):
        attributes["antialias"] = 1
    if mode == "cubic":
        attributes |= {"exclude_outside": int(g.chance(0.3)), "cubic_coeff_a": g.choose((-0.5, -0.75))}
    channels, axes = g.choose((1, 3, 8)), rank - 2
    sizes = SIZES[1:] if axes < 3 else (2, 3, 5)
    x = g.arrays(lambda: g.normal(1, channels, *(g.choose(sizes) for _ in range(axes)), scale=10))
    if g.chance(0.6):
        scales = [1.0, 1.0, *(g.choose((0.5, 2.0, 1.5, 0.7, 3.0, 1.0, 0.25)) for _ in range(axes))]
        (y,) = g.node("Resize", x, None, g.constant(np.array(scales, np.float32)), **attributes)
    else:
        wanted = g.integers(1, channels, *(g.number(1, 19) for _ in range(axes)))
        (y,) = g.node("Resize", x, None, None, wanted, **attributes)
    return g.done(y)


def pooling(g: _Draw) -> Model:
    g.opset = g.choose((18, 22))
    rank, operator = g.number(1, 3), g.choose(("MaxPool", "AveragePool"))
    kernel = [g.number(1, 4) for _ in range(rank)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [g.number(1, 3) for _ in kernel]}
    if g.chance(0.3):
        attributes["auto_pad"] = g.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
        if attributes["auto_pad"] != "VALID":  # longer strides pad by negative numbers, which no text settles
            attributes["strides"] = [min(pair) for pair in zip(attributes["strides"], kernel, strict=True)]
    else:
        attributes |= {"pads": [g.number(0, size - 1) for size in kernel] * 2, "ceil_mode": int(g.chance(0.4))}
        if (operator == "MaxPool" or g.opset >= 19) and g.chance(0.3):
            attributes["dilations"] = [g.number(1, 2) for _ in kernel]
    if operator == "AveragePool":
        attributes["count_include_pad"] = g.number(0, 1)
    channels, sizes = g.choose((1, 3, 8, 17)), (7, 8, 9, 15, 16) if rank < 3 else (7, 9)
    x = g.arrays(lambda: g.normal(1, channels, *(g.choose(sizes) for _ in range(rank))))
    (y,) = g.node(operator, x, **attributes)
    return g.done(y)


def quantized_convolution(g: _Draw) -> Model:
    g.opset = 18
    channels, size, depthwise = g.choose((1, 3, 4, 8, 16, 17)), g.choose((1, 3)), g.chance(0.3)
    outputs = channels if depthwise else g.choose((1, 4, 8, 16, 33))
    type, weights = g.choose(("uint8", "int8")), g.choose(("int8", "uint8"))

    def whole(kind: str, *shape: int) -> Any:
        limits = np.iinfo(kind)
        return g.rng.integers(limits.min, limits.max + 1, shape).astype(kind)

    x = g.arrays(lambda: whole(type, 1, channels, g.choose((5, 8, 9, 17)), g.choose((5, 8, 9, 17))))
    w = g.constant(whole(weights, outputs, 1 if depthwise else channels, size, size))
    scale = (g.rng.random(outputs) * 0.1 + 0.01).astype(np.float32) if g.chance(0.5) else np.float32(0.02)
    zero = np.full(scale.shape, 0 if weights == "int8" else 128, weights)
    x_parts = g.constant(np.float32(0.05)), g.constant(np.asarray(g.number(0, 8), type))
    w_parts = w, g.constant(scale), g.constant(zero)
    y_parts = g.constant(np.float32(g.choose((0.5, 2.0)))), g.constant(np.asarray(3, type))
    attributes = {"pads": [g.number(0, 1)] * 4, "strides": [g.number(1, 2)] * 2, "group": channels if depthwise else 1}
    (y,) = g.node("QLinearConv", x, *x_parts, *w_parts, *y_parts, **attributes)
    return g.done(y, type=helper.np_dtype_to_tensor_dtype(np.dtype(type)))


KINDS: tuple[Callable[[_Draw], Model], ...] = (
    *(convolution, product, recurrent, attention, resize, pooling, quantized_convolution),
)


def draw(seed: int) -> Model:
    """The model of a seed; kinds take turns."""
    drawn = _Draw(seed, sets=1 if seed % 3 == 2 else 3)
    drawn.special = False
    return KINDS[seed % len(KINDS)](drawn)
