"""Linking ahead: relocatable objects to one block of position-independent code, which `mapping` puts into memory.

Compiled kernels ask little of a linker: jumps among themselves, distances to constants, and calls of a few functions of
libc, libm and Python. So an artifact holds code that is linked already, which a start maps without loading LLVM.

    offset 0             the sections of all objects, each aligned as it wants
    stubs                a jump through the word of an imported function, for each
    imports_offset       a word for the address of each imported function, filled in when the block is mapped

Only ELF on x86-64 is linked here, and of that what kernels use; `link` says so by `UnlinkableError`, and LLVM links the
objects when they are loaded (`loader.load`).

Our own, as LLVM links only in a process that has loaded it: 19 ms of a start on a Zen 5 (`import llvmlite.binding` and
its initialisation), of which an artifact needs nothing else.

Sources: System V ABI, and its AMD64 supplement (table of relocations).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from jitonnx.support.records import NamedTuple

from .layout import WORD_BYTES
from .mapping import Linked

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ELF64_LITTLE = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_PROGRAM_BITS, _SYMBOL_TABLE, _RELOCATIONS, _NO_BITS = 1, 2, 4, 8
_WRITE, _ALLOCATE, _EXECUTE = 1, 2, 4
_UNDEFINED = 0
_PC32, _PLT32, _GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX = 2, 4, 9, 41, 42
_GLOBAL_BINDINGS = (1, 2)

_STUB_BYTES = 8
_PADDING = b"\xcc"
"""int3 between functions, as compilers do it."""


class UnlinkableError(ValueError):
    """Objects that ask for more than is known here; LLVM links them."""


class _Section(NamedTuple):
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int
    is_global: bool


class _Object:
    """A relocatable object: its sections, symbols, and where its sections were placed."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if len(data) < _HEADER.size or not data.startswith(_ELF64_LITTLE):
            raise UnlinkableError("an object is not ELF of 64 bits")
        header = _HEADER.unpack_from(data)
        if header[1:3] != (_RELOCATABLE, _X86_64):
            raise UnlinkableError("an object is not relocatable code for x86-64")
        table, size, count = header[6], header[11], header[12]
        self.sections = [_section(data, table + number * size) for number in range(count)]
        self.symbols = list(self._symbols())
        self.places: dict[int, int] = {}

    def _symbols(self) -> Iterator[_Symbol]:
        for table in self.sections:
            if table.kind != _SYMBOL_TABLE:
                continue
            names = self.sections[table.link].offset
            for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
                name, info, _, section, value, _ = _SYMBOL.unpack_from(self.data, at)
                end = self.data.index(b"\0", names + name)
                text = self.data[names + name : end].decode()
                yield _Symbol(text, section, value, info >> 4 in _GLOBAL_BINDINGS)

    def loaded(self) -> Iterator[tuple[int, _Section]]:
        """The sections that belong into memory; LLVM gives tables for unwinding, which nothing needs, another kind."""
        for number, section in enumerate(self.sections):
            if section.kind in (_PROGRAM_BITS, _NO_BITS) and section.flags & _ALLOCATE and section.size:
                if section.flags & _WRITE or section.kind == _NO_BITS:
                    raise UnlinkableError("an object has variables")
                yield number, section

    def relocations(self) -> Iterator[tuple[int, int, int, _Symbol, int]]:
        """(section, offset in it, type, symbol, addend) for the sections that belong into memory."""
        for table in self.sections:
            if table.kind == _RELOCATIONS and table.info in self.places:
                for at in range(table.offset, table.offset + table.size, _RELOCATION.size):
                    offset, info, addend = _RELOCATION.unpack_from(self.data, at)
                    yield table.info, offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend


def _section(data: bytes, at: int) -> _Section:
    _, kind, flags, _, offset, size, link, info, alignment, _ = _SECTION.unpack_from(data, at)
    return _Section(kind, flags, offset, size, link, info, max(1, alignment))


class _Block:
    """The code under construction."""

    def __init__(self) -> None:
        self.code = bytearray()
        self.imports: dict[str, int] = {}
        self.stubs_offset = self.imports_offset = 0

    def align(self, alignment: int) -> None:
        self.code += _PADDING * (-len(self.code) % alignment)

    def write_distance(self, at: int, target: int, addend: int) -> None:
        """A distance of 32 bits from the instruction's field to a target."""
        try:
            struct.pack_into("<i", self.code, at, target + addend - at)
        except struct.error as error:
            raise UnlinkableError(f"a distance of {target + addend - at} bytes does not fit") from error

    def stub(self, name: str) -> int:
        return self.stubs_offset + self.imports[name] * _STUB_BYTES

    def word(self, name: str) -> int:
        return self.imports_offset + self.imports[name] * WORD_BYTES


def link(objects: Iterable[bytes], symbols: Iterable[str]) -> Linked:
    """Link objects into a block that has the functions `symbols`. UnlinkableError where LLVM has to do it."""
    parsed = [_Object(data) for data in objects]
    block = _Block()
    for executable in (_EXECUTE, 0):
        for part in parsed:
            _place(part, executable, block)
    defined = _defined(parsed)
    _add_imports(parsed, defined, block)
    for part in parsed:
        for section, offset, kind, symbol, addend in part.relocations():
            _relocate(block, part, part.places[section] + offset, kind, symbol, addend, defined)
    missing = sorted(set(symbols) - set(defined))
    if missing:
        raise UnlinkableError(f"no object has {missing[0]}")
    offsets = {name: defined[name] for name in symbols}
    return Linked(bytes(block.code), offsets, list(block.imports), block.imports_offset)


def _place(part: _Object, executable: int, block: _Block) -> None:
    """Append the sections of one kind, code or constants."""
    for number, section in part.loaded():
        if section.flags & _EXECUTE == executable:
            block.align(section.alignment)
            part.places[number] = len(block.code)
            block.code += part.data[section.offset : section.offset + section.size]


def _defined(parsed: Sequence[_Object]) -> dict[str, int]:
    """The addresses of the functions that other objects and callers may name."""
    found: dict[str, int] = {}
    for part in parsed:
        for symbol in part.symbols:
            if symbol.is_global and symbol.section in part.places:
                if symbol.name in found:
                    raise UnlinkableError(f"two objects have {symbol.name}")
                found[symbol.name] = part.places[symbol.section] + symbol.value
    return found


def _add_imports(parsed: Sequence[_Object], defined: Mapping[str, int], block: _Block) -> None:
    """Stubs and words for the functions that no object has."""
    for part in parsed:
        for _, _, _, symbol, _ in part.relocations():
            if symbol.section == _UNDEFINED and symbol.name not in defined:
                block.imports.setdefault(symbol.name, len(block.imports))
    block.align(_STUB_BYTES)
    block.stubs_offset = len(block.code)
    block.imports_offset = block.stubs_offset + _STUB_BYTES * len(block.imports)
    for name in block.imports:
        at = len(block.code)
        # jmp *distance(%rip): the distance counts from the end of the instruction, 4 bytes behind its field.
        block.code += b"\xff\x25" + bytes(4) + _PADDING * 2
        block.write_distance(at + 2, block.word(name), -4)
    block.code += bytes(WORD_BYTES * len(block.imports))


def _relocate(
    block: _Block, part: _Object, at: int, kind: int, symbol: _Symbol, addend: int, defined: Mapping[str, int]
) -> None:
    """Fill in one field."""
    imported = symbol.section == _UNDEFINED and symbol.name not in defined
    if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX) and imported:
        block.write_distance(at, block.word(symbol.name), addend)
    elif kind not in (_PC32, _PLT32):
        raise UnlinkableError(f"relocations of type {kind} are not known")
    elif imported:
        block.write_distance(at, block.stub(symbol.name), addend)
    elif symbol.section == _UNDEFINED:
        block.write_distance(at, defined[symbol.name], addend)
    elif symbol.section in part.places:
        block.write_distance(at, part.places[symbol.section] + symbol.value, addend)
    else:
        raise UnlinkableError(f"{symbol.name or 'a section'} is not in memory")
