"""The steps by which random graphs grow: each adds a node of some family, if the values so far allow it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from tests.plan.random_graphs import INTEGERS, SIZE, Author

UNARY = (
    *("Relu()", "Neg()", "Sigmoid()", "Tanh()", "Abs()", "Erf()", "HardSwish()", "Gelu()", "Mish()", "Softplus()"),
    *("LeakyRelu(alpha=0.1)", "Elu()", "Sin()", "Cos()", "Swish()", "HardSigmoid()", "Celu()", "Softsign()", "Selu()"),
    *("Identity()", "Gelu(approximate='tanh')", "Atan()", "Shrink(lambd=0.1)", "ThresholdedRelu(alpha=0.0)"),
)
BINARY = ("Add()", "Sub()", "Mul()", "Div()", "Max()", "Min()", "Add()", "Mul()")
ABSENT = "None"


def _rank(least: int, most: int = 9) -> Callable[[Value], bool]:
    return lambda value: least <= len(value.shape) <= most


def _ints(*values: int) -> str:
    return f"np.array({list(values)}, np.int64)"


def _broadcastable(author: Author, name: str) -> list[int]:
    """A shape that broadcasts to that of a value."""
    shape = [1 if size is None or not author.number(0, 2) else size for size in author.shape(name)]
    return shape[author.number(0, len(shape)) :] if author.number(0, 1) else shape


# ---------------------------------------------------------------- elementwise


def unary(a: Author) -> None:
    if x := a.value():
        a.op(a.pick(UNARY), x)


def clip(a: Author) -> None:
    if x := a.value():
        a.op("Clip()", x, a.scalar(-0.75), a.pick([a.scalar(1.25), ABSENT]))


def by_constant(a: Author) -> None:
    if x := a.value():
        constant = a.constant(*_broadcastable(a, x))
        operator = a.pick([*BINARY, "PRelu()"])
        if a.number(0, 1) and operator not in ("Div()", "PRelu()"):
            a.op(operator, constant, x)
        else:
            a.op(operator, x, constant)


def binary(a: Author) -> None:
    x = a.value()
    if x is None:
        return
    y = a.value(lambda value: _broadcasts(value, a[x]))
    if y:
        a.op(a.pick(["Add()", "Sub()", "Mul()", "Max()", "Min()", "Sum()", "Mean()"]), x, y)


def _broadcasts(a: Value, b: Value) -> bool:
    pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
    return all(m == n or m == 1 or n == 1 for m, n in pairs)


def where(a: Author) -> None:
    if x := a.value():
        condition = a.constant(*_broadcastable(a, x), dtype="bool")
        a.op("Where()", *a.pick([(condition, x, a.constant()), (condition, a.constant(), x), (condition, x, x)]))


# ---------------------------------------------------------------- movement


def transpose(a: Author) -> None:
    if x := a.value(_rank(2)):
        order = a.draw_permutation(len(a.shape(x)))
        a.op(f"Transpose(perm={tuple(order)})", x)


def reshape(a: Author) -> None:
    x = a.value()
    if x is None:
        return
    shape = a.shape(x)
    if None not in shape[:1] and None in shape:
        return
    if 0 in shape:
        a.op("Reshape(allowzero=1)", x, _ints(a.number(1, 4), 0))
        return
    kept = [0] if None in shape else []  # a variable size stays where it is
    a.op("Reshape()", x, _ints(*kept, *_factors(a, math.prod(shape[len(kept) :]))))


def _factors(a: Author, size: int) -> list[int]:
    shape = []
    while size > 1 and len(shape) < 4:
        factor = a.pick([d for d in range(2, size + 1) if size % d == 0])
        shape.append(factor)
        size //= factor
    if size > 1:
        shape.append(size)
    if a.number(0, 3) == 0:
        shape.insert(a.number(0, len(shape)), 1)
    return shape


def unsqueeze(a: Author) -> None:
    if x := a.value(_rank(0, 4)):
        a.op("Unsqueeze()", x, _ints(a.number(0, len(a.shape(x)))))


def squeeze(a: Author) -> None:
    x = a.value(lambda value: 1 in value.shape)
    if x:
        ones = [axis for axis, size in enumerate(a.shape(x)) if size == 1]
        a.op("Squeeze()", x, _ints(*ones))


def slice_(a: Author) -> None:
    x = a.value(_rank(1))
    if x is None or not (axes := a.axes(x)):
        return
    axis = a.pick(axes)
    size, step = a.shape(x)[axis], a.pick([1, 1, 2, 3, -1, -2])
    start = a.number(0, size - 1)
    first, last = (size - 1 - start, -size - 1) if step < 0 else (start, size)
    if step == 1 and a.number(0, 1):
        last = a.number(start + 1, size)
    a.op("Slice()", x, _ints(first), _ints(last), _ints(axis), _ints(step))


def split(a: Author) -> None:
    x = a.value(lambda value: any(isinstance(dim, int) and dim > 1 for dim in value.shape))
    if x is None:
        return
    axis = a.pick([axis for axis in a.axes(x) if a.shape(x)[axis] > 1])
    size = a.shape(x)[axis]
    first = a.number(1, size - 1)
    a.op(f"Split(axis={axis})", x, _ints(first, size - first), outputs=2)


def concat(a: Author) -> None:
    x = a.value(_rank(1))
    if x is None or not (axes := a.axes(x)):
        return
    axis, parts = a.pick(axes), [x]
    for _ in range(a.number(1, 2)):
        other = a.value(lambda value: _joins(value, a[x], axis))
        if None not in a.shape(x) and a.number(0, 4) == 0:
            other = a.constant(*a.shape(x))
        assert other is not None
        parts.insert(a.number(0, len(parts)), other)
    a.op(f"Concat(axis={axis})", *parts)


def _joins(a: Value, b: Value, axis: int) -> bool:
    return len(a.shape) == len(b.shape) and all(
        (i == axis and isinstance(m, int)) or m == n for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True))
    )


def pad(a: Author) -> None:
    x = a.value(_rank(1, 4))
    if x is None:
        return
    mode = a.pick(["constant", "constant", "edge", "reflect", "wrap"])
    rank, axes = len(a.shape(x)), a.axes(x)
    before, after = [0] * rank, [0] * rank
    for axis in axes:
        if a.number(0, 1) and (mode != "reflect" or a.shape(x)[axis] > 2):
            before[axis], after[axis] = a.number(0, 2), a.number(0, 2)
    if any(max(before[axis], after[axis]) > a.shape(x)[axis] for axis in axes):
        return
    value = a.pick([ABSENT, a.scalar(0.5)]) if mode == "constant" else ABSENT
    a.op(f"Pad(mode={mode!r})", x, _ints(*before, *after), value)


def expand(a: Author) -> None:
    x = a.value(lambda value: 1 in value.shape)
    if x:
        a.op("Expand()", x, _ints(*(a.number(1, 3) if size == 1 else 1 for size in a.shape(x))))


def tile(a: Author) -> None:
    x = a.value(_rank(1, 3))
    if x and (axes := a.axes(x)):
        axis = a.pick(axes)
        a.op("Tile()", x, _ints(*(a.number(1, 3) if i == axis else 1 for i in range(len(a.shape(x))))))


def gather(a: Author) -> None:
    x = a.value(_rank(1, 4))
    if x is None or not (axes := a.axes(x)):
        return
    axis = a.pick(axes)
    size = a.shape(x)[axis]
    indices = a.pick(
        [f"np.array({size - 1})", "np.array([0])", "np.array([[-1, 0], [0, -1]])", f"np.arange({size})[::-1].copy()"]
    )
    a.op(f"Gather(axis={axis})", x, indices)


def shape_arithmetic(a: Author) -> None:
    """Everything behind the first axis flattened, with sizes that the graph itself reads, as exporters write it."""
    x = a.value(_rank(2))
    if x and a.shape(x)[0] != 0 and 0 not in a.shape(x):
        n = len(a.lines)
        a.write(f"n{n} = b.op(Slice(), b.op(Shape(), {x}), {_ints(0)}, {_ints(1)}, {_ints(0)})")
        a.op("Reshape()", x, f"b.op(Concat(axis=0), n{n}, {_ints(-1)})")


def on_numpy(a: Author) -> None:
    """What has no kernel: the graph is cut there."""
    if x := a.value(_rank(1)):
        real = int(of_numpy(np.dtype(a.real)))
        narrow = f"b.op(Cast(to={int(DType.FLOAT8E4M3FN)}), b.op(Sign(), b.op(Abs(), {x})))"  # 1, wherever x rounds to
        a.op("Mul()", x, f"b.op(Cast(to={real}), {narrow})")


def depth_to_space(a: Author) -> None:
    x = a.value(lambda value: len(value.shape) == 4 and isinstance(value.shape[1], int) and value.shape[1] % 4 == 0)
    if x:
        a.op(f"DepthToSpace(blocksize=2, mode={a.pick(['DCR', 'CRD'])!r})", x)


# ---------------------------------------------------------------- rows


def reduce(a: Author) -> None:
    x = a.value(_rank(1))
    if x is None:
        return
    rank = len(a.shape(x))
    axes = sorted({a.number(0, rank - 1) for _ in range(a.number(1, rank))})
    kind = a.pick(["Mean", "Max", "Min", "Sum", "L2", "L1", "LogSumExp", "SumSquare", "Mean"])
    a.op(f"Reduce{kind}(keepdims={a.number(0, 1)})", x, _ints(*axes))


def softmax(a: Author) -> None:
    if x := a.value(_rank(1)):
        a.op(f"{a.pick(['Softmax', 'LogSoftmax'])}(axis={a.number(0, len(a.shape(x)) - 1)})", x)


def norm(a: Author) -> None:
    x = a.value(lambda value: len(value.shape) > 1 and isinstance(value.shape[-1], int) and value.shape[-1] > 2)
    if x is None:
        return
    size = a.shape(x)[-1]
    if a.number(0, 2):
        a.op("LayerNormalization(epsilon=0.01)", x, a.constant(size), a.pick([ABSENT, a.constant(size)]))
    else:
        a.op("RMSNormalization(epsilon=0.01)", x, a.constant(size))


def spelled_norm(a: Author) -> None:
    """A normalisation written out, as exporters do."""
    x = a.value(lambda value: len(value.shape) > 1 and isinstance(value.shape[-1], int) and value.shape[-1] > 2)
    if x is None:
        return
    n = len(a.lines)
    a.write(f"m{n} = b.op(ReduceMean(), {x}, {_ints(-1)})")
    a.write(f"d{n} = b.op(Sub(), {x}, m{n})")
    a.write(f"s{n} = b.op(ReduceMean(), b.op(Mul(), d{n}, d{n}), {_ints(-1)})")
    a.write(f"r{n} = b.op(Sqrt(), b.op(Add(), s{n}, {a.scalar(0.01)}))")
    a.op("Div()", f"d{n}", f"r{n}")


# ---------------------------------------------------------------- products


def matmul(a: Author) -> None:
    x = a.value(lambda value: len(value.shape) > 1 and isinstance(value.shape[-1], int))
    if x:
        k, n = a.shape(x)[-1], a.pick([1, 3, 8, 17])
        a.op("MatMul()", x, f"{a.constant(k, n)} / {a.scalar(max(1, k))}")


def product(a: Author) -> None:
    """A product of two computed matrices."""
    x = a.value(lambda value: len(value.shape) > 1 and isinstance(value.shape[-1], int))
    if x is None:
        return
    rank = len(a.shape(x))
    if rank == 2 and None in a.shape(x):  # the variable size twice: neither stays in front
        return
    order = (*range(rank - 2), rank - 1, rank - 2)
    y = a.value(lambda value: len(value.shape) == rank and value.shape[:-2] == a[x].shape[:-2])
    assert y is not None
    if a[x].shape[-1] == a[y].shape[-2] and a.number(0, 1):
        a.op("MatMul()", x, y)
    elif a[x].shape[-1] == a[y].shape[-1]:
        name = f"t{len(a.lines)}"
        a.write(f"{name} = b.op(Transpose(perm={order}), {y})")
        a.op("MatMul()", x, name)


def attention(a: Author) -> None:
    """Heads of one matrix attending to themselves, written out."""
    x = a.value(lambda value: len(value.shape) == 3 and isinstance(value.shape[2], int) and value.shape[2] % 2 == 0)
    if x is None:
        return
    n, size = len(a.lines), a.shape(x)[2]
    length = a[x].shape[1]
    if not isinstance(length, int):
        return
    heads = f"{_ints(0, length, 2, size // 2)}"
    for part, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("w", (0, 2, 1, 3))):
        weights = f"{a.constant(size, size)} / {a.scalar(size)}"
        a.write(f"{part}{n} = b.op(MatMul(), {x}, {weights})")
        a.write(f"{part}{n} = b.op(Transpose(perm={order}), b.op(Reshape(), {part}{n}, {heads}))")
    a.write(f"s{n} = b.op(Mul(), b.op(MatMul(), q{n}, k{n}), {a.scalar(0.5)})")
    if a.number(0, 1):
        a.write(f"s{n} = b.op(Add(), s{n}, {a.constant(length, length)})")
    a.write(f"o{n} = b.op(MatMul(), b.op(Softmax(axis=-1), s{n}), w{n})")
    a.write(f"o{n} = b.op(Transpose(perm=(0, 2, 1, 3)), o{n})")
    a.op("Reshape()", f"o{n}", _ints(0, length, size))


def gemm(a: Author) -> None:
    x = a.value(lambda value: len(value.shape) == 2 and isinstance(value.shape[1], int))
    if x is None:
        return
    k, n, flipped = a.shape(x)[1], a.pick([1, 5, 16]), a.number(0, 1)
    weights = a.constant(n, k) if flipped else a.constant(k, n)
    bias = a.pick([ABSENT, a.constant(n), a.constant(1, n), a.constant()])
    a.op(f"Gemm(transB={bool(flipped)}, alpha=0.25, beta=2.0)", x, weights, bias)


# ---------------------------------------------------------------- images


def _image(a: Author) -> str | None:
    return a.value(
        lambda value: len(value.shape) in (3, 4) and all(isinstance(dim, int) and dim > 1 for dim in value.shape[2:])
        and isinstance(value.shape[1], int)
    )  # fmt: skip


def conv(a: Author) -> None:
    x = _image(a)
    if x is None:
        return
    _, channels, *sizes = a.shape(x)
    group = a.pick([1, 1, channels, *([2] if channels % 2 == 0 else [])])
    out = group * a.number(1, 3)
    kernel = [a.pick([1, 2, 3]) if size > 2 else 1 for size in sizes]
    pads = [a.number(0, size - 1) for size in kernel] * 2
    strides, dilations = [a.number(1, 2) for _ in kernel], [1] * len(kernel)
    if a.number(0, 4) == 0:
        dilations = [2 if size + 2 * p > 2 * k else 1 for size, k, p in zip(sizes, kernel, pads, strict=False)]
    scale = math.prod(kernel) * channels // group
    weights = f"{a.constant(out, channels // group, *kernel)} / {a.scalar(max(1, scale // 2))}"
    bias = a.pick([ABSENT, a.constant(out)])
    attributes = f"group={group}, pads={tuple(pads)}, strides={tuple(strides)}, dilations={tuple(dilations)}"
    a.op(f"Conv({attributes})", x, weights, bias)


def conv_transpose(a: Author) -> None:
    x = _image(a)
    if x is None or math.prod(size or SIZE for size in a.shape(x)) > 600:
        return
    _, channels, *sizes = a.shape(x)
    kernel = [a.pick([1, 2, 3]) for _ in sizes]
    weights = f"{a.constant(channels, a.number(1, 4), *kernel)} / {a.scalar(channels)}"
    a.op(f"ConvTranspose(strides={tuple(a.number(1, 2) for _ in sizes)})", x, weights)


def pool(a: Author) -> None:
    x = _image(a)
    if x is None:
        return
    count = len(a.shape(x)) - 2
    kind = a.pick(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
    if kind.startswith("Global"):
        a.op(f"{kind}()", x)
        return
    pads = (a.number(0, 1),) * (2 * count)
    strides, ceil = (a.number(1, 2),) * count, bool(a.number(0, 1))
    counted = f", count_include_pad={bool(a.number(0, 1))}" if kind == "AveragePool" else ""
    a.op(f"{kind}(kernel_shape={(2,) * count}, pads={pads}, strides={strides}, ceil_mode={ceil}{counted})", x)


def batch_norm(a: Author) -> None:
    x = a.value(lambda value: len(value.shape) > 1 and isinstance(value.shape[1], int))
    if x:
        c = a.shape(x)[1]
        a.op("BatchNormalization()", x, a.constant(c), a.constant(c), a.constant(c), f"abs({a.constant(c)})")


def instance_norm(a: Author) -> None:
    x = _image(a)
    if x is None:
        return
    c = a.shape(x)[1]
    groups = a.pick([g for g in (1, 2, c) if c % g == 0])
    operator = a.pick(["InstanceNormalization(epsilon=0.1)", f"GroupNormalization(num_groups={groups}, epsilon=0.1)"])
    a.op(operator, x, a.constant(c), a.constant(c))


def resize(a: Author) -> None:
    x = a.value(lambda value: len(value.shape) in (3, 4) and all(isinstance(dim, int) for dim in value.shape))
    if x is None:
        return
    mode = a.pick(["nearest", "linear", "cubic"])
    scales = [1.0, 1.0, *(a.pick([0.5, 1.5, 2.0, 1.0]) for _ in a.shape(x)[2:])]
    if any(int(size * scale) < 1 for size, scale in zip(a.shape(x), scales, strict=True)):
        return
    coordinates = a.pick(["asymmetric", "align_corners", "half_pixel"])
    options = f"mode={mode!r}, nearest_mode='floor', coordinate_transformation_mode={coordinates!r}"
    a.op(f"Resize({options})", x, ABSENT, f"np.array({scales}, np.float32)")


def recurrent(a: Author) -> None:
    x = a.value(lambda value: len(value.shape) == 3 and isinstance(value.shape[2], int) and value.shape[2] > 0)
    if x is None or None in a.shape(x)[1:]:
        return
    kind, gates, size, hidden = *a.pick([("LSTM", 4), ("GRU", 3), ("RNN", 1)]), a.shape(x)[2], a.pick([3, 16])
    direction, count = a.pick([("forward", 1), ("reverse", 1), ("bidirectional", 2)])
    weights = [a.constant(count, gates * hidden, n) for n in (size, hidden)]
    bias = a.pick([ABSENT, a.constant(count, 2 * gates * hidden)])
    options = f"direction={direction!r}, hidden_size={hidden}, clip={a.pick([0.0, 0.5])}"
    a.op(f"{kind}({options})", x, *weights, bias, outputs=2)


def squeeze_excite(a: Author) -> None:
    x = _image(a)
    if x is None:
        return
    n, c = len(a.lines), a.shape(x)[1]
    ones = "1, " * (len(a.shape(x)) - 2)
    a.write(f"p{n} = b.op(GlobalAveragePool(), {x})")
    a.write(f"q{n} = b.op(Sigmoid(), b.op(Conv(), p{n}, {a.constant(c, c)}.reshape({c}, {c}, {ones})))")
    a.op("Mul()", x, f"q{n}")


# ---------------------------------------------------------------- integers and truth values


def integer_binary(a: Author) -> None:
    x = a.integer()
    if x is None:
        return
    kind = a[x].dtype
    y = a.value(lambda value: _broadcasts(value, a[x]), kind) or x
    if a.number(0, 1):
        y = a.constant(*_broadcastable(a, x), dtype=kind.numpy.name)
    operator = a.pick(["Add()", "Sub()", "Mul()", "Max()", "Min()", "BitwiseAnd()", "BitwiseXor()", "Div()", "Mod()"])
    if operator in ("Div()", "Mod()"):
        y = f"np.maximum({a.constant(*_broadcastable(a, x), dtype=kind.numpy.name)}, 1)"
    if operator == "Mod()" and a.number(0, 1):
        operator = "Mod(fmod=1)"
    a.op(operator, x, y)


def integer_unary(a: Author) -> None:
    if x := a.integer():
        signed = a[x].dtype is not DType.UINT8
        a.op(a.pick(["Abs()", "Sign()", "BitwiseNot()", *(["Neg()", "Relu()"] if signed else [])]), x)


def compare(a: Author) -> None:
    x = a.integer()
    if x:
        operator = a.pick(["Greater()", "Less()", "Equal()", "GreaterOrEqual()", "LessOrEqual()"])
        a.op(operator, x, a.constant(*_broadcastable(a, x), dtype=a[x].dtype.numpy.name))


def logic(a: Author) -> None:
    x = a.value(lambda value: True, DType.BOOL)
    if x is None:
        return
    y = a.value(lambda value: _broadcasts(value, a[x]), DType.BOOL)
    assert y is not None
    if a.number(0, 2):
        a.op(a.pick(["And()", "Or()", "Xor()", "Equal()"]), x, y)
    else:
        a.op("Not()", x)


def choose(a: Author) -> None:
    """Add a Where with a computed condition."""
    x = a.value(lambda value: True, DType.BOOL)
    if x is None:
        return
    dtype = a.pick([of_numpy(np.dtype(a.real)), *INTEGERS, DType.BOOL])
    y = a.value(lambda value: _broadcasts(value, a[x]), dtype)
    if y:
        a.op("Where()", x, y, a.constant(dtype=dtype.numpy.name))


def convert(a: Author) -> None:
    x = a.value(lambda value: True, *INTEGERS, DType.BOOL)
    if x:
        real = of_numpy(np.dtype(a.real))
        a.op(f"Cast(to={int(a.pick([real, real, DType.BOOL, *INTEGERS]))})", x)


def integer_reduce(a: Author) -> None:
    x = a.integer(_rank(1))
    if x is None:
        return
    axis = a.number(0, len(a.shape(x)) - 1)
    if a[x].dtype in (DType.INT64, DType.INT32):
        a.op(f"{a.pick(['ReduceSum', 'ReduceMax', 'ReduceMin'])}(keepdims={a.number(0, 1)})", x, _ints(axis))
    a.op(f"{a.pick(['ArgMax', 'ArgMin'])}(axis={axis}, keepdims={a.number(0, 1)})", x)


def gather_by_value(a: Author) -> None:
    """Gather with indices that only a run knows."""
    x, i = a.value(_rank(1)), a.value(_rank(0, 2), DType.INT64, DType.INT32)
    if x is None or i is None or not (axes := a.axes(x)):
        return
    axis = a.pick(axes)
    limit = f"np.array({a.shape(x)[axis]}, np.{a[i].dtype.numpy.name})"
    a.op(f"Gather(axis={axis})", x, f"b.op(Mod(), {i}, {limit})")


def move_anything(a: Author) -> None:
    """A view or a copy of a value that is no float."""
    x = a.value(lambda value: len(value.shape) > 0, *INTEGERS, DType.BOOL)
    if x is None:
        return
    rank = len(a.shape(x))
    kind = a.pick(["transpose", "concat", "slice", "unsqueeze", "expand"])
    axis = a.pick(a.axes(x) or [0])
    if kind == "transpose":
        a.op(f"Transpose(perm={tuple(a.draw_permutation(rank))})", x)
    elif kind == "concat" and a.axes(x):
        a.op(f"Concat(axis={axis})", x, x)
    elif kind == "slice" and a.axes(x):
        a.op("Slice()", x, _ints(0), _ints(9), _ints(axis), _ints(a.number(1, 2)))
    elif kind == "unsqueeze" and rank < 5:
        a.op("Unsqueeze()", x, _ints(a.number(0, rank)))
    else:
        a.op("Expand()", x, _ints(2, *(1 for _ in range(rank))))


ELEMENTWISE = (unary, by_constant, binary, where, clip)
MOVEMENT = (
    *(transpose, reshape, unsqueeze, squeeze, slice_, split, concat, pad, expand, tile, gather, depth_to_space),
    *(shape_arithmetic, on_numpy),
)
ROWS = (reduce, softmax, norm, spelled_norm)
PRODUCTS = (matmul, product, gemm, attention, recurrent)
IMAGES = (conv, conv, conv_transpose, pool, batch_norm, instance_norm, resize, squeeze_excite)
WHOLE = (integer_binary, integer_unary, compare, logic, choose, convert, integer_reduce, gather_by_value, move_anything)

FLOATS = (*ELEMENTWISE, *ELEMENTWISE, *MOVEMENT, *ROWS, *PRODUCTS)
VISION = (*ELEMENTWISE, *ELEMENTWISE, *IMAGES, *IMAGES, concat, slice_, split, pad, transpose, reduce, gather, matmul)
MIXED = (*WHOLE, *WHOLE, *ELEMENTWISE, concat, transpose, reduce)
