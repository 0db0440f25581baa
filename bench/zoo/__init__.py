"""The benchmark models: 18 graphs as PyTorch's exporter wrote them, whose large weights are filled from seeds.

The `*.onnx` files beside this module have the graphs of well-known architectures and their small weights. A large
weight is left out: its `doc_string` says "normal MEAN STD SEED", and it is filled with that normal distribution's
numbers. `manifest.json` tells for each model how its inputs are made, `SHA256SUMS` what the filled files hash to.
So 2.4 MB in the repository stand for 2.3 GB of models, the same ones on every machine.

    from bench import zoo
    path = zoo.materialize("models", ["resnet18"])[0]
    feeds = zoo.feeds("resnet18")
"""

import hashlib
import io
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from onnx import ModelProto

from bench.zoo.weights import fill, filled_chunks

__all__ = ["feeds", "materialize", "model", "names"]

_FOLDER = Path(__file__).parent
_FEEDS_SEED = 7


def names() -> list[str]:
    """The models' names, sorted."""
    return sorted(_manifest())


def model(name: str) -> ModelProto:
    """The model `name` with all its weights filled in.

    Raises `KeyError` for a name that is not in `names()`.
    """
    return fill(_skeleton(name))


def feeds(name: str) -> dict[str, np.ndarray]:
    """One set of inputs for the model `name`, by input name; the same arrays at each call.

    Raises `KeyError` for a name that is not in `names()`.
    """
    rng = np.random.default_rng(_FEEDS_SEED)
    return {key: _feed(rng, *spec) for key, spec in _entry(name)["inputs"].items()}


def materialize(out_dir: str | os.PathLike[str], names: Iterable[str] | None = None) -> list[Path]:
    """Write models with their weights to `out_dir`; return the paths of the `NAME.onnx` files.

    Beside each stands `NAME.npz`, its `feeds`. `names` defaults to all models. A file that is already there with the
    right checksum is left alone. Files appear complete or not at all, and no model is ever held in memory.
    Warns when a model comes out unlike its recorded checksum: NumPy draws other random numbers on this machine, so the
    model is as good for timing but its outputs are not comparable with other machines'.
    """
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    wanted = sorted(_manifest()) if names is None else list(names)
    for name in wanted:
        _entry(name)
    return [_materialize_one(out, name) for name in wanted]


def _materialize_one(out: Path, name: str) -> Path:
    path = out / f"{name}.onnx"
    expected = _checksums()[path.name]
    if not (path.exists() and _sha256(path) == expected):
        digest = hashlib.sha256()
        with _replacing(path) as file:
            for chunk in filled_chunks(_skeleton(name)):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != expected:
            message = f"{path}: the weights differ from the reference ones; NumPy {np.__version__} draws other numbers"
            warnings.warn(message, stacklevel=3)
    _write_feeds(out / f"{name}.npz", feeds(name))
    return path


def _write_feeds(path: Path, arrays: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    if not (path.exists() and path.read_bytes() == buffer.getvalue()):
        with _replacing(path) as file:
            file.write(buffer.getvalue())


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` on success and vanishes on failure."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _feed(rng: np.random.Generator, kind: str, dtype: str, shape: Sequence[int], *bounds: int) -> np.ndarray:
    """One input array: "normal", "integers" (within bounds, the upper one excluded) or "ones"."""
    if kind == "normal":
        return rng.standard_normal(shape).astype(dtype)
    if kind == "integers":
        return rng.integers(bounds[0], bounds[1], shape).astype(dtype)
    if kind == "ones":
        return np.ones(shape, dtype)
    raise ValueError(f"manifest.json: unknown kind of input {kind!r}; known are normal, integers and ones")


def _skeleton(name: str) -> ModelProto:
    """The model as it lies in the repository, without its large weights."""
    _entry(name)
    return ModelProto.FromString((_FOLDER / f"{name}.onnx").read_bytes())


def _entry(name: str) -> dict[str, Any]:
    try:
        return _manifest()[name]
    except KeyError:
        raise KeyError(f"no model {name!r} in the zoo; it has {', '.join(names())}") from None


@cache
def _manifest() -> dict[str, dict[str, Any]]:
    manifest: dict[str, dict[str, Any]] = json.loads((_FOLDER / "manifest.json").read_text())
    return manifest


@cache
def _checksums() -> dict[str, str]:
    """SHA-256 by file name, from a file in the format of `sha256sum`."""
    lines = (_FOLDER / "SHA256SUMS").read_text().splitlines()
    return {file: digest for digest, file in (line.split() for line in lines)}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
