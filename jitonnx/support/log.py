"""Logging: Python's, under the logger "jitonnx", with onnxruntime's severities in front of it."""

from __future__ import annotations

import logging

logger = logging.getLogger("jitonnx")

LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Python's levels by onnxruntime's severities: verbose, info, warning, error, fatal."""


def level_of(severity: int) -> int:
    """Python's level for a severity of 0 to 4. RuntimeError for others."""
    if not 0 <= severity <= 4:
        raise RuntimeError(f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    return LEVELS[severity]


def set_default_logger_severity(severity: int) -> None:
    """Log what is at least as severe: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal. RuntimeError for others."""
    logger.setLevel(level_of(severity))


def session_logger(severity: int, name: str) -> logging.Logger:
    """A logger for one session, below that of the process; severity -1: as the process's."""
    level = logging.NOTSET if severity < 0 else level_of(severity)
    made = logging.Logger(f"jitonnx.{name}" if name else "jitonnx", level)
    made.parent = logger
    return made
