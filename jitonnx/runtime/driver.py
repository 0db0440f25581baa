"""The native functions that carry out runs, one set a process: made from `native/`, or taken from the kernel cache or
from an artifact.

jitonnx_execute(pool, program, bases, words, stamps)    a run in a frame of the pool
jitonnx_loop(loop)                                      iterations of a program
jitonnx_lay_out(layout)                                 fill a program's tables
jitonnx_instantiate(plan, block, threads)               make a program for sizes
jitonnx_place(placement)                                place the buffers of an arena
jitonnx_perform(operations, registers, results, missed) arithmetic on integers
jitonnx_trim(pool, above), jitonnx_reclaim(pool)
jitonnx_acquire(team), jitonnx_stop(team)
jitonnx_entry, jitonnx_chain                            the code of a native entry, and of chains
jitonnx_block_…                                         what `blocks` gives NumPy
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from jitonnx import forks
from jitonnx.records import NamedTuple

from .cache import KernelCache
from .digest import sha256
from .images import load_linked

_MAKING = ("lay_out", "place", "perform", "instantiate")
_EXPORTED = ("execute", "loop", *_MAKING, "trim", "reclaim", "acquire", "stop", "entry", "chain")
_BLOCKS = ("malloc", "calloc", "realloc", "free", "trim", "count")
SYMBOLS = tuple(f"jitonnx_{name}" for name in (*_EXPORTED, *(f"block_{name}" for name in _BLOCKS)))
_DARWIN = sys.platform == "darwin"
_MONOTONIC_CLOCK = 6 if _DARWIN else 1
_SET_MASK = 3 if _DARWIN else 2

_making = forks.WorkLock()
_driver: Driver | None = None


class Driver(NamedTuple):
    """The native functions. Those that run something let go of the GIL, and raise what ends it from outside."""

    image: Mapping[str, int]
    execute: Callable[[int, int, int, int, int], int]
    loop: Callable[[int], int]
    lay_out: Callable[[int], None]
    place: Callable[[int], int]
    perform: Callable[[int, int, int, int], int]
    instantiate: Callable[[int, int, int], int]
    trim: Callable[[int, int], None]
    reclaim: Callable[[int], None]
    acquire: Callable[[int], int]
    stop: Callable[[int], None]
    entry: int
    """The address of the native entry's code."""
    chain: int
    """That of the chains' code."""


def driver() -> Driver:
    """This process's driver, made at the first call."""
    global _driver
    if _driver is None:
        with _making:
            _driver = _driver or _load_driver(KernelCache())
    return _driver


def adopt(image: Mapping[str, int], digest: str) -> None:
    """Take this process's driver from linked code, if it has none yet and the code is of the same `driver_digest`."""
    global _driver
    if _driver is None and digest == driver_digest():
        with _making:
            _driver = _driver or _driver_in(image)


def _load_driver(cache: KernelCache) -> Driver:
    return _driver_in(load_linked(cache, SYMBOLS, lambda: [driver_code(cache)], _driver_key()))


def _driver_in(image: Mapping[str, int]) -> Driver:
    at = {symbol.removeprefix("jitonnx_"): image[symbol] for symbol in SYMBOLS}
    word = ctypes.c_void_p
    return Driver(
        image=image,
        execute=ctypes.PYFUNCTYPE(ctypes.c_int64, word, word, word, word, word)(at["execute"]),
        loop=ctypes.PYFUNCTYPE(ctypes.c_int64, word)(at["loop"]),
        lay_out=ctypes.PYFUNCTYPE(None, word)(at["lay_out"]),
        place=ctypes.PYFUNCTYPE(ctypes.c_int64, word)(at["place"]),
        perform=ctypes.PYFUNCTYPE(ctypes.c_int64, word, word, word, word)(at["perform"]),
        instantiate=ctypes.PYFUNCTYPE(ctypes.c_int64, word, word, ctypes.c_int64)(at["instantiate"]),
        trim=ctypes.CFUNCTYPE(None, word, ctypes.c_int64)(at["trim"]),
        reclaim=ctypes.CFUNCTYPE(None, word)(at["reclaim"]),
        acquire=ctypes.CFUNCTYPE(ctypes.c_int64, word)(at["acquire"]),
        stop=ctypes.CFUNCTYPE(None, word)(at["stop"]),
        entry=at["entry"],
        chain=at["chain"],
    )


def driver_code(cache: KernelCache) -> bytes:
    """The driver's object code, from the cache if it is there."""
    key = _driver_key()
    code = cache.get(key)
    if code is None:
        code = compile_driver()
        cache.put(key, code)
    return code


def _driver_key() -> str:
    """Names the driver's code by what it depends on."""
    import llvmlite  # the package alone, without LLVM

    return f"driver {driver_digest()} llvmlite {llvmlite.__version__} {os.uname().machine} {sys.platform}"


@functools.cache
def driver_digest() -> str:
    """A digest of the driver's source, and so of what it takes frames and arrays to look like."""
    digest = sha256()
    package = Path(__file__).parent
    for source in [
        package / "layout.py",
        package / "driver.py",
        package / "arithmetic.py",
        *sorted((package / "native").glob("*.py")),
    ]:
        digest.update(source.read_bytes())
    return digest.hexdigest()


_PASSES = ("always_inliner", "sroa", "simplify_cfg")
"""What the driver's code is put through, in a fiftieth of the time of -O2."""
_EACH_STEP = tuple(
    f"jitonnx_{name}" for name in ("walk", "walk_watched", "advance", "hand_out", "do_units", "share", "member")
)
"""Its functions that do something for each step of a program: those get -O2's passes, by which a step that threads
share takes 8 % less time."""


def compile_driver() -> bytes:
    """The driver as object code for any CPU of this architecture."""
    import llvmlite.binding as llvm
    import llvmlite.ir as ir

    from .native import (
        arithmetic,
        blocks,
        chains,
        entry,
        floats,
        frames,
        instantiation,
        loops,
        memory,
        placement,
        sync,
        tables,
        team,
        walk,
    )

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module("jitonnx_driver")
    module.triple = llvm.get_process_triple()
    sync.define(module, _MONOTONIC_CLOCK)
    floats.define(module)
    walk.define_walk(module)
    team.define(module, _SET_MASK)
    walk.define_runs(module)
    memory.define(module, sys.platform == "linux")
    frames.define(module)
    loops.define(module)
    tables.define(module)
    arithmetic.define(module)
    placement.define(module)
    instantiation.define(module)
    entry.define(module)
    chains.define(module)
    blocks.define(module)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(opt=2, reloc="pic", codemodel="small")
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(parsed, builder)
    for name in _EACH_STEP:
        builder.getFunctionPassManager().run(parsed.get_function(name), builder)
    return machine.emit_object(parsed)
