"""What the recurrent kernels are, and how their weights are packed; without LLVM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.parts import fixed24
from jitonnx.kernels.parts.bfloat16 import rounded
from jitonnx.kernels.parts.packing import zeros
from jitonnx.kernels.parts.phases import shared_bytes
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

Activation = tuple[str, float, float]
"""ONNX's name of an activation, with its alpha and beta (0.0 where it has none)."""

ACTIVATIONS = (
    *("Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid"),
    *("Elu", "Softsign", "Softplus"),
)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS_OF = {"LSTM": 3, "GRU": 2, "RNN": 1}


class RecurrentBuffers(Arguments):
    gates: Buffer
    recurrent_weights: Buffer
    recurrent_bias: Buffer
    peepholes: Buffer
    lengths: Buffer
    initial_h: Buffer
    initial_c: Buffer
    y: Buffer = result()
    last_h: Buffer = result()
    last_c: Buffer = result()
    shared: Buffer = result()


class RecurrentSizes(Arguments):
    steps: Size
    batch: Size
    directions: Size
    hidden: Size
    reverse: Size
    gates_step: Size
    gates_row: Size
    gates_direction: Size
    y_step: Size
    y_row: Size
    y_direction: Size
    state_row: Size
    state_direction: Size


@dataclass(frozen=True)
class RecurrentSpec(KernelSpec):
    """ONNX's LSTM, GRU and RNN behind the input products: what has to be done step by step, for all steps.

    A GEMM comes first: gates = X · Wᵀ + Wb + Rb for all steps at once (for a GRU with linear_before_reset, Rb of
    gate h is left out: it goes into `recurrent_bias`). Element (t, row, direction, gate, unit) of `gates` lies at
    t * gates_step + row * gates_row + direction * gates_direction + gate * hidden + unit, gates in ONNX's order (iofc;
    zrh), so that one GEMM [steps * batch, input] · [input, directions * gates * hidden] fills it for all directions.

    Element (t, direction, row, unit) of y lies at t * y_step + direction * y_direction + row * y_row + unit; element
    (direction, row, unit) of initial_h, initial_c, last_h and last_c at direction * state_direction +
    row * state_row + unit. This covers both of ONNX's layouts. recurrent_weights is what `pack` made of R;
    recurrent_bias [directions, hidden] and peepholes [directions, 3 * hidden] (iof) are dense, lengths int32 [batch].
    Bit d of `reverse` says that direction d runs backwards. Buffers that the fields below leave out are never touched.

    Steps from a row's length on give zeros in y and leave the state alone; backward directions begin at the length.
    The last state of a row of length 0 is zero, as in onnxruntime. Nothing is computed, and no `gates` are read, behind
    the longest of a block's rows.
    Task: a direction of a block of `rows` rows of the batch, all steps, in the order of directions.

    Where the batch is one block, a direction is `parts` tasks, each a range of panels. Threads that share a direction
    meet after every step in the buffer `shared`, `shared_elements` zeros for each direction (`meeting`).
    """

    kind: str
    """"LSTM", "GRU" or "RNN"."""
    activations: tuple[Activation, ...]
    """Those of one direction: f, g, h of an LSTM, f, g of a GRU, f of an RNN."""
    units: int
    """Hidden units of a packed panel: the vector length of the target."""
    rows: int
    """Rows of a block, a multiple of the first tile's; the last block may have fewer."""
    tiles: tuple[int, ...]
    """Numbers of rows, decreasing, whose products with a panel are summed at once, each used as long as it fits. The
    last is 1 unless the batch is known; then the one before is also used for half as many rows."""
    phases: int
    """Sums that a single row's products are split into, every phases-th k; a power of two, at most `units`."""
    element: str = "float32"
    """Element type of all tensors but lengths: float32 or float64."""
    fixed: bool = False
    """R, of float32, lies as 24-bit fixed-point numbers (`fixed24`)."""
    halves: bool = False
    """R, of float32, lies rounded to bfloat16, two vectors in one: in the lower and upper halves of its words."""
    joined: bool = False
    """The upper one's number of those two goes on in the lower one's bits, with which it was rounded, so that nothing
    has to be masked: the same error at most, but for numbers of bfloat16, which are no longer exact (`joins`)."""
    linear_before_reset: bool = False
    input_forget: bool = False
    peepholes: bool = False
    clip: float = 0.0
    """Bound of the activations' arguments; 0: none."""
    initial: bool = False
    """The state starts from initial_h (and initial_c), not from zeros."""
    lengths: bool = False
    """Rows have lengths of their own."""
    y: bool = True
    """y is written."""
    last: bool = True
    """last_h, and for an LSTM last_c, are written."""
    parts: int = 1
    """Tasks of a direction where the batch is one block."""

    BUFFERS = RecurrentBuffers
    SIZES = RecurrentSizes

    def __post_init__(self) -> None:
        if self.kind not in GATES or len(self.activations) != _ACTIVATIONS_OF[self.kind]:
            raise ValueError(f"{self.kind}: wrong kind or number of activations ({len(self.activations)})")
        for name, _, _ in self.activations:
            if name not in ACTIVATIONS:
                raise ValueError(f"{self.kind}: unknown activation {name!r}; known are {', '.join(ACTIVATIONS)}")

    @property
    def gates(self) -> int:
        """Gates of a unit."""
        return GATES[self.kind]

    @property
    def passes(self) -> tuple[int, ...]:
        """Gates whose products are made together. A GRU that resets before the product needs r first."""
        return (2, 1) if self.kind == "GRU" and not self.linear_before_reset else (self.gates,)

    def padded(self, hidden: int) -> int:
        """`hidden` rounded up to whole panels."""
        return -(-hidden // self.units) * self.units

    def packed_elements(self, hidden: int) -> int:
        """Elements of one direction's packed R."""
        padded = self.padded(hidden)
        return self.gates * padded * (padded * 3 // 4 + 1 if self.fixed else padded // 2 if self.halves else padded)

    def pack(self, r: np.ndarray) -> np.ndarray:
        """R [directions, gates * hidden, hidden] -> recurrent_weights [directions, packed_elements(hidden)].

        Panels of `units` hidden units, one behind the other in the order in which a step reads them: for each k,
        the units' weights of each gate, [panel][k][gate][unit]. A GRU that resets before the product has the panels
        of gates z and r first and those of gate h behind them. Units and k are padded with zeros to whole panels.
        In fixed point, three vectors of units lie for every four, and a panel ends with the scales of each gate. In
        bfloat16, one lies for every two.
        """
        directions, _, hidden = r.shape
        padded = self.padded(hidden)
        packed = zeros(directions * self.packed_elements(hidden), self.element).reshape(directions, -1)
        by_gate = r.reshape(directions, self.gates, hidden, hidden)
        first_gate = offset = 0
        for gates in self.passes:
            whole = np.zeros((directions, gates, padded, padded), self.element)
            whole[:, :, :hidden, :hidden] = by_gate[:, first_gate : first_gate + gates]
            panels = whole.reshape(directions, gates, -1, self.units, padded).transpose(0, 2, 4, 1, 3)
            if self.fixed:
                panels = _fixed_panels(panels)
            elif self.halves:
                panels = _half_panels(panels, joined=self.joined)
            end = offset + panels[0].size
            packed[:, offset:end] = panels.reshape(directions, -1)
            first_gate, offset = first_gate + gates, end
        return packed

    def tasks(self, sizes: RecurrentSizes) -> int:
        blocks = -(-sizes.batch // self.rows)
        return sizes.directions * (self.parts if blocks == 1 else blocks) if sizes.hidden else 0

    def grain(self, sizes: RecurrentSizes) -> int:
        """A thread takes its parts of a layer at once: all of a direction's, and it need not meet with others."""
        return self.tasks(sizes) if self.parts > 1 else 1

    def shared_elements(self, hidden: int) -> int:
        """Elements that one direction has in the buffer `shared`, which is all zeros before a call.

        The words of `meeting`, then five states as in scratch memory.
        """
        return self.meeting_elements + 5 * self.padded(hidden) * self.rows

    @property
    def meeting_elements(self) -> int:
        """Elements that the words of `meeting` take the place of."""
        return shared_bytes(self.parts) // np.dtype(self.element).itemsize

    def scratch_bytes(self, sizes: RecurrentSizes) -> int:
        """Five states (h before and after a step, c, z, r * h) and a panel's sums, or all panels' for a single row."""
        padded = self.padded(sizes.hidden)
        sums = self.gates * (padded if self.rows == 1 else self.units)
        return self.rows * (5 * padded + sums) * np.dtype(self.element).itemsize

    def work(self, sizes: RecurrentSizes) -> Work:
        hidden, outputs = sizes.hidden, sizes.steps * sizes.batch * sizes.directions * sizes.hidden
        item = np.dtype(self.element).itemsize
        elements = sizes.directions * self.packed_elements(hidden) + outputs * (self.gates + self.y)
        return Work(2 * outputs * hidden * self.gates, elements * item)

    def arguments(
        self, *, steps: int, batch: int, directions: int, hidden: int, reverse: int, **strides: int
    ) -> RecurrentSizes:
        """The sizes; strides left out are those of dense tensors in layout 0, gates as one GEMM gives them."""
        gates = self.gates * hidden
        dense: dict[str, Any] = {"gates_step": batch * directions * gates, "gates_row": directions * gates}
        dense |= {"gates_direction": gates, "y_step": directions * batch * hidden, "y_row": hidden}
        dense |= {"y_direction": batch * hidden, "state_row": hidden, "state_direction": batch * hidden}
        return RecurrentSizes(
            steps=steps, batch=batch, directions=directions, hidden=hidden, reverse=reverse, **(dense | strides)
        )


def _fixed_panels(panels: np.ndarray) -> np.ndarray:
    """Panels [directions, panel, k, gates, units] in fixed point: [directions, panel, vector, units]."""
    *outer, k, gates, units = panels.shape
    scales = fixed24.scales(np.moveaxis(panels, 2, -1))
    quads = fixed24.numbers(panels, scales[:, :, None]).reshape(*outer, k * gates // 4, 4, units)
    return np.concatenate([fixed24.pack(quads).reshape(*outer, -1, units).view(np.float32), scales], axis=2)


def _half_panels(panels: np.ndarray, *, joined: bool) -> np.ndarray:
    """Panels [directions, panel, k, gates, units] in bfloat16: [directions, panel, vector, units]."""
    *outer, k, gates, units = panels.shape
    pairs = panels.reshape(*outer, k * gates // 2, 2, units)
    lower, upper = pairs[..., 0, :], pairs[..., 1, :]
    low = rounded(lower).astype(np.uint32)
    if not joined:
        return (low | rounded(upper).astype(np.uint32) << 16).view(np.float32)
    bits = np.ascontiguousarray(upper).view(np.uint32)
    magnitude = (bits & 0x7FFFFFFF) + np.uint32(0x8000) - np.minimum(low, bits & 0x7FFFFFFF) >> 16
    magnitude = np.where((magnitude < _LEAST_JOINED) & (low > 0), _LEAST_JOINED, magnitude)
    return (bits & 0x80000000 | magnitude << 16 | low).view(np.float32)


_LEAST_JOINED = np.uint32((127 - 64) << 7)
"""The upper half of 2**-64, which takes the place of smaller numbers above others than zero: operands below the least
normal number are slow."""
_JOINED_RANGE = 2.0**-40, 2.0**120
"""What the largest of weights that are joined may be."""


def joins(r: np.ndarray) -> bool:
    """Whether float32 weights may lie `joined`: some are no numbers of bfloat16, and the largest is an ordinary one."""
    largest = np.abs(r).max(initial=0)
    least, most = _JOINED_RANGE
    return bool(least <= largest < most) and bool((np.ascontiguousarray(r).view(np.uint32) & 0xFFFF).any())


def choose(
    kind: str,
    activations: tuple[Activation, ...],
    *,
    lanes: int,
    registers: int,
    batch: int | None = None,
    hidden: int = 0,
    element: str = "float32",
    **options: Any,
) -> RecurrentSpec:
    """The spec for a node on a target with vectors of `lanes` elements and so many registers; options: other fields.

    Sums of rows x gates vectors stay in registers, beside a vector for each gate's weights and one for the state that
    is spread: 6 rows of an LSTM with 32 registers, 2 with 16. A batch is cut into equal tiles, with one for what
    remains; unknown, into 4 rows, and what is left over goes row by row: in half the registers, as several sums each,
    to hide an FMA's latency. A block is a tile, so that there are many tasks; where weights don't stay near, it is the
    batch or a part of that, also of an unknown one: a panel of weights is then fetched once for all of its tiles (0.86
    of the time for 16 rows and 512 units, 0.6 in tiles of 4 rows).

    A direction of `hidden` units is split so far that a thread has `tuning.RECURRENT_PART_MICROSECONDS` of work a step:
    the time to read its weights. Parts are a power of two, so that as many threads get as much each.
    """
    gates = GATES[kind]
    most = min(8, max(1, (registers - gates - 1) // gates))
    phases = min(lanes, 1 << (registers // (2 * gates)).bit_length() - 1)
    rows, tiles = _tiles(min(most, 4), None) if batch is None else _tiles(most, max(1, batch))
    spec = RecurrentSpec(kind, activations, lanes, rows, tiles, phases, element, **options)
    weights = spec.packed_elements(hidden) * np.dtype(element).itemsize
    if weights > tuning.RECURRENT_NEAR_BYTES:
        each = (
            tuning.RECURRENT_MOST_ROWS
            if batch is None
            else -(-batch // max(1, -(-batch // tuning.RECURRENT_MOST_ROWS)))
        )
        spec = replace(spec, rows=max(1, -(-each // rows)) * rows)
    step = weights / tuning.RECURRENT_BYTES_A_MICROSECOND
    return replace(spec, parts=1 << max(1, int(step / tuning.RECURRENT_PART_MICROSECONDS)).bit_length() - 1)


def _tiles(most: int, batch: int | None) -> tuple[int, tuple[int, ...]]:
    """Rows of the tallest tile, at most `most`, and the tiles of RecurrentSpec."""
    if batch is None:
        return most, (most, 1) if most > 1 else (1,)
    rows = -(-batch // -(-batch // most))
    return rows, (rows, batch % rows) if batch % rows else (rows,)
