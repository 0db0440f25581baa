"""`jitonnx exec COMMAND ...`: run a program in which `import onnxruntime` is jitonnx, in its child processes too."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

DESCRIPTION = """\
Run a program in which `import onnxruntime` gives jitonnx, without a change to the program:

  jitonnx exec app.py --port 8000      a script
  jitonnx exec -m package --verbose    a module
  jitonnx exec gunicorn app:server     any command that runs Python

It sets PYTHONPATH, so it holds for all Python processes that the program starts, too. Where the command itself cannot
be changed, set the variable: `jitonnx exec` alone prints it."""


def add(subparsers: Any) -> None:
    # A prefix that no argument has: all that follows is the program's, "-m" and "--help" behind its name included.
    parser = subparsers.add_parser(
        "exec",
        help="run a program in which `import onnxruntime` gives jitonnx",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prefix_chars="\0",
        add_help=False,
        usage="jitonnx exec [COMMAND ...]",
    )
    parser.add_argument(
        "words", metavar="COMMAND", nargs=argparse.REMAINDER, help="SCRIPT.py, -m MODULE, -c CODE, or a command"
    )
    parser.set_defaults(command=main, show_help=parser.print_help)


def main(options: argparse.Namespace) -> None:
    """Take the place of this process. OSError for a command that cannot be run."""
    words, variable = options.words, _path()
    if words[:1] in (["-h"], ["--help"]):
        options.show_help()
    elif not words:
        print(f"PYTHONPATH={variable}")
    else:
        sys.stdout.flush()
        command = _command(words)
        try:
            os.execvpe(command[0], command, {**os.environ, "PYTHONPATH": variable})
        except OSError as error:
            raise OSError(f"{command[0]} cannot be run: {error.strerror}") from error


def _command(words: Sequence[str]) -> list[str]:
    """What to run: scripts, modules and code with this Python."""
    is_python = words[0] in ("-m", "-c") or words[0].endswith(".py")
    return [sys.executable, *words] if is_python else list(words)


def _path() -> str:
    """PYTHONPATH with the folder in front that holds our `onnxruntime`."""
    from jitonnx.compat.alias import FOLDER

    others = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and place != FOLDER]
    return os.pathsep.join([FOLDER, *others])
