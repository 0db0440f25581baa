"""`jitonnx serve FOLDER`: a language model over HTTP, as OpenAI's interface has it."""

from __future__ import annotations

import argparse
import os
from typing import Any

from jitonnx.tools.cli.common import positive


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("serve", help="serve a language model over HTTP, for clients of OpenAI's interface")
    parser.add_argument("folder", metavar="FOLDER", help="with genai_config.json, model.onnx and tokenizer.json")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="to listen at (default: 127.0.0.1, this machine alone)"
    )
    parser.add_argument("--port", type=positive, default=8000, metavar="N", help="default: 8000")
    parser.add_argument("--name", metavar="TEXT", help="what clients call the model (default: the folder's name)")
    parser.add_argument(
        "--api-key",
        default=os.environ.get("JITONNX_API_KEY"),
        metavar="TEXT",
        help="what clients have to bring along (default: the environment's JITONNX_API_KEY, or nothing)",
    )
    parser.add_argument(
        "--batch", type=positive, metavar="N", help="answers that are made at once (default: as the folder says, or 16)"
    )
    parser.add_argument(
        "--most-waiting", type=positive, default=256, metavar="N", help="answers that wait, at most (default: 256)"
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="of a run (default: as the configuration says)")
    parser.add_argument(
        "--shutdown-seconds",
        type=positive,
        default=30,
        metavar="N",
        help="for answers that are worked on when the server is told to end (default: 30)",
    )
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    from jitonnx.serve import serve

    serve(
        options.folder,
        host=options.host,
        port=options.port,
        name=options.name,
        threads=options.threads,
        shutdown_seconds=options.shutdown_seconds,
        api_key=options.api_key,
        most_waiting=options.most_waiting,
        max_batch_size=options.batch,
    )
