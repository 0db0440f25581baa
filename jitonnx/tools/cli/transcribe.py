"""`jitonnx transcribe FOLDER FILE...`: what is said in files of audio, by a model of speech."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from jitonnx.tools.cli.common import positive

if TYPE_CHECKING:
    from jitonnx.genai import Transcript

_FORMATS = ("text", "srt", "vtt", "json")


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("transcribe", help="what is said in files of audio")
    parser.add_argument("folder", metavar="FOLDER", help="of a model of speech (Whisper)")
    parser.add_argument("files", nargs="+", metavar="FILE", help="of audio: WAV, or what `jitonnx[speech]` reads")
    parser.add_argument("--language", metavar="CODE", help="as en (default: the model says which it is)")
    parser.add_argument(
        "--task", choices=["transcribe", "translate"], default="transcribe", help="translate: to English"
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="text",
        help="srt, vtt: subtitles; json: a line a file, of its language, text and segments with their seconds",
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="of a run (default: as the configuration says)")
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Print the transcript of file after file; how fast goes to standard error."""
    from jitonnx import genai

    model = genai.load(options.folder, threads=options.threads)
    for file in options.files:
        begin = time.perf_counter()
        found = model.transcribe(
            file, language=options.language, task=options.task, timestamps=options.format != "text"
        )
        print(_formatted(found, file, options.format), flush=True)
        print(f"[{file}: {len(found.tokens)} tokens in {time.perf_counter() - begin:.2f} s]", file=sys.stderr)


def _formatted(found: Transcript, file: str, form: str) -> str:
    if form == "text":
        return found.text
    if form == "json":
        segments = [dataclasses.asdict(one) for one in found.segments]
        return json.dumps({"file": file, "language": found.language, "text": found.text, "segments": segments})
    from jitonnx.genai import subtitles

    return subtitles.srt(found.segments) if form == "srt" else subtitles.vtt(found.segments)
