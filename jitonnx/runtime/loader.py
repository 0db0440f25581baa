"""Object code in memory: relocatable objects linked into this process, and the addresses of their functions.

LLVM's ORC linker does the work. It was taken over MCJIT because it reports a damaged object or a missing symbol as an
error, where MCJIT gives an address that crashes when called; both take about 0.3 ms an object. LLVM is imported when
something is linked: an artifact may hold code that is linked already (`linker`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

_libraries = itertools.count()


class LoadError(RuntimeError):
    """Object code that cannot be linked: damaged, for another CPU, or in need of a symbol that this process lacks."""


class CodeImage(Mapping[str, int]):
    """Linked object code: a mapping from symbols to their addresses. The code stays in memory as long as this does."""

    def __init__(self, jit: object, tracker: object, addresses: Mapping[str, int]) -> None:
        self._jit = jit
        self._tracker = tracker
        self._addresses = dict(addresses)

    def __getitem__(self, symbol: str) -> int:
        return self._addresses[symbol]

    def __iter__(self) -> Iterator[str]:
        return iter(self._addresses)

    def __len__(self) -> int:
        return len(self._addresses)


def load(objects: Sequence[bytes], symbols: Iterable[str]) -> CodeImage:
    """Link objects and return the addresses of the given symbols.

    Objects are complete files (ELF on Linux, Mach-O on macOS) as LLVM emits them; no two may define the same symbol.
    They can call what this process has loaded with global visibility: libc, libm and Python. Raises `LoadError`.
    """
    import llvmlite.binding as llvm

    wanted = sorted(set(symbols))
    if not wanted:
        return CodeImage(None, None, {})
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    jit = llvm.create_lljit_compiler(machine)
    library = llvm.JITLibraryBuilder()
    for code in objects:
        library.add_object_img(code)
    for symbol in wanted:
        library.export_symbol(symbol)
    library.add_current_process()
    try:
        tracker = library.link(jit, f"jitonnx-{next(_libraries)}")
    except RuntimeError as error:
        raise LoadError(
            f"cannot link {len(objects)} compiled kernels: {error}. The code is damaged or was made for another "
            f"machine; clear the kernel cache or compile the model again"
        ) from error
    return CodeImage(jit, tracker, {symbol: tracker[symbol] for symbol in wanted})
