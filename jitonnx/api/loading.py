"""Makes a model behind an engine of what a session is given: loaded and compiled, or opened from an artifact or as
a whole from the kernel cache.

What compiles a model is imported by the methods that need it: opening an artifact needs none of it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jitonnx.api.arguments import thread_count
from jitonnx.api.compiled_model import CompiledModel
from jitonnx.api.description import ModelDescription, model_nodes, output_arg
from jitonnx.api.entries import (
    ARTIFACT_FORMAT,
    DENORMAL_AS_ZERO,
    EXTERNAL_DATA_FOLDER,
    KEEP_MODEL,
    MODEL_FORMAT,
    OPTIMIZED_EXTERNAL,
    OPTIMIZED_EXTERNAL_LEAST,
    SAVED_FORMAT,
    STRICT,
    TUNE,
    VERIFY,
    asks_for_artifact,
    byte_count,
    program_bytes,
    switch,
)
from jitonnx.api.options import SessionOptions
from jitonnx.api.running import BoundEngine, closed, explained, in_background
from jitonnx.api.saved import model_cache
from jitonnx.api.saved.engine import SavedEngine, described
from jitonnx.errors import Error, Fail, ModelLoadCanceled, NoSuchFile
from jitonnx.ir.defects import is_defect, survived
from jitonnx.runtime.artifact import Artifact, ArtifactError, open_artifact
from jitonnx.runtime.driver import image, make_ahead
from jitonnx.runtime.threads import allowed_cpus
from jitonnx.support import fork_safety
from jitonnx.support.kernel_cache import KernelCache, default_directory
from jitonnx.support.lru_cache import LRUCache
from jitonnx.support.mapped_files import FileMap

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Mapping

    from jitonnx.engine.background import BackgroundEngine
    from jitonnx.engine.pipeline import Engine
    from jitonnx.engine.programs import RunnableProgram
    from jitonnx.engine.tuning import Tuned
    from jitonnx.ir.graph import Graph
    from jitonnx.model import Model
    from jitonnx.runtime.program import Shapes
    from jitonnx.support.background_jobs import BackgroundExecutor


_MANY_MODULES = 16
"""Imports within a start that make it one of those whose objects nearly all stay."""
_OVERRIDING_KEPT = 64
"""Sets of inputs with defaults that engines are kept for; those used longest ago go."""


class _WithoutCollecting:
    """`with without_collecting:`. Python does not look for garbage as long as any thread is in such a block, nor behind
    it among what was made within, where that is modules, classes and functions first of all."""

    def __init__(self) -> None:
        self._lock = fork_safety.lock()
        self._threads: list[int] = []
        self._collects = False
        self._modules = 0
        """How many were imported when the first of the threads came."""
        fork_safety.in_child(self._forget_others)

    def __enter__(self) -> None:
        with self._lock:
            if not self._threads:
                self._collects, self._modules = gc.isenabled(), len(sys.modules)
                gc.disable()
            self._threads.append(get_ident())

    def __exit__(self, *_: object) -> None:
        self._end([get_ident()])

    def _end(self, threads: list[int]) -> None:
        with self._lock:
            for thread in threads:
                self._threads.remove(thread)
            if threads and not self._threads and self._collects:
                if len(sys.modules) >= self._modules + _MANY_MODULES:
                    _take_for_old()
                gc.enable()

    def _forget_others(self) -> None:
        """Forget the other threads in a child process: only the one that forked goes on."""
        self._end([thread for thread in self._threads if thread != get_ident()])


def _take_for_old() -> None:
    """Count all objects as ones that have survived collections: only those of the oldest generation look through them.

    Nearly all that a process's first start makes stays, modules, classes and functions first of all. To look through it
    at the next chance took 8 ms, an eighth of the CPU time of a small model's start. Python forgets how many objects
    were made by now, and would never come to the oldest generation if that were done at each start.
    """
    if hasattr(gc, "freeze") and not gc.get_freeze_count():  # else somebody wants other objects to stay frozen
        gc.freeze()
        gc.unfreeze()


without_collecting = _WithoutCollecting()


class OpenedModel:
    """A model behind an engine, which may be one made in the background, and be exchanged for another one.

    `compiled` gives it to those who do not run it.

    source: a path, the file's bytes, or what else `load` takes; of a model, or of an artifact where the options say so.
    options: a copy of the session's own. disabled: names of rewrites that are not made.
    progress: called as progress(done, all) while kernels are compiled; None: shown on a terminal, if there is one.
    """

    def __init__(
        self,
        source: Any,
        options: SessionOptions,
        disabled: frozenset[str],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._source, self._options, self._disabled, self._progress = source, options, disabled, progress
        self.path = source if isinstance(source, str) else None
        self.description: ModelDescription
        self.executor: BackgroundExecutor | None = None
        self.tuning: Tuned | None = None
        """What was measured when the model was loaded, if that was asked for."""
        self.opened_as: model_cache.CacheKey | None = None
        """What the model was opened from, if from the kernel cache, as long as the model itself is not loaded."""
        self.cache_key: model_cache.CacheKey | None = None
        """What the kernel cache keeps such a model under; None for one that is always loaded."""
        self.files: weakref.WeakSet[FileMap] = weakref.WeakSet()
        """The files that weights are read from where they lie, as long as anybody does."""
        self._examples: list[Shapes] = []
        """Shapes that the model's plan is not for, and another one is kept for."""
        self._operators: Mapping[str, str] = {}
        """What tells users' operators in the model from others of their names."""
        self._with_defaults: Graph | None = None
        """The model as it was loaded, if it has inputs with defaults."""
        self._overriding: LRUCache[BoundEngine] = LRUCache(_OVERRIDING_KEPT)
        """Engines for inputs with defaults that are fed, by their names."""
        self._loading = fork_safety.WorkLock()
        self._lock = fork_safety.lock()
        """Held where the model gets another engine, or none any more."""
        self._main: BoundEngine | None = None
        self._closed = False
        if not -1 <= options.log_severity_level <= 4:
            _ = self.logger  # which refuses it
        self._survived = survived()
        self.times = self._create()
        """When loading began, when the model was loaded, and when it was ready."""

    @property
    def logger(self) -> logging.Logger:
        """The session's."""
        from jitonnx.support.log import session_logger

        return session_logger(self._options.log_severity_level, self._options.logid)

    @property
    def main(self) -> BoundEngine:
        """The engine for all inputs without defaults. RuntimeError once the session is closed."""
        main = self._main
        if main is None:
            raise closed()
        return main

    @property
    def made(self) -> Engine | SavedEngine | None:
        """The engine, None while it is made in the background."""
        engine = self.main.engine
        return engine.found() if in_background(engine) else engine

    @property
    def title(self) -> str:
        """What to call the model: its file's name, else its graph's."""
        return os.path.basename(self.path) if self.path else self.description.metadata.graph_name or "model"

    def compiled(self) -> CompiledModel:
        """The model with all that there is to tell about it, and its engine, waited for."""
        self.load_graph()
        engine = self.main.engine
        if in_background(engine):
            made = engine.wait()
            assert made is not None, "Bug: a job ended without a result"
            engine = made
        return CompiledModel(self.title, self.description, engine)

    def warm_up(self) -> RunnableProgram | None:
        """The program of a model that runs with one set of shapes only; None for others, and for one that is compiled
        in the background, whose errors are the next run's, however soon they come."""
        engine = self.main.engine
        if in_background(engine) or engine.only_shapes is None or engine.foreign:
            return None
        with explained():
            main, shapes = self.main, engine.only_shapes
            while True:
                try:
                    return main.engine.program(shapes)
                except Exception as error:
                    main = self.exchanged(main, error)

    def bound(self, fed: Iterable[str]) -> BoundEngine:
        """The engine for the inputs that are fed: initializers that are fed too need one of their own."""
        overriding = tuple(name for name in self.description.overridable if name in fed)
        if not overriding:
            return self.main
        self.load_graph()
        return self._overriding.get(overriding, functools.partial(self._with_overriding, overriding))

    def load_graph(self) -> bool:
        """Make what a model that was opened from the kernel cache lacks: the graph, its nodes, plan and reports.

        Tells whether there was something to make. Fail if the model's file is not the one any more that was opened.
        """
        with self._loading:
            opened = self.opened_as
            if opened is None:
                return False
            changed = model_cache.changed_file(opened)
            if changed:
                raise Fail(
                    f"{changed} was written to since the session was made, which took the compiled model from the "
                    "kernel cache: make a new session (or set the configuration entry "
                    f"{KEEP_MODEL} to 0, and sessions load the whole model)"
                )
            self._compile(self._loaded(opened.file or self._source))
            self.cache_key = opened._replace(file=None)
            self.warm_up()
            self._keep_variants()
            self.opened_as = None
            return True

    def close(self) -> None:
        """Let go of the model and its memory; what is being compiled in the background is called off."""
        with self._lock:
            self._closed = True
            self._main = self._with_defaults = self.opened_as = None
            self._overriding = LRUCache(_OVERRIDING_KEPT)
            executor = self.executor
        if executor is not None:
            executor.close()

    # ------------------------------------------------------------ making

    def _create(self) -> tuple[float, float, float]:
        """Load the model and make its engine, without looking for garbage meanwhile: 6 % of a small model's start."""
        with fork_safety.critical, without_collecting:
            return self._open()

    def _install(
        self, main: BoundEngine, with_defaults: Graph | None = None, executor: BackgroundExecutor | None = None
    ) -> None:
        """Let an engine serve the runs. RuntimeError if the session was closed meanwhile."""
        with self._lock:
            if not self._closed:
                self._main, self._with_defaults, self.executor = main, with_defaults, executor
                return
        if executor is not None:
            executor.close()
        raise closed()

    def _with_overriding(self, overriding: tuple[str, ...]) -> BoundEngine:
        from jitonnx.model.variants import with_inputs

        main, graph = self.main, self._with_defaults
        if graph is None:
            raise closed()
        declared = [self.description.overridable[name] for name in overriding]
        with explained():
            return BoundEngine([*main.declared, *declared], self._engine(with_inputs(graph, declared), self.executor))

    def _open(self) -> tuple[float, float, float]:
        """Load the model and make its engine."""
        loaded = started = time.perf_counter()
        if asks_for_artifact(self._options):
            self._open_artifact()
            self.warm_up()
        elif self._open_cached():
            self.warm_up()
        else:
            if allowed_cpus() > 1:
                make_ahead(["runs"])  # LLVM is at work on it while what plans models is imported
            model = self._loaded(self._source)
            self._write_optimized(model)
            if self.cache_key is not None:
                operators = model_cache.operators_of(model, self._options)
                known = self.cache_key._replace(file=None, files=[*self.cache_key.files, *model.external])
                self.cache_key = None if operators is None else known
                self._operators = operators or {}
            loaded = time.perf_counter()
            self._compile(model)
            self.warm_up()
            self._cache()
            self._keep_variants()
        ended = time.perf_counter()
        if "logging" in sys.modules:  # else nobody has asked for messages
            made = self.made
            report = "runs are evaluated on NumPy until it is compiled" if made is None else made.report
            if self.opened_as is not None:
                report = f"taken as a whole from the kernel cache {default_directory()}"
            self.logger.info("%s is ready after %.2f s; %s", self.path or "model", ended - started, report)
        return started, loaded, ended

    def _open_artifact(self) -> None:
        """Take everything from an artifact. Fail tells what is wrong with it."""
        self._check_options()
        options = self._options
        if options.replaced_initializers() or options.fixed_dimensions() or options.overrides() is not None:
            raise Fail("initializers and dimensions can be replaced in a model, but not in an artifact made of it")
        if options.optimized_model_filepath:
            raise Fail(
                "an artifact has no model that could be written: give optimized_model_filepath with the ONNX file"
            )
        if not isinstance(self._source, str | bytes):
            given = type(self._source).__name__
            raise TypeError(f"give the path of an artifact, its bytes or a binary file object, not a {given}")
        try:
            artifact = open_artifact(self._source, verify_constants=switch(options, VERIFY, default=False))
        except FileNotFoundError as error:
            raise NoSuchFile(
                f"Load model from {self.path} failed. File doesn't exist (the working directory is {Path.cwd()})"
            ) from error
        except OSError as error:
            raise Fail(f"{self.path} cannot be read: {error.strerror or error}") from error
        except ArtifactError as error:
            raise Fail(str(error)) from error
        if artifact.file is not None:
            artifact.file.is_read = True
            self.files.add(artifact.file)
        description = described(artifact.model)._replace(overridable={})  # it is compiled with the defaults
        self._take(artifact, description, thread_count(options.intra_op_num_threads, artifact.threads))

    def _take(
        self,
        artifact: Artifact,
        description: ModelDescription,
        threads: int,
        behind: Callable[[], Engine] | None = None,
    ) -> None:
        """Take everything from an artifact. behind: see `SavedEngine`."""
        self.description = description
        zeros = switch(self._options, DENORMAL_AS_ZERO, default=False)
        engine = SavedEngine(artifact, threads, program_bytes(self._options), zeros=zeros, behind=behind)
        self._install(BoundEngine(description.inputs, engine))

    def _open_cached(self) -> bool:
        """Take everything from what the kernel cache keeps of the model as a whole; False if it keeps nothing."""
        options = self._options
        threads = thread_count(options.intra_op_num_threads)
        self.cache_key = model_cache.key_of(self._source, options, self._disabled, threads)
        if self.cache_key is None:
            return False
        cache = _kernel_cache(default_directory())
        verify = switch(options, VERIFY, default=False)
        artifact = model_cache.open_cached(cache, self.cache_key, options, verify=verify)
        if artifact is None:
            return False
        self.cache_key = self.cache_key._replace(files=artifact.data_files)
        self.opened_as = self.cache_key
        for file in artifact.mapped_data:
            file.is_read = True
            self.files.add(file)
        self._examples, self._operators = artifact.examples, artifact.model.operators
        this = weakref.ref(self)

        def behind() -> Engine:
            model = this()
            assert model is not None, "Bug: a model that is gone is run"
            engine = model.compiled().engine
            assert not isinstance(engine, SavedEngine), "Bug: a model was loaded without an engine"
            return engine

        self._take(artifact, described(artifact.model), threads, behind)
        for text in self.description.warnings:
            warnings.warn(text, stacklevel=6)
        return True

    def _cache(self) -> None:
        """Have the compiled model kept in the kernel cache, in the background, if it is one of those that are kept."""
        main, cache_key, executor = self._main, self.cache_key, self.executor
        if main is None or executor is None or cache_key is None or not model_cache.is_settled(cache_key):
            return
        if survived() > self._survived:  # a model that does without something is made anew at the next start
            return
        engine = main.engine
        if not in_background(engine) and not isinstance(engine, SavedEngine):
            description, operators, examples = self.description, self._operators, tuple(self._examples)
            job = model_cache.caching(engine, cache_key, description, operators, self._options, examples)
            executor.submit(job, always=True)

    def _keep_variants(self) -> None:
        """Have what is kept of the model written anew whenever there is a plan for other sizes."""
        engine = self.main.engine
        if self.cache_key is None or in_background(engine) or isinstance(engine, SavedEngine):
            return
        this = weakref.ref(self)

        def made(shapes: Shapes) -> None:
            model = this()
            if model is not None and len(model._examples) < model_cache.VARIANTS:
                model._examples.append(shapes)
                model._cache()

        engine.variant_made = made

    def _compile(self, model: Model) -> None:
        from jitonnx.api.settings import engine_settings
        from jitonnx.model.variants import copied
        from jitonnx.support.background_jobs import BackgroundExecutor

        threads = thread_count(self._options.intra_op_num_threads)
        if allowed_cpus() > 1:
            open_sizes = any(not value.type.static for value in model.graph.inputs)
            bodies = any(node.bodies for node in model.graph)
            make_ahead([*(["sizes"] if open_sizes else ()), *(["sizes", "chains"] if bodies else ())])
        self.description = _described(model)
        with_defaults = copied(model.graph) if model.overridable else None
        self._settings = engine_settings(self._options, self._disabled, threads)
        executor = BackgroundExecutor()
        weakref.finalize(self, executor.close)
        with explained():
            if self._options.entry(TUNE) not in (None, "", "0"):
                from jitonnx.api.tuning import tuned

                cache = _kernel_cache(default_directory())
                self._settings, self.tuning = tuned(model, self._options, self._settings, cache)
                self.logger.info("%s", self.tuning)
            engine = self._engine_at_last(model.graph, executor)
            self._plan_steps(engine)
            self._install(BoundEngine(model.inputs, engine), with_defaults, executor)

    def _plan_steps(self, engine: Engine | BackgroundEngine) -> None:
        """Have all that the steps of a decoder take made now, as none of them is to wait for a compiler."""
        if in_background(engine):
            return
        every = engine.step_shapes([output.name for output in self.description.outputs])
        if not every:
            return
        parts = ("chains", "blocks")
        make_ahead(parts)
        engine.variant_made = self._examples.append
        for shapes in every:
            with contextlib.suppress(Error):  # it has no such steps, or a run tells what is wrong with them
                engine.serving(shapes).resized(shapes)
        engine.variant_made = None
        for part in parts:
            image(part)

    def _check_options(self) -> None:
        if self._options.load_cancelled():
            raise ModelLoadCanceled("loading was called off by SessionOptions.set_load_cancellation_flag")

    def _loaded(self, source: Any) -> Model:
        self._check_options()
        model = read_model(source, self._options)
        self.files.update(model.files)
        return model

    def _write_optimized(self, model: Model) -> None:
        """Write the rewritten model, if the options name a file for it."""
        options = self._options
        if not options.optimized_model_filepath:
            return
        from jitonnx.model.optimized import keeps_operators, write_optimized
        from jitonnx.model.write import ExternalFile

        level = options.graph_optimization_level.value
        if options.entry(SAVED_FORMAT) not in (None, "", "ONNX"):
            raise Fail(f"models are not written in the format {options.entry(SAVED_FORMAT)!r}; ask for ONNX")
        name = options.entry(OPTIMIZED_EXTERNAL)
        least = byte_count(options, OPTIMIZED_EXTERNAL_LEAST, ExternalFile("").least)
        if keeps_operators(level):
            model = read_model(self._source, options, composed=False)
        with explained():
            report = write_optimized(
                model,
                options.optimized_model_filepath,
                options.registry(),
                level=level,
                disabled=self._disabled,
                external=ExternalFile(name, least) if name else None,
            )
        if "logging" in sys.modules:
            self.logger.info("%s is written; %s", options.optimized_model_filepath, report)

    def exchanged(self, bound: BoundEngine, error: Exception) -> BoundEngine:
        """An engine that does less than `bound`, which failed in itself. The error where it is none of that kind.

        Another thread may have exchanged it meanwhile.
        """
        if not is_defect(error) or (isinstance(self.made, SavedEngine) and self.opened_as is None):
            raise error
        self.load_graph()
        with self._loading:
            kept = self._overriding
            overriding = next((key for key in kept.keys() if kept.find(key) is bound), ())  # noqa: SIM118
            if overriding or bound is self._main:
                from jitonnx.engine.pipeline import with_less

                self._settings = with_less(self._settings, error, "running the model")
                self._overriding = LRUCache(_OVERRIDING_KEPT)
                engine = self._engine_at_last(self._reloaded(error), self.executor)
                self._install(BoundEngine(bound.declared, engine), self._with_defaults, self.executor)
        return self.bound(overriding)

    def _engine_at_last(self, graph: Graph, executor: BackgroundExecutor | None) -> Engine | BackgroundEngine:
        """An engine for the graph; where making it fails in itself, one that does less."""
        while True:
            try:
                return self._engine(graph, executor)
            except Exception as error:
                from jitonnx.engine.pipeline import with_less

                self._settings = with_less(self._settings, error, "compiling the model")
                graph = self._reloaded(error)

    def _reloaded(self, error: Exception) -> Graph:
        """The model once more, as it was loaded. The error itself if it cannot be had any more."""
        try:
            model = self._loaded(self._source)
        except Error:
            raise error from None
        if model.inputs != self.description.inputs:  # the file is another one by now
            raise error
        return model.graph

    def _engine(self, graph: Graph, executor: BackgroundExecutor | None) -> Engine | BackgroundEngine:
        from jitonnx.engine.pipeline import CompileMode, Engine

        settings, cache = self._settings, _kernel_cache(default_directory())
        assert executor is not None
        if settings.compile is CompileMode.BACKGROUND and settings.target is None:
            from jitonnx.engine.background import BackgroundEngine

            return BackgroundEngine(graph, settings, cache, executor, self.logger)
        if self._progress is not None or not self._shows_progress():
            return Engine(graph, settings, cache, self._progress, executor)
        from jitonnx.api.progress import TerminalProgress

        with TerminalProgress() as terminal:
            return Engine(graph, settings, cache, terminal.show, executor)

    def _shows_progress(self) -> bool:
        """Whether there is a terminal to show progress on, and this session's log says as much as warnings."""
        if sys.stderr is None or not sys.stderr.isatty():
            return False  # without a look at the log: importing `logging` takes 3 ms
        import logging

        return self.logger.isEnabledFor(logging.WARNING)


def read_model(source: Any, options: SessionOptions, *, composed: bool = True) -> Model:
    """The model of a path or bytes, as the options have it. Errors are those of a session. composed: as of `load`."""
    from jitonnx.model import load
    from jitonnx.model.variants import with_dimensions, with_initializers

    if options.entry(MODEL_FORMAT) not in (None, "", "ONNX", "ORT"):
        raise Fail(
            f"models of the format {options.entry(MODEL_FORMAT)!r} cannot be read; give an ONNX file, one of "
            f"onnxruntime's own format as 'ORT', or an artifact as {ARTIFACT_FORMAT!r}"
        )
    model = load(
        source,
        external_data_folder=options.entry(EXTERNAL_DATA_FOLDER) or None,
        registry=options.registry(),
        strict=options.entry(STRICT) == "1",
        verify=switch(options, VERIFY, default=False),
        overrides=options.overrides(),
        format=options.entry(MODEL_FORMAT) or None,
        composed=composed,
    )
    with explained():
        model = with_initializers(model, options.replaced_initializers())
        return with_dimensions(model, options.fixed_dimensions())


def _described(model: Model) -> ModelDescription:
    outputs = [
        output_arg(declared, value.type, model.dimensions, certain=model.graph.assumptions.certain)
        for declared, value in zip(model.outputs, model.graph.outputs, strict=True)
    ]
    return ModelDescription(
        model.inputs,
        {declared.name: declared for declared in model.overridable},
        outputs,
        model.outputs,
        model_nodes(model.graph),
        model.metadata,
        dict(model.opset_imports),
        model.warnings,
    )


@fork_safety.once
def _kernel_cache(directory: Path) -> KernelCache:
    """The kernel cache of all sessions of this process."""
    return KernelCache(directory)
