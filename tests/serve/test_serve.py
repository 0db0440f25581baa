"""The server by clients of the package `openai`: right answers, errors in OpenAI's form, nothing stuck."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import jitonnx.genai as ours
from jitonnx.serve import application
from jitonnx.tools.cli import main
from tests.genai.folders import SHAPE, write_folder

openai = pytest.importorskip("openai")
pytest.importorskip("prometheus_client")
pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")

NAME = "small"
HELLO = [{"role": "user", "content": "hello"}]


@contextlib.contextmanager
def served(model: ours.LanguageModel, **options: Any) -> Iterator[str]:
    """A server in a thread; its address."""
    config = uvicorn.Config(application(model, name=NAME, **options), port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def model(model_folder: Path) -> ours.LanguageModel:
    return ours.load(model_folder)


@pytest.fixture(scope="module")
def address(model: ours.LanguageModel) -> Iterator[str]:
    with served(model) as found:
        yield found


def client_of(address: str, **options: Any) -> Any:
    return openai.OpenAI(base_url=f"{address}/v1", **{"api_key": "none", "max_retries": 0, "timeout": 60, **options})


@pytest.fixture(scope="module")
def client(address: str) -> Any:
    return client_of(address)


def test_chats(model: ours.LanguageModel, client: Any) -> None:
    messages = [
        {"role": "developer", "content": "be short"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]
    made = client.chat.completions.create(model=NAME, messages=messages, max_tokens=9)
    messages[0]["role"] = "system"
    flat = [messages[0], {"role": "user", "content": "hi"}]
    assert made.choices[0].message.content == model.generate(flat, max_new_tokens=9)  # type: ignore[arg-type]
    assert made.choices[0].message.role == "assistant" and made.choices[0].finish_reason == "length"
    assert made.object == "chat.completion" and made.model == NAME
    count = model.usage.prompt_tokens
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (count, 9, count + 9)


def test_streams(model: ours.LanguageModel, client: Any) -> None:
    options: dict[str, Any] = {
        "model": NAME,
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    pieces = list(client.chat.completions.create(messages=HELLO, **options))
    assert pieces[0].choices[0].delta.role == "assistant" and pieces[0].object == "chat.completion.chunk"
    assert not any(piece.choices[0].delta.role for piece in pieces[1:-1])
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces[:-1])
    assert text == model.generate(HELLO, max_new_tokens=9)
    assert pieces[-2].choices[0].finish_reason == "length" and pieces[-1].usage.completion_tokens == 9
    pieces = list(client.completions.create(prompt="hello", **options))
    assert "".join(piece.choices[0].text for piece in pieces[:-1]) == model.generate("hello", max_new_tokens=9)


def test_completions(model: ours.LanguageModel, client: Any) -> None:
    """Of texts and tokens, several at once, drawn and not."""
    tokens = model.tokenizer.encode("hello world").tolist()
    expected = model.generate("hello world", max_new_tokens=7)
    for prompt in ("hello world", ["hello world"], tokens, [tokens]):
        made = client.completions.create(model=NAME, prompt=prompt, max_tokens=7)
        assert [one.text for one in made.choices] == [expected]
    made = client.completions.create(model=NAME, prompt=["hello", "world"], max_tokens=7, n=2, seed=5, temperature=1.0)
    drawn = [
        model.generate(text, max_new_tokens=7, seed=seed, temperature=1.0)
        for text in ("hello", "world")
        for seed in (5, 6)
    ]
    assert [one.text for one in made.choices] == drawn and [one.index for one in made.choices] == [0, 1, 2, 3]
    options = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.5}
    made = client.completions.create(model=NAME, prompt="hello", max_tokens=7, seed=5, top_p=0.9, extra_body=options)
    assert made.choices[0].text == model.generate("hello", max_new_tokens=7, seed=5, top_p=0.9, **options)


def test_stops(model: ours.LanguageModel, client: Any) -> None:
    text = model.generate("hello", max_new_tokens=20)
    stop = text[len(text) // 2 :][:2]
    for stream in (False, True):
        made = client.completions.create(model=NAME, prompt="hello", max_tokens=20, stop=["never", stop], stream=stream)
        pieces = list(made) if stream else [made]
        assert "".join(piece.choices[0].text for piece in pieces) == text[: text.find(stop)]
        assert pieces[-1].choices[0].finish_reason == "stop"


def test_answers_of_a_schema(client: Any) -> None:
    pytest.importorskip("llguidance")
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "y"]}},
        "required": ["a"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False},
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    made = client.chat.completions.create(model=NAME, messages=HELLO, response_format=form, temperature=1.0, seed=1)
    assert json.loads(made.choices[0].message.content)["a"] in ("x", "y")
    assert made.choices[0].finish_reason == "stop"


def test_probabilities(model: ours.LanguageModel, client: Any) -> None:
    """Of each token, and of the most probable ones, as the logits say before anything changes them."""
    tokens = model.tokenizer.encode("hello")
    options: dict[str, Any] = {"model": NAME, "max_tokens": 5, "logit_bias": {"7": 100}}
    made = client.completions.create(prompt=tokens.tolist(), logprobs=3, **options).choices[0]
    chat = client.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=2, **options).choices[0]
    generator = ours.Generator(model.model, ours.GeneratorParams(model.model))
    generator.append_tokens(tokens)
    for place in range(5):
        logits = generator.get_logits()[0, 0].astype(np.float64)
        expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        assert abs(made.logprobs.token_logprobs[place] - expected[7]) < 1e-4
        most = np.sort(expected)[::-1][:3]
        np.testing.assert_allclose(list(made.logprobs.top_logprobs[place].values()), most, atol=1e-4)
        generator.append_tokens([7])
    text = model.tokenizer.token_text(7)
    assert made.logprobs.tokens == [text] * 5 and made.text == 5 * text
    assert made.logprobs.text_offset == [place * len(text) for place in range(5)]
    assert [one.token for one in chat.logprobs.content] == [text] * 5
    assert all(len(one.top_logprobs) == 2 and bytes(one.bytes).decode() == text for one in chat.logprobs.content)
    pieces = list(client.chat.completions.create(messages=HELLO, logprobs=True, stream=True, **options))
    streamed = [one for piece in pieces if piece.choices[0].logprobs for one in piece.choices[0].logprobs.content]
    assert [one.logprob for one in streamed] == [one.logprob for one in chat.logprobs.content]


def test_penalties(model: ours.LanguageModel, client: Any) -> None:
    """What an answer holds is less probable in it, by how often it is there, whatever the prompt holds."""
    options: dict[str, Any] = {"model": NAME, "max_tokens": 12, "logprobs": 0}
    liked = {"logit_bias": {"7": 100, "8": 99.5}}
    text = {token: model.tokenizer.token_text(token) for token in (7, 8)}
    prompt = [7, 7, 7, 8]
    once = client.completions.create(prompt=prompt, presence_penalty=50, **liked, **options).choices[0].logprobs.tokens
    assert once == [text[7], text[8], *[text[7]] * 10]
    turns = client.completions.create(prompt=prompt, frequency_penalty=50, **liked, **options).choices[0].logprobs
    assert turns.tokens[:4] == [text[7], text[8], text[7], text[8]]


TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Bern", "Oslo"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("weather", "population")
]


@pytest.fixture(scope="module")
def with_tools(language_model: ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a model whose template has tools."""
    folder = write_folder(tmp_path_factory.mktemp("tools"), language_model)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    calls = "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function.arguments.city }}{% endfor %}"
    config["chat_template"] = (
        "{{ more }}{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
        "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}" + calls + "{% endfor %}"
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with served(ours.load(folder)) as address:
        yield client_of(address)


def test_calls_of_tools(with_tools: Any) -> None:
    pytest.importorskip("llguidance")
    options: dict[str, Any] = {"model": NAME, "messages": HELLO, "tools": TOOLS, "max_tokens": 150}
    named = {"type": "function", "function": {"name": "population"}}
    for choice, names in (("required", {"weather", "population"}), (named, {"population"})):
        made = with_tools.chat.completions.create(tool_choice=choice, **options).choices[0]
        (call,) = made.message.tool_calls
        assert made.finish_reason == "tool_calls" and made.message.content is None and call.type == "function"
        assert call.function.name in names and json.loads(call.function.arguments)["city"] in ("Bern", "Oslo")
        pieces = list(with_tools.chat.completions.create(tool_choice=choice, stream=True, **options))
        (streamed,) = [one for piece in pieces for one in piece.choices[0].delta.tool_calls or []]
        assert streamed.index == 0 and streamed.function.model_dump() == call.function.model_dump()
        assert pieces[-1].choices[0].finish_reason == "tool_calls"
    # The model, which knows of no tools, is free to answer otherwise; results of calls are a part of the chat.
    result = {"role": "tool", "tool_call_id": call.id, "content": "9"}
    told = with_tools.chat.completions.create(
        model=NAME, messages=HELLO, max_tokens=1, extra_body={"chat_template_kwargs": {"more": "hello " * 20}}
    )
    assert told.usage.prompt_tokens > 20
    options["messages"] = [*HELLO, made.message.model_dump(exclude_none=True), result]
    for choice in ("auto", "none"):
        made = with_tools.chat.completions.create(tool_choice=choice, **options).choices[0]
        assert made.message.content and not made.message.tool_calls


def test_models_health_and_metrics(address: str, client: Any) -> None:
    assert [one.id for one in client.models.list()] == [NAME] and client.models.retrieve(NAME).id == NAME
    assert httpx.get(f"{address}/health").json() == {"status": "ok", "running": 0, "waiting": 0}
    before = metric(address, "jitonnx_generated_tokens_total")
    client.completions.create(model=NAME, prompt="hello", max_tokens=7)
    assert metric(address, "jitonnx_generated_tokens_total") == before + 7
    assert metric(address, 'jitonnx_http_responses_total{path="/v1/completions",status="200"}') >= 1
    assert metric(address, "jitonnx_first_token_seconds_count") >= 1


def metric(address: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (.*)$", httpx.get(f"{address}/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize(
    ("status", "param", "change"),
    [
        (404, "model", {"model": "other"}),
        (400, "messages", {"messages": []}),
        (400, "messages", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        (400, "messages", {"messages": [{"role": "user", "content": 5}]}),
        (400, "temperature", {"temperature": "hot"}),
        (400, None, {"temperature": -1}),
        (400, None, {"top_p": 3}),
        (400, "max_tokens", {"max_tokens": 0}),
        (400, "n", {"n": 1000}),
        (400, "stop", {"stop": [""]}),
        (400, "top_logprobs", {"logprobs": True, "top_logprobs": 21}),
        (400, "top_logprobs", {"top_logprobs": 2}),
        (400, "logit_bias", {"logit_bias": {"x": 1}}),
        (400, None, {"logit_bias": {"300": 1}}),
        (400, "nonsense", {"extra_body": {"nonsense": 1}}),
        (400, "response_format", {"response_format": {"type": "xml"}}),
        (
            400,
            "tools",
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
        ),
        (400, "tools", {"tools": [{"type": "function", "function": {}}]}),
        (400, "tool_choice", {"tool_choice": "required"}),
        (400, "messages", {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]}),
        (400, None, {"messages": [{"role": "user", "content": "hello " * 300}]}),
    ],
    ids=str,
)
def test_wrong_requests(client: Any, status: int, param: str | None, change: dict[str, Any]) -> None:
    for stream in (False, True):
        with pytest.raises(openai.APIStatusError) as caught:
            list(client.chat.completions.create(**{"model": NAME, "messages": HELLO, "stream": stream, **change}))
        error = caught.value
        assert error.status_code == status and error.param == param and "Bug" not in error.message


def test_bodies_that_are_none(address: str) -> None:
    url = f"{address}/v1/chat/completions"
    for data in (b"", b"[1]", b"{", b"\xff\xfe", b'{"messages": ' + b"[" * 100000):
        answer = httpx.post(url, content=data)
        assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error"
    assert httpx.post(url, content=b" " * (17 << 20)).status_code == 413
    assert httpx.get(url).status_code == 405 and "error" in httpx.get(f"{address}/nowhere").json()


def test_embeddings(client: Any) -> None:
    with pytest.raises(openai.APIError, match="no embeddings"):
        client.embeddings.create(model=NAME, input="hello")


def test_embeddings_of_a_model_that_gives_hidden_states(language_model: ModelProto, tmp_path: Path) -> None:
    told = ModelProto()
    told.CopyFrom(language_model)
    (product,) = (node for node in told.graph.node if "logits" in node.output)
    shape = ["batch", "steps", SHAPE.width]
    told.graph.output.append(helper.make_tensor_value_info(product.input[0], TensorProto.FLOAT, shape))
    folder = write_folder(tmp_path / "hidden", told)
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["decoder"]["outputs"]["hidden_states"] = product.input[0]
    (folder / "genai_config.json").write_text(json.dumps(config))
    with served(ours.load(folder)) as address:
        made = client_of(address).embeddings.create(model=NAME, input=["hello", "hello world"])
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    empty = {one.name: np.zeros((1, 2, 0, SHAPE.depth), np.float32) for one in session.get_inputs()[2:]}
    for text, row in zip(("hello", "hello world"), made.data, strict=True):
        tokens = ours.Tokenizer(str(folder)).encode(text)[None].astype(np.int64)
        feeds = {"ids": tokens, "attention_mask": np.ones_like(tokens), **empty}
        last = session.run([product.input[0]], feeds)[0][0, -1]
        np.testing.assert_allclose(row.embedding, last / np.linalg.norm(last), atol=1e-5)


def test_keys(model: ours.LanguageModel) -> None:
    with served(model, api_key="secret") as address:
        assert client_of(address, api_key="secret").completions.create(model=NAME, prompt="a", max_tokens=2)
        with pytest.raises(openai.AuthenticationError):
            client_of(address, api_key="other").completions.create(model=NAME, prompt="a", max_tokens=2)


def test_many_clients_of_which_some_are_killed(model: ours.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 at once, more than there are lanes; two go away, one in a stream, one without. All lanes become free."""
    prompts = ["hello" * (1 + number % 5) + str(number) for number in range(64)]
    expected = [model.generate(prompt, max_new_tokens=12) for prompt in prompts]
    # No step is made before all have asked, so that none of what is killed is at its end.
    begin, run = threading.Event(), ours.Engine.run

    def held(engine: ours.Engine, buffer: Any) -> Any:
        assert begin.wait(60)
        time.sleep(0.002)
        return run(engine, buffer)

    monkeypatch.setattr(ours.Engine, "run", held)
    with served(model, max_batch_size=6) as address:
        killed = [
            subprocess.Popen([sys.executable, "-c", KILLED, address, stream], stdout=subprocess.PIPE, text=True)
            for stream in ("", "stream")
        ]
        for process in killed:
            assert process.stdout is not None and process.stdout.readline() == "asked\n"

        def ask(number: int) -> str:
            stream = number % 2 == 1
            made = client_of(address).completions.create(
                model=NAME, prompt=prompts[number], max_tokens=12, stream=stream
            )
            return "".join(piece.choices[0].text for piece in (made if stream else [made]))

        with ThreadPoolExecutor(64) as pool:
            answers = pool.map(ask, range(64))
            begin.set()
            time.sleep(0.1)
            for process in killed:
                process.kill()
                process.wait()
            assert list(answers) == expected
        end = time.monotonic() + 20
        while httpx.get(f"{address}/health").json() != {"status": "ok", "running": 0, "waiting": 0}:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert metric(address, 'jitonnx_answers_total{reason="cancelled"}') >= 2


KILLED = """
import json, socket, sys
host, port = sys.argv[1].removeprefix("http://").split(":")
body = json.dumps({"prompt": "hello", "max_tokens": 200, "n": 16, "stream": bool(sys.argv[2])})
one = socket.create_connection((host, int(port)))
one.sendall(f"POST /v1/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
print("asked", flush=True)
while one.recv(100):
    pass
one.recv(1)
"""


def test_the_command_ends_when_it_is_told_to(model: ours.LanguageModel, model_folder: Path) -> None:
    """An answer that is worked on comes to its end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jitonnx", "serve", str(model_folder), "--port", str(port), "--name", NAME]
    process = subprocess.Popen(command, env={**os.environ, "JITONNX_API_KEY": "secret"}, stderr=subprocess.PIPE)
    try:
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{address}/health").status_code == 200:
                    break
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.05)
        made = client_of(address, api_key="secret").completions.create(
            model=NAME, prompt="hello", max_tokens=120, stream=True
        )
        pieces = [next(made)]
        process.send_signal(signal.SIGTERM)
        pieces += made
        assert "".join(piece.choices[0].text for piece in pieces) == model.generate("hello", max_new_tokens=120)
        _, said = process.communicate(timeout=30)
        assert b"Traceback" not in said and b"Finished server process" in said
    finally:
        process.kill()
        process.wait()


def test_answers_end_with_the_server(model: ours.LanguageModel) -> None:
    """Those that its time does not suffice for; what is asked behind that is refused."""
    from jitonnx.serve.metrics import Metrics
    from jitonnx.serve.protocol import ApiError, Asked
    from jitonnx.serve.reading import Generated
    from jitonnx.serve.worker import Finished, Worker

    async def ask() -> Finished:
        worker = Worker(model, Metrics(), 1, 1)
        worker.start()
        prompt = np.array([5, 6], np.int32)
        answers = [await worker.begin(prompt, Asked([prompt]), None) for _ in range(2)]
        assert isinstance(await answers[0].next(), Generated)
        with pytest.raises(ApiError, match="1 requests wait already"):
            await worker.begin(prompt, Asked([prompt]), None)
        await asyncio.to_thread(worker.stop)
        with pytest.raises(ApiError, match="about to end"):
            await worker.begin(prompt, Asked([prompt]), None)
        while not isinstance(told := await answers[1].next(), Finished):
            pass
        return told

    told = asyncio.run(ask())
    assert told.error is not None and told.error.status == 503


def test_packages_that_are_missing(
    model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(model_folder)]) == 1
    said = capsys.readouterr().err
    assert "jitonnx[serve]" in said and "Bug" not in said


def test_folders_that_it_is_not_for(model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path)]) == 1
    assert "genai_config.json" in capsys.readouterr().err
