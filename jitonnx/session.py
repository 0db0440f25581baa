"""`InferenceSession`: a model, compiled, behind onnxruntime's interface.

A run that is like the one before it (a dict of arrays of the same shapes, all outputs wanted) is one call of native
code, `self._entry`, which returns None whenever anything is unusual. What is unusual is looked at here, step by step:
another program that exists already, then every feed by itself, then a program made for new shapes.
"""

from __future__ import annotations

import copy
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jitonnx import feeds as feeding
from jitonnx.engine import Engine, Settings, Shapes
from jitonnx.errors import Fail, InvalidArgument, ModelLoadCanceled
from jitonnx.ir.graph import GraphError
from jitonnx.ir.operator import InferenceError
from jitonnx.log import session_logger
from jitonnx.metadata import ModelMetadata, NodeArg, input_arg, model_metadata, output_arg
from jitonnx.model import Declaration, load
from jitonnx.model.adapt import adapt
from jitonnx.options import RunOptions, SessionOptions
from jitonnx.profiling import Profile
from jitonnx.providers import CPU, check_providers
from jitonnx.runtime.cache import KernelCache, default_directory
from jitonnx.runtime.threads import allowed_cpus

Outputs: TypeAlias = list[Any]

STRICT = "session.strict_shape_type_inference"
EXTERNAL_DATA_FOLDER = "session.model_external_initializers_file_folder_path"
MODEL_FORMAT = "session.load_model_format"
_THREAD_VARIABLES = ("JITONNX_NUM_THREADS", "ORT_INTRA_OP_NUM_THREADS")
_KNOWN_KEYWORDS = {"enable_fallback", "read_config_from_model", "disabled_optimizers"}


class InferenceSession:
    """A model that is loaded, compiled and ready to run; from several Python threads at once if need be.

    path_or_bytes: a path, the file's bytes, a binary file object, or a ModelProto.
    sess_options: a `SessionOptions`.
    providers, provider_options: as for onnxruntime; jitonnx has the CPU's alone and warns of others.

    A model whose inputs have fixed shapes is ready to run when this returns. One with dimension variables is planned
    and compiled, and the first run with new shapes only works out sizes.

    Raises jitonnx.errors.Error (its subclasses are onnxruntime's errors, by name) for a model that cannot be used.

    A session can be pickled: it is then loaded again, with its kernels from the cache. It can be used in a `with`
    statement, which closes it at the end.
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
        self._sess_options = _own_options(sess_options)
        check_providers(providers, provider_options, self._sess_options)
        self._arguments = (_kept_source(path_or_bytes), self._sess_options, providers, provider_options)
        self._model_path = self._arguments[0] if isinstance(self._arguments[0], str) else None
        self._logger = session_logger(self._sess_options.log_severity_level, self._sess_options.logid)
        self._profile = Profile(self._sess_options.profile_file_prefix) if self._sess_options.enable_profiling else None
        self._enable_fallback = True
        self._executor: ThreadPoolExecutor | None = None
        self._disagreed = False
        self._entry: Callable[[Any], Outputs | None] = _look_closer
        self._create()
        self._created_with = frozenset(self.__dict__)

    # ------------------------------------------------------------ running

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> Outputs:
        """The outputs for these inputs: new arrays, which the caller owns.

        output_names: which outputs, in which order; None or nothing: all, in the model's order.
        input_feed: an array for every input, by name. Lists and numbers become arrays of the input's type; an array
        must have that type.

        InvalidArgument (also a ValueError) names the input or output that does not fit, and what would.
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
        """`run` on another thread, which then calls `callback(outputs, user_data, error)`; error is "" if all went well.

        Names are checked at once. Returns a future of the outputs (onnxruntime returns nothing).
        """
        self._selection(output_names)
        feeding.check_names(input_feed, self._main.names, self._overridable)
        if self._executor is None:
            self._executor = ThreadPoolExecutor(thread_name_prefix="jitonnx-run")
        future = self._executor.submit(self.run, output_names, input_feed, run_options)
        if callback is not None:
            future.add_done_callback(lambda done: _call_back(done, callback, user_data))
        return future

    def _run(self, output_names: Any, feeds: Mapping[str, Any], run_options: RunOptions | None) -> Outputs:
        """Any run at all."""
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
        try:
            shapes = tuple([feeds[name].shape for name in self._main.names])
        except (KeyError, AttributeError, TypeError, IndexError):
            return self._carefully(feeds)
        program = self._main.engine.known_program(shapes)
        if program is not None and program.entry is not None and self._profile is None:
            outputs = program.entry(feeds)
            if outputs is not None:
                self._entry = program.entry
                return outputs
        return self._carefully(feeds)

    def _carefully(self, feeds: Any) -> Outputs:
        """All outputs, every feed looked at by itself."""
        feeding.check_names(feeds, self._main.names, self._overridable)
        bound = self._bound(feeds)
        arrays = [feeding.read(feeds[declared.name], declared) for declared in bound.declared]
        shapes = tuple(array.shape for array in arrays)
        if bound.engine.known_program(shapes) is None:
            self._check_agreement(bound.declared, shapes)
        with _explained():
            program = bound.engine.program(shapes)
            if program is None:
                return bound.engine.run(arrays)
        if self._profile is not None:
            return self._profile.run(program.executable, arrays)
        if program.entry is not None:
            self._entry = program.entry
        return program.executable.run(arrays)

    def _check_agreement(self, declared: Sequence[Declaration], shapes: Shapes) -> None:
        """Warn once of inputs that disagree on a dimension; InvalidArgument in strict mode."""
        text = feeding.disagreement(declared, shapes)
        if text is None:
            return
        if self._sess_options.entry(STRICT) == "1":
            raise InvalidArgument(f"inputs disagree: {text}. (The configuration entry {STRICT} is 1.)")
        if not self._disagreed:
            self._disagreed = True
            warnings.warn(
                f"inputs disagree: {text}. The model is compiled anew for such shapes; set the session configuration "
                f"entry {STRICT} to 1 to get an error instead",
                stacklevel=5,
            )

    # ------------------------------------------------------------ making

    def _create(self) -> None:
        """Load the model and make its engine."""
        options, started = self._sess_options, time.perf_counter()
        if options.load_cancelled():
            raise ModelLoadCanceled("loading was called off by SessionOptions.set_load_cancellation_flag")
        if options.optimized_model_filepath:
            raise Fail("SessionOptions.optimized_model_filepath is not supported: leave it empty")
        if options.entry(MODEL_FORMAT) not in (None, "", "ONNX"):
            raise Fail(f"models of the format {options.entry(MODEL_FORMAT)!r} cannot be read; give an ONNX file")
        source = self._arguments[0]
        model = load(source, external_data_folder=options.entry(EXTERNAL_DATA_FOLDER) or None)
        with _explained():
            model = adapt(model, options.fixed_dimensions(), options.replaced_initializers())
        self._inputs_meta = [input_arg(declared) for declared in model.inputs]
        self._overridable_meta = [input_arg(declared) for declared in model.overridable]
        self._outputs_meta = [
            output_arg(declared, value.type, model.dimensions)
            for declared, value in zip(model.outputs, model.graph.outputs, strict=True)
        ]
        self._model_meta = model_metadata(model.metadata)
        self._output_names = [declared.name for declared in model.outputs]
        self._overridable = {declared.name: declared for declared in model.overridable}
        self._with_defaults = copy_of(model.graph) if model.overridable else None
        self._defaults = dict(zip(self._overridable, model.defaults, strict=True)) if model.overridable else {}
        self._threads = _thread_count(options.intra_op_num_threads)
        with _explained():
            self._main = _Bound(model.inputs, self._engine(model.graph))
            self._warm_up()
        self._logger.info(
            "%s: ready in %.2f s; %s", self._model_path or "model", time.perf_counter() - started, self._main.engine.report
        )
