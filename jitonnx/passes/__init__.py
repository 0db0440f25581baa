"""Graph to graph rewrites, from an exporter's graph to the one that is planned. `pipeline.optimize` runs them all.

docs/passes.md lists every rewrite with its equation and says when it declines.
"""

from jitonnx.passes.pipeline import optimize
from jitonnx.passes.report import Report

__all__ = ["Report", "optimize"]
