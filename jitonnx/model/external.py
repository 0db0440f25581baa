"""External data: tensors whose elements are in files beside the model.

Files are mapped, not read, and never looked for outside the model's folder: a model from a stranger must not be able to
load /etc/passwd as a weight. A Hugging Face cache has the model and its data as symbolic links into one folder of
blobs, so both the folder in which the model is named and the folder in which it really lies are allowed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PureWindowsPath

from jitonnx.errors import Fail
from jitonnx.proto import TensorProto
from jitonnx.support.mapped_files import DataFile, FileMap, OpenFile, file_of


class ExternalData:
    """The external data files of one model.

    `folder` is where locations start from (None: nowhere, as for a model from bytes), `allowed` are the real folders in
    which a file may lie.
    """

    def __init__(self, folder: Path | None, allowed: tuple[Path, ...] = ()) -> None:
        self._folder = folder
        self._allowed = allowed or ((Path(os.path.realpath(folder)),) if folder is not None else ())
        self._maps: dict[Path, memoryview] = {}
        self._identities: dict[Path, tuple[int, ...]] = {}
        self._locations: dict[str, Path] = {}
        self.model = memoryview(b"")
        """The content of the model's own file."""

    @property
    def used(self) -> list[DataFile]:
        """What was read from, as it was when it was opened."""
        return [DataFile(location, self._identities[path]) for location, path in self._locations.items()]

    @property
    def files(self) -> list[FileMap]:
        """The files that are mapped, the model's own first."""
        return [file for view in (self.model, *self._maps.values()) if (file := file_of(view)) is not None]

    def read(self, tensor: TensorProto, size: int, what: str) -> memoryview:
        """The `size` bytes of a tensor with external data, as a view. Fail names the tensor and the file."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if size == 0:
            return memoryview(b"")
        data = self._map(location, what)
        offset, length = (_number(entries, key, what) for key in ("offset", "length"))
        start = offset or 0
        if length is not None and length != size:
            raise Fail(f"{what}: external data has length {length} in {location!r}, but its type and shape take {size}")
        if start + size > len(data):
            raise Fail(
                f"{what}: external data at offset {start} with {size} bytes reaches past the end of {location!r}, "
                f"which has {len(data)} bytes"
            )
        return data[start : start + size]

    def whole(self, location: str, what: str) -> memoryview:
        """All of a file."""
        return self._map(location, what)

    def _map(self, location: str, what: str) -> memoryview:
        path = self._path(location, what)
        if path not in self._maps:
            try:
                file = OpenFile(os.fspath(path))
                self._identities[path] = file.identity() or ()
                self._maps[path] = file.content()
            except OSError as error:
                raise Fail(f"{what}: the external data {location!r} cannot be read: {error.strerror}") from error
        self._locations[location] = path
        return self._maps[path]

    def _path(self, location: str, what: str) -> Path:
        """The real path of a location. Fail for one that is absolute, leaves the folder, or does not exist."""
        failed = f"External data path validation failed for {what}. Error: "
        if not location or "\0" in location:
            raise Fail(f"{failed}no usable location given: {location!r}")
        if os.path.isabs(location) or PureWindowsPath(location).anchor:
            raise Fail(f"{failed}Absolute path not allowed for external data location: {location!r}")
        if self._folder is None:
            raise Fail(
                f"{failed}the model was not loaded from a path, so the folder of {location!r} is not known; "
                "give external_data_folder"
            )
        try:
            real = Path(os.path.realpath(self._folder / location))
        except (OSError, ValueError) as error:
            raise Fail(f"{failed}External data path cannot be read: {location[:100]!r}: {error}") from error
        if not any(real.is_relative_to(folder) for folder in self._allowed):
            allowed = " or ".join(f'"{folder}"' for folder in self._allowed)
            raise Fail(
                f"{failed}External data path escapes model directory. location: {location!r}, "
                f'resolved path: "{real}", allowed directory: {allowed}'
            )
        try:
            found = real.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise Fail(f'{failed}External data path does not exist: "{real}"') from None
        except OSError as error:  # a name that is too long for a file, a folder that may not be read
            raise Fail(f"{failed}External data path cannot be read: {location[:100]!r}: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode):
            raise Fail(f'{failed}External data path is not a regular file: "{real}"')
        return real


def _number(entries: dict[str, str], key: str, what: str) -> int | None:
    text = entries.get(key)
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit()):
        raise Fail(f"{what}: external data has the {key} {text!r}, a byte count is expected")
    return int(text)
