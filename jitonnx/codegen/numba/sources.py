"""The Numba source of a kernel call, for those that stand for computations which the planner fused.

Calls of library kernels (products, convolutions, …) have none: they run beside.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType

from jitonnx.codegen.numba import scalars
from jitonnx.codegen.numba.copies import write_copy
from jitonnx.codegen.numba.kernel import KernelWriter
from jitonnx.codegen.numba.region import write_region
from jitonnx.codegen.numba.rows import write_normalization, write_reduction, write_softmax
from jitonnx.codegen.numba.source import Source
from jitonnx.plan.calls import KernelCall

WRITERS: dict[str, Callable[[KernelWriter], str]] = {
    "region": write_region,
    "reduction": write_reduction,
    "softmax": write_softmax,
    "normalization": write_normalization,
    "transpose": write_copy,
}
"""What writes the calls of a family of kernels: it gives a line that says what is computed."""


def is_region(call: KernelCall) -> bool:
    """Whether a call is one of a region's, of which there is a source, or a note why not."""
    return call.spec.family in WRITERS


def write(call: KernelCall, *, named: bool = True, operators: Mapping[str, str] | None = None) -> Source:
    """The source of a region's call. Arguments: those of `KernelWriter`.

    Raises: Uncovered with what has no source.
    """
    kernel = KernelWriter(call, named=named, operators=operators or {})
    if kernel.tasks == 0:
        return kernel.finish("nothing, as it has no elements")
    return kernel.finish(WRITERS[call.spec.family](kernel))


def imports() -> str:
    """What a module of sources begins with."""
    return (
        "from __future__ import annotations\n\nimport math\nfrom typing import Any\n\n"
        "import numpy as np\n\nNumber = Any\n"
    )


def helpers(text: str) -> list[str]:
    """The sources of the scalar functions that a text calls, and of those that these call, before what calls them."""
    found: dict[str, str] = {}
    waiting = [text]
    while waiting:
        for name in re.findall(r"\b[a-z_0-9]+(?=\()", waiting.pop()):
            function = vars(scalars).get(name)
            if isinstance(function, FunctionType):
                source = inspect.getsource(function)
                if name not in found:
                    waiting.append(source)
                found[name] = source
    order = list(vars(scalars))
    return [found[name] for name in sorted(found, key=order.index)]
