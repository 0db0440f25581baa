"""What tells one state of our sources from another: for cache keys, so that code written anew is never taken from the
cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

from .digest import sha256
from .kernel_cache import KernelCache


def source_digest(*places: str, cache: KernelCache | None = None) -> str:
    """A digest of Python files, and of those in folders and below: of their names and contents.

    cache: where it is kept by the files' times and sizes, as Python keeps compiled modules: reading a hundred of them
    takes 5 ms.
    """
    found = {place: source_stamps(place) for place in places}
    key = f"sources {list(found.values())!r}"
    known = None if cache is None else cache.get(key)
    if known is not None:
        return known.decode()
    digest = sha256()
    for place, stamps in found.items():
        for path, _, _ in stamps:
            digest.update(path[len(os.path.dirname(place)) :].replace(os.sep, "/").encode())
            with open(path, "rb") as file:
                digest.update(file.read())
    if cache is not None:
        cache.put(key, digest.hexdigest().encode())
    return digest.hexdigest()


def package_folder(name: str) -> str:
    """The folder of a package of ours, which is not imported for that. A clone and an editable install have some
    elsewhere than jitonnx itself."""
    spec = find_spec(name)
    assert spec is not None and spec.submodule_search_locations, f"Bug: {name} is not installed with jitonnx"
    return spec.submodule_search_locations[0]


def source_stamps(place: str) -> list[tuple[str, int, int]]:
    """Path, time of change in nanoseconds and size of a file, or of a folder's Python files and those below; sorted."""
    return sorted((path, status.st_mtime_ns, status.st_size) for path, status in _sources(place))


def _sources(place: str) -> Iterator[tuple[str, os.stat_result]]:
    if place.endswith(".py"):
        yield place, os.stat(place)
        return
    with os.scandir(place) as listing:
        for entry in listing:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _sources(entry.path)
