"""Profiles in the format of Chrome's tracing tools, as onnxruntime writes them: `SessionOptions.enable_profiling`."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from jitonnx.runtime.executable import Executable
from jitonnx.support import fork_safety


class Profile:
    """Events of one session, in memory until `finish` writes them. Times are microseconds since the session began."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.start_nanoseconds = time.time_ns()
        self._start = time.perf_counter()
        self._lock = fork_safety.lock()
        self._events: list[dict[str, Any]] = []

    def run(self, executable: Executable, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of one run, whose steps are timed."""
        began = time.perf_counter()
        outputs, seconds = executable.run_timed(arrays)
        ended = time.perf_counter()
        events = [self._event("Session", "model_run", began, ended - began, {})]
        at = ended - float(seconds.sum())
        for number, (step, duration) in enumerate(zip(executable.program.steps, seconds.tolist(), strict=True)):
            details = {"op_name": step.label, "provider": "CPUExecutionProvider", "node_index": str(number)}
            events.append(self._event("Node", f"{step.label}_kernel_time", at, duration, details))
            at += duration
        with self._lock:
            self._events += events
        return outputs

    def add(self, name: str, began: float, ended: float) -> None:
        """Record something that the session did; times of `time.perf_counter`."""
        with self._lock:
            self._events.append(self._event("Session", name, began, ended - began, {}))

    def finish(self) -> str:
        """Write the file, `PREFIX_YYYY-mm-dd_HH-MM-SS_mmm.json`, an event a line, and return its name."""
        now = datetime.now()
        path = f"{self._prefix}_{now:%Y-%m-%d_%H-%M-%S}_{now.microsecond // 1000:03}.json"
        with self._lock, open(path, "w") as file:
            file.write("[\n" + ",\n".join(map(json.dumps, self._events)) + "\n]\n")
        return path

    def _event(self, category: str, name: str, began: float, seconds: float, details: dict[str, str]) -> dict[str, Any]:
        return {
            "cat": category,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "ts": round((began - self._start) * 1e6, 3),
            "dur": round(seconds * 1e6, 3),
            "ph": "X",
            "name": name,
            "args": details,
        }
