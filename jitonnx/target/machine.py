"""The CPU that code is made for: its name and features as LLVM knows them, vector registers and cache sizes.

`host()` describes this machine; `named("haswell")` any other CPU, so that kernels for it can be tested here.
Imports LLVM only to ask it about a CPU for the first time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from jitonnx.support.records import dataclass
from jitonnx.target import tuning
from jitonnx.target.cores import KEEPING_TILES, WAITING_TILES, Core, TileCosts, core_named, core_of_host
from jitonnx.target.cpu import (
    CPUS_OF_AARCH64,
    CPUS_OF_X86,
    CpuNeeded,
    cpu_needed,
    described,
    features_named,
    this_machine,
)
from jitonnx.target.products import Bfloat16Products, ByteDots, IntegerProducts

_ARM = ("aarch64", "arm64")
_MODEST_CACHES = (32, 512, 4 << 10)
_CACHES = {
    **dict.fromkeys(("haswell", "broadwell", "skylake"), (32, 256, 8 << 10)),
    "alderlake": (48, 1280, 30 << 10),
    **dict.fromkeys(("skylake-avx512", "skx", "cascadelake", "cooperlake"), (32, 1024, 22 << 10)),
    "icelake-server": (48, 1280, 36 << 10),
    "sapphirerapids": (48, 2048, 105 << 10),
    **{"znver1": (32, 512, 8 << 10), "znver2": (32, 512, 16 << 10), "znver3": (32, 512, 32 << 10)},
    **{"znver4": (32, 1024, 32 << 10), "znver5": (48, 1024, 32 << 10)},
    **{"cortex-a72": (32, 1024, 4 << 10), "neoverse-n1": (64, 1024, 32 << 10), "neoverse-v1": (64, 1024, 32 << 10)},
    **{"neoverse-n2": (64, 1024, 32 << 10), "neoverse-v2": (64, 2048, 114 << 10), "apple-m1": (128, 12 << 10, 8 << 10)},
}
"""Data caches of CPUs by LLVM's name, level 1 to 3, in KB: the third that a core shares, of common models. So a plan
for a CPU is the same wherever it is made."""


_MULTIPLIED_BYTES = 128
"""What a core that multiplies fast reads in a cycle."""


@dataclass(frozen=True)
class Target:
    """One CPU: what code for it may use, and the sizes that blocking goes by."""

    cpu: str
    features: str
    vector_bytes: int
    """Width of a vector register in bytes: 64 (AVX-512), 32 (AVX2), 16 (SSE, NEON)."""
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    core: Core
    """What its execution units and caches do in a cycle."""
    architecture: str = this_machine()[0]
    """It is named as `os.uname().machine` has it."""

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one vector register."""
        return self.vector_bytes // itemsize

    @property
    def waits_for_l3(self) -> bool:
        """Whether products outrun the third-level cache by far, so that b is asked for at an even pace and into the
        first-level cache.

        A tile that reads each row of b but once needs a vector of it for as many FMAs as the tile has rows: 8 bytes an
        FMA in tiles of 8 x 3 vectors of 64 bytes or 4 x 3 of 32, and 2 in those of 8 x 3 of 16 (NEON).
        """
        rows = 8 if self.vector_registers >= 32 else 4
        return self.core.l3_bytes < self.vector_bytes / rows

    @property
    def multiplies_fast(self) -> bool:
        """Whether a core multiplies two vectors of 64 bytes in a cycle, or as many bytes; its second-level cache gives
        64 then (Intel's servers, Zen 5)."""
        return self.core.fmas * self.vector_bytes >= _MULTIPLIED_BYTES

    @property
    def asks_for_panels(self) -> bool:
        """Whether panels of weights are asked for into the first-level cache: where products outrun the third-level
        cache, and where they are so fast that a panel from the second-level one comes late.

        Zen 5, whose third-level cache keeps up, in turns: densenet121 takes 0.96 of the time, ten models of the zoo
        0.985 in the mean on one thread; seven 0.99 on two, of which MobileNets take 1.005 to 1.007.
        """
        return self.waits_for_l3 or self.multiplies_fast

    @property
    def tile_costs(self) -> TileCosts:
        """What tiles of products cost: as fitted to measurements (`bench.tuning --fit`), or of the kind of core."""
        return self.core.tiles or (WAITING_TILES if self.waits_for_l3 else KEEPING_TILES)

    def steps_near(self, panel_bytes: int | None = None) -> int:
        """How many steps ahead of its use a panel of weights is asked for, into the first-level cache.

        panel_bytes: of the whole panel, None where it is taken for a large one. 0 where the panel stays in that cache,
        or none is asked for.
        """
        stays = panel_bytes is not None and panel_bytes <= self.l1_bytes // 2
        return self.steps_ahead if self.asks_for_panels and not stays else 0

    @property
    def steps_ahead(self) -> int:
        """How many steps of k ahead of its use a panel of weights is asked for, if it is."""
        return tuning.PREFETCH_STEPS if self.waits_for_l3 else tuning.PREFETCH_FAST_STEPS

    @property
    def converts_halves(self) -> bool:
        """Whether it has instructions between float16 and float32: F16C on x86, which all CPUs with AVX2 have."""
        return self.on_arm or self._has("f16c")

    @property
    def foreign(self) -> bool:
        """Whether it is of another architecture than this machine: its code can be read here, but not run."""
        return self.architecture != this_machine()[0]

    @property
    def on_arm(self) -> bool:
        """Whether it is a 64-bit ARM: NEON, which is 32 registers of 16 bytes."""
        return self.architecture in _ARM

    @property
    def described(self) -> str:
        """The fields that choices go by, in words."""
        core = self.core
        caches = ", ".join(f"{size >> 10} KB" for size in (self.l1_bytes, self.l2_bytes, self.l3_bytes))
        return (
            f"{self.vector_registers} registers of {self.vector_bytes} bytes; {core.fmas} FMA and {core.loads} loads "
            f"a cycle; {core.l3_bytes:g} bytes of the L3 cache, {core.memory_bytes:g} of memory an FMA; caches "
            f"{caches}; integers by {self.integer_products}"
            + (f", bfloat16 by {self.bfloat16_products}" if self.bfloat16_products else "")
        )

    @property
    def has_multiply_adds(self) -> bool:
        """Whether it multiplies and adds floats by one instruction, rounded once."""
        return self.on_arm or self.vector_bytes > 16

    @property
    def integer_products(self) -> IntegerProducts:
        """How 8-bit integers are best multiplied and summed in 32 bits."""
        if self.has_integer_tiles:
            return "tiles"
        if self.on_arm and self._has("i8mm"):
            return "signed matrices"
        return self.byte_dots or ("words" if self.on_arm else "pairs")

    @property
    def has_integer_tiles(self) -> bool:
        """Whether it multiplies matrices of bytes in tile registers (AMX)."""
        return self.vector_bytes == 64 and self._has("amx-int8")

    @property
    def has_bfloat16_tiles(self) -> bool:
        """Whether it multiplies matrices of bfloat16 in tile registers (AMX), and rounds to bfloat16."""
        return self.rounds_to_bfloat16 and self._has("amx-bf16")

    @property
    def byte_dots(self) -> ByteDots | Literal[""]:
        """How it sums products of four bytes in 32 bits by one instruction: "dot", of signed and unsigned ones (VNNI);
        "signed dot" (AArch64); "" if it does not."""
        if self.on_arm:
            return "signed dot" if self._has("dotprod") else ""
        dots = {64: "avx512vnni", 32: "avxvnni"}.get(self.vector_bytes)
        return "dot" if dots is not None and self._has(dots) else ""

    @property
    def bfloat16_products(self) -> Bfloat16Products | Literal[""]:
        """How it multiplies bfloat16 much faster than float32; "" if it does not. CPUs with AMX have AVX512-BF16,
        too, whose speed is a matter of the core."""
        if self.on_arm:
            return "matrices" if self._has("bf16") else ""
        if self.has_bfloat16_tiles:
            return "tiles"
        return "dots" if self.rounds_to_bfloat16 and self.core.bfloat16_rate > 1 else ""

    @property
    def rounds_to_bfloat16(self) -> bool:
        """Whether it rounds float32 to bfloat16 by one instruction, but denormal numbers to 0 (AVX512-BF16)."""
        return self.vector_bytes == 64 and self._has("avx512bf16")

    @property
    def shifts_pairs(self) -> bool:
        """Whether it shifts pairs of vector elements (funnel shifts) by one instruction: VBMI2 of AVX-512."""
        return self._has("avx512vbmi2")

    @property
    def permutes_bytes(self) -> bool:
        """Whether it puts the bytes of a vector into any order by one instruction: VBMI of AVX-512."""
        return self.vector_bytes == 64 and self._has("avx512vbmi")

    def _has(self, feature: str) -> bool:
        """Whether it has a feature: as its own list says, and where that says nothing, as a CPU of its name has."""
        listed = self.features.split(",")
        return f"+{feature}" in listed or (feature in features_named(self.cpu) and f"-{feature}" not in listed)

    @property
    def key(self) -> str:
        """What of the target changes code, for cache keys."""
        return f"{self.cpu}/{self.features}/{self.vector_bytes}/{self.vector_registers}"

    @property
    def needed(self) -> CpuNeeded:
        """What code made for it needs of a machine."""
        return self.needed_by(())

    def needed_by(self, features: Iterable[str]) -> CpuNeeded:
        """The same of code that asks for some features by intrinsics (`KernelSpec.features`)."""
        return cpu_needed(self.cpu, self.features, self.vector_bytes, features)


@functools.cache
def host() -> Target:
    """The CPU this process runs on."""
    name, features = described()
    listed = features.split(",")
    on_arm = this_machine()[0] in _ARM
    width, registers = _NEON if on_arm else _vectors(avx512="+avx512f" in listed, avx2="+avx2" in listed)
    caches = _caches()
    return Target(name, features, width, registers, *caches, core_of_host(width, registers, caches[1]))


@functools.cache
def named(cpu: str) -> Target:
    """A CPU by LLVM's name ("haswell", "x86-64-v3", "host"), with the caches of its kind.

    ValueError for a name that is not known, and for one of another architecture, whose code is not loaded here.
    """
    if cpu == "host":
        return host()
    made = of_any_architecture(cpu)
    if made.foreign:
        kind, here = ("AArch64" if made.on_arm else "x86-64"), this_machine()[0]
        raise ValueError(f"CPU {cpu!r} is one of {kind}, and this machine is {here}; code is made for 'host' here")
    return made


def of_any_architecture(cpu: str) -> Target:
    """A CPU by LLVM's name, on any machine: to plan for, and to read code for it. Its caches are those of its kind.

    ValueError for an unknown one.
    """
    has = features_named(cpu)
    if cpu in CPUS_OF_AARCH64:
        here = this_machine()[0]
        return Target(cpu, "", *_NEON, *_caches_named(cpu), core_named(cpu), here if here in _ARM else _ARM[0])
    if not has:
        raise ValueError(
            f"CPU {cpu!r} is not known; choose one of: {', '.join(('host', *CPUS_OF_X86, *CPUS_OF_AARCH64))}"
        )
    width, registers = _vectors(avx512="avx512f" in has, avx2="avx2" in has)
    # LLVM prefers 256-bit registers on some AVX-512 CPUs; our kernels choose the width themselves.
    features = "-prefer-256-bit" if width == 64 else ""
    return Target(cpu, features, width, registers, *_caches_named(cpu), core_named(cpu), "x86_64")


_NEON = 16, 32


def _vectors(*, avx512: bool, avx2: bool) -> tuple[int, int]:
    """Bytes of a vector register of x86, and how many there are."""
    if avx512:
        return 64, 32
    return (32, 16) if avx2 else (16, 16)


def _caches_named(cpu: str) -> tuple[int, int, int]:
    """Data cache sizes in bytes, level 1 to 3, of a CPU of LLVM's name; modest sizes for a level of x86-64."""
    first, second, third = _CACHES.get(cpu, _MODEST_CACHES)
    return first << 10, second << 10, third << 10


def _caches() -> tuple[int, int, int]:
    """Data cache sizes in bytes, level 1 to 3, as the operating system tells; modest sizes where it does not."""
    sizes = {level: size << 10 for level, size in enumerate(_MODEST_CACHES, 1)}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            sizes[int(level)] = int(size[:-1]) << 10
    return sizes[1], sizes[2], sizes[3]
