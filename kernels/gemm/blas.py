"""A BLAS as an alternative to our own kernel: the address of its gemm, and a kernel that calls it.

NumPy has a BLAS inside but gives no address away; SciPy does, to Cython. Without SciPy there is no BLAS to choose.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any, ClassVar

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass

_ROUTINES = {"float32": "sgemm", "float64": "dgemm"}


@functools.cache
def blas_address(routine: str) -> int | None:
    """The address of a Fortran BLAS routine with 32-bit integers, such as "sgemm"; None if no BLAS can be reached."""
    try:
        capsules = importlib.import_module("scipy.linalg.cython_blas").__pyx_capi__
    except ImportError:
        return None
    capsule = capsules.get(routine)
    if capsule is None:
        return None
    text, place, thing = ctypes.c_char_p, ctypes.c_void_p, ctypes.py_object
    # Functions of our own: others in this process set the types of those that `ctypes.pythonapi` shares.
    name_of = ctypes.PYFUNCTYPE(text, thing)(("PyCapsule_GetName", ctypes.pythonapi))
    address_of = ctypes.PYFUNCTYPE(place, thing, text)(("PyCapsule_GetPointer", ctypes.pythonapi))
    signature = name_of(capsule)
    if b" int *" not in signature:  # a build with 64-bit integers
        return None
    return address_of(capsule, signature)


class BlasBuffers(Arguments):
    a: Buffer
    b: Buffer
    c: Buffer = result()


class BlasSizes(Arguments):
    m: Size
    n: Size
    k: Size
    a_row: Size
    b_row: Size
    c_row: Size
    address: Size = computed()


@dataclass(frozen=True)
class BlasSpec(KernelSpec):
    """c[m, n] = a @ b for row-major matrices, by a BLAS routine whose address is among the sizes; no epilogue.

    a is [m, k] with row stride a_row, or [k, m] if a_transposed; b is [k, n], or [n, k] if b_transposed. One task: the
    BLAS has threads of its own, and its sums may depend on their number. The address holds for this process only.
    """

    element: str = "float32"
    a_transposed: bool = False
    b_transposed: bool = False

    BUFFERS: ClassVar[type[BlasBuffers]] = BlasBuffers
    SIZES: ClassVar[type[BlasSizes]] = BlasSizes

    @property
    def available(self) -> bool:
        """Whether there is a BLAS to call."""
        return blas_address(_ROUTINES[self.element]) is not None

    def complete(self, sizes: BlasSizes) -> BlasSizes:
        """RuntimeError without a BLAS."""
        address = blas_address(_ROUTINES[self.element])
        if address is None:
            raise RuntimeError("BLAS was chosen for a matrix product, but SciPy, which provides it, is not installed")
        return BlasSizes.following(sizes, address=address)

    def tasks(self, sizes: BlasSizes) -> int:
        return 1 if sizes.m and sizes.n else 0

    def work(self, sizes: BlasSizes) -> Work:
        m, n, k = sizes.m, sizes.n, sizes.k
        itemsize = 4 if self.element == "float32" else 8
        return Work(2 * m * n * k, (m * k + k * n + m * n) * itemsize)


def build_blas(spec: BlasSpec) -> Any:
    """The kernel of `spec`."""
    from jitonnx.emit import llvm_ir, types
    from jitonnx.emit.builder import KernelBuilder, larger
    from jitonnx.emit.ssa import SSAValue

    element = getattr(types, spec.element)

    def reference(code: KernelBuilder, value: llvm_ir.Value) -> llvm_ir.Value:
        """Fortran takes every argument by address."""
        place = code.builder.alloca(value.type)
        code.builder.store(value, place)
        return place

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        builder = code.builder
        *extents, a_row, b_row, c_row, address = code.sizes(BlasSizes)
        # BLAS wants rows to be apart even where there are no columns.
        given = *extents, *(larger(row_stride, 1) for row_stride in (a_row, b_row, c_row))
        m, n, k, a_row, b_row, c_row = (reference(code, builder.trunc(x.value, llvm_ir.IntType(32))) for x in given)
        a, b, c = (pointer.value for pointer in code.buffers(BlasBuffers, element))
        letters = [
            reference(code, llvm_ir.IntType(8)(ord("T" if t else "N"))) for t in (spec.b_transposed, spec.a_transposed)
        ]
        one, zero = (reference(code, code.number(element, value).value) for value in (1, 0))
        # Fortran counts columns first: what it sees are the transposes, and c.T = b.T @ a.T.
        arguments = [*letters, n, m, k, one, b, b_row, a, a_row, zero, c, c_row]
        routine = llvm_ir.FunctionType(llvm_ir.VoidType(), [argument.type for argument in arguments]).as_pointer()
        with code.if_then(begin < end):
            builder.call(builder.inttoptr(address.value, routine), arguments)

    return body
