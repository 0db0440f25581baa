"""Tokens a second of a language model's folder: `jitonnx.genai` beside onnxruntime-genai.

    python -m bench.generation FOLDER --threads 1

FOLDER is one that onnxruntime-genai's model builder writes. Both read a prompt of random tokens and make some more, in
turns. What is told is CPU time, medians of the turns, as other processes may take their part of the machine: a library
that waits for its threads by spinning is charged for that. `--requests N` measures N sequences at once beside one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

PACKAGES = ("jitonnx.genai", "onnxruntime_genai")


def measure(folder: str, threads: int, prompt: int, tokens: int, turns: int) -> dict[str, tuple[float, float]]:
    """By packages: CPU seconds of reading the prompt, and of a token behind it."""
    models = _models(folder, threads, {})
    ids = np.random.default_rng(0).integers(0, models[PACKAGES[0]][1].decoder.vocabulary, prompt).astype(np.int32)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in PACKAGES}
    for _ in range(turns + 1):
        for name, (genai, model) in models.items():
            times[name].append(_turn(genai, model, ids, tokens))
    return {
        name: (statistics.median(read for read, _ in made[1:]), statistics.median(one for _, one in made[1:]))
        for name, made in times.items()
    }


def _models(folder: str, threads: int, more: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """By packages: the package, and the model. more: of the configuration."""
    changes = {"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}, **more}
    models: dict[str, tuple[Any, Any]] = {}
    for name in PACKAGES:
        genai = importlib.import_module(name)
        config = genai.Config(folder)
        config.overlay(json.dumps(changes))
        models[name] = genai, genai.Model(config)
    return models


def _turn(genai: Any, model: Any, ids: np.ndarray, tokens: int) -> tuple[float, float]:
    """CPU seconds of the prompt, and of a token."""
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=len(ids) + tokens + 2, min_length=len(ids) + tokens + 2)
    generator = genai.Generator(model, params)
    times = [time.process_time()]
    generator.append_tokens(ids)
    times.append(time.process_time())
    generator.generate_next_token()
    generator.generate_next_token()
    begin = time.process_time()
    for _ in range(tokens):
        generator.generate_next_token()
    return times[1] - times[0], (time.process_time() - begin) / tokens


def measure_requests(
    folder: str, threads: int, prompt: int, tokens: int, turns: int, requests: int
) -> dict[str, tuple[float, float]]:
    """Tokens a second of one request, and of several at once, by an `Engine`: by package the best of some turns."""
    models = _models(folder, threads, {"engine": {"static_batching": {"max_batch_size": requests}}})
    engines = {name: (genai, genai.Engine(model)) for name, (genai, model) in models.items()}
    best = {name: [0.0, 0.0] for name in engines}
    for _ in range(turns + 1):
        for name, (genai, engine) in engines.items():
            for place, count in enumerate((1, requests)):
                best[name][place] = max(best[name][place], _answered(genai, engine, prompt, tokens, count))
    return {name: (alone, together) for name, (alone, together) in best.items()}


def _answered(genai: Any, engine: Any, prompt: int, tokens: int, count: int) -> float:
    """Tokens a second of so many requests at once, their prompts included."""
    random, events, made = np.random.default_rng(count), engine.create_event_buffer(count), []
    begin = time.perf_counter()
    for _ in range(count):
        request = engine.create_request()
        options = genai.TurnOptions(request)
        options.set_max_generated_tokens(tokens)
        options.set_min_generated_tokens(tokens)
        request.begin_turn(random.integers(4, 256, prompt).astype(np.int32), options)
        made.append(request)
    while engine.has_pending_requests():
        engine.run(events)
    seconds = time.perf_counter() - begin
    for request in made:
        request.close()
    return count * tokens / seconds


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Tokens a second of a language model's folder.")
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--prompt", type=int, default=512, help="tokens (default: 512)")
    parser.add_argument("--tokens", type=int, default=24, help="that are made (default: 24)")
    parser.add_argument("--turns", type=int, default=4, help="default: 4, behind one that is not counted")
    parser.add_argument("--requests", type=int, help="measure so many at once, beside one alone, by an Engine")
    options = parser.parse_args(arguments)
    if options.requests:
        found = measure_requests(
            options.folder, options.threads, options.prompt, options.tokens, options.turns, options.requests
        )
        for name, (alone, together) in found.items():
            print(
                f"{name:18} one {alone:8.1f} tokens/s   {options.requests} at once {together:8.1f} tokens/s, "
                f"{together / alone:.2f} times as many"
            )
        return
    made = measure(options.folder, options.threads, options.prompt, options.tokens, options.turns)
    for name, (read, one) in made.items():
        print(f"{name:18} prompt {options.prompt / read:8.1f} tokens/s   behind it {1 / one:8.1f} tokens/s of CPU time")
    (ours, other) = (made[name] for name in PACKAGES)
    print(f"times as fast      prompt {other[0] / ours[0]:8.2f}            behind it {other[1] / ours[1]:8.2f}")


if __name__ == "__main__":
    main()
