"""Rewritten models as ONNX files: `SessionOptions.optimized_model_filepath`, and `jitonnx optimize`.

What is written holds for all sizes of inputs, as the model does; an engine's graph, in which the usual sizes are taken
for granted, does not. It is rewritten apart for that, and without what only our kernels want.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace

from jitonnx.errors import Fail
from jitonnx.ir.assumptions import Assumptions
from jitonnx.ir.errors import GraphError
from jitonnx.ir.extract import extract
from jitonnx.ir.graph import Graph
from jitonnx.model.load import load
from jitonnx.model.types import Model
from jitonnx.model.variants import constants_by_name, with_inputs
from jitonnx.model.write import ExternalFile, Placement, write_model
from jitonnx.ops.registry import Registry, registry
from jitonnx.passes.pipeline import optimize, unwritten_rewrites
from jitonnx.passes.report import Report
from jitonnx.passes.rewriting import Level
from jitonnx.passes.standard import standardise


def optimize_file(source: str, path: str, level: int, external: ExternalFile | None = None) -> Report:
    """Write the model of a file as `write_optimized` does, with the operators that are registered for all sessions."""
    model = load(source, composed=not keeps_operators(level))
    return write_optimized(model, path, registry, level=level, external=external)


def keeps_operators(level: int) -> bool:
    """Whether a model that is written at a level has the operators of the model that it is made of, for which it is
    loaded without their parts in their places. Tools look for them, as onnxruntime leaves them there."""
    return level <= Level.BASIC


def write_optimized(
    model: Model,
    path: str,
    known: Registry,
    *,
    level: int,
    disabled: Collection[str] = (),
    external: ExternalFile | Placement | None = None,
) -> Report:
    """Write a model as rewrites of a level leave it; what was done is returned.

    model: as it was loaded, which it stays. disabled: names of rewrites that are not made. known: the operators that it
    may use. external, errors: as of `write_model`; Fail also for a path that asks for another format than ONNX.
    """
    if os.fspath(path).lower().endswith(".ort"):
        raise Fail(f"{path!r} asks for onnxruntime's own format, which is not written: give a name that ends in .onnx")
    constants = constants_by_name(model.graph)
    read = ((each.name, constants[each.name].constant) for each in model.overridable if each.name in constants)
    defaults = {name: array for name, array in read if array is not None}
    overridable = [each for each in model.overridable if each.name in defaults]
    source = with_inputs(model.graph, overridable) if overridable else model.graph
    types = [value.type for value in source.inputs]
    try:
        graph = Graph(assumptions=Assumptions(demands_only=True))
        extract(list(source), source.inputs, types, source.outputs, into=graph)
        report = optimize(graph, level, disabled={*disabled, *unwritten_rewrites(level)})
        standardise(graph)
        report.nodes_after = len(graph)
    except GraphError as error:
        raise Fail(f"the rewritten model cannot be written: {error}") from error
    write_model(replace(model, graph=graph, overridable=overridable), path, known, defaults, external)
    return report
