"""The ways in which CPUs sum several products by one instruction, beside a multiply-add of vectors.

`Target` says which of them a CPU has (`integer_products`, `byte_dots`, `bfloat16_products`); specs, packing,
explanations and what code asks of a machine go by these tables. docs/instruction-sets.md says where else a new one has
a place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from jitonnx.support.records import NamedTuple

ByteDots: TypeAlias = Literal["dot", "signed dot"]
"""Ways that are one instruction on vectors, with the same operands on all CPUs that have it."""
IntegerProducts: TypeAlias = Literal["tiles", "signed matrices", "dot", "signed dot", "byte pairs", "pairs", "words"]
Bfloat16Products: TypeAlias = Literal["tiles", "matrices", "dots"]


class Way(NamedTuple):
    """One way to sum products.

    group: how many products of one row and column an instruction sums, side by side. text: what explanations call it.
    features: what its kernels need of a CPU beside what LLVM takes it to have, by LLVM's names; of a spec's code alone.
    """

    group: int
    text: str
    features: tuple[str, ...] = ()


INTEGERS: Mapping[IntegerProducts, Way] = {
    "tiles": Way(4, "sums in tile registers", ("amx-int8", "amx-tile")),
    "signed matrices": Way(8, "by products of small matrices of bytes"),
    "dot": Way(4, "by dot products of bytes"),
    "signed dot": Way(4, "by dot products of bytes"),
    "byte pairs": Way(4, "by products of pairs of bytes"),
    "pairs": Way(2, "by products of pairs of 16 bits"),
    "words": Way(1, "by products of 32 bits"),
}
"""Products of 8-bit integers, summed in 32 bits: matrices in tile registers (AMX), matrices of 2 x 8 and 8 x 2 signed
bytes (AArch64's smmla), dot products of bytes (VNNI: unsigned by signed; AArch64's sdot: both signed), of pairs of
unsigned and signed bytes in 16 bits (two instructions, where weights let 16 bits hold the sums), of pairs of 16 bits
(all x86), or one product after the other."""

BFLOAT16: Mapping[Bfloat16Products, Way] = {
    "tiles": Way(2, "sums in tile registers", ("amx-bf16", "amx-tile", "avx512bf16")),
    "matrices": Way(4, "by products of small matrices", ("bf16",)),
    "dots": Way(2, "by dot products of pairs", ("avx512bf16",)),
}
"""Products of operands rounded to bfloat16, summed in float32: matrices in tile registers (AMX), matrices of 2 x 4 and
4 x 2 numbers (AArch64's bfmmla), or pairs of numbers in each lane of a vector (AVX512-BF16's vdpbf16ps)."""
