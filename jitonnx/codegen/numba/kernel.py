"""A kernel call's source as it is written: its arguments, its operands in memory, prologue and epilogue, docstring.

The function has the operands as memory: one-dimensional arrays under plain Python, pointers in compiled code, each from
the lowest element on that is touched. Behind them come the sizes that only a run tells, then the tasks to do,
[begin, end), where there can be several.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

from jitonnx.codegen.numba.expression import loaded, memory_kind, stored, write_expressions
from jitonnx.codegen.numba.source import Source
from jitonnx.codegen.numba.writing import Amount, Uncovered, Writer, identifier, plus, times
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import COMPILED, DType
from jitonnx.plan.calls import KernelCall, Stage
from jitonnx.plan.tensor import StridedTensor


class KernelWriter:
    """Writes one call's function.

    named: for people: by the names of the model's values. Else by places, so that equal computations are equal texts.
    operators: the operators of the model's nodes, by their names, for the docstring.
    """

    def __init__(self, call: KernelCall, *, named: bool, operators: Mapping[str, str]) -> None:
        self.call, self.code = call, Writer(_HELPERS)
        self.spec: Any = call.spec
        self._named, self._operators = named, operators
        self._pointers: dict[int, tuple[str, str, int]] = {}
        self._sizes: dict[DimLike | str, tuple[str, int]] = {}
        self._names: dict[str, str] = {}
        given = list(call.sizes)
        self.fixed = all(isinstance(size, int) for size in (*given, *call.stage_sizes))
        """Whether all sizes are numbers."""
        record = call.spec.SIZES
        if self.fixed:
            completed = call.spec.complete(call.sizes)
            self.sizes: Any = completed
            self.tasks: int | None = call.spec.tasks(completed)
        else:
            names = record.names()
            amounts = [self._size(dim, place, names[place]) for place, dim in enumerate(given)]
            behind = [self._size(names[place], place, names[place]) for place in range(len(given), record.WIDTH)]
            self.sizes, self.tasks = record.make([*amounts, *behind]), None

    # ---------------------------------------------------------------- arguments

    def _size(self, dim: DimLike | str, place: int, wish: str) -> Amount:
        """A size that is known, or the argument that stands for it; dim: it, or a name of what a run works out."""
        if isinstance(dim, int):
            return dim
        if dim not in self._sizes:
            readable = str(dim) if self._named and len(str(dim)) <= 20 else wish
            self._sizes[dim] = (self.code.fresh(readable), place)
        return self._sizes[dim][0]

    def stage_size(self, place: int) -> Amount:
        """A size by its place among all of the call's, of a prologue or an epilogue."""
        dim = self.call.stage_sizes[place - self.call.spec.size_count]
        return self._size(dim, place, f"stride_{place}")

    def memory(self, place: int) -> str:
        """The name of the memory of an operand by its place among the call's buffers."""
        if place not in self._pointers:
            tensor = self.call.tensors[place]
            if tensor.dtype not in COMPILED:
                raise Uncovered(f"numbers of {tensor.dtype.text}")
            self._pointers[place] = (
                self.code.fresh(f"{self.value_name(place)}_data" if self._named else f"data{place}"),
                memory_kind(tensor.dtype),
                _below(tensor),
            )
        return self._pointers[place][0]

    def value_name(self, place: int) -> str:
        """What an operand is called: as the model's value, or by its place."""
        if not self._named:
            return f"{'y' if place in self.call.buffers.results() else 'x'}{place}"
        return self.call.tensors[place].buffer.name

    def element(self, place: int, where: Amount) -> str:
        """An element in memory; where: its place from the operand's first coordinates on."""
        name = self.memory(place)
        return f"{name}[{plus(where, self._pointers[place][2])}]"

    def load(self, place: int, where: Amount, dtype: DType | None = None) -> str:
        """An element as it is computed with."""
        return loaded(self.element(place, where), dtype or self.call.tensors[place].dtype)

    def store(self, place: int, where: Amount, value: str) -> None:
        self.code.line(f"{self.element(place, where)} = {stored(value, self.call.tensors[place].dtype)}")

    # ---------------------------------------------------------------- prologue and epilogue

    def stage(self, stage: Stage | None, value: str, batch: Amount, row: Amount, column: Amount) -> str:
        """What a prologue or an epilogue makes of a value at a place."""
        if stage is None:
            return value
        code = self.code
        own = value if value.isidentifier() else code.named("v", value)

        def leaf(node: e.Expr) -> str:
            if node.value == 0:
                return own
            number = node.value - 1
            where: Amount = 0
            if stage.rows[number]:
                first = stage.first_size + 2 * number
                where = plus(times(batch, self.stage_size(first)), times(row, self.stage_size(first + 1)))
            if stage.columns[number]:
                where = plus(where, column)
            place = stage.first_buffer + number
            read = self.load(place, where, stage.dtypes[number])
            return code.named(self.value_name(place), read)

        (text,) = write_expressions(code, [stage.expr], leaf)
        if stage.bounded:
            place = stage.first_buffer + len(stage.dtypes)
            low, high = self.element(place, 0), self.element(place, 1)
            text = f"minimum(maximum({text}, {low}), {high})"
        return text

    # ---------------------------------------------------------------- the whole

    def finish(self, what: str) -> Source:
        """The source. what: a line that says what is computed."""
        call, named = self.call, self._named
        name = self.code.fresh(_name(call)) if named else "kernel"
        pointers = sorted(self._pointers.items())
        several = self.tasks is None or self.tasks > 1
        body = self.code.lines or ["    pass"]
        read = set(re.findall(r"\w+", "\n".join(body)))
        self._sizes = {dim: size for dim, size in self._sizes.items() if size[0] in read}
        arguments = [self._pointers[place][0] for place, _ in pointers]
        arguments += [argument for argument, _ in self._sizes.values()]
        arguments += ["begin", "end"] * several
        lines = [f"def {name}({', '.join(arguments)}):"]
        if named:
            lines += self._docstring(what, [place for place, _ in pointers])
        return Source(
            name,
            "\n".join([*lines, *body]) + "\n",
            tuple((place, element, below) for place, (_, element, below) in pointers),
            tuple(place for _, place in self._sizes.values()),
            several,
        )

    def _docstring(self, what: str, places: list[int]) -> list[str]:
        """The nodes, what is computed, and how each operand lies."""
        nodes = [f"{self._operators.get(name, 'node')} {name!r}" for name in self.call.origin] or [self.call.label]
        lines = [*textwrap.wrap(f"{', '.join(nodes)}: {what}.", 110), ""]
        written = self.call.buffers.results()
        for place in places:
            argument, _, below = self._pointers[place]
            tensor = self.call.tensors[place]
            from_on = f", from {below} elements before the first on" if below else ""
            lines.append(
                f"{argument}: {'written, ' if place in written else ''}{tensor.dtype.text}{_list(tensor.shape)}, "
                f"strides {_list(tensor.strides)}{from_on}"
            )
        if self._sizes:
            lines += ["", "Sizes that a run tells: " + ", ".join(name for name, _ in self._sizes.values())]
        if self.tasks is None or self.tasks > 1:
            lines += ["", f"Does the tasks from begin to end, of {'several' if self.tasks is None else self.tasks}."]
        text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
        return textwrap.indent(f'"""{text}\n"""', "    ", lambda line: bool(line.strip())).split("\n")


def _below(tensor: StridedTensor) -> int:
    """How many elements the lowest one that is touched lies before the first; strides that a run tells count as up."""
    return sum(
        -stride * (extent - 1)
        for extent, stride in zip(tensor.shape, tensor.strides, strict=True)
        if isinstance(extent, int) and isinstance(stride, int) and stride < 0 < extent
    )


def _list(dims: tuple[DimLike, ...]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _name(call: KernelCall) -> str:
    """A function's name: of the last node that it stands for, or of what it is."""
    return identifier(f"{call.spec.family}_{call.origin[-1]}" if call.origin else call.label or call.spec.family)


_HELPERS = frozenset(
    {
        *("widen_float16", "narrow_float16", "round_float16", "round_double_float16", "widen_bfloat16"),
        *("narrow_bfloat16", "round_bfloat16", "bounded", "to_int64", "to_uint64", "divide", "divide_unsigned"),
        *("modulo", "remainder", "modulo_unsigned", "modulo_float", "maximum", "minimum", "within"),
        *("exp", "erf", "erfc"),
        *("min", "max", "range", "abs"),
    }
)
