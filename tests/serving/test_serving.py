"""Models behind the Open Inference Protocol, asked by Triton's client: `.ci/serving` installs it and runs this."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx.parser
import pytest

import jitonnx

pytestmark = pytest.mark.serving
if importlib.util.find_spec("kserve") is None:  # not imported: its messages and the client's have the same names
    pytest.skip("KServe is not installed", allow_module_level=True)
grpcclient = pytest.importorskip("tritonclient.grpc")
httpclient = pytest.importorskip("tritonclient.http")
InferenceServerException = pytest.importorskip("tritonclient.utils").InferenceServerException

ROWS = """<ir_version: 8, opset_import: ["": 18]>
g (float[N,3] x, int64[N] which) => (float[N,3] y, float[N] picked) <float[4] table = {1, 2, 3, 4}>
{ y = Relu(x) picked = Gather<axis=0>(table, which) }
"""
TYPES = """<ir_version: 8, opset_import: ["": 18]>
g (float16[N,2] h, double[N] d, bool[N] b, uint8[N] u, string[N] s)
=> (float16[N,2] h2, double[N] d2, bool[N] b2, uint8[N] u2, string[N] s2)
{ h2 = Neg(h) d2 = Neg(d) b2 = Not(b) u2 = Identity(u) s2 = Identity(s) }
"""


class Server(NamedTuple):
    process: subprocess.Popen[str]
    http: str
    grpc: str

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.http}{path}") as answer:
            return str(answer.read().decode())

    def clients(self) -> list[tuple[Any, Any]]:
        return [
            (httpclient, httpclient.InferenceServerClient(self.http)),
            (grpcclient, grpcclient.InferenceServerClient(self.grpc)),
        ]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[..., Server]]:
    """Starts servers by their arguments to Python."""
    running: list[Server] = []

    def start(*arguments: str) -> Server:
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        http, grpc = re.search(r"http://(\S+)/v2", line), re.search(r"gRPC at (\S+)", line)
        assert http and grpc, line
        running.append(Server(process, http[1], grpc[1]))
        return running[-1]

    yield start
    for server in running:
        if server.process.poll() is None:
            assert server.end() == 0


def saved(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


@pytest.fixture(scope="module")
def rows(started: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Server:
    path = saved(tmp_path_factory.mktemp("models"), "rows", ROWS)
    return started("-m", "jitonnx", "serve", str(path), "--port", "0", "--grpc-port", "0", "--most-waiting", "64")


def feeds(package: Any, arrays: dict[str, tuple[str, np.ndarray]], **options: Any) -> list[Any]:
    made = []
    for name, (datatype, array) in arrays.items():
        one = package.InferInput(name, array.shape, datatype)
        one.set_data_from_numpy(array, **options)
        made.append(one)
    return made


def of_rows(x: np.ndarray, which: Any = None) -> dict[str, tuple[str, np.ndarray]]:
    chosen = np.arange(len(x)) % 4 if which is None else np.asarray(which)
    return {"x": ("FP32", x), "which": ("INT64", chosen.astype(np.int64))}


def test_metadata_and_health(rows: Server) -> None:
    tensors = [("x", "FP32", [-1, 3]), ("which", "INT64", [-1])], [("y", "FP32", [-1, 3]), ("picked", "FP32", [-1])]
    for package, client in rows.clients():
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("rows")
        told = client.get_model_metadata("rows", **({"as_json": True} if package is grpcclient else {}))
        for key, wanted in zip(("inputs", "outputs"), tensors, strict=True):
            assert [(one["name"], one["datatype"], [*map(int, one["shape"])]) for one in told[key]] == wanted
    assert json.loads(rows.get("/v2/models")) == {"models": ["rows"]}


@pytest.mark.parametrize("binary", [True, False])
def test_answers_are_those_of_the_model(rows: Server, binary: bool) -> None:
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    for package, client in rows.clients():
        options = {"binary_data": binary} if package is httpclient else {}
        outputs = None if binary else [package.InferRequestedOutput("y", **options)]
        made = client.infer("rows", feeds(package, of_rows(x), **options), outputs=outputs, request_id="7")
        np.testing.assert_array_equal(made.as_numpy("y"), np.maximum(x, 0))
        if binary:
            np.testing.assert_array_equal(made.as_numpy("picked"), [1, 2, 3, 4, 1])
        else:
            assert made.as_numpy("picked") is None
        empty = client.infer("rows", feeds(package, of_rows(x[:0])))
        assert empty.as_numpy("y").shape == (0, 3)


def test_types(started: Callable[..., Server], tmp_path: Path) -> None:
    server = started("-m", "jitonnx", "serve", str(saved(tmp_path, "types", TYPES)), "--port", "0", "--grpc-port", "0")
    arrays = {
        "h": ("FP16", np.array([[1, 2], [3, 4]], np.float16)),
        "d": ("FP64", np.array([1.5, -2.0])),
        "b": ("BOOL", np.array([True, False])),
        "u": ("UINT8", np.array([1, 255], np.uint8)),
        "s": ("BYTES", np.array(["ä", ""], object)),
    }
    for package, client in server.clients():
        made = client.infer("types", feeds(package, arrays))
        np.testing.assert_array_equal(made.as_numpy("h2"), -arrays["h"][1])
        np.testing.assert_array_equal(made.as_numpy("d2"), [-1.5, 2.0])
        np.testing.assert_array_equal(made.as_numpy("b2"), [False, True])
        np.testing.assert_array_equal(made.as_numpy("u2"), [1, 255])
        assert [text.decode() for text in made.as_numpy("s2")] == ["ä", ""]


def test_requests_that_do_not_fit(rows: Server) -> None:
    x = np.zeros((2, 3), np.float32)
    for package, client in rows.clients():
        for wrong, text in (
            ({"x": ("FP32", x)}, "input 'which' is missing"),
            ({**of_rows(x), "z": ("FP32", x)}, "no input 'z'"),
            ({**of_rows(x), "x": ("FP64", x.astype(float))}, r"input 'x' is FP64 \[2, 3\]; FP32 \[-1, 3\] is needed"),
            ({**of_rows(x), "x": ("FP32", x[:, :2])}, r"input 'x' is FP32 \[2, 2\]"),
            (of_rows(x, [1]), "'which': 1"),
            (of_rows(x, [9, 0]), "an index in 'which'"),
        ):
            with pytest.raises(InferenceServerException, match=text):
                client.infer("rows", feeds(package, wrong))
        with pytest.raises(InferenceServerException, match="no output 'w'"):
            client.infer("rows", feeds(package, of_rows(x)), outputs=[package.InferRequestedOutput("w")])
        with pytest.raises(InferenceServerException, match="does not exist"):
            client.infer("others", feeds(package, of_rows(x)))


@pytest.mark.parametrize("length", [None, "3", "x", "99"])
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"inputs": [1]}', b'{"inputs": [{"name": "x"}]}', b"\xff\x00"])
def test_bodies_that_are_no_requests(rows: Server, body: bytes, length: str | None) -> None:
    headers = {} if length is None else {"Inference-Header-Content-Length": length}
    request = urllib.request.Request(f"http://{rows.http}/v2/models/rows/infer", body, headers)
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request)
    assert error.value.code == 400
    assert json.loads(error.value.read())["error"]


def test_many_clients_one_of_whom_asks_for_what_fails(rows: Server) -> None:
    def ask(number: int) -> bool:
        package, client = rows.clients()[number % 2]
        x = np.full((number % 3 + 1, 3), number, np.float32)
        for _ in range(10):
            if number == 5:
                with pytest.raises(InferenceServerException):
                    client.infer("rows", feeds(package, of_rows(x, np.full(len(x), 9))))
            else:
                made = client.infer("rows", feeds(package, of_rows(x)))
                np.testing.assert_array_equal(made.as_numpy("y"), x)
                np.testing.assert_array_equal(made.as_numpy("picked"), np.arange(len(x)) % 4 + 1)
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(16)))
    metrics = rows.get("/metrics")
    assert 'jitonnx_requests_total{model_name="rows",outcome="answered"}' in metrics
    for name in ("jitonnx_batch_rows", "jitonnx_batch_requests", "jitonnx_run_seconds", "request_predict_seconds"):
        assert f"{name}_bucket" in metrics


def test_an_artifact(started: Callable[..., Server], tmp_path: Path) -> None:
    session = jitonnx.InferenceSession(saved(tmp_path, "rows", ROWS))
    session.save(tmp_path / "rows.jitonnx", {"x": ((1, 8), 3), "which": ((1, 8),)})
    server = started(
        *("-m", "jitonnx", "serve", str(tmp_path / "rows.jitonnx"), "--artifact", "--name", "model"),
        *("--port", "0", "--grpc-port", "0"),
    )
    x = np.random.default_rng(2).standard_normal((8, 3)).astype(np.float32)
    for package, client in server.clients():
        made = client.infer("model", feeds(package, of_rows(x)))
        np.testing.assert_array_equal(made.as_numpy("y"), np.maximum(x, 0))
    assert server.end() == 0


SLOW = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from jitonnx.serving import Model, serve

folder = Path(sys.argv[1])

class Slow:
    def get_inputs(self):
        return [SimpleNamespace(name="x", type="tensor(float)", shape=["N"])]

    get_outputs = get_inputs

    def run(self, names, feeds):
        if not (folder / "taken").exists():
            time.sleep(0.001)  # a run of less would be made by the event loop
            return [feeds["x"] + 1]
        with open(folder / "taken", "a") as file:
            file.write("x" * len(feeds["x"]))
        while not (folder / "go").exists():
            time.sleep(0.01)
        return [feeds["x"] + 1]

model = Model("slow", Slow(), batch_rows=4, most_waiting=8, warm_up={"x": np.arange(2, dtype=np.float32)})
model.load()
(folder / "taken").touch()
serve([model], port=0, grpc_port=0)
"""


def asked(server: Server, number: int) -> Any:
    package, client = server.clients()[number % 2]
    try:
        return client.infer("slow", feeds(package, {"x": ("FP32", np.array([number], np.float32))})).as_numpy("x")[0]
    except InferenceServerException as error:
        return str(error)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def told(server: Server, name: str) -> int:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", server.get("/metrics"), re.MULTILINE)
    return int(float(value))


STEPS = """
import sys
from jitonnx.serving import Model, serve

class Doubled(Model):
    async def postprocess(self, result, headers=None, response_headers=None):
        result.outputs[0].set_data_from_numpy(2 * result.outputs[0].as_numpy(), binary_data=True)
        return result

serve([Doubled("doubled", sys.argv[1])], port=0, grpc_port=0)
"""


def test_steps_of_a_subclass(started: Callable[..., Server], tmp_path: Path) -> None:
    server = started("-c", STEPS, str(saved(tmp_path, "rows", ROWS)))
    x = np.ones((2, 3), np.float32)
    for package, client in server.clients():
        np.testing.assert_array_equal(client.infer("doubled", feeds(package, of_rows(x))).as_numpy("y"), 2 * x)
    assert 'request_postprocess_seconds_count{model_name="doubled"} 2.0' in server.get("/metrics")


WAITING = 'jitonnx_requests_waiting{model_name="slow"}'
REFUSED = 'jitonnx_requests_total{model_name="slow",outcome="refused"}'


def test_a_server_that_is_ended_answers_what_it_has_taken(started: Callable[..., Server], tmp_path: Path) -> None:
    server = started("-c", SLOW, str(tmp_path))
    taken = tmp_path / "taken"
    with ThreadPoolExecutor(9) as pool:
        answers = [pool.submit(asked, server, number) for number in range(9)]
        until(lambda: told(server, WAITING) + len(taken.read_text()) == 9)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not server.clients()[1][1].is_server_ready())
        assert not server.clients()[0][1].is_server_ready()
        for number in range(2):
            assert "is being ended" in asked(server, number)
        (tmp_path / "go").touch()
        assert [answer.result() for answer in answers] == [number + 1 for number in range(9)]
    assert server.process.wait(60) == 0
    assert len(taken.read_text()) == 9


def test_more_requests_than_may_wait(started: Callable[..., Server], tmp_path: Path) -> None:
    server = started("-c", SLOW, str(tmp_path))
    with ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(asked, server, number) for number in range(20)]
        taken = tmp_path / "taken"
        until(lambda: told(server, WAITING) + told(server, REFUSED) + len(taken.read_text()) == 20)
        (tmp_path / "go").touch()
        ended = [answer.result() for answer in answers]
    right = sum(answer == number + 1 for number, answer in enumerate(ended))
    assert right == len(taken.read_text()) <= 12
    assert sum("requests wait already" in str(answer) for answer in ended) == 20 - right
