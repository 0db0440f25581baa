"""Tables from files to files: whole parts, none of them made twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from jitonnx.batch.files import MANIFEST, Progress, map_files
from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.tools.cli import main
from tests.batch.test_predict import X, check, lists, model


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(model())
    pyarrow.parquet.write_table(lists(), tmp_path / "rows.parquet", row_group_size=60)
    return tmp_path


def whole(folder: Path) -> pa.Table:
    return pa.concat_tables(pyarrow.parquet.read_table(part) for part in sorted(folder.glob("*.parquet")))


@pytest.mark.parametrize("part_rows", [1000, 503, 100, 7])
def test_parts(files: Path, part_rows: int) -> None:
    arguments = files / "m.onnx", files / "rows.parquet", files / "out"
    assert map_files(*arguments, part_rows=part_rows) == Progress(503, 0, 503)
    check(whole(files / "out"))
    assert map_files(*arguments, part_rows=part_rows) == Progress(0, 503, 503)
    check(whole(files / "out"))


def test_what_was_begun_is_gone_on_with(files: Path) -> None:
    arguments = files / "m.onnx", files / "rows.parquet", files / "out"

    def stop(progress: Progress) -> None:
        if progress.done >= 250:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        map_files(*arguments, part_rows=100, tell=stop)
    assert len(list((files / "out").iterdir())) == 3  # two whole parts and the manifest
    assert map_files(*arguments, part_rows=100) == Progress(303, 200, 503)
    check(whole(files / "out"))
    with pytest.raises(InvalidArgument, match="made with another part_rows"):
        map_files(*arguments, part_rows=50)
    (files / "m.onnx").write_bytes(model("7"))
    with pytest.raises(InvalidArgument, match="made with another model"):
        map_files(*arguments, part_rows=100)


def test_a_row_is_named_by_its_place_in_the_file(files: Path) -> None:
    rows = [None if place == 250 else list(map(float, row)) for place, row in enumerate(X)]
    pyarrow.parquet.write_table(pa.table({"x": rows}), files / "rows.parquet")
    arguments = files / "m.onnx", files / "rows.parquet", files / "out"
    for _ in range(2):  # at the beginning, and behind the parts that are there
        with pytest.raises(InvalidArgument, match=r"row 250 of rows\.parquet"):
            map_files(*arguments, part_rows=100, batch_rows=10)


def test_the_command(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = files / "tables"
    folder.mkdir()
    for number in range(3):
        np.savetxt(folder / f"t{number}.csv", X[number * 10 :][:10], delimiter=",", header="a,b,c", comments="")
    command = ["map", str(files / "m.onnx"), str(folder), "-o", str(files / "out"), "--outputs", "s=sum"]
    assert main([*command, "--column", "x=a,b,c", "--workers", "2"]) == 0
    assert "30 rows in" in capsys.readouterr().out
    made = whole(files / "out")
    assert made.column_names == ["a", "b", "c", "sum"]
    np.testing.assert_allclose(made["sum"].to_numpy(), X[:30].sum(1), rtol=1e-5, atol=1e-6)
    assert json.loads((files / "out" / MANIFEST).read_text())["columns"] == {"x": ["a", "b", "c"]}
    assert main([*command[:2], str(folder / "nothing"), *command[3:]]) == 1
    assert "is not there" in capsys.readouterr().err


def test_columns_that_are_kept(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["map", str(files / "m.onnx"), str(files / "rows.parquet"), "-o", str(files / "out"), "--keep-columns"]
    assert main([*command, "id"]) == 0
    assert whole(files / "out").column_names == ["id", "y", "s"]
    assert main([*command, ""]) == 1
    assert "made with another keep_columns" in capsys.readouterr().err
    assert main([*command[:4], str(files / "other"), "--keep-columns", ""]) == 0
    assert whole(files / "other").column_names == ["y", "s"] and whole(files / "other").num_rows == 503


def test_folders_that_are_not_ours(files: Path) -> None:
    (files / "empty").mkdir()
    with pytest.raises(InvalidArgument, match="holds no tables"):
        map_files(files / "m.onnx", files / "empty", files / "out")
    with pytest.raises(NoSuchFile):
        map_files(files / "m.onnx", files / "nowhere", files / "out")
    with pytest.raises(InvalidArgument, match="choose an empty folder"):
        map_files(files / "m.onnx", files / "rows.parquet", files)


def test_sessions_import_none_of_it() -> None:
    source = "import sys, jitonnx.api.session; assert not {'pyarrow', 'pandas', 'jitonnx.batch'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0


KILLED = """
import os, signal, sys
from pathlib import Path
from jitonnx.batch.files import map_files
folder = Path(sys.argv[1])
map_files(folder / "m.onnx", folder / "rows.parquet", folder / "out", part_rows=100, batch_rows=10,
          tell=lambda progress: progress.done >= 250 and os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_process_leaves_whole_parts_and_the_rest_is_made_by_the_next(files: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(files)], check=False).returncode == -signal.SIGKILL
    assert sorted(path.name for path in (files / "out").glob("*.parquet")) == [
        "rows-00000.parquet",
        "rows-00001.parquet",
    ]
    progress = map_files(files / "m.onnx", files / "rows.parquet", files / "out", part_rows=100)
    assert (progress.found, progress.done) == (200, 303)
    check(whole(files / "out"))


FULL = """
import resource, sys
from pathlib import Path
from jitonnx.batch.files import map_files
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
folder = Path(sys.argv[1])
try:
    map_files(folder / "m.onnx", folder / "rows.parquet", folder / "out", part_rows=1000)
except OSError as error:
    print("could not write:", error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of files' sizes")
def test_a_full_disk_leaves_whole_parts_and_the_rest_is_made_when_there_is_room(files: Path) -> None:
    x = np.zeros((2500, 3), np.float32)
    x[1000:] = np.random.default_rng(1).standard_normal((1500, 3))  # the second part is larger than a file may be
    pyarrow.parquet.write_table(lists(x), files / "rows.parquet")
    map_files(files / "m.onnx", files / "rows.parquet", files / "cache", part_rows=1000)  # the kernels are in the cache
    told = subprocess.run([sys.executable, "-c", FULL, str(files)], capture_output=True, text=True, check=True).stdout
    assert "could not write" in told and "rows-00001.parquet" in told
    assert sorted(path.name for path in (files / "out").iterdir()) == [MANIFEST, "rows-00000.parquet"]
    check(pyarrow.parquet.read_table(files / "out/rows-00000.parquet"), x[:1000])
    progress = map_files(files / "m.onnx", files / "rows.parquet", files / "out", part_rows=1000)
    assert (progress.found, progress.done) == (1000, 1500)
    check(whole(files / "out"), x)
