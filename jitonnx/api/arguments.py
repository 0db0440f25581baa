"""What a session is given, checked: its options, the model's source, rewrites to leave out, and numbers of threads."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterable
from typing import Any

from jitonnx.api.entries import DISABLED
from jitonnx.api.options import SessionOptions
from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.runtime.threads import allowed_cpus

THREAD_VARIABLES = ("JITONNX_NUM_THREADS", "ORT_INTRA_OP_NUM_THREADS")
MOST_THREADS = 1 << 16
"""Far above what machines have. Every thread that a run may use has its own memory, used or not."""


def own_options(given: Any) -> SessionOptions:
    """A copy of the options, so that later changes to them change nothing here."""
    if given is None:
        return SessionOptions()
    if not isinstance(given, SessionOptions):
        hint = "; give providers as providers=[...]" if isinstance(given, list | tuple | str) else ""
        raise TypeError(f"sess_options is a {type(given).__name__}, not a jitonnx.SessionOptions{hint}")
    return copy.copy(given)


def disabled_rewrites(names: Iterable[str], options: SessionOptions) -> frozenset[str]:
    """The rewrites that the user forbids. Warns of names that no rewrite has: those of onnxruntime's optimizers."""
    names = [names] if isinstance(names, str) else names
    wanted = {*names, *filter(None, (options.entry(DISABLED) or "").split(";"))}
    if not wanted:
        return frozenset()
    from jitonnx.passes.pipeline import all_rules

    known = wanted & {rule.name for rule in all_rules()}
    if wanted - known:
        warnings.warn(
            f"no rewrite is named {', '.join(sorted(wanted - known))}; the names are in docs/passes.md", stacklevel=3
        )
    return frozenset(known)


def kept_source(source: Any) -> Any:
    """A path as str, or bytes: what a pickled session is loaded from again."""
    if isinstance(source, str | os.PathLike):
        path = os.fsdecode(source)
        if "\0" in path:
            raise NoSuchFile(f"Load model from {path!r} failed. File doesn't exist: the path has a null character")
        return path
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    if hasattr(source, "SerializeToString"):
        return source.SerializeToString()
    if hasattr(source, "read"):
        content = source.read()
        if not isinstance(content, bytes | bytearray):
            raise TypeError(f"the file object gives {type(content).__name__}; open it in binary mode ('rb')")
        return bytes(content)
    return source


def thread_count(asked: int, saved: int = 0) -> int:
    """Threads of a run: as asked, else as the environment says, else as the artifact does, else the CPUs that this
    process may use.
    """
    if asked > MOST_THREADS:
        raise InvalidArgument(
            f"intra_op_num_threads is {asked}; give at most {MOST_THREADS}, or 0 for the CPUs there are"
        )
    if asked > 0:
        return asked
    for name in THREAD_VARIABLES:
        text = os.environ.get(name, "").strip()
        if text:
            if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
                raise InvalidArgument(
                    f"the environment variable {name} is {text!r}; it should be a number from 1 to {MOST_THREADS}"
                )
            return int(text)
    return saved or allowed_cpus()
