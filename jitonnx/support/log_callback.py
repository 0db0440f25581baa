"""Messages of the log handed to a function, as onnxruntime 1.32 does it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from jitonnx.support.log import LEVELS, level_of, logger

Callback = Callable[[int, str, str, str, str], Any]
"""Takes severity, category, the session's name, the place in the code, and the text."""


class _Told(NamedTuple):
    """What `sys.unraisablehook` is given for an exception of a callback."""

    exc_type: type[BaseException]
    exc_value: BaseException
    exc_traceback: TracebackType | None
    err_msg: str | None
    object: Any


class _Callback(logging.Handler):
    """Hands messages to a function; those that it causes itself, or fails on, go where they go without it."""

    def __init__(self, callback: Callback) -> None:
        super().__init__()
        self._callback, self._inside = callback, threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(self._inside, "here", False):
            _as_usual(record)
            return
        self._inside.here = True
        try:
            severity = sum(record.levelno > level for level in LEVELS[:-1])
            category, _, name = record.name.partition(".")
            place = f"{record.filename}:{record.lineno} {record.funcName}"
            self._callback(severity, category, name, place, record.getMessage())
        except Exception as error:
            sys.unraisablehook(_Told(type(error), error, error.__traceback__, None, self._callback))  # type: ignore[arg-type]
            _as_usual(record)
        finally:
            self._inside.here = False


def _as_usual(record: logging.LogRecord) -> None:
    if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
        logging.lastResort.handle(record)


def set_default_logger_callback(callback: Callback | None, severity: int = 2) -> None:
    """Hand all messages at least as severe to a function, with severity, category ("jitonnx"), the session's name,
    place in the code and text; None: log as before.

    RuntimeError for another severity than 0 to 4, and for what is no function.
    Messages of sessions that are there go to it, too. What it raises goes to `sys.unraisablehook`.
    """
    level = level_of(severity)
    if callback is not None and not callable(callback):
        raise RuntimeError("callback must be a callable")
    for handler in [each for each in logger.handlers if isinstance(each, _Callback)]:
        logger.removeHandler(handler)
    logger.propagate = callback is None
    if callback is not None:
        logger.addHandler(_Callback(callback))
        logger.setLevel(level)
