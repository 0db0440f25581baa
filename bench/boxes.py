"""A detector whose sizes only a run tells: each image gives another number of boxes. jitonnx beside onnxruntime.

    python -m bench.boxes                                   # 200 images, one thread
    python -m bench.boxes --images 50 --threads 2 --side 320

Four convolutions, boxes and scores, NonMaxSuppression; of each box left the features at nine places in it, a head of
two products, and NonZero for what the head is sure of: three native parts, of which the second is run for as many boxes
as the first has left, the third for as many as the second is sure of. The table shows the seconds of all images by
runtime, and as a part of onnxruntime's; how many different numbers of boxes there were; steps of a run and what of them
NumPy evaluates; engines made after the first image, as nothing else is compiled then; of how many images the outputs
are the same.

`--clock cpu` counts the time that the process has the CPUs for: for a machine that others use, too. It is for one
thread, as threads that wait for others spin.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bench.arguments import CLOCKS, add_clock

CHANNELS, CLASSES, PLACES = 32, 8, 9
MOST_BOXES = 300
PAUSE_SECONDS = 0.0005
"""The other's threads stop spinning in a pause between turns."""


Image = np.ndarray
Run = Callable[[Image], list[np.ndarray]]


def detector(seed: int = 0) -> ModelProto:
    """Images [1, 3, h, w] to boxes [n, 4] with scores of classes [n, CLASSES]; those that are sure by image [k, 3]."""
    rng = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {}
    nodes: list[Any] = []

    def constant(values: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(weights)}"
        weights[name] = np.asarray(values, dtype)
        return name

    def add(operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(nodes)}_{number}" for number in range(outputs)]
        nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def drawn(*shape: int) -> str:
        fan = float(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        return constant(rng.standard_normal(shape) * np.sqrt(2 / fan), np.float32)

    x = "x"
    for inputs, outputs, stride in ((3, 16, 2), (16, CHANNELS, 2), (CHANNELS, CHANNELS, 1), (CHANNELS, CHANNELS, 1)):
        x = add("Relu", add("Conv", x, drawn(outputs, inputs, 3, 3), strides=[stride] * 2, pads=[1] * 4))
    features = add("Transpose", add("Reshape", x, constant([CHANNELS, -1])), perm=[1, 0])
    raw = add("Conv", x, drawn(4, CHANNELS, 1, 1))
    boxes = add("Sigmoid", add("Transpose", add("Reshape", raw, constant([0, 4, -1])), perm=[0, 2, 1]))
    scores = add("Sigmoid", add("Reshape", add("Conv", x, drawn(1, CHANNELS, 1, 1)), constant([0, 1, -1])))
    limits = constant([MOST_BOXES]), constant([0.6], np.float32), constant([0.55], np.float32)
    selected = add("NonMaxSuppression", boxes, scores, *limits)
    rows = add("Squeeze", add("Gather", selected, constant([2]), axis=1), constant([1]))
    chosen = add("Gather", add("Squeeze", boxes, constant([0])), rows)
    # The features at a grid of places between the corners: RoiAlign with one sample a place, of the nearest pixel.
    size = add("Shape", x)
    height, width = (add("Gather", size, constant([axis])) for axis in (2, 3))
    low, high = (add("Gather", chosen, constant(axes), axis=1) for axes in ([0, 1], [2, 3]))
    parts = []
    for a in (0.1, 0.5, 0.9):
        for b in (0.1, 0.5, 0.9):
            inside = add("Mul", add("Sub", high, low), constant([a, b], np.float32))
            parts.append(add("Unsqueeze", add("Add", low, inside), constant([1])))
    places = add("Concat", *parts, axis=1)
    extents = add("Concat", height, width, axis=0)
    cells = add("Cast", add("Mul", places, add("Cast", extents, to=TensorProto.FLOAT)), to=TensorProto.INT64)
    cells = add("Max", add("Min", cells, add("Sub", extents, constant([1]))), constant([0]))
    rows_of, columns = (add("Gather", cells, constant(axis), axis=2) for axis in (0, 1))
    flat = add("Add", add("Mul", rows_of, width), columns)
    pooled = add("Reshape", add("Gather", features, flat), constant([-1, PLACES * CHANNELS]))
    hidden = add("Relu", add("MatMul", pooled, drawn(PLACES * CHANNELS, 128)))
    classes = add("Softmax", add("MatMul", hidden, drawn(128, CLASSES)), axis=1)
    best = add("ReduceMax", classes, constant([1]), keepdims=0)
    sure = add("NonZero", add("Greater", best, constant(0.5, np.float32)))
    sure = add("Squeeze", sure, constant([0]))
    kept = add("Concat", add("Gather", chosen, sure), add("Gather", classes, sure), axis=1)
    for name, value in (("selected", selected), ("kept", kept)):
        nodes.append(helper.make_node("Identity", [value], [name]))
    graph = helper.make_graph(
        nodes,
        "boxes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [
            helper.make_tensor_value_info("selected", TensorProto.INT64, ["n", 3]),
            helper.make_tensor_value_info("kept", TensorProto.FLOAT, ["k", 4 + CLASSES]),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def images(count: int, side: int, seed: int = 0) -> list[Image]:
    """Images of different contrast, a part of each of them plain: each gives another number of boxes."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        image = rng.standard_normal((1, 3, side, side)).astype(np.float32)
        image[..., int(side * (0.1 + 0.9 * number / count)) :] = 0
        made.append(image * np.float32(0.5 + rng.random()))
    return made


class Found(NamedTuple):
    """What was measured: seconds by runtime, and what the runs of jitonnx were."""

    seconds: dict[str, float]
    numbers: int
    steps: list[str]
    numpy_runs: int
    engines: int
    alike: int
    images: int


def measure(count: int, side: int, threads: int, clock: Callable[[], float] = time.perf_counter) -> Found:
    """Both runtimes on the same images, in turns."""
    import onnxruntime

    import jitonnx
    from jitonnx.engine.schedule import HostStep

    data = detector().SerializeToString()
    runs: dict[str, Run] = {}
    sessions: dict[str, Any] = {}
    for name, runtime in (("jitonnx", jitonnx), ("onnxruntime", onnxruntime)):
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        sessions[name] = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        runs[name] = functools.partial(_run, sessions[name])
    first, *others = images(count + 1, side)
    for run in runs.values():
        run(first)
    seconds = dict.fromkeys(runs, 0.0)
    numbers: set[tuple[int, ...]] = set()
    alike = 0
    ours = sessions["jitonnx"].engine
    before = len(ours.variants)
    for number, image in enumerate(others):
        results = {}
        for name in runs if number % 2 else reversed(runs):
            time.sleep(PAUSE_SECONDS)
            began = clock()
            results[name] = runs[name](image)
            seconds[name] += clock() - began
        numbers.add(tuple(len(result) for result in results["jitonnx"]))
        alike += _same(results["jitonnx"], results["onnxruntime"])
    steps = [
        f"{step.host.node.operator.name} on NumPy" if isinstance(step, HostStep) else "native"
        for step in ours.schedule.steps
    ]
    numpy_runs = sessions["jitonnx"].compile_status.numpy_runs
    return Found(seconds, len(numbers), steps, numpy_runs, len(ours.variants) - before, alike, count)


def _run(session: Any, image: Image) -> list[np.ndarray]:
    results: list[np.ndarray] = session.run(None, {"x": image})
    return results


def _same(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    return all(a.shape == b.shape and np.allclose(a, b, 1e-3, 1e-4) for a, b in zip(ours, theirs, strict=True))


def table(found: Found) -> str:
    """The measurements as text."""
    lines = [f"{'':14}{'seconds':>10}{'ms an image':>13}{'of ort':>8}"]
    reference = found.seconds["onnxruntime"]
    for name, seconds in found.seconds.items():
        lines.append(f"{name:14}{seconds:10.3f}{1e3 * seconds / found.images:13.3f}{seconds / reference:8.2f}")
    lines.append(
        f"{found.images} images, {found.numbers} different numbers of boxes; steps: {', '.join(found.steps)}; "
        f"{found.engines} engines made and {found.numpy_runs} runs on NumPy after the first image; "
        f"outputs alike: {found.alike}"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.boxes", description="Another number of boxes in each image.")
    parser.add_argument("--images", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--side", type=int, default=160, help="pixels of an image's side (default: 160)")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    add_clock(parser)
    options = parser.parse_args(arguments)
    print(table(measure(options.images, options.side, options.threads, CLOCKS[options.clock])))


if __name__ == "__main__":
    main()
