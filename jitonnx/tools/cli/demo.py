"""`jitonnx demo`: a small network that reads handwritten digits, from its file to its answers."""

from __future__ import annotations

import argparse
import time
from typing import Any

SHOWN = 6
"""Images printed."""
_SHADES = " .:-=+*#%@"


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("demo", help="load, compile and run a small network that reads handwritten digits")
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Load, compile, run, and tell what happened."""
    import numpy as np

    from jitonnx.api.explanation_text import kernel_table, summary
    from jitonnx.api.session import InferenceSession
    from jitonnx.api.units import seconds
    from jitonnx.tools import demo
    from jitonnx.tools.cli.common import median_seconds
    from jitonnx.tools.explain import explain

    images, labels = demo.test_images()
    started = time.perf_counter()
    session = InferenceSession(demo.model_path())
    ready = time.perf_counter() - started
    (probabilities,) = session.run(None, {"image": images})
    predictions = np.argmax(probabilities, axis=1)
    correct = int(np.sum(predictions == labels))

    print(f"Loaded and compiled {session.title} in {seconds(ready)}.\n")
    print(_pictures(images[:SHOWN, 0]))
    for kind, digits in (("predicted", predictions), ("written", labels)):
        print("".join(f"{f'{kind} {digit}':<{_PICTURE_WIDTH}}" for digit in digits[:SHOWN]).rstrip())
    print(f"\naccuracy: {correct} of {len(labels)} test images right ({100 * correct / len(labels):.1f} %)")
    for batch in (1, len(images)):
        feeds = {"image": images[:batch]}
        taken = median_seconds(lambda feeds=feeds: session.run(None, feeds), 0.5)  # type: ignore[misc]
        print(f"time of a run of {batch} image{'s' * (batch > 1)}: {seconds(taken)}")

    explanation = explain(session, {"image": (1, *images.shape[1:])})
    print(f"\n{summary(explanation)}\n\n{kernel_table(explanation)}")


_PICTURE_WIDTH = 19


def _pictures(images: Any) -> str:
    """Images of values 0 to 1 beside each other, two characters a pixel."""
    rows = []
    for row in range(images.shape[1]):
        pictures = ("".join(2 * _shade(value) for value in image[row]) for image in images)
        rows.append("".join(f"{picture:<{_PICTURE_WIDTH}}" for picture in pictures).rstrip())
    return "\n".join(rows)


def _shade(value: float) -> str:
    return _SHADES[round(float(value) * (len(_SHADES) - 1))]
