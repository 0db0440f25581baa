"""Explicit vectors for kernels: a Numba type `Vector(element, lanes)` and the operations on it.

Kernels are written on whole vectors, so that their speed does not hang on what LLVM's loop vectoriser recognises, and
one text serves every width: `lanes` is a number that the builder of a kernel closes over (the target's natural width,
from the machine, never from the source). LLVM splits what is wider than the hardware.

    x = load(p, i, lanes)                      # lanes elements from p[i]
    y = maximum(x * scale + bias, 0.0)         # scalars spread to all lanes and take the vector's element type
    store(q, i, y)
    store_part(q, i, y, live)                  # only the first `live` lanes: the tail of a row

Operators + - * / % & | ^ << >> and comparisons work lane by lane; a comparison gives a mask (elements of one bit). The
functions below take scalars as well where it makes sense, so that one definition serves both.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir
from numba.core import types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

from jitonnx.kernels.division import emit_division, emit_modulo, emit_remainder
from jitonnx.kernels.jit import BYTES
from jitonnx.kernels.llvm import all_lanes, arithmetic, comparison, float_to_integer
from jitonnx.kernels.llvm import llvm_intrinsic as llvm_intrinsic
from jitonnx.kernels.llvm import mangle as mangle
from jitonnx.kernels.llvm import splat as splat

_I32, _I64 = ir.IntType(32), ir.IntType(64)

LINE_BYTES = 64
"""Of a cache line, on most CPUs."""


class Vector(types.Type):
    """`lanes` numbers of Numba type `element` (types.boolean: a mask)."""

    def __init__(self, element: types.Type, lanes: int) -> None:
        self.element, self.lanes = element, int(lanes)
        super().__init__(name=f"Vector({element}, {lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vector) -> None:
        super().__init__(dmm, fe_type, ir.VectorType(_element_type(fe_type.element), fe_type.lanes))


def _element_type(element: types.Type) -> ir.Type:
    """The LLVM type of one lane."""
    if element == types.boolean:
        return ir.IntType(1)
    if isinstance(element, types.Integer):
        return ir.IntType(element.bitwidth)
    return {types.float16: ir.HalfType(), types.float32: ir.FloatType(), types.float64: ir.DoubleType()}[element]


def _llvm_type(typ: types.Type) -> ir.Type:
    return ir.VectorType(_element_type(typ.element), typ.lanes) if isinstance(typ, Vector) else _element_type(typ)


def _element(typ: types.Type) -> types.Type:
    return typ.element if isinstance(typ, Vector) else typ


def _like(typ: types.Type, element: types.Type) -> types.Type:
    """`typ` with another element: a Vector of as many lanes, or the scalar."""
    return Vector(element, typ.lanes) if isinstance(typ, Vector) else element


def _plain(typ: types.Type) -> types.Type:
    """A literal's own type."""
    return typ.literal_type if isinstance(typ, types.Literal) else typ


def _lanes(typ: types.Type) -> int | None:
    return typ.literal_value if isinstance(typ, types.IntegerLiteral) else None


def _convert(builder: ir.IRBuilder, value: ir.Value, source: types.Type, target: types.Type) -> ir.Value:
    """`value` with elements of `source` as elements of `target`, C's rules; float to int saturates and NaN gives 0."""
    old, new = _element(source), _element(target)
    to = _llvm_type(_like(source, new))
    if isinstance(value.type, ir.IntType) and old == types.boolean and value.type.width == 8:
        value = builder.trunc(value, ir.IntType(1))
    if old == new:
        return value
    if new == types.boolean:
        zero = ir.Constant(value.type, None)
        return (
            builder.fcmp_unordered("!=", value, zero)
            if isinstance(old, types.Float)
            else builder.icmp_signed("!=", value, zero)
        )
    if isinstance(old, types.Float) and isinstance(new, types.Float):
        return builder.fpext(value, to) if new.bitwidth > old.bitwidth else builder.fptrunc(value, to)
    if isinstance(old, types.Float):
        return float_to_integer(builder, value, new, to)
    signed = old != types.boolean and old.signed
    if isinstance(new, types.Float):
        return builder.sitofp(value, to) if signed else builder.uitofp(value, to)
    width = 1 if old == types.boolean else old.bitwidth
    if new.bitwidth == width:
        return value
    if new.bitwidth < width:
        return builder.trunc(value, to)
    return builder.sext(value, to) if signed else builder.zext(value, to)


def _fit(context: Any, builder: ir.IRBuilder, value: ir.Value, source: types.Type, target: types.Type) -> ir.Value:
    """An operand brought to `target`: a scalar is converted to the element type and spread."""
    source = _plain(source)
    if source == target:
        return _convert(builder, value, source, target)
    if isinstance(source, Vector):
        return _convert(builder, value, source, target)
    if source == types.boolean and isinstance(value.type, ir.IntType) and value.type.width != 1:
        value = builder.trunc(value, ir.IntType(1))
    value = _convert(builder, value, source, _element(target))
    return splat(builder, value, target.lanes) if isinstance(target, Vector) else value


def _common(*arguments: types.Type) -> types.Type | None:
    """The type an operation works in: the Vector among the arguments; for scalars the widest one that is no literal."""
    vectors = [a for a in arguments if isinstance(a, Vector)]
    if vectors:
        return vectors[0] if all(v == vectors[0] for v in vectors) else None
    scalars = [a for a in arguments if not isinstance(a, types.Literal)] or [_plain(a) for a in arguments]
    if not all(isinstance(a, types.Integer | types.Float | types.Boolean) for a in scalars):
        return None
    return max(scalars, key=lambda a: (isinstance(a, types.Float), getattr(a, "bitwidth", 1)))


# ---------------------------------------------------------------- operators


_ARITHMETIC = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.mod: "%",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.iadd: "+",
    operator.isub: "-",
    operator.imul: "*",
    operator.itruediv: "/",
}
_COMPARISONS = {
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}


def _register_operator(function: Callable[..., Any], name: str, compare: bool) -> None:
    @infer_global(function)
    class _Typing(AbstractTemplate):
        def generic(self, args: Sequence[types.Type], kws: Any) -> Any:
            if len(args) != 2 or kws or not any(isinstance(a, Vector) for a in args):
                return None
            common = _common(*args)
            if common is None:
                return None
            return signature(_like(common, types.boolean) if compare else common, *args)

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
        common = _common(*sig.args)
        assert isinstance(common, Vector)
        a, b = (_fit(context, builder, value, typ, common) for value, typ in zip(args, sig.args, strict=True))
        return (comparison if compare else arithmetic)(builder, name, common.element, a, b)

    lower_builtin(function, Vector, Vector)(lower)
    lower_builtin(function, Vector, types.Any)(lower)
    lower_builtin(function, types.Any, Vector)(lower)


for _function, _name in _ARITHMETIC.items():
    _register_operator(_function, _name, compare=False)
for _function, _name in _COMPARISONS.items():
    _register_operator(_function, _name, compare=True)


@infer_global(operator.neg)
class _Negation(AbstractTemplate):
    def generic(self, args: Sequence[types.Type], kws: Any) -> Any:
        return signature(args[0], args[0]) if isinstance(args[0], Vector) else None


@infer_global(operator.invert)
class _Inversion(AbstractTemplate):
    def generic(self, args: Sequence[types.Type], kws: Any) -> Any:
        return signature(args[0], args[0]) if isinstance(args[0], Vector) else None


@lower_builtin(operator.neg, Vector)
def _lower_negation(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
    return builder.fneg(args[0]) if isinstance(sig.return_type.element, types.Float) else builder.neg(args[0])


@lower_builtin(operator.invert, Vector)
def _lower_inversion(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
    return builder.not_(args[0])


# ---------------------------------------------------------------- memory


def _typed(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value, typ: types.Type) -> ir.Value:
    """The address of pointer[index], as a pointer to `typ`. A mask in memory is one byte an element."""
    return builder.bitcast(builder.gep(pointer, [index]), typ.as_pointer())


def _memory_type(typ: Vector) -> ir.VectorType:
    return ir.VectorType(ir.IntType(8) if typ.element == types.boolean else _element_type(typ.element), typ.lanes)


def _alignment(typ: Vector) -> int:
    return 1 if typ.element == types.boolean else typ.element.bitwidth // 8


def _from_memory(builder: ir.IRBuilder, value: ir.Value, typ: Vector) -> ir.Value:
    return builder.icmp_unsigned("!=", value, ir.Constant(value.type, None)) if typ.element == types.boolean else value


def _to_memory(builder: ir.IRBuilder, value: ir.Value, typ: Vector) -> ir.Value:
    return builder.zext(value, _memory_type(typ)) if typ.element == types.boolean else value


@intrinsic
def pointer(typingctx: Any, buffers: Any, index: Any, element: Any) -> Any:
    """buffers[index] as a pointer to `element` (a Numba type such as types.float32)."""
    result = types.CPointer(element.instance_type if hasattr(element, "instance_type") else element.dtype)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        address = builder.load(builder.gep(args[0], [args[1]]))
        address.set_metadata("invariant.load", builder.module.add_metadata([]))  # no kernel changes its buffers' list
        return builder.bitcast(address, context.get_value_type(result))

    return result(types.CPointer(BYTES), types.intp, element), generate


@intrinsic
def view(typingctx: Any, p: Any, element: Any) -> Any:
    """Pointer `p` as a pointer to `element`."""
    result = types.CPointer(element.instance_type if hasattr(element, "instance_type") else element.dtype)
    return result(p, element), lambda context, builder, sig, args: builder.bitcast(
        args[0], context.get_value_type(result)
    )


@intrinsic
def advance(typingctx: Any, p: Any, count: Any) -> Any:
    """The pointer `count` elements behind p."""
    return p(p, types.intp), lambda context, builder, sig, args: builder.gep(args[0], [args[1]])


@intrinsic(prefer_literal=True)
def load(typingctx: Any, p: Any, index: Any, lanes: Any) -> Any:
    """Vector of p[index : index + lanes]; needs no alignment beyond the element's. `lanes` is a constant."""
    if (count := _lanes(lanes)) is None:
        return None
    typ = Vector(p.dtype, count)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        loaded = builder.load(_typed(builder, args[0], args[1], _memory_type(typ)))
        loaded.align = _alignment(typ)
        return _from_memory(builder, loaded, typ)

    return typ(p, types.intp, lanes), generate


@intrinsic(prefer_literal=True)
def load_part(typingctx: Any, p: Any, index: Any, live: Any, lanes: Any) -> Any:
    """As `load`, reading only the first `live` lanes; the others are 0.

    live >= lanes reads all; memory behind is not touched.
    """
    if (count := _lanes(lanes)) is None:
        return None
    typ = Vector(p.dtype, count)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        memory = _memory_type(typ)
        where = _typed(builder, args[0], args[1], memory)
        loaded = masked_load(builder, where, memory, live_mask(builder, args[2], count), _alignment(typ))
        return _from_memory(builder, loaded, typ)

    return typ(p, types.intp, types.intp, lanes), generate


@intrinsic
def store(typingctx: Any, p: Any, index: Any, value: Any) -> Any:
    """p[index : index + lanes] = value."""

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        where = _typed(builder, args[0], args[1], _memory_type(value))
        builder.store(_to_memory(builder, args[2], value), where).align = _alignment(value)
        return context.get_dummy_value()

    return (types.void(p, types.intp, value), generate) if isinstance(value, Vector) else None


@intrinsic
def store_part(typingctx: Any, p: Any, index: Any, value: Any, live: Any) -> Any:
    """As `store`, writing only the first `live` lanes."""

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        memory = _memory_type(value)
        where, mask = _typed(builder, args[0], args[1], memory), live_mask(builder, args[3], value.lanes)
        masked_store(builder, _to_memory(builder, args[2], value), where, mask, _alignment(value))
        return context.get_dummy_value()

    return (types.void(p, types.intp, value, types.intp), generate) if isinstance(value, Vector) else None


@intrinsic
def stream(typingctx: Any, p: Any, index: Any, value: Any) -> Any:
    """As `store`, past the caches, to a place aligned to the vector's size or to `LINE_BYTES`; see `drain`.

    For results far larger than the caches: a line that is written as a whole is not read before.
    """

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        stored = builder.store(
            _to_memory(builder, args[2], value), _typed(builder, args[0], args[1], _memory_type(value))
        )
        stored.align = min(LINE_BYTES, value.lanes * _alignment(value))
        stored.set_metadata("nontemporal", builder.module.add_metadata([_I32(1)]))
        return context.get_dummy_value()

    return (types.void(p, types.intp, value), generate) if isinstance(value, Vector) else None


@intrinsic
def drain(typingctx: Any) -> Any:
    """Make what was streamed visible to other threads, as what was stored is: at the end of a kernel that streams."""

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic(prefer_literal=True)
def before_aligned(typingctx: Any, p: Any, index: Any, lanes: Any) -> Any:
    """How many elements, fewer than `lanes`, p[index] is away from a place that vectors can be streamed to."""
    count = _lanes(lanes)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        itemsize = context.get_abi_sizeof(context.get_value_type(p.dtype))
        address = builder.ptrtoint(builder.gep(args[0], [args[1]]), _I64)
        away = builder.and_(builder.neg(address), _I64(min(LINE_BYTES, count * itemsize) - 1))
        return builder.udiv(away, _I64(itemsize))

    return (types.intp(p, types.intp, lanes), generate) if count is not None else None


def masked_load(builder: ir.IRBuilder, where: ir.Value, typ: ir.VectorType, mask: ir.Value, alignment: int) -> ir.Value:
    """A vector of `typ` at `where`: 0 in the lanes that `mask` leaves out, whose memory is not touched."""
    name = f"llvm.masked.load.{mangle(typ)}.p0"
    # Typed pointers of llvmlite's builder and the opaque ones of LLVM agree on the mangled name only.
    function = builder.module.globals.get(name) or ir.Function(
        builder.module, ir.FunctionType(typ, [where.type, _I32, mask.type, typ]), name
    )
    return builder.call(function, [where, _I32(alignment), mask, ir.Constant(typ, None)])


def masked_store(builder: ir.IRBuilder, value: ir.Value, where: ir.Value, mask: ir.Value, alignment: int) -> None:
    """Store the lanes of `value` that `mask` selects; memory under the others is not touched."""
    name = f"llvm.masked.store.{mangle(value.type)}.p0"
    function = builder.module.globals.get(name) or ir.Function(
        builder.module, ir.FunctionType(ir.VoidType(), [value.type, where.type, _I32, mask.type]), name
    )
    builder.call(function, [value, where, _I32(alignment), mask])


def live_mask(builder: ir.IRBuilder, live: ir.Value, lanes: int) -> ir.Value:
    """Lanes below `live`. Compared in 32 bits: `live` is clamped first, so that a long row still reads as all lanes."""
    clamped = builder.select(builder.icmp_signed("<", live, live.type(lanes)), live, live.type(lanes))
    spread = splat(builder, builder.trunc(clamped, _I32), lanes)
    return builder.icmp_signed("<", ir.Constant(ir.VectorType(_I32, lanes), list(range(lanes))), spread)


@intrinsic
def gather(typingctx: Any, p: Any, indices: Any) -> Any:
    """Vector of p[indices[lane]], for a Vector of int32 or int64 indices."""
    typ = Vector(p.dtype, indices.lanes)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        result = ir.Constant(_memory_type(typ), ir.Undefined)
        for lane in range(typ.lanes):
            at = builder.extract_element(args[1], _I32(lane))
            result = builder.insert_element(result, builder.load(builder.gep(args[0], [at])), _I32(lane))
        return _from_memory(builder, result, typ)

    return typ(p, indices), generate


# ---------------------------------------------------------------- lanes


@intrinsic(prefer_literal=True)
def broadcast(typingctx: Any, value: Any, lanes: Any) -> Any:
    """A Vector with the scalar `value` in every lane."""
    if (count := _lanes(lanes)) is None:
        return None
    plain = _plain(value)
    typ = Vector(plain, count)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return _fit(context, builder, args[0], plain, typ)

    return typ(plain, lanes), generate


@intrinsic(prefer_literal=True)
def iota(typingctx: Any, start: Any, lanes: Any) -> Any:
    """The Vector start, start + 1, … of int64."""
    if (count := _lanes(lanes)) is None:
        return None
    typ = Vector(types.int64, count)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return builder.add(splat(builder, args[0], count), ir.Constant(ir.VectorType(_I64, count), list(range(count))))

    return typ(types.int64, lanes), generate


@intrinsic(prefer_literal=True)
def part(typingctx: Any, vector: Any, first: Any, lanes: Any) -> Any:
    """The Vector of lanes first, …, first + lanes - 1 (constants): a register of a wider Vector."""
    if (start := _lanes(first)) is None or (count := _lanes(lanes)) is None:
        return None

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        undefined = ir.Constant(args[0].type, ir.Undefined)
        chosen = ir.Constant(ir.VectorType(_I32, count), list(range(start, start + count)))
        return builder.shuffle_vector(args[0], undefined, chosen)

    return Vector(vector.element, count)(vector, first, lanes), generate


@intrinsic
def extract(typingctx: Any, vector: Any, lane: Any) -> Any:
    """One lane as a scalar."""

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return builder.extract_element(args[0], builder.trunc(args[1], _I32))

    return vector.element(vector, types.intp), generate


def _reduction(name: str, float_name: str) -> Any:
    def declare(typingctx: Any, vector: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            combine = _COMBINE[name]
            value, lanes = args[0], vector.lanes
            while lanes > 1:  # halve: the shuffles are free next to the dependent operations of a serial sum
                lanes //= 2
                undefined = ir.Constant(value.type, ir.Undefined)
                low, high = (
                    builder.shuffle_vector(
                        value, undefined, ir.Constant(ir.VectorType(_I32, lanes), list(range(start, start + lanes)))
                    )
                    for start in (0, lanes)
                )
                value = combine(builder, vector.element, low, high)
            return builder.extract_element(value, _I32(0))

        return (
            (vector.element(vector), generate)
            if isinstance(vector, Vector) and vector.lanes & (vector.lanes - 1) == 0
            else None
        )

    declare.__name__, declare.__doc__ = (
        f"reduce_{name}",
        f"The {float_name} of all lanes, as a scalar (lanes: a power of two).",
    )
    return intrinsic(declare)


def _larger(builder: ir.IRBuilder, element: types.Type, a: ir.Value, b: ir.Value) -> ir.Value:
    greater = builder.select(comparison(builder, ">", element, a, b), a, b)
    return _keep_nan(builder, element, a, greater)


def _smaller(builder: ir.IRBuilder, element: types.Type, a: ir.Value, b: ir.Value) -> ir.Value:
    less = builder.select(comparison(builder, "<", element, a, b), a, b)
    return _keep_nan(builder, element, a, less)


def _keep_nan(builder: ir.IRBuilder, element: types.Type, a: ir.Value, otherwise: ir.Value) -> ir.Value:
    """x86's max returns its second operand where either is NaN: only a NaN in `a` needs care."""
    return (
        builder.select(builder.fcmp_unordered("uno", a, a), a, otherwise)
        if isinstance(element, types.Float)
        else otherwise
    )


_COMBINE: dict[str, Callable[[ir.IRBuilder, types.Type, ir.Value, ir.Value], ir.Value]] = {
    "add": lambda builder, element, a, b: arithmetic(builder, "+", element, a, b),
    "max": _larger,
}
reduce_add = _reduction("add", "sum")
reduce_max = _reduction("max", "largest (NaN if any is)")


# ---------------------------------------------------------------- functions of scalars and vectors


def elementwise(name: str, arity: int, doc: str, body: Callable[..., ir.Value]) -> Any:
    """An intrinsic on `arity` operands of one type (scalars spread); body(builder, element, *values) emits it."""

    def declare_any(typingctx: Any, *operands: Any) -> Any:
        common = _common(*operands)
        if common is None:
            return None

        def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            values = [_fit(context, builder, value, typ, common) for value, typ in zip(args, sig.args, strict=True)]
            return body(builder, _element(common), *values)

        return common(*operands), generate

    declare: Any
    if arity == 1:

        def declare(typingctx: Any, a: Any) -> Any:
            return declare_any(typingctx, a)
    elif arity == 2:

        def declare(typingctx: Any, a: Any, b: Any) -> Any:
            return declare_any(typingctx, a, b)
    else:

        def declare(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
            return declare_any(typingctx, a, b, c)

    declare.__name__, declare.__doc__ = name, doc
    return intrinsic(declare)


def _unary_llvm(name: str) -> Callable[..., ir.Value]:
    return lambda builder, element, a: llvm_intrinsic(builder, name, a.type, [a], a.type)


def _absolute(builder: ir.IRBuilder, element: types.Type, a: ir.Value) -> ir.Value:
    if isinstance(element, types.Float):
        return llvm_intrinsic(builder, "fabs", a.type, [a], a.type)
    if element == types.boolean or not element.signed:
        return a
    return builder.select(builder.icmp_signed("<", a, ir.Constant(a.type, None)), builder.neg(a), a)


fma = elementwise(
    "fma",
    3,
    "a * b + c, rounded once.",
    lambda builder, element, a, b, c: llvm_intrinsic(builder, "fma", a.type, [a, b, c], a.type),
)
maximum = elementwise("maximum", 2, "The larger; NaN if either is.", _larger)
minimum = elementwise("minimum", 2, "The smaller; NaN if either is.", _smaller)
at_least = elementwise(
    "at_least",
    2,
    "max(x, bound) for a bound that is not NaN: one instruction, a NaN in x stays.",
    lambda builder, element, x, bound: builder.select(comparison(builder, ">", element, bound, x), bound, x),
)
at_most = elementwise(
    "at_most",
    2,
    "min(x, bound) for a bound that is not NaN: one instruction, a NaN in x stays.",
    lambda builder, element, x, bound: builder.select(comparison(builder, "<", element, bound, x), bound, x),
)
sqrt = elementwise("sqrt", 1, "Square root, correctly rounded.", _unary_llvm("sqrt"))
floor = elementwise("floor", 1, "Largest integer not above.", _unary_llvm("floor"))
ceil = elementwise("ceil", 1, "Smallest integer not below.", _unary_llvm("ceil"))
trunc = elementwise("trunc", 1, "Rounded towards zero.", _unary_llvm("trunc"))
rint = elementwise("rint", 1, "Rounded to the nearest integer, ties to even.", _unary_llvm("roundeven"))
absolute = elementwise("absolute", 1, "Absolute value.", _absolute)
copysign = elementwise(
    "copysign",
    2,
    "The magnitude of a with the sign of b.",
    lambda builder, element, a, b: llvm_intrinsic(builder, "copysign", a.type, [a, b], a.type),
)


@intrinsic
def isnan(typingctx: Any, value: Any) -> Any:
    """The mask (or bool) of NaNs."""
    return _like(value, types.boolean)(value), lambda context, builder, sig, args: builder.fcmp_unordered(
        "uno", args[0], args[0]
    )


@intrinsic
def select(typingctx: Any, mask: Any, a: Any, b: Any) -> Any:
    """a where the mask holds, else b."""
    common = _common(a, b)
    if common is None:
        return None
    if isinstance(mask, Vector) and not isinstance(common, Vector):
        common = Vector(common, mask.lanes)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        condition = args[0]
        if not isinstance(mask, Vector) and condition.type != ir.IntType(1):
            condition = builder.trunc(condition, ir.IntType(1))
        return builder.select(
            condition, _fit(context, builder, args[1], a, common), _fit(context, builder, args[2], b, common)
        )

    return common(mask, a, b), generate


@intrinsic
def convert(typingctx: Any, value: Any, element: Any) -> Any:
    """`value` with elements of another type, C's rules; float to integer saturates and NaN gives 0."""
    plain, new = _plain(value), element.instance_type if hasattr(element, "instance_type") else element.dtype
    result = _like(plain, new)
    return result(plain, element), lambda context, builder, sig, args: _convert(builder, args[0], plain, result)


@intrinsic
def bitcast(typingctx: Any, value: Any, element: Any) -> Any:
    """The same bits as elements of another type of equal width."""
    new = element.instance_type if hasattr(element, "instance_type") else element.dtype
    result = _like(value, new)
    return result(value, element), lambda context, builder, sig, args: builder.bitcast(args[0], _llvm_type(result))


@intrinsic
def isinf(typingctx: Any, value: Any) -> Any:
    """The mask (or bool) of infinities of either sign."""

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        magnitude = llvm_intrinsic(builder, "fabs", args[0].type, [args[0]], args[0].type)
        return builder.fcmp_ordered("==", magnitude, ir.Constant(magnitude.type, all_lanes(args[0].type, float("inf"))))

    return _like(value, types.boolean)(value), generate


divide_integer = elementwise(
    "divide_integer", 2, "a / b for integers, truncated; a where b is 0 or the quotient overflows.", emit_division
)
remainder = elementwise(
    "remainder", 2, "The rest of a / b, a's sign (C's fmod; 0 for an integer b of 0).", emit_remainder
)
modulo = elementwise("modulo", 2, "The rest of a / b, b's sign (Python's %; 0 for an integer b of 0).", emit_modulo)


@intrinsic(prefer_literal=True)
def load_strided(typingctx: Any, p: Any, index: Any, stride: Any, live: Any, lanes: Any) -> Any:
    """The Vector p[index], p[index + stride], …; lanes from `live` on repeat the first element."""
    if (count := _lanes(lanes)) is None:
        return None
    typ = Vector(p.dtype, count)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        base, start, step, alive = args[:4]
        result = ir.Constant(_memory_type(typ), ir.Undefined)
        for lane in range(count):
            inside = builder.icmp_signed(">", alive, _I64(lane))
            at = builder.add(start, builder.select(inside, builder.mul(step, _I64(lane)), _I64(0)))
            result = builder.insert_element(result, _scalar_load(builder, base, at, typ), _I32(lane))
        return _from_memory(builder, result, typ)

    return typ(p, types.intp, types.intp, types.intp, lanes), generate


@intrinsic
def scatter(typingctx: Any, p: Any, index: Any, stride: Any, value: Any, live: Any) -> Any:
    """p[index + i * stride] = lane i of `value`, for the first `live` lanes."""

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        base, start, step, vector, alive = args
        stored = _to_memory(builder, vector, value)
        for lane in range(value.lanes):
            with builder.if_then(builder.icmp_signed(">", alive, _I64(lane))):
                at = builder.add(start, builder.mul(step, _I64(lane)))
                where = builder.bitcast(builder.gep(base, [at]), stored.type.element.as_pointer())
                builder.store(builder.extract_element(stored, _I32(lane)), where)
        return context.get_dummy_value()

    return (types.void(p, types.intp, types.intp, value, types.intp), generate) if isinstance(value, Vector) else None


def _scalar_load(builder: ir.IRBuilder, base: ir.Value, at: ir.Value, typ: Vector) -> ir.Value:
    return builder.load(builder.bitcast(builder.gep(base, [at]), _memory_type(typ).element.as_pointer()))
