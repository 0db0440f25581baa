"""LLVM IR as text, written as a kernel is traced: types, values, functions, and the builder that appends instructions.

Its names are those of llvmlite's objects, which took three times as long. What is written is shorter, so that LLVM has
less to do: casts of pointers are no instructions, as LLVM has one type of pointer; sums and products with constants are
computed here where they can be; and what was computed before is not computed again. So kernels need none of LLVM's
passes that look for such things (`codegen.emit`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, TypeAlias

# ---------------------------------------------------------------- types


class Type:
    """A type. There is one object of each that is made by its class, so that equal types are the same object."""

    _known: ClassVar[dict[Any, Any]] = {}

    text: str

    @classmethod
    def _only(cls, *key: Any, text: str, **attributes: Any) -> Any:
        """The type of this class and key; made at its first use, by whichever thread."""
        found = Type._known.get((cls, key))
        if found is None:
            made = object.__new__(cls)
            made.text = text
            made.__dict__.update(attributes)
            found = Type._known.setdefault((cls, key), made)
        return found

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __call__(self, number: Any) -> Constant:
        """`number` as a constant of this type."""
        return Constant(self, number)

    def as_pointer(self) -> PointerType:
        return PointerType(self)


class PointerType(Type):
    """A pointer, which LLVM does not tell from other pointers; `pointee` is what it is taken to point to."""

    pointee: Any

    def __new__(cls, pointee: Type) -> PointerType:
        return cls._only(pointee, text="ptr", pointee=pointee)


class IntType(Type):
    """Integers of some width; of 1 bit, truth values."""

    width: int

    def __new__(cls, width: int) -> IntType:
        return cls._only(width, text=f"i{width}", width=width)


class HalfType(Type):
    """Floats of 16 bits."""

    def __new__(cls) -> HalfType:
        return cls._only(text="half")


class BfloatType(Type):
    """Floats of 16 bits, the upper half of those of 32."""

    def __new__(cls) -> BfloatType:
        return cls._only(text="bfloat")


class FloatType(Type):
    """Floats of 32 bits."""

    def __new__(cls) -> FloatType:
        return cls._only(text="float")


class DoubleType(Type):
    """Floats of 64 bits."""

    def __new__(cls) -> DoubleType:
        return cls._only(text="double")


class VoidType(Type):
    """No value."""

    def __new__(cls) -> VoidType:
        return cls._only(text="void")


class VectorType(Type):
    """`count` elements."""

    element: Any
    count: int

    def __new__(cls, element: Type, count: int) -> VectorType:
        return cls._only(element, count, text=f"<{count} x {element}>", element=element, count=count)


class PairType(Type):
    """Two values: what cmpxchg gives."""

    elements: tuple[Type, Type]

    def __new__(cls, first: Type, second: Type) -> PairType:
        return cls._only(first, second, text=f"{{{first}, {second}}}", elements=(first, second))


class FunctionType(Type):
    """A function of these arguments."""

    result: Type
    arguments: tuple[Type, ...]

    def __new__(cls, result: Type, arguments: Sequence[Type]) -> FunctionType:
        text = f"{result} ({', '.join(map(str, arguments))})"
        return cls._only(result, *arguments, text=text, result=result, arguments=tuple(arguments))


_BIT = IntType(1)

# ---------------------------------------------------------------- values


class Value:
    """A value: its type, and its name in the text."""

    __slots__ = ("reference", "type")

    def __init__(self, typ: Type, reference: str) -> None:
        self.type: Any = typ
        self.reference = reference

    def __str__(self) -> str:
        return f"{self.type.text} {self.reference}"


class Undefined:
    """The contents of a constant that may be anything."""


class Constant(Value):
    """A number, or a vector of numbers; None for zeros, Undefined for any."""

    __slots__ = ("number",)

    def __init__(self, typ: Type, number: Any) -> None:
        super().__init__(typ, _constant_text(typ, number))
        self.number: int | None = int(number) if isinstance(typ, IntType) and isinstance(number, int) else None
        """The number, of integers that are no vectors."""


def _constant_text(typ: Type, number: Any) -> str:
    if number is Undefined:
        return "undef"
    number = 0 if number is None and not isinstance(typ, VectorType) else number
    if isinstance(typ, VectorType):
        return _vector_text(typ, number)
    if isinstance(typ, PointerType):
        return "null"
    if isinstance(typ, IntType):
        if typ.width == 1:
            return "true" if number else "false"
        return str(int(number))
    rounded = _float32(number) if isinstance(typ, FloatType) else float(number)
    return "0x" + struct.pack(">d", rounded).hex().upper()


def _float32(number: float) -> float:
    """The nearest float32; infinity for what is beyond."""
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def _vector_text(typ: VectorType, numbers: Any) -> str:
    if numbers is None:
        return "zeroinitializer"
    texts = [_constant_text(typ.element, number) for number in numbers]
    if len(set(texts)) == 1:
        zero = _constant_text(typ.element, 0)
        return "zeroinitializer" if texts[0] == zero else f"splat ({typ.element.text} {texts[0]})"
    return "<" + ", ".join(f"{typ.element.text} {text}" for text in texts) + ">"


def splat(typ: VectorType, number: float) -> Constant:
    """`number` in all lanes."""
    return Constant(typ, [number])


class Instruction(Value):
    """An instruction that may be given an alignment and metadata after it was made."""

    __slots__ = ("_text", "align", "metadata", "zero_outside")

    def __init__(self, typ: Type, reference: str, text: str) -> None:
        super().__init__(typ, reference)
        self._text = text
        self.align: int | None = None
        self.zero_outside: Value | None = None
        """A mask: lanes that it leaves out are 0."""
        self.metadata: dict[str, str] = {}

    def set_metadata(self, name: str, node: str) -> None:
        """node: what `Module.metadata` gave."""
        self.metadata[name] = node

    @property
    def line(self) -> str:
        align = "" if self.align is None else f", align {self.align}"
        return self._text + align + "".join(f", !{name} {node}" for name, node in self.metadata.items())


class Phi(Value):
    """The value that goes with the block from which control came."""

    __slots__ = ("_incoming",)

    def __init__(self, typ: Type, reference: str) -> None:
        super().__init__(typ, reference)
        self._incoming: list[str] = []

    def add_incoming(self, value: Value, block: Block) -> None:
        self._incoming.append(f"[ {value.reference}, {block.reference} ]")

    @property
    def line(self) -> str:
        return f"{self.reference} = phi {self.type.text} {', '.join(self._incoming)}"


# ---------------------------------------------------------------- functions


class Block:
    """A basic block: lines, of which those of some instructions are written at the end.

    dominator: a block that control comes through before it comes here, so that what was computed there is known here.
    """

    __slots__ = ("_computed", "dominator", "function", "lines", "name", "terminated")

    def __init__(self, function: Function, name: str, dominator: Block | None = None) -> None:
        self.function, self.name, self.dominator, self.terminated = function, name, dominator, False
        self.lines: list[str | Instruction | Phi] = []
        self._computed: dict[str, Value] = {}

    def computed(self, text: str) -> Value | None:
        """What an operation on these operands gave, if it was computed before."""
        block: Block | None = self
        while block is not None:
            if text in block._computed:
                return block._computed[text]
            block = block.dominator
        return None

    def compute(self, typ: Type, text: str) -> Value:
        """Append the operation."""
        made = self._computed[text] = Value(typ, self.function.reference_for_value())
        self.lines.append(f"{made.reference} = {text}")
        return made

    @property
    def reference(self) -> str:
        return "%" + self.name


class Function(Value):
    """A function of a module: declared, or defined by its blocks."""

    __slots__ = (
        *("_allocas", "_numbers", "args", "attributes", "blocks", "kind", "linkage", "module", "name"),
        "vector_operations",
    )

    def __init__(self, module: Module, kind: FunctionType, name: str) -> None:
        super().__init__(kind.as_pointer(), f'@"{name}"')
        self.module, self.kind, self.name, self.linkage = module, kind, name, ""
        self.attributes: set[str] = set()
        self.args = [Value(typ, f"%a{number}") for number, typ in enumerate(kind.arguments)]
        self.blocks: list[Block] = []
        self.vector_operations = 0
        """Operations on vectors in it; what moves them is not counted."""
        self._allocas: list[Instruction] = []
        self._numbers = 0
        module.globals[name] = self

    def append_basic_block(self, name: str = "block", dominator: Block | None = None) -> Block:
        block = Block(self, f"{name}.{len(self.blocks)}", dominator)
        self.blocks.append(block)
        return block

    def reference_for_value(self) -> str:
        self._numbers += 1
        return f"%v{self._numbers}"

    def allocate(self, typ: Type, count: int) -> Instruction:
        reference = self.reference_for_value()
        text = f"{reference} = alloca {typ.text}, i32 {count}"
        self._allocas.append(Instruction(typ.as_pointer(), reference, text))
        return self._allocas[-1]

    def lines(self) -> Iterator[str]:
        if not self.blocks:
            yield f"declare {self.kind.result} {self.reference}({', '.join(map(str, self.kind.arguments))})"
            return
        head = f"define {self.linkage} {self.kind.result} {self.reference}({', '.join(map(str, self.args))})"
        yield f"{head} {' '.join(sorted(self.attributes))} {{"
        for block in self.blocks:
            yield block.name + ":"
            if block is self.blocks[0]:
                yield from (alloca.line for alloca in self._allocas)
            for line in block.lines:
                yield line if isinstance(line, str) else line.line
        yield "}"


class Module:
    """Functions for one triple. prescheduled: their loops are to run as they are written (`IRBuilder.advanced`)."""

    def __init__(self, triple: str, *, prescheduled: bool = False) -> None:
        self.triple, self.prescheduled = triple, prescheduled
        self.globals: dict[str, Function] = {}
        self._tables: dict[str, str] = {}
        self._metadata: list[str] = []

    def table(self, name: str, typ: IntType, numbers: Sequence[int]) -> Value:
        """The address of a table of integers in the module, which has one of each name."""
        listed = ", ".join(f"{typ.text} {number}" for number in numbers)
        self._tables[name] = f"@{name} = internal constant [{len(numbers)} x {typ.text}] [{listed}]"
        return Value(typ.as_pointer(), f"@{name}")

    def metadata(self, text: str) -> str:
        """The node with these operands, as instructions refer to it."""
        if text not in self._metadata:
            self._metadata.append(text)
        return f"!{self._metadata.index(text)}"

    def loop_metadata(self, operands: str) -> str:
        """A node for a loop of its own: LLVM tells loops apart by nodes that name themselves."""
        number = len(self._metadata)
        self._metadata.append(f"distinct !{{!{number}, {operands}}}")
        return f"!{number}"

    def __str__(self) -> str:
        lines = [f'target triple = "{self.triple}"', *self._tables.values()]
        for function in self.globals.values():
            lines += function.lines()
        lines += [f"!{number} = {text}" for number, text in enumerate(self._metadata)]
        return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- instructions

_Binary: TypeAlias = "Callable[..., Value]"


def _operation(name: str, fold: Callable[[Value, Value], Value | None] | None = None) -> _Binary:
    """The builder's method for an operation of two values of one type."""

    def emit(self: IRBuilder, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        if a.type is not b.type:
            raise TypeError(f"Bug: {name} of {a.type} and {b.type}")
        folded = fold(a, b) if fold is not None else None
        if folded is not None:
            return folded
        with_flags = " ".join((name, *flags))
        return self._pure(a.type, f"{with_flags} {a.type.text} {a.reference}, {b.reference}")

    return emit


def _number(value: Value) -> int | None:
    return value.number if isinstance(value, Constant) else None


def _wrapped(typ: IntType, number: int) -> Constant:
    half = 1 << (typ.width - 1)
    return Constant(typ, (number + half) % (2 * half) - half)


def _sum(a: Value, b: Value) -> Value | None:
    left, right = _number(a), _number(b)
    if left is not None and right is not None:
        return _wrapped(a.type, left + right)
    return a if right == 0 else b if left == 0 else None


def _difference(a: Value, b: Value) -> Value | None:
    left, right = _number(a), _number(b)
    if left is not None and right is not None:
        return _wrapped(a.type, left - right)
    return a if right == 0 else None


def _product(a: Value, b: Value) -> Value | None:
    left, right = _number(a), _number(b)
    if left is not None and right is not None:
        return _wrapped(a.type, left * right)
    if 0 in (left, right):
        return a.type(0)
    return a if right == 1 else b if left == 1 else None


def _quotient(a: Value, b: Value) -> Value | None:
    return a if _number(b) == 1 else None


_CONDITIONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def _comparison(name: str, kind: str) -> Callable[[IRBuilder, str, Value, Value], Value]:
    """The builder's method for comparing two values. kind: what stands in front of the condition's name."""

    def emit(self: IRBuilder, condition: str, a: Value, b: Value) -> Value:
        if a.type is not b.type:
            raise TypeError(f"Bug: {name} of {a.type} and {b.type}")
        known = _CONDITIONS.get(condition, condition)
        plain = condition not in _CONDITIONS or (name == "icmp" and known in ("eq", "ne"))
        typ = VectorType(_BIT, a.type.count) if isinstance(a.type, VectorType) else _BIT
        return self._pure(typ, f"{name} {known if plain else kind + known} {a}, {b.reference}")

    return emit


def _conversion(name: str) -> Callable[[IRBuilder, Value, Type], Value]:
    """The builder's method for a conversion; to the type that a value has, nothing is done."""
    return lambda self, value, typ: value if value.type is typ else self._pure(typ, f"{name} {value} to {typ.text}")


class IRBuilder:
    """Appends instructions to a block."""

    def __init__(self, block: Block) -> None:
        self.block = block

    @property
    def function(self) -> Function:
        return self.block.function

    @property
    def module(self) -> Any:
        return self.block.function.module

    def position_at_end(self, block: Block) -> None:
        self.block = block

    def append_basic_block(self, name: str = "block") -> Block:
        """A new block, to be reached by way of this one only."""
        return self.block.function.append_basic_block(name, self.block)

    # ------------------------------------------------------------ what is appended

    def _pure(self, typ: Type, text: str, *, counts: bool = True) -> Value:
        """What an operation without effects gives: it is computed once where control comes through the first place."""
        found = self.block.computed(text)
        if found is None:
            found = self.block.compute(typ, text)
            self.function.vector_operations += counts and "<" in text
        return found

    def _instruction(self, typ: Type, text: str) -> Instruction:
        reference = "" if isinstance(typ, VoidType) else self.block.function.reference_for_value()
        made = Instruction(typ, reference, f"{reference} = {text}" if reference else text)
        self.block.lines.append(made)
        return made

    def _terminate(self, text: str) -> Instruction:
        if self.block.terminated:
            raise RuntimeError(f"Bug: the block {self.block.name} ends twice")
        self.block.terminated = True
        return self._instruction(VoidType(), text)

    # ------------------------------------------------------------ arithmetic

    add, sub, mul = _operation("add", _sum), _operation("sub", _difference), _operation("mul", _product)
    sdiv, udiv = _operation("sdiv", _quotient), _operation("udiv", _quotient)
    srem, urem = _operation("srem"), _operation("urem")
    and_, or_, xor = _operation("and"), _operation("or"), _operation("xor")
    shl, lshr, ashr = _operation("shl"), _operation("lshr"), _operation("ashr")
    fadd, fsub, fmul, fdiv, frem = map(_operation, ("fadd", "fsub", "fmul", "fdiv", "frem"))

    def neg(self, value: Value) -> Value:
        return self.sub(Constant(value.type, None), value)

    def not_(self, value: Value) -> Value:
        ones = splat(value.type, -1) if isinstance(value.type, VectorType) else Constant(value.type, -1)
        return self.xor(value, ones)

    def fneg(self, value: Value) -> Value:
        return self._pure(value.type, f"fneg {value}")

    icmp_signed, icmp_unsigned = _comparison("icmp", "s"), _comparison("icmp", "u")
    fcmp_ordered, fcmp_unordered = _comparison("fcmp", "o"), _comparison("fcmp", "u")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        if a.type is not b.type:
            raise TypeError(f"Bug: a selection of {a.type} and {b.type}")
        outside = a.zero_outside if isinstance(a, Instruction) else None
        if outside is not None and outside.reference == condition.reference and b.reference == "zeroinitializer":
            return a
        return self._pure(a.type, f"select {condition}, {a}, {b}")

    # ------------------------------------------------------------ conversions

    def bitcast(self, value: Value, typ: Type) -> Value:
        """The same bits as another type. Pointers are all the same to LLVM."""
        if isinstance(typ, PointerType):
            return Value(typ, value.reference)
        return value if value.type is typ else self._pure(typ, f"bitcast {value} to {typ.text}", counts=False)

    trunc, zext, sext = map(_conversion, ("trunc", "zext", "sext"))
    fpext, fptrunc = map(_conversion, ("fpext", "fptrunc"))
    sitofp, uitofp, fptosi, fptoui = map(_conversion, ("sitofp", "uitofp", "fptosi", "fptoui"))
    ptrtoint, inttoptr = map(_conversion, ("ptrtoint", "inttoptr"))

    # ------------------------------------------------------------ vectors

    def extract_element(self, vector: Value, index: Value) -> Value:
        return self._pure(vector.type.element, f"extractelement {vector}, {index}", counts=False)

    def insert_element(self, vector: Value, value: Value, index: Value) -> Value:
        return self._pure(vector.type, f"insertelement {vector}, {value}, {index}", counts=False)

    def shuffle_vector(self, a: Value, b: Value, mask: Value) -> Value:
        typ = VectorType(a.type.element, mask.type.count)
        return self._pure(typ, f"shufflevector {a}, {b}, {mask}", counts=False)

    def extract_value(self, pair: Value, index: int) -> Value:
        return self._pure(pair.type.elements[index], f"extractvalue {pair}, {index}", counts=False)

    # ------------------------------------------------------------ memory

    def gep(self, pointer: Value, indices: Sequence[Value]) -> Value:
        """The pointer some elements further."""
        (index,) = indices
        if _number(index) == 0:
            return pointer
        return self._pure(pointer.type, f"getelementptr {pointer.type.pointee.text}, {pointer}, {index}", counts=False)

    def gep_each(self, pointer: Value, element: Type, indices: Value) -> Value:
        """The pointers so many elements further, for each of a vector of numbers."""
        typ = VectorType(element.as_pointer(), indices.type.count)
        return self._pure(typ, f"getelementptr {element}, {pointer}, {indices}", counts=False)

    def load(self, pointer: Value) -> Instruction:
        typ = pointer.type.pointee
        return self._instruction(typ, f"load {typ.text}, {pointer}")

    def load_invariant(self, pointer: Value) -> Value:
        """What lies where nobody writes while the function runs."""
        typ, node = pointer.type.pointee, self.module.metadata("!{}")
        return self._pure(typ, f"load {typ.text}, {pointer}, !invariant.load {node}", counts=False)

    def store(self, value: Value, pointer: Value) -> Instruction:
        return self._instruction(VoidType(), f"store {value}, {pointer}")

    def alloca(self, typ: Type, count: int = 1) -> Instruction:
        """Room for `count` values on the stack, for the whole of the function."""
        return self.function.allocate(typ, count)

    def load_atomic(self, pointer: Value, ordering: str, align: int) -> Instruction:
        typ = pointer.type.pointee
        return self._instruction(typ, f"load atomic {typ.text}, {pointer} {ordering}, align {align}")

    def atomic_rmw(self, operation: str, pointer: Value, value: Value, ordering: str) -> Instruction:
        return self._instruction(value.type, f"atomicrmw {operation} {pointer}, {value} {ordering}")

    def cmpxchg(self, pointer: Value, expected: Value, value: Value, ordering: str, failed: str) -> Instruction:
        typ = PairType(value.type, _BIT)
        return self._instruction(typ, f"cmpxchg {pointer}, {expected}, {value} {ordering} {failed}")

    def store_atomic(self, value: Value, pointer: Value, ordering: str, align: int) -> Instruction:
        return self._instruction(VoidType(), f"store atomic {value}, {pointer} {ordering}, align {align}")

    def fence(self, ordering: str) -> None:
        self._instruction(VoidType(), f"fence {ordering}")

    # ------------------------------------------------------------ calls

    def call(self, function: Value, arguments: Sequence[Value], fastmath: Sequence[str] = ()) -> Instruction:
        kind = function.type.pointee
        given = tuple(argument.type.text for argument in arguments)
        if given != tuple(typ.text for typ in kind.arguments):
            raise TypeError(f"Bug: {function.reference} takes {kind.arguments}, not {given}")
        result, flags = kind.result, "".join(f"{flag} " for flag in fastmath)
        listed = ", ".join(map(str, arguments))
        self.function.vector_operations += "<" in listed or isinstance(result, VectorType)
        return self._instruction(result, f"call {flags}{result} {function.reference}({listed})")

    def call_pure(self, function: Function, arguments: Sequence[Value], fastmath: Sequence[str] = ()) -> Value:
        """A call of an intrinsic that computes a value of its arguments alone."""
        result, flags = function.kind.result, "".join(f"{flag} " for flag in fastmath)
        return self._pure(result, f"call {flags}{result} {function.reference}({', '.join(map(str, arguments))})")

    def asm(
        self, kind: FunctionType, text: str, constraints: str, arguments: Sequence[Value], *, side_effect: bool
    ) -> Instruction:
        effect = "sideeffect " if side_effect else ""
        call = f'call {kind.result} asm {effect}"{text}", "{constraints}"({", ".join(map(str, arguments))})'
        return self._instruction(kind.result, call)

    def advanced(self, value: Value) -> Value:
        """What a loop counts or points to, one round further. In settled code LLVM does not know how it was computed:
        it takes the addresses of a loop as they are written. To search for better ones (loop strength reduction) took
        a fifth of the time to select instructions and registers, and made no kernel faster."""
        if not self.module.prescheduled:
            return value
        return self.asm(FunctionType(value.type, [value.type]), "", "=r,0", [value], side_effect=False)

    def _intrinsic(self, name: str, result: Type, *arguments: Value) -> Value:
        """What LLVM's own function on integers of the first argument's type gives."""
        full = f"llvm.{name}.{arguments[0].type}"
        kind = FunctionType(result, [argument.type for argument in arguments])
        return self.call_pure(self.module.globals.get(full) or Function(self.module, kind, full), arguments)

    def cttz(self, value: Value, zero_is_undefined: Value) -> Value:
        """How many of the lowest bits are 0."""
        return self._intrinsic("cttz", value.type, value, zero_is_undefined)

    def ctlz(self, value: Value, zero_is_undefined: Value) -> Value:
        """How many of the highest bits are 0."""
        return self._intrinsic("ctlz", value.type, value, zero_is_undefined)

    def sadd_with_overflow(self, a: Value, b: Value) -> Value:
        """A pair: the sum, wrapped around, and whether it was. So it is with differences and products."""
        return self._intrinsic("sadd.with.overflow", PairType(a.type, _BIT), a, b)

    def ssub_with_overflow(self, a: Value, b: Value) -> Value:
        return self._intrinsic("ssub.with.overflow", PairType(a.type, _BIT), a, b)

    def smul_with_overflow(self, a: Value, b: Value) -> Value:
        return self._intrinsic("smul.with.overflow", PairType(a.type, _BIT), a, b)

    # ------------------------------------------------------------ control

    def phi(self, typ: Type) -> Phi:
        made = Phi(typ, self.function.reference_for_value())
        self.block.lines.append(made)
        return made

    def branch(self, block: Block) -> Instruction:
        return self._terminate(f"br label {block.reference}")

    def cbranch(self, condition: Value, yes: Block, no: Block) -> Instruction:
        return self._terminate(f"br {condition}, label {yes.reference}, label {no.reference}")

    def switch(self, number: Value, cases: Mapping[int, Block], otherwise: Block) -> Instruction:
        """Go to the block of the number."""
        listed = " ".join(f"{number.type} {case}, label {block.reference}" for case, block in cases.items())
        return self._terminate(f"switch {number}, label {otherwise.reference} [ {listed} ]")

    def unreachable(self) -> None:
        self._terminate("unreachable")

    def ret(self, value: Value) -> None:
        self._terminate(f"ret {value}")

    def ret_void(self) -> None:
        self._terminate("ret void")

    @contextmanager
    def if_then(self, condition: Value, *, likely: bool | None = None) -> Iterator[None]:
        """The block if the condition holds."""
        yes, end = self.append_basic_block("if"), self.append_basic_block("endif")
        self._weigh(self.cbranch(condition, yes, end), likely=likely)
        self.position_at_end(yes)
        yield
        if not self.block.terminated:
            self.branch(end)
        self.position_at_end(end)

    @contextmanager
    def if_else(
        self, condition: Value, *, likely: bool | None = None
    ) -> Iterator[tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
        """Two blocks: what is done if the condition holds, and if not."""
        yes, no, end = (self.append_basic_block(name) for name in ("if", "else", "endif"))
        self._weigh(self.cbranch(condition, yes, no), likely=likely)

        @contextmanager
        def within(block: Block) -> Iterator[None]:
            self.position_at_end(block)
            yield
            if not self.block.terminated:
                self.branch(end)

        yield within(yes), within(no)
        self.position_at_end(end)

    def _weigh(self, branch: Instruction, *, likely: bool | None) -> None:
        if likely is not None:
            weights = "i32 99, i32 1" if likely else "i32 1, i32 99"
            branch.set_metadata("prof", self.module.metadata(f'!{{!"branch_weights", {weights}}}'))
