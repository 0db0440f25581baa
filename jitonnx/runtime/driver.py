"""The native functions that carry out runs, one set a process: made from `native/`, or taken from the kernel cache.

jitonnx_run(frame)                a whole run
jitonnx_profile(frame, stamps)    the same, noting the clock (ns) before the first and after each step
jitonnx_take(pool), jitonnx_put_back(pool, frame)
jitonnx_acquire(team), jitonnx_stop(team)
jitonnx_entry                     the code of a native entry
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.resources
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite
import llvmlite.binding as llvm

from .cache import KernelCache
from .loader import CodeImage, load

_SYMBOLS = ("run", "profile", "take", "put_back", "acquire", "stop", "entry")
_DARWIN = sys.platform == "darwin"
_MONOTONIC_CLOCK = 6 if _DARWIN else 1
_SET_MASK = 3 if _DARWIN else 2

_lock = threading.Lock()
_driver: Driver | None = None


@dataclass(frozen=True)
class Driver:
    """The native functions. All but `take` and `put_back` let go of the GIL while they run."""

    image: CodeImage
    run: Callable[[int], None]
    profile: Callable[[int, int], None]
    take: Callable[[int], int | None]
    put_back: Callable[[int, int], None]
    acquire: Callable[[int], int]
    stop: Callable[[int], None]
    entry: int
    """The address of the native entry's code."""


def driver() -> Driver:
    """This process's driver, made at the first call."""
    global _driver
    if _driver is None:
        with _lock:
            _driver = _driver or _load_driver(KernelCache())
    return _driver


def _load_driver(cache: KernelCache) -> Driver:
    key = _cache_key()
    code = cache.get(key)
    if code is None:
        code = compile_driver()
        cache.put(key, code)
    image = load([code], [f"jitonnx_{name}" for name in _SYMBOLS])
    at = {name: image[f"jitonnx_{name}"] for name in _SYMBOLS}
    word = ctypes.c_void_p
    return Driver(
        image=image,
        run=ctypes.CFUNCTYPE(None, word)(at["run"]),
        profile=ctypes.CFUNCTYPE(None, word, word)(at["profile"]),
        take=ctypes.PYFUNCTYPE(word, word)(at["take"]),
        put_back=ctypes.PYFUNCTYPE(None, word, word)(at["put_back"]),
        acquire=ctypes.CFUNCTYPE(ctypes.c_int64, word)(at["acquire"]),
        stop=ctypes.CFUNCTYPE(None, word)(at["stop"]),
        entry=at["entry"],
    )


def _cache_key() -> str:
    """What the driver's object code depends on: its source, the compiler, the machine."""
    digest = hashlib.sha256()
    package = importlib.resources.files(__package__)
    sources = [package / "layout.py", package / "driver.py", *(package / "native").iterdir()]
    for source in sorted(sources, key=lambda file: file.name):
        if source.name.endswith(".py"):
            digest.update(source.read_bytes())
    return f"driver {digest.hexdigest()} llvmlite {llvmlite.__version__} {llvm.get_process_triple()}"


def compile_driver() -> bytes:
    """The driver as object code for any CPU of this architecture."""
    import llvmlite.ir as ir

    from .native import entry, sync, team, walk

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module("jitonnx_driver")
    module.triple = llvm.get_process_triple()
    sync.define(module, _MONOTONIC_CLOCK)
    walk.define_walks(module)
    team.define(module, _SET_MASK)
    walk.define_runs(module)
    entry.define(module)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(opt=2, reloc="pic")
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(parsed, builder)
    return machine.emit_object(parsed)
