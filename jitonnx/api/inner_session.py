"""onnxruntime's inner session, `session._sess`, whose methods take other arguments than those of the outer one. Code in
the wild calls them to save checks; here they only pass on what they are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jitonnx.api.binding import IOBinding, SessionIOBinding
from jitonnx.api.devices import OrtDevice, OrtEpDevice, OrtMemoryInfo
from jitonnx.api.options import RunOptions, SessionOptions
from jitonnx.api.passed_on import PassedOn
from jitonnx.api.session import InferenceSession
from jitonnx.api.values import OrtValue, OrtValueVector
from jitonnx.support.metadata import ModelMetadata, NodeArg


class InnerSession:
    """A session behind the methods of onnxruntime's inner one.

    options: a `SessionOptions`. source: a path, or bytes where `is_path` is false. The model is loaded by
    `initialize_session`.
    """

    def __init__(self, options: SessionOptions, source: Any, is_path: bool = True, read_config: bool = False) -> None:
        self._options, self._source = options, source

    @classmethod
    def of(cls, session: InferenceSession) -> InnerSession:
        """The inner side of a session."""
        made = cls.__new__(cls)
        made.outer = session
        return made

    outer: InferenceSession

    def initialize_session(
        self, providers: Sequence[str] = (), provider_options: Sequence[Any] = (), disabled: Any = ()
    ) -> None:
        """Load the model. Arguments as for `InferenceSession`; disabled: its `disabled_optimizers`."""
        self.outer = InferenceSession(
            self._source, self._options, providers, provider_options or None, disabled_optimizers=disabled
        )

    def run(self, output_names: Any, feeds: Mapping[str, Any], run_options: RunOptions | None = None) -> list[Any]:
        """`InferenceSession.run`."""
        return self.outer.run(output_names, feeds, run_options)

    def run_with_ort_values(
        self, feeds: Mapping[str, OrtValue], output_names: Sequence[str], run_options: RunOptions | None = None
    ) -> OrtValueVector:
        """`InferenceSession.run_with_ort_values`, feeds first."""
        return OrtValueVector(self.outer.run_with_ort_values(output_names, feeds, run_options))

    def run_with_ortvaluevector(self, *arguments: Any) -> None:
        """`InferenceSession.run_with_ortvaluevector`."""
        self.outer.run_with_ortvaluevector(*arguments)

    def run_with_iobinding(self, binding: SessionIOBinding | IOBinding, run_options: RunOptions | None = None) -> None:
        """`InferenceSession.run_with_iobinding`."""
        outer = binding.outer if isinstance(binding, SessionIOBinding) else binding
        self.outer.run_with_iobinding(outer, run_options)

    @property
    def inputs_meta(self) -> list[NodeArg]:
        """The inputs."""
        return self.outer.get_inputs()

    @property
    def outputs_meta(self) -> list[NodeArg]:
        """The outputs."""
        return self.outer.get_outputs()

    @property
    def overridable_initializers(self) -> list[NodeArg]:
        """The inputs with a default."""
        return self.outer.get_overridable_initializers()

    @property
    def input_meminfos(self) -> list[OrtMemoryInfo]:
        """`InferenceSession.get_input_memory_infos`."""
        return self.outer.get_input_memory_infos()

    @property
    def output_meminfos(self) -> list[OrtMemoryInfo]:
        """`InferenceSession.get_output_memory_infos`."""
        return self.outer.get_output_memory_infos()

    @property
    def input_epdevices(self) -> list[OrtEpDevice]:
        """`InferenceSession.get_input_epdevices`."""
        return self.outer.get_input_epdevices()

    def create_ortvalue_from_shape_and_type(self, shape: Sequence[int], kind: Any, device: OrtDevice) -> OrtValue:
        """`OrtValue.ortvalue_from_shape_and_type` on a device."""
        return OrtValue.ortvalue_from_shape_and_type(shape, kind, device)

    create_ortvalue_from_shape_and_onnx_type = create_ortvalue_from_shape_and_type

    @property
    def model_meta(self) -> ModelMetadata:
        """What the model's file says about the model."""
        return self.outer.get_modelmeta()

    @property
    def session_options(self) -> SessionOptions:
        """A copy of the options."""
        return self.outer.get_session_options()

    @property
    def get_profiling_start_time_ns(self) -> int:
        """`InferenceSession.get_profiling_start_time_ns`, as an attribute."""
        return self.outer.get_profiling_start_time_ns()

    def set_tuning_results(self, results: Sequence[Mapping[str, Any]], error_on_invalid: bool) -> None:
        """`InferenceSession.set_tuning_results`."""
        self.outer.set_tuning_results(results, error_on_invalid=error_on_invalid)

    def is_webgpu_graph_capture_enabled(self) -> bool:
        """False: there is no WebGPU here."""
        return False

    def webgpu_context_id(self) -> int:
        """-1: there is no WebGPU here."""
        return -1

    get_providers, get_provider_options, get_provider_graph_assignment_info = PassedOn(), PassedOn(), PassedOn()
    end_profiling, get_tuning_results, set_ep_dynamic_options = PassedOn(), PassedOn(), PassedOn()
    run_async, release_captured_graph = PassedOn(), PassedOn()

    def __getattr__(self, name: str) -> Any:
        if name == "outer":
            raise RuntimeError("the session has no model yet: call initialize_session() first")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
