"""What the kernel of linear attention is, without compiling it."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass

COLUMNS = 32
"""Columns of the state that a task holds: of 128 rows they take 16 KiB, which stay in the first-level cache."""


class LinearAttentionBuffers(Arguments):
    q: Buffer
    k: Buffer
    v: Buffer
    past: Buffer
    factor: Buffer
    beta: Buffer
    y: Buffer = result()
    present: Buffer = result()


class LinearAttentionSizes(Arguments):
    """Extents, and strides in elements."""

    batch: Size
    steps: Size
    heads: Size
    rows: Size
    columns: Size
    q_batch: Size
    q_step: Size
    q_head: Size
    k_batch: Size
    k_step: Size
    k_head: Size
    v_batch: Size
    v_step: Size
    v_head: Size
    factor_batch: Size
    factor_step: Size
    factor_head: Size
    factor_row: Size
    beta_batch: Size
    beta_step: Size
    beta_head: Size
    y_batch: Size
    y_step: Size
    y_head: Size


@dataclass(frozen=True)
class LinearAttentionSpec(KernelSpec):
    """S = f ∘ S + k (b (v - Sᵀ k))ᵀ, y = scale · Sᵀ q for each step in turn: ONNX's LinearAttention on float32.

    S is [rows, columns] for each batch and head of k and v, at first `past` or zeros; f, a factor for each row, is
    there if `gated`; b and what it stands in front of, if `delta`: else v is added as it is. `group` heads of q read
    each state. Element (n, t, h, i) of q lies at n * q_batch + t * q_step + h * q_head + i, those of k, v, b and y
    likewise; f has a stride of i besides, 0 if all rows have one factor. The states past and present are dense.

    Columns do not depend on each other. Task: COLUMNS columns of the state of a head, for all steps; the state lies in
    scratch memory meanwhile.
    """

    group: int
    scale: float
    gated: bool
    delta: bool
    past: bool

    BUFFERS = LinearAttentionBuffers
    SIZES = LinearAttentionSizes

    def __post_init__(self) -> None:
        if self.group < 1:
            raise ValueError(f"linear attention: {self.group} heads of q to one of k and v")

    def tasks(self, sizes: LinearAttentionSizes) -> int:
        return sizes.batch * sizes.heads * -(-sizes.columns // COLUMNS)

    def scratch_bytes(self, sizes: LinearAttentionSizes) -> int:
        return 4 * sizes.rows * COLUMNS

    def work(self, sizes: LinearAttentionSizes) -> Work:
        rows, columns = sizes.rows, sizes.columns
        pairs, steps = sizes.batch * sizes.heads, sizes.steps
        states = pairs * rows * columns
        a_step = 2 * (1 + self.group) + self.gated + 2 * self.delta
        others = pairs * steps * (rows * (1 + self.group) + columns * (1 + self.group))
        return Work(states * steps * a_step, 4 * (states * (1 + self.past) + others))
