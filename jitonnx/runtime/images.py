"""Linked code in the kernel cache: the kernels of a model, or the driver, as one block that a start maps without LLVM.

Object code is kept too, kernel by kernel, for other models that share some of it; a block is made of it the first time
that a set of kernels is wanted. Where objects cannot be linked ahead (see `linker`), LLVM links them at each start.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from jitonnx.support.digest import sha256
from jitonnx.support.kernel_cache import KernelCache

from .loader import load
from .mapping import Linked, MappedCode

_LENGTH = struct.Struct("<q")
_FORMAT = "linked 1"


def load_linked(
    cache: KernelCache, symbols: Iterable[str], objects: Callable[[], Sequence[bytes]], version: str = ""
) -> Mapping[str, int]:
    """The addresses of functions; their code stays in memory as long as the mapping does.

    objects: gives the object code, asked for if no linked block is in the cache. version: tells apart codes that have
    the same symbols. Raises LoadError where the code cannot be linked.
    """
    found = find_linked(cache, symbols, version)
    return found if found is not None else _link(cache, set(symbols), objects(), version)


def find_linked(cache: KernelCache, symbols: Iterable[str], version: str = "") -> Mapping[str, int] | None:
    """The same of what is in the cache already; None if it is not."""
    data = cache.get(_key(symbols, version))
    return None if data is None else MappedCode(_decode(data))


def _link(cache: KernelCache, symbols: Iterable[str], objects: Sequence[bytes], version: str) -> Mapping[str, int]:
    from .linker import UnlinkableError, link

    try:
        linked = link(objects, symbols)
    except UnlinkableError:
        return load(objects, symbols)
    cache.put(_key(symbols, version), _encode(linked))
    return MappedCode(linked)


def _key(symbols: Iterable[str], version: str) -> str:
    names = "\n".join((version, *sorted(set(symbols))))
    return f"{_FORMAT} {sha256(names.encode()).hexdigest()}"


def _encode(linked: Linked) -> bytes:
    """The length of a table, the table as lines of text, the code."""
    lines = [f"{linked.imports_offset} {len(linked.imports)}", *linked.imports]
    lines += [f"{symbol} {offset}" for symbol, offset in linked.offsets.items()]
    table = "\n".join(lines).encode()
    return _LENGTH.pack(len(table)) + table + linked.code


def _decode(data: bytes) -> Linked:
    (length,) = _LENGTH.unpack_from(data)
    first, *lines = data[_LENGTH.size : _LENGTH.size + length].decode().split("\n")
    imports_offset, count = map(int, first.split(" "))
    offsets = dict(line.split(" ") for line in lines[count:])
    code = data[_LENGTH.size + length :]
    return Linked(code, {symbol: int(offset) for symbol, offset in offsets.items()}, lines[:count], imports_offset)
