"""Programs that can be run, whether they were planned in this process or read from an artifact."""

from __future__ import annotations

import contextlib
import operator
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.runtime.entry import Entry
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.execution_contexts import ExecutionContextPool, Loadable
from jitonnx.runtime.instantiation import Instantiation
from jitonnx.runtime.program import Flag, Program
from jitonnx.runtime.tables import Common, Tables
from jitonnx.support import fork_safety

if TYPE_CHECKING:
    from jitonnx.plan.parametric_program import ParametricProgram
    from jitonnx.runtime.bytecode import Sized

Runner: TypeAlias = Callable[[Sequence[Any]], list[Any]]
"""Gives the outputs for inputs whose types and shapes have been checked."""
PROGRAMS_KEPT = 1024
"""Programs (one a set of input shapes) that an engine keeps at most; the least recently used go."""
PROGRAM_BYTES = 256 << 20
"""Memory that the programs of an engine may hold, and the frames that they run in, by default."""
UNRECORDED_KEPT = 64
"""Sets of sizes that are remembered until what follows from them is recorded, at most."""


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array; () of what is none."""
    return value.shape if isinstance(value, np.ndarray) else ()


def split_memory(program_bytes: int) -> tuple[int, int]:
    """Share out the memory that programs may hold: what is for their tables, and what for the frames they run in."""
    return program_bytes // 2, program_bytes // 2


class RunnableProgram:
    """A program that can run, and its native entry where this Python allows one.

    keep_gil: the program is so short that letting go of the GIL would cost more than it brings.
    frames: whose memory it runs in; its own where none are given. tables: if it is laid out already.
    """

    def __init__(
        self,
        program: Program,
        common: Common,
        threads: int,
        *,
        keep_gil: bool,
        frames: ExecutionContextPool | None = None,
        tables: Tables | None = None,
    ) -> None:
        self.executable = Executable(program, common, threads, frames, tables)
        self.entry: Entry | None = self.executable.entry(release_gil=not keep_gil)
        self._names = program.inputs.kinds.names
        self.is_compared = False
        """Whether the outputs' sizes were compared with what the model declares; who runs it notes that."""

    def memory_bytes(self) -> int:
        """What it holds besides weights and the frames that it runs in."""
        return self.executable.memory_bytes

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs whose types and shapes have been checked.

        InvalidArgument names the nodes that met an error in the data.
        """
        outputs = None if self.entry is None else self.entry(dict(zip(self._names, inputs, strict=True)))
        return self.executable.run(inputs) if outputs is None else outputs

    def run_from(self, places: Sequence[int]) -> Callable[[Sequence[Any]], list[Any]]:
        """What runs it as `run` does on the elements at these places of a sequence."""
        entry, names = self.entry, self._names
        if entry is None or not places:
            return lambda values: self.run([values[place] for place in places])
        if len(places) == 1:
            ((place,), (name,)) = places, names

            def run_one(values: Sequence[Any]) -> list[Any]:
                outputs = entry({name: values[place]})
                return self.executable.run([values[place]]) if outputs is None else outputs

            return run_one
        pick = operator.itemgetter(*places)

        def run(values: Sequence[Any]) -> list[Any]:
            inputs = pick(values)
            outputs = entry(dict(zip(names, inputs)))  # noqa: B905  (strict takes 60 ns)
            return self.executable.run(inputs) if outputs is None else outputs

        return run


class CompiledParametricProgram:
    """The outline of a plan with its machine code, whether it was planned in this process or read from an artifact.

    symbols: the kernel of each call. image: addresses of the kernels, which are in memory as long as this is.
    flags: those among the constants.
    """

    def __init__(
        self, outline: ParametricProgram, symbols: Sequence[str], image: Mapping[str, int], flags: Sequence[Flag]
    ) -> None:
        self.outline, self.symbols, self.image, self.flags = outline, symbols, image, flags
        self._unrecorded: deque[Mapping[str, int]] = deque(maxlen=UNRECORDED_KEPT)
        """Sizes of programs that Python has made, before what they are was recorded."""

    def program(self, sizes: Mapping[str, int], threads: int, frames: ExecutionContextPool) -> RunnableProgram:
        """The program for values of the dimension variables."""
        program, tables = self._made(sizes, threads)
        return RunnableProgram(
            program, self._common, threads, keep_gil=self.outline.is_short(program), frames=frames, tables=tables
        )

    def loadable(self, sizes: Mapping[str, int], threads: int, frames: ExecutionContextPool) -> Loadable:
        """The same as native loops run it."""
        program, tables = self._made(sizes, threads)
        return Loadable(program, self._common, threads, zeros=frames.zeros, tables=tables)

    def chainable(self, *, sized: bool) -> bool:
        """Whether native code can make and run all programs. sized: there are several, by sizes."""
        if any(dtype.hasobject for kinds in self._native.kinds for dtype in kinds.dtypes):
            return False
        made_natively = self._native.rows.made is None and self.outline.derivation.varies
        return self._common.signature.is_plain and (made_natively or not sized)

    def recorded(self) -> int:
        """How much is recorded of what programs are, those made by now included; 0: not enough to make one natively."""
        derivation = self.outline.derivation
        if not self._unrecorded:
            return derivation.version
        with contextlib.suppress(IndexError):  # where another thread has taken the last one
            for _ in range(len(self._unrecorded)):
                sizes, before = self._unrecorded.popleft(), derivation.version
                derivation.prepare(sizes)  # as runs of the same sizes record nothing
                if derivation.version != before:  # there may be more
                    self._unrecorded.append(sizes)
        return derivation.version

    def sized(self, variables: Mapping[str, int]) -> Sized:
        """What makes programs in a chain. variables: the numbers of the dimension variables there, by name."""
        from jitonnx.runtime.bytecode import Sized

        copied = self.outline.derivation.copied()
        assert copied is not None, "Bug: nothing is recorded"
        arithmetic, names, first = copied
        return Sized(self._native, arithmetic, first, [variables[name] for name in names], self.outline.quick)

    @property
    def shared(self) -> frozenset[tuple[int, int]]:
        """Pairs of an input and an output that may be the same memory: `Wiring.shared`."""
        return self._common.wiring.shared

    def _made(self, sizes: Mapping[str, int], threads: int) -> tuple[Program, Tables | None]:
        """The program for values of the dimension variables, and its tables if native code has made it."""
        made = self.outline.instantiate_natively(sizes, self._native, threads)
        if made is None and self.outline.derivation.varies:
            self._unrecorded.append(dict(sizes))
        return made or (self.outline.instantiate(sizes, self._common.wiring), None)

    @fork_safety.cached_property
    def _native(self) -> Instantiation:
        """What makes programs natively."""
        outline = self.outline
        return Instantiation(outline.rows, self._common, outline.input_kinds, outline.output_kinds)

    @fork_safety.cached_property
    def _common(self) -> Common:
        """What all programs share."""
        outline = self.outline
        constants = [constant if isinstance(constant, np.ndarray) else None for constant in outline.constants]
        wiring = outline.wiring(self.symbols)
        return Common(wiring, constants, outline.input_kinds, outline.output_kinds, self.image, self.flags)
