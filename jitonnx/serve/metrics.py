"""What a server counts, in Prometheus' form."""

from __future__ import annotations

import importlib
from typing import Any

from jitonnx.genai import FinishReason, TurnUsage
from jitonnx.serving.batching import BatchCounters

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Counters:
    """What every server counts."""

    def __init__(self) -> None:
        self._package = importlib.import_module("prometheus_client")
        self._registry = self._package.CollectorRegistry()
        self.responses = self.made("Counter", "http_responses", "Answers over HTTP.", "path", "status")

    def made(self, kind: str, name: str, text: str, *labels: str, **options: Any) -> Any:
        """A counter, a gauge or a histogram."""
        return getattr(self._package, kind)(f"jitonnx_{name}", text, labels, registry=self._registry, **options)

    def text(self) -> bytes:
        """All of them."""
        made: bytes = self._package.generate_latest(self._registry)
        return made


class Metrics(Counters):
    """Counters of a language model's server."""

    def __init__(self) -> None:
        super().__init__()
        made = self.made
        self._answers = made("Counter", "answers", "Answers that have ended, by the reason.", "reason")
        self._prompt = made("Counter", "prompt_tokens", "Tokens of prompts.")
        self._cached = made("Counter", "cached_prompt_tokens", "Tokens of prompts that were not read once more.")
        self._generated = made("Counter", "generated_tokens", "Tokens of answers.")
        self._steps = made("Counter", "steps", "Steps of the engine.")
        self._running = made("Gauge", "answers_running", "Answers that are worked on.")
        self._waiting = made("Gauge", "answers_waiting", "Answers that wait.")
        self.first_token = made("Histogram", "first_token_seconds", "Time to the first token.", buckets=_SECONDS)
        self._seconds = made("Histogram", "answer_seconds", "Time to the end of an answer.", buckets=_SECONDS)

    def stepped(self, running: int, waiting: int) -> None:
        """Count a step."""
        self._steps.inc()
        self._running.set(running)
        self._waiting.set(waiting)

    def finished(self, reason: FinishReason, usage: TurnUsage, seconds: float) -> None:
        """Count an answer."""
        self._answers.labels(reason.name.lower()).inc()
        self._prompt.inc(usage.prompt_tokens)
        self._cached.inc(usage.cached_prompt_tokens)
        self._generated.inc(usage.generated_tokens)
        self._seconds.observe(seconds)


class BatchMetrics(Counters):
    """Counters of an encoder's server."""

    def __init__(self) -> None:
        super().__init__()
        made = self.made
        self.batches = BatchCounters(
            made("Histogram", "batch_requests", "Requests that shared a run.", buckets=_ROWS),
            made("Histogram", "batch_texts", "Texts of a run.", buckets=_ROWS),
            made("Histogram", "run_seconds", "Time of a run.", buckets=_SECONDS),
            made("Gauge", "requests_waiting", "Requests that wait for a run."),
        )
        """The `Observer` of its batches."""
        self.tokens = made("Counter", "prompt_tokens", "Tokens of texts.")
