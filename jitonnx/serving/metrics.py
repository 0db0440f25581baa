"""What is counted, in Prometheus' form, beside KServe's own times of requests (`request_predict_seconds`)."""

from __future__ import annotations

from kserve.metrics import PREDICT_HIST_TIME
from prometheus_client import Counter, Gauge, Histogram

from jitonnx.serving.batching import BatchCounters

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_LABELS = ("model_name",)  # as KServe's

REQUESTS = Counter("jitonnx_requests", "Requests, by what became of them.", (*_LABELS, "outcome"))
WAITING = Gauge("jitonnx_requests_waiting", "Requests that wait for a run.", _LABELS)
BATCH_REQUESTS = Histogram("jitonnx_batch_requests", "Requests that shared a run.", _LABELS, buckets=_ROWS)
BATCH_ROWS = Histogram("jitonnx_batch_rows", "Rows of a run.", _LABELS, buckets=_ROWS)
RUN_SECONDS = Histogram("jitonnx_run_seconds", "Time of a run.", _LABELS, buckets=_SECONDS)


class Metrics(BatchCounters):
    """Those of one model; an `Observer` of its batches."""

    def __init__(self, name: str) -> None:
        super().__init__(*(one.labels(name) for one in (BATCH_REQUESTS, BATCH_ROWS, RUN_SECONDS, WAITING)))
        self.predict_seconds = PREDICT_HIST_TIME.labels(name)
        self.answered, self.refused, self.failed = (
            REQUESTS.labels(name, outcome) for outcome in ("answered", "refused", "failed")
        )
