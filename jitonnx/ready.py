"""A program that is ready to run, whether it was planned in this process or read from an artifact."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from jitonnx.errors import InvalidArgument
from jitonnx.runtime.entry import Entry
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.program import Flag, Program


class Flags:
    """The flags of one model's code. All of its programs share them, and so do runs that overlap."""

    def __init__(self, flags: Sequence[Flag]) -> None:
        self._flags = list(flags)
        self._checking = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._flags)

    def run(self, executable: Executable, inputs: Sequence[Any]) -> list[Any]:
        """The outputs. InvalidArgument names the node that met an error in the data.

        A run that finds a flag set makes sure, alone, that the error is its own.
        """
        outputs = executable.run(inputs)
        if not any(flag.word[0] for flag in self._flags):
            return outputs
        with self._checking:
            for flag in self._flags:
                flag.word[0] = 0
            outputs = executable.run(inputs)
            if met := [flag.text for flag in self._flags if flag.word[0]]:
                raise InvalidArgument("; ".join(met))
            return outputs


class Ready:
    """A program that can run, and its native entry where this Python allows one.

    keep_gil: the program is so short that letting go of the GIL would cost more than it brings.
    """

    def __init__(
        self, program: Program, addresses: Mapping[str, int], threads: int, flags: Flags, keep_gil: bool
    ) -> None:
        self.executable = Executable(program, addresses, threads)
        self.entry: Entry | None = None if flags else self.executable.entry(release_gil=not keep_gil)
        self._flags = flags

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs whose types and shapes have been checked."""
        return self._flags.run(self.executable, inputs)
