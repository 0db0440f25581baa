"""SHA-256 without `hashlib`, whose import loads OpenSSL, 3 ms of a start: as the standard library's `random` does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash, sha256
else:
    try:
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256  # before Python 3.12
        except ImportError:
            from hashlib import sha256

__all__ = ["SHA256_BYTES", "begun_sha256", "sha256", "sha256_of_tensor"]

SHA256_BYTES = 32
_FEW_BYTES = 1 << 16
"""What Python's own code takes 0.2 ms for."""


def begun_sha256(size: int) -> _Hash:
    """A digest of so many bytes to begin with: OpenSSL's where they are many, or it is loaded."""
    if size <= _FEW_BYTES and "hashlib" not in sys.modules:
        return sha256()
    from hashlib import sha256 as fast

    return fast()


def sha256_of_tensor(data: memoryview) -> bytes:
    """The digest of what may be long. OpenSSL uses the CPU's instructions for it: 1.4 GB/s, Python's own code 0.3."""
    from hashlib import sha256 as fast

    return fast(data).digest()
