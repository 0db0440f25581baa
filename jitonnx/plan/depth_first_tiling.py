"""Convolutions that follow each other in turns, band by band: what lies between stays in the second-level cache.

What makes many channels (an expansion by a 1x1 convolution, or a model's first convolution), the depthwise convolution
that reads them, and the projection behind that, are kernels of which each makes an image that the next one alone reads.
Where these images are larger than the second-level cache (112 x 112 x 96 in MobileNet v2), the first kernel waits for
the third-level cache to take its results and the second to give them back. So the last result's rows are cut into
bands: the first makes the rows that a band needs, in memory that all bands use, the second its rows of them, and so on.
Rows that two bands need are made twice. Each thread has a part of each band.

Measured step by step on a Granite Rapids that others used, one thread: expansions and depthwise convolutions alone take
0.93 of MobileNet v2's time without bands, and first convolutions and projections besides 0.97 of that. Products write
to the third-level cache of a Zen 4 as fast as they multiply: nothing is cut for such cores, unless tuning measures that
it pays (on a Zen 5: expansions of MobileNets, not with two threads).

A maximum over windows takes the depthwise convolution's place as well: behind the first convolution of a ResNet it
reads 112 x 112 x 64.

Several images are not cut. Where only a run tells how many there are, the first band is all of them then, and the
others are empty. Where only a run tells an image's height or width, there are as many bands as large images need, of
as many rows as the run's sizes ask for; those behind the last row are empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jitonnx.emit.arguments import Arguments
from jitonnx.ir.dims import DimLike, ceil_divide, floor_divide, integers, known, maximum, usual, within
from jitonnx.kernels.convolution.problem import ConvolutionBuffers, Problem
from jitonnx.kernels.convolution.spec import DepthwiseSizes, DepthwiseSpec, DirectSpec
from jitonnx.kernels.gemm.spec import GemmBuffers, GemmGiven, GemmSpec
from jitonnx.kernels.pooling.spec import PoolBuffers, PoolSizes, PoolSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.tensor import Buffer, StridedTensor, channels_last_order, dense_tensor, flat_rows, rows_of_images
from jitonnx.support.records import NamedTuple, dataclass
from jitonnx.target import tuning
from jitonnx.target.choosing import cheapest, is_tuned, made_choices
from jitonnx.target.machine import Target


def in_bands(calls: list[KernelCall], target: Target) -> list[KernelCall]:
    """The calls, with those that gain by it, or are measured to, cut into bands."""
    if not target.waits_for_l3 and not is_tuned():
        return calls
    uses = Counter(buffer for call in calls for buffer in {tensor.buffer for tensor in call.tensors})
    result: list[KernelCall] = []
    place = 0
    while place < len(calls):
        chain = _chain(calls[place : place + tuning.TILING_LONGEST], uses)
        links, bands = _chosen(chain, target)
        if made := made_choices():
            for link in chain:
                link.call.note_choices(made)
        result += _cut(chain[:links], bands) if links else [calls[place]]
        place += links or 1
    return result


def _chosen(chain: Sequence[_Link], target: Target) -> tuple[int, list[_Span]]:
    """How many links of a chain go in turns, and the rows of the last result that each band makes; no links where
    cutting brings nothing.

    Cores that wait for their third-level cache cut as many links as they can into bands of the usual size, others none.
    """
    shares = (tuning.TILING_SHARE_OF_L2, *(_OTHER_SHARES if is_tuned() else ()))
    tried = [(links, share) for share in shares for links in range(len(chain), 1, -1)]
    ways = {way: bands for way in tried if len(bands := _bands(chain[: way[0]], target, way[1])) > 1}
    usual = next((way for way in ways if way[1] == tuning.TILING_SHARE_OF_L2 and target.waits_for_l3), _APART)
    if ways and is_tuned() and all(link.is_known for link in chain):
        sizes = [f"{link.out_height}x{link.out_width}x{link.channels}" for link in chain]
        first = chain[0]
        usual = cheapest(
            "bands",
            lambda: " to ".join([f"{first.height}x{first.width}x{first.inputs}", *sizes]),
            {usual: 1.0} | {way: _OTHER_WAY for way in (_APART, *ways) if way != usual},
            lambda way: f"{way[0]} kernels in {len(ways[way])} bands" if way in ways else "one after the other",
            alike=lambda way: (way[0], len(ways.get(way, ()))),
        )
    return usual[0], ways.get(usual, [])


_APART = (0, 0)
"""No links go in turns."""
_OTHER_SHARES = (4, 1)
"""Other sizes of bands that may be worth measuring: as `tuning.TILING_SHARE_OF_L2`."""
_OTHER_WAY = 1.1
"""What another way than the usual one costs, roughly."""


class _Span(NamedTuple):
    """Rows of an image: the first, and how many."""

    first: DimLike
    rows: DimLike


@dataclass(eq=False)
class _Link:
    """A kernel that makes rows of one image of rows of another, with their sizes."""

    call: KernelCall
    images: DimLike
    height: DimLike
    width: DimLike
    out_height: DimLike
    out_width: DimLike
    channels: int
    """They are those of the result."""
    inputs: int
    """Channels of what it reads."""
    stride: int = 1
    reach: int = 1
    """Input rows that an output row reads, from the first to the last."""
    pad: int = 0
    """Rows of padding above the image."""

    @property
    def source(self) -> StridedTensor:
        """The image that it reads."""
        return self.call.buffers[0]  # type: ignore[no-any-return]

    @property
    def result(self) -> StridedTensor:
        """The image that it makes."""
        return self.call.written[0]

    @property
    def row_bytes(self) -> DimLike:
        """Bytes of a row of its result."""
        return self.out_width * self.channels * self.result.dtype.itemsize

    @property
    def is_known(self) -> bool:
        """Whether the sizes of its images are known, but for their number."""
        return known((self.height, self.width, self.out_height, self.out_width))

    def reads(self, made: _Span) -> _Span:
        """The input rows that rows of the result are made of: those of the first band, or of one whose padding above
        is not needed (`_least`). No result may be made of some, at the end of the image."""
        if (self.stride, self.reach, self.pad) == (1, 1, 0):
            return made
        skipped = self.pad if made.first == 0 else 0
        first = made.first * self.stride - self.pad + skipped
        return _Span(first, within(made.rows * self.stride + self.reach - self.stride - skipped, self.height - first))

    def band(
        self, number: int, read: _Span, made: _Span, x: StridedTensor | None, y: StridedTensor | None
    ) -> KernelCall:
        """The call of a band, by its number: for rows `made` of the result, which begin with y, and rows `read` of its
        input, with x.

        x, y: None for the memory of the whole images.
        """
        raise NotImplementedError

    def _with(self, number: int, made: _Span, buffers: Arguments, sizes: Arguments) -> KernelCall:
        rows = f"rows {made.first} to {made.first + made.rows} of {self.out_height}"
        note = f"{rows if self.is_known else f'band {number}'}; what lies between stays in the second-level cache"
        tensors, epilogue = [*self.call.stage_tensors], self.call.epilogue
        if epilogue is not None:
            skipped = len(self.call.buffers)
            strides = self.call.stage_sizes[epilogue.first_size - self.call.spec.size_count :]
            for operand, moves in enumerate(epilogue.rows):
                if moves:
                    place = epilogue.first_buffer + operand - skipped
                    first, count = made.first * self.out_width, made.rows * self.out_width
                    tensors[place] = flat_rows(tensors[place], first, count, strides[2 * operand + 1])
        return replace(
            self.call,
            buffers=buffers,
            sizes=sizes,
            stage_tensors=tensors,
            stage_sizes=[*self.call.stage_sizes],
            notes=[*self.call.notes, note],
        )

    def _of(self, number: int, part: DimLike, whole: DimLike) -> DimLike:
        """A size in a band: `part` of one image; of several, `whole` in the first band, and 0 in the others."""
        rest = 0 if number else whole
        return rest + _is_one(self.images) * (part - rest)


class _Pixels(_Link):
    """A 1x1 convolution: a product whose rows are pixels."""

    def band(
        self, number: int, read: _Span, made: _Span, x: StridedTensor | None, y: StridedTensor | None
    ) -> KernelCall:
        given, buffers = self.call.sizes, self.call.buffers
        assert isinstance(given, GemmGiven) and isinstance(buffers, GemmBuffers)
        a = x or flat_rows(buffers.a, read.first * self.width, read.rows * self.width, given.a_row)
        c = y or flat_rows(buffers.c, made.first * self.width, made.rows * self.width, given.c_row)
        m = self._of(number, made.rows * self.width, given.m)
        return self._with(number, made, _changed(buffers, a=a, c=c), _changed(given, m=m))

    def in_tiles(self, spans: Iterable[_Span]) -> None:
        """Choose the heights of tiles that make up the rows of all spans: one that makes up each row of pixels,
        which others may share, or else the usual one and what it leaves.
        """
        spec = self.call.spec
        assert isinstance(spec, GemmSpec)
        if self.images != 1 or not self.is_known:
            return
        highest = spec.rows[0]
        whole = [size for size in range(highest, 3 * highest // 4, -1) if self.width % size == 0]
        left = {integers((span.rows * self.width % highest,))[0] for span in spans}
        heights = (whole[0],) if whole else (highest, *sorted(left - {0}, reverse=True))
        self.call = replace(self.call, spec=replace(spec, rows=heights))


class _Windows(_Link):
    """A convolution of several taps."""

    def band(
        self, number: int, read: _Span, made: _Span, x: StridedTensor | None, y: StridedTensor | None
    ) -> KernelCall:
        given, buffers = self.call.sizes, self.call.buffers
        assert isinstance(given, DepthwiseSizes | Problem | PoolSizes)
        assert isinstance(buffers, ConvolutionBuffers | PoolBuffers)
        padding = self._of(number, read.first - (made.first * self.stride - self.pad), self.pad)
        sizes = _changed(
            given,
            height=self._of(number, read.rows, self.height),
            out_height=self._of(number, made.rows, self.out_height),
            **{"pad_height" if isinstance(given, PoolSizes) else "pad_top": padding},
        )
        x = x or rows_of_images(buffers.x, read.first, read.rows, given.x_row)
        y = y or rows_of_images(buffers.y, made.first, made.rows, given.y_row)
        written = {"y": y, "indices": y} if isinstance(buffers, PoolBuffers) else {"y": y}
        return self._with(number, made, _changed(buffers, x=x, **written), sizes)


def _bands(chain: Sequence[_Link], target: Target, share: float) -> list[_Span]:
    """The rows of the last result that each band makes; one band or none where cutting brings nothing. share: what lies
    between takes the second-level cache over this."""
    memory, all_known = int(target.l2_bytes / share), all(link.is_known for link in chain)
    total = sum(usual(link.out_height * link.row_bytes) for link in chain[:-1])
    if len(chain) < 2 or total <= (memory if all_known else target.l2_bytes):
        return []
    height, (each, besides), least = chain[-1].out_height, _between(chain), _least(chain)
    fitting = floor_divide(memory - besides, maximum(1, each))
    if all_known:
        fit, end = integers((fitting, height))
        if fit < least:
            return []
        even = -(-end // -(-end // fit))
        return [_Span(first, min(even, end - first)) for first in range(0, end, even)]
    number = min(tuning.TILING_BANDS, -(-tuning.TILING_LARGER * total // memory))
    wanted = least + within(fitting - least, height)
    wanted += within(ceil_divide(height, number) - wanted, height)
    stays = within(target.l2_bytes + 1 - wanted * each - besides, 1)
    all_rows = height + least
    rows = within(all_rows + stays * (wanted - all_rows), all_rows + wanted)
    return [_Span(place * rows, within(height - place * rows, rows)) for place in range(number)]


def _least(chain: Sequence[_Link]) -> int:
    """Rows of a band at least, so that few are made twice, and all but the first read no padding above the image."""
    once, twice = _made(chain)
    first = 1
    for link in chain:
        first = -(-(first + link.pad) // link.stride)
    return max(-(-tuning.TILING_ONCE * twice // once), first)


def _between(chain: Sequence[_Link]) -> tuple[DimLike, DimLike]:
    """Bytes of what lies between in a band: so many a row of the last result, and those besides."""
    each: DimLike = 0
    besides: DimLike = 0
    for number, link in enumerate(chain[:-1]):
        rows, more = _made(chain[number:])
        each, besides = each + rows * link.row_bytes, besides + more * link.row_bytes
    return each, besides


def _made(chain: Sequence[_Link]) -> tuple[int, int]:
    """How many rows of the first result a row of the last is made of, and how many more a band is, which are made
    twice."""
    rows, more = 1, 0
    for link in chain[:0:-1]:
        rows, more = rows * link.stride, more * link.stride + link.reach - link.stride
    return rows, more


def _cut(chain: Sequence[_Link], bands: Sequence[_Span]) -> list[KernelCall]:
    """The chain's calls, band by band."""
    made = [_needed(chain, band) for band in bands]
    for number, link in enumerate(chain):
        if isinstance(link, _Pixels):
            link.in_tiles(spans[number] for spans in made)
    memory: list[StridedTensor | None] = []
    for number, link in enumerate(chain[:-1]):
        each, besides = _made(chain[number:])
        rows = within(bands[0].rows * each + besides, link.out_height)
        one = _is_one(link.images)
        shape = link.images, link.channels, link.out_height + one * (rows - link.out_height), link.out_width
        old = link.result
        memory.append(dense_tensor(old.buffer.name, shape, old.dtype, channels_last_order(4)))
    memory.append(None)
    calls = []
    for number, spans in enumerate(made):
        before = None
        for link, span, y in zip(chain, spans, memory, strict=True):
            calls.append(link.band(number, link.reads(span), span, before, y))
            before = y
    return calls


def _needed(chain: Sequence[_Link], band: _Span) -> list[_Span]:
    """The rows that each link has to make for a band of the last one's."""
    spans = [band]
    for link in chain[:0:-1]:
        spans.insert(0, link.reads(spans[0]))
    return spans


def _is_one(images: DimLike) -> DimLike:
    """1 for one image, 0 for none and for several."""
    return maximum(0, 1 - (images - 1) * (images - 1))


def _chain(calls: Sequence[KernelCall], uses: Counter[Buffer]) -> list[_Link]:
    """The links of a chain with which the calls begin: what makes an image, a depthwise convolution or a pooling, and
    perhaps a projection. Empty where there is none."""
    if len(calls) < 2:
        return []
    middle = _windows(calls[1])
    if middle is None or not isinstance(calls[1].spec, DepthwiseSpec | PoolSpec):
        return []
    first = _windows(calls[0]) or _pixels(calls[0], middle.images, middle.height, middle.width)
    if first is None or isinstance(first.call.spec, DepthwiseSpec | PoolSpec) or not _follows(first, middle, uses):
        return []
    chain = [first, middle]
    if len(calls) > 2:
        last = _pixels(calls[2], middle.images, middle.out_height, middle.out_width)
        if last is not None and _follows(middle, last, uses):
            chain.append(last)
    read = {tensor.buffer for link in chain for tensor in link.call.read}
    return chain if chain[-1].result.buffer not in read else []


def _follows(first: _Link, second: _Link, uses: Counter[Buffer]) -> bool:
    """Whether all that the first makes is a dense image, which the second alone reads."""
    made, read = first.result, second.source
    size = (first.images, first.out_height, first.out_width, first.channels)
    return (
        made.buffer is read.buffer
        and made.buffer.space == "arena"
        and uses[made.buffer] == 2
        and (made.offset, read.offset) == (0, 0)
        and _is_dense(first, written=True)
        and _is_dense(second, written=False)
        and size == (second.images, second.height, second.width, second.inputs)
    )


def _is_dense(link: _Link, *, written: bool) -> bool:
    """Whether a link's result, or what it reads, is a channels-last image without gaps, as its sizes say."""
    sizes = link.call.sizes
    if isinstance(sizes, GemmGiven):
        return sizes.c_row == sizes.n if written else (sizes.a_row, sizes.a_column) == (sizes.k, 1)
    assert isinstance(sizes, DepthwiseSizes | Problem | PoolSizes)
    height, width, channels = (
        (link.out_height, link.out_width, link.channels) if written else (link.height, link.width, link.inputs)
    )
    wanted = channels, width * channels, height * width * channels
    if isinstance(sizes, Problem) and (sizes.y_channel if written else sizes.x_channel) != 1:
        return False
    if written:
        return wanted == (sizes.y_pixel, sizes.y_row, sizes.y_image)
    return wanted == (sizes.x_pixel, sizes.x_row, sizes.x_image)


def _windows(call: KernelCall) -> _Link | None:
    """A call as a link, if it is a convolution or takes maxima of windows, and its sizes are known but for the images'
    and their number, which is 1 if known."""
    spec, sizes = call.spec, call.sizes
    if call.prologue is not None:
        return None
    if isinstance(spec, DepthwiseSpec) and isinstance(sizes, DepthwiseSizes):
        window = spec.strides[0], spec.dilations[0] * (spec.kernel[0] - 1) + 1
        outputs = sizes.channels
    elif type(spec) is DirectSpec and isinstance(sizes, Problem):
        window = sizes.stride_height, sizes.dilation_height * (sizes.kernel_height - 1) + 1
        outputs = sizes.out_channels
    elif isinstance(spec, PoolSpec) and isinstance(sizes, PoolSizes) and _takes_maxima(spec, sizes):
        window = sizes.stride_height, sizes.dilation_height * (sizes.kernel_height - 1) + 1
        outputs = sizes.channels
    else:
        return None
    extents = sizes.height, sizes.width, sizes.out_height, sizes.out_width, outputs, sizes.channels
    pad = sizes.pad_height if isinstance(sizes, PoolSizes) else sizes.pad_top
    if not known((outputs, sizes.channels, *window, pad)) or _are_several(sizes.images):
        return None
    return _Windows(call, sizes.images, *extents, *window, pad)


def _takes_maxima(spec: PoolSpec, sizes: PoolSizes) -> bool:
    """Whether a call gives maxima of windows of an image, and nothing else."""
    return spec.kind == "max" and not spec.with_indices and (sizes.depth, sizes.out_depth) == (1, 1)


def _are_several(images: DimLike) -> bool:
    return isinstance(images, int) and images != 1


def _pixels(call: KernelCall, images: DimLike, height: DimLike, width: DimLike) -> _Link | None:
    """A call as a link, if it is a product of a row for each pixel of such images."""
    sizes = call.sizes
    if not isinstance(call.spec, GemmSpec) or not isinstance(sizes, GemmGiven) or call.prologue is not None:
        return None
    if (sizes.outer, sizes.inner) != (1, 1) or sizes.m != images * height * width or not known((sizes.n, sizes.k)):
        return None
    return _Pixels(call, images, height, width, height, width, sizes.n, sizes.k)


def _changed(record: Arguments, **changed: Any) -> Arguments:
    """The record with other values of some names."""
    values = [*record]
    for name, value in changed.items():
        values[record.place(name)] = value
    return type(record).make(values)
