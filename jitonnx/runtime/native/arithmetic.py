"""Doing a list of operations on integers: `runtime.arithmetic` says what they are."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import llvm_ir

from ..arithmetic import Operation
from ..layout import WORD_BYTES
from .functions import WORD, FunctionBuilder


def define(module: llvm_ir.Module) -> None:
    """Add the function to a module."""
    _Interpreter(module).emit()


class _Interpreter:
    """Emits the function, which returns how many operations were missed.

    for (;;) {
        operation, target, a, b = operations[at++];
        a = registers[a]; b = registers[b];
        switch (operation) { … }
    }
    """

    def __init__(self, module: llvm_ir.Module) -> None:
        signature = "i64 jitonnx_perform(ptr operations, ptr registers, ptr results, ptr missed)"
        self.code = code = FunctionBuilder(module, signature, exported=True)
        self.build = build = code.build
        self.at, self.handler, self.count = (code.variable(0) for _ in range(3))
        self.head = code.function.append_basic_block("operation")
        self.unknown = code.function.append_basic_block("unknown")
        build.branch(self.head)
        build.position_at_end(self.head)
        place = code.at(code["operations"], code.multiply(code.load(self.at), 4 * WORD_BYTES))
        kind, self.target, first, second = (code.load(code.at(place, WORD_BYTES * n)) for n in range(4))
        code.store(self.at, code.add(code.load(self.at), 1))
        self.a, self.b = code.load(self._word("registers", first)), code.load(self._word("registers", second))
        self.kind = kind

    def emit(self) -> None:
        """Emit what each operation does, and the end of the function."""
        code, build, a, b = self.code, self.build, self.a, self.b
        cases: dict[Operation, Callable[[], object]] = {
            Operation.ADD: lambda: self._checked(build.sadd_with_overflow),
            Operation.SUBTRACT: lambda: self._checked(build.ssub_with_overflow),
            Operation.MULTIPLY: lambda: self._checked(build.smul_with_overflow),
            Operation.DIVIDE: lambda: self._put(self._divided()[0]),
            Operation.MODULO: lambda: self._put(self._divided()[1]),
            Operation.LARGER: lambda: self._put(code.larger(a, b)),
            Operation.SMALLER: lambda: self._put(code.smaller(a, b)),
            Operation.BELOW: lambda: self._put(build.zext(code.compare(a, "<", b), WORD)),
            Operation.AND: lambda: self._put(build.and_(a, b)),
            Operation.OR: lambda: self._put(build.or_(a, b)),
            Operation.NEED_BELOW: lambda: self._need("<"),
            Operation.NEED_NOT_BELOW: lambda: self._need(">="),
            Operation.NEED_EQUAL: lambda: self._need("=="),
            Operation.NEED_DIFFERENT: lambda: self._need("!="),
            Operation.STORE: lambda: code.store(self._word("results", self.target), a),
            Operation.JUMP: lambda: code.store(self.at, self.target),
            Operation.HANDLER: lambda: code.store(self.handler, self.target),
            Operation.MISS: self._miss,
            Operation.END: lambda: code.give(code.load(self.count)),
        }
        blocks = {operation: build.append_basic_block(operation.name.lower()) for operation in cases}
        build.switch(self.kind, {int(operation): block for operation, block in blocks.items()}, self.unknown)
        for operation, emit in cases.items():
            build.position_at_end(blocks[operation])
            emit()
            if not build.block.terminated:
                build.branch(self.head)
        build.position_at_end(self.unknown)
        build.unreachable()

    def _word(self, array: str, number: llvm_ir.Value) -> llvm_ir.Value:
        """The address of a word of an argument."""
        return self.code.at(self.code[array], self.code.multiply(number, WORD_BYTES))

    def _put(self, value: llvm_ir.Value) -> None:
        self.code.store(self._word("registers", self.target), value)

    def _give_up_unless(self, holds: llvm_ir.Value) -> None:
        """Go on with the handler if something does not hold."""
        with self.code.if_then(self.build.not_(holds), likely=False):
            self.code.store(self.at, self.code.load(self.handler))
            self.build.branch(self.head)

    def _checked(self, operation: Callable[[llvm_ir.Value, llvm_ir.Value], llvm_ir.Value]) -> None:
        pair = operation(self.a, self.b)
        self._give_up_unless(self.build.not_(self.build.extract_value(pair, 1)))
        self._put(self.build.extract_value(pair, 0))

    def _divided(self) -> tuple[llvm_ir.Value, llvm_ir.Value]:
        """a / b, rounded down, and what is left of a."""
        code, build, a, b = self.code, self.build, self.a, self.b
        # The least number over -1 is beyond 64 bits, too.
        self._give_up_unless(build.and_(code.compare(b, "!=", 0), code.compare(b, "!=", -1)))
        left = build.srem(a, b)
        opposite = code.compare(build.xor(left, b), "<", 0)
        below = build.and_(code.compare(left, "!=", 0), opposite)
        quotient = code.subtract(build.sdiv(a, b), build.zext(below, WORD))
        return quotient, build.select(below, code.add(left, b), left)

    def _need(self, relation: str) -> None:
        self._give_up_unless(self.code.compare(self.a, relation, self.b))

    def _miss(self) -> None:
        code, number = self.code, self.code.load(self.count)
        code.store(self._word("missed", number), self.target)
        code.store(self.count, code.add(number, 1))
