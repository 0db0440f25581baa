"""Products: GEMM and attention."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, concrete, evaluate, known, product, usual, variables
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.attention.spec import (
    AttentionBuffers,
    AttentionSizes,
    JoinBuffers,
    JoinSizes,
    JoinSpec,
    most_spans,
    shared_heads,
)
from jitonnx.kernels.attention.spec import choose as choose_attention
from jitonnx.kernels.gemm.blas import BlasBuffers, BlasSizes, BlasSpec
from jitonnx.kernels.gemm.choose import GemmExtents, choose_gemm, stored_type
from jitonnx.kernels.gemm.spec import ELEMENTS, GemmBuffers, GemmGiven, GemmSpec, ScaleBuffers, ScaleSizes, ScaleSpec
from jitonnx.kernels.normalization.spec import float_bits
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.placement import HEADS_INSIDE
from jitonnx.plan.region import region_call
from jitonnx.plan.tensor import StridedTensor, broadcast_to, reshape_strides
from jitonnx.support.records import NamedTuple, dataclass

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def matmul(planner: Planner, group: Group, computation: c.MatMul, left: Value, right: Value) -> None:
    """A GEMM, batched where b is; leading axes of a join its rows where they lie one after the other."""
    if left.dtype.numpy.name not in ELEMENTS:
        # ONNX has no products of other types; half precision is widened, and bytes have operators of their own.
        planner.unplannable(f"a product of {left.dtype.text}")
    a, b = planner.tensor(left), planner.tensor(right)
    order = _order_of_rows(a) if b.rank == 2 else None
    out = planner.place(group.output, order or tuple(range(len(group.output.shape))), strict=True)
    if order is None or as_rows(_permuted(out, order)) is None:  # the result may be bound for where it lies otherwise
        gemm(planner, group, a, b, GemmResult(out))
    else:
        result = GemmResult(_permuted(out, order), lambda tensor: _permuted(tensor, order), order)
        gemm(planner, group, _permuted(a, order), b, result)


def _order_of_rows(a: StridedTensor) -> tuple[int, ...] | None:
    """The order of a's axes in which the leading ones are rows of one matrix; None if they are or never can be.

    With another order of the result's rows, each matrix of a is multiplied alone, and reads b anew.
    """
    axes = tuple(range(a.rank))
    if as_rows(a) is None and a.rank <= 4:
        for leading in itertools.permutations(axes[:-1]):
            if as_rows(_permuted(a, order := (*leading, axes[-1]))) is not None:
                return order
    return None


def as_rows(tensor: StridedTensor) -> tuple[DimLike, ...] | None:
    """The stride of a tensor's leading axes, seen as one; None if they do not lie so."""
    return reshape_strides(tensor.shape[:-1], tensor.strides[:-1], (product(tensor.shape[:-1]),))


def _permuted(tensor: StridedTensor, order: Sequence[int]) -> StridedTensor:
    shape, strides = (tuple(row[axis] for axis in order) for row in (tensor.shape, tensor.strides))
    return replace(tensor, shape=shape, strides=strides)


_TURNED, _TURNED_SIDE = 1 << 14, 16
"""Elements from which on a transposed matrix is copied by a kernel of its own, and rows and columns that it has to
have: tasks that copy their rows fetch a line for each element. 256 x 512 x 128 takes 0.9 of the time so."""


def _is_turned(a: StridedTensor) -> bool:
    """Whether a matrix of some size lies transposed."""
    if a.rank < 2 or a.constant is not None or a.strides[-2] != 1 or a.strides[-1] == 1:
        return False
    rows, columns = (usual(size) for size in a.shape[-2:])
    return min(rows, columns) >= _TURNED_SIDE and rows * columns >= _TURNED


class GemmResult(NamedTuple):
    """What a product gives, and how it is the group's result."""

    out: StridedTensor
    """[..., m, n]."""
    as_matrix: Callable[[StridedTensor], StridedTensor | None] = lambda tensor: tensor
    """A tensor of the group's result's shape as [..., m, n]; None if its memory does not allow that."""
    order: Sequence[int] | None = None
    """The memory order of the result's axes, if it is not the one chosen for the group's result."""
    wanted: StridedTensor | None = None
    """An int64 that says how many rows of the result, counted through all matrices, need to be computed; None: all."""


def gemm(
    planner: Planner,
    group: Group,
    a: StridedTensor,
    b: StridedTensor,
    result: GemmResult,
    factors: StridedTensor | None = None,
) -> None:
    """The call out = epilogue(a @ b) for tensors of shapes [..., m, k], [..., k, n] and [..., m, n].

    With `factors` [images or 1, k], the columns of a[image] are multiplied by them: b, constant then, is, row by row.
    """
    out = result.out
    batch = out.shape[:-2]
    m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
    if factors is not None and factors.shape[0] != 1:  # each image has a b of its own
        b = replace(b, shape=(factors.shape[0], k, n), strides=(k * n, *b.strides))
    if _is_turned(a):
        a = planner.copy(a, tuple(range(a.rank)), "rows of a transposed matrix, which tiles turn as a whole")
    a, b, shape = two_loops(planner, broadcast_to(a, (*batch, m, k)), broadcast_to(b, (*batch, k, n)), out)
    if planner.choices.blas and factors is None and _blas(planner, group, shape, a, b, out):
        return
    plain = replace(b, shape=b.shape[-2:], strides=b.strides[-2:])
    shared = factors is not None or all(stride == 0 for stride in shape.b_batch)
    constant = shared and plain.constant is not None
    spec = choose_gemm(
        GemmExtents(concrete(shape.m), concrete(n), concrete(k), shape.batch),
        planner.target,
        packed_b=constant,
        a_in_place=a.strides[-1] == 1 or a.shape[-1] == 1,
        element=out.dtype.numpy.name,
    )
    if constant and factors is None:
        assert plain.constant is not None
        stored = stored_type(plain.constant, fewest(shape.m))
        spec = replace(spec, b_stored=stored, b_widened=bool(stored) and concrete(shape.m) is None)
    matrix, b_batch = planner.packed(plain, spec.pack_b, spec) if constant else b, shape.b_batch
    if factors is not None:
        matrix = _scaled(planner, spec, matrix, factors, n)
        b_batch = (0, matrix.strides[0] if factors.shape[0] != 1 else 0)
    sizes = product_sizes(shape, n, k, a.strides[-1], b, b_batch)
    label = f"gemm {size_text(shape.batch, shape.m, n, k)}"
    call = KernelCall(spec, GemmBuffers(a=a, b=matrix, c=out), sizes, label=label)
    call.reason = "; ".join(group.reasons)
    call.notes.append("b packed when the program is built" if constant else "b packed as it is used")
    planner.epilogue(group, call, lambda tensor: matrix_rows(result.as_matrix(tensor), shape), result.order)
    if result.wanted is not None:
        call.spec = replace(spec, wanted=len(call.tensors))
        call.stage_tensors.append(result.wanted)
    planner.call(call)


def product_sizes(
    shape: Matrices, n: DimLike, k: DimLike, a_column: DimLike, b: StridedTensor, b_batch: Sequence[DimLike]
) -> GemmGiven:
    """The sizes that kernels are given of a @ b.

    a_column: the distance of a's columns. b_batch: those of b's matrices along both loops.
    """
    return GemmGiven(
        m=shape.m,
        n=n,
        k=k,
        outer=shape.outer,
        inner=shape.inner,
        a_row=shape.a_row,
        a_column=a_column,
        **by_name("b_row b_column", b.strides[-2:]),
        c_row=shape.c_row,
        **by_name("a_outer a_inner", shape.a_batch),
        **by_name("b_outer b_inner", b_batch),
        **by_name("c_outer c_inner", shape.c_batch),
    )


def two_loops(
    planner: Planner, a: StridedTensor, b: StridedTensor, out: StridedTensor
) -> tuple[StridedTensor, StridedTensor, Matrices]:
    """Operands whose leading axes at most two loops go along, copied where they have to be; and the product then."""
    batch, m = out.shape[:-2], out.shape[-2]
    shape = _merged(batch, m, a, b, out)
    if shape is None:
        a = planner.copy(a, tuple(range(a.rank)), "its leading axes do not fit two loops")
        shape = _merged(batch, m, a, b, out)
    if shape is None:
        b = planner.copy(b, tuple(range(b.rank)), "its leading axes do not fit two loops")
        shape = _merged(batch, m, a, b, out)
        assert shape is not None, "Bug: dense matrices do not fit two loops"
    return a, b, shape


def _scaled(
    planner: Planner, spec: GemmSpec, packed: StridedTensor, factors: StridedTensor, n: DimLike
) -> StridedTensor:
    """Packed weights with their rows multiplied by factors [images, k]: new memory [images, packed elements]."""
    images, k = factors.shape
    assert isinstance(n, int) and isinstance(k, int), "Bug: constant weights have symbolic sizes"
    full, last = spec.panels(n)
    scaled = planner.temporary((images, spec.packed_elements(n, k)), packed.dtype)
    sizes = ScaleSizes(
        images=images,
        k=k,
        full=full,
        width=spec.widths[0],
        last=last,
        **by_name("factor_image factor_step", factors.strides),
    )
    buffers = ScaleBuffers(packed=packed, factors=factors, scaled=scaled)
    call = KernelCall(ScaleSpec(spec.element), buffers, sizes, label=f"scale weights {k}x{n}")
    call.reason = "has fewer elements than what they are multiplied with"
    planner.call(call)
    return scaled


def _blas(
    planner: Planner, group: Group, shape: Matrices, a: StridedTensor, b: StridedTensor, out: StridedTensor
) -> bool:
    """Call a BLAS for a single product of matrices that it can read, and do the epilogue in place; whether it could."""
    turned = [tensor.strides[-1] != 1 for tensor in (a, b)]
    rows = [shape.a_row, b.strides[-2]]
    readable = all(not turn or row == 1 for turn, row in zip(turned, rows, strict=True))
    if (shape.outer, shape.inner) != (1, 1) or not readable or out.dtype not in (DType.FLOAT, DType.DOUBLE):
        return False
    spec = BlasSpec(out.dtype.numpy.name, *turned)
    m, n, k = shape.m, out.shape[-1], a.shape[-1]
    # BLAS wants rows at least as far apart as they are long, also where there is only one.
    a_row = a.strides[-1] if turned[0] else k if m == 1 else shape.a_row
    b_row = b.strides[-1] if turned[1] else n if k == 1 else b.strides[-2]
    sizes = BlasSizes(m=m, n=n, k=k, a_row=a_row, b_row=b_row, c_row=n if m == 1 else shape.c_row)
    call = KernelCall(spec, BlasBuffers(a=a, b=b, c=out), sizes, label=f"BLAS {m}x{n}x{k}")
    call.reason = "the session asks for BLAS"
    planner.call(call)
    if group.expr is not None:
        result = planner.tensor(group.output)
        operands = [result, *(planner.tensor(value) for value in group.operands)]
        planner.call(region_call([group.expr], operands, [result], label="region", origin=(), reason="behind BLAS"))
    return True


_STORED = {DType.FLOAT: "float32", DType.INT8: "int8", DType.UINT8: "int4", **{dtype: dtype.text for dtype in HALVES}}
"""What keys and values of a type are to the attention kernel."""


def attention(
    planner: Planner,
    group: Group,
    computation: c.Attention,
    q_value: Value,
    k_value: Value,
    v_value: Value,
    mask_value: Value | None = None,
) -> None:
    """Attention of all heads in one kernel. The result lies as [batch, sequence, heads, size], ready to be merged."""
    if q_value.dtype is not DType.FLOAT:
        # ONNX's Attention of double, which no exporter writes; attention spelt out in double stays in its parts.
        planner.unplannable(f"attention of {q_value.dtype.text}")
    q, k, v = planner.unit_inner(q_value), planner.tensor(k_value), planner.tensor(v_value)
    y = planner.place(group.output, HEADS_INSIDE)
    if y.strides[-1] != 1 and y.shape[-1] != 1:
        y = planner.move(group.output, HEADS_INSIDE)
    batch, heads, queries, depth = q.shape
    keys, value_depth = k.shape[2], group.output.shape[3]
    mask, kind = y, ""
    if mask_value is not None:
        mask = broadcast_to(planner.tensor(mask_value), (batch, heads, queries, keys))
        kind = "bool" if mask.dtype is DType.BOOL else "float"
        if mask.strides[3] != 1 and mask.shape[3] != 1:
            mask = planner.copy(mask, (0, 1, 2, 3), "a mask is read along its rows")
    shared = shared_heads(concrete(heads) or 0, concrete(k.shape[1]) or 0)
    # Where queries are as many as keys, a row is no more than one of many.
    decodes = concrete(queries) == 1 or queries != keys
    spec = choose_attention(
        concrete(queries),
        concrete(keys),
        concrete(value_depth),
        planner.target,
        mask=kind,
        causal=computation.causal,
        empty_rows_zero=computation.masked_rows_zero,
        rows_lie=k.strides[3] == 1 and v.strides[3] == 1,
        rounded=planner.rounds_products,
        stored=_STORED[k.dtype],
        shared=shared,
        most_spans=most_spans(concrete(heads) or 0, shared, concrete(keys)) if decodes else 1,
    )
    sizes = AttentionSizes(
        batch=batch,
        heads=heads,
        kv_heads=k.shape[1],
        queries=queries,
        keys=keys,
        depth=depth,
        value_depth=value_depth,
        **by_name("q_batch q_head q_row", q.strides[:3]),
        **by_name("k_batch k_head k_row k_column", k.strides),
        **by_name("v_batch v_head v_row v_column", v.strides),
        **by_name("y_batch y_head y_row", y.strides[:3]),
        **by_name("mask_batch mask_head mask_row", mask.strides[:3] if kind else (0, 0, 0)),
        scale_bits=float_bits(computation.scale),
        causal_offset=0,
        fill_bits=float_bits(-math.inf),
    )
    spans = y
    if spec.most_spans > 1:
        spans = planner.temporary((batch, heads, spec.most_spans, value_depth + 2), DType.FLOAT)
    call = KernelCall(spec, AttentionBuffers(q=q, k=k, v=v, mask=mask, y=y, spans=spans), sizes)
    call.label = f"attention {heads} heads, {queries}x{keys}x{depth}"
    reasons = group.reasons or ["scores stay in cache, heads are read and written where they lie"]
    call.reason = "; ".join([*reasons, *(["operands rounded to bfloat16"] if spec.rounded else [])])
    planner.call(call)
    if spec.most_spans > 1:
        join = JoinSpec(spec.shared, spec.most_spans, spec.natural, spec.empty_rows_zero)
        given = JoinSizes(
            **by_name("batch heads queries keys value_depth", (batch, heads, queries, keys, value_depth)),
            **by_name("y_batch y_head", y.strides[:2]),
        )
        call = KernelCall(join, JoinBuffers(spans=spans, y=y), given, label=f"join spans of {keys} keys")
        call.reason = "keys of a query row are shared by threads in spans, where there are few heads"
        planner.call(call)


@dataclass(frozen=True)
class Matrices:
    """A batched product as the kernel counts it: outer x inner matrices of m rows."""

    m: DimLike
    outer: DimLike
    inner: DimLike
    a_row: DimLike
    c_row: DimLike
    a_batch: tuple[DimLike, DimLike]
    b_batch: tuple[DimLike, DimLike]
    c_batch: tuple[DimLike, DimLike]

    @property
    def batch(self) -> int | None:
        return self.outer * self.inner if known((self.outer, self.inner)) else None  # type: ignore[return-value]


def _merged(
    batch: Sequence[DimLike], m: DimLike, a: StridedTensor, b: StridedTensor, out: StridedTensor
) -> Matrices | None:
    """The product with all leading axes among a's rows if b has none, else as at most two loops over matrices."""
    lead_a, lead_b, lead_c = a.strides[:-2], b.strides[:-2], out.strides[:-2]
    if all(stride == 0 or dim == 1 for stride, dim in zip(lead_b, batch, strict=True)):
        rows: DimLike = m
        for dim in batch:
            rows = rows * dim
        a_row = reshape_strides((*batch, m), (*lead_a, a.strides[-2]), (rows,))
        c_row = reshape_strides((*batch, m), (*lead_c, out.strides[-2]), (rows,))
        if a_row is not None and c_row is not None:
            return Matrices(rows, 1, 1, a_row[0], c_row[0], (0, 0), (0, 0), (0, 0))
    loops: list[tuple[DimLike, tuple[DimLike, ...]]] = []
    for dim, *strides in zip(batch, lead_a, lead_b, lead_c, strict=True):
        if dim == 1:
            continue
        if loops and all(o == i * dim for o, i in zip(loops[-1][1], strides, strict=True)):
            loops[-1] = (loops[-1][0] * dim, tuple(strides))
        else:
            loops.append((dim, tuple(strides)))
    if len(loops) > 2:
        return None
    while len(loops) < 2:
        loops.insert(0, (1, (0, 0, 0)))
    (outer, first), (inner, second) = loops
    return Matrices(m, outer, inner, a.strides[-2], out.strides[-2], *zip(first, second, strict=True))


def matrix_rows(tensor: StridedTensor | None, shape: Matrices) -> tuple[DimLike, DimLike, DimLike] | None:
    """Strides of an epilogue operand of shape [..., m, n]."""
    if tensor is None:
        return None
    *batch, m, _ = tensor.shape
    *lead, row, column = tensor.strides
    if shape.outer == 1 and shape.inner == 1:
        merged = reshape_strides((*batch, m), (*lead, row), (shape.m,))
        return None if merged is None else (0, merged[0], column)
    merged = reshape_strides(batch, lead, (shape.outer * shape.inner,))
    return None if merged is None else (merged[0], row, column)


def fewest(rows: DimLike) -> int:
    """How many rows there are where every variable size is 1."""
    return evaluate(rows, dict.fromkeys(variables(rows), 1))


def size_text(batch: int | None, m: DimLike, n: DimLike, k: DimLike) -> str:
    matrices = "" if batch == 1 else f"{batch or 'n'} x "
    return f"{matrices}{m}x{n}x{k}"
