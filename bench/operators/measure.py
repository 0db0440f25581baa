"""A case run by jitonnx and onnxruntime in turns with the limit that binds it, and its answer judged."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial

import numpy as np

from bench.models import block_of, difference, medians_in_turns
from bench.operators.cases import Case
from bench.operators.rows import Row
from bench.operators.work import Limits, work

BLOCK_SECONDS = 0.05
"""Length of a block of runs: many short rounds even out other processes' turns better than few long ones."""
TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}
"""Largest difference allowed where outputs are floating-point numbers, by the precision of products; others must be
equal, but for quantised results, which may differ by a unit: onnxruntime's float32 scales are multiplied in another
order."""
_HALF = 1e-3
"""The spacing of float16 about 1: results of that type may be neighbours."""


def measure(
    case: Case, limits: Limits, rounds: int, block_seconds: float = BLOCK_SECONDS, precision: str = "float32"
) -> Row:
    """Run a case with both runtimes in turns, and in its turn measure the limit that binds it. precision: of our
    products with constant weights."""
    import onnxruntime

    import jitonnx
    from jitonnx.engine.interpreter import evaluate
    from jitonnx.engine.pipeline import Engine
    from jitonnx.model import load

    model, net = case.make()
    data, feeds = model.SerializeToString(), net.feeds
    our_options, their_options = jitonnx.SessionOptions(), onnxruntime.SessionOptions()
    our_options.add_session_config_entry("jitonnx.cpu", limits.cpu)
    our_options.add_session_config_entry("jitonnx.precision", precision)
    our_options.intra_op_num_threads = their_options.intra_op_num_threads = limits.threads
    our_session = jitonnx.InferenceSession(data, our_options)
    their_session = None
    if not case.ours_alone:
        their_session = onnxruntime.InferenceSession(data, their_options, providers=["CPUExecutionProvider"])
    ours = our_session.run(None, feeds)
    theirs = evaluate(load(data).graph, feeds) if their_session is None else their_session.run(None, feeds)
    needed = work(model, net, theirs, precision)
    bound = limits.binding(needed)
    # The limit right behind our turn: cores slow down under wide vectors, and speed up again.
    our_block = block_of(partial(our_session.run, None, feeds), block_seconds, limits.clock)
    blocks = [our_block, lambda: limits.seconds(bound)]
    if their_session is not None:
        blocks.append(block_of(partial(their_session.run, None, feeds), block_seconds, limits.clock))
    our_seconds, least, *their_seconds = medians_in_turns(blocks, rounds)
    apart, engine = difference(ours, theirs), our_session.engine
    schedule = engine.schedule if isinstance(engine, Engine) else None
    exact = all(array.dtype.kind != "f" for array in theirs)
    # Bytes that one rounds up and the other down: sums of floats in another order are behind them.
    rounded = bool(needed.byte_products) or any(node.op_type.startswith("QLinear") for node in model.graph.node)
    halves = any(array.dtype == np.float16 for array in theirs)
    unit = 1.01 / min(float(np.abs(array.astype(np.float64)).max(initial=0.0)) or 1.0 for array in theirs)
    allowed = unit if rounded else 0 if exact else _HALF if halves else TOLERANCES[precision]
    return Row(
        case.family,
        case.name,
        f"{shapes_text(feeds.values())} -> {shapes_text(theirs)}",
        1e6 * our_seconds,
        1e6 * their_seconds[0] if their_seconds else None,
        bound.rate(our_seconds),
        bound.unit,
        bound.limit,
        least / our_seconds,
        apart,
        needed.flops + needed.rounded_products,
        needed.bytes,
        schedule is not None and any(True for _ in schedule.host_steps()),
        apart > allowed,
    )


def shapes_text(arrays: Iterable[np.ndarray]) -> str:
    """`2*128x768, 16 int64`: equal neighbours counted, float32 left out."""
    texts = []
    for array in arrays:
        kind = "" if array.dtype == np.float32 else f" {array.dtype}"
        texts.append(("x".join(map(str, array.shape)) or "scalar") + kind)
    counted = [(text, len(list(group))) for text, group in itertools.groupby(texts)]
    return ", ".join(text if count == 1 else f"{count}*{text}" for text, count in counted)
