"""What the cores of a CPU do in a cycle, as far as tiles and prefetches go by it: by kind, or as measured.

The kernels of one machine were found to lose up to a third on another of the same vector width: a core with two
multipliers meets the same third-level cache with half of the time for each product. The figures below are per FMA of a
full vector, since that is what tiles are made of.
"""

from __future__ import annotations

from collections.abc import Collection

from jitonnx.support.records import NamedTuple
from jitonnx.target.cpu import cpu_info, this_machine


class TileCosts(NamedTuple):
    """What a tile of a product costs a step of k, in FMAs of a full vector: the greatest of its FMAs, their latency,
    `bound` and what is fetched, and a little for the others (`jitonnx.kernels.gemm.choose.tile_cost`).

    bound: for each row and vector, which are loaded. fetch: for each vector of b, from the second-level cache. far: for
    the square of b's vectors instead, where its panel does not stay in the first-level one; 0: as others. vector, row:
    for each vector of b, and for each element of a, besides. load: for each of the loads and requests that share two
    ports. start, start_row: once a tile, and for each row.
    """

    bound: float
    fetch: float
    far: float
    vector: float
    row: float
    load: float
    start: float = 5.0
    start_row: float = 8.0


KEEPING_TILES = TileCosts(bound=1.0, fetch=3.2, far=0.0, vector=0.15, row=0.02, load=0.0)
"""The costs for cores that a third-level cache keeps up with: measured on a Zen 4."""
WAITING_TILES = TileCosts(bound=0.0, fetch=2.7, far=1.5, vector=0.0, row=0.0, load=0.55)
"""The costs for cores that wait for that cache: measured on Intel's servers."""


class Core(NamedTuple):
    """One kind of core.

    fmas, loads: of full vectors, a cycle. l3_bytes, memory_bytes: what one core reads of the third-level cache, and of
    memory, in the time of one FMA at full rate. bfloat16_rate: products of vdpbf16ps (AVX512-BF16) in that time, over
    those of an FMA; 0 where that is not known. tiles: what tiles of products cost; None: as on others that wait for
    their third-level cache, or do not (`Target.tile_costs`). blends: whether it blends full vectors beside two FMAs of
    them a cycle, so that halves of vectors are worth joining.
    """

    fmas: int
    loads: int
    l3_bytes: float
    memory_bytes: float
    bfloat16_rate: float = 0.0
    tiles: TileCosts | None = None
    blends: bool = False


ZEN_4 = Core(fmas=1, loads=1, l3_bytes=20.0, memory_bytes=8.5, bfloat16_rate=2.0)
"""512-bit operations in two halves; measured: 3.7 GHz, 75 GB/s and 32 GB/s, vdpbf16ps 1.96."""
ZEN_5 = Core(fmas=2, loads=2, l3_bytes=14.4, memory_bytes=5.5, bfloat16_rate=2.0, blends=True)
"""Measured beside other work (`calibration`, a server's, 270 GFLOP/s): 120 GB/s, 35 to 60 GB/s, vdpbf16ps 1.97."""
INTEL_SERVER = Core(fmas=2, loads=2, l3_bytes=4.4, memory_bytes=2.3, bfloat16_rate=0.5)
"""Intel's servers from Skylake-SP on; measured on a Granite Rapids: 3.4 GHz, 30 GB/s and 15 GB/s, vdpbf16ps 0.52.
Vectors of 32 bytes meet the same caches at as many FMAs a cycle: measured there by code for Haswell, not on older
CPUs."""
COOPER_LAKE = INTEL_SERVER._replace(bfloat16_rate=2.0)
"""Intel's first with AVX512-BF16, whose maker says that it doubles the rate; not measured."""
HALF_WIDTH = Core(fmas=2, loads=2, l3_bytes=10.0, memory_bytes=4.3)
"""Other CPUs with vectors of 32 bytes, which all have two multipliers, or less: what Zen 4 would do, not measured."""
CORTEX_A72 = Core(fmas=2, loads=1, l3_bytes=4.0, memory_bytes=2.0)
NEOVERSE_N1 = Core(fmas=2, loads=2, l3_bytes=5.0, memory_bytes=2.5)
NEOVERSE_N2 = Core(fmas=2, loads=3, l3_bytes=5.0, memory_bytes=2.5)
NEOVERSE_V = Core(fmas=4, loads=3, l3_bytes=3.0, memory_bytes=2.0)
APPLE_M1 = Core(fmas=4, loads=3, l3_bytes=5.0, memory_bytes=4.5)
"""AArch64's, with vectors of 16 bytes: units as their makers describe them (the Neoverse V1 and V2 alike), caches as
estimated for 25 to 60 GB/s, and none of it measured. Code for them can be read anywhere; on such machines, cores are
measured."""

_NAMED = {
    **{"znver4": ZEN_4, "znver5": ZEN_5},
    **dict.fromkeys(("haswell", "broadwell", "skylake", "alderlake"), INTEL_SERVER),
    **dict.fromkeys(("skylake-avx512", "skx", "cascadelake", "icelake-server", "sapphirerapids"), INTEL_SERVER),
    "cooperlake": COOPER_LAKE,
    "x86-64-v4": INTEL_SERVER,
    **{"cortex-a72": CORTEX_A72, "neoverse-n1": NEOVERSE_N1, "neoverse-n2": NEOVERSE_N2, "apple-m1": APPLE_M1},
    **dict.fromkeys(("neoverse-v1", "neoverse-v2"), NEOVERSE_V),
}
_SERVER_L2_BYTES = 1 << 20
"""Cores of Intel's servers have a second-level cache of at least so many bytes."""


def core_named(cpu: str) -> Core:
    """The kind of core that a CPU of LLVM's name has."""
    return _NAMED.get(cpu, HALF_WIDTH)


def core_of_host(vector_bytes: int, vector_registers: int, l2_bytes: int) -> Core:
    """What the cores of this machine are: by vendor and family where those are known, else as measured once (all that
    are not of x86-64)."""
    info = cpu_info() if this_machine()[0] == "x86_64" else {}
    vendor, family = info.get("vendor_id", ""), info.get("cpu family", "")
    known = _known(vendor, family, vector_bytes, l2_bytes)
    if known == INTEL_SERVER and _is_cooper_lake(info.get("flags", "").split()):
        return COOPER_LAKE
    if known is not None:
        return known
    from jitonnx.target.calibration import calibrated  # rarely needed, and it imports LLVM

    return calibrated(vector_bytes, vector_registers)


def _known(vendor: str, family: str, vector_bytes: int, l2_bytes: int) -> Core | None:
    """The kind of core; None for what may be of several. Models are not looked at: virtual machines make them up."""
    if (vendor, family) not in (("GenuineIntel", "6"), ("AuthenticAMD", "23"), ("AuthenticAMD", "25")):
        return ZEN_5 if (vendor, family) == ("AuthenticAMD", "26") else None
    if vendor == "AuthenticAMD":
        return ZEN_4 if vector_bytes == 64 else HALF_WIDTH
    if vector_bytes < 64:
        return INTEL_SERVER
    return INTEL_SERVER if l2_bytes >= _SERVER_L2_BYTES else None  # cores for desktops have one multiplier of 512 bits


def _is_cooper_lake(flags: Collection[str]) -> bool:
    """Whether a server of Intel's with these flags is one: those before have no bfloat16, those after more of
    AVX-512."""
    return "avx512_bf16" in flags and "avx512_vbmi2" not in flags
