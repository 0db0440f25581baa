"""A thin layer over the builder of LLVM IR (`kernels.language.ir`): functions from C-like signatures, record fields by
name, loops and branches.

    code = Code(module, "i64 count(ptr frame)")
    rows = code.word(code["frame"], FRAME, "row_count")
    with code.when(code.equal(rows, 0)):
        code.give(-1)
    code.give(rows)

Integers are i64 and addresses ptr, but where C's int (i32) is what a function of the system takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from jitonnx.emit import llvm_ir

from ..layout import WORD_BYTES, offset

WORD = llvm_ir.IntType(64)
_BYTE = llvm_ir.IntType(8)
POINTER = _BYTE.as_pointer()
_TYPES = {"void": llvm_ir.VoidType(), "i8": _BYTE, "i32": llvm_ir.IntType(32), "i64": WORD, "ptr": POINTER}

_SIGNATURE = re.compile(r"(\w+) ([\w.]+)\((.*)\)")


def _by_name(*signatures: str) -> dict[str, str]:
    return {signature.split()[1].split("(")[0]: signature for signature in signatures}


EXTERNAL = _by_name(
    # POSIX threads
    "i32 pthread_create(ptr, ptr, ptr, ptr)",
    "i32 pthread_join(i64, ptr)",
    "i32 pthread_sigmask(i32, ptr, ptr)",
    "i32 pthread_mutex_lock(ptr)",
    "i32 pthread_mutex_unlock(ptr)",
    "i32 pthread_cond_wait(ptr, ptr)",
    "i32 pthread_cond_timedwait(ptr, ptr, ptr)",
    "i32 pthread_cond_signal(ptr)",
    "i64 pthread_self()",
    "i32 sched_yield()",
    "i32 clock_gettime(i32, ptr)",
    # the C library
    "ptr malloc(i64)",
    "ptr realloc(ptr, i64)",
    "i32 posix_memalign(ptr, i64, i64)",
    "void free(ptr)",
    "ptr memset(ptr, i32, i64)",
    "ptr memcpy(ptr, ptr, i64)",
    "i32 memcmp(ptr, ptr, i64)",
    "i32 madvise(ptr, i64, i32)",
    # CPython
    "i64 PyDict_Size(ptr)",
    "ptr PyDict_GetItemWithError(ptr, ptr)",
    "void PyErr_Clear()",
    "i32 PyErr_CheckSignals()",
    "ptr PyObject_CallObject(ptr, ptr)",
    "i32 PyObject_IsTrue(ptr)",
    "void Py_IncRef(ptr)",
    "void Py_DecRef(ptr)",
    "ptr PyList_New(i64)",
    "ptr PyList_GetItem(ptr, i64)",
    "i32 PyList_SetItem(ptr, i64, ptr)",
    "ptr PySequence_GetSlice(ptr, i64, i64)",
    "ptr PyUnicode_AsUTF8AndSize(ptr, ptr)",
    "ptr PyEval_SaveThread()",
    "void PyEval_RestoreThread(ptr)",
    # instructions
    "void llvm.x86.sse2.pause()",
    "void llvm.aarch64.hint(i32)",
    "void llvm.x86.sse.stmxcsr(ptr)",
    "void llvm.x86.sse.ldmxcsr(ptr)",
    "i64 llvm.aarch64.get.fpcr()",
    "void llvm.aarch64.set.fpcr(i64)",
)
"""What the native functions call that they do not define, by name."""

SHARED = _by_name(
    "i64 jitonnx_clock()",
    "void jitonnx_look(ptr watch)",
    "i64 jitonnx_sleep(ptr member, i64 sequence, ptr watch)",
    "void jitonnx_wake(ptr member)",
    "void jitonnx_member(ptr team, i64 index, i64 sequence, ptr watch)",
    "i64 jitonnx_start(ptr team)",
    "void jitonnx_in_pieces(ptr frame, ptr row, i64 index, i64 begin, i64 end)",
    "void jitonnx_walk_watched(ptr frame, i64 index, i64 first, i64 last, ptr stamps)",
    "void jitonnx_run(ptr frame, ptr stamps, ptr watch)",
    "void jitonnx_load(ptr frame, ptr program)",
    "ptr jitonnx_take(ptr pool, ptr program)",
    "ptr jitonnx_take_grown(ptr pool, ptr program)",
    "void jitonnx_shed(ptr frame)",
    "void jitonnx_put_back(ptr frame)",
    "i64 jitonnx_perform(ptr operations, ptr registers, ptr results, ptr missed)",
    "i64 jitonnx_instantiate(ptr plan, ptr block, i64 threads)",
    "i64 jitonnx_accepts(ptr entry, i64 index, ptr object)",
    "ptr jitonnx_make_output(ptr entry, i64 index)",
    "ptr jitonnx_make_outputs(ptr entry, ptr bases)",
    "i64 jitonnx_take_flags(ptr frame)",
    "i64 jitonnx_run_released(ptr entry, ptr frame, ptr watch)",
    "void jitonnx_ask_for_huge_pages(ptr block, i64 size)",
)
"""Native functions that those of other modules of the driver call (`driver.PARTS`), by name."""


def _parse(signature: str) -> tuple[str, llvm_ir.FunctionType, list[str]]:
    """The name, type and argument names of a signature such as "i64 count(ptr frame)"."""
    matched = _SIGNATURE.fullmatch(signature)
    if matched is None:
        raise ValueError(f"Bug: {signature!r} is not a signature")
    result, name, listed = matched.groups()
    arguments = [argument.split() for argument in listed.split(",") if argument.strip()]
    kind = llvm_ir.FunctionType(_TYPES[result], [_TYPES[argument[0]] for argument in arguments])
    return name, kind, [argument[-1] for argument in arguments]


class FunctionBuilder:
    """One function being written. `code["name"]` is an argument. Only an exported function can be found by name."""

    def __init__(self, module: llvm_ir.Module, signature: str, *, exported: bool = False) -> None:
        name, kind, names = _parse(signature)
        assert SHARED.get(name, signature) == signature, f"Bug: other parts call {name} as {SHARED[name]}"
        self.module = module
        self.function = llvm_ir.Function(module, kind, name)
        if not exported and name not in SHARED:
            self.function.linkage = "internal"
        self.build = llvm_ir.IRBuilder(self.function.append_basic_block("entry"))
        self._arguments = dict(zip(names, self.function.args, strict=True))

    def __getitem__(self, name: str) -> llvm_ir.Value:
        return self._arguments[name]

    # Values

    def number(self, value: int | llvm_ir.Value) -> llvm_ir.Value:
        """An i64: constants become one, values stay."""
        return WORD(value) if isinstance(value, int) else value

    def add(self, left: int | llvm_ir.Value, right: int | llvm_ir.Value) -> llvm_ir.Value:
        return self.build.add(self.number(left), self.number(right))

    def subtract(self, left: int | llvm_ir.Value, right: int | llvm_ir.Value) -> llvm_ir.Value:
        return self.build.sub(self.number(left), self.number(right))

    def bit(self, value: int) -> llvm_ir.Value:
        """An i1."""
        return llvm_ir.IntType(1)(value)

    def multiply(self, left: int | llvm_ir.Value, right: int | llvm_ir.Value) -> llvm_ir.Value:
        return self.build.mul(self.number(left), self.number(right))

    def compare(self, left: int | llvm_ir.Value, operator: str, right: int | llvm_ir.Value) -> llvm_ir.Value:
        """`left operator right` of signed integers, an i1."""
        return self.build.icmp_signed(operator, self.number(left), self.number(right))

    def equal(self, left: int | llvm_ir.Value, right: int | llvm_ir.Value) -> llvm_ir.Value:
        return self.compare(left, "==", right)

    def smaller(self, left: int | llvm_ir.Value, right: int | llvm_ir.Value) -> llvm_ir.Value:
        """The smaller of two signed integers."""
        left, right = self.number(left), self.number(right)
        return self.build.select(self.compare(left, "<", right), left, right)

    def larger(self, left: int | llvm_ir.Value, right: int | llvm_ir.Value) -> llvm_ir.Value:
        """The larger of two signed integers."""
        left, right = self.number(left), self.number(right)
        return self.build.select(self.compare(left, ">", right), left, right)

    def shift_left(self, value: int | llvm_ir.Value, bits: int) -> llvm_ir.Value:
        return self.build.shl(self.number(value), WORD(bits))

    def bits(self, value: llvm_ir.Value, first: int, count: int) -> llvm_ir.Value:
        """`count` bits of a word from bit `first` on, as a number."""
        shifted = self.build.lshr(value, WORD(first))
        return shifted if first + count == 64 else self.build.and_(shifted, WORD((1 << count) - 1))

    def is_null(self, pointer: llvm_ir.Value) -> llvm_ir.Value:
        return self.build.icmp_unsigned("==", pointer, POINTER(None))

    # Memory

    def at(self, base: llvm_ir.Value, distance: int | llvm_ir.Value) -> llvm_ir.Value:
        """The address `distance` bytes behind `base`."""
        return self.build.gep(base, [self.number(distance)])

    def item(self, base: llvm_ir.Value, record: np.dtype[np.void], index: llvm_ir.Value) -> llvm_ir.Value:
        """The address of a record in an array of them."""
        return self.at(base, self.multiply(index, record.itemsize))

    def word_at(self, base: llvm_ir.Value, index: int | llvm_ir.Value) -> llvm_ir.Value:
        """The address of a word in an array of them."""
        return self.at(base, self.multiply(index, WORD_BYTES))

    def field(self, base: llvm_ir.Value, record: np.dtype[np.void], name: str) -> llvm_ir.Value:
        """The address of a field of the record at `base`."""
        return self.at(base, offset(record, name))

    def word(self, base: llvm_ir.Value, record: np.dtype[np.void], name: str) -> llvm_ir.Value:
        """A field's value as i64."""
        return self.load(self.field(base, record, name), WORD)

    def pointer(self, base: llvm_ir.Value, record: np.dtype[np.void], name: str) -> llvm_ir.Value:
        """A field's value as an address."""
        return self.load(self.field(base, record, name), POINTER)

    def put(self, base: llvm_ir.Value, record: np.dtype[np.void], name: str, value: int | llvm_ir.Value) -> None:
        """Set a field."""
        self.store(self.field(base, record, name), value)

    def load(self, source: llvm_ir.Value, kind: llvm_ir.Type = WORD) -> llvm_ir.Value:
        return self.build.load(self.build.bitcast(source, kind.as_pointer()))

    def load_int(self, source: llvm_ir.Value, bits: int) -> llvm_ir.Value:
        """A signed integer of 8 or 32 bits, widened to i64."""
        return self.build.sext(self.load(source, llvm_ir.IntType(bits)), WORD)

    def store(self, target: llvm_ir.Value, value: int | llvm_ir.Value) -> None:
        self.build.store(self.number(value), target)

    def watch(self, source: llvm_ir.Value) -> llvm_ir.Value:
        """Read a word that other threads write; in one order with all `publish`es (sequentially consistent)."""
        return self.build.load_atomic(self.build.bitcast(source, WORD.as_pointer()), "seq_cst", WORD_BYTES)

    def publish(self, target: llvm_ir.Value, value: int | llvm_ir.Value) -> None:
        """Write a word that other threads read; what was written before is seen by who sees this."""
        self.build.store_atomic(self.number(value), target, "seq_cst", WORD_BYTES)

    def release(self, target: llvm_ir.Value, value: int) -> None:
        """Write a word that hands over what was written before to who sees this; on x86 as cheap as any store."""
        self.build.store_atomic(self.number(value), target, "release", WORD_BYTES)

    def fetch_add(self, target: llvm_ir.Value, value: int | llvm_ir.Value) -> llvm_ir.Value:
        """Add to a word that other threads write; returns what it was."""
        return self.build.atomic_rmw("add", target, self.number(value), "seq_cst")

    def exchange_if(
        self, target: llvm_ir.Value, expected: int | llvm_ir.Value, value: int | llvm_ir.Value
    ) -> llvm_ir.Value:
        """Set a word that other threads write if it is `expected`; an i1 that says whether it was."""
        result = self.build.cmpxchg(target, self.number(expected), self.number(value), "seq_cst", "seq_cst")
        return self.build.extract_value(result, 1)

    def local(self, size: int) -> llvm_ir.Value:
        """Memory of `size` bytes, a multiple of 8, that lives as long as the function runs."""
        return self.build.bitcast(self.build.alloca(WORD, size // WORD_BYTES), POINTER)

    def variable(self, value: int | llvm_ir.Value) -> llvm_ir.Value:
        """The address of a local i64 that begins as `value`."""
        place = self.local(8)
        self.store(place, value)
        return place

    # Control

    @contextmanager
    def loop(self, begin: int | llvm_ir.Value, end: int | llvm_ir.Value) -> Iterator[llvm_ir.Value]:
        """`for (index = begin; index < end; index++)`; gives the index."""
        counter = self.variable(begin)
        with self.forever() as leave:
            index = self.load(counter)
            with self.if_then(self.compare(index, ">=", end)):
                leave()
            yield index
            self.store(counter, self.build.advanced(self.add(self.load(counter), 1)))

    @contextmanager
    def forever(self) -> Iterator[Callable[[], object]]:
        """`for (;;)`; gives a function that writes a `break`."""
        again = self.build.append_basic_block("again")
        after = self.function.append_basic_block("after", again)
        self.build.branch(again)
        self.build.position_at_end(again)
        yield lambda: self.build.branch(after)
        if not self.build.block.terminated:
            self.build.branch(again)
        self.build.position_at_end(after)

    @contextmanager
    def if_then(self, condition: llvm_ir.Value, *, likely: bool | None = None) -> Iterator[None]:
        """`if (condition)`."""
        with self.build.if_then(condition, likely=likely):
            yield

    def give(self, value: int | llvm_ir.Value | None = None) -> None:
        """`return value`, or `return`."""
        if value is None:
            self.build.ret_void()
        else:
            self.build.ret(self.number(value))

    def give_if(self, condition: llvm_ir.Value, value: int | llvm_ir.Value | None = None) -> None:
        """`if (condition) return value`, where that is seldom."""
        with self.if_then(condition, likely=False):
            self.give(value)

    def call(self, name: str, *arguments: int | llvm_ir.Value) -> llvm_ir.Value:
        """Call a function of this module, of `SHARED` or of `EXTERNAL`; constants take the type of their parameter."""
        function = self.module.globals.get(name)
        if function is None:
            _, kind, _ = _parse(SHARED.get(name) or EXTERNAL[name])
            function = llvm_ir.Function(self.module, kind, name)
        return self._call(function, *arguments)

    def call_stored(
        self, source: llvm_ir.Value, kind: llvm_ir.FunctionType, *arguments: int | llvm_ir.Value
    ) -> llvm_ir.Value:
        """Call the function whose address is stored at `source`, as a function of type `kind`."""
        return self._call(self.load(source, kind.as_pointer()), *arguments)

    def _call(self, function: llvm_ir.Value, *arguments: int | llvm_ir.Value) -> llvm_ir.Value:
        parameters = function.type.pointee.arguments
        typed = [
            kind(given) if isinstance(given, int) else given for kind, given in zip(parameters, arguments, strict=True)
        ]
        return self.build.call(function, typed)
