"""`Config`: what `genai_config.json` says of a folder, with what a program changes in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from jitonnx import errors
from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.genai import optimum

FILE = "genai_config.json"

_CPU = ("cpu", "cpuexecutionprovider")


class Config:
    """A folder's configuration. NoSuchFile without one, InvalidArgument for what is no JSON object."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(path)
        """The folder of the model and its tokenizer."""
        self.model_data: dict[str, bytes] = {}
        """Models in memory, by the names of the files that they stand for."""
        self.source = FILE
        """That it is read from, below the folder. (Not in onnxruntime-genai.)"""
        place = os.path.join(self.folder, FILE)
        is_optimums = not os.path.isfile(place) and optimum.is_folder(self.folder)
        if is_optimums:
            self.source = optimum.FILE
        elif not os.path.isfile(place):
            what = "has no" if os.path.isdir(self.folder) else "is not a folder with a"
            raise NoSuchFile(
                f"{self.folder} {what} {FILE}: a folder that onnxruntime-genai's model builder writes is needed, with "
                f"{FILE}, model.onnx and tokenizer.json, or one that optimum writes, with {optimum.FILE}"
            )
        self.values: dict[str, Any] = optimum.configuration(self.folder) if is_optimums else read_object(place)
        """All that the file says, overlays merged into it."""

    @classmethod
    def from_package_ep(cls, config_path: str, ep: str) -> Config:
        """NotImplemented, always."""
        raise errors.NotImplemented(
            "packages with models for several providers are not supported: give a model's folder"
        )

    def overlay(self, text: str) -> None:
        """Merge a JSON object into the configuration: its values take the place of those that are there."""
        _merge(self.values, _object(text, "the overlay"))

    def get(self, *path: str, default: Any = None) -> Any:
        """A value by the names that lead to it; `default` where there is none, or null.

        InvalidArgument where one of the names on the way leads to what is no object.
        """
        found: Any = self.values
        for place, name in enumerate(path):
            if not isinstance(found, dict):
                raise InvalidArgument(f"{self.name(*path[:place])} is {found!r}: an object is needed")
            if found.get(name) is None:
                return default
            found = found[name]
        return found

    def section(self, *path: str) -> dict[str, Any]:
        """What is told below a name; nothing where it is not there. InvalidArgument for what is no object."""
        found = self.get(*path, default={})
        if not isinstance(found, dict):
            raise InvalidArgument(f"{self.name(*path)} is {found!r}: an object is needed")
        return found

    def flag(self, *path: str, default: bool = False) -> bool:
        """True or false. InvalidArgument for what is neither."""
        found = self.get(*path, default=default)
        if not isinstance(found, bool):
            raise InvalidArgument(f"{self.name(*path)} is {found!r}: true or false is needed")
        return found

    def number(self, *path: str, default: int = 0) -> int:
        """A whole number of 32 bits. InvalidArgument for what is none."""
        found = self.get(*path, default=default)
        if isinstance(found, bool) or not isinstance(found, int) or abs(found) >= 1 << 31:
            raise InvalidArgument(f"{self.name(*path)} is {found!r}: a whole number of 32 bits is needed")
        return found

    def text(self, *path: str, default: str = "") -> str:
        """A text. InvalidArgument for what is none."""
        found = self.get(*path, default=default)
        if not isinstance(found, str):
            raise InvalidArgument(f"{self.name(*path)} is {found!r}: a text is needed")
        return found

    def tokens(self, *path: str) -> list[int]:
        """A token id, or a list of them, as a list."""
        found = self.get(*path, default=[])
        ids = found if isinstance(found, list) else [found]
        if not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
            raise InvalidArgument(f"{self.name(*path)} is {found!r}: a token id, or a list of them, is needed")
        return ids

    def file(self, *path: str) -> str:
        """The place of a file that the configuration names."""
        return os.path.join(self.folder, self.text(*path))

    def name(self, *path: str) -> str:
        """What errors call a value: the names that lead to it, and the file."""
        return f"{'.'.join(path)} in {os.path.join(self.folder, self.source)}"

    # ------------------------------------------------------------ models in memory

    def add_model_data(self, model_filename: str, data: Any) -> None:
        """Have a model read from bytes, in the place of the file of that name."""
        self.model_data[model_filename] = bytes(data)

    def remove_model_data(self, model_filename: str) -> None:
        """Have it read from the file again."""
        self.model_data.pop(model_filename, None)

    # ------------------------------------------------------------ providers

    def providers(self) -> list[str]:
        """Those that the configuration asks for. InvalidArgument for what is no list of objects."""
        path = ("model", "decoder", "session_options", "provider_options")
        told = self.get(*path, default=[])
        if not (isinstance(told, list) and all(isinstance(one, dict) for one in told)):
            raise InvalidArgument(f"{self.name(*path)} is {told!r}: a list of objects is needed, as [{{'cpu': {{}}}}]")
        return [name for one in told for name in one]

    def clear_providers(self) -> None:
        """Forget the providers: the CPU is left, which is all that there is."""
        self._session_options()["provider_options"] = []

    def append_provider(self, name: str) -> None:
        """Accepted for the CPU. InvalidArgument for another provider."""
        if name.lower() not in _CPU:
            raise InvalidArgument(f"provider {name!r} is not available: jitonnx runs on CPUs; leave it out")

    def set_provider_option(self, provider: str, name: str, value: str) -> None:
        """Accepted without effect for the CPU, which has no options. InvalidArgument for another provider."""
        self.append_provider(provider)

    def set_decoder_provider_options_hardware_device_type(self, provider: str, value: str) -> None:
        """Without effect, as `set_provider_option`."""
        self.append_provider(provider)

    def set_decoder_provider_options_hardware_device_id(self, provider: str, value: int) -> None:
        """Without effect, as `set_provider_option`."""
        self.append_provider(provider)

    set_decoder_provider_options_hardware_vendor_id = set_decoder_provider_options_hardware_device_id

    def clear_decoder_provider_options_hardware_device_type(self, provider: str) -> None:
        """Accepted without effect."""

    clear_decoder_provider_options_hardware_device_id = clear_decoder_provider_options_hardware_device_type
    clear_decoder_provider_options_hardware_vendor_id = clear_decoder_provider_options_hardware_device_type

    def _session_options(self) -> dict[str, Any]:
        path = ("model", "decoder", "session_options")
        self.section(*path)
        found = self.values
        for name in path:
            if found.get(name) is None:
                found[name] = {}
            found = found[name]
        return found


def read_object(place: str) -> dict[str, Any]:
    """What a file of JSON holds. InvalidArgument for what is no JSON object."""
    try:
        with open(place, encoding="utf-8") as file:
            return _object(file.read(), place)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{place} is no JSON: {error}") from error


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        made = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{what} is no JSON: {error}") from error
    if not isinstance(made, dict):
        raise InvalidArgument(f"{what} holds {type(made).__name__}: a JSON object is needed")
    return made


def _merge(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict):
            _merge(values[name], value)
        else:
            values[name] = value
