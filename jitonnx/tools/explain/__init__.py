"""What became of a model: every node's kernel, why, and what it costs; as data, as text, and as a page to look at.

explanation = explain(session, shapes)      # data
print(as_text(explanation))
print(numba_sources(explanation))            # regions as Python functions
Path("model.html").write_text(as_html(explanation))
"""

from jitonnx.api.explanation import ExplainedOperand, Explanation, Kernel, Memory, NodeOutcome, explain, has_steps
from jitonnx.api.explanation_text import as_text, numba_sources
from jitonnx.tools.explain.page import as_html

__all__ = [
    "ExplainedOperand",
    "Explanation",
    "Kernel",
    "Memory",
    "NodeOutcome",
    "as_html",
    "as_text",
    "explain",
    "has_steps",
    "numba_sources",
]
