"""Files that appear as a whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file in the folder of `path`, which gets that name at the end of the block, or is removed after an
    exception. What had the name lives on for who has it open or mapped.

    OSError where it cannot be written, which names the path where there is no room for it.
    """
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # as of a file that is opened for writing
        os.replace(name, path)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
            error.filename = os.fspath(path)  # writing to a file that is open tells no name
        raise
