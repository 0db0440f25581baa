"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ops.base import Unary


class _Trigonometric(Unary):
    """A function of one float input."""


class Acos(_Trigonometric):
    """The angle in [0, pi] whose cosine is x."""

    function = staticmethod(np.arccos)
    expression = staticmethod(e.acos)


class Acosh(_Trigonometric):
    """The inverse of the hyperbolic cosine."""

    function = staticmethod(np.arccosh)
    expression = staticmethod(e.acosh)


class Asin(_Trigonometric):
    """The angle in [-pi / 2, pi / 2] whose sine is x."""

    function = staticmethod(np.arcsin)
    expression = staticmethod(e.asin)


class Asinh(_Trigonometric):
    """The inverse of the hyperbolic sine."""

    function = staticmethod(np.arcsinh)
    expression = staticmethod(e.asinh)


class Atan(_Trigonometric):
    """The angle in (-pi / 2, pi / 2) whose tangent is x."""

    function = staticmethod(np.arctan)
    expression = staticmethod(e.atan)


class Atanh(_Trigonometric):
    """The inverse of the hyperbolic tangent."""

    function = staticmethod(np.arctanh)
    expression = staticmethod(e.atanh)


class Cos(_Trigonometric):
    """The cosine."""

    function = staticmethod(np.cos)
    expression = staticmethod(e.cos)


class Cosh(_Trigonometric):
    """The hyperbolic cosine."""

    function = staticmethod(np.cosh)
    expression = staticmethod(e.cosh)


class Sin(_Trigonometric):
    """The sine."""

    function = staticmethod(np.sin)
    expression = staticmethod(e.sin)


class Sinh(_Trigonometric):
    """The hyperbolic sine."""

    function = staticmethod(np.sinh)
    expression = staticmethod(e.sinh)


class Tan(_Trigonometric):
    """The tangent."""

    function = staticmethod(np.tan)
    expression = staticmethod(e.tan)
