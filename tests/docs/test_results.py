"""Pages of results are what their records say; records say where they come from; benchmarks write them."""

import datetime
import json
import re
from pathlib import Path

import pytest

from bench import results
from bench.results import FOLDER, PAGES, Record, keep, page, read

RECORDS = sorted(FOLDER.glob("*/*.json"))
TABLE = Record("Ours", "Seconds of a run.", "a CPU", "1", None, {}, None, ["model", "s"], [["a", "1.0"], ["b", ""]])


@pytest.mark.parametrize("name", PAGES)
def test_pages_agree_with_records(name: str) -> None:
    """Where this fails, run `python -m bench.results`."""
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == page(name)


def test_nothing_is_on_no_page() -> None:
    assert {path.parent.name for path in RECORDS} == {path.stem for path in FOLDER.glob("*.md")} == set(PAGES)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_records_are_whole(path: Path) -> None:
    record = read(path)
    assert path.read_text(encoding="utf-8") == record.text()
    assert record.title and record.about and record.rows
    assert {len(row) for row in record.rows} == {len(record.columns)}
    assert record.date is None or datetime.date.fromisoformat(record.date)
    assert not re.search(r"/(home|work|tmp|root)/", record.text())


def test_what_was_not_noted_is_said() -> None:
    assert "*CPU: a CPU; threads: 1; date: not noted; versions: not noted; command: not noted.*" in TABLE.section()
    assert TABLE.section().endswith("| model | s |\n|---|---|\n| a | 1.0 |\n| b | |")


def test_commands_keep_their_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine, date, versions and command are written; what is written by hand stays when it is measured again."""
    monkeypatch.setattr(
        "sys.orig_argv", ["/usr/bin/python3", "-m", "bench.loops", str(tmp_path), "--record", "models/new"]
    )
    for seconds in ("2", "1"):
        keep("models/new", [1, 2], ["model", "s"], [["a", seconds]], "Best 1.", folder=tmp_path)
        path = tmp_path / "models" / "new.json"
        record = read(path)
        assert record.command == "python -m bench.loops DIR" and record.threads == "1, 2"
        assert record.rows == [["a", seconds]] and "numpy" in record.versions and record.cpu.endswith("cores")
        assert record.date == datetime.date.today().isoformat()
        if seconds == "2":
            path.write_text(json.dumps(json.loads(path.read_text()) | {"title": "By hand", "about": "Seconds."}))
    assert (record.title, record.about) == ("By hand", "Seconds.")
    assert "## By hand" in (tmp_path / "models.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="'elsewhere/new' is not PAGE/NAME with PAGE one of models"):
        keep("elsewhere/new", [1], [], [], folder=tmp_path)


def test_columns_of_commands(tmp_path: Path) -> None:
    from bench.models import Runtime, record_table

    rows = [
        {
            "model": "a",
            "threads": threads,
            "jitonnx": 2.0,
            "onnxruntime": 3.0,
            "openvino": float("nan"),
            "difference": 1e-6,
        }
        for threads in (1, 2)
    ]
    chosen = [Runtime(name, lambda *_: list) for name in ("jitonnx", "onnxruntime", "openvino")]
    columns, table = record_table(rows, chosen)
    assert columns[1:4] == ["jitonnx, 1 thread, ms", "onnxruntime /", "openvino /"]
    assert table == [["a", "2", "1.50", "-", "2", "1.50", "-", "1.0e-06"]]
    assert (
        results.command_line(["python", "-m", "bench.models", "--record=a/b", "x y"]) == "python -m bench.models 'x y'"
    )
