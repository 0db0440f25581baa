"""Files that appear as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file in the folder of `path`, which gets that name at the end of the block, or is removed after an
    exception. What had the name lives on for who has it open or mapped.

    OSError where it cannot be written.
    """
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # as of a file that is opened for writing
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
