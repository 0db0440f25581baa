"""Element types of kernels: what a buffer holds and a vector is made of, and how LLVM names it."""

from __future__ import annotations

from jitonnx.emit import llvm_ir


class ElementType:
    """One element type; there is one object of each. `str` of it is NumPy's name."""

    def __init__(self, name: str, bitwidth: int, llvm: llvm_ir.Type, *, signed: bool = True) -> None:
        self.name, self.bitwidth, self.signed = name, bitwidth, signed
        self.llvm = self.memory = llvm
        """It is the type as a value, and as it lies in memory."""

    def __repr__(self) -> str:
        return self.name


class Float(ElementType):
    """Floating-point numbers."""


class Integer(ElementType):
    """Integers, signed or not."""

    def __init__(self, bitwidth: int, *, signed: bool) -> None:
        super().__init__(f"{'' if signed else 'u'}int{bitwidth}", bitwidth, llvm_ir.IntType(bitwidth), signed=signed)
        self.minval, self.maxval = (-(1 << (bitwidth - 1)) if signed else 0), (1 << (bitwidth - signed)) - 1


class Boolean(ElementType):
    """Truth values: one bit as a value, a byte in memory."""

    def __init__(self) -> None:
        super().__init__("boolean", 1, llvm_ir.IntType(1), signed=False)
        self.memory = llvm_ir.IntType(8)


class Stored(ElementType):
    """Numbers as they lie in memory; values that are loaded are the float32 of equal value. Kernels only read them."""


class StoredHalf(Stored):
    """Half precision. kind: float16 or bfloat16."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"stored {kind}", 16, llvm_ir.FloatType())
        self.kind, self.memory = kind, llvm_ir.IntType(16)


class StoredInteger(Stored):
    """Whole numbers in bytes: an int8, or four bits of a byte, from bit `shift` on, which are the number plus 8."""

    def __init__(self, name: str, shift: int | None = None) -> None:
        super().__init__(f"stored {name}", 8, llvm_ir.FloatType())
        self.shift, self.memory = shift, llvm_ir.IntType(8)


float16 = Float("float16", 16, llvm_ir.HalfType())
float32 = Float("float32", 32, llvm_ir.FloatType())
float64 = Float("float64", 64, llvm_ir.DoubleType())
int8, int16, int32, int64 = (Integer(bits, signed=True) for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (Integer(bits, signed=False) for bits in (8, 16, 32, 64))
boolean = Boolean()
stored_halves = {kind: StoredHalf(kind) for kind in ("float16", "bfloat16")}
stored_int8 = StoredInteger("int8")
stored_low, stored_high = StoredInteger("low int4", 0), StoredInteger("high int4", 4)
