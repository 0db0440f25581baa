"""The vocabulary between operators and the planner: what is computed, without saying how.

An operator's `lower` speaks in these computations (through `lowering.Lowering`); the planner knows them and no
operator. Tensors are described logically, in ONNX's axis order (images as N, C, spatial...): where elements lie in
memory is the planner's choice. Fields hold integers or dimension expressions; operands are given in the order of the
docstring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from jitonnx.ir.computation.expressions import Expr
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.forest import Forest
from jitonnx.ir.operator import Operator
from jitonnx.support.records import dataclass

if TYPE_CHECKING:
    from jitonnx.ir.computation.drawing import Distribution


ReductionKind: TypeAlias = Literal[
    "sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"
]
SegmentsKind: TypeAlias = Literal["sum", "mean", "max"]
Extremum: TypeAlias = Literal["max", "min"]
CumulationKind: TypeAlias = Literal["sum", "prod"]
NormalizationKind: TypeAlias = Literal["layer", "rms"]
RecurrentKind: TypeAlias = Literal["LSTM", "GRU", "RNN"]
PoolKind: TypeAlias = Literal["max", "average", "lp"]


class Computation:
    """Base of all computations."""

    @property
    def name(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class Map(Computation):
    """out = expr(operands...), element by element, operands broadcast; `expr` may read the element's coordinates."""

    expr: Expr


# ---------------------------------------------------------------- views: the same elements, addressed otherwise


class View(Computation):
    """Base of the computations that only readdress elements; one operand."""


@dataclass(frozen=True)
class Transpose(View):
    """Axis i of the result is axis permutation[i] of the operand."""

    permutation: tuple[int, ...]


@dataclass(frozen=True)
class Reshape(View):
    """The elements in row-major order under another shape."""

    shape: tuple[DimLike, ...]


@dataclass(frozen=True)
class Broadcast(View):
    """Repeated along axes of size 1 and along new leading axes, to `shape`."""

    shape: tuple[DimLike, ...]


@dataclass(frozen=True)
class Slice(View):
    """Element i of axis a is element starts[a] + i * steps[a] of the operand; steps may be negative."""

    starts: tuple[DimLike, ...]
    steps: tuple[int, ...]
    shape: tuple[DimLike, ...]


# ---------------------------------------------------------------- data movement


@dataclass(frozen=True)
class BitCast(Computation):
    """The operand's bits read as elements of a type of as many."""

    dtype: DType


@dataclass(frozen=True)
class Concat(Computation):
    """Operands one behind the other along `axis`."""

    axis: int


@dataclass(frozen=True)
class Pad(Computation):
    """The operand with `before` and `after` elements added (or, negative, cut) on each axis.

    mode: constant (operand 1, a scalar, if given; else 0), reflect, edge or wrap.
    """

    before: tuple[DimLike, ...]
    after: tuple[DimLike, ...]
    mode: str


@dataclass(frozen=True)
class Gather(Computation):
    """data, indices: out[..., i..., ...] = data[..., indices[i...], ...] along `axis`; negative indices count from the
    end."""

    axis: int


@dataclass(frozen=True)
class GatherElements(Computation):
    """data, indices: out[i, j, ...] = data with the coordinate on `axis` replaced by indices[i, j, ...]."""

    axis: int


@dataclass(frozen=True)
class GatherND(Computation):
    """data, indices: the last axis of indices addresses axes of data behind `batch_dims` shared leading ones."""

    batch_dims: int


@dataclass(frozen=True)
class ScatterElements(Computation):
    """data, indices, updates: data with updates[i, j, ...] written where GatherElements would read, in row-major order.

    reduction: none, or what combines an update with what is there: add, mul, max or min (NaN wins).
    """

    axis: int
    reduction: str


@dataclass(frozen=True)
class ScatterND(Computation):
    """data, indices, updates: data with slices updates[i, ...] written where the last axis of indices says, in order.

    reduction: as of ScatterElements.
    """

    reduction: str


@dataclass(frozen=True)
class ReverseSequence(Computation):
    """data, lengths: the first lengths[i] elements along `time_axis` reversed, for each position i on `batch_axis`."""

    batch_axis: int
    time_axis: int


# ---------------------------------------------------------------- reductions and normalisations


@dataclass(frozen=True)
class Reduce(Computation):
    """One operand reduced over `axes`, which stay as size 1 if keepdims. Of int8 and uint8 results are int32, or, if
    `wide`, int64.

    kind: sum, mean, max, min, prod, l1, l2, sum_square, log_sum, log_sum_exp.
    """

    kind: ReductionKind
    axes: tuple[int, ...]
    keepdims: bool
    wide: bool = False


@dataclass(frozen=True)
class ReduceSegments(Computation):
    """x [n, ...], offsets [s + 1]: rows offsets[i] to offsets[i + 1] of x, which lie between 0 and n and in order,
    reduced to row i [s, ...]; 0 of no rows."""

    kind: SegmentsKind


@dataclass(frozen=True)
class ArgReduce(Computation):
    """Index (int64) of the largest or smallest element along `axis`; kind: max or min; last of equals if `last`."""

    kind: Extremum
    axis: int
    keepdims: bool
    last: bool


@dataclass(frozen=True)
class Cumulate(Computation):
    """Sums or products of all elements up to each one along `axis`; kind: sum or prod.

    exclusive: without the element itself. reverse: from the end on.
    """

    kind: CumulationKind
    axis: int
    exclusive: bool
    reverse: bool


@dataclass(frozen=True)
class TopK(Computation):
    """The largest (or smallest) elements along `axis`, in order, as many as the results hold; and their int64 indices.

    Of equal ones the first; NaN is larger than all numbers.
    """

    axis: int
    largest: bool


@dataclass(frozen=True)
class NonZero(Computation):
    """Coordinates of the elements that are not zero, an axis after the other; see `Lowering.counted`."""


@dataclass(frozen=True)
class Compress(Computation):
    """The slices along `axis` for which operand 1 is true; see `Lowering.counted`."""

    axis: int


@dataclass(frozen=True)
class Unique(Computation):
    """The distinct slices along `axis`, the indices where each comes first, of all slices the number of their distinct
    one, and how often each comes; see `Lowering.counted_together`.

    ascending: in lexicographic order, else in that of first occurrence. NaN equals NaN in an operand of one axis, and
    in others none.
    """

    axis: int
    ascending: bool


@dataclass(frozen=True)
class NonMaxSuppression(Computation):
    """ONNX's operator of that name, of (boxes, scores, limit, overlap, least score); see `Lowering.counted`.

    centers: boxes are centers and sizes. thresholded: without it the last operand counts for nothing. most: no more
    boxes are chosen of a class.
    """

    centers: bool
    thresholded: bool
    most: DimLike


@dataclass(frozen=True)
class Softmax(Computation):
    """exp(x - max) / sum along `axis`, or its logarithm."""

    axis: int
    log: bool


@dataclass(frozen=True)
class Normalize(Computation):
    """x, scale?, bias?: (x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on.

    kind: layer, or rms (no mean taken off).
    """

    kind: NormalizationKind
    axis: int
    epsilon: float


@dataclass(frozen=True)
class GroupNormalize(Computation):
    """x [N, C, spatial...], scale? [C], bias? [C]: each group of C / groups adjacent channels normalised over itself.

    groups None: every channel is its own group (InstanceNormalization). Divided by sqrt(variance + epsilon), or if
    `outside` by sqrt(variance) + epsilon (MeanVarianceNormalization).
    """

    groups: int | None
    epsilon: float
    outside: bool = False


@dataclass(frozen=True)
class LocalResponseNormalize(Computation):
    """x [N, C, spatial...]: x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ** beta."""

    size: int
    alpha: float
    beta: float
    bias: float


# ---------------------------------------------------------------- products


@dataclass(frozen=True)
class MatMul(Computation):
    """a [..., m, k], b [..., k, n]: the matrix product, leading axes broadcast (rank 2 at least)."""


@dataclass(frozen=True)
class Check(Computation):
    """condition [...], bool: a run is an error if it holds anywhere; `text` says why. The result is empty."""

    text: str


@dataclass(frozen=True)
class Determinant(Computation):
    """x [..., n, n]: the determinants of the matrices, [...]."""


@dataclass(frozen=True)
class Convolution(Computation):
    """x [N, C, spatial...], w [M, C / group, kernel...], bias [M]?: ONNX's Conv.

    pads: before and after for each spatial axis, as two tuples. exact: elements are whole numbers, so small that sums
    of their products are exact in any order; an algorithm that computes with fractions is not.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[DimLike, ...]
    pads_after: tuple[DimLike, ...]
    group: int
    exact: bool = False


@dataclass(frozen=True)
class Bfloat16WeightMatMul(Computation):
    """a [..., m, k] of float32 or bfloat16, b [..., k, n] of float32, a constant, one matrix for all leading axes: the
    product of both rounded to bfloat16, summed in float32."""


@dataclass(frozen=True)
class Bfloat16MatMul(Computation):
    """a [..., m, k] and b [..., k, n] of float32 or bfloat16, both computed: the product of both rounded to bfloat16,
    summed in float32, of matrices that broadcast."""


@dataclass(frozen=True)
class Bfloat16Convolution(Computation):
    """x [N, C, spatial...] of float32 or bfloat16, w [M, C, kernel...] of float32, a constant, bias [M]? of float32:
    the convolution of x and w rounded to bfloat16, summed in float32, over one or two spatial axes.

    pads: before and after for each spatial axis, as two tuples.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[DimLike, ...]
    pads_after: tuple[DimLike, ...]


@dataclass(frozen=True)
class IntegerWeightMatMul(Computation):
    """a [..., m, k] of int8 or uint8, b [k, n] of int8, a constant, zero []? of a's type: (a - zero) @ b, in int32."""


@dataclass(frozen=True)
class IntegerMatMul(Computation):
    """a [..., m, k] and b [..., k, n] of int8 or uint8, both computed, a_zero []? of a's type, b_zero []? of b's:
    (a - a_zero) @ (b - b_zero), in int32, of matrices that broadcast."""


@dataclass(frozen=True)
class IntegerConvolution(Computation):
    """x [N, C, H, W] of int8 or uint8, w [M, C, kernel...] of int8, a constant, zero []? of x's type: the convolution
    of x - zero with w, in int32; padding counts as zero. depthwise: w is [C, 1, kernel...], a kernel for each channel.

    pads: before and after for each spatial axis, as two tuples.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[DimLike, ...]
    pads_after: tuple[DimLike, ...]
    depthwise: bool = False


@dataclass(frozen=True)
class NBitsMatMul(Computation):
    """a [..., m, k] of float32, q [n, blocks, block * bits / 8] of uint8, s [n, blocks] of float32, z [n, blocks]? of
    uint8 or float32, the last three constants: a @ wᵀ with w[n, i] = (q[n, i] - z) s, z and s those of block i / block.

    The numbers q have 2, 4 or 8 bits and lie in bytes, the first in the lowest bits; without z it is 2 ** (bits - 1).
    Blocks are of 16 to 256 elements. rounds: elements of a and w may be rounded to bfloat16; quantises: those of a to
    int8, by blocks.
    """

    bits: int
    block: int
    rounds: bool = False
    quantises: bool = False


@dataclass(frozen=True)
class DynamicQuantize(Computation):
    """x of float32 as uint8, with the scale, float32 [], and the zero point, uint8 [], that its least and its largest
    element, and 0, ask for."""


@dataclass(frozen=True)
class Lookup(Computation):
    """x of int8 or uint8, table [256] of such, a constant: the elements at the places that x's bytes are as unsigned
    numbers, in x's shape."""


@dataclass(frozen=True)
class TransposedConvolution(Computation):
    """x [N, C, spatial...], w [C, M / group, kernel...], bias [M]?: ONNX's ConvTranspose, to spatial size `output`."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[DimLike, ...]
    output: tuple[DimLike, ...]
    group: int


@dataclass(frozen=True)
class Attention(Computation):
    """q [B, H, S, D], k [B, Hkv, T, D], v [B, Hkv, T, Dv], mask?: softmax(scale * q kᵀ + mask) v, [B, H, S, Dv], in
    float32; k and v are of float32, or both of the same half precision, as caches are, or both integers: of int8, or of
    uint8, two of them in a byte: [B, Hkv, T, D / 2], where elements i and D / 2 + i of a row are its byte i's low and
    high four bits, less 8.

    mask is broadcast to [B, H, S, T]; a boolean one takes -inf where it is false. Hkv divides H.
    masked_rows_zero: a row in which everything is masked gives 0 rather than NaN.
    """

    scale: float
    causal: bool
    masked_rows_zero: bool


@dataclass(frozen=True)
class CacheUpdate(Computation):
    """past [B, H, C, D]?, new [B, H, S, D], start [B] of int64: past with new in its rows from start[b] on, as
    [B, H, P, D] with P >= C; rows that neither has are 0. It may be made where the past lies."""


@dataclass(frozen=True)
class SlidingCacheUpdate(Computation):
    """past [B, H, C, D], new [B, H, S, D], before [B] of int64: what new positions attend to, the last window - 1 at
    most of those that went into past and then themselves, [B, H, R, D]; and past with them, of which it drops the first
    C - window + 1 where they do not fit, as often as it takes. In both, rows behind are 0. The second may be made where
    the past lies."""

    window: int


@dataclass(frozen=True)
class LinearAttention(Computation):
    """q [B, T, H, K], k [B, T, Hkv, K], v [B, T, Hkv, V], state [B, Hkv, K, V]?, factor [B, T, Hkv, K or 1]?, beta
    [B, T, Hkv or 1, 1]?: a state for each head of k and v, updated step by step and read by the H / Hkv heads of q.

    S = factor ∘ S + k (beta (v - Sᵀ k))ᵀ, without beta S = factor ∘ S + k vᵀ; y = scale Sᵀ q. Outputs y [B, T, H, V]
    and the last S.
    """

    scale: float


@dataclass(frozen=True)
class Recurrent(Computation):
    """x [T, B, I], w, r, b?, sequence_lens?, initial_h?, initial_c?, p?, read?: ONNX's LSTM, GRU or RNN, layout 0.

    read [1], int64: how many of the T * B rows of x any sequence comes to, which are the first ones; all if left out.
    Outputs y [T, directions, B, H], y_h, and for LSTM y_c. Activations with their alpha and beta, all of the first
    direction first. clip bounds the gates before their activations, though not the cell on its way into LSTM's h; 0:
    none.
    """

    kind: RecurrentKind
    direction: str
    hidden: int
    activations: tuple[tuple[str, float, float], ...]
    clip: float
    input_forget: bool
    linear_before_reset: bool
    projected: bool = False


# ---------------------------------------------------------------- trees


@dataclass(frozen=True)
class Trees(Computation):
    """x [rows, features], of the forest's type: its scores [rows, targets], combined by `aggregate`: sum, min or max.

    A target without weights in a row's leaves gets what combining begins with: 0, or an infinity.
    """

    forest: Forest
    aggregate: str


# ---------------------------------------------------------------- windows


@dataclass(frozen=True)
class Pool(Computation):
    """x [N, C, spatial...] pooled over windows to spatial size `output`. kind: max, average or lp (with exponent p).

    Windows reach into the padding; average counts it only if count_include_pad. A second output of max: the index of
    the element taken, in the flattened operand (column-major in the spatial axes if storage_order is 1). Sums go
    through a window row by row; by_columns, columns are added up first where strides are short.
    """

    kind: PoolKind
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_before: tuple[DimLike, ...]
    pads_after: tuple[DimLike, ...]
    output: tuple[DimLike, ...]
    count_include_pad: bool
    p: int
    storage_order: int
    by_columns: bool


@dataclass(frozen=True)
class Fold(Computation):
    """x [N, C, kernel..., blocks...]: [N, C, spatial...], the sum of all blocks in their places.

    Tap k of block l belongs to the element l * stride - before + k * dilation along each axis, if there is one.
    """

    kernel: tuple[int, ...]
    blocks: tuple[DimLike, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]


@dataclass(frozen=True)
class Resize(Computation):
    """x resampled to `shape` as ONNX's Resize. roi by axis, in [0, 1].

    scales by axis; None: the quotient of the sizes, or with a policy that of a pair (wanted, length) in `aspect`: the
    smallest ("not_larger") or largest ("not_smaller").
    """

    shape: tuple[DimLike, ...]
    scales: tuple[float | None, ...]
    roi: tuple[tuple[float, float], ...] | None
    mode: str
    coordinates: str
    nearest: str
    cubic_coefficient: float
    exclude_outside: bool
    extrapolation: float
    antialias: bool
    policy: str = ""
    aspect: tuple[tuple[DimLike, DimLike], ...] = ()


@dataclass(frozen=True)
class Sample(Computation):
    """x [N, C, spatial...], coordinates [N, axes, P], factors [N, P]?: x at P places, times factors: [N, C, P].

    Coordinates are in elements along each spatial axis, in order; see `jitonnx.ir.computation.sampling` for the rest.
    """

    mode: str
    outside: str
    aligned: bool


@dataclass(frozen=True)
class RoiAlign(Computation):
    """x [N, C, H, W], rois [R, 4], batch_indices [R]: ONNX's RoiAlign, [R, C, height, width].

    mode: avg, max, or pool, which is MaxRoiPool and has neither `sampling` nor `half_pixel`.
    """

    mode: str
    height: int
    width: int
    sampling: int
    scale: float
    half_pixel: bool


# ---------------------------------------------------------------- everything else


@dataclass(frozen=True)
class Fill(Computation):
    """No operand: a tensor of `shape` whose elements are `expr` of their coordinates."""

    expr: Expr
    shape: tuple[DimLike, ...]


@dataclass(frozen=True)
class Draw(Computation):
    """No operand: a tensor of `shape` of random numbers, in row-major order; see `jitonnx.ir.computation.drawing`.

    seed: None for float32 or float64 that differ from run to run; else the numbers, of any type, are those of the seed.
    """

    distribution: Distribution
    seed: int | None
    dtype: DType
    shape: tuple[DimLike, ...]


@dataclass(frozen=True)
class Search(Computation):
    """sums [rows, n], ascending, x [rows, m], float64: how many sums of its row each x is not below."""


@dataclass(frozen=True)
class UserKernel(Computation):
    """A user's function over arrays, compiled: of dense operands it makes dense results.

    function: its name. ir: an LLVM module that defines the kernel as `linked.SYMBOL`, of the kernels' signature.
    errors: what each of the words behind its operands says when it is set. items: how many independent items it makes
    the results in. cost: rough nanoseconds for an element of the results.
    """

    function: str
    ir: str
    errors: tuple[str, ...]
    items: DimLike
    cost: int


@dataclass(frozen=True)
class Host(Computation):
    """Evaluated on NumPy between native programs: strings, sequences, output shapes that depend on data, cold
    operators."""

    operator: Operator
    dtypes: tuple[DType | None, ...]
