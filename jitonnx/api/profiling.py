"""Profiles in the format of Chrome's tracing tools, as onnxruntime writes them: `SessionOptions.enable_profiling`."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from jitonnx.api.providers import CPU
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

    def run(
        self,
        executable: Executable,
        arrays: Sequence[np.ndarray],
        nodes: Sequence[Sequence[str]],
        operators: Mapping[str, str],
    ) -> list[np.ndarray]:
        """The outputs of one run, whose steps are timed.

        nodes: what each step stands for, as far as that is known. operators: of the model's nodes. A step of one node
        has its operator for `op_name`; of several, the kernel's label, and all in `operators`.
        """
        began = time.perf_counter()
        outputs, seconds = executable.run_timed(arrays)
        ended = time.perf_counter()
        events = [self._event("Session", "model_run", began, ended - began, {})]
        at = ended - float(seconds.sum())
        for number, (step, duration) in enumerate(zip(executable.program.steps, seconds.tolist(), strict=True)):
            names = [name for name in (nodes[number] if number < len(nodes) else ()) if name in operators]
            told = [operators[name] for name in names]
            one = len(names) == 1
            details = {"op_name": told[0] if one else step.label, "provider": CPU, "node_index": str(number)}
            details |= {"kernel": step.label, "nodes": ", ".join(names), "operators": ", ".join(told)}
            events.append(self._event("Node", f"{names[0] if one else step.label}_kernel_time", at, duration, details))
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
