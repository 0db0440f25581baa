"""Products and what is done to rows in front of them in turns, band of rows by band: what lies between stays in the
second-level cache.

The scale and ReLU in front of a 1x1 convolution (DenseNet), the normalisation in front of a product and the two
products of a perceptron (ConvNeXt): each row of the last result is made of one row of the first operand. Where the
matrices between are large, each kernel waits for the third-level cache to take its results, and the next one for it to
give them back. So all kernels go through some rows, in memory that all bands use, then through the next ones. Weights
are read once for each band: only chains are cut whose weights stay in the second-level cache besides.

Measured step by step on a Granite Rapids that others used, bands of a step summed in each run, one thread: DenseNet121
takes 0.955 of the time (its 3x3 convolutions, too, find more in the cache), the first perceptrons of ConvNeXt 0.9 to
0.97, two products of ResNet50, the second of which adds the first, 0.87. Bands of twice the size gained a third of
that, of half the size as much. Products write to the
third-level cache of a Zen 4 as fast as they multiply: nothing is cut for such cores.

Where only a run tells how many rows there are, but surely enough (several images of a known size), there are as many
bands as many rows need, of as many rows as the run's sizes ask for; those behind the last row are empty. Others are not
cut: sequences, of which most are short, would be sixteen steps instead of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import Any

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import DimLike, ceil_divide, concrete, evaluate, known, maximum, variables, within
from jitonnx.kernels.gemm.spec import GemmSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.region import RegionSpec
from jitonnx.plan.tensor import Buffer, StridedTensor, dense_tensor, flat_rows
from jitonnx.support.records import dataclass
from jitonnx.target import tuning
from jitonnx.target.machine import Target


def rows_in_bands(calls: list[KernelCall], target: Target) -> list[KernelCall]:
    """The calls, with chains of products and what is done to rows in front of them cut into bands."""
    if not target.waits_for_l3:
        return calls
    uses = Counter(buffer for call in calls for buffer in {tensor.buffer for tensor in call.tensors})
    result: list[KernelCall] = []
    place = 0
    while place < len(calls):
        chain = _chain(calls, place, uses, target)
        rows = _rows_of_a_band(chain, target)
        result += [calls[place]] if rows is None else _cut(chain, rows)
        place += 1 if rows is None else len(chain)
    return result


@dataclass(eq=False)
class _Link:
    """A kernel that makes each row of a matrix of one row of another."""

    call: KernelCall
    rows: DimLike
    columns: int
    """They are those of the result."""
    rows_at: str
    """The name of the size that says how many rows there are."""
    strides: dict[int, DimLike]
    """How far rows are apart in the tensors that have them, by their places in the call: the result is among them."""
    weights: int = 0
    """Bytes that every band reads."""

    @property
    def result_at(self) -> int:
        """The place of the result."""
        return self.call.buffers.results()[0]

    @property
    def result(self) -> StridedTensor:
        return self.call.tensors[self.result_at]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the result."""
        return self.columns * self.result.dtype.itemsize

    @property
    def heights(self) -> list[int]:
        """The height of a product's tiles."""
        return [self.call.spec.rows[0]] if isinstance(self.call.spec, GemmSpec) else []

    def band(self, number: int, first: DimLike, count: DimLike, between: dict[Buffer, StridedTensor]) -> KernelCall:
        """The call of a band, by its number, of `count` rows from `first` on; between: memory of what lies between."""
        tensors = [
            between.get(tensor.buffer) or flat_rows(tensor, first, count, self.strides.get(place, 0), self.rows)
            for place, tensor in enumerate(self.call.tensors)
        ]
        own, sizes = len(self.call.buffers), [*self.call.sizes]
        sizes[self.call.sizes.place(self.rows_at)] = count
        rows = f"rows {first} to {first + count} of {self.rows}" if known((self.rows,)) else f"band {number}"
        return replace(
            self.call,
            buffers=type(self.call.buffers).make(tensors[:own]),
            sizes=type(self.call.sizes).make(sizes),
            stage_tensors=tensors[own:],
            stage_sizes=[*self.call.stage_sizes],
            notes=[*self.call.notes, f"{rows}; what lies between stays in the second-level cache"],
        )

    def in_tiles(self, rows: int) -> None:
        """Choose heights of tiles that make up bands of so many rows, and the last one of a known number."""
        spec = self.call.spec
        if isinstance(spec, GemmSpec) and isinstance(self.rows, int):
            left = {count % spec.rows[0] for count in (rows, self.rows % rows)} - {0}
            self.call = replace(self.call, spec=replace(spec, rows=(spec.rows[0], *sorted(left, reverse=True))))


def _chain(calls: Sequence[KernelCall], place: int, uses: Counter[Buffer], target: Target) -> list[_Link]:
    """The links of a chain that begins with a call and ends with a product; empty where there is none."""
    links: list[_Link] = []
    for call in calls[place:]:
        link = _link(call)
        if link is None or (links and not _follows(links[-1], link, uses)):
            break
        if sum(one.weights for one in (*links, link)) > target.l2_bytes // tuning.TILING_ROWS_WEIGHTS:
            break
        links.append(link)
    while links and not links[-1].heights:
        links.pop()
    read = {tensor.buffer for link in links for tensor in link.call.read}
    return links if len(links) > 1 and links[-1].result.buffer not in read else []


def _follows(first: _Link, second: _Link, uses: Counter[Buffer]) -> bool:
    """Whether all that the first makes is a dense matrix, whose rows the second alone reads."""
    made = first.result
    reading = [place for place, tensor in enumerate(second.call.tensors) if tensor.buffer is made.buffer]
    return (
        made.buffer.space == "arena"
        and uses[made.buffer] == 2
        and len(reading) == 1
        and (made.offset, second.call.tensors[reading[0]].offset) == (0, 0)
        and first.rows == second.rows
        and first.strides[first.result_at] == second.strides.get(reading[0]) == first.columns
        and made.buffer.elements == first.rows * first.columns
    )


def _rows_of_a_band(chain: Sequence[_Link], target: Target) -> DimLike | None:
    """None where cutting brings nothing."""
    if not chain:
        return None
    memory, rows, each = (
        target.l2_bytes // tuning.TILING_ROWS_SHARE_OF_L2,
        chain[0].rows,
        sum(link.row_bytes for link in chain[:-1]),
    )
    heights = [height for link in chain for height in link.heights]
    step = lcm(*heights) if 2 * lcm(*heights) * each <= memory else max(heights)
    if _fewest(rows) * each <= tuning.TILING_ROWS_BANDS * memory or step * each > memory:
        return None
    if isinstance(rows, int):
        bands = -(-rows * each // memory)
        return -(-rows // (bands * step)) * step
    return maximum(memory // (each * step), ceil_divide(rows, tuning.TILING_BANDS * step)) * step


def _fewest(rows: DimLike) -> int:
    """How many rows there are where every variable size is 1; 0 where that is no size."""
    try:
        return evaluate(rows, dict.fromkeys(variables(rows), 1))
    except ZeroDivisionError:
        return 0


def _cut(chain: Sequence[_Link], rows: DimLike) -> list[KernelCall]:
    """The chain's calls, band by band."""
    end, between = chain[0].rows, {}
    for link in chain[:-1]:
        buffer = link.result.buffer
        between[buffer] = dense_tensor(buffer.name, (rows, link.columns), link.result.dtype, (0, 1))
    for link in chain:
        if isinstance(rows, int):
            link.in_tiles(rows)
    number = -(-end // rows) if isinstance(end, int) and isinstance(rows, int) else tuning.TILING_BANDS
    spans = [(band * rows, within(end - band * rows, rows)) for band in range(number)]
    return [link.band(band, *span, between) for band, span in enumerate(spans) for link in chain]


def _link(call: KernelCall) -> _Link | None:
    """A call as a link, if it is one, of a known number of columns."""
    if call.prologue is not None:
        return None
    if isinstance(call.spec, RegionSpec):
        return _map(call, call.spec)
    if isinstance(call.spec, GemmSpec):
        return _product(call, call.spec)
    return _normalization(call) if call.spec.family == "normalization" else None


def _product(call: KernelCall, spec: GemmSpec) -> _Link | None:
    """A product with a constant matrix."""
    sizes: Any = call.sizes
    buffers: Any = call.buffers
    n, k = concrete(sizes.n), concrete(sizes.k)
    single = (sizes.outer, sizes.inner, sizes.a_column) == (1, 1, 1)
    if n is None or k is None or not single or spec.wanted or buffers.b.buffer.space != "constant":
        return None
    strides = {buffers.place("a"): sizes.a_row, buffers.place("c"): sizes.c_row, **_of_epilogue(call)}
    return _Link(call, sizes.m, n, "m", strides, spec.packed_elements(n, k) * spec.itemsize)


def _normalization(call: KernelCall) -> _Link | None:
    """LayerNormalization or RMSNormalization of rows."""
    from jitonnx.kernels.normalization.spec import LayerNormSpec  # few models of products have one

    sizes: Any = call.sizes
    buffers: Any = call.buffers
    if not isinstance(call.spec, LayerNormSpec) or call.spec.keep or concrete(sizes.columns) is None:
        return None
    strides = {buffers.place("x"): sizes.x_row, buffers.place("y"): sizes.y_row, **_of_epilogue(call)}
    return _Link(call, sizes.rows, sizes.columns, "rows", strides)


def _map(call: KernelCall, spec: RegionSpec) -> _Link | None:
    """A region of two loops, over rows and within them, that depends on no coordinates."""
    sizes: Any = call.sizes
    extents, strides = sizes.extents, sizes.strides
    asks_where = any(node.op == "index" for root in spec.exprs for node in e.children_first(root))
    if spec.rank != 2 or len(spec.outputs) != 1 or spec.streams or asks_where or concrete(extents[1]) is None:
        return None
    return _Link(call, extents[0], extents[1], "extents", dict(enumerate(strides[::2])))


def _of_epilogue(call: KernelCall) -> dict[int, DimLike]:
    """How far rows are apart in an epilogue's operands, by their places in the call."""
    stage = call.epilogue
    if stage is None:
        return {}
    strides = call.stage_sizes[stage.first_size - call.spec.size_count :]
    return {stage.first_buffer + number: strides[2 * number + 1] for number, moves in enumerate(stage.rows) if moves}
