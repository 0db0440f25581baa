"""Measures what a core of this machine does in a cycle, where `cores` does not know its kind.

Machine code from LLVM IR that spells out every vector instruction is timed for some 30 ms, once a machine: the result
is kept in the kernel cache. Time is this thread's own, so that what else the machine does is left out.
JITONNX_CALIBRATE=0 takes a common kind of core instead, so that the same code is chosen whatever a machine was busy
with.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

import numpy as np

from jitonnx.support.kernel_cache import KernelCache
from jitonnx.target.cores import HALF_WIDTH, Core
from jitonnx.target.cpu import cpu_identity, described

SWITCH = "JITONNX_CALIBRATE"
_LINE = 64  # bytes of a cache line, and of the widest vector
_LATENCY = 4  # cycles of an FMA, or 5
UNROLL = 8  # vectors a step of reading: enough loads in flight, few enough for 16 registers
_PAGE = 4096
_SECONDS = 0.004  # of each of six measurements, and no more than one call longer
_ROUND_SECONDS = 0.0005  # short against the turns of other processes; the best round counts
_SIZES = {"l1": 16 << 10, "l3": 6 << 20, "memory": 48 << 20}
"""Bytes to read of each: in the first-level cache; beyond any second-level one; beyond many third-level ones."""


def calibrated(vector_bytes: int, vector_registers: int) -> Core:
    """What the cores of this machine do with so many vectors of so many bytes."""
    if os.environ.get(SWITCH) == "0":
        return HALF_WIDTH
    identity = cpu_identity()
    if identity is None:
        return _measured(vector_bytes, vector_registers)
    cache, key = KernelCache(), f"core with bfloat16 {vector_bytes} {identity}"
    kept = cache.get(key)
    if kept is not None:
        fmas, loads, l3_bytes, memory_bytes, bfloat16_rate = kept.decode().split()
        return Core(int(fmas), int(loads), float(l3_bytes), float(memory_bytes), float(bfloat16_rate))
    core = _measured(vector_bytes, vector_registers)
    cache.put(key, " ".join(map(str, core[:5])).encode())
    return core


def _measured(vector_bytes: int, vector_registers: int) -> Core:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=described().name, features=described().features, opt=3
    )
    lanes, chains = vector_bytes // 4, vector_registers * 3 // 4
    dots = vector_bytes == _LINE and "+avx512bf16" in described().features.split(",")
    text = fma_ir("one", lanes, 1) + fma_ir("many", lanes, chains, declare=False) + read_ir("read", lanes)
    text += bfloat16_ir("dots", chains) if dots else ""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    stepping = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    one, many = (stepping(engine.get_function_address(name)) for name in ("one", "many"))
    read = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)(engine.get_function_address("read"))
    state = np.ones(chains * lanes, np.float32)
    at_once = chains * _per_second(lambda steps: many(state.ctypes.data, steps))
    in_turn = _per_second(lambda steps: one(state.ctypes.data, steps))
    fmas = max(1, int(at_once / in_turn / _LATENCY + 0.25))
    bfloat16_rate = 0.0
    if dots:
        pairs = stepping(engine.get_function_address("dots"))
        bfloat16_rate = round(2 * chains * _per_second(lambda steps: pairs(state.ctypes.data, steps)) / at_once, 2)
    vectors = {}
    for place, size in _SIZES.items():
        data, pieces = _aligned(size), size // (UNROLL * vector_bytes)

        def passes(count: int, data: np.ndarray = data, pieces: int = pieces) -> None:
            read(state.ctypes.data, data.ctypes.data, pieces, count)

        vectors[place] = pieces * UNROLL * _per_second(passes)
    loads = max(fmas, round(vectors["l1"] / at_once * fmas))  # no core has fewer
    l3_bytes, memory_bytes = (round(vectors[place] * vector_bytes / at_once, 2) for place in ("l3", "memory"))
    return Core(fmas, loads, l3_bytes, memory_bytes, bfloat16_rate)


def _aligned(size: int) -> np.ndarray:
    """Bytes from a cache line's boundary on, one of each page written, so that memory stands behind them."""
    raw = np.empty(size + _LINE, np.uint8)
    raw[::_PAGE] = 1
    return raw[-raw.ctypes.data % _LINE :][:size]


def _per_second(call: Callable[[int], None], clock: Callable[[], float] = time.thread_time) -> float:
    """How many steps a second `call`, which takes their number, does at best in rounds of _SECONDS in all."""
    steps, spent, best = 1, 0.0, 0.0
    while spent < _SECONDS:
        start = clock()
        call(steps)
        seconds = clock() - start
        spent += max(seconds, 1e-6)  # clocks may stand still for a while
        if seconds >= _ROUND_SECONDS / 2:
            best = max(best, steps / seconds)
        else:
            steps *= 2
    return best or steps / spent


def fma_ir(name: str, lanes: int, chains: int, *, declare: bool = True) -> str:
    """name(state, steps): `steps` times x = x / 2 + 1 on every chain, which stays a normal number; stores the chains.

    declare: the module does not yet declare the intrinsic for vectors of so many lanes.
    """
    vector, intrinsic = f"<{lanes} x float>", f"@llvm.fmuladd.v{lanes}f32"
    half, one = (f"<{', '.join(['float ' + value] * lanes)}>" for value in ("0.5", "1.0"))
    step = f"call {vector} {intrinsic}({vector} %x, {vector} {half}, {vector} {one})"
    declaration = f"declare {vector} {intrinsic}({vector}, {vector}, {vector})" if declare else ""
    return declaration + chains_ir(name, vector, chains, one, step)


def bfloat16_ir(name: str, chains: int) -> str:
    """name(state, steps): `steps` times x = x + the sums of pairs of products of bfloat16 on every chain of 16 float32,
    by AVX512-BF16; stores the chains."""
    vector, pairs, intrinsic = "<16 x float>", "<32 x bfloat>", "@llvm.x86.avx512bf16.dpbf16ps.512"
    step = f"call {vector} {intrinsic}({vector} %x, {pairs} zeroinitializer, {pairs} zeroinitializer)"
    declaration = f"declare {vector} {intrinsic}({vector}, {pairs}, {pairs})"
    return declaration + chains_ir(name, vector, chains, "zeroinitializer", step)


def chains_ir(name: str, vector: str, chains: int, first: str, step: str) -> str:
    """name(state, steps): `steps` times `step`, an instruction that makes the next vector of %x (and may read %a, the
    first vector of the state), on so many chains, which begin with `first`; stores the chains."""
    numbers = range(chains)
    phis = "\n".join(f"  %x{c} = phi {vector} [ {first}, %entry ], [ %y{c}, %loop ]" for c in numbers)
    steps = "\n".join(f"  %y{c} = {step.replace('%x', f'%x{c}')}" for c in numbers)
    return f"""
define void @{name}(ptr %state, i64 %steps) {{
entry:
  %a = load {vector}, ptr %state, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %steps
  br i1 %more, label %loop, label %done
done:
{_stores_ir("%state", vector, "%y", chains, "align 4")}
  ret void
}}
"""


def read_ir(name: str, lanes: int) -> str:
    """name(state, source, pieces, passes): `passes` times reads `pieces` pieces of `UNROLL` vectors each, and stores a
    piece of what comes of them."""
    vector = f"<{lanes} x i32>"
    phis = "\n".join(f"  %x{u} = phi {vector} [ zeroinitializer, %pass ], [ %y{u}, %loop ]" for u in range(UNROLL))
    sums = "\n".join(f"  %y{u} = xor {vector} %x{u}, %v{u}" for u in range(UNROLL))
    return pieces_ir(name, vector, "align 4", phis, sums, _stores_ir("%state", vector, "%y", UNROLL, "align 4"))


def copy_ir(name: str, lanes: int, *, streaming: bool = False) -> str:
    """name(target, source, pieces, passes): `passes` times copies `pieces` pieces of `UNROLL` vectors each.

    Both lie on a vector's boundary. streaming: past the caches; the module has !0 = !{i32 1}.
    """
    vector, alignment = f"<{lanes} x float>", f"align {4 * lanes}"
    place = f"  %to = getelementptr {vector}, ptr %state, i64 %offset\n"
    stores = _stores_ir("%to", vector, "%v", UNROLL, alignment + (", !nontemporal !0" if streaming else ""))
    return pieces_ir(name, vector, alignment, "", place + stores, "")


def pieces_ir(name: str, vector: str, alignment: str, begin: str, use: str, end: str) -> str:
    """name(state, source, pieces, passes): `passes` times loads `pieces` pieces of `UNROLL` vectors, each as %v0, %v1,
    …, from %offset vectors on. begin, end: instructions of a pass; use: those of a piece."""
    loads = "\n".join(
        f"  %s{u} = getelementptr {vector}, ptr %from, i64 {u}\n  %v{u} = load {vector}, ptr %s{u}, {alignment}"
        for u in range(UNROLL)
    )
    return f"""
define void @{name}(ptr noalias %state, ptr noalias %source, i64 %pieces, i64 %passes) {{
entry:
  br label %pass
pass:
  %p = phi i64 [ 0, %entry ], [ %next_pass, %end ]
  br label %loop
loop:
  %i = phi i64 [ 0, %pass ], [ %next, %loop ]
{begin}
  %offset = mul i64 %i, {UNROLL}
  %from = getelementptr {vector}, ptr %source, i64 %offset
{loads}
{use}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %pieces
  br i1 %more, label %loop, label %end
end:
{end}
  %next_pass = add i64 %p, 1
  %again = icmp slt i64 %next_pass, %passes
  br i1 %again, label %pass, label %done
done:
  ret void
}}
"""


def _stores_ir(target: str, vector: str, name: str, count: int, suffix: str) -> str:
    """Stores of so many vectors, one behind the other."""
    return "\n".join(
        f"  %t{u} = getelementptr {vector}, ptr {target}, i64 {u}\n  store {vector} {name}{u}, ptr %t{u}, {suffix}"
        for u in range(count)
    )
