"""What a server counts, in Prometheus' form."""

from __future__ import annotations

import importlib
from typing import Any

from jitonnx.genai import FinishReason, TurnUsage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        package = importlib.import_module("prometheus_client")
        self._registry = registry = package.CollectorRegistry()
        self._text = package.generate_latest

        def made(kind: str, name: str, text: str, *labels: str, **options: Any) -> Any:
            return getattr(package, kind)(f"jitonnx_{name}", text, labels, registry=registry, **options)

        self.responses = made("Counter", "http_responses", "Answers over HTTP.", "path", "status")
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

    def text(self) -> bytes:
        """All of them."""
        made: bytes = self._text(self._registry)
        return made
