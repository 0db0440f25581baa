"""What the kernel of linear attention is, without compiling it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

COLUMNS = 32
"""Columns of the state that a task holds: of 128 rows they take 16 KiB, which stay in the first-level cache."""


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

    BUFFERS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "past", "factor", "beta", "y", "present")
    SIZES: ClassVar[tuple[str, ...]] = (
        *("batch", "steps", "heads", "rows", "columns"),
        *("q_batch", "q_step", "q_head", "k_batch", "k_step", "k_head", "v_batch", "v_step", "v_head"),
        *("factor_batch", "factor_step", "factor_head", "factor_row", "beta_batch", "beta_step", "beta_head"),
        *("y_batch", "y_step", "y_head"),
    )

    def __post_init__(self) -> None:
        if self.group < 1:
            raise ValueError(f"linear attention: {self.group} heads of q to one of k and v")

    def tasks(self, sizes: Sequence[int]) -> int:
        batch, _, heads, _, columns = sizes[:5]
        return batch * heads * -(-columns // COLUMNS)

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        return 4 * sizes[3] * COLUMNS

    def work(self, sizes: Sequence[int]) -> Work:
        batch, steps, heads, rows, columns = sizes[:5]
        states = batch * heads * rows * columns
        a_step = 2 * (1 + self.group) + self.gated + 2 * self.delta
        others = batch * steps * heads * (rows * (1 + self.group) + columns * (1 + self.group))
        return Work(states * steps * a_step, 4 * (states * (1 + self.past) + others))
