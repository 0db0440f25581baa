"""Models over rows and behind a server: `jitonnx map`, Ray Data, Dask and the V2 server, each beside onnxruntime.

    python -m bench.rows map         # files to files, beside loops over onnxruntime and over a session of ours
    python -m bench.rows engines     # in Ray Data and Dask (pip install "jitonnx[ray,dask]")
    python -m bench.rows memory      # while 20 GB of rows stream through
    python -m bench.rows server      # 64 clients (wrk) of a V2 server (pip install "jitonnx[serving]")

Models are those of the zoo with their batch opened: `table` is mlp_tiny (200,000 rows of 16 numbers), `text` MiniLM
(2,000 rows of 64 tokens), `image` MobileNetV2 (400 rows of 3 x 224 x 224); `--rows` says how many otherwise.

A loop opens the model, reads a Parquet file in batches, runs each, and writes the outputs to another, with the best of
the sizes of batches and of both ways to use the CPUs: all of them for each run, or runs beside each other on one each.
All take turns, `--rounds` times; the table shows the least seconds as rows a second.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, numpy_helper

import jitonnx
from bench import zoo
from bench.arguments import CLOCKS, add_clock
from bench.results import add_record, keep

SIZES = (1, 8, 64, 256, 1024, 4096, 16384)
THEIRS = "onnxruntime's loop"
STREAMED = 20_000_000_000
"""Bytes of rows that stream through for `memory`."""
CPUS = len(os.sched_getaffinity(0))


Clock = Callable[[], float]


class Case(NamedTuple):
    """A model, how many rows it is measured on, and what a row is."""

    model: str
    rows: int
    row: dict[str, tuple[str, tuple[int, ...]]]
    """Type and shape of a row, by input."""


CASES = {
    "table": Case("mlp_tiny", 200_000, {"x": ("float32", (16,))}),
    "text": Case("minilm_l6", 2_000, {"a_0": ("int64", (64,)), "a_1": ("int64", (64,))}),
    "image": Case("mobilenet_v2", 400, {"x": ("float32", (3, 224, 224))}),
}


def open_batch(model: ModelProto) -> bytes:
    """A model of the zoo with an open batch: Reshapes leave the size in front open."""
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for one in model.graph.initializer:
        if one.name in shapes:
            sizes = numpy_helper.to_array(one).copy()
            sizes[0] = -1
            one.CopyFrom(numpy_helper.from_array(sizes, one.name))
    return model.SerializeToString()


def write_case(case: Case, folder: Path) -> Path:
    """Write the model and its rows, `rows.parquet`; returns the model's path."""
    import pyarrow.parquet

    path = folder / "model.onnx"
    path.write_bytes(open_batch(zoo.model(case.model)))
    with pyarrow.parquet.ParquetWriter(folder / "rows.parquet", table(case, 1).schema) as writer:
        for begin in range(0, case.rows, 10_000):
            writer.write_table(table(case, min(10_000, case.rows - begin)))
    return path


def table(case: Case, rows: int) -> Any:
    """Rows as fixed-size lists."""
    import pyarrow as pa

    random = np.random.default_rng(0)
    columns = {}
    for name, (dtype, shape) in case.row.items():
        size = int(np.prod(shape))
        made = (
            random.integers(0, 2, rows * size) if dtype == "int64" else random.standard_normal(rows * size, np.float32)
        )
        columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(made.astype(dtype)), size)
    return pa.table(columns)


def feeds_of(batch: Any, case: Case) -> dict[str, np.ndarray]:
    """A record batch as arrays, without copies."""
    return {
        name: batch.column(name).flatten().to_numpy(zero_copy_only=False).reshape(-1, *shape)
        for name, (_, shape) in case.row.items()
    }


def columns_of(outputs: list[np.ndarray]) -> list[Any]:
    """Outputs as columns of (nested) fixed-size lists."""
    import pyarrow as pa

    made = []
    for array in outputs:
        column = pa.array(np.ascontiguousarray(array).reshape(-1))
        for size in reversed(array.shape[1:]):
            column = pa.FixedSizeListArray.from_arrays(column, size)
        made.append(column)
    return made


class Way(NamedTuple):
    """How a loop uses the CPUs: rows of a batch, threads of a run, runs beside each other."""

    rows: int
    threads: int
    beside: int


def loop(open_session: Callable[[Path, int], Any], way: Way, case: Case, folder: Path) -> None:
    """What somebody writes: opens the model, reads a Parquet file in batches, runs them, and writes a Parquet file with
    the outputs behind the columns."""
    import pyarrow as pa
    import pyarrow.parquet

    session = open_session(folder / "model.onnx", way.threads)
    file = pyarrow.parquet.ParquetFile(folder / "rows.parquet")
    names = [one.name for one in session.get_outputs()]
    writer = None
    waiting: deque[Any] = deque()

    def write(batch: Any, outputs: list[np.ndarray]) -> None:
        nonlocal writer
        columns = [*batch.columns, *columns_of(outputs)]
        made = pa.RecordBatch.from_arrays(columns, [*batch.schema.names, *names])
        if writer is None:
            writer = pyarrow.parquet.ParquetWriter(folder / "loop.parquet", made.schema)
        writer.write_batch(made)

    with ThreadPoolExecutor(way.beside) as pool:
        for batch in file.iter_batches(batch_size=way.rows):
            waiting.append((batch, pool.submit(session.run, None, feeds_of(batch, case))))
            if len(waiting) >= 2 * way.beside:
                first, future = waiting.popleft()
                write(first, future.result())
        for first, future in waiting:
            write(first, future.result())
    assert writer is not None
    writer.close()


def theirs(path: Path, threads: int) -> Any:
    """onnxruntime's session."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def ours(path: Path, threads: int) -> Any:
    """Our session."""
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    return jitonnx.InferenceSession(path, options)


def best_way(open_session: Callable[[Path, int], Any], path: Path, case: Case, folder: Path) -> Way:
    """The fastest by single runs, with both ways to use the CPUs."""
    rates = {}
    for threads, beside in {(CPUS, 1), (1, CPUS)}:
        session = open_session(path, threads)
        for rows in SIZES:
            if rows * sum(int(np.prod(shape)) for _, shape in case.row.values()) > 1 << 24 or rows > case.rows:
                break
            given = feeds_of(table(case, rows).combine_chunks().to_batches()[0], case)
            run = functools.partial(session.run, None, given)
            with ThreadPoolExecutor(beside) as pool:
                wait([pool.submit(run) for _ in range(beside)])
                begin, runs = time.perf_counter(), 0
                while runs == 0 or time.perf_counter() - begin < 0.3:
                    wait([pool.submit(run) for _ in range(beside)])
                    runs += beside
                rates[Way(rows, threads, beside)] = runs * rows / (time.perf_counter() - begin)
            if rows * beside / rates[Way(rows, threads, beside)] > 0.2:  # seconds: larger ones gain nothing
                break
    return max(rates, key=lambda way: rates[way])


def measure_map(names: list[str], counts: int | None, rounds: int, clock: Clock) -> Iterator[tuple[str, ...]]:
    """Rows of the table: `jitonnx map` beside loops."""
    from jitonnx.batch.files import map_files

    for name in names:
        case = CASES[name] if counts is None else CASES[name]._replace(rows=counts)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            path = write_case(case, folder)
            their_way, our_way = (best_way(opened, path, case, folder) for opened in (theirs, ours))

            def mapped(path: Path = path, folder: Path = folder) -> None:
                shutil.rmtree(folder / "mapped", ignore_errors=True)
                map_files(path, folder / "rows.parquet", folder / "mapped")

            turns: dict[str, Callable[[], None]] = {
                THEIRS: functools.partial(loop, theirs, their_way, case, folder),
                "our loop": functools.partial(loop, ours, our_way, case, folder),
                "jitonnx map": mapped,
            }
            seconds: dict[str, list[float]] = {turn: [] for turn in turns}
            for _ in range(rounds):
                for turn, take in turns.items():
                    begin = clock()
                    take()
                    seconds[turn].append(clock() - begin)
            rates = {turn: case.rows / min(taken) for turn, taken in seconds.items()}
            yield (
                f"{name} ({case.rows:,})",
                *(f"{rates[turn]:,.0f}" for turn in turns),
                f"{rates['jitonnx map'] / rates[THEIRS]:.2f}",
                f"{100 * (rates['our loop'] / rates['jitonnx map'] - 1):.1f} %",
                f"{tuple(their_way)} {tuple(our_way)}",
            )


OURS = """
import sys
from bench.rows import CPUS, theirs
from jitonnx.serving import Model, serve
serve([{model}], port=int(sys.argv[2]), grpc_port=0)
"""
KSERVE = """
import sys
import kserve
from bench.rows import theirs

class Plain(kserve.Model):
    def load(self):
        self.session = theirs(sys.argv[1], 1)
        self.ready = True

    def predict(self, payload, headers=None):
        made = self.session.run(None, {one.name: one.as_numpy() for one in payload.inputs})
        outputs = []
        for told, array in zip(self.session.get_outputs(), made):
            outputs.append(kserve.InferOutput(told.name, list(array.shape), "FP32"))
            outputs[-1].set_data_from_numpy(array)
        binary = payload.use_binary_outputs
        return kserve.InferResponse(payload.id or "1", self.name, outputs, use_binary_outputs=binary)

model = Plain("m")
model.load()
kserve.ModelServer(http_port=int(sys.argv[2]), enable_grpc=False, enable_latency_logging=False).start([model])
"""
SERVERS = {
    "jitonnx": OURS.format(model="Model('m', sys.argv[1])"),
    "onnxruntime in it": OURS.format(model="Model('m', theirs(sys.argv[1], 1), threads=CPUS)"),
    "onnxruntime in KServe's own": KSERVE,
}
"""The programs of servers, of a model's path and a port."""


def measure_server(names: list[str], counts: int | None, rounds: int, clock: Clock) -> Iterator[tuple[str, ...]]:
    """Requests of one row, from 64 connections for 3 seconds, by wrk."""
    for name in names:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            path = write_case(case._replace(rows=1), folder)
            write_request(case, folder)
            found: dict[str, list[tuple[float, float, float]]] = {server: [] for server in SERVERS}
            for _, (server, code) in itertools.product(range(rounds), SERVERS.items()):
                found[server].append(asked(code, path, folder))
            for server, measured in found.items():
                rates, lates, cpu = zip(*measured, strict=True)
                yield name, server, f"{max(rates):,.0f}", f"{min(lates):.1f}", f"{min(cpu):,.0f}"


def write_request(case: Case, folder: Path) -> None:
    """A request's body as `request`, and what tells wrk of it as `request.lua`."""
    feeds = feeds_of(table(case, 1).combine_chunks().to_batches()[0], case)
    inputs = [
        {
            "name": name,
            "shape": array.shape,
            "datatype": "INT64" if array.dtype == np.int64 else "FP32",
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in feeds.items()
    ]
    told = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    (folder / "request").write_bytes(told + b"".join(array.tobytes() for array in feeds.values()))
    (folder / "request.lua").write_text(f"""
local file = io.open("{folder}/request", "rb")
wrk.method, wrk.body = "POST", file:read("*a")
wrk.headers["Inference-Header-Content-Length"] = "{len(told)}"
""")


def asked(code: str, path: Path, folder: Path) -> tuple[float, float, float]:
    """Requests a second, the milliseconds within which 99 % are answered, and the server's CPU time for one, in µs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/v2/health/ready")
        command = ["wrk", "-t1", "-c64", "-d3s", "--latency", "-s", str(folder / "request.lua")]
        before = seconds_of(server.pid)
        made = subprocess.run(
            [*command, f"http://127.0.0.1:{port}/v2/models/m/infer"], capture_output=True, text=True, check=True
        ).stdout
        used = seconds_of(server.pid) - before
        assert "Non-2xx" not in made, made
        rate, late = re.search(r"Requests/sec:\s+(\S+)", made), re.search(r"99%\s+([\d.]+)(us|ms|s)", made)
        count = re.search(r"(\d+) requests in", made)
        assert rate is not None and late is not None and count is not None, made
        unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}[late[2]]
        return float(rate[1]), float(late[1]) * unit, 1e6 * used / int(count[1])
    finally:
        server.terminate()
        server.wait(60)


def wait_for(address: str) -> None:
    """Until it answers."""
    end = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(address).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def measure_memory(names: list[str], counts: int | None, rounds: int, clock: Clock) -> Iterator[tuple[str, ...]]:
    """What the process takes at most while rows from a generator stream through, over what it takes when the model has
    been run; `rounds` and `clock` mean nothing here."""
    import pyarrow as pa

    from jitonnx.batch import predict

    for name in names:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as place:
            path = write_case(case._replace(rows=1), Path(place))
            row_bytes = sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, shape in case.row.values())
            block = table(case, max(1, (4 << 20) // row_bytes)).combine_chunks().to_batches()[0]
            blocks = (counts or STREAMED // row_bytes) // block.num_rows
            session = ours(path, 1)
            session.run(None, feeds_of(block.slice(0, 1), case))
            before = peak = resident()
            reader = pa.RecordBatchReader.from_batches(block.schema, itertools.repeat(block, blocks))
            done, begin = 0, time.perf_counter()
            for made in predict(reader, session, threads=CPUS):
                done += made.num_rows
                peak = max(peak, resident())
            seconds = time.perf_counter() - begin
            yield (
                f"{name} ({done:,})",
                f"{done * row_bytes / 1e9:.1f}",
                f"{(peak - before) / 1e6:.0f}",
                f"{seconds:.0f}",
            )


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_engines(names: list[str], counts: int | None, rounds: int, clock: Clock) -> Iterator[tuple[str, ...]]:
    """Ray Data's pipeline from a Parquet folder to another, and Dask's over an array, with our `predict`, with a
    function over onnxruntime that somebody writes, and with one that gives zeros, which shows what the engine takes
    itself. The clock is always that of the wall, as workers are processes."""
    for name in names:
        case = CASES[name] if counts is None else CASES[name]._replace(rows=counts)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            path = write_case(case, folder)
            (folder / "rows").mkdir()
            write_parts(folder, 8)
            rows = best_way(theirs, path, case, folder).rows
            for engine, ways in (("Dask", by_dask), ("Ray Data", by_ray)):
                turns = ways(path, case, rows)
                seconds: dict[str, list[float]] = {turn: [] for turn in turns}
                for _, (turn, take) in itertools.product(range(rounds), turns.items()):
                    shutil.rmtree(folder / "made", ignore_errors=True)
                    begin = time.perf_counter()
                    take()
                    seconds[turn].append(time.perf_counter() - begin)
                if not turns:
                    continue
                rates = [case.rows / min(seconds[turn]) for turn in ("onnxruntime", "jitonnx", "zeros")]
                yield (
                    engine,
                    f"{name} ({case.rows:,})",
                    *(f"{rate:,.0f}" for rate in rates),
                    f"{rates[1] / rates[0]:.2f}",
                )


def write_parts(folder: Path, parts: int) -> None:
    """The rows in several files of a folder, as engines like them."""
    import pyarrow.parquet

    found = pyarrow.parquet.read_table(folder / "rows.parquet")
    size = -(-found.num_rows // parts)
    for part in range(parts):
        pyarrow.parquet.write_table(found.slice(part * size, size), folder / "rows" / f"{part}.parquet")


Pipelines = dict[str, Callable[[], object]]
"""Calls that run a pipeline once, by the name of what runs the model."""


def by_ray(path: Path, case: Case, rows: int) -> Pipelines:
    """Ray's, with an actor a CPU, and one more CPU for tasks that read and write."""
    import pyarrow as pa
    import ray

    from jitonnx.batch.ray import predict

    if not ray.is_initialized():
        ray.init(num_cpus=CPUS + 1, log_to_driver=False, include_dashboard=False)
        ray.data.DataContext.get_current().enable_progress_bars = False

    class Plain:
        """What somebody writes."""

        def __init__(self) -> None:
            self.session = theirs(path, 1)
            self.names = [one.name for one in self.session.get_outputs()]

        def __call__(self, batch: Any) -> Any:
            batch = batch.combine_chunks().to_batches()[0]
            return pa.table([*batch.columns, *columns_of(self.outputs(batch))], [*batch.schema.names, *self.names])

        def outputs(self, batch: Any) -> list[np.ndarray]:
            outputs: list[np.ndarray] = self.session.run(None, feeds_of(batch, case))
            return outputs

    class Zeros(Plain):
        """The engine's own work."""

        def outputs(self, batch: Any) -> list[np.ndarray]:
            return [np.zeros((batch.num_rows, *shape), np.float32) for shape in shapes]

    source, target = str(path.parent / "rows"), str(path.parent / "made")
    actors = ray.data.ActorPoolStrategy(size=CPUS)
    given = {"batch_size": rows, "batch_format": "pyarrow", "num_cpus": 1, "compute": actors, "zero_copy_batch": True}
    outputs = theirs(path, 1).run(None, feeds_of(table(case, 1).combine_chunks().to_batches()[0], case))
    shapes = [output.shape[1:] for output in outputs]
    return {
        "onnxruntime": lambda: ray.data.read_parquet(source).map_batches(Plain, **given).write_parquet(target),
        "zeros": lambda: ray.data.read_parquet(source).map_batches(Zeros, **given).write_parquet(target),
        "jitonnx": lambda: predict(ray.data.read_parquet(source), path, compute=actors).write_parquet(target),
    }


def by_dask(path: Path, case: Case, rows: int) -> Pipelines:
    """Dask's, with a process a CPU: the sum of the outputs for an array in blocks, which lies in the workers."""
    import dask.array
    import distributed

    from jitonnx.batch.dask import predict_array

    if not _clients:
        os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])  # workers find this module
        cluster = distributed.LocalCluster(n_workers=CPUS, threads_per_worker=1, dashboard_address=None)
        _clients.append(distributed.Client(cluster))
    if list(case.row) != ["x"]:
        return {}
    shape = case.row["x"][1]
    random = dask.array.random.default_rng(0)
    x = random.standard_normal((case.rows, *shape), chunks=(-(-case.rows // 8), *shape)).astype(np.float32).persist()
    distributed.wait(x)

    def plain(block: np.ndarray, path: str, rows: int) -> np.ndarray:
        from bench.rows import session_of

        session = session_of(path)
        cut = [block[begin : begin + rows] for begin in range(0, len(block), rows)]
        return np.concatenate([session.run(None, {"x": one})[0] for one in cut])

    def zeros(block: np.ndarray) -> np.ndarray:
        return np.zeros((len(block), *example.shape[1:]), np.float32)

    def total(made: Any) -> None:
        made.sum().compute()

    (example,) = theirs(path, 1).run(None, {"x": np.zeros((1, *shape), np.float32)})
    told = {
        "dtype": np.float32,
        "chunks": (x.chunks[0], *((size,) for size in example.shape[1:])),
        "drop_axis": list(range(1, x.ndim)),
        "new_axis": list(range(1, example.ndim)),
        "meta": example[:0],
    }
    return {
        "onnxruntime": lambda: total(x.map_blocks(plain, str(path), rows, **told)),
        "zeros": lambda: total(x.map_blocks(zeros, **told)),
        "jitonnx": lambda: total(predict_array(x, path)),
    }


_clients: list[Any] = []


@functools.cache
def session_of(path: str) -> Any:
    """onnxruntime's session of a worker."""
    return theirs(Path(path), 1)


def seconds_of(process: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


HEADS = {
    "engines": ("engine", "rows", "onnxruntime", "jitonnx", "zeros", "ratio"),
    "memory": ("rows", "GB", "MB more at most", "seconds"),
    "server": ("model", "server with", "requests/s", "99 % within ms", "CPU µs/request"),
    "map": ("rows", THEIRS, "our loop", "jitonnx map", "ratio", "overhead", "rows, threads, beside: theirs, ours"),
}


def printed(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows, each printed as Markdown as soon as it is there."""
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads), flush=True)
    made = []
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
        made.append(row)
    return made


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=tuple(HEADS))
    parser.add_argument("--only", choices=tuple(CASES), action="append", help="default: all")
    parser.add_argument("--rows", type=int, help="of each (default: as above)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    add_clock(parser)
    add_record(parser)
    options = parser.parse_args()
    measures = {"map": measure_map, "server": measure_server, "engines": measure_engines, "memory": measure_memory}
    names = options.only or list(CASES)
    heads = HEADS[options.what]
    rows = printed(heads, measures[options.what](names, options.rows, options.rounds, CLOCKS[options.clock]))
    if options.record:
        keep(options.record, [len(os.sched_getaffinity(0))], heads, rows)


if __name__ == "__main__":
    main()
