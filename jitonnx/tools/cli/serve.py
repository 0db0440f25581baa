"""`jitonnx serve MODEL`: a model over HTTP: a language model's folder as OpenAI's interface has it, any other model as
the Open Inference Protocol has it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitonnx.tools.cli.common import CACHE_HELP, CACHE_TYPES, count, positive

if TYPE_CHECKING:
    import numpy as np

_OF_FOLDERS = {"api_key": "--api-key", "cache_type": "--cache-type"}
_KEY = "JITONNX_API_KEY"
_OF_FILES = {"artifact": "--artifact", "grpc_port": "--grpc-port", "delay": "--delay", "warm_up": "--warm-up"}
"""Options that one kind of model has, by their names in the parser."""


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="serve a language model for clients of OpenAI's interface, or any model by the Open Inference Protocol",
        description="A folder is served over HTTP, for clients of OpenAI's interface; an ONNX file or a compiled model "
        "over HTTP and gRPC by the Open Inference Protocol (V2), for clients of KServe and Triton.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="an ONNX file, a language model's folder with genai_config.json, model.onnx and tokenizer.json, or an "
        "encoder's with config.json, model.onnx and tokenizer.json (embeddings, ranks)",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="to listen at (default: 127.0.0.1, this machine alone)"
    )
    parser.add_argument("--port", type=count, default=8000, metavar="N", help="default: 8000; 0: any that is free")
    parser.add_argument("--name", metavar="TEXT", help="what clients call the model (default: the file's or folder's)")
    parser.add_argument(
        "--batch",
        type=positive,
        metavar="N",
        help="answers that are made at once (default: as the folder says, or 16; of a file's rows, as many as pay)",
    )
    parser.add_argument(
        "--most-waiting", type=positive, metavar="N", help="requests that wait, at most (default: 256; of a file, 1024)"
    )
    parser.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help="of a run (default: as the folder says); of a file, runs beside each other (default: all CPUs)",
    )
    parser.add_argument(
        "--shutdown-seconds",
        type=positive,
        default=30,
        metavar="N",
        help="for answers that are worked on when the server is told to end (default: 30)",
    )
    folders = parser.add_argument_group("folders alone")
    folders.add_argument(
        "--api-key",
        metavar="TEXT",
        help="what clients have to bring along (default: the environment's JITONNX_API_KEY, or nothing)",
    )
    folders.add_argument("--cache-type", choices=CACHE_TYPES, help=CACHE_HELP)
    files = parser.add_argument_group("files alone")
    files.add_argument(
        "--artifact",
        action="store_true",
        default=None,
        help="MODEL is a compiled model, whose machine code is to be run: trust who wrote it (SECURITY.md)",
    )
    files.add_argument("--grpc-port", type=count, metavar="N", help="default: 8001; 0: any that is free")
    files.add_argument(
        "--delay",
        type=float,
        metavar="MILLISECONDS",
        help="that a request waits for others to share a run while one could begin (default: 0)",
    )
    files.add_argument(
        "--warm-up", metavar="FEEDS.npz", help="inputs that are run before the model is ready (default: made-up ones)"
    )
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    is_folder = Path(options.model).is_dir()
    for attribute, option in (_OF_FILES if is_folder else _OF_FOLDERS).items():
        if getattr(options, attribute) is not None:
            kind = "a folder is served" if is_folder else "a file is served"
            raise SystemExit(f"{option} means nothing where {kind}")
    if not is_folder and os.environ.get(_KEY):
        raise SystemExit(
            f"the Open Inference Protocol knows no keys, and the environment has one in {_KEY}, so clients without it "
            "are not to be answered: unset it, and put a proxy that asks for it in front of the server"
        )
    if is_folder:
        _serve_folder(options)
    else:
        _serve_file(options)


def _serve_folder(options: argparse.Namespace) -> None:
    from jitonnx.serve import serve

    serve(
        options.model,
        host=options.host,
        port=options.port,
        name=options.name,
        threads=options.threads,
        shutdown_seconds=options.shutdown_seconds,
        cache_type=options.cache_type,
        api_key=options.api_key or os.environ.get(_KEY),
        most_waiting=options.most_waiting or 256,
        max_batch_size=options.batch,
    )


def _serve_file(options: argparse.Namespace) -> None:
    from jitonnx.genai.extras import needed

    needed("kserve", "a server of the Open Inference Protocol", extra="serving")
    from jitonnx.serving import Model, serve

    model = Model(
        options.name or Path(options.model).stem,
        options.model,
        artifact=bool(options.artifact),
        batch_rows=options.batch,
        delay=(options.delay or 0.0) / 1000,
        most_waiting=options.most_waiting or 1024,
        threads=options.threads,
        warm_up=_feeds(options.warm_up) if options.warm_up else None,
    )
    grpc_port = 8001 if options.grpc_port is None else options.grpc_port
    serve(
        [model],
        host=options.host,
        port=options.port,
        grpc_port=grpc_port,
        shutdown_seconds=options.shutdown_seconds,
    )


def _feeds(path: str) -> dict[str, np.ndarray]:
    import numpy as np

    with np.load(path) as found:
        return dict(found)
