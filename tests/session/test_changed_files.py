"""Model files and artifacts that somebody writes to while a session uses them: right answers or an error, no crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jitonnx
from jitonnx.support import mapped_files
from tests.session.models import INT64, model, node, tensor

SCRIPT = """
import sys
import numpy as np
import jitonnx

path, overwrite, first = sys.argv[1:]
session, feeds = jitonnx.InferenceSession(path), {"i": np.array([0, 1999, 7])}
if first == "run":
    session.run(None, feeds)
if overwrite == "cut":
    open(path, "r+b").truncate(100)
else:
    content = open(path, "rb").read()
    open(path, "wb").write(b"x" * len(content))
try:
    (y,) = session.run(None, feeds)
except jitonnx.Error as error:
    assert path in str(error) and "written to" in str(error), error
    print("refused")
else:
    table = np.arange(2000 * int(y.shape[1]), dtype=np.float32).reshape(2000, -1)
    assert np.array_equal(y, table[feeds["i"]]), "wrong values"
    print("right")
"""
KEPT, MAPPED = 64, 4096
"""Columns of tables that are copied, and that stay where they are: 0.5 and 31 MB."""


def table(columns: int) -> bytes:
    rows = np.arange(2000 * columns, dtype=np.float32).reshape(2000, columns)
    return model([node("Gather", ["t", "i"], ["y"])], [tensor("i", ("n",), INT64)], [tensor("y", None)], {"t": rows})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", ["run", "not"])
@pytest.mark.parametrize("overwrite", ["cut", "other"])
@pytest.mark.parametrize(("columns", "outcome"), [(KEPT, "right"), (500, "right"), (MAPPED, "refused")])
def test_a_model_file_is_overwritten(columns: int, outcome: str, overwrite: str, first: str, tmp_path: Path) -> None:
    path = tmp_path / "table.onnx"
    path.write_bytes(table(columns))
    os.utime(path, (1e9, 1e9))
    command = [sys.executable, "-c", SCRIPT, str(path), overwrite, first]
    environment = {**os.environ, "JITONNX_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, outcome), done.stderr[-2000:]


def test_a_file_that_another_replaces_is_used_on(tmp_path: Path) -> None:
    path = tmp_path / "table.onnx"
    path.write_bytes(table(MAPPED))
    session = jitonnx.InferenceSession(path)
    (tmp_path / "new.onnx").write_bytes(b"other")
    os.replace(tmp_path / "new.onnx", path)
    (y,) = session.run(None, {"i": np.array([3])})
    assert y[0, 0] == 3 * MAPPED


def test_small_files_are_in_memory_and_changed_ones_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * mapped_files.READ_BYTES)
    with open(path, "rb") as file:
        view = mapped_files.content_of(file.fileno(), "file")
    assert mapped_files.file_of(view) is None and view.readonly and view == b"a" * mapped_files.READ_BYTES
    path.write_bytes(b"a" * (mapped_files.READ_BYTES + 8))
    with open(path, "rb") as file:
        array = np.frombuffer(mapped_files.content_of(file.fileno(), "file"), np.uint8)
    owner = mapped_files.file_of(array[8:])
    assert owner is not None
    assert (
        np.array_equal(mapped_files.copied(array[8:16]), array[8:16])
        and mapped_files.file_of(mapped_files.copied(array)) is None
    )
    os.truncate(path, 100)
    with pytest.raises(mapped_files.FileChangedError, match="file was written to"):
        mapped_files.copied(array)


@pytest.mark.parametrize("side", [64, 1024])
def test_weights_are_there_for_plans_made_later(side: int, tmp_path: Path) -> None:
    """A plan lets go of the pages of what it has packed, which are read again if a plan for other sizes needs them: of
    a file that is mapped, but not of one that was read."""
    weights = np.random.default_rng(0).standard_normal((side, side), np.float32)
    values = {"a": weights, "b": weights.T.copy(), "c": np.ones((side, side), np.float32)}
    nodes = [
        node("MatMul", ["x", "a"], ["m"]),
        node("Add", ["m", "m2"], ["s"]),  # two batches that are taken to be equal
        node("MatMul", ["s", "b"], ["n"]),
        node("MatMul", ["n", "c"], ["y"]),
    ]
    path = tmp_path / "weights.onnx"
    path.write_bytes(model(nodes, [tensor("x", ("n", side)), tensor("m2", ("k", side))], [tensor("y", None)], values))
    session = jitonnx.InferenceSession(path)
    for rows, others in ((2, 2), (3, 1), (1, 4), (2, 2)):
        x, m2 = (np.random.default_rng(n).standard_normal((n, side), np.float32) for n in (rows, others))
        expected = (x @ weights + m2) @ weights.T @ values["c"]
        np.testing.assert_allclose(session.run(None, {"x": x, "m2": m2})[0], expected, 1e-2, 1e-2 * side)
