"""What a computation is in exported code: an expression over its operands' names, of functions of NumPy or `operators`.

A computation without an entry in `CALLS` has no plain form; `Uncovered` says so of some whose fields have none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from jitonnx.codegen.numba.export.names import literal, tuple_text
from jitonnx.codegen.numba.writing import Uncovered
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Statement
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ops.windows import Windows


class Call:
    """A statement that is written: its operands' names, and what it asks for of `operators`.

    size: the text of a dimension variable.
    """

    def __init__(self, statement: Statement, operands: Sequence[str | None], size: Callable[[str], str]) -> None:
        self.statement, self.operands, self._size = statement, operands, size
        self.computation: Any = statement.computation
        self.functions: list[str] = []

    @property
    def x(self) -> str:
        """The first operand's name."""
        return str(self.operands[0])

    @property
    def output(self) -> Value:
        return self.statement.outputs[0]

    def literal(self, value: Any) -> str:
        """A number, a text, a size, or a tuple of such."""
        return literal(value, self._size)

    def function(self, name: str, *fields: str, omitted: Collection[str] = (), **others: Any) -> str:
        """A call of a function of `operators`, with the operands, and fields of the computation by their names: those
        given, or all but some. others: what else it takes by name."""
        self.functions.append(name)
        given = list(self.operands)
        while given and given[-1] is None:
            given.pop()
        names = fields or [name for name in _fields(self.computation) if name not in omitted]
        values = {name: getattr(self.computation, name) for name in names} | others
        texts = [*map(str, given), *(f"{name}={self.literal(value)}" for name, value in values.items())]
        return f"{name}({', '.join(texts)})"


def _fields(computation: c.Computation) -> list[str]:
    return list(type(computation).__annotations__)


def dtype_text(dtype: DType) -> str:
    """An element type in exported code."""
    return "np.bool_" if dtype is DType.BOOL else f"np.{dtype.numpy.name}"


def _slice(call: Call) -> str:
    """Plain subscripts where it can be seen that they are; else a function works them out."""
    operand = call.statement.inputs[0]
    assert operand is not None
    places = []
    for start, step, size, whole in zip(
        call.computation.starts, call.computation.steps, call.computation.shape, operand.shape, strict=True
    ):
        if start == 0 and step == 1 and size == whole:
            places.append(":")
            continue
        if step < 0 or not (isinstance(start, int) and start >= 0):
            call.functions.append("strided")
            texts = map(call.literal, (call.computation.starts, call.computation.steps, call.computation.shape))
            return f"strided({call.x}, {', '.join(texts)})"
        stop: DimLike = start + step * size
        if isinstance(stop, int) and isinstance(size, int) and size:
            stop = stop - step + 1
        first, end = "" if start == 0 else call.literal(start), "" if stop == whole else call.literal(stop)
        places.append(f"{first}:{end}" + (f":{step}" if step != 1 else ""))
    while places and places[-1] == ":":
        places.pop()
    return f"{call.x}[{', '.join(places)}]" if places else call.x


def _concat(call: Call) -> str:
    return f"np.concatenate({tuple_text([str(x) for x in call.operands])}, axis={call.computation.axis})"


def _top_k(call: Call) -> str:
    return call.function("top_k", k=call.output.shape[call.computation.axis])


def _attention(call: Call) -> str:
    k = call.statement.inputs[1]
    assert k is not None
    if not k.dtype.is_float:
        raise Uncovered("keys and values in integers")
    return call.function("attention")


def _cache_update(call: Call) -> str:
    return call.function("cache_update", rows=call.output.shape[2])


def _windows(call: Call, kernel: Sequence[DimLike], after: Sequence[DimLike] = ()) -> Windows:
    """The windows of a computation with strides and dilations by axis."""
    x = call.computation
    before = x.before if isinstance(x, c.Fold) else x.pads_before
    call.functions.append("Windows")
    return Windows(tuple(kernel), x.strides, x.dilations, before, tuple(after), call.output.shape[2:])


def _pool(call: Call) -> str:
    computation = call.computation
    windows = _windows(call, computation.kernel, computation.pads_after)
    if computation.kind == "average":
        return call.function("average_pool", "count_include_pad", windows=windows)
    if computation.kind == "lp":
        return call.function("lp_pool", "p", windows=windows)
    text = call.function("max_pool", "storage_order", windows=windows)
    return text if len(call.statement.outputs) > 1 else f"{text}[0]"


def _convolution(name: str, last: str) -> Callable[[Call], str]:
    """What writes the call of a convolution by weights [outer, inner, kernel...]. last: what its function takes besides
    windows."""

    def written(call: Call) -> str:
        w = call.statement.inputs[1]
        assert w is not None
        return call.function(name, last, windows=_windows(call, w.shape[2:]))

    return written


def _fold(call: Call) -> str:
    return call.function("fold", "blocks", windows=_windows(call, call.computation.kernel))


def _recurrent(call: Call) -> str:
    del call.operands[8:]  # type: ignore[attr-defined]  # how many rows are read is for the kernel
    if call.computation.projected:
        call.operands.insert(1, "None")  # type: ignore[attr-defined]
    text = call.function("recurrent", omitted=("projected",))
    count = len(call.statement.outputs)
    return text if count == 3 else f"{text}[:{count}]" if count > 1 else f"{text}[0]"


def _named(name: str, *fields: str, omitted: Collection[str] = ()) -> Callable[[Call], str]:
    return lambda call: call.function(name, *fields, omitted=omitted)


CALLS: dict[type[c.Computation], Callable[[Call], str]] = {
    c.Transpose: lambda call: f"np.transpose({call.x}, {call.literal(call.computation.permutation)})",
    c.Reshape: lambda call: f"{call.x}.reshape({call.literal(call.computation.shape)})",
    c.Broadcast: lambda call: f"np.broadcast_to({call.x}, {call.literal(call.computation.shape)})",
    c.Slice: _slice,
    c.BitCast: lambda call: f"{call.x}.view({dtype_text(call.computation.dtype)})",
    c.Concat: _concat,
    c.Pad: _named("pad"),
    c.Gather: lambda call: f"np.take({call.x}, {call.operands[1]}, axis={call.computation.axis})",
    c.GatherElements: _named("gather_elements"),
    c.GatherND: _named("gather_nd"),
    c.ScatterElements: _named("scatter_elements"),
    c.ScatterND: _named("scatter_nd"),
    c.ReverseSequence: _named("reverse_sequence"),
    c.CacheUpdate: _cache_update,
    c.Reduce: _named("reduce"),
    c.ArgReduce: _named("arg_reduce"),
    c.Cumulate: _named("cumulate"),
    c.TopK: _top_k,
    c.Softmax: _named("softmax"),
    c.Normalize: _named("normalize"),
    c.GroupNormalize: _named("group_normalize"),
    c.LocalResponseNormalize: _named("local_response_normalize"),
    c.MatMul: lambda call: f"np.matmul({call.x}, {call.operands[1]})",
    c.Check: _named("check"),
    c.Determinant: _named("determinant"),
    c.ReduceSegments: _named("reduce_segments"),
    c.Convolution: _convolution("convolution", "group"),
    c.TransposedConvolution: _convolution("transposed_convolution", "group"),
    c.IntegerWeightMatMul: _named("integer_product"),
    c.IntegerMatMul: _named("integer_product"),
    c.IntegerConvolution: _convolution("integer_convolution", "depthwise"),
    c.NBitsMatMul: _named("nbits_product", "bits", "block"),
    c.DynamicQuantize: _named("dynamic_quantize"),
    c.Lookup: _named("lookup"),
    c.Attention: _attention,
    c.LinearAttention: _named("linear_attention"),
    c.Recurrent: _recurrent,
    c.Pool: _pool,
    c.Fold: _fold,
    c.Resize: _named("resize"),
    c.Sample: _named("grid_sample"),
}
"""What writes the expression of a computation's results: an array, or a tuple of them where there are several."""
