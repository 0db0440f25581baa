"""Taps of a convolution along one axis: which inputs they read, and which of them read anything but padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.support.records import dataclass


@dataclass(frozen=True)
class Taps:
    """Taps along one axis: output t, which is number out_first + t * out_step, reads input first + t * stride +
    tap * dilation."""

    taps: int
    first: int
    stride: int
    dilation: int
    outputs: int
    out_first: int = 0
    out_step: int = 1

    @property
    def lowest(self) -> int:
        """The smallest input index of output 0."""
        return self.first + smaller(0, (self.taps - 1) * self.dilation)

    @property
    def reach(self) -> int:
        """Input indices from the smallest to the largest that one output reads, both counted."""
        return larger(self.taps - 1, 0) * abs(self.dilation) + 1

    def active(self, size: int) -> list[frozenset[int]]:
        """The taps of every output that read one of the input indices 0 … size - 1."""
        starts = (self.first + output * self.stride for output in range(self.outputs))
        return [frozenset(k for k in range(self.taps) if 0 <= at + k * self.dilation < size) for at in starts]

    def span(self, outputs: int) -> int:
        """Input indices from the first to the last that `outputs` neighbouring outputs read."""
        return larger(outputs - 1, 0) * self.stride + self.reach


def joined(phases: Sequence[Taps]) -> Taps:
    """What all phases read along one axis, whose strides are equal, as if it were one: every input in between."""
    first = min(taps.lowest for taps in phases)
    reach = max(taps.lowest + taps.reach for taps in phases) - first
    return Taps(reach, first, phases[0].stride, 1, max(taps.outputs for taps in phases))


def transposed_taps(phase: int, size: int, stride: int, dilation: int, pad: int, outputs: int) -> Taps:
    """The outputs o of a transposed convolution with (o + pad) % stride == phase, as an ordinary convolution.

    y[o] = Σ_k x[(o + pad - k * dilation) / stride] w[k] over the k that divide (`phase_taps`). With o = t * stride +
    phase - pad and k * dilation = phase + m * stride this reads x[t - m]: where k goes up by stride / g, m goes up by
    dilation / g, g = gcd(stride, dilation).
    """
    taps = phase_taps(phase, size, stride, dilation)
    start = -((phase - pad) // stride)  # the smallest t with o >= 0
    first_output = start * stride + phase - pad
    count = larger(0, -((first_output - outputs) // stride))
    shift = (taps[0] * dilation - phase) // stride if taps else 0
    return Taps(len(taps), start - shift, 1, -(dilation // gcd(stride, dilation)), count, first_output, stride)


def phase_taps(phase: int, size: int, stride: int, dilation: int) -> list[int]:
    """The taps of a transposed convolution's kernel that contribute to outputs of `phase`."""
    return [k for k in range(size) if k * dilation % stride == phase]


def readers(outputs: int, step: int, taps: int, dilation: int) -> dict[int, list[tuple[int, int]]]:
    """The (output, tap) that read each input index along one axis, from the first on, of `outputs` outputs
    that are `step` inputs apart."""
    found: dict[int, list[tuple[int, int]]] = {}
    for output in range(outputs):
        for tap in range(taps):
            found.setdefault(output * step + tap * dilation, []).append((output, tap))
    return found


def live_taps(taps: int, stride: int, dilation: int, pad: int, size: int, outputs: int) -> slice:
    """The taps along one axis that read anything but padding, as a slice of the kernel.

    A kernel cut to them, with pad - start * dilation in front, gives the same outputs (pads may become negative, which
    the kernels here take). A 3x3 kernel of dilation 24 on 16x16 pixels is a 1x1 one.
    """
    last = (outputs - 1) * stride - pad
    active = [k for k in range(taps) if last + k * dilation >= 0 and k * dilation - pad < size]
    return slice(active[0], active[-1] + 1) if active else slice(0, 0)
