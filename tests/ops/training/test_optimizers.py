"""One step of each optimiser against onnx's reference: of one tensor and of two, the first and later ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused

RANDOM = np.random.default_rng(0)
DOMAIN = "ai.onnx.preview.training"


def step(
    operator: str, count: int, states: int, *shapes: tuple[int, ...], dtype: Any = np.float32, **options: Any
) -> Case:
    """A step of tensors of these shapes behind `count` others."""
    tensors = [np.abs(RANDOM.normal(size=shape)).astype(dtype) for _ in range(2 + states) for shape in shapes]
    outputs = (1 + states) * len(shapes)
    rate = np.asarray(0.1, dtype)
    return case(operator, 1, rate, np.int64(count), *tensors, domain=DOMAIN, outputs=outputs, **options)


def adam(count: int, *shapes: tuple[int, ...], **options: Any) -> Case:
    """A step of Adam with what ONNX's text says of it (the reference loses the element type)."""
    made = step("Adam", count, 2, *shapes, **options)
    given = {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-6, "norm_coefficient": 0, "norm_coefficient_post": 0}
    alpha, beta, epsilon, norm, post = {**given, **made.attributes}.values()
    rate, _, *tensors = (x.astype(np.float64) for x in made.inputs)
    rows: list[list[np.ndarray]] = [[], [], []]
    for x, g, v, h in (tensors[at :: len(shapes)] for at in range(len(shapes))):
        regularized = norm * x + g
        v, h = alpha * v + (1 - alpha) * regularized, beta * h + (1 - beta) * regularized * regularized
        adjusted = rate * np.sqrt(1 - beta**count) / (1 - alpha**count) if count > 0 else rate
        for row, part in zip(rows, ((1 - post) * (x - adjusted * v / (np.sqrt(h) + epsilon)), v, h), strict=True):
            row.append(part.astype(made.inputs[0].dtype))
    return replace(made, expected=tuple(part for row in rows for part in row))


MOMENTUM = {"alpha": 0.95, "beta": 0.85, "norm_coefficient": 0.01}
CASES: list[Case] = [
    *(step("Adagrad", count, 1, (3, 5), norm_coefficient=0.1, decay_factor=0.2, epsilon=1e-5) for count in (0, 3)),
    step("Adagrad", 1, 1, (3,), (2, 2), dtype=np.float64),
    *(adam(count, (3, 5), norm_coefficient=0.1, alpha=0.95, beta=0.1, epsilon=1e-7) for count in (0, 3)),
    adam(2, (3,), (2, 2), dtype=np.float64, norm_coefficient_post=0.25, rtol=1e-7),
    *(
        step("Momentum", count, 1, (3, 5), mode=mode, **MOMENTUM)
        for count in (0, 3)
        for mode in ("standard", "nesterov")
    ),
    step("Momentum", 1, 1, (), (2, 0), dtype=np.float64, mode="nesterov", **MOMENTUM),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_optimizers(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (step("Momentum", 1, 1, (2,), mode="other", **MOMENTUM), "standard or nesterov"),
        (case("Adagrad", 1, np.float32(1), np.int64(1), *[np.zeros(2, np.float32)] * 4, domain=DOMAIN), "takes 3"),
        (
            case(
                "Adagrad", 1, np.array([1, 2], np.float32), np.int64(1), *[np.zeros(2, np.float32)] * 3, domain=DOMAIN
            ),
            "scalar",
        ),
        (
            case(
                "Adam", 1, np.float32(1), np.int64(1), *(np.zeros(n, np.float32) for n in (2, 3, 2, 2)), domain=DOMAIN
            ),
            r"float\[2\] expected",
        ),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)
