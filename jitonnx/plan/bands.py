"""Convolutions that follow each other in turns, band by band: what lies between stays in the second-level cache.

What makes many channels (an expansion by a 1x1 convolution, or a model's first convolution), the depthwise convolution
that reads them, and the projection behind that, are kernels of which each makes an image that the next one alone reads.
Where these images are larger than the second-level cache (112 x 112 x 96 in MobileNet v2), the first kernel waits for
the third-level cache to take its results and the second to give them back. So the last result's rows are cut into
bands: the first makes the rows that a band needs, in memory that all bands use, the second its rows of them, and so on.
Rows that two bands need are made twice. Each thread has a part of each band.

Measured step by step on a Granite Rapids that others used, one thread: expansions and depthwise convolutions alone take
0.93 of MobileNet v2's time without bands, and first convolutions and projections besides 0.97 of that. Products write
to the third-level cache of a Zen 4 as fast as they multiply: nothing is cut for such cores.

Several images are not cut. Where only a run tells how many there are, the first band is all of them then, and the
others are empty. Where only a run tells an image's height or width, nothing is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jitonnx.ir.dims import DimLike, known, maximum
from jitonnx.kernels.arguments import Arguments
from jitonnx.kernels.convolution.problem import ConvolutionBuffers, Problem
from jitonnx.kernels.convolution.spec import DepthwiseGiven, DepthwiseSpec, DirectSpec
from jitonnx.kernels.gemm.spec import GemmBuffers, GemmGiven, GemmSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.tensor import Buffer, Tensor, channels_last_order, dense_tensor
from jitonnx.records import NamedTuple, dataclass
from jitonnx.target import Target

_SHARE = 2
"""What lies between takes the second-level cache's size over this; 1 gained less, 4 as much."""
_ONCE = 6
"""So many rows are made once, at least, for one that is made twice."""
_LONGEST = 3
"""Kernels that go in turns, at most."""


def in_bands(calls: list[KernelCall], target: Target) -> list[KernelCall]:
    """The calls, with those that gain by it cut into bands."""
    if not target.core.waits_for_l3:
        return calls
    uses = Counter(tensor.buffer for call in calls for tensor in call.tensors)
    result: list[KernelCall] = []
    place = 0
    while place < len(calls):
        chain = _chain(calls[place : place + _LONGEST], uses)
        bands = _bands(chain, target)
        if len(bands) < 2 and len(chain) == _LONGEST:
            chain = chain[:-1]
            bands = _bands(chain, target)
        if len(bands) < 2:
            result.append(calls[place])
            place += 1
            continue
        result += _cut(chain, bands)
        place += len(chain)
    return result


class _Span(NamedTuple):
    """Rows of an image, from `first` up to `end`."""

    first: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.first


@dataclass(eq=False)
class _Link:
    """A kernel that makes rows of one image of rows of another, with their sizes, which are known but for `images`."""

    call: KernelCall
    images: DimLike
    height: int
    width: int
    out_height: int
    out_width: int
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
    def source(self) -> Tensor:
        """The image that it reads."""
        return self.call.buffers[0]  # type: ignore[no-any-return]

    @property
    def result(self) -> Tensor:
        """The image that it makes."""
        (result,) = self.call.written
        return result

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of its result."""
        return self.out_width * self.channels * self.result.dtype.itemsize

    def reads(self, made: _Span) -> _Span:
        """The input rows that rows of the result are made of."""
        above, below = made.first * self.stride - self.pad, (made.end - 1) * self.stride - self.pad + self.reach
        return _Span(min(max(above, 0), self.height), max(0, min(below, self.height)))

    def band(self, read: _Span, made: _Span, x: Tensor | None, y: Tensor | None) -> KernelCall:
        """The call for rows `made` of the result, which begin with y, and rows `read` of its input, with x.

        x, y: None for the memory of the whole images.
        """
        raise NotImplementedError

    def _with(self, made: _Span, buffers: Arguments, sizes: Arguments) -> KernelCall:
        note = (
            f"rows {made.first} to {made.end} of {self.out_height}; what lies between stays in the second-level cache"
        )
        tensors, epilogue = [*self.call.stage_tensors], self.call.epilogue
        if epilogue is not None:
            skipped = len(self.call.buffers)
            strides = self.call.stage_sizes[epilogue.first_size - self.call.spec.size_count :]
            for number, moves in enumerate(epilogue.rows):
                if moves:
                    place = epilogue.first_buffer + number - skipped
                    offset = tensors[place].offset + made.first * self.out_width * strides[2 * number + 1]
                    tensors[place] = replace(tensors[place], offset=offset)
        return replace(
            self.call,
            buffers=buffers,
            sizes=sizes,
            stage_tensors=tensors,
            stage_sizes=[*self.call.stage_sizes],
            notes=[*self.call.notes, note],
        )

    def _of(self, part: DimLike, whole: DimLike, made: _Span) -> DimLike:
        """A size: `part` of one image; of several, `whole` in the first band, and 0 in the others."""
        rest = 0 if made.first else whole
        return rest + _is_one(self.images) * (part - rest)


class _Pixels(_Link):
    """A 1x1 convolution: a product whose rows are pixels."""

    def band(self, read: _Span, made: _Span, x: Tensor | None, y: Tensor | None) -> KernelCall:
        given, buffers = self.call.sizes, self.call.buffers
        assert isinstance(given, GemmGiven) and isinstance(buffers, GemmBuffers)
        a = x or replace(buffers.a, offset=buffers.a.offset + read.first * self.width * given.a_row)
        c = y or replace(buffers.c, offset=buffers.c.offset + made.first * self.width * given.c_row)
        m = self._of(made.rows * self.width, given.m, made)
        return self._with(made, _changed(buffers, a=a, c=c), _changed(given, m=m))

    def in_tiles(self, spans: Iterable[_Span]) -> None:
        """Choose the heights of tiles that make up the rows of all spans: one that makes up each row of pixels,
        which others may share, or else the usual one and what it leaves.
        """
        spec = self.call.spec
        assert isinstance(spec, GemmSpec)
        if self.images != 1:
            return
        usual = spec.rows[0]
        whole = [size for size in range(usual, 3 * usual // 4, -1) if self.width % size == 0]
        left = {span.rows * self.width % usual for span in spans}
        heights = (whole[0],) if whole else (usual, *sorted(left - {0}, reverse=True))
        self.call = replace(self.call, spec=replace(spec, rows=heights))


class _Windows(_Link):
    """A convolution of several taps."""

    def band(self, read: _Span, made: _Span, x: Tensor | None, y: Tensor | None) -> KernelCall:
        given, buffers = self.call.sizes, self.call.buffers
        assert isinstance(given, DepthwiseGiven | Problem) and isinstance(buffers, ConvolutionBuffers)
        sizes = _changed(
            given,
            height=self._of(read.rows, self.height, made),
            out_height=self._of(made.rows, self.out_height, made),
            pad_top=self._of(read.first - (made.first * self.stride - self.pad), self.pad, made),
        )
        x = x or replace(buffers.x, offset=buffers.x.offset + read.first * given.x_row)
        y = y or replace(buffers.y, offset=buffers.y.offset + made.first * given.y_row)
        return self._with(made, _changed(buffers, x=x, y=y), sizes)


def _bands(chain: Sequence[_Link], target: Target) -> list[_Span]:
    """The rows of the last result that each band makes; one band or none where cutting brings nothing."""
    memory = target.l2_bytes // _SHARE
    if len(chain) < 2 or sum(link.out_height * link.row_bytes for link in chain[:-1]) <= memory:
        return []
    height, rows = chain[-1].out_height, 1
    while rows < height and _between(chain, rows + 1)[0] <= memory:
        rows += 1
    taken, once, twice = _between(chain, rows)
    if taken > memory or once < _ONCE * twice:
        return []
    number = -(-height // rows)
    rows = -(-height // number)
    return [_Span(first, min(first + rows, height)) for first in range(0, height, rows)]


def _between(chain: Sequence[_Link], rows: int) -> tuple[int, int, int]:
    """Tell of a band of so many rows the bytes of what lies between, and how many rows of the first result are made
    once and twice."""
    taken, once, made = 0, rows, rows
    for before, link in zip(chain[-2::-1], chain[:0:-1], strict=True):
        once, made = once * link.stride, (made - 1) * link.stride + link.reach
        taken += min(made, before.out_height) * before.row_bytes
    return taken, once, made - once


def _cut(chain: Sequence[_Link], bands: Sequence[_Span]) -> list[KernelCall]:
    """The chain's calls, band by band."""
    made = [_needed(chain, band) for band in bands]
    for number, link in enumerate(chain):
        if isinstance(link, _Pixels):
            link.in_tiles(spans[number] for spans in made)
    memory: list[Tensor | None] = []
    for number, link in enumerate(chain[:-1]):
        rows = max(spans[number].rows for spans in made)
        one = _is_one(link.images)
        shape = link.images, link.channels, link.out_height + one * (rows - link.out_height), link.out_width
        old = link.result
        memory.append(dense_tensor(old.buffer.name, shape, old.dtype, channels_last_order(4)))
    memory.append(None)
    calls = []
    for spans in made:
        before = None
        for link, span, y in zip(chain, spans, memory, strict=True):
            calls.append(link.band(link.reads(span), span, before, y))
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
    """The links of a chain with which the calls begin: what makes an image, a depthwise convolution, and perhaps a
    projection. Empty where there is none."""
    if len(calls) < 2:
        return []
    middle = _windows(calls[1])
    if middle is None or not isinstance(calls[1].spec, DepthwiseSpec):
        return []
    first = _windows(calls[0]) or _pixels(calls[0], middle.images, middle.height, middle.width)
    if first is None or isinstance(first.call.spec, DepthwiseSpec) or not _follows(first, middle, uses):
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


def _is_dense(link: _Link, written: bool) -> bool:
    """Whether a link's result, or what it reads, is a channels-last image without gaps, as its sizes say."""
    sizes = link.call.sizes
    if isinstance(sizes, GemmGiven):
        return sizes.c_row == sizes.n if written else (sizes.a_row, sizes.a_column) == (sizes.k, 1)
    assert isinstance(sizes, DepthwiseGiven | Problem)
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
    """A call as a link, if it is a convolution whose sizes are known but for the number of images, of 1 if known."""
    spec, sizes = call.spec, call.sizes
    if call.prologue is not None:
        return None
    if isinstance(spec, DepthwiseSpec) and isinstance(sizes, DepthwiseGiven):
        window = spec.strides[0], spec.dilations[0] * (spec.kernel[0] - 1) + 1
        outputs = sizes.channels
    elif type(spec) is DirectSpec and isinstance(sizes, Problem):
        window = sizes.stride_height, sizes.dilation_height * (sizes.kernel_height - 1) + 1
        outputs = sizes.out_channels
    else:
        return None
    extents = sizes.height, sizes.width, sizes.out_height, sizes.out_width, outputs, sizes.channels
    if not known((*extents, *window, sizes.pad_top)) or (isinstance(sizes.images, int) and sizes.images != 1):
        return None
    return _Windows(call, sizes.images, *extents, *window, sizes.pad_top)


def _pixels(call: KernelCall, images: DimLike, height: int, width: int) -> _Link | None:
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
