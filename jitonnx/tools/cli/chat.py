"""`jitonnx chat FOLDER`: talk with a language model, or have it go on from one prompt."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from jitonnx.tools.cli.common import CACHE_HELP, CACHE_TYPES, positive

if TYPE_CHECKING:
    from jitonnx.genai import LanguageModel


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("chat", help="talk with a language model")
    parser.add_argument("folder", metavar="FOLDER", help="with genai_config.json, model.onnx and tokenizer.json")
    parser.add_argument(
        "-p", "--prompt", metavar="TEXT", help="answer this and end (default: ask for one after another)"
    )
    parser.add_argument("--system", metavar="TEXT", help="what the model is told in front of the chat")
    parser.add_argument(
        "--raw", action="store_true", help="go on from the text itself, without the chat template of the model"
    )
    parser.add_argument("-n", "--max-tokens", type=positive, metavar="N", help="of an answer (default: until it ends)")
    parser.add_argument("--temperature", type=float, metavar="T", help="0: always the most probable token")
    parser.add_argument("--top-k", type=int, metavar="K", help="draw among the K most probable tokens; 0: among all")
    parser.add_argument("--top-p", type=float, metavar="P", help="draw among the tokens that make up the probability P")
    parser.add_argument(
        "--min-p", type=float, metavar="P", help="leave out tokens below P times the most probable one's"
    )
    parser.add_argument(
        "--repetition-penalty", type=float, metavar="X", help="above 1: what was there is less probable"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="draw the same tokens each time")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end there; may be given again")
    parser.add_argument(
        "--prompt-lookup",
        type=positive,
        default=0,
        metavar="N",
        help="read up to N tokens ahead where the last ones have stood before",
    )
    parser.add_argument("--draft", metavar="FOLDER", help="a smaller model of the same tokens, which proposes tokens")
    parser.add_argument("--cache-type", choices=CACHE_TYPES, help=CACHE_HELP)
    parser.add_argument("--threads", type=positive, metavar="N", help="of a run (default: as the configuration says)")
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Answer one prompt, or line after line of standard input to its end; how fast goes to standard error."""
    from jitonnx import genai
    from jitonnx.errors import InvalidArgument

    model = genai.load(options.folder, threads=options.threads, draft=options.draft, cache_type=options.cache_type)
    is_chat = model.tokenizer.has_chat_template and not options.raw
    system = [{"role": "system", "content": options.system}] if options.system else []
    if system and not is_chat:
        raise InvalidArgument(
            "--system needs a chat template, and the folder has none: put the text in front of the prompt"
            if not options.raw
            else "--system and --raw do not go together: put the text in front of the prompt"
        )
    messages = list(system)
    for text in [options.prompt] if options.prompt is not None else _asked():
        messages.append({"role": "user", "content": text})
        answer = _answer(model, messages if is_chat else text, options, is_alone=options.prompt is not None)
        messages.append({"role": "assistant", "content": answer})


def _asked() -> Any:
    """Lines of standard input that are not empty, with a prompt where somebody types them."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


def _answer(model: LanguageModel, prompt: Any, options: argparse.Namespace, *, is_alone: bool) -> str:
    """Print an answer as it comes. Ctrl-C ends it, and where it `is_alone` the command, too."""
    pieces = model.generate(
        prompt,
        max_new_tokens=options.max_tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        stop=options.stop,
        seed=options.seed,
        prompt_lookup=options.prompt_lookup,
        stream=True,
    )
    said = []
    try:
        for piece in pieces:
            said.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        if is_alone:
            raise
    print(flush=True)
    usage = model.usage
    kept = f" ({usage.kept_tokens} of them kept)" if usage.kept_tokens else ""
    print(
        f"[{usage.prompt_tokens} tokens{kept} read in {usage.prompt_seconds:.2f} s, {usage.generated_tokens} made, "
        f"{usage.tokens_per_second:.1f} tokens/s]",
        file=sys.stderr,
    )
    return "".join(said)
