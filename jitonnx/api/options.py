"""What a session and a run may be told: `SessionOptions` and `RunOptions`, as onnxruntime has them.

Options that mean something to jitonnx say so below. The others exist so that code written for onnxruntime works: they
are checked, kept and given back, and change nothing.
"""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

from jitonnx import errors
from jitonnx.api.enumerations import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtExecutionProviderDevicePolicy,
)

if TYPE_CHECKING:
    from jitonnx.api.adapters import LoraAdapter
    from jitonnx.ir.operator import Operator
    from jitonnx.model.overrides import Overrides
    from jitonnx.ops.registered import PutOff
    from jitonnx.ops.registry import Registry

_T = TypeVar("_T")
_KEY_LENGTH = 1024


class _Option(Generic[_T]):
    """An attribute with a default that takes values of one kind. TypeError for others."""

    def __init__(self, default: _T, convert: Callable[[Any], _T], takes: str, doc: str = "") -> None:
        self._default, self._convert, self._takes = default, convert, takes
        self.__doc__ = doc or "Kept, without effect."

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._owner = name, owner.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> _Option[_T]: ...

    @overload
    def __get__(self, instance: Any, owner: type) -> _T: ...

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance._values.get(self._name, self._default)

    def __set__(self, instance: Any, value: Any) -> None:
        try:
            instance._values[self._name] = self._convert(value)
        except TypeError:
            raise TypeError(
                f"{self._owner}.{self._name} takes {self._takes}, not {value!r} ({type(value).__name__})"
            ) from None


def _integer(default: int, doc: str = "") -> _Option[int]:
    return _Option(default, operator.index, "an int", doc)


def _flag(*, default: bool, doc: str = "") -> _Option[bool]:
    return _Option(default, lambda value: bool(operator.index(value)), "a bool", doc)


def _text(default: str, doc: str = "") -> _Option[str]:
    return _Option(default, lambda value: _instance(value, str), "a str", doc)


def _choice(default: _T, doc: str = "") -> _Option[_T]:
    kind = type(default)
    return _Option(default, lambda value: _instance(value, kind), f"a {kind.__name__}", doc)


def _instance(value: Any, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _fixed_size(name: str, size: Any) -> int:
    """The size that a dimension is given. TypeError for no integer, InvalidArgument for a negative one."""
    if not hasattr(size, "__index__"):
        raise TypeError(f"give the size of dimension {name!r} as an int; got {size!r}")
    if operator.index(size) < 0:
        raise errors.InvalidArgument(f"dimension {name!r} is fixed to {size}; give a size of at least 0")
    return operator.index(size)


class _Options:
    """What session and run options share: attributes, entries by key, copying and pickling."""

    __slots__ = ("__weakref__", "_entries", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._entries: dict[str, str] = {}

    def __dir__(self) -> Iterable[str]:
        # People pickle options by setting again every attribute that dir() names, which this one does not allow.
        return [name for name in super().__dir__() if name != "__weakref__"]

    def __repr__(self) -> str:
        given = [f"{name}={value!r}" for name, value in (self._values | self._entries).items()]
        return f"{type(self).__name__}({', '.join(given)})"

    def _add_entry(self, key: Any, value: Any) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"configuration keys and values are str; got {key!r}: {value!r}")
        if not 1 <= len(key) <= _KEY_LENGTH:
            raise RuntimeError(f"Config key is empty or longer than maximum length {_KEY_LENGTH}")
        self._entries[key] = value

    def _get_entry(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]

    def __getstate__(self) -> dict[str, Any]:
        slots = [name for kind in type(self).__mro__ for name in kind.__dict__.get("__slots__", ())]
        state = {name: copy.copy(getattr(self, name)) for name in slots if name != "__weakref__"}
        return state | getattr(self, "__dict__", {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


class SessionOptions(_Options):
    """How a session compiles and runs its model. Copyable and picklable.

    An unknown attribute is an AttributeError, a value of a wrong type a TypeError.
    """

    __slots__ = (
        "_custom",
        "_denotations",
        "_dimensions",
        "_external",
        "_files",
        "_initializers",
        "_libraries",
        "_providers",
    )

    def __init__(self) -> None:
        super().__init__()
        self._dimensions: dict[str, int] = {}
        self._denotations: dict[str, int] = {}
        self._initializers: dict[str, Any] = {}
        self._external: dict[str, Any] = {}
        self._files: dict[str, Any] = {}
        self._providers: list[tuple[str, dict[str, str]]] = []
        self._custom: list[type[Operator]] = []
        self._libraries: list[str] = []

    intra_op_num_threads = _integer(
        0,
        "Threads that a run uses, the calling one included. 0 or less: the environment variable JITONNX_NUM_THREADS or "
        "ORT_INTRA_OP_NUM_THREADS, else the CPUs that this process may use (affinity and cgroup quota counted).",
    )
    graph_optimization_level = _choice(
        GraphOptimizationLevel.ORT_ENABLE_ALL, "Which rewrites are made; see docs/passes.md."
    )
    log_severity_level = _integer(
        -1, "The least severity logged by this session, 0 (verbose) to 4 (fatal); -1: that of the process."
    )
    logid = _text("", "Put in front of this session's log messages.")
    enable_profiling = _flag(
        default=False, doc="Time each step of each run and write the times to a file; see `end_profiling`."
    )
    profile_file_prefix = _text("onnxruntime_profile_", "How the names of profiles begin.")

    inter_op_num_threads = _integer(0)
    execution_mode = _choice(ExecutionMode.ORT_SEQUENTIAL)
    execution_order = _choice(ExecutionOrder.DEFAULT)
    optimized_model_filepath = _text(
        "", "The session writes the model here, as an ONNX file, as the rewrites of its level leave it."
    )
    log_verbosity_level = _integer(0)
    enable_cpu_mem_arena = _flag(default=True)
    enable_mem_pattern = _flag(default=True)
    enable_mem_reuse = _flag(default=True)
    use_deterministic_compute = _flag(default=False)
    use_per_session_threads = _flag(default=True)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry. Any key is kept; making a session is refused (InvalidArgument) if one that begins
        with "jitonnx." is unknown, or a value of those makes no sense. These mean something:

        - `session.strict_shape_type_inference` = "1": inputs that disagree on a dimension, and outputs of other shapes
          than the model declares, are errors, not warnings.
        - `session.model_external_initializers_file_folder_path`: where a model from bytes has its external data.
        - `session.load_model_format` = "JITONNX": the source is a compiled model, whose machine code is run (as
          `jitonnx.load` asks for). Without it, or "ONNX": an ONNX model, and nothing else is opened.
        - `session.save_model_format`: only "ONNX".
        - `session.optimized_model_external_initializers_file_name`: the file beside `optimized_model_filepath` that its
          initializers go to, from `session.optimized_model_external_initializers_min_size_in_bytes` (1024) bytes on.
        - `jitonnx.compile`: when code is compiled; docs/starting.md tells about it. Not given: before the first run,
          except for what would serve one set of input shapes alone, which runs on NumPy until the shapes come back and
          it is compiled in the background. "before": always before the run that needs it. "background": behind the
          runs, which NumPy does until the code is there; `InferenceSession.compile_status` tells how far it is.
          "cached": never; kernels that are not in the kernel cache are an error, ModelRequiresCompilation.
        - `jitonnx.program_megabytes`: memory that programs for different input shapes may hold together (256): half for
          their tables, of which those used longest ago go first, half for the intermediate results, where memory far
          larger than a new shape needs is freed.
        - `session.set_denormal_as_zero` = "1": kernels take denormal numbers for zeros, in all threads of a run.
        - `jitonnx.winograd` = "0": convolutions of several taps do not use Winograd's algorithm, which rounds a little
          differently.
        - `jitonnx.precision` = "bfloat16": products and convolutions of float32 with constant weights, products of two
          computed matrices, and attention round their operands to bfloat16 and sum in float32, where the CPU has
          instructions that multiply it faster (AMX; AVX512-BF16 on AMD's Zen 4 and 5 and on Cooper Lake; AArch64's
          bfmmla for constant weights alone);
          "float32": they do not, as without it. docs/performance-low-precision.md: how fast and how exact it is.
          "auto": bfloat16 if on the inputs of `jitonnx.calibration` (.npz files, with ";" between them) no output is
          off by more than `jitonnx.precision_bound` times its largest element, else float32; `session.precision` tells.
        - `jitonnx.tune`: seconds that measuring may take when the model is loaded: the kernels that are estimated to be
          nearly as fast as the best are timed in the model's own runs, on random inputs or the first of
          `jitonnx.calibration`, and the fastest are taken; "0": none, as without it. docs/tuning.md tells about it.
        - `jitonnx.fixed24` = "0": the recurrent weights of LSTM, GRU and RNN keep their float32 values. Else, for
          a batch of one and on CPUs with AVX-512 VBMI2 (Intel's: those that outgrow the second-level cache), they are
          rounded to 24-bit fixed-point numbers, an error of at most 2**-24 of the largest weight of the same unit and
          gate, unless that one is far above the others.
        - `jitonnx.codegen` = "numba": Numba compiles the kernels of regions, from sources that `jitonnx explain
          --numba` prints, which takes longer to start; "llvm": they are emitted as LLVM IR, as without it.
          docs/numba.md tells about it.
        - `jitonnx.gemm` = "blas": matrix products call SciPy's BLAS; "own": the kernels of jitonnx, as without it.
        - `jitonnx.cpu`: compile for this CPU (LLVM's name, as "x86-64-v3"), to save the model for other machines.
        - `jitonnx.verify` = "1": opening an artifact compares all of it with its checksums, its weights too; loading a
          model compares files with external data with the SHA-1 digests that it has of them.
        - `jitonnx.keep_model` = "0": the compiled model is neither kept in the kernel cache nor taken from there;
          docs/starting.md tells about it.
        - `optimization.disable_specified_optimizers`: names of rewrites that are not to be made, with ";" between them.
        """
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """A configuration entry. RuntimeError if there is none of this key."""
        return self._get_entry(key)

    # What the session asks for. Methods, because code that pickles options sets every other attribute that dir() names.

    def entry(self, key: str) -> str | None:
        """A configuration entry, None if there is none of this key. (Not in onnxruntime.)"""
        return self._entries.get(key)

    def entry_keys(self) -> list[str]:
        """The keys of the configuration entries. (Not in onnxruntime.)"""
        return list(self._entries)

    def canonical_text(self) -> str:
        """All that was set, as text that is the same for equal options. (Not in onnxruntime.)

        Without what only messages depend on, and the number of threads, which other things settle too.
        """
        unread = ("intra_op_num_threads", "log_severity_level", "log_verbosity_level", "logid", "profile_file_prefix")
        values = sorted((name, value) for name, value in self._values.items() if name not in unread)
        sizes = sorted(self._dimensions.items()), sorted(self._denotations.items())
        return repr((values, sorted(self._entries.items()), *sizes))

    def fixed_dimensions(self) -> dict[str, int]:
        """The sizes given by `add_free_dimension_override_by_name`. (Not in onnxruntime.)"""
        return dict(self._dimensions)

    def replaced_initializers(self) -> dict[str, Any]:
        """What `add_initializer` was given. (Not in onnxruntime.)"""
        return dict(self._initializers)

    def overrides(self) -> Overrides | None:
        """What takes the place of what the model says, before it is read; None if nothing. (Not in onnxruntime.)"""
        if not (self._external or self._files or self._denotations):
            return None
        from jitonnx.model.overrides import Overrides

        return Overrides(dict(self._external), dict(self._files), dict(self._denotations))

    def has_weights(self) -> bool:
        """Whether weights were given that are not the model's. (Not in onnxruntime.)"""
        return bool(self._initializers or self._external or self._files)

    def load_cancelled(self) -> bool:
        """What `set_load_cancellation_flag` was given last. (Not in onnxruntime.)"""
        return bool(self._values.get("load_cancelled"))

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the size of the dimension `name`: the model is compiled for it, and other sizes are refused.

        InvalidArgument for a negative size.
        """
        self._dimensions[_instance(name, str)] = _fixed_size(name, size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the size of the inputs' dimensions of a denotation, "DATA_BATCH" for instance, in capitals or not.

        InvalidArgument for a negative size, and at the session for a dimension that the model fixes to another one.
        """
        self._denotations[_instance(denotation, str).lower()] = _fixed_size(denotation, size)

    def add_initializer(self, name: str, value: Any) -> None:
        """Use `value` (an array, or an object with `.numpy()`) in the place of the model's initializer `name`."""
        self._initializers[_instance(name, str)] = value.numpy() if hasattr(value, "numpy") else value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Use these values in the place of the model's initializers of these names, whose files are not looked for.

        values: arrays, or objects with `.numpy()`; their memory is used as it is. RuntimeError for another number of
        names; at the session Fail for a name that is no initializer's, and for another type or shape.
        """
        if len(names) != len(values):
            raise errors.Error(f"{len(names)} names were given for {len(values)} initializers")
        for name, value in zip(names, values, strict=True):
            self._external[_instance(name, str)] = value.numpy() if hasattr(value, "numpy") else value

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Take the contents of the files that hold the model's external data from memory, which is used as it is.

        names: of the files, as the model has them. buffers: bytes, or anything contiguous that gives its memory.
        lengths: how many bytes of each. RuntimeError for lists of different lengths; at the session Fail for external
        data in another file, or beyond the end.
        """
        import numpy as np

        if not len(names) == len(buffers) == len(lengths):
            raise errors.Error(f"{len(names)} names, {len(buffers)} buffers and {len(lengths)} lengths were given")
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            content = np.frombuffer(memoryview(buffer).cast("B"), np.uint8)
            if not 0 <= operator.index(length) <= content.nbytes:
                raise errors.InvalidArgument(f"the file {name!r} has {content.nbytes} bytes in memory, not {length}")
            self._files[_instance(name, str)] = content[:length]

    def register_custom_ops(self, *declarations: type[Operator]) -> None:
        """Let the models of sessions with these options use operators written in Python (see `jitonnx.custom`).

        ValueError for a domain and name that are taken already, TypeError for a declaration that lacks a part.
        """
        given, self._custom = self._custom, [*self._custom, *declarations]
        try:
            self.registry()
        except (TypeError, ValueError):
            self._custom = given
            raise

    def registry(self) -> Registry:
        """The operators that models may use: all that are registered, and those of `register_custom_ops`."""
        from jitonnx.ops.registry import Registry, registry

        if not self._custom:
            return registry
        own = Registry(registry)
        for declaration in self._custom:
            own.add(declaration)
        return own

    def declaration(self, domain: str, name: str) -> PutOff | type[Operator] | None:
        """The user's operator `name` of a domain that models may use; None if there is none. (Not in onnxruntime.)"""
        from jitonnx.ops import registered

        for one in self._custom:
            if (registered.canonical(one.domain), one.name) == (domain, name):
                return one
        return registered.find(domain, name)

    def register_custom_ops_library(self, path: str) -> None:
        """Let the models of sessions with these options use the operators of a library for onnxruntime's C interface.

        The library's code is run, here and in sessions, and stays in the process. Fail for a file that is no such
        library, the error of the status that the library gives; ValueError for an operator's name that is taken.
        """
        from jitonnx.c_api.library import register

        name = os.fspath(path)
        self.register_custom_ops(*register(name))
        self._libraries.append(name)

    def __copy__(self) -> SessionOptions:
        made = type(self).__new__(type(self))
        for name, value in super().__getstate__().items():
            setattr(made, name, value)
        return made

    def __getstate__(self) -> dict[str, Any]:
        # A library's operators are made anew where the options are read: it may lie at other addresses there.
        state = super().__getstate__()
        state["_custom"] = [one for one in self._custom if not one.any_attributes]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        libraries, self._libraries = self._libraries, []
        for path in libraries:
            self.register_custom_ops_library(path)

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Add the execution provider `name` with its options; see `InferenceSession` for what is done with it."""
        self._providers.append((_instance(name, str), dict(options)))

    def has_providers(self) -> bool:
        """Whether `add_provider` was called."""
        return bool(self._providers)

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Accepted, without effect: there is one provider."""
        _instance(policy, OrtExecutionProviderDevicePolicy)

    def set_provider_selection_policy_delegate(self, choose: Callable[..., Any]) -> None:
        """Accepted, without effect: there is one provider."""

    def add_provider_for_devices(self, devices: Sequence[Any], options: Mapping[str, str]) -> None:
        """Name the execution provider of devices that `jitonnx.get_ep_devices` gives, the CPU's, with its options."""
        for device in devices:
            self.add_provider(device.ep_name, options)

    def set_ep_context_data_read_func(self, read: Callable[..., Any]) -> NoReturn:
        """Not supported: NotImplemented. No execution provider keeps data of its own beside a model."""
        raise errors.NotImplemented("there is no execution provider that reads data beside a model")

    def clear_ep_context_data_read_func(self) -> None:
        """Accepted, without effect: there is none."""

    def set_load_cancellation_flag(self, cancel: bool) -> None:
        """If true, sessions made with these options raise ModelLoadCanceled."""
        self._values["load_cancelled"] = bool(cancel)


class RunOptions(_Options):
    """What a single run may be told."""

    __slots__ = ("_adapters",)

    def __init__(self) -> None:
        super().__init__()
        self._adapters: list[LoraAdapter] = []

    terminate = _flag(
        default=False,
        doc="A run raises Fail that begins while it is set; one that has begun does so between steps and in loops, "
        "within a tenth of a second. The single native call of a model without steps is done to its end.",
    )
    log_severity_level = _integer(-1)
    log_verbosity_level = _integer(0)
    logid = _text("")
    only_execute_path_to_fetches = _flag(default=False)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set the configuration entry `key` to `value`; kept, without effect."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """A configuration entry. RuntimeError if there is none of this key."""
        return self._get_entry(key)

    def add_active_adapter(self, adapter: LoraAdapter) -> None:
        """Have runs take an adapter's parameters for inputs of their names, fed or not; of adapters that have the same
        one, the first that was added counts. TypeError for what is no LoraAdapter."""
        from jitonnx.api.adapters import LoraAdapter

        if not isinstance(adapter, LoraAdapter):
            raise TypeError(f"a jitonnx.LoraAdapter is needed, and a {type(adapter).__name__} was given")
        self._adapters.append(adapter)

    def with_adapters(self, feeds: Any) -> Any:
        """Feeds with the parameters of all active adapters. (Not in onnxruntime.)"""
        if not self._adapters or not isinstance(feeds, Mapping):
            return feeds
        fed = dict(feeds)
        for adapter in reversed(self._adapters):
            fed.update((name, value.numpy()) for name, value in adapter.parameters.items())
        return fed
