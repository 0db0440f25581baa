"""The line on a terminal that tells how far compiling is."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

import jitonnx
from jitonnx.api.progress import TerminalProgress
from tests.session import models


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that pass when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_nothing_is_shown_of_what_is_over_soon(clock: Clock) -> None:
    stream = Terminal()
    shown = TerminalProgress(stream, clock)
    for done in range(5):
        shown.show(done, 4)
        clock.now += 0.2
    shown.clear()
    assert stream.getvalue() == ""


def test_a_line_that_is_cleared_at_the_end(clock: Clock) -> None:
    stream = Terminal()
    shown = TerminalProgress(stream, clock)
    shown.show(0, 4)
    clock.now += 2
    shown.show(1, 4)
    assert stream.getvalue() == "\r\x1b[Kjitonnx: compiling kernels, 1 of 4, about 6 s left"
    clock.now += 0.05
    shown.show(2, 4)
    assert "2 of 4" not in stream.getvalue(), "too soon after the one before"
    clock.now += 1.95
    shown.show(3, 4)
    assert stream.getvalue().endswith("\r\x1b[Kjitonnx: compiling kernels, 3 of 4, about 1 s left")
    shown.show(4, 4)
    assert stream.getvalue().endswith(" left\r\x1b[K")
    written = stream.getvalue()
    clock.now += 60
    shown.show(0, 2)
    clock.now += 0.5
    shown.show(1, 2)
    assert stream.getvalue() == written, "each compile is timed from its own beginning"


def test_a_line_that_is_cleared_when_compiling_ends_early(clock: Clock) -> None:
    stream = Terminal()
    shown = TerminalProgress(stream, clock)
    shown.show(0, 4)
    clock.now += 2
    shown.show(1, 4)
    shown.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_nothing_is_written_where_there_is_no_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", None)
    for shown in (TerminalProgress(stream, clock), TerminalProgress(None, clock)):
        shown.show(0, 4)
        clock.now += 2
        shown.show(1, 4)
        shown.clear()
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("severity", "shown"), [(-1, True), (2, True), (3, False)])
def test_sessions_show_progress_unless_their_log_is_silent(
    severity: int, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "JITONNX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("jitonnx.api.progress.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("jitonnx.api.progress.INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    options = jitonnx.SessionOptions()
    options.log_severity_level = severity
    jitonnx.InferenceSession(models.relu_add(), options)
    assert ("jitonnx: compiling kernels, 0 of 1" in terminal.getvalue()) == shown
    assert terminal.getvalue().endswith("\r\x1b[K" if shown else "")


def test_whoever_wants_to_show_it_otherwise_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "JITONNX_CACHE_DIR", str(tmp_path))
    calls = []
    monkeypatch.setattr("jitonnx.api.session.progress", lambda done, total: calls.append((done, total)))
    jitonnx.InferenceSession(models.relu_add())
    assert calls == [(0, 1), (1, 1)]
