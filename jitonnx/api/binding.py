"""`IOBinding`: inputs and outputs of a session in memory that stays the same, under onnxruntime's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.api import feeds as feeding
from jitonnx.api.devices import OrtDevice, cpu_alone
from jitonnx.api.passed_on import PassedOn
from jitonnx.api.targets import Targets, check_type
from jitonnx.api.values import OrtValue, OrtValueVector, elements_at
from jitonnx.errors import InvalidArgument
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.api.options import RunOptions
    from jitonnx.api.running import Runs
    from jitonnx.api.session import InferenceSession
    from jitonnx.ir.declaration import Declaration


class IOBinding:
    """What a session's runs read, and where they write; for `InferenceSession.run_with_iobinding`.

    An array or OrtValue that is bound is read when a run begins and not before: what is written to it in between is
    seen. What had to be copied (arrays that are not contiguous, lists) is as it was when it was bound. Inputs, and the
    types of outputs, are checked when they are bound, the shapes of outputs when it is run. An output that is bound
    without memory is a new array in every run.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._declared = {entry.name: entry for entry in session.fed_inputs}
        self._plain = {name: feeding.PlainInputs([entry]) for name, entry in self._declared.items()}
        self._types = {output.name: output.type for output in session.get_outputs()}
        self._inputs: dict[str, np.ndarray] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._wanted: _Wanted | None = None
        """What is bound of the outputs, once a run has asked."""
        self._again: Callable[[], Any] | None = None
        """The last run once more, if nothing else has been bound since then and no output has to be new."""
        self._is_repeated = False
        """Whether nothing has been bound since the last run."""
        self._results: list[Any] | None = None
        """What the last run gave for the outputs bound, in their order; None: there was no run."""

    # ------------------------------------------------------------ inputs

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Have the input `name` read from `arr_on_cpu`, an array or what becomes one.

        InvalidArgument for an unknown name, and for what does not fit.
        """
        declared = self._input(name)
        if self._plain[name].arrays({name: arr_on_cpu}) is None:
            array = feeding.read(arr_on_cpu, declared)
            # What runs can read as it is, is kept: it may be written to by then.
            is_kept = isinstance(arr_on_cpu, np.ndarray) and arr_on_cpu.flags.c_contiguous and arr_on_cpu.dtype.isnative
            arr_on_cpu = arr_on_cpu if is_kept else array
        self._inputs[name] = arr_on_cpu
        self._again, self._is_repeated = None, False

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Have the input `name` read from memory, which the caller keeps.

        device_type, device_id: "cpu" and 0, where the memory is. element_type: a NumPy type, or a number as in
        onnx.TensorProto. shape: of a C-contiguous tensor. buffer_ptr: the address of its first element. InvalidArgument
        for an unknown name and for another type or shape than the input's, RuntimeError for devices other than the CPU.
        """
        self.bind_memory(name, OrtDevice.make(device_type, device_id), element_type, shape, buffer_ptr)

    def bind_memory(self, name: str, device: OrtDevice, element_type: Any, shape: Any, buffer_ptr: int) -> None:
        """`bind_input` of name, element_type, shape and buffer_ptr on a device. (Not in onnxruntime.)"""
        cpu_alone(device)
        self.bind_cpu_input(name, OrtValue.of(*elements_at(buffer_ptr, element_type, shape)).numpy())

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Have the input `name` read from `ortvalue`, whose memory is used."""
        self.bind_cpu_input(name, _value(ortvalue).numpy())

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs, self._again, self._is_repeated = {}, None, False

    def synchronize_inputs(self) -> None:
        """Accepted, without effect: nothing is copied to a device."""

    def _input(self, name: str) -> Declaration:
        if name not in self._declared:
            raise InvalidArgument(
                f"Failed to find NodeArg with name: {name} in the def list; the model's inputs are: "
                f"{', '.join(self._declared) or 'none'}"
            )
        return self._declared[name]

    # ------------------------------------------------------------ outputs

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Have the output `name` computed; with an address, into the memory there, which the caller keeps.

        device_type, device_id: "cpu" and 0, where that memory is. element_type: a NumPy type, or a number as in
        onnx.TensorProto. shape: of a C-contiguous tensor, that of the output. buffer_ptr: the address of its first
        element. Without an address the output lies in the CPU's memory, whatever device is asked for. InvalidArgument
        for an unknown name, and for another type than the output's.
        """
        if buffer_ptr is None and device_type == "cpu":
            self._bind_output(name, None)
        else:
            self.bind_output_on(OrtDevice.make(device_type, device_id), name, element_type, shape, buffer_ptr)

    def bind_output_on(
        self, device: OrtDevice, name: str, element_type: Any = None, shape: Any = None, buffer_ptr: int | None = None
    ) -> None:
        """`bind_output` of name, element_type, shape and buffer_ptr on a device. (Not in onnxruntime.)"""
        if buffer_ptr is None:
            self._bind_output(name, None)
            return
        if element_type is None or shape is None:
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        cpu_alone(device)
        self._bind_output(name, OrtValue.of(*elements_at(buffer_ptr, element_type, shape)))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have the output `name` computed into the memory of `ortvalue`."""
        self._bind_output(name, OrtValue(_value(ortvalue)))

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs = {}
        self._forget()

    def synchronize_outputs(self) -> None:
        """Accepted, without effect: a run is over when `run_with_iobinding` returns."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs bound, in the order in which they were, as the last run left them.

        One that was bound without memory has no value before the first run.
        """
        return list(self.get_outputs_as_ortvaluevector())

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """`get_outputs`, as a vector."""
        results = self._results or [None] * len(self._outputs)
        return OrtValueVector(
            self._output(name, bound, result)
            for (name, bound), result in zip(self._outputs.items(), results, strict=True)
        )

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """Copies of the outputs bound. RuntimeError before the first run."""
        return [value.numpy().copy() for value in self.get_outputs()]

    def _bind_output(self, name: str, value: OrtValue | None) -> None:
        if name not in self._types:
            raise feeding.unknown_output(name, list(self._types))
        if value is not None:
            check_type(name, value.data_type(), self._types[name])
        self._outputs[name] = value
        self._forget()

    def _forget(self) -> None:
        self._results = self._wanted = self._again = None
        self._is_repeated = False

    def _output(self, name: str, bound: OrtValue | None, result: Any) -> OrtValue:
        if bound is not None:
            return bound
        return OrtValue.of_output(result, self._types[name])

    # ------------------------------------------------------------ running

    @property
    def session(self) -> InferenceSession:
        """The session whose inputs and outputs are bound. (Not in onnxruntime.)"""
        return self._session

    @property
    def _iobinding(self) -> SessionIOBinding:
        return SessionIOBinding(self)

    def run(self, runs: Runs, run_options: RunOptions | None = None) -> None:
        """A run of the session by `runs`, with the adapters of run_options. (Not in onnxruntime.)"""
        inputs = self._inputs if run_options is None else run_options.with_adapters(self._inputs)
        if inputs is not self._inputs:
            self._again, self._is_repeated = None, False
        if self._again is not None:
            runs.check_open()
            self._again()
            return
        wanted = self._wanted = self._wanted or self._settled()
        if wanted.targets is None:
            outputs = runs.all_outputs(inputs)
        else:
            placed = runs.run_into(inputs, wanted.targets, repeated=self._is_repeated)
            outputs, self._again = placed.outputs, placed.again if wanted.is_all_given else None
        self._results = [outputs[index] for index in wanted.order]
        self._is_repeated = True
        if inputs is not self._inputs:  # the next run may be one without these adapters
            self._again, self._is_repeated = None, False

    def _settled(self) -> _Wanted:
        """What is bound, for runs. InvalidArgument if no output is."""
        if not self._outputs:
            raise InvalidArgument("At least one output should be requested: bind one with bind_output")
        names, values = [output.name for output in self._session.get_outputs()], self._outputs.values()
        given = [self._outputs.get(name) for name in names]
        targets = (
            [None if value is None else value.numpy() for value in given]
            if any(value is not None for value in values)
            else None
        )
        return _Wanted(
            [names.index(name) for name in self._outputs], targets, all(value is not None for value in values)
        )


class _Wanted(NamedTuple):
    """The outputs that are bound."""

    order: list[int]
    """Their positions among the model's outputs."""
    targets: Targets | None
    """The places where all of the model's outputs go; None: nowhere in particular."""
    is_all_given: bool
    """Whether all that are bound have memory."""


class SessionIOBinding:
    """onnxruntime's inner binding, `binding._iobinding`, whose methods take other arguments: they are passed on.

    session: a session, an inner one (`session._sess`), or the binding that this is the inner side of.
    """

    def __init__(self, session: Any) -> None:
        self.outer = session if isinstance(session, IOBinding) else IOBinding(getattr(session, "outer", session))

    def bind_input(self, name: str, *arguments: Any) -> None:
        """(name, array), or (name, device, element_type, shape, address)."""
        if len(arguments) == 1:
            self.outer.bind_cpu_input(name, *arguments)
        else:
            self.outer.bind_memory(name, *arguments)

    def bind_output(self, name: str, device: OrtDevice, *arguments: Any) -> None:
        """(name, device), or (name, device, element_type, shape, address)."""
        self.outer.bind_output_on(device, name, *arguments)

    def get_outputs(self) -> OrtValueVector:
        """The outputs bound."""
        return self.outer.get_outputs_as_ortvaluevector()

    bind_ortvalue_input, bind_ortvalue_output = PassedOn(), PassedOn()
    clear_binding_inputs, clear_binding_outputs = PassedOn(), PassedOn()
    synchronize_inputs, synchronize_outputs = PassedOn(), PassedOn()
    copy_outputs_to_cpu = PassedOn()


def _value(given: Any) -> OrtValue:
    if not isinstance(given, OrtValue):
        raise TypeError(
            f"an OrtValue is bound here, not {type(given).__name__}; OrtValue.ortvalue_from_numpy makes one"
        )
    return given
