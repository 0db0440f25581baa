"""Runs one kernel on NumPy arrays, without plan or runtime: lowered, optimised, loaded, called through ctypes."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import numpy as np

from jitonnx.codegen.optimization import emit_assembly, emit_object
from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder
from jitonnx.emit.module import emit_module
from jitonnx.emit.ssa import SSAValue
from jitonnx.target.machine import Target, host
from tests.targets import skip_unless_run_here

_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_numbers = itertools.count()


class Compiled:
    """A kernel ready to call: `compiled(buffers, sizes, tasks, scratch_bytes)` runs range(tasks), split in `pieces`.

    prescheduled, combining: see `KernelSpec.prescheduled` and `KernelSpec.COMBINING`. Skips the test where code for the
    target cannot be run.
    """

    def __init__(
        self, kernel: Kernel, target: Target | None = None, prescheduled: bool = False, combining: bool = False
    ) -> None:
        target = target or host()
        skip_unless_run_here(target)
        symbol = f"kernel_under_test_{next(_numbers)}"
        module = emit_module(kernel, symbol, target, prescheduled=prescheduled)
        self._load(emit_object(module, target, prescheduled=prescheduled, combining=combining), symbol)

    @classmethod
    def of_module(cls, make: Callable[[str], llvm.ModuleRef], target: Target | None = None) -> Compiled:
        """What make(symbol), an unoptimised module that defines a kernel as `symbol`, becomes."""
        symbol = f"kernel_under_test_{next(_numbers)}"
        compiled = cls.__new__(cls)
        compiled._load(emit_object(make(symbol), target or host()), symbol)
        return compiled

    def _load(self, code: bytes, symbol: str) -> None:
        self._engine = llvm.create_mcjit_compiler(
            llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine()
        )
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._call = _PROTOTYPE(self._engine.get_function_address(symbol))

    def __call__(
        self, buffers: Sequence[np.ndarray], sizes: Sequence[int], tasks: int, scratch_bytes: int = 0, pieces: int = 1
    ) -> None:
        self.bind(buffers, sizes, tasks, scratch_bytes, pieces)()

    def bind(
        self, buffers: Sequence[np.ndarray], sizes: Sequence[int], tasks: int, scratch_bytes: int = 0, pieces: int = 1
    ) -> Callable[[], None]:
        """A call with everything prepared, for timing."""
        pointers = np.array([b.ctypes.data for b in buffers], np.uint64)
        integers = np.array([*sizes, 0], np.int64)
        raw = np.zeros(scratch_bytes + 64, np.uint8)
        scratch = raw.ctypes.data + -raw.ctypes.data % 64
        bounds = [tasks * piece // pieces for piece in range(pieces + 1)]

        def run() -> None:
            for begin, end in itertools.pairwise(bounds):
                self._call(pointers.ctypes.data, integers.ctypes.data, begin, end, scratch)

        run.keep = (pointers, integers, raw, buffers)  # type: ignore[attr-defined]
        return run

    def together(
        self, buffers: Sequence[np.ndarray], sizes: Sequence[int], tasks: int, scratch_bytes: int, threads: int
    ) -> None:
        """Run range(tasks) on threads at the same time, shared out as the runtime does it."""
        pointers = np.array([b.ctypes.data for b in buffers], np.uint64)
        integers = np.array([*sizes, 0], np.int64)
        threads = min(threads, tasks)
        stride = -(-scratch_bytes // 64) * 64
        raw = np.zeros(stride * threads + 64, np.uint8)
        scratch = raw.ctypes.data + -raw.ctypes.data % 64

        def part(index: int) -> None:
            begin, end = (bound * (tasks // threads) + min(bound, tasks % threads) for bound in (index, index + 1))
            self._call(pointers.ctypes.data, integers.ctypes.data, begin, end, scratch + index * stride)

        workers = [threading.Thread(target=part, args=(index,)) for index in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def assembly(kernel: Kernel, target: Target | None = None, prescheduled: bool = False) -> str:
    """The assembly text of a kernel, for a target of any architecture. prescheduled: see `KernelSpec.prescheduled`."""
    target = target or host()
    return emit_assembly(
        emit_module(kernel, "kernel_in_assembly", target, prescheduled=prescheduled), target, prescheduled=prescheduled
    )


def lane_by_lane(
    functions: Sequence[Callable[..., SSAValue]],
    inputs: Sequence[types.ElementType],
    outputs: Sequence[types.ElementType],
    lanes: int,
) -> Kernel:
    """The kernel of outputs[i] = functions[i](*inputs) on sizes[0] elements, `lanes` (1: scalars) at a time."""

    def kernel(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        pointers = [code.buffer(number, element) for number, element in enumerate((*inputs, *outputs))]
        with code.loop(code.size(0), step=lanes) as i:
            values = [pointer.load(i, lanes if lanes > 1 else None) for pointer in pointers[: len(inputs)]]
            for pointer, function in zip(pointers[len(inputs) :], functions, strict=True):
                pointer.store(i, function(*values))

    return kernel
