"""What a plan fused before or behind a kernel's own work, as a function of the kernel's module.

A stage is given a vector and where it stands, and the kernel's arguments, behind whose own buffers and sizes it finds
its operands:

    def add_bias(code: Code, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue) ->
    SSAValue:
        return x + code.buffer(3, types.float32).load(column, x.lanes, live)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.ssa import SSAValue

Stage: TypeAlias = Callable[[KernelBuilder, SSAValue, SSAValue, SSAValue, SSAValue, SSAValue], SSAValue]
"""stage(code, x, batch, row, column, live): what becomes of a vector of the result, of which `active` lanes count."""

# A stage of more vector operations than this is not repeated for every register of a tile, but looped over the
# tile's copy on the stack. At 8 x 3 vectors and k = 64, bias and SiLU (23 operations) run 3 % faster unrolled; bias and
# GELU by one polynomial (40) equally fast either way, but unrolled takes 132 ms to compile, looped 57 ms.
_UNROLLED_OPERATIONS = 29


class Epilogue:
    """A stage (None: none) on vectors of `lanes` elements, written once in a module and inlined where it is called.

    `result`: the elements that it gives, where they are not `element`s: ValueError if there is no stage to give them.
    """

    def __init__(
        self,
        code: KernelBuilder,
        stage: Stage | None,
        element: types.ElementType,
        lanes: int,
        result: types.ElementType | None = None,
    ) -> None:
        self.element, self.lanes, self.operations = element, lanes, 0
        self._result = result or element
        self._function: llvm_ir.Function | None = None
        if stage is None and self._result is not element:
            raise ValueError(f"Bug: sums are {element}, not {self._result}, without an epilogue")
        if stage is not None:
            functions = code.builder.module.stages
            key = (stage, element, lanes)  # which settle the result's elements
            if key not in functions:
                functions[key] = self._written(code, stage)
            self._function = functions[key]
            self.operations = self._function.vector_operations

    @classmethod
    def widest(
        cls,
        code: KernelBuilder,
        stage: Stage | None,
        element: types.ElementType,
        lanes: int,
        most: int,
        result: types.ElementType | None = None,
    ) -> Epilogue:
        """An epilogue on `most` elements at a time, in several registers, if it is short enough; else on `lanes`."""
        made = cls(code, stage, element, most, result)
        return made if made.unrolls else cls(code, stage, element, lanes, result)

    @property
    def name(self) -> str:
        """What it is called in its module, as none of the others is."""
        return self._function.name if self._function is not None else f"none.{self.element}.{self.lanes}"

    @property
    def unrolls(self) -> bool:
        """Whether it is short enough to be repeated for every register of a tile."""
        return self.operations <= _UNROLLED_OPERATIONS

    def _written(self, code: KernelBuilder, stage: Stage) -> llvm_ir.Function:
        module, vector = code.builder.module, llvm_ir.VectorType(self.element.llvm, self.lanes)
        place = [llvm_ir.IntType(64)] * 4
        given = llvm_ir.VectorType(self._result.llvm, self.lanes)
        kind = llvm_ir.FunctionType(given, [*(argument.type for argument in code.arguments), vector, *place])
        function = llvm_ir.Function(module, kind, f"stage.{len(module.stages)}")
        function.linkage = "internal"
        function.attributes.add("alwaysinline")
        inner = KernelBuilder(llvm_ir.IRBuilder(function.append_basic_block()), function.args[:3])
        x, *where = function.args[3:]
        result = stage(inner, SSAValue(inner.builder, self.element, x), *map(inner.integer, where))
        if result.value.type != given:
            raise TypeError(f"Bug: the epilogue returns {result.value.type} instead of {given}")
        inner.builder.ret(result.value)
        return function

    def __call__(
        self, code: KernelBuilder, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue | int
    ) -> SSAValue:
        """What becomes of a vector."""
        return x.like(self.emit(code, x.value, [batch.value, row.value, column.value, code.integer(active).value]))

    def emit(self, code: KernelBuilder, x: llvm_ir.Value, place: Sequence[llvm_ir.Value]) -> llvm_ir.Value:
        """The same; place: batch, row, column, live."""
        if self._function is None:
            return x
        return code.builder.call(self._function, [*code.arguments, x, *place])
