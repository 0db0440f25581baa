"""Chats with images: the images out of messages' contents, as OpenAI's and transformers' chats have them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jitonnx.errors import InvalidArgument

_KINDS = ("image", "image_url")
_SOURCES = ("image", "path", "url", "image_url")
"""What a part with an image may call it."""


def has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a part of a message is an image."""
    return any(_is_image(part) for message in messages for part in _parts(message))


def without_images(
    messages: Sequence[Mapping[str, Any]], mark: Callable[[int], str] | None
) -> tuple[list[dict[str, Any]], list[Any]]:
    """The messages as a chat template takes them, and the images that they have, in their order: paths, files' bytes
    and arrays.

    A message's content is a text, or a list of parts: {"type": "text", "text": ...}, {"type": "image", "image": ...}
    and {"type": "image_url", "image_url": {"url": "data:..."}}. mark: what stands for an image in texts, the first
    being 1, where the template takes these alone; None: it is given {"type": "image"}. InvalidArgument for parts that
    are neither, and for addresses: nothing is fetched.
    """
    made: list[dict[str, Any]] = []
    images: list[Any] = []
    for message in messages:
        if not isinstance(message.get("content"), list):
            made.append(dict(message))
            continue
        parts: list[dict[str, Any]] = []
        for part in _parts(message):
            if _is_image(part):
                images.append(_source(part))
                parts.append({"type": "image"} if mark is None else {"type": "text", "text": mark(len(images))})
            elif isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
                parts.append({"type": "text", "text": part["text"]})
            else:
                raise InvalidArgument(
                    f"a message has the part {_short(part)}: {{'type': 'text', 'text': ...}} or "
                    "{'type': 'image', 'image': ...} is needed"
                )
        content: Any = parts if mark is None else "".join(part["text"] for part in parts)
        made.append({**message, "content": content})
    return made, images


def _parts(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content") if isinstance(message, Mapping) else None
    return content if isinstance(content, list) else []


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _KINDS


def _source(part: Mapping[str, Any]) -> Any:
    """The image of a part: a path, bytes or an array."""
    given = next((part[name] for name in _SOURCES if part.get(name) is not None), None)
    if isinstance(given, Mapping):
        given = given.get("url")
    if given is None:
        raise InvalidArgument(
            f"the part {_short(part)} has no image: give a path, bytes or an array as 'image', or a data: URL as "
            "'image_url'"
        )
    if not isinstance(given, str):
        return given
    scheme, _, rest = given.partition(":")
    if scheme.lower() in ("http", "https", "ftp"):
        raise InvalidArgument(
            f"an image is given as {_short(given)}: nothing is fetched; give the file's bytes, or a data: URL"
        )
    if scheme.lower() != "data":
        if part.get("type") == "image_url":
            raise InvalidArgument(f"an image_url is {_short(given)}: a data: URL is needed")
        return given
    kind, comma, data = rest.partition(",")
    if not comma or not kind.endswith(";base64"):
        raise InvalidArgument(f"an image is given as {_short(given)}: data:image/png;base64,... is needed")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"an image is given as {_short(given)}, which is no base64: {error}") from error


def _short(given: Any) -> str:
    text = repr(given)
    return text if len(text) < 80 else f"{text[:76]}..."
