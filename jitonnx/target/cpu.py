"""The CPU that compiled code needs, and whether this one has it.

Features go by LLVM's names. On Linux on x86-64 they are looked up in /proc/cpuinfo, as importing LLVM for the question
takes longer than all the rest of opening an artifact. For names that Linux does not tell, such as those of next year's
CPUs, LLVM is asked once a machine: its answer is kept in the kernel cache.
"""

from __future__ import annotations

import functools
import os
import struct
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from jitonnx.support.kernel_cache import KernelCache
from jitonnx.support.records import NamedTuple

_CPUINFO = Path("/proc/cpuinfo")
_CPUINFO_BYTES = 16 << 10
"""More than the part for one CPU takes; the rest repeats it for the others."""
_TELLING = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU variant", "CPU part", "CPU revision", "Features"),
)
"""What of it tells one kind of CPU from another: on x86, on ARM."""


def _names(text: str) -> list[str]:
    return text.split()


_LINUX_NAMES = {
    "64bit": "lm",
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
    "amx-tile": "amx_tile",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni",
    "bmi": "bmi1",
    "crc32": "sse4_2",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "sahf": "lahf_lm",
    "sha": "sha_ni",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
} | {
    name: name
    for name in _names(
        "adx aes avx avx2 avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi avx512vl bmi2 cmov cx16 cx8 f16c "
        "fma fma4 fxsr gfni mmx movbe popcnt sse sse2 sse4a ssse3 tbm vaes vpclmulqdq xop"
    )
}
"""Linux's names of the features that LLVM makes use of by itself."""

_ON_REQUEST = frozenset(
    _names(
        "amx-avx512 amx-bf16 amx-complex amx-fp16 amx-fp8 amx-int8 amx-movrs amx-tf32 amx-tile avx512vp2intersect "
        "cldemote clflushopt clwb clzero enqcmd fsgsbase hreset invpcid kl lwp movdir64b movdiri mwaitx pconfig pku "
        "prefetchi prfchw ptwrite rdpid rdpru rdrnd rdseed rtm serialize sgx shstk tsxldtrk uintr usermsr waitpkg "
        "wbnoinvd widekl xsave xsavec xsaveopt xsaves avx10.1"
    )
)
"""Features whose instructions LLVM emits only for intrinsics that few kernels use or none: a CPU without them will do
where none does. (None belong to avx10.1, a name for parts of AVX-512 that are listed beside it.)"""

_AUXILIARY = Path("/proc/self/auxv")
_HWCAP, _HWCAP2 = 16, 26
_OF_AARCH64 = {
    **{"lse": (_HWCAP, 8), "fullfp16": (_HWCAP, 10), "rdm": (_HWCAP, 12), "dotprod": (_HWCAP, 20)},
    **{"fp16fml": (_HWCAP, 23), "i8mm": (_HWCAP2, 13), "bf16": (_HWCAP2, 14)},
}
"""Features of AArch64 that LLVM does not look for on Linux but takes from the CPU's name, which it may not know, nor an
emulator tell: the entry and the bit of the auxiliary vector (getauxval) that say whether they are there."""

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""A system call of Linux on x86-64, its code to ask for the use of a part of the CPU's state, and its tiles as one."""

_V2 = _names("sse3 ssse3 sse4.1 sse4.2 popcnt cx16 sahf crc32")
_V3 = [*_V2, *_names("avx avx2 bmi bmi2 f16c fma lzcnt movbe")]
_V4 = [*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]
_CRYPTOGRAPHY = ["aes", "pclmul"]
_ICE_LAKE = _names(
    "sha adx avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq gfni vaes vpclmulqdq"
)
_ZEN = [*_V3, *_CRYPTOGRAPHY, "sha", "adx", "sse4a"]
CPUS_OF_X86: Mapping[str, Collection[str]] = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "haswell": [*_V3, "pclmul"],
    "broadwell": [*_V3, "pclmul", "adx"],
    "skylake": [*_V3, *_CRYPTOGRAPHY, "adx"],
    "alderlake": [*_V3, *_CRYPTOGRAPHY, "sha", "adx", "gfni", "vaes", "vpclmulqdq", "avxvnni"],
    "skylake-avx512": [*_V4, *_CRYPTOGRAPHY, "adx"],
    "skx": [*_V4, *_CRYPTOGRAPHY, "adx"],
    "cascadelake": [*_V4, *_CRYPTOGRAPHY, "adx", "avx512vnni"],
    "cooperlake": [*_V4, *_CRYPTOGRAPHY, "adx", "avx512vnni", "avx512bf16"],
    "icelake-server": [*_V4, *_CRYPTOGRAPHY, *_ICE_LAKE],
    "sapphirerapids": [*_V4, *_CRYPTOGRAPHY, *_ICE_LAKE, "avx512bf16", "avx512fp16", "avxvnni"],
    "znver1": _ZEN,
    "znver2": _ZEN,
    "znver3": [*_ZEN, "vaes", "vpclmulqdq"],
    "znver4": [*_V4, *_ZEN, *_ICE_LAKE, "avx512bf16"],
    "znver5": [*_V4, *_ZEN, *_ICE_LAKE, "avx512bf16", "avxvnni"],
}
"""What LLVM takes a CPU of a name to have, of all that it uses by itself (llvm/lib/Target/X86/X86.td)."""

CPUS_OF_AARCH64: Mapping[str, Collection[str]] = {
    "cortex-a72": [],
    "neoverse-n1": ["dotprod"],
    **dict.fromkeys(("neoverse-v1", "neoverse-n2", "neoverse-v2"), ("dotprod", "i8mm", "bf16")),
    "apple-m1": ["dotprod"],
}
"""The same of AArch64, of what kernels ask for (`_OF_AARCH64`)."""


class Described(NamedTuple):
    """What LLVM says of this CPU.

    name: its own name of it. features: all features that LLVM knows, each with a sign: "+avx2,-avx512f".
    """

    name: str
    features: str


class CpuNeeded(NamedTuple):
    """What compiled code needs of a machine.

    architecture, system: as `os.uname().machine` and `sys.platform` have them.
    name, features: LLVM's names of the CPU that the code was made for, and of the features that it may use.
    """

    architecture: str
    system: str
    name: str
    features: tuple[str, ...]
    vector_bytes: int

    def problem(self) -> str | None:
        """Why this machine cannot run the code; None if it can."""
        here = this_machine()
        if (self.architecture, self.system) != here:
            return f"it was compiled for {self.architecture} on {self.system}, and this is {here[0]} on {here[1]}"
        if self.architecture != "x86_64" and self.name != described().name:
            return f"it was compiled for the CPU {self.name}, and this one is {described().name}"
        missing = sorted(set(self.features) - available(self.features))
        if missing:
            return f"it was compiled for the CPU {self.name}, and this one lacks: {', '.join(missing)}"
        return None


def features_named(cpu: str) -> Collection[str]:
    """What a CPU of LLVM's name has, of the features that count here; none for a name that is not known."""
    return CPUS_OF_X86.get(cpu) or CPUS_OF_AARCH64.get(cpu, ())


def this_machine() -> tuple[str, str]:
    """Architecture and system of this machine."""
    return os.uname().machine, sys.platform


def cpu_needed(name: str, features: str, vector_bytes: int, used: Iterable[str] = ()) -> CpuNeeded:
    """What code made for a CPU needs. ValueError if that is not known.

    used: features that the code asks for by intrinsics.

    name, features: as LLVM has them ("+avx2,+fma"). What counts are the features that are listed, or, where there are
    none, those that a CPU of the name has but for what is listed as left out ("-sse4a").
    """
    listed = [feature[1:] for feature in features.split(",") if feature.startswith("+")]
    left_out = {feature[1:] for feature in features.split(",") if feature.startswith("-")}
    if this_machine()[0] != "x86_64":  # goes by the name, which LLVM has from the kind of core, and what it cannot tell
        listed = sorted({name for name in listed if name in _OF_AARCH64} | set(used))
    elif not listed and name not in CPUS_OF_X86:
        raise ValueError(f"what a CPU {name!r} has is not known; choose one of: host, {', '.join(CPUS_OF_X86)}")
    else:
        listed = sorted((set(listed or CPUS_OF_X86[name]) - _ON_REQUEST - left_out) | set(used))
    return CpuNeeded(*this_machine(), name, tuple(listed), vector_bytes)


def available(features: Iterable[str]) -> set[str]:
    """Those of the features that this CPU, and the operating system on it, has."""
    asked = set(features)
    flags = _linux_flags()
    known = {name for name in asked if name in _LINUX_NAMES} if flags else set()
    found = {name for name in known if _LINUX_NAMES[name] in flags}
    if any(name.startswith("amx-") for name in found) and not _tiles_permitted():
        found = {name for name in found if not name.startswith("amx-")}
    if asked == known:
        return found
    listed = frozenset(described().features.split(","))
    return found | {name for name in asked - known if f"+{name}" in listed}


@functools.cache
def _tiles_permitted() -> bool:
    """Whether this process may use AMX's tile registers: it asks Linux for that. All its threads may then, and children
    that it forks; a program that it starts asks anew. Linux refuses where a thread has an alternate signal stack that
    is too small for them."""
    if "amx_tile" not in _linux_flags():
        return False
    import ctypes

    refused: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return refused == 0


def _linux_flags() -> frozenset[str]:
    """The flags of the first CPU that Linux lists; empty where it lists none, on other systems and architectures."""
    if this_machine() != ("x86_64", "linux"):
        return frozenset()
    return frozenset(cpu_info().get("flags", "").split())


def cpu_identity() -> str | None:
    """What tells this CPU from others, for keys of what is kept; None where Linux does not say and on other systems."""
    found = {name: value for name, value in cpu_info().items() if name in _TELLING}
    if "flags" not in found and "Features" not in found:
        return None
    architecture = this_machine()[0]  # an emulator of programs may tell the CPU that it runs on
    return repr(found) if architecture == "x86_64" else f"{architecture} {found!r}"


def cpu_info() -> dict[str, str]:
    """What Linux says of the first CPU, by name; empty on other systems."""
    try:
        with open(_CPUINFO, "rb") as file:
            text = file.read(_CPUINFO_BYTES).decode(errors="replace")
    except OSError:
        return {}
    lines = [line.partition(":") for line in text.partition("\n\n")[0].splitlines()]
    return {name.strip(): value.strip() for name, _, value in lines}


@functools.cache
def described() -> Described:
    """What LLVM says of this CPU, less AMX where Linux does not let this process use it.

    It is kept with the kernels, as importing LLVM takes 20 ms of each start. What Linux says of the CPU tells whether
    it is still the same one; where Linux says nothing, LLVM is asked in each process.
    """
    name, features = _known()
    if "+amx-" in features and not _tiles_permitted():
        features = features.replace("+amx-", "-amx-")
    return Described(name, features)


def _known() -> Described:
    """What LLVM says, kept."""
    key = description_key()
    if key is None:
        return _asked_of_llvm()
    cache = KernelCache()
    known = cache.get(key)
    if known is not None:
        name, _, features = known.decode().partition("\n")
        return Described(name, features)
    answer = _asked_of_llvm()
    cache.put(key, "\n".join(answer).encode())
    return answer


def description_key() -> str | None:
    """The name under which the kernel cache keeps what LLVM says of this CPU; None where that is not kept."""
    facts = cpu_identity()
    if facts is None:
        return None
    import llvmlite  # the package alone; LLVM itself is in llvmlite.binding

    return f"host {llvmlite.__version__} {facts}"


def _asked_of_llvm() -> Described:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    listed = [features.flatten(), *(f"+{name}" for name in sorted(_found_on_aarch64()) if name not in features)]
    return Described(llvm.get_host_cpu_name(), ",".join(filter(None, listed)))


def _found_on_aarch64() -> set[str]:
    """Those of `_OF_AARCH64` that Linux says to be there; none on other systems and architectures."""
    if this_machine() != ("aarch64", "linux"):
        return set()
    try:
        data = _AUXILIARY.read_bytes()
    except OSError:
        return set()
    words = struct.unpack(f"={len(data) // 8}Q", data[: len(data) // 8 * 8])
    entries = dict(zip(words[::2], words[1::2], strict=True))
    return {name for name, (entry, bit) in _OF_AARCH64.items() if entries.get(entry, 0) >> bit & 1}
