"""Writing artifacts: see `artifact` for what a file looks like."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.support import fork_safety
from jitonnx.support.artifact_magic import MAGIC
from jitonnx.support.digest import SHA256_BYTES, begun_sha256, sha256
from jitonnx.support.draws import is_state
from jitonnx.support.kernel_cache import temporary_name
from jitonnx.support.mapped_files import DataFile, chunks, file_of, offset_in
from jitonnx.support.records import dataclass
from jitonnx.target.cpu import CpuNeeded

from .artifact import (
    FORMAT,
    HEADER_OFFSET,
    PAGE_BYTES,
    PROLOGUE,
    ModelInfo,
    Part,
    SavedPlan,
    SavedProgram,
    SavedSchedule,
    ShapeRange,
)
from .driver import DriverCode, driver_digest
from .layout import ALIGNMENT, address
from .linker import UnlinkableError, link
from .program import Flag, Shapes, Steps, TensorSpec

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[np.generic]"

_SPAN_BYTES = 16 << 20
"""What a call writes of a file: huge pages, and whole ones."""
_MOST_HELD = 512
"""Pieces that a call writes; Linux takes 1024."""


@dataclass(frozen=True)
class ArtifactContents:
    """What an artifact is made of.

    writer: our version. cpu: what the code needs. threads: of a run if nobody says otherwise; 0: all CPUs.
    programs: one a set of input shapes; how many threads their steps take only says whether they are shared.
    flags: the words among their constants that kernels write to.
    objects: the object code of each kernel by its symbol. driver: that of parts of the driver, for the same machine.
    explanation: what `jitonnx explain` prints.
    plans, schedules: those of the parts. parts: what serves the ranges of shapes.
    examples: given where parts serve all shapes that they hold for: some that the first one is not for.
    files: of the model, which who opens the artifact has: constants that lie in them stay there.
    """

    writer: str
    cpu: CpuNeeded
    threads: int
    model: ModelInfo
    programs: Sequence[SavedProgram]
    flags: Sequence[Flag]
    objects: Mapping[str, bytes]
    driver: DriverCode
    explanation: str = ""
    plans: Sequence[SavedPlan] = ()
    schedules: Sequence[SavedSchedule] = ()
    parts: Sequence[Part] = ()
    ranges: Sequence[ShapeRange] = ()
    examples: Sequence[Shapes] | None = None
    files: Sequence[DataFile] = ()


def write(
    path: str | os.PathLike[str],
    contents: ArtifactContents,
    *,
    durable: bool = False,
    go_on: Callable[[], None] = lambda: None,
) -> int:
    """Write an artifact, and return its size in bytes. The file appears whole, in the place of what was there before.

    durable: it is on the disk before it appears, so that it is whole also after the machine has lost its power.
    go_on: called now and then; what it raises ends the writing, and nothing is left of it.
    It can be read by everybody and written by its owner, as far as the process's umask allows. OSError where it cannot
    be written.
    """
    constants = _ConstantTable(contents.flags, contents.files, go_on)
    used = _used(contents)
    code, code_header = _code([contents.objects[symbol] for symbol in used], used, contents.driver)
    symbols = {symbol: number for number, symbol in enumerate(code_header["symbols"])}
    for saved in contents.programs:
        constants.add_all(saved.program.constants)
    for plan in contents.plans:
        constants.add_all(plan.constants)
    for schedule in contents.schedules:
        constants.add_all(schedule.constants)
    lines = _Lines()
    front = {
        "writer": contents.writer,
        "cpu": contents.cpu._asdict(),
        "threads": contents.threads,
        "examples": contents.examples,
        "model": {**contents.model._asdict(), "metadata": contents.model.metadata._asdict()},
        "code": code_header,
        "files": contents.files,
        "constants": constants.rows,
        "checksums": lines.add(constants.checksums),
        "flags": [flag.text for flag in contents.flags],
        "programs": [
            (lines.add(_program(saved, constants, symbols)), [spec.shape for spec in saved.program.inputs])
            for saved in contents.programs
        ],
        "plans": [lines.add(_plan(plan, constants, symbols)) for plan in contents.plans],
        "schedules": [lines.add(_schedule(schedule, constants)) for schedule in contents.schedules],
        "parts": contents.parts,
        "ranges": [(served.part, served.low, served.high) for served in contents.ranges],
        "explanation": lines.add(contents.explanation) if contents.explanation else None,
    }
    # The digest of the code has a fixed length, so the header's length is known before the space behind it is.
    code_header["sha256"] = bytes(SHA256_BYTES).hex()
    header_bytes = len(lines.under(front))
    before = -(HEADER_OFFSET + header_bytes) % ALIGNMENT
    after = -(HEADER_OFFSET + header_bytes + before + len(code)) % PAGE_BYTES
    block = bytes(before) + code + bytes(after)
    code_header["sha256"] = sha256(block).hexdigest()
    packed = lines.under(front)
    prologue = PROLOGUE.pack(MAGIC, FORMAT, len(packed), len(block), constants.size)
    begin = prologue + sha256(prologue + packed).digest() + packed + block
    _replace(Path(path), begin, constants, go_on, durable=durable)
    return len(begin) + constants.size


class _Lines:
    """The lines of a header behind its first."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def add(self, value: Any) -> int:
        """The number of a new line; the first line of all is 0."""
        self._lines.append(_text(value))
        return len(self._lines)

    def under(self, front: Any) -> bytes:
        """The header."""
        return b"\n".join([_text(front), *self._lines])


def _text(value: Any) -> bytes:
    """JSON on one line. Tuples, named or not, become lists; numbers of NumPy are refused."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _used(contents: ArtifactContents) -> list[str]:
    """The kernels of all programs and plans, each once."""
    of_programs = [step.kernel for saved in contents.programs for step in saved.program.steps]
    return list(dict.fromkeys([*of_programs, *(symbol for plan in contents.plans for symbol in plan.symbols)]))


def _replace(path: Path, front: bytes, constants: _ConstantTable, go_on: Callable[[], None], *, durable: bool) -> None:
    """Write under another name, then move to the place."""
    if not path.name:  # as of "", "." and "/"
        raise IsADirectoryError(errno.EISDIR, "that is a folder, not a file to write to", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(path.parent))
    temporary = path.with_name(temporary_name(path.name))
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.truncate(handle, len(front) + constants.size)
            _write(handle, _pieces(front, constants, go_on))
            if durable:
                with fork_safety.safepoint:
                    os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _pieces(
    front: bytes, constants: _ConstantTable, go_on: Callable[[], None]
) -> Iterator[tuple[int, bytes | memoryview]]:
    """What the file consists of, by ascending place, with few bytes between, which read as zeros."""
    yield 0, front
    for offset, array in constants.placed.items():
        place = len(front) + offset
        for chunk in chunks(array):
            go_on()
            yield place, chunk
            place += len(chunk)


def _write(handle: int, pieces: Iterable[tuple[int, bytes | memoryview]]) -> None:
    """Write pieces, a span of the file at a time: Linux gives a file huge pages in its cache as far as a single call
    writes it, and weights that are mapped from these are read 2 % faster."""
    begin, held, size = 0, list[bytes | memoryview](), 0
    for place, piece in pieces:
        held.append(bytes(place - (begin + size)))
        left, size = memoryview(piece), place - begin
        while left:
            part = left[: _SPAN_BYTES - (begin + size) % _SPAN_BYTES]
            left, size = left[len(part) :], size + len(part)
            held.append(part)
            if (begin + size) % _SPAN_BYTES == 0 or len(held) >= _MOST_HELD:
                _write_span(handle, begin, held)
                begin, held, size = begin + size, [], 0
    _write_span(handle, begin, held)


def _write_span(handle: int, place: int, pieces: Sequence[bytes | memoryview]) -> None:
    """Write pieces one behind the other. A process may be forked meanwhile."""
    left = [memoryview(piece) for piece in pieces if len(piece)]
    with fork_safety.safepoint:
        while left:
            count = os.pwritev(handle, left, place)
            place += count
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if count:
                left[0] = left[0][count:]


class _ConstantTable:
    """The places of constants in the file: equal ones once, each aligned; those in files of the model stay there.

    go_on: as of `write`.
    """

    def __init__(self, flags: Sequence[Flag], files: Sequence[DataFile], go_on: Callable[[], None]) -> None:
        self._go_on = go_on
        self._files = {file.identity: number for number, file in enumerate(files, 1)}
        # By address: what a program has may be a view of the word.
        self._flags = {address(flag.word): number for number, flag in enumerate(flags)}
        self._numbers: dict[int, int] = {}
        self._known: dict[bytes, int] = {}
        self.rows: list[tuple[int, int, int]] = []
        """File (0: this one), offset there and bytes of each."""
        self.checksums: list[str] = []
        self.placed: dict[int, Array] = {}
        self.size = 0

    def add_all(self, arrays: Sequence[Array]) -> None:
        for array in arrays:
            own = address(array) in self._flags or is_state(address(array))
            if not own and id(array) not in self._numbers:
                self._numbers[id(array)] = self._add(array)

    def numbers(self, arrays: Sequence[Array]) -> list[int]:
        """Positions in the table, and behind it in the flags, and behind these for the state of random numbers."""
        return [
            self._numbers[id(array)]
            if id(array) in self._numbers
            else len(self.rows) + self._flags.get(address(array), len(self._flags))
            for array in arrays
        ]

    def _add(self, array: Array) -> int:
        digest = self._digest(array)
        if digest not in self._known:
            self._known[digest] = len(self.rows)
            self.checksums.append(digest.hex())
            mapped = file_of(array)
            number = 0 if mapped is None or mapped.identity is None else self._files.get(mapped.identity, 0)
            if mapped is not None and number and array.flags.c_contiguous:
                self.rows.append((number, offset_in(mapped, array), array.nbytes))
            else:
                offset = -(-self.size // ALIGNMENT) * ALIGNMENT
                self.rows.append((0, offset, array.nbytes))
                self.placed[offset] = array
                self.size = offset + array.nbytes
        return self._known[digest]

    def _digest(self, array: Array) -> bytes:
        digest = begun_sha256(array.nbytes)
        for chunk in chunks(array):
            self._go_on()
            with fork_safety.safepoint:
                digest.update(chunk)
        return digest.digest()


def _code(objects: Sequence[bytes], kernels: Sequence[str], driver: DriverCode) -> tuple[bytes, dict[str, Any]]:
    """Linked code with its header; where it cannot be linked here, the objects themselves."""
    symbols = [*kernels, *driver.symbols]
    header: dict[str, Any] = {"symbols": symbols, "driver": driver_digest(), "image": None, "sha256": ""}
    every = [*objects, *driver.objects]
    try:
        linked = link(every, symbols)
    except UnlinkableError:
        return b"".join(every), {**header, "objects": [*map(len, every)]}
    offsets = [linked.offsets[symbol] for symbol in symbols]
    return linked.code, {**header, "image": (linked.imports, linked.imports_offset), "offsets": offsets}


def _program(saved: SavedProgram, constants: _ConstantTable, symbols: Mapping[str, int]) -> dict[str, Any]:
    program = saved.program
    steps: Steps = program.steps
    wiring = steps.wiring
    return {
        "inputs": [_tensor(spec) for spec in program.inputs],
        "outputs": [_tensor(spec) for spec in program.outputs],
        "arena_bytes": int(program.arena_bytes),
        "constants": constants.numbers(program.constants),
        "keeps_gil": bool(saved.keeps_gil),
        "kernels": [symbols[kernel] for kernel in wiring.kernels],
        "labels": [*wiring.labels],
        "ends": wiring.ends.tolist(),
        "spaces": wiring.spaces.tolist(),
        "shared": sorted(wiring.shared),
        "indices": wiring.indices.tolist(),
        "offsets": steps.offsets.tolist(),
        "sizes": steps.sizes.tolist(),
        "columns": steps.columns.ravel().tolist(),
    }


def _plan(saved: SavedPlan, constants: _ConstantTable, symbols: Mapping[str, int]) -> dict[str, Any]:
    kernels = [symbols[symbol] for symbol in saved.symbols]
    return {"plan": saved.message, "constants": constants.numbers(saved.constants), "kernels": kernels}


def _schedule(saved: SavedSchedule, constants: _ConstantTable) -> dict[str, Any]:
    return {"schedule": saved.message, "constants": constants.numbers(saved.constants), "plans": saved.plans}


def _tensor(spec: TensorSpec) -> tuple[str, str, tuple[int, ...]]:
    return spec.name, spec.dtype.name, spec.shape
