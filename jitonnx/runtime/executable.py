"""A program made ready to run: `Executable(program, common, threads).run(inputs)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from jitonnx.errors import InvalidArgument, RuntimeException
from jitonnx.support import fork_safety

from .entry import Entry, make_entry
from .execution_contexts import ExecutionContextPool, Loadable
from .layout import address
from .program import Program, TensorSpec, Words
from .tables import Common, Tables
from .threads import allowed_cpus

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[np.generic]"


class Executable:
    """A program that is ready to run from any Python thread, several at once.

    program: what to run.
    common: with the addresses of its kernels.
    threads: how many threads a run may use, the calling one included; by default the CPUs this process may use.
    frames: whose memory to run in; a pool of its own where none is given.
    tables: those of the program, if it is laid out already.
    """

    def __init__(
        self,
        program: Program,
        common: Common,
        threads: int | None = None,
        frames: ExecutionContextPool | None = None,
        tables: Tables | None = None,
    ) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads is {threads}; give 1 or more, or None for all CPUs this process may use")
        self.program = program
        self.threads = allowed_cpus() if threads is None else threads
        self.frames = frames or ExecutionContextPool()
        self.loadable = Loadable(program, common, self.threads, zeros=self.frames.zeros, tables=tables)
        self.frames.expect(self.loadable)

    @fork_safety.cached_property
    def _specs(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """The inputs and the outputs."""
        return list(self.program.inputs), list(self.program.outputs)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for these inputs, in the program's order; new C-contiguous arrays, which the caller owns.

        An input is used in place if it is C-contiguous, aligned and in native byte order, and is copied otherwise. The
        GIL is free while kernels run. Raises TypeError or ValueError for a wrong number, type or shape of inputs,
        InvalidArgument with the texts of the flags that kernels have set, RuntimeException for a lack of memory.
        """
        return self.call(inputs).run()

    def call(self, inputs: Sequence[Array], given: Sequence[Array | None] = ()) -> BoundCall:
        """A run on these inputs, which can be repeated; inputs and errors as for `run`.

        given: arrays to write outputs to, None for those that are to be new; `takes` says which can be. They share no
        memory with inputs, but for those that `Wiring.shared` names, or with each other.
        """
        return BoundCall(self.loadable, self.frames, self._ready(inputs), self._outputs(given))

    def entry(self, *, release_gil: bool = True) -> Entry | None:
        """The whole of `run` as one native function of a dict of arrays; None where this Python does not allow it.

        It returns the list of outputs; or None if anything about the dict is unusual, or kernels have set a flag: then
        call `run`, which copies what can be used and says what cannot. `release_gil=False` saves some 0.1 microseconds
        and suits programs of a few microseconds.
        """
        return make_entry(self.loadable, self.frames, release_gil=release_gil)

    def profile(self, inputs: Sequence[Array], rounds: int = 1) -> npt.NDArray[np.float64]:
        """Seconds from the end of the step before to the end of each step, by all threads: [rounds, steps].

        The clock is read after each step, which costs some 30 ns a step that `run` does not pay.
        """
        return self._timed(self._ready(inputs), self._new_outputs(), rounds)

    def run_timed(self, inputs: Sequence[Array]) -> tuple[list[Array], npt.NDArray[np.float64]]:
        """The outputs as `run` gives them, and the seconds that each step took as `profile` does: [steps]."""
        outputs = self._new_outputs()
        return outputs, self._timed(self._ready(inputs), outputs, 1)[0]

    def _timed(self, arrays: list[Array], outputs: list[Array], rounds: int) -> npt.NDArray[np.float64]:
        stamps = np.zeros((rounds, len(self.program.steps) + 1), np.int64)
        for row in stamps:
            BoundCall(self.loadable, self.frames, arrays, outputs, row).run()
        return np.diff(stamps, axis=1) * 1e-9

    @property
    def memory_bytes(self) -> int:
        """About the bytes of memory that the program holds besides its constants and the frames that it runs in."""
        return self.loadable.bytes

    def trim(self) -> None:
        """Free the arenas that no run is using. The next run takes memory again."""
        self.frames.trim()

    @property
    def shared(self) -> frozenset[tuple[int, int]]:
        """Pairs of an input and an output that may be the same memory: `Wiring.shared`."""
        return self.program.steps.wiring.shared

    def takes(self, index: int, array: Array) -> bool:
        """Whether kernels can write an output where this array lies."""
        spec, flags = self._specs[1][index], array.flags
        fits = array.shape == spec.shape and array.dtype == spec.dtype and not spec.dtype.hasobject
        return fits and flags.c_contiguous and flags.aligned and flags.writeable

    def _outputs(self, given: Sequence[Array | None]) -> list[Array]:
        if not given:
            return self._new_outputs()
        if len(given) != len(self._specs[1]):
            raise ValueError(f"the program has {len(self._specs[1])} outputs, but {len(given)} were given")
        outputs = []
        for index, (spec, array) in enumerate(zip(self._specs[1], given, strict=True)):
            if array is not None and not self.takes(index, array):
                raise ValueError(f"output {spec.name!r} cannot be written to an array of {array.dtype} {array.shape}")
            outputs.append(_new_output(spec) if array is None else array)
        return outputs

    def _new_outputs(self) -> list[Array]:
        return [_new_output(spec) for spec in self._specs[1]]

    def _ready(self, inputs: Sequence[Array]) -> list[Array]:
        specs = self._specs[0]
        if len(inputs) != len(specs):
            raise ValueError(f"the program has {len(specs)} inputs, but {len(inputs)} were given")
        return [_ready(array, spec) for array, spec in zip(inputs, specs, strict=True)]


class BoundCall:
    """A run of a program on certain arrays, which are read and written where they lie, each time that it is repeated.

    stamps: as for `ExecutionContextPool.execute`.
    """

    def __init__(
        self,
        program: Loadable,
        pool: ExecutionContextPool,
        inputs: list[Array],
        outputs: list[Array],
        stamps: Words | None = None,
    ) -> None:
        self._flags, self._outputs = program.common.flags, outputs
        self._bases = np.array(_places(inputs, outputs), np.int64)
        self._execute = pool.prepared(program, self._bases, stamps)
        self._kept = program, pool, inputs, stamps

    def run(self) -> list[Array]:
        """The outputs. InvalidArgument with the texts of the flags that kernels have set."""
        words = self._execute()
        if len(words) and words.any():
            met = [flag.text for flag, word in zip(self._flags, words, strict=True) if word]
            raise InvalidArgument("; ".join(met))
        return self._outputs


def _places(inputs: Sequence[Array], outputs: Sequence[Array]) -> list[int]:
    """The addresses of inputs and outputs; 0 for inputs of strings, of which only the shape counts."""
    return [0 if array.dtype.hasobject else address(array) for array in inputs] + [address(array) for array in outputs]


def _new_output(spec: TensorSpec) -> Array:
    try:
        return np.empty(spec.shape, spec.dtype)
    except MemoryError as error:
        raise RuntimeException(f"There is not enough memory for output {spec.name!r}: {error}") from error


def _ready(array: Array, spec: TensorSpec) -> Array:
    """The array itself if kernels can read it in place, else a copy that they can."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"input {spec.name!r} is a {type(array).__name__}; give a NumPy array of {spec.dtype}")
    if array.dtype.newbyteorder("=") != spec.dtype:
        raise TypeError(f"input {spec.name!r} has the type {array.dtype}; the program takes {spec.dtype}")
    if array.shape != spec.shape:
        raise ValueError(f"input {spec.name!r} has the shape {array.shape}; this program is for {spec.shape}")
    return np.require(array, spec.dtype, ["C", "A"]).reshape(spec.shape)
