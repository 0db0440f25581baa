"""What a model's file says about the model, under onnxruntime's names: `NodeArg` and `ModelMetadata`."""

from __future__ import annotations

from jitonnx.support.records import NamedTuple

UNSET_VERSION = 2**63 - 1
"""What onnxruntime gives as the version of a model that has none."""


class NodeArg:
    """An input or output of a model: its name, its type as `tensor(float)`, and its shape.

    The shape is a list with an int for a fixed dimension, a str for a named one and None for one that nothing is known
    of. It is empty for a scalar, and also where the file says nothing about the shape.
    """

    __slots__ = ("__weakref__", "_name", "_shape", "_type")

    def __init__(self, name: str, type: str, shape: list[int | str | None]) -> None:
        self._name, self._type, self._shape = name, type, shape

    @property
    def name(self) -> str:
        """What it is fed or asked for by."""
        return self._name

    @property
    def type(self) -> str:
        """Name the type in onnxruntime's words: `tensor(float)`, `tensor(int64)`, …"""
        return self._type

    @property
    def shape(self) -> list[int | str | None]:
        """A new list: int for a fixed dimension, str for a named one, None for one that nothing is known of."""
        return list(self._shape)

    def __repr__(self) -> str:
        return f"NodeArg(name={self._name!r}, type={self._type!r}, shape={self._shape!r})"


class ModelMetadata(NamedTuple):
    """What a model's file says about it; `description` is about the model, `graph_description` about its graph."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]
