"""`TrainingSession`: a model that says how it is trained (ONNX IR 7 and later, TrainingInfoProto), with its state.

    session = jitonnx.TrainingSession("training.onnx")
    session.initialize()
    for images, labels in batches:
        loss = session.step({"images": images, "labels": labels})["loss"]
    session.save("trained.onnx")

Initializers that a binding of the model assigns are its state. Whatever is run takes them as inputs, so a new state
is no new code: the inference graph, and for each training info the graph of its initialization, and the inference graph
with that of its algorithm behind it, as ONNX defines a training step. Each becomes an `InferenceSession` when it is
first run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jitonnx.api.options import SessionOptions
from jitonnx.api.session import InferenceSession
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.dtypes import of_numpy
from jitonnx.model.load import examined, parsed
from jitonnx.model.tensors import TensorReader
from jitonnx.proto import GraphProto, ModelProto, StringStringEntryProto, TensorProto
from jitonnx.support.atomic_files import replacing

MOST_INLINE = (1 << 31) - (1 << 24)
"""Bytes of weights from which on a saved model has them in a file beside it: protobuf ends at 2 GB; less some room."""
ALIGNMENT = 4096
"""Bytes that weights in a file beside the model are aligned to, so that they can be mapped."""


class TrainingSession:
    """A training model and the current values of its state variables.

    path_or_bytes: a path, the file's bytes, a binary file object, or a ModelProto, with at least one training info.
    sess_options: a `SessionOptions` for all graphs that are run.

    State variables are what `initialization_binding` and `update_binding` name; they begin as the model's initializers.
    Methods may be called from several threads, one at a time goes. A step or an initialization that fails leaves the
    state as it was. jitonnx.errors.Error says what is wrong with a model.
    """

    def __init__(self, path_or_bytes: Any, sess_options: SessionOptions | None = None) -> None:
        proto, reader = parsed(path_or_bytes)
        if not proto.training_info:
            raise InvalidArgument("the model has no training info: give a training model, or make an InferenceSession")
        for finding in examined(proto, reader):
            if finding.refused or finding.rule.startswith("training."):
                raise finding.error()
        self._options, self._lock = sess_options, threading.Lock()
        self._proto, self._sessions = _inlined(proto, reader), dict[str, InferenceSession]()
        names = _bound(proto)
        tensors = {
            tensor.name: tensor
            for graph in (proto.graph, *(info.algorithm for info in proto.training_info))
            for tensor in graph.initializer
        }
        missing = sorted(names - tensors.keys())
        if missing:
            raise Fail(f"the state variable {missing[0]!r} is no dense initializer of the model or of an algorithm")
        self._state = {name: reader.array(tensors[name]) for name in tensors if name in names}

    @property
    def algorithms(self) -> int:
        """How many training infos the model has."""
        return len(self._proto.training_info)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """A copy of each state variable, by name."""
        with self._lock:
            return {name: array.copy() for name, array in self._state.items()}

    def initialize(self) -> None:
        """Run the initialization of each training info, in order, each followed by its bindings."""
        with self._lock:
            state = dict(self._state)
            for number, info in enumerate(self._proto.training_info):
                if info.initialization_binding:
                    results = self._results(f"initialization {number}", {}, {})
                    state.update(self._assigned(info.initialization_binding, results))
            self._state = state

    def step(self, inputs: Mapping[str, Any], algorithm: int = 0) -> dict[str, np.ndarray]:
        """Run one iteration of a training info's algorithm, and assign what its bindings say.

        inputs: an array for each input of the inference graph and of the algorithm, by name. Returns the outputs of
        both by name. InvalidArgument for an algorithm that there is not, and for new values of another type or shape.
        """
        if not 0 <= algorithm < self.algorithms:
            raise InvalidArgument(f"algorithm is {algorithm}, and the model has {self.algorithms}")
        with self._lock:
            results = self._results(f"algorithm {algorithm}", inputs, self._state)
            new = self._assigned(self._proto.training_info[algorithm].update_binding, results)
            self._state = {**self._state, **new}
            return results

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Inference with the current state: the outputs of the model's graph by name."""
        with self._lock:
            return self._results("inference", inputs, self._state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model with the current state, training infos included, so that training can go on from there.

        Beyond 2 GB the state is in a file beside it, `path` with ".data" at its end. Files are complete or not there.
        """
        with self._lock:
            state = dict(self._state)
        target, proto = Path(path), ModelProto()
        proto.CopyFrom(self._proto)
        graphs = [proto.graph, *(info.algorithm for info in proto.training_info)]
        tensors = [tensor for graph in graphs for tensor in graph.initializer if tensor.name in state]
        beside = sum(array.nbytes for array in state.values()) + proto.ByteSize() > MOST_INLINE
        if beside:
            parts, size = [], 0
            for tensor in tensors:
                array = np.ascontiguousarray(state[tensor.name])
                size = -(-size // ALIGNMENT) * ALIGNMENT
                _keep_external(tensor, target.name + ".data", size, array.nbytes)
                parts.append((size, array))
                size += array.nbytes
            _write(target.with_name(target.name + ".data"), parts)
        else:
            for tensor in tensors:
                tensor.raw_data = state[tensor.name].tobytes()
        _write(target, [(0, np.frombuffer(proto.SerializeToString(), np.uint8))])

    # ------------------------------------------------------------ graphs

    def _results(self, which: str, inputs: Mapping[str, Any], state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = self._sessions.get(which)
        if session is None:
            session = InferenceSession(self._model(which).SerializeToString(), self._options)
            self._sessions[which] = session
        taken = {entry.name for entry in session.get_inputs()}
        if clash := sorted(state.keys() & inputs.keys()):
            raise InvalidArgument(f"{clash[0]!r} is a state variable of the session, and is not fed")
        feeds = {**inputs, **{name: array for name, array in state.items() if name in taken}}
        names = [entry.name for entry in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))

    def _model(self, which: str) -> ModelProto:
        """The model that "inference", "initialization N" or "algorithm N" means, with the state as inputs."""
        model, (kind, *number) = ModelProto(), which.split()
        model.CopyFrom(self._proto)
        model.ClearField("training_info")
        if kind != "inference":
            info = self._proto.training_info[int(number[0])]
            if kind == "initialization":
                model.graph.CopyFrom(info.initialization)
            else:
                _append(model.graph, info.algorithm)
        kept = [
            tensor for tensor in model.graph.initializer if tensor.name not in self._state or kind == "initialization"
        ]
        ours = [tensor for tensor in model.graph.initializer if tensor.name in self._state]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
        if kind != "initialization":
            inputs = [entry for entry in model.graph.input if entry.name not in self._state]
            del model.graph.input[:]
            model.graph.input.extend(inputs)
            for tensor in ours:
                entry = model.graph.input.add(name=tensor.name)
                entry.type.tensor_type.elem_type = tensor.data_type
                entry.type.tensor_type.shape.SetInParent()
                for size in tensor.dims:
                    entry.type.tensor_type.shape.dim.add(dim_value=size)
        return model

    def _assigned(
        self, bindings: Iterable[StringStringEntryProto], results: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The new values of state variables. InvalidArgument for one of another type or shape than the variable's."""
        new = {}
        for binding in bindings:
            before, after = self._state[binding.key], results[binding.value]
            if before.dtype != after.dtype or before.shape != after.shape:
                raise InvalidArgument(
                    f"{binding.value!r}, which is bound to the state variable {binding.key!r}, is "
                    f"{of_numpy(after.dtype).text}{list(after.shape)}, and the variable is "
                    f"{of_numpy(before.dtype).text}{list(before.shape)}"
                )
            new[binding.key] = after
        return new


def _bound(proto: ModelProto) -> set[str]:
    return {
        binding.key for info in proto.training_info for binding in (*info.initialization_binding, *info.update_binding)
    }


def _append(graph: GraphProto, algorithm: GraphProto) -> None:
    """Put an algorithm behind the inference graph: each list of the one behind that of the other."""
    graph.node.extend(algorithm.node)
    graph.initializer.extend(algorithm.initializer)
    graph.sparse_initializer.extend(algorithm.sparse_initializer)
    graph.input.extend(algorithm.input)
    graph.output.extend(algorithm.output)
    graph.value_info.extend(algorithm.value_info)


def _inlined(proto: ModelProto, reader: TensorReader) -> ModelProto:
    """The model with the elements of all its initializers in it, also those that lie elsewhere."""
    for graph in (proto.graph, *(g for info in proto.training_info for g in (info.initialization, info.algorithm))):
        for tensor in graph.initializer:
            if tensor.data_location == TensorProto.EXTERNAL:
                array = reader.array(tensor)
                tensor.ClearField("data_location")
                tensor.ClearField("external_data")
                tensor.raw_data = array.tobytes()
            elif tensor.HasField("raw_data"):
                tensor.raw_data = bytes(reader.raw(tensor))
    return proto


def _keep_external(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Let a tensor say that its elements lie in another file."""
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def _write(path: Path, parts: Sequence[tuple[int, np.ndarray]]) -> None:
    """Write arrays at offsets of a file, which is in its place when it is complete."""
    with replacing(path) as file:
        for offset, array in parts:
            file.seek(offset)
            file.write(array.data.cast("B") if array.size else b"")
