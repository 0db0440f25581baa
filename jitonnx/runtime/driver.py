"""The native functions that carry out runs, one set a process: made from `native/`, or taken from the kernel cache or
from an artifact. They come in parts, of which a process has those that it needs.

jitonnx_execute(pool, program, bases, words, stamps)    a run in a frame of the pool
jitonnx_loop(loop)                                      iterations of a program
jitonnx_lay_out(layout)                                 fill a program's tables
jitonnx_instantiate(plan, block, threads)               make a program for sizes
jitonnx_place(placement)                                place the buffers of an arena
jitonnx_perform(operations, registers, results, missed) arithmetic on integers
jitonnx_trim(pool, above), jitonnx_reclaim(pool)
jitonnx_acquire(team), jitonnx_stop(team)
jitonnx_entry, jitonnx_chain                            the code of a native entry, and of chains
jitonnx_call(pool, program, bases)                      a run that native code starts
jitonnx_strings                                         the code of a builtin that looks strings up
jitonnx_block_…                                         what `blocks` gives NumPy
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jitonnx.support import fork_safety
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.support.records import NamedTuple
from jitonnx.support.short_turns import short_turns
from jitonnx.support.sources import package_folder, source_digest

from .images import find_linked, load_linked

_BLOCKS = tuple(f"block_{name}" for name in ("malloc", "calloc", "realloc", "free", "trim", "count"))


class _Part(NamedTuple):
    """A part of the driver, which is compiled by itself when it is first called for.

    functions: those that others than the driver call. modules: what it is compiled of. needs: the parts whose functions
    (`native.emit.SHARED`) its own call; they are linked with it.
    """

    functions: tuple[str, ...]
    modules: tuple[str, ...]
    needs: tuple[str, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(f"jitonnx_{name}" for name in self.functions)


PARTS = {
    "runs": _Part(("execute", "lay_out", "place", "trim", "reclaim", "acquire", "stop", "entry"), ("runs", "upkeep")),
    "sizes": _Part(("perform", "instantiate"), ("sizes",), ("runs",)),
    "chains": _Part(("loop", "chain"), ("chains",), ("runs", "sizes")),
    "blocks": _Part(_BLOCKS, ("blocks",), ("runs",)),
    "calls": _Part(("call",), ("calls",), ("runs",)),
    "strings": _Part(("strings",), ("strings",)),
}
"""What every run needs; what makes programs for new sizes; loops and chains of programs; memory of large outputs; runs
that users' native code starts; and look-ups of strings.
Most models need the first alone, which is half of it all."""
_SELDOM = ("upkeep", "blocks")
"""Modules of what runs do now and then: threads begin, end and go to sleep, frames grow, a program's tables are made.
They are compiled as they are written, in a seventh of the time that LLVM takes otherwise."""
_DARWIN = sys.platform == "darwin"
_MONOTONIC_CLOCK = 6 if _DARWIN else 1
_SET_MASK = 3 if _DARWIN else 2

_EXIT_SECONDS = 5.0
"""How long the end of the interpreter waits for a part that is being compiled."""

_making = fork_safety.WorkLock()
_images: dict[str, Mapping[str, int]] = {}
"""The keys are parts, the values say where the functions of each lie."""
_beginning = fork_safety.lock()
"""Held where `_begun` changes."""
_begun: set[str] = set()
"""Parts that a thread of their own has been begun for; a child process begins anew."""
_written: dict[str, str] = {}
"""Modules as LLVM IR that is to be compiled."""
fork_safety.in_child(_begun.clear)


class Driver(NamedTuple):
    """The native functions that every run needs. What runs something lets go of the GIL, and raises what ends it from
    outside."""

    execute: Callable[[int, int, int, int, int], int]
    lay_out: Callable[[int], None]
    place: Callable[[int], int]
    trim: Callable[[int, int], None]
    reclaim: Callable[[int], None]
    acquire: Callable[[int], int]
    stop: Callable[[int], None]
    entry: int
    """The address of the native entry's code."""


class SizesDriver(NamedTuple):
    """The native functions that make programs for new sizes."""

    perform: Callable[[int, int, int, int], int]
    instantiate: Callable[[int, int, int], int]


class BytecodeDriver(NamedTuple):
    """The native functions of loops and chains, which run programs as those of `Driver` do."""

    loop: Callable[[int], int]
    chain: int
    """The address of the chains' code."""


class DriverCode(NamedTuple):
    """Object code of parts of the driver, and the functions that it has for others."""

    symbols: tuple[str, ...]
    objects: Sequence[bytes]


def is_made() -> bool:
    """Whether this process has what every run needs."""
    return "runs" in _images


def make_ahead(parts: Iterable[str]) -> bool:
    """Begin to compile parts of the driver on a thread of its own, if neither this process nor the cache has them:
    whatever is at hand goes on meanwhile, since LLVM, which takes most of the time, lets go of the GIL. What does not
    is done before: that thread would have the GIL for every other turn alone, and LLVM begin behind the rest.

    Returns whether this process has them all now.
    """
    missing = [part for part in dict.fromkeys(parts) if part not in _images and not _taken(part)]
    with _beginning:
        begin = [part for part in missing if part not in _begun]
        _begun.update(begin)
    if begin:
        with fork_safety.critical:
            cache = KernelCache()
            for module in _modules(begin):
                if cache.get(_module_version(module)) is None:
                    _written.setdefault(module, _write(module))
        thread = threading.Thread(target=_make, args=(begin,), name="jitonnx-driver", daemon=True)
        thread.start()
        atexit.register(thread.join, _EXIT_SECONDS)  # a process must not end while LLVM is at work
    return not missing


def _make(parts: Iterable[str]) -> None:
    with short_turns:
        for part in parts:
            image(part)


def _taken(part: str) -> bool:
    """Take a part from the cache; whether this process has it now. One that is being made is not looked for.

    A part that another thread has taken meanwhile stays: runs are in its code, which ends with its mapping.
    """
    if part in _begun:
        return False
    with _making:
        if part not in _images:
            found = find_linked(KernelCache(), PARTS[part].symbols, _version(part))
            if found is not None:
                _keep(part, found)
        return part in _images


def _keep(part: str, found: Mapping[str, int]) -> None:
    """Have a part for as long as the process lives: at its end Python takes modules apart while daemon threads are in
    this code, so a reference is never given back."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    _images[part] = found


@fork_safety.once
def driver() -> Driver:
    """The process's driver, made at the first call; so are the other parts."""
    at, word = image("runs"), ctypes.c_void_p
    return Driver(
        execute=ctypes.PYFUNCTYPE(ctypes.c_int64, word, word, word, word, word)(at["jitonnx_execute"]),
        lay_out=ctypes.PYFUNCTYPE(None, word)(at["jitonnx_lay_out"]),
        place=ctypes.PYFUNCTYPE(ctypes.c_int64, word)(at["jitonnx_place"]),
        trim=ctypes.CFUNCTYPE(None, word, ctypes.c_int64)(at["jitonnx_trim"]),
        reclaim=ctypes.CFUNCTYPE(None, word)(at["jitonnx_reclaim"]),
        acquire=ctypes.CFUNCTYPE(ctypes.c_int64, word)(at["jitonnx_acquire"]),
        stop=ctypes.CFUNCTYPE(None, word)(at["jitonnx_stop"]),
        entry=at["jitonnx_entry"],
    )


@fork_safety.once
def sizes_driver() -> SizesDriver:
    at, word = image("sizes"), ctypes.c_void_p
    return SizesDriver(
        perform=ctypes.PYFUNCTYPE(ctypes.c_int64, word, word, word, word)(at["jitonnx_perform"]),
        instantiate=ctypes.PYFUNCTYPE(ctypes.c_int64, word, word, ctypes.c_int64)(at["jitonnx_instantiate"]),
    )


@fork_safety.once
def chains_driver() -> BytecodeDriver:
    at = image("chains")
    return BytecodeDriver(
        loop=ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(at["jitonnx_loop"]), chain=at["jitonnx_chain"]
    )


def image(part: str) -> Mapping[str, int]:
    """The addresses of a part's functions, from the kernel cache or compiled; they lie there until the process ends."""
    if part not in _images:
        with _making:
            if part not in _images:
                cache = KernelCache()
                version, symbols = _version(part), PARTS[part].symbols
                _keep(part, load_linked(cache, symbols, lambda: driver_code(cache, [part]).objects, version))
    return _images[part]


def adopt(found: Mapping[str, int], digest: str) -> None:
    """Take the parts that linked code has and this process has not, if they are of the same `driver_digest`."""
    if digest == driver_digest():
        with _making:
            for name, part in PARTS.items():
                if name not in _images and all(symbol in found for symbol in part.symbols):
                    _keep(name, found)


def driver_code(cache: KernelCache, parts: Iterable[str]) -> DriverCode:
    """The object code of these parts of the driver and of those that they need, from the cache if it is there."""
    symbols = tuple(symbol for part in _with_needed(parts) for symbol in PARTS[part].symbols)
    return DriverCode(symbols, [_object(cache, module) for module in _modules(parts)])


def _with_needed(parts: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(each for part in parts for each in (*PARTS[part].needs, part))


def _modules(parts: Iterable[str]) -> list[str]:
    """What the code of parts, and of those that they need, is compiled of."""
    return [module for part in _with_needed(parts) for module in PARTS[part].modules]


def _module_version(module: str) -> str:
    return _version(f"module {module}")


def _object(cache: KernelCache, module: str) -> bytes:
    key = _module_version(module)
    code = cache.get(key)
    if code is None:
        try:
            code = _compile(module)
        except BaseException:  # Ctrl-C
            fork_safety.release_llvm()
            raise
        cache.put(key, code)
    return code


def _version(what: str) -> str:
    """Names code of the driver, that of a part or a module, by what it depends on."""
    import llvmlite  # the package alone, without LLVM

    return f"{what} of driver {driver_digest()} llvmlite {llvmlite.__version__} {os.uname().machine} {sys.platform}"


@functools.cache
def driver_digest() -> str:
    """A digest of the driver's source, and so of what it takes frames and arrays to look like."""
    package, emit = os.path.dirname(__file__), package_folder("jitonnx.emit")
    own = (os.path.join(package, name) for name in ("layout.py", "driver.py", "arithmetic.py", "native"))
    return source_digest(*own, os.path.join(emit, "llvm_ir.py"))


_PASSES = ("sroa", "simplify_cfg")
"""What the driver's code is put through. Nothing is computed twice as it is written, and -O2 makes no loop shorter."""


def _compile(name: str) -> bytes:
    """A module of the driver as object code for any CPU of this architecture."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parsed = llvm.parse_assembly(_written.pop(name, None) or _write(name))
    parsed.verify()
    level = 0 if name in _SELDOM else 2
    machine = llvm.Target.from_triple(parsed.triple).create_target_machine(opt=level, reloc="pic", codemodel="small")
    if name not in _SELDOM:
        passes = llvm.create_new_module_pass_manager()
        for each in _PASSES:
            getattr(passes, f"add_{each}_pass")()
        passes.run(parsed, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2)))
    code: bytes = machine.emit_object(parsed)
    return code


def _write(name: str) -> str:
    """A module of the driver as LLVM IR."""
    import llvmlite.binding as llvm

    from jitonnx.emit import llvm_ir

    module = llvm_ir.Module(llvm.get_process_triple(), prescheduled=True)
    _define(name, module)
    return str(module)


def _define(name: str, module: Any) -> None:
    """Write the functions of a module."""
    if name == "runs":
        from .native import entry, execution_contexts, floats, sync, team, walk

        sync.define(module)
        floats.define(module)
        walk.define_walk(module)
        team.define(module)
        walk.define_runs(module)
        execution_contexts.define(module)
        entry.define(module)
    elif name == "upkeep":
        from .native import execution_contexts, floats, memory, placement, sync, tables, team, walk

        sync.define_sleep(module, _MONOTONIC_CLOCK)
        floats.define(module)
        walk.define_watched(module)
        team.define_workers(module, _SET_MASK)
        memory.define(module, linux=sys.platform == "linux")
        execution_contexts.define_growth(module)
        tables.define(module, exported=True)
        placement.define(module, exported=True)
    elif name == "sizes":
        from .native import arithmetic, instantiation, placement, tables

        tables.define(module)
        placement.define(module)
        arithmetic.define(module)
        instantiation.define(module)
    elif name == "chains":
        from .native import bytecode, entry, loops

        entry.define_given(module)
        loops.define(module)
        bytecode.define(module)
    elif name == "calls":
        from .native import calls

        calls.define(module)
    elif name == "strings":
        from .native import strings

        strings.define(module)
    else:
        from .native import blocks

        blocks.define(module)
