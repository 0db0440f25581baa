"""What a model's kernels keep on the stack in their inner loops, on any CPU: their assembly is made and read, not run.

    python -m bench.spills neoverse-n1 resnet50 bert_base lstm_tagger
    python -m bench.spills haswell model.onnx

One line for each kernel that has loops with multiply-adds of whole vectors: how many these loops have; and where any of
their instructions address the stack, how many do, of how many, and how many of these load or store vectors. A model
without fixed sizes gets the code for any.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from bench import zoo
from bench.inner_loops import Loop, multiplying_loops
from jitonnx.codegen.build import kernel_of
from jitonnx.codegen.code import code_of
from jitonnx.codegen.optimization import emit_assembly
from jitonnx.emit.module import emit_module
from jitonnx.ir.computation.lowering import lower
from jitonnx.kernels.spec import KernelSpec
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.make import make_plan
from jitonnx.target.machine import Target, host, of_any_architecture


def kernels(source: bytes | str, target: Target) -> Iterator[tuple[KernelSpec, list[Loop]]]:
    """The kernels of a model (its bytes, or its path) and their loops with multiply-adds, where they have such."""
    graph = load(source).graph
    optimize(graph, 99)
    for code in dict.fromkeys(map(code_of, make_plan(lower(graph), target).calls)):
        module = emit_module(kernel_of(code, target), "kernel", target, prescheduled=code.spec.prescheduled)
        if loops := multiplying_loops(emit_assembly(module, target, prescheduled=code.spec.prescheduled), target):
            yield code.spec, loops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cpu", help="LLVM's name of a CPU: host, haswell, neoverse-n1, ...")
    parser.add_argument("models", nargs="+", help=f"paths of ONNX files, or names: {', '.join(zoo.names())}")
    arguments = parser.parse_args()
    target = host() if arguments.cpu == "host" else of_any_architecture(arguments.cpu)
    for name in arguments.models:
        source = name if Path(name).is_file() else zoo.model(name).SerializeToString()
        for spec, loops in kernels(source, target):
            counts = " ".join(f"{loop.multiply_adds}" for loop in loops)
            stack = [
                f"{loop.stack_accesses} of {loop.instructions}, {loop.spilled_vectors} vectors"
                for loop in loops
                if loop.stack_accesses
            ]
            print(f"{name}  {spec.family:14} multiply-adds {counts}" + "".join(f"; stack {text}" for text in stack))


if __name__ == "__main__":
    main()
