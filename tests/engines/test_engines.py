"""A model over rows by engines' workers, on real clusters of this machine: `.ci/engines` installs them and runs this.

Whatever happens to workers, all rows are there, once each; a row that does not fit is named, or kept with a note.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pyarrow as pa
import pyarrow.parquet
import pytest

from jitonnx.batch import files
from jitonnx.batch.files import map_files
from jitonnx.batch.workers import Prediction, prepared, worker_of
from jitonnx.support.atomic_files import replacing
from jitonnx.tools.cli import main

pytestmark = pytest.mark.engines
TEXT = """<ir_version: 8, opset_import: ["": 18]>
g (float[N,3] x) => (float[N,3] y, float[N] s) <int64[1] axis = {1}>
{ y = Relu(x) s = ReduceSum<keepdims=0>(x, axis) }
"""
MODEL: bytes = onnx.parser.parse_model(TEXT).SerializeToString()
X = np.random.default_rng(5).standard_normal((5000, 3)).astype(np.float32)
ENGINES = ("ray", "dask", "spark")


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """Workers run this Python, and find this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        yield


def rows(x: np.ndarray = X) -> pa.Table:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3)
    return pa.table({"id": np.arange(len(x)), "x": lists})


def check(made: pa.Table, x: np.ndarray = X) -> None:
    made = made.sort_by("id")
    assert made["id"].to_pylist() == list(range(len(x)))
    np.testing.assert_array_equal(np.array(made["y"].to_pylist(), np.float32), np.maximum(x, 0))
    np.testing.assert_allclose(made["s"].to_numpy(), x.sum(1), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Two nodes of one CPU each."""
    module = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    module.init(address=cluster.address, log_to_driver=False)
    module.data.DataContext.get_current().enable_progress_bars = False
    yield module
    module.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    """Two worker processes."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Two executors, processes of their own."""
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    request.getfixturevalue(request.param)
    name: str = request.param
    return name


def test_ray_datasets(ray: Any) -> None:
    from jitonnx.batch.ray import predict

    made = predict(ray.data.from_arrow([rows().slice(0, 1000), rows().slice(1000)]), MODEL)
    check(pa.concat_tables(ray.get(made.to_arrow_refs())))
    for how in ({"concurrency": 1}, {"compute": ray.data.ActorPoolStrategy(size=1), "batch_size": 700}):
        made = predict(ray.data.from_arrow([rows()]), MODEL, **how)
        check(pa.concat_tables(ray.get(made.to_arrow_refs())))
    kept = predict(ray.data.from_arrow(rows()), MODEL, keep_columns=["id"], outputs=["s"])
    assert kept.take_batch(3, batch_format="pyarrow").column_names == ["id", "s"]


def test_rays_actors_share_what_lies_in_one_block(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As small files do, however many: by how long the model takes a row."""
    from jitonnx.batch import ray as ours

    assert [ours._block_rows(seconds) for seconds in (None, 1e-6, 0.01, 3.0)] == [1024, None, 50, 1]
    monkeypatch.setattr(ours, "_block_rows", lambda seconds: 1250 if seconds else None)
    made = ours.predict(ray.data.from_arrow(rows()), MODEL).materialize()
    assert made.num_blocks() == 4
    check(pa.concat_tables(ray.get(made.to_arrow_refs())))


def test_dask_frames(dask: Any) -> None:
    import dask.dataframe as frames
    import pandas

    from jitonnx.batch.dask import predict

    x = dict(zip("abc", X.T, strict=True))
    frame = frames.from_pandas(pandas.DataFrame({"id": np.arange(len(X)), **x}), npartitions=7)
    made = predict(frame, MODEL, columns={"x": ["a", "b", "c"]})
    assert list(made.columns) == ["id", "a", "b", "c", "y", "s"]
    kept = predict(frame, MODEL, columns={"x": ["a", "b", "c"]}, keep_columns=["id"], outputs=["s"])
    assert list(kept.columns) == list(kept.compute().columns) == ["id", "s"]
    found = made.compute()
    np.testing.assert_allclose(found["s"], X.sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.stack(list(found["y"])), np.maximum(X, 0))


def test_dask_arrays(dask: Any) -> None:
    import dask.array as arrays

    from jitonnx.batch.dask import predict_array

    array = arrays.from_array(X, chunks=(1234, 3))
    np.testing.assert_array_equal(predict_array(array, MODEL).compute(), np.maximum(X, 0))
    np.testing.assert_allclose(predict_array(array, MODEL, output="s").compute(), X.sum(1), rtol=1e-5, atol=1e-6)
    long = np.tile(X, (7, 1))  # blocks of more rows than the compiled model takes
    made = predict_array(arrays.from_array(long, chunks=(len(long), 3)), MODEL).compute()
    np.testing.assert_array_equal(made, np.maximum(long, 0))
    fixed = onnx.parser.parse_model(TEXT.replace("N", "7")).SerializeToString()  # a batch of 7, filled up
    np.testing.assert_array_equal(predict_array(array, fixed).compute(), np.maximum(X, 0))
    with pytest.raises(ValueError, match="float32"):
        predict_array(array.astype(np.float64), MODEL)
    with pytest.raises(ValueError, match="whole rows"):
        predict_array(arrays.from_array(X, chunks=(1234, 1)), MODEL)


def test_spark_frames(spark: Any) -> None:
    from pyspark.sql.functions import col

    from jitonnx.batch.spark import predict, udf

    frame = spark.createDataFrame([(number, row.tolist()) for number, row in enumerate(X[:500])], ["id", "x"])
    check(predict(frame.repartition(3), MODEL).toArrow(), X[:500])
    kept = predict(frame, MODEL, keep_columns=["id"], outputs=["s"]).toArrow()
    assert kept.column_names == ["id", "s"] and kept.num_rows == 500
    made = frame.withColumn("s", udf(MODEL, output="s")("x")).withColumn("y", udf(MODEL)(col("x")))
    check(made.toArrow(), X[:500])


def test_files(engine: str, tmp_path: Path) -> None:
    """Parts by workers are those that this process makes; what is there is not made again."""
    (tmp_path / "model.onnx").write_bytes(MODEL)
    source = tmp_path / "rows"
    source.mkdir()
    pyarrow.parquet.write_table(rows(), source / "all.parquet", row_group_size=700)
    pyarrow.parquet.write_table(rows(X[:2000]), source / "some.parquet")
    settings: dict[str, Any] = {"part_rows": 1000}
    map_files(tmp_path / "model.onnx", source, tmp_path / "local", **settings)
    (tmp_path / "made").mkdir()
    done = map_files(tmp_path / "model.onnx", source, tmp_path / "made", engine=engine, **settings)
    assert done.done == 7000
    parts = sorted(path.name for path in (tmp_path / "local").glob("*.parquet"))
    assert parts == sorted(path.name for path in (tmp_path / "made").glob("*.parquet"))
    for part in parts:
        ours = pyarrow.parquet.read_table(tmp_path / "made" / part)
        assert ours.equals(pyarrow.parquet.read_table(tmp_path / "local" / part))
    (tmp_path / "made" / "all-00003.parquet").unlink()
    again = map_files(tmp_path / "model.onnx", source, tmp_path / "made", engine=engine, **settings)
    assert again.done == 1000


def test_the_command(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.onnx").write_bytes(MODEL)
    pyarrow.parquet.write_table(rows(), tmp_path / "rows.parquet")
    model, table = str(tmp_path / "model.onnx"), str(tmp_path / "rows.parquet")
    assert main(["map", model, table, "-o", str(tmp_path / "made"), "--engine", engine]) == 0
    assert "5000 rows" in capsys.readouterr().out
    check(pyarrow.parquet.read_table(tmp_path / "made" / "rows-00000.parquet"))


def test_a_row_that_does_not_fit(engine: str, tmp_path: Path) -> None:
    """An error names the row and the file; kept, it has a note."""
    (tmp_path / "model.onnx").write_bytes(MODEL)
    lists = [None if number == 1234 else row.tolist() for number, row in enumerate(X)]
    table = pa.table({"id": np.arange(len(X)), "x": pa.array(lists, pa.list_(pa.float32(), 3))})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    settings: dict[str, Any] = {"engine": engine, "part_rows": 1000}
    with pytest.raises(Exception, match=r"row 1234 of rows\.parquet: column 'x' is null"):
        map_files(tmp_path / "model.onnx", tmp_path / "rows.parquet", tmp_path / "raise", **settings)
    map_files(tmp_path / "model.onnx", tmp_path / "rows.parquet", tmp_path / "keep", on_error="keep", **settings)
    made = pa.concat_tables(map(pyarrow.parquet.read_table, sorted((tmp_path / "keep").glob("*.parquet"))))
    errors = made["error"].to_pylist()
    assert errors[1234] == "column 'x' is null" and errors.count(None) == len(X) - 1
    assert made["s"].to_pylist()[1234] is None and made["id"].to_pylist() == list(range(len(X)))


class Killing:
    """A job whose first worker dies in its second task, once."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __call__(self, number: int) -> tuple[int, int]:
        if number == 3 and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        worker = worker_of(PREDICTION)
        made = worker.table(rows(X[number * 100 : number * 100 + 100]))
        return number, made.num_rows


PREDICTION: Prediction = prepared(MODEL)


def test_a_worker_is_killed(engine: str, tmp_path: Path) -> None:
    """Its task is done elsewhere: everything is there, once."""
    module = __import__(f"jitonnx.batch.{engine}", fromlist=["each"])
    found = list(module.each(Killing(tmp_path / "killed"), range(12)))
    assert (tmp_path / "killed").exists()
    assert sorted(found) == [(number, 100) for number in range(12)]


class Dying(files._Job):
    """A job whose first worker dies while it writes its third part, once."""

    def work(self, task: Any) -> int:
        mark = self.target.parent / "killed"
        if task.part == 3 and not mark.exists():
            mark.touch()
            with replacing(self.target / "rows-00003.parquet") as file:
                file.write(b"PAR1 and no more")
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().work(task)


def test_a_worker_is_killed_while_it_writes(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are whole and there once; the half one is none."""
    monkeypatch.setattr(files, "_Job", Dying)
    (tmp_path / "model.onnx").write_bytes(MODEL)
    pyarrow.parquet.write_table(rows(), tmp_path / "rows.parquet")
    target = tmp_path / "made"
    map_files(tmp_path / "model.onnx", tmp_path / "rows.parquet", target, part_rows=400, engine=engine)
    assert (tmp_path / "killed").exists()
    parts = sorted(target.glob("*.parquet"))
    assert [path.name for path in parts] == [f"rows-{number:05}.parquet" for number in range(13)]
    check(pa.concat_tables(map(pyarrow.parquet.read_table, parts)))


def test_a_machine_keeps_one_compiled_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path))
    for threads in (1, 2):
        worker_of(PREDICTION._replace(digest=f"other {tmp_path}"), threads).table(rows())
    assert len(list(tmp_path.glob("*.model"))) == 1
    broken = PREDICTION._replace(compiled=PREDICTION.compiled[:1000], digest=f"broken {tmp_path}")
    check(worker_of(broken).table(rows()))  # compiled anew


def test_dask_partitions_without_a_row_that_fits(dask: Any) -> None:
    """They have the columns of the others, of the types that were told before."""
    import dask.dataframe as frames
    import pandas

    from jitonnx.batch.dask import predict

    text = """<ir_version: 8, opset_import: ["": 18]>
    g (float[N,2] x) => (float[N] s, int64[N] i, bool[N] b, float[N,2] y, string[N] t) <int64[1] axis = {1}>
    { s = ReduceSum<keepdims=0>(x, axis) i = Cast<to=7>(s) b = Cast<to=9>(s) y = Relu(x) t = Cast<to=8>(i) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    a = np.array([1.0, np.nan, np.nan, np.nan, 5.0, np.nan, 7.0, 8.0], np.float32)
    frame = frames.from_pandas(pandas.DataFrame({"a": a, "c": a}, index=list("ssttuuvv")), npartitions=4, sort=False)
    made = predict(frame, model, columns={"x": ["a", "c"]}, on_error="keep")
    parts = [part.compute() for part in made.partitions]
    assert [len(part) for part in parts] == [2, 2, 2, 2]
    for part in parts:
        assert list(part.dtypes) == list(made.dtypes)
    whole = made.compute()
    assert list(whole["i"].dropna()) == [2, 10, 14, 16] and list(whole.index) == list("ssttuuvv")
    assert whole["error"].notna().sum() == 4
