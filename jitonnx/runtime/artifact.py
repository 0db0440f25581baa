"""Compiled models on disk: `write` puts programs, code and constants into one file, `open_artifact` gets them back.

    prologue     magic, format, where the parts lie, SHA-256 of prologue and header
    header       lines of JSON: what opening it takes, then programs, plans, …, each read when it is first used
    code         linked machine code, or object code where `linker` cannot link it
    constants    from a page's beginning on, each aligned to 64 bytes

Constants are used where they lie in the mapped file: they are read when a kernel first touches them, and processes that
open the same file share them. Those that kernels read as they lie in the files of the model may stay there
(`DataFile`), where the model is at hand. Prologue, header and code are checked before any of the code is mapped;
constants, which may be gigabytes, are only checked when the caller asks for it. docs/artifacts.md tells readers what
to expect.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.support import fork_safety
from jitonnx.support.artifact_magic import MAGIC
from jitonnx.support.digest import SHA256_BYTES, sha256, sha256_of_tensor
from jitonnx.support.mapped_files import DataFile, FileMap, OpenFile, content_of, file_of, identity_of
from jitonnx.support.metadata import ModelMetadata
from jitonnx.support.records import NamedTuple
from jitonnx.support.trust import distrust
from jitonnx.target.cpu import CpuNeeded

from .driver import adopt
from .layout import ALIGNMENT, STEP_COLUMNS, aligned_bytes
from .loader import LoadError, load
from .mapping import Linked, MappedCode
from .program import Flag, Program, Shapes, Steps, Tensors, TensorSpec, Wiring

if TYPE_CHECKING:
    import numpy.typing as npt

FORMAT = 10
PAGE_BYTES = 4096

PROLOGUE = struct.Struct(f"<{len(MAGIC)}sIQQQ")
"""Magic, format, bytes of the header, of the code with the space around it, and of the constants."""
_DIGEST_BYTES = SHA256_BYTES
HEADER_OFFSET = PROLOGUE.size + _DIGEST_BYTES

Bytes: TypeAlias = "npt.NDArray[np.uint8]"


class ArtifactError(RuntimeError):
    """A file that is no compiled model, is damaged, is not to be trusted, or was made for another CPU or other data."""


class Argument(NamedTuple):
    """An input or output as the model declares it; shape None: not even the rank is known."""

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None


class ModelInfo(NamedTuple):
    """What users may ask about the model."""

    inputs: Sequence[Argument]
    overridable: Sequence[Argument]
    """Inputs with a default."""
    outputs: Sequence[Argument]
    """What was inferred of them is put in."""
    declared_outputs: Sequence[Argument]
    """They stand as they are declared."""
    metadata: ModelMetadata
    opsets: Mapping[str, int]
    warnings: Sequence[str]
    """What was warned of when it was loaded."""
    operators: Mapping[str, str] = {}
    """Users' operators in it, as "domain::name", each with a digest of what it is made of. In the model cache alone."""


class SavedProgram(NamedTuple):
    """A program for one set of shapes, and whether it is too short to let go of the GIL for."""

    program: Program
    keeps_gil: bool


class ShapeRange(NamedTuple):
    """Input shapes between two, both included: each axis may have any size between its own. part: which serves them."""

    low: Shapes
    high: Shapes
    part: int

    def misfit(self, shapes: Shapes) -> int | None:
        """The first input whose shape is not in the range; None if all are."""
        for number, (low, shape, high) in enumerate(zip(self.low, shapes, self.high, strict=True)):
            if len(shape) != len(low) or not all(a <= size <= b for a, size, b in zip(low, shape, high, strict=True)):
                return number
        return None


class SavedPlan(NamedTuple):
    """A plan, as `plan/parametric_program_message.py` writes it, and what it names by position.

    constants: arrays. symbols: the kernel of each of its calls.
    """

    message: Any
    constants: Sequence[npt.NDArray[np.generic]]
    symbols: Sequence[str]


class SavedSchedule(NamedTuple):
    """Steps, as `engine/schedule_message.py` writes them.

    constants: arrays that they name by position. plans: those of its native parts, in order.
    """

    message: Any
    constants: Sequence[npt.NDArray[np.generic]]
    plans: Sequence[int]


class Part(NamedTuple):
    """What serves shapes that were open when the file was written, or a model that is run in steps.

    kind: "plan" or "schedule". number: which one of the artifact's.
    """

    kind: str
    number: int


class Artifact:
    """An open artifact: its code is in memory, its constants are mapped. Made by `open_artifact`.

    name: its path, or what else to call it in messages.
    data_path: gives where a file of the model that it was made of lies, by its location; None: that is not known.
    shapes: the shapes of the inputs of each program. parts: what serves others: those in `ranges`, or, if it is `open`,
    all that a part holds for. examples: shapes that the first part is not for, and others are.
    threads: those of a run if nobody says otherwise; 0: nobody did.
    addresses: where the functions of the code lie.
    """

    def __init__(
        self, name: str, memory: Bytes, *, verify_constants: bool, data_path: Callable[[str], str] | None = None
    ) -> None:
        self.name = name
        self._lines, self._front, code, self._memory = _parts(name, memory)
        front = self._front
        self.cpu = CpuNeeded(**{**front["cpu"], "features": tuple(front["cpu"]["features"])})
        self.data_files = [DataFile(location, tuple(identity)) for location, identity in front["files"]]
        """The model's files that its constants lie in, or were made of."""
        problem = self.cpu.problem()
        if problem:
            raise ArtifactError(f"{name} cannot run here: {problem}. Compile the model again for this machine")
        self._data = self._opened_data(data_path)
        self._constants = self._located()
        if verify_constants:
            self._verify()
        self.addresses = _linked(name, front["code"], code)
        adopt(self.addresses, front["code"]["driver"])
        self.flags = [Flag(np.zeros(1, np.int64), text) for text in front["flags"]]
        self.shapes: list[Shapes] = [_shapes(shapes) for _, shapes in front["programs"]]
        self.parts = [Part(*part) for part in front["parts"]]
        self.ranges = [ShapeRange(_shapes(low), _shapes(high), part) for part, low, high in front["ranges"]]
        self.open = front["examples"] is not None
        self.examples: list[Shapes] = [_shapes(shapes) for shapes in front["examples"] or ()]
        self.threads: int = front["threads"]

    @property
    def file(self) -> FileMap | None:
        """The mapped file that its own constants lie in; None if they lie in memory."""
        return file_of(self._memory)

    @property
    def mapped_data(self) -> list[FileMap]:
        """Those of the model's files that constants lie in."""
        return [file for memory in self._data if (file := file_of(memory)) is not None]

    @property
    def writer(self) -> str:
        """The version of jitonnx that wrote it."""
        return str(self._front["writer"])

    @property
    def model(self) -> ModelInfo:
        """What the model says about itself."""
        model = self._front["model"]
        inputs, overridable, outputs, declared = (
            [Argument(name, kind, None if shape is None else tuple(shape)) for name, kind, shape in model[which]]
            for which in ("inputs", "overridable", "outputs", "declared_outputs")
        )
        metadata = ModelMetadata(**model["metadata"])
        told = metadata, model["opsets"], model["warnings"], model["operators"]
        return ModelInfo(inputs, overridable, outputs, declared, *told)

    def explanation(self) -> str:
        """What `jitonnx explain` printed when the artifact was made; "" if it was left out."""
        line = self._front["explanation"]
        return "" if line is None else str(self._line(line))

    def program(self, number: int) -> SavedProgram:
        """A program; its constants are views into the file."""
        saved = self._line(self._front["programs"][number][0])
        symbols = self._front["code"]["symbols"]
        wiring = Wiring(
            [symbols[kernel] for kernel in saved["kernels"]],
            saved["labels"],
            np.array(saved["ends"], np.int64),
            np.array(saved["spaces"], np.int64),
            np.array(saved["indices"], np.int64),
            frozenset((number, output) for number, output in saved["shared"]),
        )
        columns = np.array(saved["columns"], np.int64).reshape(len(STEP_COLUMNS), len(wiring.kernels))
        offsets, sizes = np.array(saved["offsets"], np.int64), np.array(saved["sizes"], np.int64)
        program = Program(
            Steps(wiring, offsets, sizes, columns),
            saved["arena_bytes"],
            self._arrays(saved["constants"]),
            Tensors.of([_tensor(*tensor) for tensor in saved["inputs"]]),
            Tensors.of([_tensor(*tensor) for tensor in saved["outputs"]]),
        )
        return SavedProgram(program, saved["keeps_gil"])

    def plan(self, number: int) -> SavedPlan:
        """A plan; its constants are views into the file."""
        saved = self._line(self._front["plans"][number])
        every = self._front["code"]["symbols"]
        symbols = [every[place] for place in saved["kernels"]]
        return SavedPlan(saved["plan"], self._arrays(saved["constants"]), symbols)

    def schedule(self, number: int) -> SavedSchedule:
        """A schedule; its constants are views into the file."""
        saved = self._line(self._front["schedules"][number])
        return SavedSchedule(saved["schedule"], self._arrays(saved["constants"]), saved["plans"])

    def _arrays(self, places: Sequence[int]) -> list[npt.NDArray[Any]]:
        """Constants by position, as bytes, and behind them flags and the state of random numbers."""
        constants: list[npt.NDArray[Any]] = [*self._constants, *(flag.word for flag in self.flags)]
        if len(constants) in places:
            constants.append(self._state)
        return [constants[place] for place in places]

    @fork_safety.cached_property
    def _state(self) -> npt.NDArray[Any]:
        """What draws of this artifact's programs are counted by."""
        from jitonnx.support.draws import new_state  # few models draw

        return new_state()

    def _line(self, number: int) -> Any:
        import json  # 1 ms of a start, which one that opens no artifact does without

        return json.loads(self._lines[number])

    def _located(self) -> list[Bytes]:
        """The constants, as bytes. File 0 is this one, the others are those of the model."""
        constants, memories = self._front["constants"], [self._memory, *self._data]
        if any(offset + nbytes > memories[file].nbytes for file, offset, nbytes in constants):
            raise ArtifactError(f"{self.name} is damaged: a constant reaches beyond its end")
        return [memories[file][offset : offset + nbytes] for file, offset, nbytes in constants]

    def _opened_data(self, data_path: Callable[[str], str] | None) -> list[Bytes]:
        """What is in the model's files, nothing of those that no constant lies in.

        ArtifactError for those that are not what they were when the artifact was made.
        """
        read = {file for file, _, _ in self._front["constants"]}
        found: list[Bytes] = []
        for number, (location, identity) in enumerate(self.data_files, 1):
            if data_path is None:
                raise ArtifactError(f"{self.name} needs files of the model that it was made of")
            path = data_path(location)
            content = np.zeros(0, np.uint8)
            if number not in read:
                same = identity_of(path) == identity
            else:
                file = OpenFile(path)
                same = file.identity() == identity
                content = np.frombuffer(file.content(), np.uint8) if same else content
            if not same:
                raise ArtifactError(f"{path} is not the file any more that {self.name} was made of")
            found.append(content)
        return found

    def _verify(self) -> None:
        """Compare all constants with their checksums, which reads the whole file."""
        checksums = self._line(self._front["checksums"])
        for number, (array, checksum) in enumerate(zip(self._constants, checksums, strict=True)):
            if sha256_of_tensor(array.data).hex() != checksum:
                raise _damaged(self.name, f"constant {number}")


def open_artifact(
    source: str | os.PathLike[str] | bytes,
    *,
    verify_constants: bool = False,
    data_path: Callable[[str], str] | None = None,
) -> Artifact:
    """An artifact from its file, or from its bytes, which are taken to come from where the caller trusts.

    verify_constants: compare them with their checksums. It reads the whole file, at about 1 to 2 GB/s; without it a
    file is read as far as runs need it. A damaged constant gives wrong results, where damaged code could do anything.
    data_path: as for `Artifact`, for one that leaves constants in the model's files.

    Raises ArtifactError, before any of its code is in memory, for what is damaged, was written by another format's
    writer, can be written by other users, or needs another CPU; OSError for a file that cannot be read.
    """
    if isinstance(source, bytes):
        return Artifact("the artifact", np.frombuffer(source, np.uint8), verify_constants=verify_constants)
    path = os.fspath(source)
    if os.path.exists(path) and not os.path.isfile(path):  # to open a pipe would wait for who writes to it
        raise ArtifactError(f"{path} is no file")
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        reason = distrust(path, status)
        if reason:
            raise ArtifactError(f"{path} holds machine code, which is not run because {reason}")
        if status.st_size < HEADER_OFFSET:
            raise _no_artifact(path)
        content = content_of(file.fileno(), path)
    return Artifact(path, np.frombuffer(content, np.uint8), verify_constants=verify_constants, data_path=data_path)


def _parts(name: str, memory: Bytes) -> tuple[list[bytes], Any, Bytes, Bytes]:
    """The header's lines, the first of them read, code and constants; header and code are checked."""
    if memory.nbytes < HEADER_OFFSET or memory[: len(MAGIC)].tobytes() != MAGIC:
        raise _no_artifact(name)
    prologue = memory[: PROLOGUE.size].tobytes()
    _, version, header_bytes, code_bytes, constants_bytes = PROLOGUE.unpack(prologue)
    if version != FORMAT:
        raise ArtifactError(
            f"{name} has the format {version}, and this version of jitonnx reads {FORMAT}: compile the model again"
        )
    wanted = HEADER_OFFSET + header_bytes + code_bytes + constants_bytes
    if memory.nbytes != wanted:
        raise ArtifactError(f"{name} is cut off or damaged: it has {memory.nbytes} bytes and should have {wanted}")
    code_offset = HEADER_OFFSET + header_bytes
    header, code = memory[HEADER_OFFSET:code_offset].tobytes(), memory[code_offset : code_offset + code_bytes]
    if sha256(prologue + header).digest() != memory[PROLOGUE.size : HEADER_OFFSET].tobytes():
        raise _damaged(name, "the header")
    import json

    lines = header.split(b"\n")
    front = json.loads(lines[0])
    if sha256(code.data).hexdigest() != front["code"]["sha256"]:
        raise _damaged(name, "the code")
    return lines, front, code[-code_offset % ALIGNMENT :], _aligned(memory[code_offset + code_bytes :])


def _no_artifact(name: str) -> ArtifactError:
    hint = "InferenceSession opens ONNX models"
    return ArtifactError(f"{name} is no compiled model of jitonnx, or it is cut off ({hint})")


def _damaged(name: str, part: str) -> ArtifactError:
    return ArtifactError(
        f"{name} is damaged: the checksum of {part} is not the one it was written with. Copy it or compile it again"
    )


def _aligned(constants: Bytes) -> Bytes:
    """The constants themselves where they lie as kernels want them, as they do in a mapped file; else a copy."""
    if not constants.nbytes or constants.ctypes.data % ALIGNMENT == 0:
        return constants
    copy = aligned_bytes(constants.nbytes)
    copy[:] = constants
    return copy


def _linked(name: str, code: Any, data: Bytes) -> Mapping[str, int]:
    """The functions of checked code, in memory."""
    try:
        if code["image"] is not None:
            offsets = dict(zip(code["symbols"], code["offsets"], strict=True))
            imports, imports_offset = code["image"]
            return MappedCode(Linked(data.tobytes(), offsets, imports, imports_offset))
        ends = np.cumsum(np.array(code["objects"], np.int64)).tolist()
        objects = [data[end - size : end].tobytes() for size, end in zip(code["objects"], ends, strict=True)]
        return load(objects, code["symbols"])
    except LoadError as error:
        raise ArtifactError(f"{name} cannot be loaded: {error}") from error


def dtype_named(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a name; those that ml_dtypes adds are known to NumPy once that is imported."""
    try:
        return np.dtype(name)
    except TypeError:
        with fork_safety.critical:
            import ml_dtypes
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found


def _shapes(shapes: Sequence[Sequence[int]]) -> Shapes:
    return tuple(map(tuple, shapes))


def _tensor(name: str, dtype: str, shape: Sequence[int]) -> TensorSpec:
    return TensorSpec(name, dtype_named(dtype), tuple(shape))
