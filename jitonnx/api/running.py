"""All runs of a model: what is usual in one native call, what is not step by step.

A run that is like the one before it (a dict of arrays of the same shapes, all outputs wanted) is one call of native
code, `Runs.entry`, which returns None whenever anything is unusual. What is unusual is looked at here: another program
that exists already, then every feed by itself, then a program made for new shapes.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar

import numpy as np

from jitonnx.api import feeds as feeding
from jitonnx.api.entries import STRICT
from jitonnx.api.options import RunOptions
from jitonnx.api.targets import Placed, Targets, all_in_place, check_shapes, copied, in_place
from jitonnx.errors import EngineError, Fail, InvalidArgument, RuntimeException
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.defects import is_defect, strict, told
from jitonnx.ir.errors import GraphError, InferenceError
from jitonnx.support import fork_safety
from jitonnx.support.cancellation import check_end, ended_by
from jitonnx.support.mapped_files import FileMap, check_unchanged
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import TypeIs

    from jitonnx.api.loading import OpenedModel
    from jitonnx.api.profiling import Profile
    from jitonnx.api.saved.engine import SavedEngine
    from jitonnx.engine.background import BackgroundEngine
    from jitonnx.engine.pipeline import Engine
    from jitonnx.engine.programs import RunnableProgram
    from jitonnx.engine.resized import Resized
    from jitonnx.runtime.executable import Executable
    from jitonnx.runtime.program import Shapes

    AnyEngine: TypeAlias = Engine | SavedEngine | BackgroundEngine

_T = TypeVar("_T")

Outputs: TypeAlias = list[Any]


class BoundEngine:
    """An engine and the inputs it takes, in order."""

    def __init__(self, declared: Sequence[Declaration], engine: AnyEngine) -> None:
        self.declared, self.engine = declared, engine
        self.names = [entry.name for entry in declared]
        self.plain, self.named = feeding.PlainInputs(declared), feeding.NamedSizes(declared)

    def shapes(self, feeds: Any) -> Shapes | None:
        """The shapes of feeds; None if they are not a mapping of arrays. What says its shape as anything but a tuple is
        none."""
        try:
            shapes = tuple([feeds[name].shape for name in self.names])
            hash(shapes)
        except (KeyError, AttributeError, TypeError, IndexError):
            return None
        return shapes


def in_background(engine: AnyEngine) -> TypeIs[BackgroundEngine]:
    """Whether an engine was left to the background, made by now or not."""
    return hasattr(engine, "wait")  # no isinstance: an artifact opens without the module of the class


class _Resized(NamedTuple):
    """What runs inputs of new sizes. as_declared: outputs are as the model declares them, whatever the sizes."""

    runs: Resized
    as_declared: bool


class Closable(Protocol):
    """What refuses to be used from a time on."""

    def close(self) -> None:
        """Refuse from now on."""


class Runs:
    """The runs of a session's model. profile: where times are noted, if they are."""

    def __init__(self, model: OpenedModel, *, strict: bool, profile: Profile | None) -> None:
        self._model, self._strict = model, strict
        self._lock = fork_safety.lock()
        """Held where something is done once."""
        self.profile = profile
        self._disagreed = self._contradicted = self._is_closed = False
        description = model.description
        self._output_sizes = feeding.OutputSizes(
            model.main.declared, description.declared_outputs, description.warnings
        )
        self._names = [output.name for output in model.description.outputs]
        self._sparse = any(output.type.startswith("sparse_tensor") for output in model.description.outputs)
        self.entry: Callable[[Any], Outputs | None] = _look_closer
        """Gives all outputs for feeds like those of the last run; None if anything about them is unusual."""
        self._resized: _Resized | None = None
        """What runs inputs of new sizes that are like the last ones."""
        self._closing: weakref.WeakSet[Closable] = weakref.WeakSet()
        """What is closed with the session."""
        self.warm_up()

    def warm_up(self) -> None:
        """Let the first run be like others, where the model runs with one set of shapes only."""
        program = self._model.warm_up()
        if program is not None and program.entry is not None and self.profile is None:
            self._expect(program.entry)

    def end_profiling(self) -> Profile | None:
        """Note no more times; returns the profile, once."""
        with self._lock:
            profile, self.profile = self.profile, None
        return profile

    def close(self) -> None:
        """Refuse further runs; those that have begun end well."""
        self._is_closed = True
        self.entry = _closed
        for one in list(self._closing):
            one.close()

    def close_with_session(self, one: Closable) -> None:
        """Have something closed when the session is, or now if it is already."""
        self._closing.add(one)
        if self._is_closed:
            one.close()

    def program(self, shapes: Shapes) -> RunnableProgram | None:
        """The program for inputs of these shapes; None where a run is more than one native call.

        Waits for what is compiled in the background. Errors as for runs of such shapes.
        """
        self.check_open()
        main = self._model.main
        self._check_agreement(main, shapes)
        with explained():
            main.engine.complete()
            while True:
                try:
                    program = main.engine.program(shapes)
                    break
                except Exception as error:
                    main = self._model.exchanged(main, error)
        if program is not None:
            self._check_program(main, shapes, program)
        return program

    def _expect(self, entry: Callable[[Any], Outputs | None]) -> None:
        """Let the next run be like one of this entry."""
        files = self._files_read()
        self.entry = functools.partial(_unchanged, files, entry) if files else entry
        if self._is_closed:  # meanwhile, by another thread
            self.entry = _closed

    def _files_read(self) -> list[FileMap]:
        """The mapped files that runs read. They are compared with what they were before each run and behind it."""
        return [file for file in self._model.files if file.is_read]

    def run(self, output_names: Any, feeds: Mapping[str, Any], run_options: RunOptions | None) -> Outputs:
        """Any run at all. Arguments as for `InferenceSession.run`."""
        selection = self.selection(output_names)
        with obeying(run_options):
            outputs = self.all_outputs(feeds if run_options is None else run_options.with_adapters(feeds))
        if selection is None:
            return outputs
        # An output wanted twice is two arrays.
        return [
            outputs[index] if index not in selection[:place] else outputs[index].copy()
            for place, index in enumerate(selection)
        ]

    def submit(self, run: Callable[[], Outputs], feeds: Any, callback: Any, user_data: Any) -> Future[Outputs]:
        """`run` on a thread of its own, and then `callback(outputs, user_data, error)`; names are checked at once."""
        self.check_open()
        feeding.check_names(feeds, self._model.main.names, self._model.description.overridable)
        with fork_safety.critical:
            from concurrent.futures import ThreadPoolExecutor

        executor = ThreadPoolExecutor(1, "jitonnx-run")
        future = executor.submit(run)
        if callback is not None:
            called = executor.submit(_call_back, future, feeds, callback, user_data)
            called.add_done_callback(self._log_callback)
        executor.shutdown(wait=False)
        return future

    def _log_callback(self, called: Future[None]) -> None:
        error = called.exception()
        if error is not None:
            self._model.logger.error("the callback of run_async raised %r", error, exc_info=error)

    def selection(self, output_names: Any) -> list[int] | None:
        """Positions of the outputs wanted; None: all of them, in order."""
        if not output_names:
            return None
        if isinstance(output_names, str) or not all(isinstance(name, str) for name in output_names):
            raise TypeError(f"output_names must be a list of str, or None for all outputs; got {output_names!r}")
        names = self._names
        for name in output_names:
            if name not in names:
                raise feeding.unknown_output(name, names)
        return None if list(output_names) == names else [names.index(name) for name in output_names]

    def all_outputs(self, feeds: Any) -> Outputs:
        """All outputs. Shapes that there is a program for cost little; everything else is checked with care."""
        outputs = self.entry(feeds)
        if outputs is not None:
            return outputs
        if not len(self._model.files):
            return self._unlike_before(feeds)
        with self._unchanged_files():
            return self._unlike_before(feeds)

    def _unlike_before(self, feeds: Any) -> Outputs:
        main = self._model.main
        shapes = main.shapes(feeds)
        program = None if shapes is None else main.engine.known_program(shapes)
        if program is not None and program.entry is not None and self.profile is None and not self._refuses():
            outputs = program.entry(feeds)
            if outputs is not None:
                self._expect(program.entry)
                return outputs
        resized = self._resized
        # Sizes that come back get a program of their own, which runs at once from then on.
        if resized is not None and program is None and shapes is not None and not resized.runs.met(shapes):
            outputs = self._run_resized(resized, main, feeds, [None] * len(self._names))
            if outputs is not None:
                return outputs
        return self._carefully(main, feeds)

    def run_into(self, feeds: Any, targets: Targets, *, repeated: bool) -> Placed:
        """All outputs; those with a target are in its memory. InvalidArgument for one that does not fit.

        repeated: the run before was on the same memory.
        """
        self.check_open()
        with self._unchanged_files():
            placed = self._run_into(feeds, targets, repeated=repeated)
        again, files = placed.again, self._files_read()
        return placed if again is None or not files else placed._replace(again=lambda: _checked(files, again))

    @contextmanager
    def _unchanged_files(self) -> Iterator[None]:
        """Fail if a file that is read within the block is written to."""
        with explained():
            check_unchanged(self._files_read())
            yield
            check_unchanged(self._files_read())

    def _run_into(self, feeds: Any, targets: Targets, *, repeated: bool) -> Placed:
        main, resized = self._model.main, self._resized
        if resized is not None and not repeated:
            made = self._run_resized(resized, main, feeds, targets)
            if made is not None:
                return Placed(made, None)
        bound, arrays, shapes = self._read(main, feeds)
        profile = self.profile
        with explained():
            bound, program, outputs = self._served(bound, arrays, shapes)
            if program is None:
                self._check_outputs(bound, shapes, outputs)
        if program is not None:
            self._check_program(bound, shapes, program)
            self._expect_like(bound, shapes)
            check_shapes(self._names, [spec.shape for spec in program.executable.program.outputs], targets)
            direct = in_place(program.executable, arrays, targets)
            call = program.executable.call(arrays, direct)
            outputs = call.run() if profile is None else self._timed(profile, bound, program.executable, arrays, shapes)
            if profile is None and all_in_place(bound.names, feeds, arrays, direct, targets):
                return Placed(outputs, call.run)
        check_shapes(self._names, [np.shape(output) for output in outputs], targets)
        return Placed(copied(outputs, targets), None)

    def check_open(self) -> None:
        """RuntimeError if the session is closed."""
        if self._is_closed:
            raise closed()

    def _carefully(self, main: BoundEngine, feeds: Any) -> Outputs:
        """All outputs, every feed looked at by itself."""
        bound, arrays, shapes = self._read(main, feeds)
        profile = self.profile
        with explained():
            bound, program, outputs = self._served(bound, arrays, shapes)
            if program is None:
                self._check_outputs(bound, shapes, outputs)
                runner = None if profile or self._strict or self._sparse else bound.engine.runner(shapes)
                entry = None if runner is None else feeding.plain_entry(bound.declared, shapes, runner)
                if entry is not None:
                    self._expect(entry)
                return outputs
        self._check_program(bound, shapes, program)
        self._expect_like(bound, shapes)
        if profile is not None:
            return self._timed(profile, bound, program.executable, arrays, shapes)
        if program.entry is not None:
            self._expect(program.entry)
        return program.run(arrays)

    def _served(
        self, bound: BoundEngine, arrays: list[np.ndarray], shapes: Shapes
    ) -> tuple[BoundEngine, RunnableProgram | None, Outputs]:
        """The engine, and its program for these shapes; else the outputs. An engine that fails in itself is exchanged
        for one that does less.
        """
        while True:
            try:
                program = bound.engine.program(shapes)
                return bound, program, [] if program is not None else self._handed_out(bound.engine.run(arrays))
            except Exception as error:
                bound = self._model.exchanged(bound, error)

    def _handed_out(self, outputs: Outputs) -> Outputs:
        """The outputs of an interpreter as users get them."""
        if not self._sparse:
            return outputs
        with fork_safety.critical:
            from jitonnx.api.sparse import handed_out
        return [handed_out(output) for output in outputs]

    def _run_resized(self, resized: _Resized, main: BoundEngine, feeds: Any, targets: Targets) -> Outputs | None:
        """All outputs for inputs of new sizes, by native code alone; None where anything is unusual."""
        if type(feeds) is not dict or len(feeds) != len(main.names) or self.profile is not None or self._is_closed:
            return None
        try:
            arrays = [feeds[name] for name in main.names]
        except KeyError:
            return None
        arrays += targets
        try:
            if not resized.runs.run(arrays):
                return None
        except Exception as error:
            if not is_defect(error):
                raise
            return None  # a closer look tells what to do without
        outputs = arrays[len(main.names) :]
        if not (resized.as_declared or self._contradicted):
            self._check_outputs(main, tuple([array.shape for array in arrays[: len(main.names)]]), outputs)
        return outputs

    def _expect_like(self, bound: BoundEngine, shapes: Shapes) -> None:
        """Let runs of new sizes that are like these be native."""
        if self._strict or self.profile is not None or bound is not self._model.main:
            return
        runs = bound.engine.resized(shapes)
        if runs is None or (self._resized is not None and self._resized.runs is runs):
            return
        self._resized = _Resized(runs, self._output_sizes.contradiction(runs.inputs, runs.outputs) is None)

    def _read(self, main: BoundEngine, feeds: Any) -> tuple[BoundEngine, list[np.ndarray], Shapes]:
        """The engine for these feeds, the arrays that it takes, and their shapes."""
        bound, arrays = main, main.plain.arrays(feeds)
        if arrays is None:
            feeding.check_names(feeds, bound.names, self._model.description.overridable)
            bound = self._model.bound(feeds)
            arrays = [_read(feeds[declared.name], declared) for declared in bound.declared]
        shapes = tuple([getattr(array, "shape", ()) for array in arrays])
        if bound.engine.known_program(shapes) is None:
            self._check_agreement(bound, shapes)
        return bound, arrays, shapes

    def _check_agreement(self, bound: BoundEngine, shapes: Shapes) -> None:
        """Warn once of inputs that disagree on a dimension; InvalidArgument in strict mode."""
        text = bound.named.disagreement(shapes)
        if text is None:
            return
        if self._strict:
            raise InvalidArgument(f"inputs disagree: {text}. (The session configuration entry {STRICT} is 1.)")
        with self._lock:
            known, self._disagreed = self._disagreed, True
        if not known:
            warnings.warn(
                f"inputs disagree: {text}. For such inputs the model is planned once more, without what it says of its "
                f"dimensions; set the session configuration entry {STRICT} to 1 to get an error instead",
                stacklevel=7,
            )

    def _refuses(self) -> bool:
        """Whether some programs may not be run, since they contradict what is declared."""
        return self._strict and self._contradicted

    def _timed(
        self, profile: Profile, bound: BoundEngine, executable: Executable, arrays: list[np.ndarray], shapes: Shapes
    ) -> Outputs:
        """The outputs of a run that is written down, step by step, with the nodes that steps stand for."""
        from jitonnx.engine.pipeline import Engine

        engine = bound.engine
        compiled = engine.serving(shapes).compiled if isinstance(engine, Engine) else None
        nodes = [call.origin for call in compiled.plan.calls] if compiled is not None else []
        operators = {node.name: node.operator for node in self._model.description.nodes}
        return profile.run(executable, arrays, nodes, operators)

    def _check_program(self, bound: BoundEngine, shapes: Shapes, program: RunnableProgram) -> None:
        """Check outputs as `_check_outputs` does, before the first run of a program."""
        if program.is_compared or (self._contradicted and not self._strict):
            return
        outputs = program.executable.program.outputs
        sizes = [row[:rank] for row, rank in zip(outputs.shapes.tolist(), outputs.kinds.ranks, strict=True)]
        self._tell(self._output_sizes.contradiction(shapes, sizes), bound, shapes)
        program.is_compared = True

    def _check_outputs(self, bound: BoundEngine, shapes: Shapes, outputs: Outputs) -> None:
        """Warn once of outputs of other sizes than declared; InvalidArgument in strict mode."""
        if not self._contradicted or self._strict:
            sizes = [output.shape if isinstance(output, np.ndarray) else None for output in outputs]
            self._tell(self._output_sizes.contradiction(shapes, sizes), bound, shapes)

    def _tell(self, text: str | None, bound: BoundEngine, shapes: Shapes) -> None:
        if text is None or bound.named.disagreement(shapes) is not None:  # of which was told
            return
        with self._lock:
            known, self._contradicted = self._contradicted, True
        if self._strict:
            raise InvalidArgument(
                f"an output is not as it is declared: {text}. (The session configuration entry {STRICT} is 1.)"
            )
        if not known:
            warnings.warn(
                f"an output is not as it is declared: {text}. The declaration is ignored; set the session "
                f"configuration entry {STRICT} to 1 to get an error instead",
                stacklevel=7,
            )


@contextmanager
def obeying(run_options: RunOptions | None) -> Iterator[None]:
    """A block in which runs end where these options say so.

    TypeError for what are no options of a run; Fail if they say from the beginning that it is to end.
    """
    if run_options is None:
        yield
        return
    if not isinstance(run_options, RunOptions):
        raise TypeError(f"run_options is a {type(run_options).__name__}, not a jitonnx.RunOptions")
    with ended_by(lambda: run_options.terminate):
        check_end()
        yield


def _read(value: Any, declared: Declaration) -> Any:
    if declared.is_tensor:
        return feeding.read(value, declared)
    with fork_safety.critical:
        from jitonnx.api.containers import read_value

    return read_value(value, declared)


def _unchanged(files: Sequence[FileMap], entry: Callable[[Any], Outputs | None], feeds: Any) -> Outputs | None:
    """The outputs of an entry. Fail if one of the files was written to by the end of the run."""
    return _checked(files, lambda: entry(feeds))


def _checked(files: Sequence[FileMap], run: Callable[[], _T]) -> _T:
    check_unchanged(files)
    outputs = run()
    check_unchanged(files)
    return outputs


def _look_closer(feeds: Any) -> None:
    """The entry of a session that has no native one."""


def _closed(feeds: Any) -> NoReturn:
    raise closed()


def closed() -> RuntimeError:
    """The error for what a closed session cannot do any more."""
    return RuntimeError("the session is closed")


def _call_back(
    future: Future[Outputs], feeds: Any, callback: Callable[[Outputs, Any, str], Any], user_data: Any
) -> None:
    """Call back with what came of the run. feeds: kept until then, as by onnxruntime, for a callback that looks at what
    it has a weak reference to or the address of."""
    error = future.exception()
    callback([] if error else future.result(), user_data, str(error) if error else "")


@contextmanager
def explained() -> Iterator[None]:
    """Errors about a graph leave as Fail: they name the node, its operator and its inputs already. A lack of memory
    leaves as RuntimeException, and what failed in itself, with nothing left to do without, as EngineError.
    """
    try:
        yield
    except Exception as error:
        known = _as_ours(error)
        if known is None:
            raise
        raise known from error


def _as_ours(error: Exception) -> Exception | None:
    """The error to raise in the place of another; None if that one is fit to be seen."""
    if isinstance(error, MemoryError):
        return RuntimeException(f"There is not enough memory for the model at these sizes: {error}")
    if is_defect(error):
        return None if strict() else EngineError(f"jitonnx failed: {told(error)}. Please report this with the model")
    return Fail(str(error)) if isinstance(error, (GraphError, InferenceError)) else None
