"""`jitonnx debug MODEL`: whether the compiled model gives what it should, and if not, which node, rewrite or kernel."""

from __future__ import annotations

import argparse
from typing import Any

from jitonnx.tools.cli.common import add_inputs, add_model, feeds_of, session_of


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("debug", help="find the node, rewrite or kernel that a wrong result comes from")
    add_model(parser, artifact=False)
    add_inputs(parser)
    parser.add_argument("--feeds", dest="input", metavar="FEEDS.npz", help="the same as --input")
    parser.add_argument("-o", "--output", metavar="OUT.onnx", help="write the smallest part that still shows it")
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> int:
    """Compare, say what was found, write the part; 0 if nothing differs, else 1."""
    from jitonnx.api.feeds import check_names
    from jitonnx.engine.pipeline import Settings
    from jitonnx.model import load
    from jitonnx.support.kernel_cache import KernelCache, default_directory
    from jitonnx.tools.debug import find
    from jitonnx.tools.debug.experiments import Experiments
    from jitonnx.tools.debug.reduced import reduce, write

    with session_of(options) as session:
        compiled = session.compiled_model
        feeds, settings = feeds_of(compiled, options), compiled.engine.settings
        check_names(feeds, [entry.name for entry in compiled.description.inputs], ())
        session.run(None, feeds)  # which says what is wrong with the inputs
    assert isinstance(settings, Settings), "Bug: a model that is compiled here has no settings"
    model, cache = load(options.model), KernelCache(default_directory())
    experiments = Experiments(model.graph, [feeds[entry.name] for entry in model.inputs], settings, cache)
    found = find(experiments)
    if found is None:
        print(
            f"no difference: {len(experiments.expected)} outputs are what the interpreter gives, up to rounding, "
            f"for {len(model.graph)} nodes"
        )
        return 0
    for name, entry in experiments.wrong(experiments.results):
        print(f"output {name}: {entry}")
    print(f"first node  {found.node}, value {found.value}\n            {found.difference}")
    if found.kind == "rounding":
        print(f"no defect   {found.evidence}")
        return 0
    print(f"guilty      {found.kind}: {found.name}\n            {found.evidence}")
    if found.kind == "rewrite":
        print(f"until then  InferenceSession(path, disabled_optimizers=[{found.name!r}])")
    if options.output:
        part = reduce(experiments, found.suspects, cache)
        if part is None:
            print("reduced     no part of the model shows it by itself: report it with the whole model")
        else:
            stored = write(part, model, options.output)
            print(f"reduced     {options.output}, {len(part.graph)} of {len(model.graph)} nodes; inputs in {stored}")
    print("Please report this with the lines above and the reduced model (-o), see docs/debugging.md.")
    return 1
