"""Rows in batches: what comes out is what a run of each row gives, in order, whatever rows come in."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx.parser
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest

from jitonnx import InferenceSession
from jitonnx.batch import RowError, predict, prediction
from jitonnx.batch.packing import IN_FLIGHT
from jitonnx.batch.prediction import rows_that_pay
from jitonnx.errors import InvalidArgument

TEXT = """<ir_version: 8, opset_import: ["": 18]>
g (float[%s,3] x) => (float[%s,3] y, float[%s] s) <int64[1] axis = {1}>
{ y = Relu(x) s = ReduceSum<keepdims=0>(x, axis) }
"""
RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((503, 3)).astype(np.float32)


def model(rows: str = "N") -> bytes:
    """y [rows, 3] = the positive part of x [rows, 3]; s [rows] = its sums."""
    content: bytes = onnx.parser.parse_model(TEXT.replace("%s", rows)).SerializeToString()
    return content


def lists(x: np.ndarray = X) -> pa.Table:
    return pa.table({"id": np.arange(len(x)), "x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3)})


def check(made: pa.Table, x: np.ndarray = X) -> None:
    assert made["id"].to_pylist() == list(range(len(x)))
    np.testing.assert_array_equal(np.array(made["y"].to_pylist(), np.float32), np.maximum(x, 0))
    np.testing.assert_allclose(made["s"].to_numpy(), x.sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", ["N", "1", "7"])
@pytest.mark.parametrize("batch_rows", [None, 1, 7])
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_feeds_of_any_number_of_rows(rows: str, batch_rows: int | None, threads: int) -> None:
    if rows != "N" and batch_rows is not None:
        batch_rows = int(rows)
    counts = [3, 0, 1, 20, 7, 7, 0, 2]
    ends = np.cumsum(counts)
    feeds = [{"x": X[end - count : end]} for count, end in zip(counts, ends, strict=True)]
    made = list(predict(iter(feeds), model(rows), batch_rows=batch_rows, threads=threads))
    for fed, outputs in zip(feeds, made, strict=True):
        np.testing.assert_array_equal(outputs["y"], np.maximum(fed["x"], 0))
        assert outputs["s"].shape == (len(fed["x"]),)


def test_tables_come_back_as_what_they_are(tmp_path: Path) -> None:
    table = lists()
    check(predict(table, model()))
    check(predict(table.to_reader(max_chunksize=50), model(), threads=2).read_all())
    check(predict(pa.concat_tables([table.slice(0, 100), table.slice(100)]), InferenceSession(model("7"))))
    made = predict(pandas.DataFrame(X.astype(np.float64), columns=["a", "b", "c"]), model(), outputs={"s": "sum"})
    assert list(made.columns) == ["a", "b", "c", "sum"]
    np.testing.assert_allclose(made["sum"], X.sum(1), rtol=1e-5, atol=1e-6)
    made.to_csv(tmp_path / "t.csv", index=False)
    again = predict(tmp_path / "t.csv", model(), columns={"x": ["a", "b", "c"]}, outputs=["y"]).read_all()
    np.testing.assert_array_equal(np.array(again["y"].to_pylist(), np.float32), np.maximum(X, 0))
    assert predict(table.slice(0, 0), model()).num_rows == 0


def test_rows_that_do_not_fit() -> None:
    rows: list[Any] = [list(map(float, row)) for row in X[:20]]
    rows[5], rows[7], rows[9] = None, [1.0, 2.0], [1.0, None, 2.0]
    table = pa.table({"x": rows})
    with pytest.raises(RowError, match="row 5 of the table: column 'x' is null"):
        predict(table, model())
    made = predict(table, model(), on_error="keep").to_pydict()
    assert [place for place, text in enumerate(made["error"]) if text] == [5, 7, 9]
    assert all(made["s"][place] is None and made["y"][place] is None for place in (5, 7, 9))
    np.testing.assert_array_equal(made["y"][6], np.maximum(X[6], 0))
    assert "of shape [2]" in made["error"][7]
    nothing = predict(pa.table({"x": pa.array([None], pa.list_(pa.float32(), 3))}), model(), on_error="keep")
    assert nothing["error"].to_pylist()[0] and nothing["y"].null_count == 1
    whole = pa.FixedSizeListArray.from_arrays(pa.array(X[:20].ravel()), 3, mask=pa.array(np.arange(20) == 4))
    assert predict(pa.table({"x": whole}), model(), on_error="keep")["y"].is_null().to_pylist().index(True) == 4


def test_lists_of_any_kind_are_rows() -> None:
    """Sliced ones, too; where rows do not fit, the others do."""
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.int16(), 3)):
        x = np.round(X * 10).astype(np.float32)
        column = pa.array(x.astype(int).tolist() if kind.value_type == pa.int16() else x.tolist(), kind)
        check(predict(pa.table({"id": np.arange(490), "x": column.slice(5, 490)}), model()), x[5:495])
        empty = predict(pa.table({"x": column.slice(0, 0)}), model())
        assert empty.num_rows == 0
        rows = column.to_pylist()
        rows[4], rows[6] = None, [1, None, 2]
        if not pa.types.is_fixed_size_list(kind):
            rows[9], rows[11] = [], [1, 2, 3, 4]
        kept = predict(pa.table({"x": pa.array(rows, kind).slice(2)}), model(), on_error="keep")
        wrong = {place - 2 for place, row in enumerate(rows) if row is None or None in row or len(row) != 3}
        assert {place for place, text in enumerate(kept["error"].to_pylist()) if text} == wrong
        fitting = [place for place in range(len(X) - 2) if place not in wrong]
        np.testing.assert_allclose(kept["s"].take(fitting).to_numpy(), x[2:][fitting].sum(1), atol=1e-5)


def test_lists_within_lists_are_axes() -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[N,2,%s] x) => (float[N,2,%s] y) { y = Relu(x) }'
    x = X[:60].reshape(-1, 2, 3)
    kinds = [pa.list_(pa.list_(pa.float32())), pa.list_(pa.list_(pa.float32(), 3)), pa.list_(pa.list_(pa.float32()), 2)]
    for size, kind in itertools.product(("3", "M"), kinds):
        content = onnx.parser.parse_model(text.replace("%s", size)).SerializeToString()
        column = pa.array(x.tolist(), kind)
        made = predict(pa.table({"x": column.slice(3)}), content, batch_rows=8)
        np.testing.assert_array_equal(np.array(made["y"].to_pylist()), np.maximum(x[3:], 0))
    ragged = [*x[:3].tolist(), [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0]], [[1.0, 2.0, 3.0], None], *x[3:].tolist()]
    content = onnx.parser.parse_model(text.replace("%s", "3")).SerializeToString()
    kept = predict(pa.table({"x": ragged}), content, on_error="keep")
    assert [place for place, text in enumerate(kept["error"].to_pylist()) if text] == [3, 4]
    np.testing.assert_array_equal(np.array(kept["y"].take([0, 1, 2, 5, 6]).to_pylist()), np.maximum(x[:5], 0))


def test_columns_that_are_kept(tmp_path: Path) -> None:
    table = lists().append_column("name", pa.array([str(place) for place in range(len(X))]))
    for kept in ([], ["name"], ["name", "x"], "id"):
        made = predict(table, model(), keep_columns=kept)
        assert made.column_names == [*([kept] if kept == "id" else kept), "y", "s"]
        np.testing.assert_array_equal(np.array(made["y"].to_pylist(), np.float32), np.maximum(X, 0))
    assert predict(table, model(), keep_columns=["id"], outputs={"s": "x"}).column_names == ["id", "x"]
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    reader = predict(tmp_path / "t.parquet", model(), keep_columns=["name"], on_error="keep")
    assert reader.read_all().column_names == ["name", "y", "s", "error"]
    numbers = pa.table({"k": table["name"], "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    assert predict(numbers, model(), keep_columns=["k"]).column_names == ["k", "y", "s"]
    with pytest.raises(InvalidArgument, match="no column 'z' to keep"):
        predict(table, model(), keep_columns=["z"])
    with pytest.raises(InvalidArgument, match="columns are of tables"):
        predict([{"x": X}], model(), keep_columns=["x"])


def test_blocks_are_of_few_rows_where_these_are_large() -> None:
    """Of inputs or of outputs, whatever comes together."""
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (float[N,1] x) => (float[N,65536] y) <int64[2] sizes = {1, 65536}> { y = Expand(x, sizes) }"""
    content = onnx.parser.parse_model(text).SerializeToString()
    table = pa.table({"x": np.arange(200, dtype=np.float32)})
    made = predict(table.to_reader(), content, batch_rows=16)
    sizes = [batch.num_rows for batch in made]
    assert sum(sizes) == 200 and max(sizes[1:]) == 16 and sizes[0] <= 64


def test_rows_that_a_model_fails_on() -> None:
    """An index beyond the end is seen when its batch is run: row by row it is found."""
    text = """<ir_version: 8, opset_import: ["": 18]> g (int64[N] i) => (float[N] y) <float[4] table = {1, 2, 3, 4}>
    { y = Gather(table, i) }"""
    content = onnx.parser.parse_model(text).SerializeToString()
    table = pa.table({"i": [0, 3, 2, 9, 1, -1]})
    with pytest.raises(RowError, match=r"row 3 of the table: Gather node"):
        predict(table, content, batch_rows=4).to_pydict()
    made = predict(table, content, batch_rows=4, on_error="keep").to_pydict()
    assert made["y"] == [1, 4, 3, None, 2, 4] and made["error"][3] and not any(made["error"][4:])


def test_feeds_that_do_not_fit() -> None:
    feeds = [{"x": X[:2]}, {"x": X[:2, :2]}, {"z": X[:2]}, {"x": X[:2].astype(np.float64)}, {"x": X[2:3]}]
    made = list(predict(feeds, model(), on_error="keep"))
    assert [isinstance(one, RowError) for one in made] == [False, True, True, True, False]
    for one, text in zip(made[1:4], ("shape [2, 2]", "'x' is missing", "float64; float32 is needed"), strict=True):
        assert text in str(one)
    with pytest.raises(RowError, match="feeds 1"):
        list(predict(feeds, model()))


@pytest.mark.parametrize(
    "given, text",
    [
        ({"columns": {"z": "x"}}, "none of the model's"),
        ({"columns": {"x": "nothing"}}, "no column 'nothing'"),
        ({"columns": {"x": "id"}}, "holds int64"),
        ({"outputs": ["z"]}, "no output 'z'"),
        ({"outputs": {"y": "id"}}, "a column 'id' already"),
        ({"on_error": "drop"}, "'raise' or 'keep'"),
        ({"batch_rows": 0}, "at least 1"),
    ],
)
def test_arguments_that_do_not_fit(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        predict(lists(), model(), **given).num_rows  # noqa: B018


def test_models_without_rows() -> None:
    for text, said in (
        ("g (float x) => (float y) { y = Relu(x) }", "whose first axis is the batch"),
        ("g (float[N] x, float[2] z) => (float[N] y) { y = Relu(x) }", "disagree about the rows"),
        ("g (float[N] x) => (float[1] y) { y = ReduceSum(x) }", "outputs?.* 'y' has shape"),
    ):
        content = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}').SerializeToString()
        with pytest.raises(InvalidArgument, match=said):
            list(predict([{"x": X[:2, 0], "z": X[:2, 0]}], content, batch_rows=2))


def test_no_more_is_read_than_is_on_its_way() -> None:
    read = 0

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        nonlocal read
        for _ in range(1000):
            read += 1
            yield {"x": X[:8]}

    results = predict(feeds(), model(), batch_rows=8, threads=2)
    for number, _ in zip(range(1, 100), results, strict=False):
        assert read <= number + IN_FLIGHT * 2 + 1
    results.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("jitonnx-batch")]


def test_batches_grow_while_they_pay() -> None:
    """A run costs 1 ms, and nothing for a row up to 64; behind that rows cost much more."""
    sizes: list[int] = []

    def run(arrays: Any) -> Any:
        sizes.append(len(arrays["x"]))
        threading.Event().wait(0.001 if sizes[-1] <= 64 else 0.001 * sizes[-1])
        return {}

    assert rows_that_pay(run, {"x": X}) == 64 and max(sizes) == 256


def test_long_batches_are_not_tried_where_they_do_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    now = 0.0

    def run(arrays: Any) -> Any:
        nonlocal now
        sizes.append(len(arrays["x"]))
        now += 0.004 * sizes[-1]
        return {}

    monkeypatch.setattr(prediction, "time", SimpleNamespace(perf_counter=lambda: now))

    assert rows_that_pay(run, {"x": X}) == 1 and max(sizes) == 8


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": np.arange(len(X)), **dict(zip("abc", X.T, strict=True))})
    made = predict(frame, model(), columns={"x": ["a", "b", "c"]})
    assert isinstance(made, polars.DataFrame) and made.columns == ["id", "a", "b", "c", "y", "s"]
    np.testing.assert_allclose(made["s"].to_numpy(), X.sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(made["y"].to_numpy(), np.maximum(X, 0))
    arrays = polars.DataFrame({"x": X[:7]}, schema={"x": polars.Array(polars.Float32, 3)})
    np.testing.assert_array_equal(predict(arrays, model())["y"].to_numpy(), np.maximum(X[:7], 0))
    lists = polars.DataFrame({"x": X[:7].tolist()}, schema={"x": polars.List(polars.Float32)})
    np.testing.assert_array_equal(predict(lists, model())["y"].to_numpy(), np.maximum(X[:7], 0))
    kept = predict(polars.DataFrame({"x": [[1.0, 2.0, 3.0], None]}), model(), on_error="keep")
    assert kept["s"].to_list() == [6.0, None] and "null" in kept["error"][1]
