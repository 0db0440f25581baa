"""Makes the settings of an engine of a session's options."""

from __future__ import annotations

import os
from importlib.util import find_spec

from jitonnx.api.entries import (
    CODEGEN,
    COMPILE,
    CPU_NAME,
    DENORMAL_AS_ZERO,
    FIXED24,
    GEMM,
    PRECISION,
    PRECISIONS,
    WINOGRAD,
    program_bytes,
    switch,
)
from jitonnx.api.options import SessionOptions
from jitonnx.codegen.code import CODEGENS, LLVM, NUMBA
from jitonnx.engine.pipeline import CompileMode, Settings
from jitonnx.errors import InvalidArgument
from jitonnx.plan.choices import Choices
from jitonnx.target.machine import Target, named


def engine_settings(options: SessionOptions, disabled: frozenset[str], threads: int) -> Settings:
    """What the options say of compiling. disabled: rewrites not to be made. InvalidArgument for what cannot be had."""
    return Settings(
        threads,
        int(options.graph_optimization_level),
        disabled,
        _choices(options),
        _target(options),
        program_bytes=program_bytes(options),
        compile=_compile_mode(options),
        denormals_as_zero=switch(options, DENORMAL_AS_ZERO, default=False),
        codegen=_codegen(options),
    )


def _codegen(options: SessionOptions) -> str:
    """What makes the code of regions. InvalidArgument for what is not known, and where Numba is not installed."""
    text = options.entry(CODEGEN) or LLVM
    if text not in CODEGENS:
        known = " or ".join(map(repr, CODEGENS))
        raise InvalidArgument(f"the session configuration entry {CODEGEN} is {text!r}; give {known}")
    if text == NUMBA and find_spec("numba") is None:
        raise InvalidArgument(
            f"the session configuration entry {CODEGEN} is 'numba', which is missing: pip install numba"
        )
    if text == NUMBA and os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        raise InvalidArgument(
            f"the session configuration entry {CODEGEN} is 'numba', which NUMBA_DISABLE_JIT forbids: unset that "
            "variable, or run what `jitonnx explain MODEL --numba` prints, which is plain Python"
        )
    return text


def _target(options: SessionOptions) -> Target | None:
    """The CPU to compile for; None: this one. InvalidArgument for one that is not known."""
    name = options.entry(CPU_NAME)
    if name in (None, "", "host"):
        return None
    try:
        return named(name)
    except ValueError as error:
        raise InvalidArgument(f"the session configuration entry {CPU_NAME}: {error}") from error


def _compile_mode(options: SessionOptions) -> CompileMode:
    """When code is compiled. InvalidArgument for a mode that there is not."""
    text = options.entry(COMPILE) or ""
    try:
        return CompileMode(text)
    except ValueError:
        known = ", ".join(repr(mode.value) for mode in CompileMode if mode.value)
        raise InvalidArgument(f"the session configuration entry {COMPILE} is {text!r}; give one of {known}") from None


def _choices(options: SessionOptions) -> Choices:
    """Algorithms that the configuration entries forbid or ask for. InvalidArgument for what cannot be had."""
    from jitonnx.kernels.gemm.blas import BlasSpec

    gemm = options.entry(GEMM) or "own"
    if gemm not in ("own", "blas"):
        raise InvalidArgument(f"the session configuration entry {GEMM} is {gemm!r}; give 'own' or 'blas'")
    if gemm == "blas" and not BlasSpec().available:
        raise InvalidArgument(f"the session configuration entry {GEMM} is 'blas', which needs SciPy: pip install scipy")
    wanted = options.entry(PRECISION) or "float32"
    precision = next((each for each in PRECISIONS if each == wanted), None)
    if precision is None:
        known = ", ".join(map(repr, PRECISIONS))
        raise InvalidArgument(f"the session configuration entry {PRECISION} is {wanted!r}; give {known} or 'auto'")
    return Choices(
        winograd=switch(options, WINOGRAD, default=True),
        fixed24=switch(options, FIXED24, default=True),
        precision=precision,
        blas=gemm == "blas",
    )
