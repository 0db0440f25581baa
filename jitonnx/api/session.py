"""`InferenceSession`: a model, compiled, behind onnxruntime's interface; `load`: one of a compiled model's file.

Here is its face alone. `jitonnx.api.loading` makes what a session is given to something that runs,
`jitonnx.api.running` runs it.
"""

from __future__ import annotations

import copy
import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitonnx.api.arguments import disabled_rewrites, kept_source, own_options
from jitonnx.api.description import ModelNode, declared_arg
from jitonnx.api.entries import (
    ARTIFACT_FORMAT,
    CALIBRATION,
    MODEL_FORMAT,
    PRECISION,
    PRECISION_BOUND,
    STRICT,
    asks_for_artifact,
    check_entries,
)
from jitonnx.api.loading import OpenedModel
from jitonnx.api.options import RunOptions, SessionOptions
from jitonnx.api.providers import check_providers
from jitonnx.api.running import Closable, Outputs, Runs, explained
from jitonnx.api.saved.engine import SavedEngine
from jitonnx.api.session_base import Session
from jitonnx.errors import Fail
from jitonnx.ir.declaration import Declaration
from jitonnx.support import fork_safety
from jitonnx.support.metadata import ModelMetadata, NodeArg

if TYPE_CHECKING:
    from concurrent.futures import Future

    from jitonnx.api.auto_precision import PrecisionChoice
    from jitonnx.api.compiled_model import CompiledModel
    from jitonnx.api.inner_session import InnerSession
    from jitonnx.api.inputs import Ends, NamedShapes
    from jitonnx.api.profiling import Profile
    from jitonnx.engine.pipeline import Engine
    from jitonnx.engine.programs import RunnableProgram
    from jitonnx.engine.protocol import CompileStatus
    from jitonnx.engine.tuning import Tuned
    from jitonnx.runtime.program import Shapes

_KNOWN_KEYWORDS = {"enable_fallback", "read_config_from_model", "disabled_optimizers"}


progress: Callable[[int, int], None] | None = None
"""Called as progress(done, all) while sessions made from now on compile kernels, in the place of showing it on a
terminal."""


class InferenceSession(Session):
    """A model that is loaded, compiled and ready to run; from several Python threads at once if need be.

    path_or_bytes: a path, the file's bytes, a binary file object, or a ModelProto, of an ONNX model. Nothing in it is
    run as code. What `save` wrote is opened by `jitonnx.load`.
    sess_options: a `SessionOptions`. With the configuration entry `session.load_model_format` = "JITONNX" the source is
    such a file.
    providers, provider_options: as for onnxruntime; jitonnx has the CPU's alone and warns of others.
    kwargs: disabled_optimizers, names of rewrites that are not to be made (docs/passes.md lists them);
    enable_fallback = 0: what is wrong with providers is an error, and not a warning; read_config_from_model is
    accepted, without effect; a warning names others.

    A model whose inputs have fixed shapes is ready to run when this returns. One with dimension variables is planned
    and compiled, and the first run with new shapes only works out sizes.

    Raises jitonnx.errors.Error (its subclasses are onnxruntime's errors, by name) for a model that cannot be used.

    A session can be pickled: it is then loaded again from where it was, with its kernels from the cache; one of an
    artifact opens that again. In a `with` statement it is closed at the end.
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
        options = self._sess_options = own_options(sess_options)
        check_entries(options)
        if not options.use_per_session_threads:
            from jitonnx.api.environment import check_thread_pool

            check_thread_pool(options)
        falls_back = int(kwargs.get("enable_fallback", 1)) == 1
        check_providers(providers, provider_options, options, falls_back=falls_back)
        self._source = kept_source(path_or_bytes)
        if os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") == "1" and not asks_for_artifact(options):
            from jitonnx.api.model_config import configured

            options = self._sess_options = configured(options, self._source)
        self._providers_asked = (providers, provider_options)
        self._disabled = disabled_rewrites(kwargs.get("disabled_optimizers") or (), options)
        profile = _profile(options)
        self._precision = self._chosen_precision()
        if self._precision is not None:
            from jitonnx.api.auto_precision import applied

            options = applied(options, self._precision)
        self._model = OpenedModel(self._source, options, self._disabled, progress)
        self._model_path, described = self._model.path, self._model.description
        self._inputs_meta = [declared_arg(declared) for declared in described.inputs]
        self._overridable_meta = [declared_arg(declared) for declared in described.overridable.values()]
        self._outputs_meta = list(described.outputs)
        self._output_names = [output.name for output in self._outputs_meta]
        self._runs = Runs(self._model, strict=options.entry(STRICT) == "1", profile=profile)
        if profile is not None:
            started, loaded, ended = self._model.times
            profile.add("model_loading", started, loaded)
            profile.add("session_initialization", loaded, ended)
        self._own_attributes = frozenset(self.__dict__)

    def _chosen_precision(self) -> PrecisionChoice | None:
        """What measuring says of the precision; None where that is not asked for."""
        options = self._sess_options
        if not any(options.entry(key) for key in (PRECISION, CALIBRATION, PRECISION_BOUND)):
            return None
        with fork_safety.critical:
            from jitonnx.api.auto_precision import choose, is_asked
        if not is_asked(options):
            return None

        def outputs_of(options: SessionOptions, feeds: Sequence[Mapping[str, Any]]) -> list[Outputs]:
            with InferenceSession(self._source, options, disabled_optimizers=sorted(self._disabled)) as session:
                return [session.run(None, feed) for feed in feeds]

        return choose(self._source, options, self._disabled, outputs_of)

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
            outputs = self._runs.entry(input_feed)
            if outputs is not None:
                return outputs
        return self._runs.run(output_names, input_feed, run_options)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Outputs, Any, str], Any] | None = None,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> Future[Outputs]:
        """`run` on a thread of its own, which then calls `callback(outputs, user_data, error)`.

        output_names, input_feed, run_options: as for `run`.
        `error` is "" if all went well, and `outputs` is [] if not. Names are checked at once. Returns a future of the
        outputs (onnxruntime returns nothing).
        """
        self._runs.selection(output_names)
        run = functools.partial(self.run, output_names, input_feed, run_options)
        return self._runs.submit(run, input_feed, callback, user_data)

    def save(self, path: str | os.PathLike[str], shapes: NamedShapes | Sequence[NamedShapes] | None = None) -> int:
        """Write the compiled model to a file that `jitonnx.load` opens without compiling; returns its bytes.

        shapes: the shapes of the inputs to save programs for, by name, or several such sets; a shape settles what other
        inputs share with it. A size may be a range, as (least, largest), both included: `{"ids": (1, (1, 512))}` serves
        all of them. Without shapes: those that the model has been run with, or the only ones that it takes.

        The file holds machine code for this CPU (or that of the configuration entry "jitonnx.cpu"); docs/artifacts.md
        says whom to trust with it. InvalidArgument for shapes that do not fit or leave something open, Fail for a model
        with parts that are evaluated on NumPy, or that has to be planned for each shape where a range is wanted. (Not
        in onnxruntime.)
        """
        model = self.compiled_model
        if isinstance(model.engine, SavedEngine):  # which has loaded the model where the cache kept it
            raise Fail("the session was opened from an artifact: copy that file, or open the model to save it anew")
        threads = max(0, self._sess_options.intra_op_num_threads)
        with fork_safety.critical, explained():
            from jitonnx.api.saved.saving import save

            return save(model, path, shapes, threads)

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
        return self._model.description.metadata

    # ------------------------------------------------------------ about the session

    def get_session_options(self) -> SessionOptions:
        """A copy of the options."""
        return copy.copy(self._sess_options)

    def end_profiling(self) -> str:
        """Write the profile and return the file's name; "" if none was asked for, or it is written already."""
        profile = self._runs.end_profiling()
        return profile.finish() if profile is not None else ""

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds since 1970; 0 if it was not asked for."""
        profile = self._runs.profile
        return profile.start_nanoseconds if profile is not None else 0

    @property
    def compiled_model(self) -> CompiledModel:
        """The model with its engine, without the session; waits for it to be compiled. (Not in onnxruntime.)"""
        self._load_graph()
        return self._model.compiled()

    @property
    def engine(self) -> Engine | SavedEngine:
        """The compiled model's engine; waits for it. (Not in onnxruntime.)"""
        return self.compiled_model.engine

    def shape_ends(self, shapes: NamedShapes | None) -> Ends:
        """The least and the largest shapes of the inputs, in order: of shapes by name as for `save`, which may leave
        out what the model says; None: those that the model takes if it takes no others. (Not in onnxruntime.)

        InvalidArgument for shapes that do not fit or leave something open.
        """
        self.wait_until_compiled()
        engine, declared = self._model.made, self._model.description.inputs
        assert engine is not None, "Bug: an engine is made by now"
        if shapes is None and engine.only_shapes is not None:
            return engine.only_shapes, engine.only_shapes
        with fork_safety.critical:
            from jitonnx.api.inputs import ends_in_order
        return ends_in_order(declared, shapes or {}, engine.usual_sizes)

    def native_program(self, shapes: Shapes, user: Closable) -> RunnableProgram:
        """The program for inputs of these shapes, in order; `user` is closed with the session. (Not in onnxruntime.)

        Waits for what is compiled in the background. Errors are those of runs, and Fail for a model that is more than
        one native program.
        """
        self._runs.close_with_session(user)
        program = self._runs.program(shapes)
        if program is None:
            raise Fail(
                f"{self.title} is not one native program for inputs of the shapes {', '.join(map(str, shapes))}: some "
                "nodes are evaluated on NumPy, or have sizes that only a run can tell; `jitonnx explain` says which"
            )
        return program

    def wait_until_compiled(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds (None: as long as it takes) for compiling in the background; whether it is done.

        Code for shapes that were run on NumPy, which would be made when they come back, is made now. Fail tells why
        something could not be compiled. (Not in onnxruntime.)
        """
        return self._model.main.engine.complete(timeout)

    @property
    def compile_status(self) -> CompileStatus:
        """How far the model's code is that is compiled in the background. (Not in onnxruntime.)"""
        return self._model.main.engine.status()

    @property
    def title(self) -> str:
        """What to call the model: its file's name, else its graph's. (Not in onnxruntime.)"""
        return self._model.title

    @property
    def model_nodes(self) -> Sequence[ModelNode]:
        """The nodes as the model has them. (Not in onnxruntime.)"""
        self._load_graph()
        return self._model.description.nodes

    def _load_graph(self) -> None:
        """Make what a session lacks that was opened from the kernel cache."""
        if self._model.load_graph():
            self._runs.warm_up()

    @property
    def declared_inputs(self) -> Sequence[Declaration]:
        """The inputs as the file declares them. (Not in onnxruntime.)"""
        return self._model.description.inputs

    @property
    def fed_inputs(self) -> list[Declaration]:
        """The inputs that may be fed, those with a default last. (Not in onnxruntime.)"""
        return [*self._model.description.inputs, *self._model.description.overridable.values()]

    @property
    def _sess(self) -> InnerSession:
        from jitonnx.api.inner_session import InnerSession

        return InnerSession.of(self)

    @property
    def _model_bytes(self) -> bytes | None:
        return None if isinstance(self._source, str) else self._source

    @property
    def tuning(self) -> Tuned | None:
        """What the configuration entry `jitonnx.tune` had measured, as text by str(); None where it is not given, or
        the kernel cache had the compiled model. (Not in onnxruntime.)"""
        return self._model.tuning

    @property
    def precision(self) -> tuple[str, str]:
        """What products and convolutions round their operands to, "float32" or "bfloat16", and why; "" where the
        precision was to be chosen of an artifact, which has its own. (Not in onnxruntime.)
        """
        if self._precision is not None:
            return self._precision.precision, self._precision.reason
        return self._sess_options.entry(PRECISION) or "float32", "as the session's options say"

    def close(self) -> None:
        """Let go of the model and its memory. Runs that have begun end well; later ones raise RuntimeError.

        What is being compiled in the background is called off.
        """
        self.end_profiling()
        self._runs.close()
        self._model.close()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ pickling

    def __getstate__(self) -> dict[str, Any]:
        added = {name: value for name, value in list(self.__dict__.items()) if name not in self._own_attributes}
        source = os.path.abspath(self._source) if isinstance(self._source, str) else self._source
        arguments = (source, self._sess_options, *self._providers_asked)
        return {"arguments": arguments, "disabled": sorted(self._disabled), "added": added}

    def __setstate__(self, state: dict[str, Any]) -> None:
        InferenceSession.__init__(self, *state["arguments"], disabled_optimizers=state["disabled"])
        self.__dict__.update(state["added"])


def load(artifact: Any, sess_options: SessionOptions | None = None, **kwargs: Any) -> InferenceSession:
    """A session for a compiled model, a file that `InferenceSession.save` or `jitonnx compile` wrote.

    (Not in onnxruntime.) The file holds machine code, which runs in this process: open those alone whose writer you
    trust as the writer of a program (SECURITY.md). It is ready at once, and takes the shapes, and ranges of them, that
    it was saved for.

    artifact: a path, the file's bytes, or a binary file object. sess_options, kwargs: as of `InferenceSession`. The
    session's options have the configuration entry `session.load_model_format` = "JITONNX", which asks for the same.

    NoSuchFile, or Fail for what is no artifact, is damaged, could have been written by another user, or needs another
    CPU, before any of its code is in memory.
    """
    options = own_options(sess_options)
    options.add_session_config_entry(MODEL_FORMAT, ARTIFACT_FORMAT)
    return InferenceSession(artifact, options, **kwargs)


def _profile(options: SessionOptions) -> Profile | None:
    if not options.enable_profiling:
        return None
    from jitonnx.api.profiling import Profile

    return Profile(options.profile_file_prefix)
