"""`InferenceSession`: a model, compiled, behind onnxruntime's interface.

A run that is like the one before it (a dict of arrays of the same shapes, all outputs wanted) is one call of native
code, `self._entry`, which returns None whenever anything is unusual. What is unusual is looked at here, step by step:
another program that exists already, then every feed by itself, then a program made for new shapes.

What compiles a model is imported by the methods that need it: opening an artifact needs none of it.
"""

from __future__ import annotations

import copy
import functools
import gc
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from jitonnx.api import feeds as feeding
from jitonnx.api.arguments import disabled_rewrites, kept_source, own_options, thread_count
from jitonnx.api.description import ModelNode, argument_arg, input_arg, model_nodes, output_arg
from jitonnx.api.entries import (
    EXTERNAL_DATA_FOLDER,
    MODEL_FORMAT,
    STRICT,
    VERIFY,
    check_entries,
    program_bytes,
    switch,
)
from jitonnx.api.options import RunOptions, SessionOptions
from jitonnx.api.providers import CPU, check_providers
from jitonnx.errors import Fail, InvalidArgument, ModelLoadCanceled, RuntimeException
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.errors import GraphError, InferenceError
from jitonnx.metadata import ModelMetadata, NodeArg
from jitonnx.runtime.artifact import Artifact, ArtifactError, is_artifact, open_artifact
from jitonnx.runtime.cache import KernelCache, default_directory
from jitonnx.saved import whole
from jitonnx.saved.engine import SavedEngine

if TYPE_CHECKING:
    import logging
    from concurrent.futures import Future

    from typing_extensions import TypeIs

    from jitonnx.api.profiling import Profile
    from jitonnx.engine.background import BackgroundEngine
    from jitonnx.engine.pipeline import Engine
    from jitonnx.ir.graph import Graph
    from jitonnx.jobs import Workshop
    from jitonnx.model import Model
    from jitonnx.runtime.program import Shapes
    from jitonnx.saved.saving import NamedShapes

Outputs: TypeAlias = list[Any]

_KNOWN_KEYWORDS = {"enable_fallback", "read_config_from_model", "disabled_optimizers"}


progress: Callable[[int, int], None] | None = None
"""Called as progress(done, all) while sessions made from now on compile kernels, in the place of showing it on a
terminal."""


class CompileStatus(NamedTuple):
    """How far the code of a session's model is; see `InferenceSession.compile_status`."""

    state: str
    """compiled, compiling (in the background, while runs are evaluated on NumPy) or failed."""
    kernels_done: int
    kernels: int
    """How many kernels are to be compiled; 0 until that is known, and where all were in the cache."""
    numpy_runs: int
    """Runs that were evaluated on NumPy as a whole, because there was no code yet."""


class InferenceSession:
    """A model that is loaded, compiled and ready to run; from several Python threads at once if need be.

    path_or_bytes: a path, the file's bytes, a binary file object, or a ModelProto; of an ONNX model, or of an artifact
    that `save` wrote, which is ready at once and only takes the shapes, and ranges of them, that it was saved for.
    sess_options: a `SessionOptions`.
    providers, provider_options: as for onnxruntime; jitonnx has the CPU's alone and warns of others.
    disabled_optimizers: names of rewrites that are not to be made; docs/passes.md lists them.

    A model whose inputs have fixed shapes is ready to run when this returns. One with dimension variables is planned
    and compiled, and the first run with new shapes only works out sizes.

    Raises jitonnx.errors.Error (its subclasses are onnxruntime's errors, by name) for a model that cannot be used.

    A session can be pickled: it is then loaded again, with its kernels from the cache. In a `with` statement it is
    closed at the end.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Any = None,
        provider_options: Any = None,
        **kwargs: Any,
    ) -> None:
        if unknown := sorted(set(kwargs) - _KNOWN_KEYWORDS):
            warnings.warn(f"InferenceSession does not know the arguments {', '.join(unknown)}", stacklevel=2)
        self._sess_options = own_options(sess_options)
        check_entries(self._sess_options)
        check_providers(providers, provider_options, self._sess_options)
        self._source = kept_source(path_or_bytes)
        self._providers_asked = (providers, provider_options)
        self._disabled = disabled_rewrites(kwargs.get("disabled_optimizers") or (), self._sess_options)
        self._model_path = self._source if isinstance(self._source, str) else None
        if self._sess_options.log_severity_level != -1:
            _ = self._logger  # which refuses a severity that there is not
        self._profile = _profile(self._sess_options)
        self._disagreed = False
        self._workshop: Workshop | None = None
        self._whole: whole.Whole | None = None
        """What the session was opened from, if from the kernel cache, as long as the model itself is not loaded."""
        self._loading = threading.Lock()
        self._entry: Callable[[Any], Outputs | None] = _look_closer
        self._create()
        self._own_attributes = frozenset(self.__dict__)

    # ------------------------------------------------------------ running

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> Outputs:
        """The outputs for these inputs: new C-contiguous arrays, which the caller owns.

        output_names: which outputs, in which order; None or nothing: all, in the model's order.
        input_feed: for every input, by name, an array of the type and shape that `get_inputs` tells: of any strides and
        byte order, writeable or not; it is not changed. Lists and numbers become arrays of the input's type. Anything
        else with `__array__` or `__dlpack__` will do.
        run_options: a `RunOptions`, of which only `terminate` means something.

        InvalidArgument (also a ValueError) names the input or output that does not fit, and what would; TypeError says
        that the names or the feeds are of the wrong kind. RuntimeException is about the run itself: an operator that
        fails, or a lack of memory.
        """
        if run_options is None and (not output_names or output_names == self._output_names):
            outputs = self._entry(input_feed)
            if outputs is not None:
                return outputs
        return self._run(output_names, input_feed, run_options)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Outputs, Any, str], Any] | None = None,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> Future[Outputs]:
        """`run` on a thread of its own, which then calls `callback(outputs, user_data, error)`.

        `error` is "" if all went well, and `outputs` is [] if not. Names are checked at once. Returns a future of the
        outputs (onnxruntime returns nothing).
        """
        if self._entry is _closed:
            _closed(input_feed)
        self._selection(output_names)
        feeding.check_names(input_feed, self._main.names, self._overridable)
        from concurrent.futures import ThreadPoolExecutor

        executor = ThreadPoolExecutor(1, "jitonnx-run")
        future = executor.submit(self.run, output_names, input_feed, run_options)
        if callback is not None:
            called = executor.submit(_call_back, future, callback, user_data)
            called.add_done_callback(self._log_callback)
        executor.shutdown(wait=False)
        return future

    @property
    def _logger(self) -> logging.Logger:
        from jitonnx.log import session_logger

        return session_logger(self._sess_options.log_severity_level, self._sess_options.logid)

    def _log_callback(self, called: Future[None]) -> None:
        error = called.exception()
        if error is not None:
            self._logger.error("the callback of run_async raised %r", error, exc_info=error)

    def _run(self, output_names: Any, feeds: Mapping[str, Any], run_options: RunOptions | None) -> Outputs:
        """Any run at all."""
        if run_options is not None and not isinstance(run_options, RunOptions):
            raise TypeError(f"run_options is a {type(run_options).__name__}, not a jitonnx.RunOptions")
        selection = self._selection(output_names)
        if run_options is not None and run_options.terminate:
            raise Fail("Exiting due to terminate flag being set to true.")
        outputs = self._all_outputs(feeds)
        if selection is None:
            return outputs
        # An output wanted twice is two arrays.
        return [
            outputs[index] if index not in selection[:place] else outputs[index].copy()
            for place, index in enumerate(selection)
        ]

    def _selection(self, output_names: Any) -> list[int] | None:
        """Positions of the outputs wanted; None: all of them, in order."""
        if not output_names:
            return None
        if isinstance(output_names, str) or not all(isinstance(name, str) for name in output_names):
            raise TypeError(f"output_names must be a list of str, or None for all outputs; got {output_names!r}")
        names = self._output_names
        for name in output_names:
            if name not in names:
                raise feeding.unknown_output(name, names)
        return None if list(output_names) == names else [names.index(name) for name in output_names]

    def _all_outputs(self, feeds: Any) -> Outputs:
        """All outputs. Shapes that there is a program for cost little; everything else is checked with care."""
        outputs = self._entry(feeds)
        if outputs is not None:
            return outputs
        program = self._main.known_program(feeds)
        if program is not None and program.entry is not None and self._profile is None:
            outputs = program.entry(feeds)
            if outputs is not None:
                self._entry = program.entry
                return outputs
        return self._carefully(feeds)

    def _carefully(self, feeds: Any) -> Outputs:
        """All outputs, every feed looked at by itself."""
        bound, arrays = self._main, self._main.plain.arrays(feeds)
        if arrays is None:
            feeding.check_names(feeds, self._main.names, self._overridable)
            bound = self._bound(feeds)
            arrays = [feeding.read(feeds[declared.name], declared) for declared in bound.declared]
        shapes = tuple(array.shape for array in arrays)
        if bound.engine.known_program(shapes) is None:
            self._check_agreement(bound, shapes)
        with _explained():
            program = bound.engine.program(shapes)
            if program is None:
                outputs = bound.engine.run(arrays)
                runner = None if self._profile else bound.engine.runner(shapes)
                if runner is not None:
                    self._entry = feeding.plain_entry(bound.declared, shapes, runner) or self._entry
                return outputs
        if self._profile is not None:
            return self._profile.run(program.executable, arrays)
        if program.entry is not None:
            self._entry = program.entry
        return program.run(arrays)

    def _bound(self, feeds: Mapping[str, Any]) -> _Bound:
        """The engine for the inputs that are fed: initializers that are fed too need one of their own."""
        fed = tuple(name for name in self._overridable if name in feeds)
        if not fed:
            return self._main
        if fed not in self._overriding:
            from jitonnx.model.variants import with_inputs

            assert self._with_defaults is not None
            declared = [self._overridable[name] for name in fed]
            with _explained():
                engine = self._engine(with_inputs(self._with_defaults, declared))
            self._overriding[fed] = _Bound([*self._main.declared, *declared], engine)
        return self._overriding[fed]

    def _check_agreement(self, bound: _Bound, shapes: Shapes) -> None:
        """Warn once of inputs that disagree on a dimension; InvalidArgument in strict mode."""
        text = bound.named.disagreement(shapes)
        if text is None:
            return
        if self._sess_options.entry(STRICT) == "1":
            raise InvalidArgument(f"inputs disagree: {text}. (The session configuration entry {STRICT} is 1.)")
        if not self._disagreed:
            self._disagreed = True
            warnings.warn(
                f"inputs disagree: {text}. The model is compiled anew for such shapes; set the session configuration "
                f"entry {STRICT} to 1 to get an error instead",
                stacklevel=6,
            )

    # ------------------------------------------------------------ making

    def _create(self) -> None:
        """Load the model and make its engine, without looking for garbage meanwhile: 6 % of a small model's start."""
        collects = gc.isenabled()
        gc.disable()
        try:
            self._open()
        finally:
            if collects:
                gc.enable()

    def _open(self) -> None:
        """Load the model and make its engine."""
        loaded = started = time.perf_counter()
        if is_artifact(self._source):
            self._open_artifact()
            self._warm_up()
        elif self._open_whole():
            self._warm_up()
        else:
            model = self._loaded(self._source)
            loaded = time.perf_counter()
            self._compile(model)
            self._warm_up()
            self._keep_whole(model)
        ended = time.perf_counter()
        if self._profile is not None:
            self._profile.add("model_loading", started, loaded)
            self._profile.add("session_initialization", loaded, ended)
        name = self._model_path or "model"
        if "logging" in sys.modules:  # else nobody has asked for messages
            made = self._made
            report = "runs are evaluated on NumPy until it is compiled" if made is None else made.report
            if self._whole is not None:
                report = f"taken as a whole from the kernel cache {default_directory()}"
            self._logger.info("%s is ready after %.2f s; %s", name, ended - started, report)

    def _open_artifact(self) -> None:
        """Take everything from an artifact. Fail tells what is wrong with it."""
        self._check_options()
        options = self._sess_options
        if options.replaced_initializers() or options.fixed_dimensions():
            raise Fail("initializers and dimensions can be replaced in a model, but not in an artifact made of it")
        try:
            artifact = open_artifact(self._source, switch(options, VERIFY, False))
        except ArtifactError as error:
            raise Fail(str(error)) from error
        self._take(artifact, thread_count(options.intra_op_num_threads, artifact.threads))

    def _take(self, artifact: Artifact, threads: int) -> None:
        """Take everything from an artifact."""
        model = artifact.model
        self._inputs_meta = [argument_arg(argument) for argument in model.inputs]
        self._overridable_meta: list[NodeArg] = []
        self._outputs_meta = [argument_arg(argument) for argument in model.outputs]
        self._output_names = [argument.name for argument in model.outputs]
        self._model_meta = model.metadata
        self._nodes: list[ModelNode] = []
        self._overridable: dict[str, Declaration] = {}
        self._with_defaults: Graph | None = None
        self._overriding: dict[tuple[str, ...], _Bound] = {}
        engine = SavedEngine(artifact, threads, program_bytes(self._sess_options))
        self._main = _Bound(engine.declared, engine)

    def _open_whole(self) -> bool:
        """Take everything from what the kernel cache keeps of the model as a whole; False if it keeps nothing."""
        options = self._sess_options
        threads = thread_count(options.intra_op_num_threads)
        self._kept_as = whole.find_whole(self._source, options, self._disabled, threads)
        if self._kept_as is None:
            return False
        cache = _kernel_cache(default_directory())
        artifact = whole.open_whole(cache, self._kept_as, switch(options, VERIFY, False))
        if artifact is None:
            return False
        self._take(artifact, threads)
        self._whole = self._kept_as
        return True

    def _keep_whole(self, model: Model) -> None:
        """Have the compiled model kept in the kernel cache, in the background, if it is one of those that are kept."""
        engine = self._main.engine
        kept_as = self._kept_as
        if kept_as is None or _in_background(engine) or isinstance(engine, SavedEngine):
            return
        if whole.is_settled(kept_as) and whole.can_keep(model, engine):
            from jitonnx.saved.saving import model_info

            assert self._workshop is not None
            info = model_info(self, model.opset_imports)
            self._workshop.submit(whole.keeping(engine, kept_as, info, self._sess_options))

    def _load_whole(self) -> None:
        """Make what a session that was opened from the kernel cache lacks: the graph, its nodes, plan and reports.

        Fail if the model's file is not the one any more that the session was opened for.
        """
        with self._loading:
            opened = self._whole
            if opened is None:
                return
            if whole.identity_of(opened.path) != opened.identity:
                raise Fail(
                    f"{self._model_path} was changed or removed since the session was made, which took the compiled "
                    f"model from the kernel cache: make a new session (or set the configuration entry "
                    f"{whole.KEEP_MODEL} to 0, and sessions load the whole model)"
                )
            before = set(self.__dict__)
            self._compile(self._loaded(opened.path))
            self._warm_up()
            self._own_attributes |= set(self.__dict__) - before
            self._whole = None

    def _compile(self, model: Model) -> None:
        from jitonnx.api.settings import engine_settings
        from jitonnx.jobs import Workshop
        from jitonnx.model.variants import copied

        self._describe(model)
        self._overridable = {declared.name: declared for declared in model.overridable}
        self._with_defaults = copied(model.graph) if model.overridable else None
        self._overriding = {}
        self._settings = engine_settings(
            self._sess_options, self._disabled, thread_count(self._sess_options.intra_op_num_threads)
        )
        self._workshop = Workshop()
        weakref.finalize(self, self._workshop.close)
        with _explained():
            self._main = _Bound(model.inputs, self._engine(model.graph))

    def _check_options(self) -> None:
        if self._sess_options.load_cancelled():
            raise ModelLoadCanceled("loading was called off by SessionOptions.set_load_cancellation_flag")
        if self._sess_options.optimized_model_filepath:
            raise Fail("SessionOptions.optimized_model_filepath is not supported: leave it empty")

    def _loaded(self, source: Any) -> Model:
        from jitonnx.model import load
        from jitonnx.model.variants import with_dimensions, with_initializers

        self._check_options()
        options = self._sess_options
        if options.entry(MODEL_FORMAT) not in (None, "", "ONNX"):
            raise Fail(f"models of the format {options.entry(MODEL_FORMAT)!r} cannot be read; give an ONNX file")
        model = load(source, external_data_folder=options.entry(EXTERNAL_DATA_FOLDER) or None)
        with _explained():
            model = with_initializers(model, options.replaced_initializers())
            return with_dimensions(model, options.fixed_dimensions())

    def _describe(self, model: Model) -> None:
        """Keep what users ask about the model."""
        self._inputs_meta = [input_arg(declared) for declared in model.inputs]
        self._overridable_meta = [input_arg(declared) for declared in model.overridable]
        self._outputs_meta = [
            output_arg(declared, value.type, model.dimensions)
            for declared, value in zip(model.outputs, model.graph.outputs, strict=True)
        ]
        self._output_names = [declared.name for declared in model.outputs]
        self._model_meta = model.metadata
        self._nodes = model_nodes(model.graph)
        self._opsets = dict(model.opset_imports)

    def _engine(self, graph: Graph) -> Engine | BackgroundEngine:
        from jitonnx.engine.pipeline import CompileMode, Engine

        settings, cache, workshop = self._settings, _kernel_cache(default_directory()), self._workshop
        assert workshop is not None
        if settings.compile is CompileMode.BACKGROUND and settings.target is None:
            from jitonnx.engine.background import BackgroundEngine

            return BackgroundEngine(graph, settings, cache, workshop, self._logger)
        if progress is not None:
            return Engine(graph, settings, cache, progress, workshop)
        if not self._shows_progress():
            return Engine(graph, settings, cache, None, workshop)
        from jitonnx.api.progress import TerminalProgress

        with TerminalProgress() as terminal:
            return Engine(graph, settings, cache, terminal.show, workshop)

    def _shows_progress(self) -> bool:
        """Whether there is a terminal to show progress on, and this session's log says as much as warnings."""
        if sys.stderr is None or not sys.stderr.isatty():
            return False  # without a look at the log: importing `logging` takes 3 ms
        import logging

        return self._logger.isEnabledFor(logging.WARNING)

    def _warm_up(self) -> None:
        """Make the program of a model that runs with one set of shapes only."""
        engine = self._made
        if engine is not None and engine.only_shapes is not None and not engine.foreign:
            with _explained():
                program = engine.program(engine.only_shapes)
            if program is not None and program.entry is not None and self._profile is None:
                self._entry = program.entry

    @property
    def _made(self) -> Engine | SavedEngine | None:
        """The engine, None while it is made in the background."""
        engine = self._main.engine
        return engine.found() if _in_background(engine) else engine

    def save(self, path: str | os.PathLike[str], shapes: NamedShapes | Sequence[NamedShapes] | None = None) -> int:
        """Write the compiled model to a file that `InferenceSession` opens without compiling; returns its bytes.

        shapes: the shapes of the inputs to save programs for, by name, or several such sets; a shape settles what other
        inputs share with it. A size may be a range, as (least, largest), both included: `{"ids": (1, (1, 512))}` serves
        all of them. Without shapes: those that the model has been run with, or the only ones that it takes.

        The file holds machine code for this CPU (or that of the configuration entry "jitonnx.cpu"); docs/artifacts.md
        says whom to trust with it. InvalidArgument for shapes that do not fit or leave something open, Fail for a model
        with parts that are evaluated on NumPy, or that has to be planned for each shape where a range is wanted. (Not
        in onnxruntime.)
        """
        from jitonnx.saved.saving import save

        if isinstance(self.engine, SavedEngine):  # which has loaded the model where the cache kept it
            raise Fail("the session was opened from an artifact: copy that file, or open the model to save it anew")
        threads = max(0, self._sess_options.intra_op_num_threads)
        return save(self, path, shapes, self._opsets, threads)

    # ------------------------------------------------------------ about the model

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that have to be fed."""
        return self._inputs_meta

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return self._outputs_meta

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs with a default: they may be fed."""
        return self._overridable_meta

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's file says about the model."""
        return self._model_meta

    # ------------------------------------------------------------ about the session

    def get_session_options(self) -> SessionOptions:
        """A copy of the options."""
        return copy.copy(self._sess_options)

    def get_providers(self) -> list[str]:
        """The execution providers in use: the CPU's."""
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the providers in use: none."""
        return {CPU: {}}

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Warn of providers that jitonnx does not have. Nothing else changes."""
        check_providers(providers, provider_options, self._sess_options)

    def disable_fallback(self) -> None:
        """Accepted, without effect: there is no provider to fall back from."""

    def enable_fallback(self) -> None:
        """Accepted, without effect: there is no provider to fall back from."""

    def end_profiling(self) -> str:
        """Write the profile and return the file's name; "" if none was asked for, or it is written already."""
        profile, self._profile = self._profile, None
        return profile.finish() if profile is not None else ""

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds since 1970; 0 if it was not asked for."""
        return self._profile.start_nanoseconds if self._profile is not None else 0

    @property
    def engine(self) -> Engine | SavedEngine:
        """The compiled model, for `jitonnx.explain` and benchmarks; waits for it. (Not in onnxruntime.)"""
        self._load_whole()
        engine = self._main.engine
        if not _in_background(engine):
            return engine
        made = engine.wait()
        assert made is not None, "Bug: a job ended without a result"
        return made

    def wait_until_compiled(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds (None: as long as it takes) for a compile in the background; whether it is done.

        Fail tells why it could not be done. (Not in onnxruntime.)
        """
        engine = self._main.engine
        return not _in_background(engine) or engine.wait(timeout) is not None

    @property
    def compile_status(self) -> CompileStatus:
        """How far the model's code is, with the session configuration entry "jitonnx.compile" = "background".

        (Not in onnxruntime.)
        """
        engine = self._main.engine
        return CompileStatus(*engine.status()) if _in_background(engine) else CompileStatus("compiled", 0, 0, 0)

    @property
    def title(self) -> str:
        """What to call the model: its file's name, else its graph's. (Not in onnxruntime.)"""
        return os.path.basename(self._model_path) if self._model_path else self._model_meta.graph_name or "model"

    @property
    def model_nodes(self) -> Sequence[ModelNode]:
        """The nodes as the model has them. (Not in onnxruntime.)"""
        self._load_whole()
        return self._nodes

    @property
    def declared_inputs(self) -> Sequence[Declaration]:
        """The inputs as the file declares them. (Not in onnxruntime.)"""
        return self._main.declared

    @property
    def _sess(self) -> InferenceSession:
        # Code in the wild calls `session._sess.run(...)` to save the checks of onnxruntime's Python layer.
        return self

    def close(self) -> None:
        """Let go of the model and its memory. Runs that have begun end well; later ones raise RuntimeError.

        What is being compiled in the background is called off.
        """
        self.end_profiling()
        if self._workshop is not None:
            self._workshop.close()
        self._entry = _closed
        self._overriding = {}
        self._with_defaults = None
        self._whole = None
        self.__dict__.pop("_main", None)

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ pickling

    def __getstate__(self) -> dict[str, Any]:
        added = {name: value for name, value in self.__dict__.items() if name not in self._own_attributes}
        source = os.path.abspath(self._source) if isinstance(self._source, str) else self._source
        arguments = (source, self._sess_options, *self._providers_asked)
        return {"arguments": arguments, "disabled": sorted(self._disabled), "added": added}

    def __setstate__(self, state: dict[str, Any]) -> None:
        InferenceSession.__init__(self, *state["arguments"], disabled_optimizers=state["disabled"])
        self.__dict__.update(state["added"])


Session = InferenceSession


class _Bound:
    """An engine and the inputs it takes, in order."""

    def __init__(self, declared: Sequence[Declaration], engine: Engine | SavedEngine | BackgroundEngine) -> None:
        self.declared, self.engine = declared, engine
        self.names = [entry.name for entry in declared]
        self.plain, self.named = feeding.PlainInputs(declared), feeding.NamedSizes(declared)

    def known_program(self, feeds: Any) -> Any:
        """The program for feeds of these shapes if there is one; None also if they are not a mapping of arrays."""
        try:
            shapes = tuple([feeds[name].shape for name in self.names])
        except (KeyError, AttributeError, TypeError, IndexError):
            return None
        return self.engine.known_program(shapes)


def _in_background(engine: Engine | SavedEngine | BackgroundEngine) -> TypeIs[BackgroundEngine]:
    """Whether an engine was left to the background, made by now or not."""
    return hasattr(engine, "wait")  # no isinstance: an artifact opens without the module of the class


def _look_closer(feeds: Any) -> None:
    """The entry of a session that has no native one."""


def _closed(feeds: Any) -> NoReturn:
    raise RuntimeError("the session is closed")


def _call_back(future: Future[Outputs], callback: Callable[[Outputs, Any, str], Any], user_data: Any) -> None:
    error = future.exception()
    callback([] if error else future.result(), user_data, str(error) if error else "")


@contextmanager
def _explained() -> Iterator[None]:
    """Errors about a graph leave as Fail: they name the node, its operator and its inputs already. A lack of memory
    leaves as RuntimeException.
    """
    try:
        yield
    except (GraphError, InferenceError) as error:
        raise Fail(str(error)) from error
    except MemoryError as error:
        raise RuntimeException(f"There is not enough memory for the model at these sizes: {error}") from error


def _profile(options: SessionOptions) -> Profile | None:
    if not options.enable_profiling:
        return None
    from jitonnx.api.profiling import Profile

    return Profile(options.profile_file_prefix)


@functools.cache
def _kernel_cache(directory: Path) -> KernelCache:
    """The kernel cache of all sessions of this process."""
    return KernelCache(directory)
