"""Messages handed to a function."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import jitonnx
from jitonnx.support.log import logger


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    level = logger.level
    yield
    jitonnx.set_default_logger_callback(None)
    logger.setLevel(level)


def test_messages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    jitonnx.set_default_logger_callback(lambda *told: seen.append(told))
    logger.warning("of %d", 3)
    logger.getChild("session").error("second")
    logger.info("less severe")
    assert [(severity, category, name, text) for severity, category, name, _, text in seen] == [
        (2, "jitonnx", "", "of 3"),
        (3, "jitonnx", "session", "second"),
    ]
    assert seen[0][3].startswith("test_log_callback.py:")
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)

    def failing(*told: Any) -> None:
        logger.warning("inside")
        raise ValueError("no")

    jitonnx.set_default_logger_callback(failing, 0)
    logger.warning("outside")
    assert [told.exc_type for told in raised] == [ValueError]
    told = capsys.readouterr().err
    assert "inside" in told and "outside" in told
    jitonnx.set_default_logger_callback(None)
    logger.warning("third")
    assert len(seen) == 2 and len(raised) == 1


def test_arguments() -> None:
    with pytest.raises(RuntimeError, match="callback must be a callable"):
        jitonnx.set_default_logger_callback(3)  # type: ignore[arg-type]
    for callback in (print, None):
        with pytest.raises(RuntimeError, match="Invalid logging severity"):
            jitonnx.set_default_logger_callback(callback, 9)
