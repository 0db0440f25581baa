"""Compiled models in what Numba compiles (`bind`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitonnx.api.session import InferenceSession
    from jitonnx.numba.binding import BoundModel


def bind(session: InferenceSession, shapes: Mapping[str, Sequence[Any] | Any] | None = None) -> BoundModel:
    """A session's model for inputs of certain shapes, to be called in functions that Numba compiles.

    step = jitonnx.numba.bind(session, {"x": (1, 16)})

    @numba.njit
    def simulate(step, x, count):
        for _ in range(count):
            x = step(x)
        return x

    shapes: those of the inputs by name, or arrays that have them (feeds). A size may be a range, as (least, largest),
    both included; what the model says may be left out, all of it where its inputs have fixed shapes.

    Raises: jitonnx.errors.InvalidArgument for shapes that do not fit the model, leave something open or stand for more
    than `binding.MOST_PROGRAMS` sets of sizes; Fail for a model that is more than one native program, or has inputs or
    outputs of types that Numba does not know; RuntimeError for a closed session; TypeError for what is no session.
    """
    from jitonnx.numba.binding import bound

    return bound(session, shapes)
