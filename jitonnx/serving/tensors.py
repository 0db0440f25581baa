"""Requests and answers of the Open Inference Protocol as arrays by name."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence

import numpy as np
import orjson
from kserve import InferInput, InferOutput, InferRequest, InferResponse
from kserve.errors import InvalidInput
from kserve.protocol.infer_type import RequestedOutput
from kserve.protocol.rest.v2_datamodels import InferenceRequest
from pydantic import ValidationError

from jitonnx.serving.signature import Tensor


def arrays_of(request: InferRequest, inputs: Sequence[Tensor]) -> dict[str, np.ndarray]:
    """A request's arrays by input. InvalidInput names the one that does not fit, and what would."""
    given = {one.name: one for one in request.inputs}
    known = ", ".join(repr(one.name) for one in inputs)
    for name in given:
        if all(name != one.name for one in inputs):
            raise InvalidInput(f"there is no input {name!r}; the model's are {known}")
    arrays = {}
    for wanted in inputs:
        one = given.get(wanted.name)
        if one is None:
            raise InvalidInput(f"input {wanted.name!r} is missing; the model's are {known}")
        if one.datatype != wanted.datatype or not wanted.takes(one.shape):
            raise InvalidInput(
                f"input {wanted.name!r} is {one.datatype} {list(one.shape)}; {wanted.datatype} {list(wanted.shape)} "
                "is needed, -1 being any size"
            )
        arrays[wanted.name] = _array(one)
    return arrays


def _array(one: InferInput) -> np.ndarray:
    try:
        array: np.ndarray = one.as_numpy()
        if one.datatype == "BYTES":
            texts = [text.decode() if isinstance(text, bytes) else str(text) for text in array.flat]
            array = np.array([*texts, None], object)[:-1].reshape(array.shape)  # with None: never an array of lists
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise InvalidInput(
            f"the data of input {one.name!r} are not {one.datatype} {list(one.shape)}: {error}"
        ) from error
    return array


def response_of(
    request: InferRequest, model: str, outputs: Sequence[Tensor], arrays: Mapping[str, np.ndarray]
) -> InferResponse:
    """The answer: the outputs that were asked for, or all. InvalidInput for a name that is none of them."""
    by_name = {one.name: one for one in outputs}
    asked = [one.name for one in request.request_outputs or ()]
    for name in asked:
        if name not in by_name:
            raise InvalidInput(f"there is no output {name!r}; the model's are {', '.join(map(repr, by_name))}")
    made = []
    for name in asked or by_name:
        one = InferOutput(name, list(arrays[name].shape), by_name[name].datatype, data=arrays[name])
        if request.from_grpc:  # over HTTP the request says, of each output, whether it is bytes
            one.set_data_from_numpy(arrays[name], binary_data=True)
        made.append(one)
    return InferResponse(
        request.id or uuid.uuid4().hex,
        model,
        made,
        from_grpc=request.from_grpc,
        use_binary_outputs=request.use_binary_outputs,
        requested_outputs=request.request_outputs,
    )


def read_request(body: bytes, json_length: int | None, model: str) -> InferRequest:
    """A request over HTTP: JSON of `json_length` bytes, and behind it inputs as bytes; JSON alone for None.

    (KServe's own reader makes lists of numbers of such bytes.) InvalidInput for what is none.
    """
    try:
        if json_length is None:
            made: InferRequest = InferRequest.from_inference_request(InferenceRequest.model_validate_json(body), model)
            return made
        told = orjson.loads(body[:json_length])
        inputs, raw, at = [], [], json_length
        for one in told["inputs"]:
            parameters = one.get("parameters") or {}
            inputs.append(InferInput(one["name"], one["shape"], one["datatype"], one.get("data"), parameters))
            size = parameters.get("binary_data_size")
            if size is None and "data" not in one:
                raise InvalidInput(f"input {one['name']!r} has neither data nor binary_data_size")
            raw.append(None if size is None else body[at : at + size])
            at += size or 0
        asked = [RequestedOutput(one["name"], one.get("parameters")) for one in told.get("outputs") or ()]
        return InferRequest(
            model,
            inputs,
            request_id=told.get("id"),
            raw_inputs=raw,
            parameters=told.get("parameters"),
            request_outputs=asked or None,
        )
    except (ValidationError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"the body is no request of the Open Inference Protocol: {error}") from error
