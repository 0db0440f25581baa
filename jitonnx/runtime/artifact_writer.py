"""Writing artifacts: see `artifact` for what a file looks like."""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jitonnx.proto import artifact_pb2 as pb

from .artifact import _PROLOGUE, FORMAT, HEADER_OFFSET, MAGIC, PAGE_BYTES, Argument, ModelInfo, SavedProgram
from .cpu import CpuNeeded
from .driver import SYMBOLS, driver_digest
from .layout import ALIGNMENT
from .linker import UnlinkableError, link
from .program import SPACES, Flag, Program, Step, TensorSpec

_CODES = {space: code for code, space in enumerate(SPACES)}
