"""Weights of products of few rows, asked for ahead of their turn.

A product of one row reads each weight once, and waits for memory where the weights have left the caches since the run
before, be it for those of other layers or for another program's data. Products of many rows wait for nothing but their
multiply-adds. So those that come before ask for the weights, half of their tiles a cache line in each step of k.
Measured, with other programs on the machine: 1 x 1000 x 1280 takes 75 to 90 us instead of 145, 1 x 48 x 1152 (of
squeeze-and-excite) 3.5 instead of 12, and those who ask 2 to 7 % longer. Of the whole of EfficientNet, LCNet, MobileNet
v3 and v4 that is 1 to 3 %.

So does a recurrent layer of one row in its first step, and finds them near in all others: the last tiles of the product
with its inputs ask for the first direction's, on cores that wait for their third-level cache (an LSTM of 256 units and
60 steps takes 0.95 of the time, a GRU 0.96; the product in front 1.02 to 1.08). To ask for the second direction's in
the last steps of the first gained nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from jitonnx.ir.dims import concrete
from jitonnx.kernels.gemm.spec import GemmBuffers, GemmGiven, GemmSpec
from jitonnx.kernels.recurrent.spec import RecurrentBuffers, RecurrentSizes, RecurrentSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.tensor import StridedTensor
from jitonnx.support.records import dataclass
from jitonnx.target import tuning
from jitonnx.target.machine import Target

_FEW_ROWS, _MANY_ROWS = 4, 32
_LEAST_BYTES, _MOST_BYTES = 64 << 10, 8 << 20
"""Weights worth asking for; more would be thrown out again before they are read."""
_LINE_BYTES = 64
_REQUESTS = 2
"""Tensors that a call asks for, at most. Kernels are compiled for this number, whichever it is."""


@dataclass(eq=False)
class _Carrier:
    """A product of many rows, and what it asks for: tensors, each with the strips of tiles that ask and their share."""

    call: KernelCall
    strips: int
    lines: int
    """Cache lines that a strip can ask for."""
    requests: list[tuple[StridedTensor, int, int]] = field(default_factory=list)

    @property
    def free(self) -> int:
        """Strips that do not ask yet."""
        return self.strips - sum(strips for _, strips, _ in self.requests) if len(self.requests) < _REQUESTS else 0

    @property
    def kernel(self) -> tuple[object, ...]:
        """Equal for calls that may share a kernel."""
        return self.call.spec, len(self.call.tensors), len(self.call.stage_sizes)

    def ask(self, weights: StridedTensor, first: int, end: int, *, late: bool = False) -> int:
        """Ask for the weights' bytes from `first` up to `end`, or some of them; gives how many.

        late: the last strips do, unless other weights are asked for, instead of the first that are free.
        """
        strips = min(self.free, -(-(end - first) // (self.lines * _LINE_BYTES)))
        if not strips or (late and self.requests):
            return 0
        if late and strips < self.strips:
            self.requests.append((weights, self.strips - strips, 0))
        share = min(self.lines, -(-(end - first) // (strips * _LINE_BYTES))) * _LINE_BYTES
        # Asking reads nothing, so where it begins is all that has to lie in memory.
        begin = weights.offset + first // weights.dtype.itemsize
        part = replace(weights, offset=begin, shape=(1,), strides=(1,))
        self.requests.append((part, strips, share // 4))
        self.call.notes.append(f"asks for {strips * share} bytes of weights of a later product")
        return strips * share

    def settle(self) -> None:
        """Put the requests into the call: buffers and sizes behind all others."""
        call, spec, later, end = self.call, self.call.spec, [], 0
        assert isinstance(spec, GemmSpec)
        nothing = (_weights(call), 0, 0)
        for tensor, strips, share in [*self.requests, *[nothing] * (_REQUESTS - len(self.requests))]:
            end += strips
            later += [len(call.tensors), spec.size_count + len(call.stage_sizes)]
            call.stage_tensors.append(tensor)
            call.stage_sizes.extend([end, share])
        call.spec = replace(spec, later=tuple(later))


def ask_ahead(calls: Sequence[KernelCall], target: Target) -> None:
    """Let products of many rows ask for the weights of those of few rows that follow."""
    most = min(_MOST_BYTES, tuning.WEIGHTS_MOST_OF_L2 * target.l2_bytes) if target.waits_for_l3 else _MOST_BYTES
    carriers = [_carrier(call) for call in calls]
    for number, call in enumerate(calls):
        wanted, asked = _bytes_read_once(call, most) or _bytes_of_first_step(call, target), 0
        for carrier in reversed(carriers[max(0, number - tuning.WEIGHTS_NEAR_CALLS) : number]):
            if asked < wanted and carrier is not None:
                asked += carrier.ask(_weights(call), asked, wanted, late=isinstance(call.spec, RecurrentSpec))
    asking = {carrier.kernel for carrier in carriers if carrier is not None and carrier.requests}
    for carrier in carriers:
        if carrier is not None and carrier.kernel in asking:  # with no request too: a second kernel would be compiled
            carrier.settle()


def _weights(call: KernelCall) -> StridedTensor:
    """The right operand of a product, or the recurrent weights of a layer."""
    if isinstance(call.buffers, RecurrentBuffers):
        return call.buffers.recurrent_weights  # type: ignore[no-any-return]
    assert isinstance(call.buffers, GemmBuffers)
    return call.buffers.b  # type: ignore[no-any-return]


def _bytes_read_once(call: KernelCall, most: int) -> int:
    """Count those of packed constant weights that a product of few rows reads; 0 for any other call, and for more than
    `most`."""
    if not isinstance(call.spec, GemmSpec) or not call.spec.b_packed:
        return 0
    assert isinstance(call.sizes, GemmGiven)
    rows, b = concrete(call.sizes.m), _weights(call).buffer
    size = concrete(b.bytes)
    if rows is None or rows > _FEW_ROWS or size is None or b.space != "constant":
        return 0
    return size if _LEAST_BYTES <= size <= most else 0


def _bytes_of_first_step(call: KernelCall, target: Target) -> int:
    """Count those that the first step of a recurrent layer of one row reads, where all others find them near; 0 for any
    other call, and on cores that a third-level cache keeps up with."""
    if not isinstance(call.spec, RecurrentSpec) or call.spec.rows > 1 or not target.waits_for_l3:
        return 0
    assert isinstance(call.sizes, RecurrentSizes)
    r = _weights(call)
    size = concrete(r.buffer.bytes)
    directions = concrete(call.sizes.directions)
    if not size or not directions or r.buffer.space != "constant":
        return 0
    return (
        size // directions
        if _LEAST_BYTES <= size // directions <= target.l2_bytes * tuning.RECURRENT_SHARE_OF_L2
        else 0
    )


def _carrier(call: KernelCall) -> _Carrier | None:
    """The call as one that can ask: a single product of known, many rows and packed weights."""
    spec = call.spec
    if not isinstance(spec, GemmSpec) or not spec.b_packed or spec.itemsize != 4:
        return None
    sizes = call.sizes
    assert isinstance(sizes, GemmGiven)
    m, n, k = concrete(sizes.m), concrete(sizes.n), concrete(sizes.k)
    if m is None or n is None or k is None or (sizes.outer, sizes.inner) != (1, 1) or m < _MANY_ROWS:
        return None
    task_rows, _ = spec.blocks(m, n, k, 1)
    tiles = min(m, task_rows) // spec.rows[0]  # of a strip; unless paced, the first few ask for its next panel
    if not spec.paced_prefetch:
        tiles = min(tiles // 2, tiles - -(-4 * spec.widths[0] // _LINE_BYTES))
    strips = -(-m // task_rows) * -(-n // spec.widths[0])
    return _Carrier(call, strips, tiles * k) if tiles * k > 0 else None
