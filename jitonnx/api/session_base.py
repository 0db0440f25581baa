"""`Session`: what onnxruntime's sessions have besides a model and `run`: runs on values that stay where they are, and
members about providers and devices, of which there is one each here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from jitonnx import errors
from jitonnx.api.entries import RECORD_ASSIGNMENT
from jitonnx.api.options import RunOptions, SessionOptions
from jitonnx.api.providers import CPU, check_known, check_providers
from jitonnx.api.running import Runs, obeying
from jitonnx.support import fork_safety
from jitonnx.support.metadata import NodeArg

if TYPE_CHECKING:
    from jitonnx.api.binding import IOBinding
    from jitonnx.api.devices import OrtDevice, OrtEpAssignedSubgraph, OrtEpDevice, OrtMemoryInfo
    from jitonnx.api.session import InferenceSession
    from jitonnx.api.values import OrtValue


class Session:
    """The base of `InferenceSession`; also a name to ask `isinstance` with."""

    _sess_options: SessionOptions
    _inputs_meta: list[NodeArg]
    _outputs_meta: list[NodeArg]
    _runs: Runs

    run: Callable[..., list[Any]]

    # ------------------------------------------------------------ running on values that stay where they are

    def io_binding(self) -> IOBinding:
        """Inputs and outputs in memory that stays the same from run to run; for `run_with_iobinding`."""
        with fork_safety.critical:
            from jitonnx.api.binding import IOBinding

        return IOBinding(cast("InferenceSession", self))

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """A run on what is bound. Errors as for `run`; InvalidArgument also for memory that an output does not fit."""
        from jitonnx.api.binding import IOBinding

        if not isinstance(iobinding, IOBinding):
            raise TypeError(f"iobinding is a {type(iobinding).__name__}, not what InferenceSession.io_binding gives")
        if iobinding.session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        with obeying(run_options):
            iobinding.run(self._runs, run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` on OrtValues, whose elements are not copied, with OrtValues of new memory for outputs."""
        from jitonnx.api.sparse import SparseTensor
        from jitonnx.api.values import OrtValue

        sparse = {one.name for one in self._inputs_meta if one.type.startswith("sparse_tensor")}
        feeds = {
            name: value.numpy() if isinstance(value, OrtValue) and name not in sparse else value
            for name, value in input_dict_ort_values.items()
        }
        return [
            OrtValue.ort_value_from_sparse_tensor(output)
            if isinstance(output, SparseTensor)
            else OrtValue.ortvalue_from_numpy(output)
            for output in self.run(output_names, feeds, run_options)
        ]

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: list[OrtValue],
        fetch_devices: Sequence[OrtDevice] = (),
    ) -> None:
        """`run_with_ort_values` on lists of names and values; `fetches` gets the outputs, in place of what is in it."""
        given = dict(zip(feed_names, feeds, strict=True))
        fetches[:] = self.run_with_ort_values(fetch_names, given, run_options)

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """`OrtValue.ortvalue_from_shape_and_type`."""
        from jitonnx.api.values import OrtValue

        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    # ------------------------------------------------------------ providers and devices

    def get_providers(self) -> list[str]:
        """The execution providers in use: the CPU's."""
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the providers in use: none."""
        return {CPU: {}}

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Warn of providers that jitonnx does not have, and change nothing else. RuntimeError for unknown names."""
        check_providers(providers, provider_options, self._sess_options)
        check_known(providers)

    def disable_fallback(self) -> None:
        """Accepted, without effect: there is no provider to fall back from."""

    def enable_fallback(self) -> None:
        """Accepted, without effect: there is no provider to fall back from."""

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """The CPU's memory for each input."""
        from jitonnx.api.devices import cpu_memory

        return [cpu_memory() for _ in self._inputs_meta]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """The CPU's memory for each output."""
        from jitonnx.api.devices import cpu_memory

        return [cpu_memory() for _ in self._outputs_meta]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The CPU for each input."""
        from jitonnx.api.devices import get_ep_devices

        return get_ep_devices() * len(self._inputs_meta)

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> NoReturn:
        """Fail: the CPU's provider has no options that change."""
        raise errors.Fail(f"the CPU's execution provider has no dynamic options; got {', '.join(options) or 'none'}")

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """Nothing: kernels are not tuned by trying."""
        return []

    def set_tuning_results(self, results: Sequence[Mapping[str, Any]], *, error_on_invalid: bool = False) -> None:
        """Accepted, without effect: kernels are not tuned by trying."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Accepted, without effect: no graphs are captured."""

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Each node of the model, as the CPU's. (`jitonnx explain` tells what became of it.)

        Fail unless the configuration entry session.record_ep_graph_assignment_info is "1".
        """
        from jitonnx.api.devices import OrtEpAssignedNode, OrtEpAssignedSubgraph

        if self._sess_options.entry(RECORD_ASSIGNMENT) != "1":
            raise errors.Fail(
                f"Session configuration entry '{RECORD_ASSIGNMENT}' must be set to \"1\" to retrieve EP graph "
                "assignment information."
            )
        nodes = cast("InferenceSession", self).model_nodes
        return [OrtEpAssignedSubgraph([OrtEpAssignedNode(node.name, node.domain, node.operator)]) for node in nodes]

    @property
    def _providers(self) -> list[str]:
        return self.get_providers()

    _enable_fallback = True
