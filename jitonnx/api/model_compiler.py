"""`ModelCompiler`: onnxruntime's way from a model to one that is prepared for execution providers.

The CPU's provider compiles nothing into a model, in onnxruntime neither: what comes out is the model as rewrites of the
level leave it. Machine code is what `InferenceSession.save` and `jitonnx compile` write.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.api.arguments import own_options
from jitonnx.api.enumerations import GraphOptimizationLevel
from jitonnx.api.loading import read_model
from jitonnx.api.running import explained
from jitonnx.api.unsupported import OrtCompileApiFlags, OrtExternalInitializerInfo
from jitonnx.api.values import OrtValue
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.dtypes import of_numpy
from jitonnx.support import fork_safety

if TYPE_CHECKING:
    from jitonnx.model.write import ExternalFile, Placement

Locate = Callable[[str, OrtValue, OrtExternalInitializerInfo | None], OrtExternalInitializerInfo | None]


def make_get_initializer_location_func_wrapper(get_initializer_location_func: Locate) -> Locate:
    """The function itself: onnxruntime's wrapper gives it an outer OrtValue for an inner one, which are one here."""
    return get_initializer_location_func


class ModelCompiler:
    """Writes a model as rewrites leave it. Arguments are those of onnxruntime's.

    sess_options: a `SessionOptions`. input_model_path_or_bytes: an ONNX model. external_initializers_file_path: beside
    the written model, for initializers of more than external_initializers_size_threshold bytes. flags: of
    `OrtCompileApiFlags`. graph_optimization_level: none by default. get_initializer_location_func: called with the
    name, the value and the place of each initializer (None if that is in the model's own file); where what it returns
    says, the written model looks for the elements, which the function has written there; None: they are written into
    the model. embed_compiled_data_into_model: without effect, there is none.
    """

    def __init__(  # noqa: PLR0913  (onnxruntime's signature)
        self,
        sess_options: Any,
        input_model_path_or_bytes: Any,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: Any = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Locate | None = None,
    ) -> None:
        if not isinstance(input_model_path_or_bytes, str | os.PathLike | bytes):
            raise TypeError(f"Unable to load from type '{type(input_model_path_or_bytes)}'")
        if not input_model_path_or_bytes:
            kind = "bytes array" if isinstance(input_model_path_or_bytes, bytes) else "path"
            raise ValueError(f"Input model {kind} is empty")
        if external_initializers_file_path and not isinstance(external_initializers_file_path, str | os.PathLike):
            kind = str(type(external_initializers_file_path))
            raise TypeError(f"Output external initializer filepath is of unexpected type '{kind}'")
        if external_initializers_file_path and get_initializer_location_func is not None:
            raise ValueError(
                "Cannot initialize ModelCompiler with both `external_initializers_file_path` and "
                "`get_initializer_location_func`"
            )
        self._options = own_options(sess_options)
        given = input_model_path_or_bytes
        self._source: str | bytes = given if isinstance(given, bytes) else os.fsdecode(given)
        self._beside = os.fsdecode(external_initializers_file_path or "")
        self._least = external_initializers_size_threshold + 1
        self._flags, self._level = int(flags), GraphOptimizationLevel(graph_optimization_level)
        self._locate = get_initializer_location_func

    def set_ep_context_binary_information(self, output_directory: str | os.PathLike[str], model_name: str) -> None:
        """Where other providers leave what they make of the model `model_name`. Without effect.

        InvalidArgument for no name, and for an output_directory that onnxruntime takes for no folder: it ends in
        neither "/" nor ".x".
        """
        directory = os.fspath(output_directory)
        if not isinstance(model_name, str):
            raise TypeError(f"model_name is a str, not {model_name!r}")
        if not directory or not model_name:
            raise InvalidArgument("output_dir or model_name is empty.")
        path = Path(directory)
        if os.path.basename(directory) and (not path.suffix or path.is_file()):
            raise InvalidArgument("output_dir is not a valid directory.")

    def compile_to_file(self, output_model_path: Any = None) -> None:
        """Write the model to a file; by default beside its own, as `model_ctx.onnx`.

        InvalidArgument where there is no path to derive that of. Fail for what flags call an error.
        """
        if output_model_path is not None and not isinstance(output_model_path, str | os.PathLike):
            raise TypeError(f"Output model's filepath is of unexpected type '{type(output_model_path)}'")
        if output_model_path:
            target = Path(os.fsdecode(output_model_path))
        elif isinstance(self._source, bytes):
            raise InvalidArgument("the model is given as bytes: say where to write the compiled one")
        else:
            target = Path(self._source).with_name(f"{Path(self._source).stem}_ctx.onnx")
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and target.exists():
            raise Fail(f"Model exists already: {os.fspath(target)!r}")
        self._write(target)

    def compile_to_bytes(self) -> bytes:
        """The bytes of the model. InvalidArgument where initializers are to go to a file beside it."""
        if self._beside:
            raise InvalidArgument(
                f"initializers go to {self._beside!r} beside the model, which has no place: use compile_to_file"
            )
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "model.onnx"
            self._write(target)
            return target.read_bytes()

    def compile_to_stream(self, write_function: Callable[[bytes], Any]) -> None:
        """Call a function with the bytes of the model. Fail with the text of an exception that it raises."""
        data = self.compile_to_bytes()
        try:
            write_function(data)
        except Exception as error:
            raise Fail(f"the function that the model was given to raised {type(error).__name__}: {error}") from error

    def set_ep_context_data_write_func(self, write_func: Callable[..., Any]) -> None:
        """Name a function for what providers compile outside of the model, which is nothing."""

    def clear_ep_context_data_write_func(self) -> None:
        """Forget that function."""

    def _write(self, target: Path) -> None:
        if self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED:
            raise Fail(
                "Unable to compile any nodes. The only execution provider, the CPU's, compiles none into a model; "
                "InferenceSession.save writes machine code"
            )
        with fork_safety.critical:
            from jitonnx.model.optimized import keeps_operators, write_optimized
            from jitonnx.model.write import ExternalFile
        external: ExternalFile | Placement | None = None
        if self._beside:
            absolute = os.path.isabs(self._beside)
            name = os.path.relpath(self._beside, target.parent.resolve()) if absolute else self._beside
            external = ExternalFile(name, self._least)
        elif self._locate is not None:
            external = _placement(self._locate, self._source, target)
        with explained():
            model = read_model(self._source, self._options, composed=not keeps_operators(self._level.value))
            registry = self._options.registry()
            write_optimized(model, os.fspath(target), registry, level=self._level.value, external=external)


def _placement(locate: Locate, source: str | bytes, target: Path) -> Placement:
    """What asks a user's function for the places of initializers."""
    known = _external_places(source)

    def place(name: str, array: np.ndarray) -> tuple[str, int, int] | None:
        found = locate(name, OrtValue.of(array, of_numpy(array.dtype)), known.get(name))
        if found is None:
            return None
        if not isinstance(found, OrtExternalInitializerInfo):
            raise InvalidArgument(f"the place of initializer {name!r} is an OrtExternalInitializerInfo, not {found!r}")
        path = Path(found.filepath)
        folder = target.parent.resolve()
        inside = path.is_absolute() and path.resolve().is_relative_to(folder)
        location = path.resolve().relative_to(folder).as_posix() if inside else found.filepath
        return location, found.file_offset, found.byte_size

    return place


def _external_places(source: str | bytes) -> Mapping[str, OrtExternalInitializerInfo]:
    """The file, offset and length of each initializer whose elements are in other files, by its name."""
    from jitonnx.model.load import parsed
    from jitonnx.proto import TensorProto

    places = {}
    for tensor in parsed(source)[0].graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if entries.get("location"):
            offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
            places[tensor.name] = OrtExternalInitializerInfo(entries["location"], offset, length)
    return places
