"""A program that is ready to run, whether it was planned in this process or read from an artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from jitonnx.runtime.entry import Entry
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.program import Flag, Program

Runner: TypeAlias = Callable[[Sequence[Any]], list[Any]]
"""Gives the outputs for inputs whose types and shapes have been checked."""
PROGRAMS_KEPT = 1024
"""Programs (one a set of input shapes) that an engine keeps at most; the least recently used go."""
PROGRAM_BYTES = 256 << 20
"""Memory that the programs of an engine may hold, by default."""


class Ready:
    """A program that can run, and its native entry where this Python allows one.

    flags: those among its constants.
    keep_gil: the program is so short that letting go of the GIL would cost more than it brings.
    """

    def __init__(
        self, program: Program, addresses: Mapping[str, int], threads: int, flags: Sequence[Flag], keep_gil: bool
    ) -> None:
        self.executable = Executable(program, addresses, threads, flags)
        self.entry: Entry | None = self.executable.entry(release_gil=not keep_gil)
        self._names = [spec.name for spec in program.inputs]

    def memory_bytes(self) -> int:
        """What it holds: intermediate results and tables, not weights."""
        return self.executable.memory_bytes

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs whose types and shapes have been checked.

        InvalidArgument names the nodes that met an error in the data.
        """
        outputs = None if self.entry is None else self.entry(dict(zip(self._names, inputs, strict=True)))
        return self.executable.run(inputs) if outputs is None else outputs
