"""What follows from the sizes of a run: the numbers of a plan, and of each kind of calls its sizes, tasks and time.

Specs say it in Python, which takes some microseconds for each kind of calls. So what Python does for the second
set of sizes is recorded, a section for the numbers and one for each kind, and native code does it for the sets that
follow (`runtime/arithmetic.py`). Where a section's conditions do not hold for other sizes, Python does that kind once
more, and what it does then becomes another section, which is tried first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.ir import dims
from jitonnx.ir.dims import DimLike
from jitonnx.kernels.parts.sizes import below, larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.plan.size_tracing import Number, Registers, SizeTrace, Untraceable
from jitonnx.runtime.arithmetic import Operation, perform
from jitonnx.runtime.instantiation import Arithmetic
from jitonnx.runtime.layout import STEP_COLUMNS
from jitonnx.runtime.program import Words
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning

SECTIONS = 6
"""A kind has so many at most: one whose sections seldom fit is left to Python."""

_RECORDING_SECONDS = 0.001
"""What recording may take of the time of one set of sizes; what is left is recorded with later ones."""

_ROOM = 1024
"""Numbers that a section has room for, where there are few expressions."""


class Kind(NamedTuple):
    """What calls with the same sizes have in common. sizes, stage_sizes: which numbers, as those of `outline.Call`."""

    spec: KernelSpec
    sizes: tuple[int, ...]
    stage_sizes: tuple[int, ...]


class Derived(NamedTuple):
    """What follows for values of the dimension variables.

    numbers: of the plan. columns: `STEP_COLUMNS` [7, kinds], places being in `sizes`.
    """

    numbers: Words
    columns: Words
    sizes: Words


def nanoseconds(work: Work, gflops: int) -> Any:
    """A rough time on one core: whatever binds, arithmetic at so many GFLOP/s or memory at 20 GB/s."""
    return larger(work.flops // gflops, work.bytes // 20)


def threads_for(nanoseconds: int, tasks: int, threads: int) -> int:
    """How many of `threads` threads a call of an estimated time is shared among."""
    return 1 if nanoseconds < tuning.SERIAL_NANOSECONDS else max(1, min(threads, tasks))


def completed(kind: Kind, numbers: Sequence[int]) -> Any:
    """The sizes that the kernel of a kind gets for the values of all numbers, its stages' left out."""
    return kind.spec.complete(kind.spec.given([numbers[row] for row in kind.sizes]))


def _derive(spec: KernelSpec, given: Sequence[Any], stages: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """The sizes of a call, and its columns from `size_count` on, for integers or recorded ones."""
    complete = spec.complete(spec.given(given))
    tasks = spec.tasks(complete)
    if tasks == 0:
        return [], (0, 0, 1, 1, 0, 0)
    estimate = nanoseconds(spec.work(complete), spec.GFLOPS)
    pieces = -(-tasks * tuning.GRAIN_NANOSECONDS // larger(estimate, tuning.GRAIN_NANOSECONDS))
    grain = larger(spec.grain(complete), smaller(tasks, pieces))
    shares = 1 + (tasks - 1) * (1 - below(estimate, tuning.SERIAL_NANOSECONDS))
    words = [*complete, *stages]
    return words, (len(words), tasks, shares, grain, spec.scratch_bytes(complete), estimate)


class SizeProgram:
    """Works out what follows from sizes.

    numbers: integers, and expressions over the dimension variables. kinds: of calls, over these numbers.
    """

    def __init__(self, numbers: Sequence[DimLike], kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self.evaluate = Evaluator(numbers)
        """The values of all numbers for those of the dimension variables."""
        varies = [not isinstance(dim, int) for dim in numbers]
        self.varies = any(varies)
        """Whether anything follows from sizes."""
        self._varies = [any(varies[row] for row in (*kind.sizes, *kind.stage_sizes)) for kind in kinds]
        self._native: _Native | None = None
        self._calls = 0
        self.lock = fork_safety.lock()
        """Held by who uses what is recorded."""

    def __call__(self, sizes: Mapping[str, int]) -> Derived:
        """OverflowError where a number takes more than 64 bits."""
        native = self._native
        if native is not None:
            with self.lock:
                derived = native.derive(sizes)
            if derived is not None:
                return derived
        derived = self._by_python(sizes)
        self._calls += 1
        if native is None and self._calls > 1 and self.varies:
            with self.lock:
                self._native = self._native or _Native(self.evaluate, self._kinds, self._varies, sizes, derived)
        return derived

    @property
    def recorded(self) -> tuple[Arithmetic, Sequence[str], int] | None:
        """What native code is called with, the names of the variables, and the register of the first of them.

        None where nothing is recorded yet.
        """
        native = self._native
        return None if native is None else native.recorded

    @property
    def version(self) -> int:
        """How much is recorded; 0: nothing."""
        native = self._native
        return 0 if native is None else native.version

    def prepare(self, sizes: Mapping[str, int]) -> None:
        """Record what is done for these sizes, as far as there is time for."""
        self._calls += 1
        self(sizes)

    def copied(self) -> tuple[Arithmetic, Sequence[str], int] | None:
        """`recorded`, in arrays of the caller's own."""
        with self.lock:
            recorded = self.recorded
            if recorded is None:
                return None
            arithmetic, variables, first = recorded
            return Arithmetic(*(array.copy() for array in arithmetic)), variables, first

    def _by_python(self, sizes: Mapping[str, int]) -> Derived:
        numbers = self.evaluate(sizes)
        found = [_derive(kind.spec, *_given(kind, numbers)) for kind in self._kinds]
        rows = np.array([(0, *columns) for _, columns in found], np.int64)
        columns = rows.reshape(len(found), len(STEP_COLUMNS)).T.copy()
        columns[0] = columns[1].cumsum() - columns[1]
        words = np.array([word for some, _ in found for word in some], np.int64)
        return Derived(np.array(numbers, np.int64), columns, words)


def _words(kind: Kind, numbers: Sequence[int]) -> int:
    """How many words the sizes of a kind take, where it has anything to do."""
    given, stages = _given(kind, numbers)
    return len(kind.spec.complete(kind.spec.given(given))) + len(stages)


def _given(kind: Kind, numbers: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    return [numbers[row] for row in kind.sizes], [numbers[row] for row in kind.stage_sizes]


class _Native:
    """The sections that are recorded, and what native code needs to do them.

    Registers: the numbers, the dimension variables, room for a section, constants. Results: the columns of all kinds,
    then sizes, for which each kind has the place that it needed for the first set of sizes.
    """

    def __init__(
        self,
        evaluate: Evaluator,
        kinds: Sequence[Kind],
        varies: Sequence[bool],
        sizes: Mapping[str, int],
        first: Derived,
    ) -> None:
        self._evaluate, self._kinds, self._varies = evaluate, kinds, varies
        self._count, self._first_variable = len(first.numbers), len(first.numbers)
        names = evaluate.variables
        given = self._first_variable + len(names)
        self._registers = Registers(given, max(_ROOM, 8 * self._count))
        self._values = np.zeros(given + self._registers.room + 256, np.int64)
        self._values[: self._count] = first.numbers
        self._constants = 0
        self._code = np.zeros((1024, 4), np.int64)
        self._length = 0
        # A kind that has nothing to do for these sizes has no words, and room for those that it may have for others.
        known, begins = first.numbers.tolist(), first.columns[0].tolist()
        words = [
            first.sizes[begin : begin + count] if count else np.zeros(_words(kind, known), np.int64)
            for kind, begin, count in zip(kinds, begins, first.columns[1].tolist(), strict=True)
        ]
        lengths = np.array(list(map(len, words)), np.int64)
        self._lengths = lengths.tolist()
        self._begins = (lengths.cumsum() - lengths).tolist()
        self._results = np.concatenate([self._begins, first.columns[1:].ravel(), *words])
        self._sections = [0] * len(kinds)
        self._missed = np.zeros(len(kinds) + 1, np.int64)
        self._usable = self._record_numbers(sizes)
        if self._usable:
            self._begin_kinds()

    def derive(self, sizes: Mapping[str, int]) -> Derived | None:
        """What follows from sizes; None where numbers take more than 64 bits, or a kind has other sizes than before."""
        if not self._usable:
            return None
        given = [sizes[name] for name in self._evaluate.variables]
        self._values[self._first_variable : self._first_variable + len(given)] = given
        missed = perform(self._code, self._values, self._results, self._missed)
        numbers = self._values[: self._count].copy()
        if missed and not self._by_python(missed, numbers):
            return None
        results, kinds = self._results.copy(), len(self._kinds)
        columns, words = np.split(results, [len(STEP_COLUMNS) * kinds])
        return Derived(numbers, columns.reshape(len(STEP_COLUMNS), kinds), words)

    @property
    def recorded(self) -> tuple[Arithmetic, Sequence[str], int] | None:
        """See `SizeProgram.recorded`."""
        if not self._usable:
            return None
        arithmetic = Arithmetic(self._code, self._values, self._results, self._missed)
        return arithmetic, self._evaluate.variables, self._first_variable

    @property
    def version(self) -> int:
        """See `SizeProgram.version`."""
        return self._length if self._usable else 0

    def _by_python(self, missed: Sequence[int], numbers: Words) -> bool:
        """Carry out the kinds that no section was for; False if that can't be."""
        if missed[0] == len(self._kinds):  # the numbers themselves
            return False
        known, kinds = numbers.tolist(), len(self._kinds)
        until, before = time.perf_counter() + _RECORDING_SECONDS, self._length
        for number in missed:
            kind = self._kinds[number]
            words, columns = _derive(kind.spec, *_given(kind, known))
            if words and len(words) != self._lengths[number]:
                return False
            for column, value in enumerate(columns, 1):
                self._results[column * kinds + number] = value
            begin = len(STEP_COLUMNS) * kinds + self._begins[number]
            self._results[begin : begin + len(words)] = words
            # One at least: a machine that is busy with something else takes all the time before that.
            in_time = self._length == before or time.perf_counter() < until
            if self._sections[number] < SECTIONS and in_time:
                self._record(number, known)
        return True

    # ------------------------------------------------------------ recording

    def _record_numbers(self, sizes: Mapping[str, int]) -> bool:
        """The section that works out the numbers, which comes first; False if there can be none."""
        recording = SizeTrace(self._registers)
        given = {
            name: recording.given(self._first_variable + place, sizes[name])
            for place, name in enumerate(self._evaluate.variables)
        }
        try:
            for row, value in self._evaluate.recorded(given):
                recording.move(row, value)
        except Untraceable:
            return False
        self._append([(Operation.HANDLER, 0, 0, 0), *recording.operations])
        return True

    def _begin_kinds(self) -> None:
        """Write for each kind that varies a jump to the section to try first; at the end what is missed, by kind."""
        varying = [number for number, varies in enumerate(self._varies) if varies]
        self._jumps = {number: self._length + place for place, number in enumerate(varying)}
        end = self._length + len(varying)
        heads = {number: end + 1 + 2 * place for place, number in enumerate(varying)}
        operations = [(Operation.JUMP, heads[number], 0, 0) for number in varying]
        operations.append((Operation.END, 0, 0, 0))
        for number in varying:
            operations += [(Operation.MISS, number, 0, 0), (Operation.JUMP, self._jumps[number] + 1, 0, 0)]
        wrong = self._length + len(operations)
        operations += [(Operation.MISS, len(self._kinds), 0, 0), (Operation.END, 0, 0, 0)]
        self._append(operations)
        self._code[0, 1] = wrong

    def _record(self, number: int, numbers: Sequence[int]) -> None:
        """Record what Python does for a kind as a section that is tried first."""
        self._sections[number] += 1
        kind, recording, kinds = self._kinds[number], SizeTrace(self._registers), len(self._kinds)
        symbolic = self._evaluate.rows
        given = {
            row: recording.given(row, numbers[row]) if row in symbolic else numbers[row]
            for row in (*kind.sizes, *kind.stage_sizes)
        }
        try:
            parts = ([given[row] for row in rows] for rows in (kind.sizes, kind.stage_sizes))
            words, columns = _derive(kind.spec, *parts)
            for column, value in enumerate(columns, 1):
                recording.store(column * kinds + number, value)
            begin = len(STEP_COLUMNS) * kinds + self._begins[number]
            for place, word in enumerate(words):
                recording.store(begin + place, word)
        except (Untraceable, TypeError, AttributeError):  # the latter of what recorded integers do not have
            self._sections[number] = SECTIONS
            return
        jump = self._jumps[number]
        handler = int(self._code[jump, 1])
        begin = self._length
        self._append([(Operation.HANDLER, handler, 0, 0), *recording.operations, (Operation.JUMP, jump + 1, 0, 0)])
        self._code[jump, 1] = begin

    def _append(self, operations: Sequence[tuple[int, int, int, int]]) -> None:
        end = self._length + len(operations)
        if end > len(self._code):
            self._code = np.concatenate([self._code, np.zeros((max(end, 2 * len(self._code)), 4), np.int64)])
        self._code[self._length : end] = operations
        self._length = end
        constants, first = self._registers.constants, self._registers.first + self._registers.room
        if first + len(constants) > len(self._values):
            self._values = np.concatenate([self._values, np.zeros(len(constants) + 256, np.int64)])
        for value, place in list(constants.items())[self._constants :]:
            self._values[place] = value
        self._constants = len(constants)


class Evaluator:
    """One generated function that evaluates every expression for values of the variables."""

    def __init__(self, numbers: Sequence[DimLike]) -> None:
        self._settled = [dim if isinstance(dim, int) else 0 for dim in numbers]
        rows = [row for row, dim in enumerate(numbers) if not isinstance(dim, int)]
        self.rows = dict.fromkeys(rows)
        """Which numbers are expressions."""
        symbolic = [numbers[row] for row in rows]
        found = dims.atoms(symbolic)
        # Names of dimensions need not be identifiers, and are not ours.
        names = {atom: f"v{number}" for number, atom in enumerate(found)}
        variables = [atom for atom in found if atom.function == "variable"]
        self.variables = [atom.text for atom in variables]
        """The dimension variables."""
        lines = [f"{names[atom]} = {dims.atom_source(atom, names)}" for atom in found if atom.function != "variable"]
        result = "".join(f"{dims.python_source(dim, names)}, " for dim in symbolic)
        head = f"def evaluate({', '.join(names[atom] for atom in variables)}):"
        self._source = "\n    ".join([head, *lines, f"return ({result})"])
        self._function = self._made({})

    def _made(self, scope: dict[str, Any]) -> Callable[..., Sequence[Any]]:
        exec(self._source, scope)
        function: Callable[..., Sequence[Any]] = scope.pop("evaluate")  # else they hold each other
        return function

    def __call__(self, sizes: Mapping[str, int]) -> list[int]:
        found = list(self._settled)
        for row, result in zip(self.rows, self._function(*[sizes[name] for name in self.variables]), strict=True):
            found[row] = result
        return found

    def recorded(self, given: Mapping[str, Number]) -> Sequence[tuple[int, Number]]:
        """The expressions' rows and values for recorded variables."""
        function = self._made({"max": larger})
        return list(zip(self.rows, function(*[given[name] for name in self.variables]), strict=True))
