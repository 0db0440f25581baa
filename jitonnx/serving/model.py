"""A session as a model of KServe's Python runtime."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import kserve
import numpy as np
from kserve import InferRequest, InferResponse
from kserve.errors import InferenceError, InvalidInput, ModelNotReady
from kserve.model import InferenceVerb

from jitonnx.api.session import InferenceSession, load
from jitonnx.batch.prediction import one_thread, rates_of, size_that_pays
from jitonnx.batch.signature import signature_of
from jitonnx.errors import Error, InvalidArgument
from jitonnx.runtime.threads import allowed_cpus
from jitonnx.serving.batching import Arrays, Batcher, Limits, Refused
from jitonnx.serving.metrics import Metrics
from jitonnx.serving.signature import Tensor, entanglement, made_up, tensors_of
from jitonnx.serving.tensors import arrays_of, response_of
from jitonnx.support.log import logger

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Rows of a batch that are tried; more wait too long for each other."""
SHORT_SECONDS = 0.0002
"""A run of less time is made by the event loop: to hand it to a thread, and its outputs back, takes as long."""


class Unavailable(ModelNotReady):
    """503, or UNAVAILABLE: too many requests wait, or the server is being ended. Clients may try again."""

    def __init__(self, model: str, text: str) -> None:
        super().__init__(model, text)
        self.reason = self.error_msg  # which KServe's gRPC server tells


class Model(kserve.Model):
    """A model under a name. `load` opens it, runs it, and then it is ready.

    model: the path of an ONNX file, its content, or a session, of jitonnx or onnxruntime. artifact: the path is that of
    a compiled model, whose machine code is to be run.
    batch_rows: of a run that requests share, at most; 1 for none. By default as many as pay, up to 64, if the model's
    outputs for a row do not depend on the rows beside it, which is tried.
    delay: seconds that a request waits for others while a run could begin. most_waiting: requests; others are refused
    (503, UNAVAILABLE). threads: runs that may be under way at once, each on one thread; by default the CPUs, or one for
    a session of yours. warm_up: inputs, [rows, ...] by name, that are run before the model is ready; by default made-up
    ones, of `OPEN_SIZE` along the axes of a row that are open.
    """

    def __init__(  # noqa: PLR0913  (a call's options, by name)
        self,
        name: str,
        model: str | os.PathLike[str] | bytes | Any,
        *,
        artifact: bool = False,
        batch_rows: int | None = None,
        delay: float = 0.0,
        most_waiting: int = 1024,
        threads: int | None = None,
        warm_up: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        super().__init__(name)
        self._source, self._is_artifact, self._warm_up = model, artifact, warm_up
        self._asked = batch_rows, delay, most_waiting, threads
        self._metrics = Metrics(name)
        self._inputs: tuple[Tensor, ...] = ()
        self._outputs: tuple[Tensor, ...] = ()
        self._batcher: Batcher | None = None

    def load(self) -> bool:
        """Open the model and run it, so that no request waits for what a first run does.

        Errors are those of `jitonnx.InferenceSession` and `jitonnx.load`; InvalidArgument for a model whose inputs or
        outputs the protocol has no types for, and for `batch_rows` above 1 where its inputs have no rows.
        """
        own = isinstance(self._source, str | os.PathLike | bytes)
        session: Any = self._opened() if own else self._source
        self._inputs, self._outputs = tensors_of(session.get_inputs()), tensors_of(session.get_outputs())
        names = [one.name for one in self._outputs]

        def run(arrays: Arrays) -> Arrays:
            return dict(zip(names, session.run(names, arrays), strict=True))

        batch_rows, delay, most_waiting, threads = self._asked
        most_rows, short_rows = self._batches(session, run, batch_rows)
        runs = threads or (allowed_cpus() if own else 1)
        limits = Limits(most_rows, delay, most_waiting, runs, short_rows)
        logger.info("model %r is ready: %s", self.name, limits)
        self._batcher = Batcher(run, limits, self._metrics)
        self.ready = True
        return self.ready

    def _opened(self) -> Any:
        return load(self._source, one_thread()) if self._is_artifact else InferenceSession(self._source, one_thread())

    def _batches(self, session: Any, run: Callable[[Arrays], Arrays], asked: int | None) -> tuple[int, int]:
        """The rows of a batch at most, and of those that the event loop runs. Runs the model on the way."""
        try:
            signature = signature_of(session)
            why = "" if signature.rows is None else f"its batch is {signature.rows} rows"
        except InvalidArgument as error:
            why = error.text
        if why and asked is not None and asked > 1:
            raise InvalidArgument(f"requests cannot share runs of model {self.name!r}: {why}")
        rows = self._warm_up or made_up(self._inputs)
        try:
            run(rows)
        except (Error, ValueError, RuntimeError) as error:
            if self._warm_up is not None:
                raise
            logger.warning("model %r fails on rows that are made up: give warm-up inputs: %s", self.name, error)
            return asked or 1, 0
        if not why and asked is None:
            why = entanglement(run, rows)
        if why or asked == 1:
            logger.info("requests share no runs of model %r: %s", self.name, why or "batch_rows is 1")
            return 1, 0
        rates = rates_of(run, rows, [size for size in SIZES if size <= (asked or SIZES[-1])])
        short = max((size for size, rate in rates.items() if size / rate <= SHORT_SECONDS), default=0)
        return asked or size_that_pays(rates), short

    def get_input_types(self) -> list[dict[str, Any]]:
        """Inputs as metadata have them: name, datatype, shape with -1 for sizes that are open."""
        return [one.told() for one in self._inputs]

    def get_output_types(self) -> list[dict[str, Any]]:
        """Outputs, in the same way."""
        return [one.told() for one in self._outputs]

    async def __call__(
        self, body: Any, headers: dict[str, str] | None = None, verb: InferenceVerb = InferenceVerb.PREDICT
    ) -> tuple[Any, dict[str, str]]:
        """What KServe calls: the answer, and headers of it. Without KServe's own steps, which take as long as a small
        model's batch, where a subclass makes nothing of them."""
        if verb != InferenceVerb.PREDICT or self._has_steps or not isinstance(body, InferRequest):
            made: tuple[Any, dict[str, str]] = await super().__call__(body, headers, verb)
            return made
        with self._metrics.predict_seconds.time():
            return await self.predict(body, headers), {}

    @functools.cached_property
    def _has_steps(self) -> bool:
        """Whether there is something to do before or behind a prediction."""
        own, kserves = type(self), kserve.Model
        return own.preprocess is not kserves.preprocess or own.postprocess is not kserves.postprocess

    async def predict(
        self, payload: Any, headers: dict[str, str] | None = None, response_headers: dict[str, str] | None = None
    ) -> InferResponse:
        """The answer to a request.

        InvalidInput for one that does not fit the model, Unavailable where it is not taken, InferenceError where the
        run fails.
        """
        if not isinstance(payload, InferRequest):
            raise InvalidInput("this model takes requests of the Open Inference Protocol (V2) alone")
        if self._batcher is None:
            raise Unavailable(self.name, "It is not loaded.")
        try:
            given = arrays_of(payload, self._inputs)
            if self._batcher.limits.most_rows > 1 and len({len(array) for array in given.values()}) > 1:
                counts = {name: len(array) for name, array in given.items()}
                raise InvalidInput(f"the inputs have {counts} rows; as many are needed of each")
            arrays = await self._batcher.submit(given)
            response = response_of(payload, self.name, self._outputs, arrays)
        except Refused as error:
            self._metrics.refused.inc()
            raise Unavailable(self.name, str(error)) from error
        except InvalidArgument as error:
            self._metrics.failed.inc()
            raise InvalidInput(error.text) from error
        except RuntimeError as error:
            self._metrics.failed.inc()
            raise InferenceError(str(error)) from error
        except InvalidInput:
            self._metrics.failed.inc()
            raise
        self._metrics.answered.inc()
        return response

    async def drain(self) -> None:
        """Refuse requests from now on, and return when those that were taken are answered."""
        self.ready = False
        if self._batcher is not None:
            await self._batcher.drain()

    def stop(self) -> None:
        """KServe's server ends: requests are refused from now on."""
        self.ready = False
