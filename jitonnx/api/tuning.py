"""The session configuration entry `jitonnx.tune`: kernels chosen by measuring when the model is loaded.

The kernel cache keeps what was measured, and the compiled model as any other: the next session for the same model
starts at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.api.entries import COMPILE, CPU_NAME, TUNE, calibration_paths
from jitonnx.api.inputs import choose_shapes, random_feeds, stored_feeds
from jitonnx.engine.pipeline import CompileMode, Settings
from jitonnx.engine.tuning import Tuned, tune
from jitonnx.errors import InvalidArgument

if TYPE_CHECKING:
    from jitonnx.api.options import SessionOptions
    from jitonnx.model import Model
    from jitonnx.support.kernel_cache import KernelCache

_MOST_SECONDS = 86_400.0


def tuned(model: Model, options: SessionOptions, settings: Settings, cache: KernelCache) -> tuple[Settings, Tuned]:
    """The settings with the choices between kernels that measuring has settled, and what was measured.

    model: as it was loaded; its graph stays as it is. InvalidArgument for entries that tuning cannot go with, and where
    shapes to run the model with are not known.
    """
    seconds = _seconds(options)
    if settings.target is not None:
        raise InvalidArgument(
            f"{TUNE} runs the model; code for another CPU ({options.entry(CPU_NAME)}) cannot be run here: tune there"
        )
    if settings.compile in (CompileMode.BACKGROUND, CompileMode.CACHED):
        raise InvalidArgument(
            f"{TUNE} compiles the model before its first run: {COMPILE} cannot be {options.entry(COMPILE)!r} besides"
        )
    paths = calibration_paths(options)

    def feeds(usual: Mapping[str, Sequence[int | None]]) -> list[np.ndarray]:
        given = stored_feeds(paths[0]) if paths else {}
        shapes = {name: array.shape for name, array in given.items()}
        chosen = choose_shapes(model.inputs, shapes, usual=usual).shapes
        made = random_feeds([entry for entry in model.inputs if entry.name not in given], chosen) | given
        return [np.asarray(made[entry.name], entry.dtype.numpy) for entry in model.inputs if entry.dtype is not None]

    found = tune(model.graph, settings, cache, feeds, seconds)
    return replace(settings, choices=replace(settings.choices, measured=found.measured)), found


def _seconds(options: SessionOptions) -> float:
    """How long measuring may take."""
    text = options.entry(TUNE) or ""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise InvalidArgument(
            f"the session configuration entry {TUNE} is {text!r}; give the seconds that measuring may take, such as 20"
        )
    return seconds
