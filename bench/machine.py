"""What this machine is and what it can do at best: its description, its float32 FMA rate, its read and copy bandwidth.

A kernel's speed means something only against the limit that binds it. Both limits are measured with machine code made
for this CPU through llvmlite, from LLVM IR that spells out every vector instruction, so that no compiler's choice
stands between the figure and the hardware:

    python -m bench.machine
"""

import argparse
import ctypes
import importlib.metadata
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from jitonnx.target.calibration import UNROLL, bfloat16_ir, chains_ir, copy_ir, fma_ir, read_ir
from jitonnx.target.cpu import available
from jitonnx.target.machine import host, named
from jitonnx.target.products import BFLOAT16, INTEGERS

Clock = Callable[[], float]
_PACKAGES = ["jitonnx", "numpy", "llvmlite", "protobuf", "onnx", "onnxruntime", "openvino"]
_ALIGNMENT = 64  # bytes of a cache line, and the widest vector
_ROUND_SECONDS = 0.01  # long against waking a thread, short enough to fall between other processes' turns


def fma_peak(threads: int = 1, rounds: int = 30, cpu: str = "host", clock: Clock = time.perf_counter) -> float:
    """The best float32 rate of fused multiply-adds, in GFLOP/s (an FMA counts as two operations).

    Each thread runs chains of independent FMAs, held in registers: of the full vector width, or of the width that a CPU
    of LLVM's name has, whose code this one runs. The best of `rounds` rounds of about 10 ms counts, since other
    processes and frequency changes can only slow a round down.
    """
    target = named(cpu)
    lanes, chains = target.lanes(4), target.vector_registers * 3 // 4  # more than latency (4 or 5) times pipes (2 to 4)
    states = [_aligned(lanes * chains) for _ in range(threads)]
    kernel = _fma_kernel(lanes, chains).call
    calls = [_bind(kernel, state.ctypes.data) for state in states]
    seconds = _best_seconds_per_step(calls, rounds, clock)
    return 2 * lanes * chains * threads / seconds / 1e9


def byte_peak(threads: int = 1, rounds: int = 30, cpu: str = "host", clock: Clock = time.perf_counter) -> float:
    """The best rate of products of bytes that are summed in 32 bits, in billions of operations a second (a product and
    its sum count as two), as `fma_peak` measures.

    By tile registers (AMX), of random numbers, as zeros draw less power; by dot products of vectors (VNNI); on CPUs
    with neither four times the FMA peak, as vectors hold four times as many bytes.
    """
    target = named(cpu)
    kind = target.integer_products
    if kind not in ("tiles", "dot") or (kind == "tiles" and not _may_use(INTEGERS["tiles"].features)):
        return 4 * fma_peak(threads, rounds, cpu, clock)
    lanes, chains = target.lanes(4), target.vector_registers * 3 // 4
    operations = 4 * 2 * 16**2 * 64 if kind == "tiles" else 2 * 4 * lanes * chains
    return operations * _dots_per_second(_byte_kernel(kind, lanes, chains), lanes * chains, threads, rounds, clock)


def bfloat16_peak(threads: int = 1, rounds: int = 30, cpu: str = "host", clock: Clock = time.perf_counter) -> float:
    """The best rate of products of bfloat16 that are summed in float32, in GFLOP/s, as `byte_peak` measures: by tile
    registers, or dot products of pairs; on CPUs without either the FMA peak."""
    kind = named(cpu).bfloat16_products
    if kind not in ("tiles", "dots") or not _may_use(BFLOAT16[kind].features):
        return fma_peak(threads, rounds, cpu, clock)
    operations = 4 * 2 * 16**2 * 32 if kind == "tiles" else 2 * 2 * 16 * _BFLOAT16_CHAINS
    return operations * _dots_per_second(_bfloat16_kernel(kind), 16 * _BFLOAT16_CHAINS, threads, rounds, clock)


def _may_use(features: Sequence[str]) -> bool:
    """Whether this CPU has all of them, and the operating system lets this process use them."""
    return available(features) == set(features)


_BFLOAT16_CHAINS = 24
"""Sums of dot products of pairs that registers hold."""
_TILE_STATE = 64 + 4096
"""Bytes: the configuration, and four tiles that are multiplied."""
_TILE_CONFIGURATION = np.zeros(64, np.uint8)
_TILE_CONFIGURATION[0] = 1
_TILE_CONFIGURATION[16:32:2] = 64
_TILE_CONFIGURATION[48:56] = 16


def copy_bandwidth(nbytes: int, threads: int = 1, *, streaming: bool = False, rounds: int = 30) -> float:
    """The best rate of copying one array to another, in GB/s, with bytes read and bytes written both counted.

    `nbytes` is the working set, both arrays together, over all threads: a kernel that reads and writes X bytes takes
    X / copy_bandwidth(X) seconds at best, when its data lie where they were used last (L1, L2, L3 or memory).
    `streaming` stores past the caches (non-temporal), which saves reading the destination first: right for data far
    larger than the caches that nobody reads soon.

    Raises `ValueError` when `nbytes` is too small for one step of every thread.
    """
    kernels, lanes = _kernels(), vector_lanes()
    step = lanes * UNROLL
    steps = nbytes // smallest_copy(threads)
    if steps < 1:
        raise ValueError(f"nbytes={nbytes}: {threads} thread(s) need at least {smallest_copy(threads)}")
    share = steps * step
    # Half a page apart, or loads would wait for stores whose addresses agree in their lowest 12 bits (4K aliasing).
    both = _aligned(2 * share * threads + 1024)
    source, target = both[: share * threads], both[share * threads + _half_page_gap(share * threads) :]
    copy = kernels.copy_streaming if streaming else kernels.copy
    calls = [
        _bind(copy, target[t * share :].ctypes.data, source[t * share :].ctypes.data, steps) for t in range(threads)
    ]
    seconds = _best_seconds_per_step(calls, rounds)
    return 2 * 4 * share * threads / seconds / 1e9


def read_bandwidth(nbytes: int, threads: int = 1, *, rounds: int = 30) -> float:
    """The best rate of reading one array, in GB/s; `nbytes` over all threads. `ValueError` as by `copy_bandwidth`."""
    step = vector_lanes() * UNROLL
    steps = nbytes // (4 * step * threads)
    if steps < 1:
        raise ValueError(f"nbytes={nbytes}: {threads} thread(s) need at least {4 * step * threads}")
    source, sums = _aligned(steps * step * threads), _aligned(step * threads)
    calls = [
        _bind(_kernels().read, sums[t * step :].ctypes.data, source[t * steps * step :].ctypes.data, steps)
        for t in range(threads)
    ]
    return 4 * steps * step * threads / _best_seconds_per_step(calls, rounds) / 1e9


def smallest_copy(threads: int) -> int:
    """The smallest working set in bytes that `copy_bandwidth` can measure: one step of every thread."""
    return 2 * 4 * vector_lanes() * UNROLL * threads


def describe() -> dict[str, Any]:
    """What one has to know to read the figures: processor, cores allowed, caches, vector width, versions."""
    return {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "llvm_cpu": llvm.get_host_cpu_name(),
        "vector_bits": 32 * vector_lanes(),
        "cores_allowed": cores_allowed(),
        "caches": cache_sizes(),
        "core": host().core._asdict(),
        "system": platform.platform(),
        "versions": {"python": platform.python_version(), **_package_versions()},
    }


def vector_lanes() -> int:
    """How many float32 the widest vector register of this CPU holds: 16 (AVX-512), 8 (AVX) or 4 (SSE, NEON)."""
    features = llvm.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx") else 4


def cores_allowed() -> int:
    """How many CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_sizes() -> dict[str, int]:
    """Sizes in bytes of the first CPU's data caches, by level ("L1", "L2", "L3"); empty where Linux does not tell."""
    sizes = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (index / "type").read_text().strip() != "Instruction":
            size = (index / "size").read_text().strip()
            sizes["L" + (index / "level").read_text().strip()] = int(size.removesuffix("K")) * 1024
    return sizes


def working_sets() -> dict[str, int]:
    """Sizes in bytes to measure `copy_bandwidth` at: half of each cache, and eight times the largest as "memory"."""
    caches = cache_sizes() or {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
    return {level: size // 2 for level, size in caches.items()} | {"memory": 8 * max(caches.values())}


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _package_versions() -> dict[str, str]:
    installed = {}
    for package in _PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # not installed: nothing to tell
    return installed


def _best_seconds_per_step(
    calls: Sequence[Callable[[int], None]], rounds: int, clock: Clock = time.perf_counter
) -> float:
    """The shortest time of one step, when all `calls` (each takes its number of steps) run at once in own threads."""
    barrier = threading.Barrier(len(calls))
    own_cpus = iter(_own_cpus(len(calls)))

    def timed(call: Callable[[int], None], steps: int) -> tuple[float, float]:
        barrier.wait()
        started = clock()
        call(steps)
        return started, clock()

    with ThreadPoolExecutor(len(calls), initializer=lambda: _pin(next(own_cpus))) as pool:

        def best(rounds: int, steps: int) -> float:
            seconds = []
            for _ in range(rounds):
                times = list(pool.map(timed, calls, [steps] * len(calls)))
                seconds.append(max(stop for _, stop in times) - min(start for start, _ in times))
            return min(seconds)

        steps = 1
        while (elapsed := best(3, steps)) < _ROUND_SECONDS / 4:
            steps *= 2
        steps = max(1, round(steps * _ROUND_SECONDS / elapsed))
        return best(rounds, steps) / steps


def _own_cpus(threads: int) -> list[set[int]]:
    """Choose for each thread the CPUs it may run on: one of its own when there are several threads.

    Threads that wake each other are at times left on one CPU for longer than a round takes.
    """
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if 1 < threads <= len(allowed):
        return [{cpu} for cpu in allowed[:threads]]
    return [set(allowed)] * threads


def _pin(cpus: set[int]) -> None:
    """Keep the calling thread on `cpus`; none means that this system has no such call."""
    if cpus:
        os.sched_setaffinity(0, cpus)


class _Fma(NamedTuple):
    """The kernel that multiplies and adds; takes its number of steps last, and lets go of the GIL."""

    call: Callable[..., None]
    engine: llvm.ExecutionEngine  # owns the machine code


class _Kernels(NamedTuple):
    """The compiled kernels that move memory; each takes its number of steps last, and lets go of the GIL."""

    copy: Callable[..., None]
    copy_streaming: Callable[..., None]
    read: Callable[..., None]
    engine: llvm.ExecutionEngine  # owns the machine code


def _bind(kernel: Callable[..., None], *args: int) -> Callable[[int], None]:
    return lambda steps: kernel(*args, steps)


@cache
def _fma_kernel(lanes: int, chains: int) -> _Fma:
    engine = _engine(fma_ir("fma", lanes, chains))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    return _Fma(kind(engine.get_function_address("fma")), engine)


@cache
def _byte_kernel(kind: str, lanes: int, chains: int) -> _Fma:
    engine = _engine(_tiles_ir("dots") if kind == "tiles" else _dots_ir("dots", lanes, chains))
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    return _Fma(signature(engine.get_function_address("dots")), engine)


@cache
def _bfloat16_kernel(kind: str) -> _Fma:
    text = _tiles_ir("dots", "tdpbf16ps") if kind == "tiles" else bfloat16_ir("dots", _BFLOAT16_CHAINS)
    engine = _engine(text)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    return _Fma(signature(engine.get_function_address("dots")), engine)


def _dots_per_second(kernel: _Fma, words: int, threads: int, rounds: int, clock: Clock) -> float:
    """Billions of steps a second of a kernel on random numbers, by all threads."""
    states = [_aligned(max(words, _TILE_STATE // 4)) for _ in range(threads)]
    for state in states:
        numbers = np.random.default_rng(0).integers(0, 256, state.nbytes, np.uint8)
        numbers[:64] = _TILE_CONFIGURATION
        state.view(np.uint8)[:] = numbers
    seconds = _best_seconds_per_step([_bind(kernel.call, state.ctypes.data) for state in states], rounds, clock)
    return threads / seconds / 1e9


def _tiles_ir(name: str, product: str = "tdpbusd") -> str:
    """name(state, steps): `steps` times the products of two tiles by two; state: the configuration and these four."""
    loads = "\n".join(
        f"  %p{t} = getelementptr i8, ptr %state, i64 {64 + 1024 * t}\n"
        f"  call void @llvm.x86.tileloadd64(i8 {4 + t}, ptr %p{t}, i64 64)"
        for t in range(4)
    )
    zeros = "\n".join(f"  call void @llvm.x86.tilezero(i8 {t})" for t in range(4))
    products = "\n".join(
        f"  call void @llvm.x86.{product}(i8 {2 * i + j}, i8 {4 + i}, i8 {6 + j})" for i in range(2) for j in range(2)
    )
    return f"""
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.{product}(i8 immarg, i8 immarg, i8 immarg)
declare void @llvm.x86.tilerelease()
define void @{name}(ptr %state, i64 %steps) {{
entry:
  call void @llvm.x86.ldtilecfg(ptr %state)
{zeros}
{loads}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{products}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %steps
  br i1 %more, label %loop, label %done
done:
  call void @llvm.x86.tilerelease()
  ret void
}}
"""


def _dots_ir(name: str, lanes: int, chains: int) -> str:
    """name(state, steps): `steps` times dot products of bytes on every chain; stores the chains."""
    vector, intrinsic = f"<{lanes} x i32>", f"@llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    step = f"call {vector} {intrinsic}({vector} %x, {vector} %a, {vector} %a)"
    declaration = f"declare {vector} {intrinsic}({vector}, {vector}, {vector})"
    return declaration + chains_ir(name, vector, chains, "zeroinitializer", step)


@cache
def _kernels() -> _Kernels:
    lanes = vector_lanes()
    copies = copy_ir("copy", lanes) + copy_ir("copy_streaming", lanes, streaming=True)
    engine = _engine(copies + read_ir("read", lanes) + "!0 = !{i32 1}\n")
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    kind = ctypes.CFUNCTYPE(None, pointer, pointer, integer, integer)
    copy, streaming, read = (kind(engine.get_function_address(name)) for name in ("copy", "copy_streaming", "read"))
    return _Kernels(copy, streaming, read, engine)


def _engine(text: str) -> llvm.ExecutionEngine:
    """The machine code of LLVM IR, which goes to the back end as it stands: an optimiser would turn the copy into a
    call of memcpy."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    return engine


def _aligned(count: int) -> np.ndarray:
    """`count` float32 ones, each written once (so that memory stands behind them), on a cache line's boundary."""
    raw = np.ones(count + _ALIGNMENT // 4, np.float32)
    start = -raw.ctypes.data % _ALIGNMENT // 4
    return raw[start : start + count]


def _half_page_gap(count: int) -> int:
    """How many floats to leave after `count` floats so that what follows starts half a page (2 KiB) off."""
    return (512 - count) % 1024


def main() -> None:
    """Print the machine's description and limits, as text or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.machine", description="Describe and measure this machine.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, cores_allowed()}), help="thread counts")
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="rounds of which the best counts (30)")
    arguments = parser.parse_args()
    report = describe() | {"limits": {threads: _limits(threads, arguments.rounds) for threads in arguments.threads}}
    if arguments.json:
        print(json.dumps(report, indent=1))
        return
    for key in ("cpu", "architecture", "llvm_cpu", "vector_bits", "cores_allowed", "system"):
        print(f"{key:16}{report[key]}")
    print(f"{'caches':16}{', '.join(f'{level} {size >> 10} KiB' for level, size in report['caches'].items())}")
    print(f"{'core':16}{', '.join(f'{name} {value}' for name, value in report['core'].items())} (bytes an FMA)")
    print(f"{'versions':16}{', '.join(f'{name} {version}' for name, version in report['versions'].items())}")
    for threads, limits in report["limits"].items():
        print(f"\n{threads} thread(s)")
        for name, value in limits.items():
            print(f"  {name:40}{value:10.1f}")


def _limits(threads: int, rounds: int) -> dict[str, float]:
    limits = {"float32 FMA, GFLOP/s": fma_peak(threads, rounds), "products of bytes, GOP/s": byte_peak(threads, rounds)}
    limits["products of bfloat16, GFLOP/s"] = bfloat16_peak(threads, rounds)
    for level, nbytes in working_sets().items():
        limits[f"copy in {level} ({nbytes >> 10} KiB), GB/s"] = copy_bandwidth(nbytes, threads, rounds=rounds)
    far = working_sets()["memory"]
    limits["read from memory, GB/s"] = read_bandwidth(far, threads, rounds=rounds)
    limits["copy in memory, streaming stores, GB/s"] = copy_bandwidth(far, threads, streaming=True, rounds=rounds)
    return limits


if __name__ == "__main__":
    main()
