"""Native loops as links of chains: what a run by Python has shown of a loop, written for native code to do it again.

A loop is a link for inputs of the types, and values of the dimension variables, that it was last run with, if all of
its iterations are of one program. Of what is gone through element by element the lengths may be others. With any other
inputs Python does the loop; those that come twice in a row take the place of those before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.ir import dims
from jitonnx.ir.graph import Value
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.control_flow import Scan
from jitonnx.runtime.layout import NO_LIMIT, WORD_BYTES, LoopGives
from jitonnx.runtime.native_memory import ANY, ArrayType
from jitonnx.runtime.observed_loops import LoopOperand, NativeLoop, Result
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.engine.bytecode import StepContext, VariableScope, Writer
    from jitonnx.engine.loops.step import Iteration, LoopStep

MOST_ROW_BYTES = 1 << 26
"""The most bytes of stacked results, for all iterations there may be; of more, Python takes memory as it goes."""


class ObservedLoop(NamedTuple):
    """What a loop was run with: the types of its inputs, sizes by name, and the program of its iterations."""

    types: tuple[ArrayType, ...]
    sizes: tuple[int | None, ...]
    iteration: Iteration

    @property
    def key(self) -> Any:
        """What has to be the same for a run like it."""
        return [(one.dtype.num, one.shape) for one in self.types], self.sizes


class ObservedLoops:
    """The links of one loop."""

    def __init__(self, step: LoopStep) -> None:
        self._step, node = step, step.node
        is_scan = isinstance(node.operator, Scan)
        first = node.arguments[0] if node.arguments else None
        self._trip_count: Value | None = None
        """How many iterations there are, if that is worked out of sizes."""
        if first is not None and not is_scan and first.constant is None and first.contents is not None:
            self._trip_count = None if first.measured else first
        arguments = [value for value in node.arguments if value not in (None, self._trip_count)]
        followed = [outer for outer, _ in step.followed]
        self.inputs: tuple[Value, ...] = (*filter(None, arguments), *step.captured, *followed)
        place = 0
        self._arguments: list[int] = []
        """Which input each argument of the node is, -1 for absent ones."""
        for value in node.arguments:
            read = value not in (None, self._trip_count)
            self._arguments.append(place if read else -1)
            place += read
        self._captured, self._followed = place, place + len(step.captured)
        carried = len(step.parts.carried)
        self._states = self._arguments[:carried] if is_scan else self._arguments[2 : 2 + carried]
        self._scanned = self._arguments[carried:] if is_scan else []
        head = [] if is_scan else self._arguments[:2]
        self._trips, self._condition = ([*head, -1, -1])[:2]
        self._reads = [*self._states, *range(self._captured, len(self.inputs)), *self._scanned]
        """Which input is each of what the step reads."""
        shapes = [value.type.shape or () for value in node.outputs if isinstance(value.type, TensorType)]
        found = set().union(*(dims.variables(size) for shape in shapes for size in shape))
        self._names = sorted(found | set(step.outer_names))
        self._compared: tuple[str, ...] = ()
        self._lock = fork_safety.lock()
        """Held where a run changes what follows."""
        self._last: ObservedLoop | None = None
        self._seen: ObservedLoop | None = None
        self._version = 0

    def write(self, writer: Writer, scope: VariableScope, context: StepContext) -> None:
        """Write a link. NotBytecode where there can be none."""
        own = {name for _, bindings in context.bound for name, _ in bindings}
        checked = [value.type.shape or () for value, _ in context.bound]
        names = {name for shape in checked for size in shape for name in dims.variables(size)} - own
        self._compared = tuple(sorted(names | set(self._step.outer_names)))
        contents = None if self._trip_count is None else self._trip_count.contents
        trips = None if contents is None else contents.reshape(-1)[0]
        writer.loop(self._step, self.inputs, self._compared, trips, scope, context)

    def version(self) -> int:
        """How often a link was made for other inputs; 0: it is not known how to do any. Of a loop whose iterations are
        of different programs 1."""
        return self._version

    def note(
        self, arguments: Sequence[Any], captured: Mapping[Value, Any], sizes: Mapping[str, int], iteration: Iteration
    ) -> None:
        """Note what Python has run the loop with. Arguments as of that run; `iteration` is that of all iterations."""
        given = zip(self._step.node.arguments, arguments, strict=False)
        arrays = [array for value, array in given if value not in (None, self._trip_count)]
        arrays += [captured[value] for value in self.inputs[self._captured :]]
        if self._trips >= 0 and arrays[self._trips].dtype != np.int64:
            return
        long = {*self._scanned, *range(self._followed, len(arrays))}
        types = tuple(
            [
                ArrayType(array.dtype, (ANY, *array.shape[1:]) if place in long else array.shape)
                for place, array in enumerate(arrays)
            ]
        )
        now = ObservedLoop(types, tuple([sizes.get(name) for name in self._names]), iteration)
        with self._lock:
            last, self._last = self._last, now
            if self._seen is not None and self._seen.key == now.key:
                return
            if self._seen is None or (last is not None and last.key == now.key):
                self._seen = now
                self._version += 1

    def note_growth(self) -> None:
        """Note that iterations of a run were of different programs."""
        with self._lock:
            if self._seen is None:
                self._version = 1

    def chained(self, variables: Sequence[int]) -> NativeLoop | None:
        """What native code runs, None if no run is known whose iterations were of one program.

        variables: the numbers of those that are compared, and of the number of iterations if that is one.
        """
        seen = self._seen  # which another run may change meanwhile
        if seen is None:
            return None
        known = dict(zip(self._names, seen.sizes, strict=True))
        values = {number: known[name] or 0 for name, number in zip(self._compared, variables, strict=False)}
        return self._native_loop(seen, values, -1 if self._trip_count is None else variables[-1])

    def _native_loop(self, seen: ObservedLoop, known: Mapping[int, int], trip_variable: int) -> NativeLoop:
        step, iteration, inputs = self._step, seen.iteration, len(self.inputs)
        words = step.words()
        outputs: list[ArrayType] = []
        operands: list[LoopOperand] = []
        for read, number in zip(step.reads, self._reads, strict=True):
            if read is not None:
                stride = seen.types[number].item_bytes if read.moves else 0
                words.strides[read.place] = -stride if read.back else stride
                back = stride if read.back else 0
                operands.append(LoopOperand(words.base(read.place), number, step.parts.first * stride, back))
        for index, ((given, made), dtype) in enumerate(zip(step.pairs, step.kinds, strict=True)):
            operands.append(LoopOperand(words.base(made), inputs + len(outputs)))
            operands.append(LoopOperand(words.spare(index), inputs + len(outputs) + 1))
            outputs += [ArrayType(dtype, iteration.made[index])] * 2
            words.carried += given * WORD_BYTES, made * WORD_BYTES, 0
        for given, made in step.row_links:
            words.carried += given * WORD_BYTES, made * WORD_BYTES, 0
        copies = len(outputs)
        outputs += [ArrayType(step.row_kinds[row], iteration.rows[row]) for _, row in step.stacked]
        first_row = len(outputs)
        for number, (dtype, shape, back) in enumerate(
            zip(step.row_kinds, iteration.rows, step.parts.rows_backwards, strict=True)
        ):
            place, rows = step.row_place + number, ArrayType(dtype, (ANY, *shape))
            stride = rows.item_bytes
            words.strides[place] = -stride if back else stride
            operands.append(LoopOperand(words.base(place), inputs + len(outputs), 0, stride if back else 0))
            outputs.append(rows)
        row_bytes = sum(one.item_bytes for one in outputs[first_row:])
        words.begin(iteration.loadable)
        return NativeLoop(
            step.frames,
            iteration.loadable.address,
            words.address,
            seen.types,
            outputs,
            first_row,
            operands,
            self._results(outputs, copies, first_row),
            [(number, True) for number in self._scanned]
            + [(number, False) for number in range(self._followed, inputs)],
            self._trips,
            trip_variable,
            self._condition,
            step.parts.first,
            MOST_ROW_BYTES // row_bytes if row_bytes else NO_LIMIT,
            known,
            (words, iteration),
        )

    def _results(self, outputs: Sequence[ArrayType], copies: int, first_row: int) -> list[Result]:
        """What the node's outputs are."""
        step = self._step
        buffers = {place: 2 * index for index, place in enumerate(step.carried)}
        stacks = {place: (copies + index, row) for index, (place, row) in enumerate(step.stacked)}
        results = []
        for place, number in enumerate(self._states):
            if place in buffers:
                results.append(Result(LoopGives.EITHER, buffers[place], buffers[place] + 1))
            elif place in stacks:
                copy, row = stacks[place]
                nbytes = outputs[first_row + row].item_bytes
                results.append(
                    Result(LoopGives.LAST, copy, first_row + row, int(step.parts.rows_backwards[row]), nbytes)
                )
            else:
                results.append(Result(LoopGives.GIVEN, number))
        results += [Result(LoopGives.ROWS, first_row + row) for row in range(len(step.row_kinds))]
        return results[: len(step.node.outputs)]
