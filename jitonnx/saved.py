"""An artifact behind the methods that a session uses of an engine. Imports nothing that compiles."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.dtypes import DType
from jitonnx.ready import Ready
from jitonnx.runtime.artifact import Argument, Artifact, Shapes

_LISTED = 8
"""How many sets of shapes an error lists."""


class RunSettings(NamedTuple):
    """What of an engine's settings an artifact has."""

    threads: int


class SavedEngine:
    """The programs of an artifact; each is made ready when its shapes are first fed."""

    def __init__(self, artifact: Artifact, threads: int) -> None:
        self.artifact = artifact
        self.settings = RunSettings(threads)
        self.declared = [_declaration(argument) for argument in artifact.model.inputs]
        self._numbers = {shapes: number for number, shapes in enumerate(artifact.shapes)}
        self._ready: dict[Shapes, Ready] = {}
        self._lock = threading.Lock()
        self.foreign: str | None = None
        """Nothing speaks against running the code: opening an artifact has made sure of that."""

    @property
    def only_shapes(self) -> Shapes | None:
        """The shapes of the inputs where there is one program."""
        return self.artifact.shapes[0] if len(self.artifact.shapes) == 1 else None

    @property
    def report(self) -> str:
        """What was made of the model, for logs."""
        return f"{len(self.artifact.shapes)} programs by jitonnx {self.artifact.writer}"

    def explanation(self) -> str:
        """What `jitonnx explain` prints; it was kept when the artifact was made, for the first program."""
        shapes = "; ".join(self._text(one) for one in self.artifact.shapes)
        lines = [
            f"{self.artifact.name}: compiled by jitonnx {self.artifact.writer} for the CPU {self.artifact.cpu.name}",
            f"programs for: {shapes}",
        ]
        return "\n".join([*lines, "", self.artifact.explanation()])

    def known_program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes if it has been used before."""
        return self._ready.get(shapes)

    def program(self, shapes: Shapes) -> Ready:
        """The program for these shapes. InvalidArgument, with the shapes that there are, if there is none."""
        with self._lock:
            if shapes not in self._ready:
                if shapes not in self._numbers:
                    raise InvalidArgument(self._missing(shapes))
                saved = self.artifact.program(self._numbers[shapes])
                self._ready[shapes] = Ready(
                    saved.program, self.artifact.addresses, self.settings.threads, self.artifact.flags, saved.keeps_gil
                )
            return self._ready[shapes]

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs whose types have been checked."""
        return self.program(tuple(np.shape(array) for array in inputs)).run(inputs)

    def _missing(self, shapes: Shapes) -> str:
        known = self.artifact.shapes
        more = f"; and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        listed = "; ".join(self._text(one) for one in known[:_LISTED])
        return (
            f"{self.artifact.name} has no program for the shapes {self._text(shapes)}. It was compiled for: "
            f"{listed}{more}. Compile the model for these shapes too (jitonnx compile --shape NAME=1,2,3), or load it "
            "instead of the artifact"
        )

    def _text(self, shapes: Shapes) -> str:
        return ", ".join(f"{entry.name} {list(shape)}" for entry, shape in zip(self.declared, shapes, strict=True))


def _declaration(argument: Argument) -> Declaration:
    element = argument.type.removeprefix("tensor(").removesuffix(")")
    return Declaration(argument.name, argument.type, DType[element.upper()], argument.shape)
