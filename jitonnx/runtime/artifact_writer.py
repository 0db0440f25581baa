"""Writing artifacts: see `artifact` for what a file looks like."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jitonnx.proto import artifact_pb2 as pb

from .artifact import (
    FORMAT,
    HEADER_OFFSET,
    MAGIC,
    PAGE_BYTES,
    PROLOGUE,
    Argument,
    ModelInfo,
    SavedPlan,
    SavedProgram,
    ShapeRange,
)
from .cpu import CpuNeeded
from .digest import SHA256_BYTES, sha256
from .driver import SYMBOLS, driver_digest
from .layout import ALIGNMENT, address
from .linker import UnlinkableError, link
from .program import SPACES, Flag, Step, TensorSpec

_CODES = {space: code for code, space in enumerate(SPACES)}

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Contents:
    """What an artifact is made of.

    writer: our version. cpu: what the code needs. threads: of a run if nobody says otherwise; 0: all CPUs.
    programs: one a set of input shapes; how many threads their steps take only says whether they are shared.
    flags: the words among their constants that kernels write to.
    objects: the object code of each kernel by its symbol. driver: that of the driver, for the same machine.
    explanation: what `jitonnx explain` prints. plans: those that serve the ranges.
    """

    writer: str
    cpu: CpuNeeded
    threads: int
    model: ModelInfo
    programs: Sequence[SavedProgram]
    flags: Sequence[Flag]
    objects: Mapping[str, bytes]
    driver: bytes
    explanation: str = ""
    plans: Sequence[SavedPlan] = ()
    ranges: Sequence[ShapeRange] = ()


def write(path: str | os.PathLike[str], contents: Contents, durable: bool = False) -> int:
    """Write an artifact, and return its size in bytes. The file appears whole, in the place of what was there before.

    durable: it is on the disk before it appears, so that it is whole also after the machine has lost its power.
    It can be read by everybody and written by its owner, as far as the process's umask allows. OSError where it cannot
    be written.
    """
    constants = _ConstantTable(contents.flags)
    labels: dict[str, int] = {}
    used = _used(contents)
    code, code_header = _code([contents.objects[symbol] for symbol in used], used, contents.driver)
    symbols = {symbol: number for number, symbol in enumerate(code_header.symbols)}
    for saved in contents.programs:
        constants.add_all(saved.program.constants)
    for plan in contents.plans:
        constants.add_all(plan.constants)
    header = pb.Header(
        writer=contents.writer,
        cpu=_cpu(contents.cpu),
        threads=contents.threads,
        model=_model(contents.model),
        programs=[_program(saved, constants, symbols, labels) for saved in contents.programs],
        constants=constants.rows,
        flags=[pb.Flag(text=flag.text) for flag in contents.flags],
        explanation=zlib.compress(contents.explanation.encode()) if contents.explanation else b"",
        code=code_header,
        plans=[_plan(plan, constants, symbols) for plan in contents.plans],
        ranges=[_range(served) for served in contents.ranges],
    )
    header.labels.extend(labels)
    # The digest of the code has a fixed length, so the header's length is known before the space behind it is.
    header.code.sha256 = bytes(SHA256_BYTES)
    before = -(HEADER_OFFSET + header.ByteSize()) % ALIGNMENT
    after = -(HEADER_OFFSET + header.ByteSize() + before + len(code)) % PAGE_BYTES
    block = bytes(before) + code + bytes(after)
    header.code.sha256 = sha256(block).digest()
    packed = header.SerializeToString(deterministic=True)
    prologue = PROLOGUE.pack(MAGIC, FORMAT, len(packed), len(block), constants.size)
    front = prologue + sha256(prologue + packed).digest() + packed + block
    _replace(Path(path), front, constants.placed, durable)
    return len(front) + constants.size


def _used(contents: Contents) -> list[str]:
    """The kernels of all programs and plans, each once."""
    of_programs = [step.kernel for saved in contents.programs for step in saved.program.steps]
    return list(dict.fromkeys([*of_programs, *(symbol for plan in contents.plans for symbol in plan.symbols)]))


def _replace(path: Path, front: bytes, constants: Mapping[int, Array], durable: bool) -> None:
    """Write under another name, then move to the place."""
    if not path.name:  # as of "", "." and "/"
        raise IsADirectoryError(errno.EISDIR, "that is a folder, not a file to write to", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(path.parent))
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(front)
            for offset, array in constants.items():
                file.write(bytes(len(front) + offset - file.tell()))
                file.write(_octets(array))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class _ConstantTable:
    """Where constants go in the file: equal ones once, each aligned."""

    def __init__(self, flags: Sequence[Flag]) -> None:
        # By address: what a program has may be a view of the word.
        self._flags = {address(flag.word): number for number, flag in enumerate(flags)}
        self._numbers: dict[int, int] = {}
        self._known: dict[tuple[bytes, str, tuple[int, ...]], int] = {}
        self._offsets: dict[bytes, int] = {}
        self.rows: list[pb.Constant] = []
        self.placed: dict[int, Array] = {}
        self.size = 0

    def add_all(self, arrays: Sequence[Array]) -> None:
        for array in arrays:
            if address(array) not in self._flags and id(array) not in self._numbers:
                self._numbers[id(array)] = self._add(array)

    def numbers(self, arrays: Sequence[Array]) -> list[int]:
        """Positions in the table, and behind it in the flags."""
        return [
            self._numbers[id(array)] if id(array) in self._numbers else len(self.rows) + self._flags[address(array)]
            for array in arrays
        ]

    def _add(self, array: Array) -> int:
        digest = sha256(_octets(array)).digest()
        key = digest, array.dtype.name, array.shape
        if key not in self._known:
            self._known[key] = len(self.rows)
            self.rows.append(
                pb.Constant(
                    offset=self._place(digest, array),
                    bytes=array.nbytes,
                    dtype=array.dtype.name,
                    shape=array.shape,
                    sha256=digest,
                )
            )
        return self._known[key]

    def _place(self, digest: bytes, array: Array) -> int:
        if digest not in self._offsets:
            offset = self._offsets[digest] = -(-self.size // ALIGNMENT) * ALIGNMENT
            self.placed[offset] = array
            self.size = offset + array.nbytes
        return self._offsets[digest]


def _octets(array: Array) -> memoryview:
    """The memory of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _code(objects: Sequence[bytes], kernels: Sequence[str], driver: bytes) -> tuple[bytes, pb.Code]:
    """Linked code with its header; where it cannot be linked here, the objects themselves."""
    symbols = [*kernels, *SYMBOLS]
    try:
        linked = link([*objects, driver], symbols)
    except UnlinkableError:
        every = [*objects, driver]
        return b"".join(every), pb.Code(objects=map(len, every), symbols=symbols, driver=driver_digest())
    image = pb.Image(imports=linked.imports, imports_offset=linked.imports_offset)
    offsets = [linked.offsets[symbol] for symbol in symbols]
    return linked.code, pb.Code(image=image, symbols=symbols, offsets=offsets, driver=driver_digest())


def _program(
    saved: SavedProgram, constants: _ConstantTable, symbols: Mapping[str, int], labels: dict[str, int]
) -> pb.Program:
    program = saved.program
    return pb.Program(
        inputs=[_tensor(spec) for spec in program.inputs],
        outputs=[_tensor(spec) for spec in program.outputs],
        arena_bytes=program.arena_bytes,
        constants=constants.numbers(program.constants),
        steps=[_step(step, symbols[step.kernel], labels.setdefault(step.label, len(labels))) for step in program.steps],
        keeps_gil=saved.keeps_gil,
    )


def _plan(saved: SavedPlan, constants: _ConstantTable, symbols: Mapping[str, int]) -> pb.SavedPlan:
    kernels = [symbols[symbol] for symbol in saved.symbols]
    return pb.SavedPlan(plan=saved.message, constants=constants.numbers(saved.constants), kernels=kernels)


def _range(served: ShapeRange) -> pb.Range:
    inputs = [pb.Extent(low=low, high=high) for low, high in zip(served.low, served.high, strict=True)]
    return pb.Range(plan=served.plan, inputs=inputs)


def _step(step: Step, kernel: int, label: int) -> pb.Step:
    return pb.Step(
        kernel=kernel,
        slots=[number for space, index, offset in step.slots for number in (_CODES[space], index, offset)],
        sizes=step.sizes,
        tasks=step.tasks,
        shared=step.threads > 1,
        grain=step.grain,
        scratch=step.scratch,
        label=label,
    )


def _tensor(spec: TensorSpec) -> pb.Tensor:
    return pb.Tensor(name=spec.name, dtype=spec.dtype.name, shape=spec.shape)


def _cpu(cpu: CpuNeeded) -> pb.Cpu:
    return pb.Cpu(
        architecture=cpu.architecture,
        system=cpu.system,
        name=cpu.name,
        features=cpu.features,
        vector_bytes=cpu.vector_bytes,
    )


def _model(model: ModelInfo) -> pb.ModelInfo:
    metadata = model.metadata
    return pb.ModelInfo(
        producer_name=metadata.producer_name,
        graph_name=metadata.graph_name,
        domain=metadata.domain,
        description=metadata.description,
        graph_description=metadata.graph_description,
        version=metadata.version,
        custom_metadata=metadata.custom_metadata_map,
        opsets=model.opsets,
        inputs=[_argument(argument) for argument in model.inputs],
        outputs=[_argument(argument) for argument in model.outputs],
    )


def _argument(argument: Argument) -> pb.Argument:
    made = pb.Argument(name=argument.name, type=argument.type)
    if argument.shape is not None:
        made.shape.SetInParent()
        for dim in argument.shape:
            made.shape.dims.append(
                pb.Dimension(size=dim) if isinstance(dim, int) else pb.Dimension(name=dim) if dim else pb.Dimension()
            )
    return made
