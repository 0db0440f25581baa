"""What became of a model: every node's kernel, why, and what it costs; as data, as text, and as a page to look at.

explanation = explain(session, shapes)      # data
print(as_text(explanation))
Path("model.html").write_text(as_html(explanation))
"""

from jitonnx.explain.data import Explanation, Fate, Kernel, Memory, Operand, explain, has_steps
from jitonnx.explain.page import as_html
from jitonnx.explain.text import as_text

__all__ = ["Explanation", "Fate", "Kernel", "Memory", "Operand", "as_html", "as_text", "explain", "has_steps"]
