"""Whole programs under guard pages: each thing that kernels touch lies in memory of its own, between such pages.

    with guards.guarded():
        session = jitonnx.InferenceSession(model)
        session.run(None, feeds)                    # stops the process where a kernel goes beyond what it was given

    guards.survives(lambda: check(model, feeds))    # in a child process: an AssertionError that names the step

Within the block, runs of programs do their steps one by one in Python, as the native driver would: inputs, outputs,
constants, each intermediate buffer of the arena and scratch memory end at a page without access (or begin behind one),
where in a real run something else lies beside them and what goes wrong goes unnoticed. Intermediate buffers and outputs
hold NaN (as integers: -1) before they are written. Loops whose body is one native call are left as they are.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import numpy as np

from jitonnx.engine.programs import CompiledParametricProgram
from jitonnx.runtime.execution_contexts import ExecutionContextPool, Loadable
from jitonnx.runtime.layout import address
from jitonnx.runtime.program import Program, Words
from jitonnx.support.draws import is_state
from tests.kernels.guarded import guarded_bytes

_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_NAME_BYTES = 400
_running = mmap.mmap(-1, _NAME_BYTES)
"""Which step runs, for the parent process to read."""

_T = TypeVar("_T")


@contextmanager
def guarded(in_front: bool = False) -> Iterator[None]:
    """Have sessions that are made within the block run under guard pages, which lie behind what kernels touch.

    in_front: they lie in front of it, what is read or written before a beginning then stops the process.
    """
    made: dict[int, tuple[Program, CompiledParametricProgram, dict[str, int]]] = {}
    make = CompiledParametricProgram._made

    def noted(self: CompiledParametricProgram, sizes: Any, threads: int) -> Any:
        program, tables = make(self, sizes, threads)
        made[id(program)] = program, self, dict(sizes)
        return program, tables

    def prepared(pool: ExecutionContextPool, loadable: Loadable, bases: Words, stamps: Words | None = None) -> Any:
        _, outline, sizes = made.get(id(loadable.program), (None, None, {}))
        return lambda: _Run(loadable, outline, sizes, bases.tolist(), in_front).flags()

    with (
        mock.patch.object(CompiledParametricProgram, "_made", noted),
        mock.patch.object(ExecutionContextPool, "prepared", prepared),
        mock.patch("jitonnx.runtime.executable.make_entry", lambda *_, **__: None),
        mock.patch("jitonnx.engine.resized.supported", lambda: False),
        mock.patch("jitonnx.engine.schedule.bytecode_of", lambda *_: {}),
    ):
        yield


def survives(work: Callable[[], _T]) -> _T:
    """What `work` gives in a child process; AssertionError, with the step that ran, if that is stopped by a signal."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer: tuple[bool, Any] = True, work()
        except BaseException as error:
            answer = False, error
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    name = _running[:].rstrip(b"\0").decode(errors="replace")
    assert not os.WIFSIGNALED(status), f"signal {os.WTERMSIG(status)} in {name}"
    done, result = pickle.loads(text)
    if not done:
        raise result
    return result  # type: ignore[no-any-return]


class _Run:
    """One run of a program. outline, sizes: what it was made of, which tells the buffers of the arena apart."""

    def __init__(
        self,
        loadable: Loadable,
        outline: CompiledParametricProgram | None,
        sizes: dict[str, int],
        bases: list[int],
        front: bool,
    ) -> None:
        self._loadable, self._program, self._front = loadable, loadable.program, front
        program = self._program
        self._words = np.zeros(len(loadable.common.flags), np.int64)
        inputs = len(program.inputs)
        self._given = [
            self._copy(place, int(size)) for place, size in zip(bases[:inputs], program.inputs.nbytes, strict=True)
        ]
        self._results = [self._new(int(size)) for size in program.outputs.nbytes]
        self._places = bases[inputs:]
        flags = {address(flag.word): self._words[number:] for number, flag in enumerate(loadable.common.flags)}
        self._constants = [self._constant(array, flags) for array in program.constants]
        self._arena, self._operands = self._buffers(outline, sizes)

    def _new(self, nbytes: int) -> np.ndarray:
        return guarded_bytes(nbytes, self._front)

    def _copy(self, place: int, nbytes: int) -> np.ndarray:
        memory = self._new(nbytes)
        ctypes.memmove(address(memory), place, nbytes)
        return memory

    def _constant(self, array: np.ndarray, flags: dict[int, np.ndarray]) -> np.ndarray:
        place = address(array)
        if is_state(place):
            return array
        return flags[place] if place in flags else self._copy(place, array.nbytes)

    def _buffers(
        self, compiled: CompiledParametricProgram | None, sizes: dict[str, int]
    ) -> tuple[list[np.ndarray], list[tuple[int, int]]]:
        """The memory of the arena, and for each operand the number of its buffer and its offset there."""
        steps = self._program.steps
        if compiled is None:
            whole = [self._new(self._program.arena_bytes)]
            return whole, [(0, int(offset)) for offset in steps.offsets]
        outline = compiled.outline
        numbers = outline.derivation.evaluate(sizes)
        operands = [operand for call in outline.calls for operand in call.operands]
        return (
            [self._new(numbers[buffer.bytes]) for buffer in outline.arena],
            [(operand.index, numbers[operand.offset]) for operand in operands],
        )

    def flags(self) -> Words:
        """Do all steps, hand on the outputs; the flags that kernels have set."""
        steps, wiring = self._program.steps, self._program.steps.wiring
        begin = 0
        for number, step in enumerate(steps):
            end = int(wiring.ends[number])
            pointers = np.array([self._pointer(place) for place in range(begin, end)], np.int64)
            begin = end
            if not step.tasks:
                continue
            name = f"step {number} ({step.label or step.kernel})".encode()[:_NAME_BYTES]
            _running[:] = name.ljust(_NAME_BYTES, b"\0")
            integers = self._copy_of_words(step.sizes)
            scratch = guarded_bytes(-(-step.scratch // 64) * 64, self._front)
            kernel = _PROTOTYPE(self._loadable.common.addresses[step.kernel])
            kernel(address(pointers), address(integers), 0, step.tasks, address(scratch))
        for place, memory in zip(self._places, self._results, strict=True):
            ctypes.memmove(place, address(memory), memory.nbytes)
        return self._words

    def _copy_of_words(self, words: Sequence[int]) -> np.ndarray:
        memory = self._new(8 * len(words)).view(np.int64)
        memory[:] = words
        return memory

    def _pointer(self, place: int) -> int:
        wiring = self._program.steps.wiring
        index, (buffer, offset) = int(wiring.indices[place]), self._operands[place]
        memory = {0: self._arena, 1: self._constants, 2: self._given, 3: self._results}[int(wiring.spaces[place])]
        return address(memory[buffer if wiring.spaces[place] == 0 else index]) + offset
