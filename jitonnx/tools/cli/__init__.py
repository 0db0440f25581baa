"""The command line: `jitonnx COMMAND ...`."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

from jitonnx.tools.cli import (
    bench,
    cache,
    chat,
    check,
    compile,
    debug,
    demo,
    diff,
    exec,
    explain,
    export,
    info,
    map,
    optimize,
    profile,
    run,
    serve,
    transcribe,
)

COMMANDS = (
    *(demo, run, chat, transcribe, serve, map, info, check, diff, compile, optimize, export),
    *(explain, debug, bench, profile, exec, cache),
)
"""Modules with `add(subparsers)`, which sets the function to call as `command`; it may give an exit status."""


INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = argparse.ArgumentParser(prog="jitonnx", description="Run ONNX models on CPUs, compiled to native code.")
    made.add_argument("--version", action="store_true", help="print the version and end")
    made.add_argument("--traceback", action="store_true", help="show where in the code an error was raised")
    made.add_argument(
        "--opset",
        action="append",
        default=[],
        metavar="FILE",
        help="an operator-set document whose operators models may use; may be given several times",
    )
    subparsers = made.add_subparsers(title="commands", metavar="COMMAND")
    for module in COMMANDS:
        module.add(subparsers)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 after a message about what went wrong, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)
    if options.version:
        from jitonnx.api.environment import get_version_string

        print(f"jitonnx {get_version_string()}")
        return 0
    if not hasattr(options, "command"):
        parser().print_help()
        return 1
    return _reported(options)


def _reported(options: argparse.Namespace) -> int:
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _tell
            _register(options.opset)
            status = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return 1
    except KeyboardInterrupt:
        print("\njitonnx: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if options.traceback:
            raise
        print(f"jitonnx: {_message(error)}", file=sys.stderr)
        return 1
    return status or 0


def _register(documents: Sequence[str]) -> None:
    """Register operator-set documents for the models of the command."""
    if documents:
        from jitonnx.opsets import register_opset

        for path in documents:
            register_opset(path)


def _tell(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning in the form of our messages."""
    print(f"jitonnx: {message}", file=sys.stderr)


def _message(error: Exception) -> str:
    """What a user is told of an error."""
    from jitonnx.errors import Error

    if isinstance(error, Error):
        return error.text
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename2 or error.filename or repr('')}: "
        return f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {error}"
    return f"Bug: {type(error).__name__}: {error}. Please report it, with what `jitonnx --traceback COMMAND ...` says"
