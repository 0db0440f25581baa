"""Doing a list of operations on integers: `runtime.arithmetic` says what they are."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from ..arithmetic import Operation
from ..layout import WORD_BYTES
from .emit import WORD, Code


def define(module: ir.Module) -> None:
    """Add the function to a module."""
    _perform(module)


def _perform(module: ir.Module) -> None:
    """Returns how many were missed.

    for (;;) {
        operation, target, a, b = operations[at++];
        a = registers[a]; b = registers[b];
        switch (operation) { … }
    }
    """
    code = Code(module, "i64 jitonnx_perform(ptr operations, ptr registers, ptr results, ptr missed)", exported=True)
    build = code.build
    at, handler, count = (code.variable(0) for _ in range(3))
    head = code.function.append_basic_block("operation")
    unknown = code.function.append_basic_block("unknown")
    build.branch(head)
    build.position_at_end(head)
    place = code.at(code["operations"], code.multiply(code.load(at), 4 * WORD_BYTES))
    kind, target, first, second = (code.load(code.at(place, WORD_BYTES * n)) for n in range(4))
    code.store(at, code.add(code.load(at), 1))

    def register(number: ir.Value) -> ir.Value:
        return code.at(code["registers"], code.multiply(number, WORD_BYTES))

    a, b = code.load(register(first)), code.load(register(second))
    switch = build.switch(kind, unknown)

    def give_up() -> None:
        code.store(at, code.load(handler))
        build.branch(head)

    def case(operation: Operation, body: Callable[[], None]) -> None:
        block = code.function.append_basic_block(operation.name.lower())
        switch.add_case(WORD(int(operation)), block)
        build.position_at_end(block)
        body()
        if not build.block.is_terminated:
            build.branch(head)

    def put(value: ir.Value) -> None:
        code.store(register(target), value)

    def checked(name: str) -> Callable[[], None]:
        def body() -> None:
            pair = getattr(build, f"{name}_with_overflow")(a, b)
            with code.when(build.extract_value(pair, 1), likely=False):
                give_up()
            put(build.extract_value(pair, 0))

        return body

    def quotient(rest: bool) -> Callable[[], None]:
        def body() -> None:
            # The least number over -1 is beyond 64 bits, too.
            with code.when(build.or_(code.equal(b, 0), code.equal(b, -1)), likely=False):
                give_up()
            left = build.srem(a, b)
            opposite = code.compare(build.xor(left, b), "<", 0)
            below = build.and_(code.compare(left, "!=", 0), opposite)
            if rest:
                put(build.select(below, code.add(left, b), left))
            else:
                put(code.subtract(build.sdiv(a, b), build.zext(below, WORD)))

        return body

    def need(relation: str) -> Callable[[], None]:
        def body() -> None:
            with code.when(build.not_(code.compare(a, relation, b)), likely=False):
                give_up()

        return body

    def miss() -> None:
        number = code.load(count)
        code.store(code.at(code["missed"], code.multiply(number, WORD_BYTES)), target)
        code.store(count, code.add(number, 1))

    case(Operation.ADD, checked("sadd"))
    case(Operation.SUBTRACT, checked("ssub"))
    case(Operation.MULTIPLY, checked("smul"))
    case(Operation.DIVIDE, quotient(rest=False))
    case(Operation.MODULO, quotient(rest=True))
    case(Operation.LARGER, lambda: put(code.larger(a, b)))
    case(Operation.SMALLER, lambda: put(code.smaller(a, b)))
    case(Operation.BELOW, lambda: put(build.zext(code.compare(a, "<", b), WORD)))
    case(Operation.AND, lambda: put(build.and_(a, b)))
    case(Operation.OR, lambda: put(build.or_(a, b)))
    case(Operation.NEED_BELOW, need("<"))
    case(Operation.NEED_NOT_BELOW, need(">="))
    case(Operation.NEED_EQUAL, need("=="))
    case(Operation.NEED_DIFFERENT, need("!="))
    case(Operation.STORE, lambda: code.store(code.at(code["results"], code.multiply(target, WORD_BYTES)), a))
    case(Operation.JUMP, lambda: code.store(at, target))
    case(Operation.HANDLER, lambda: code.store(handler, target))
    case(Operation.MISS, miss)
    case(Operation.END, lambda: code.give(code.load(count)))
    build.position_at_end(unknown)
    build.unreachable()
