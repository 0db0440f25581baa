"""What the documentation's site has beside the pages of docs/: files of the repository's top, and help of commands.

MkDocs calls the functions by their names (https://www.mkdocs.org/user-guide/plugins/#events).
"""

import argparse
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
TOP_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the repository's top and the generated ones."""
    for name in TOP_PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference/command-line.md", content=command_line()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page's text with links between docs/ and the repository's top as they are in the site."""
    if page.file.src_uri in TOP_PAGES:
        markdown = re.sub(r"\]\((?:README\.md(#[^)]*)?)\)", "](index.md)", markdown)
        return re.sub(r"\]\(docs/([^)]*)\)", r"](\1)", markdown)
    return re.sub(rf"\]\(\.\./({'|'.join(map(re.escape, TOP_PAGES))})", r"](\1", markdown)


def command_line() -> str:
    """The page of all commands: the help of each, as `jitonnx COMMAND --help` prints it."""
    from jitonnx.tools.cli import parser

    whole = parser()
    parts = ["# Command line", "`jitonnx COMMAND --help` prints the same.", _help(whole)]
    for name, command in sorted(_commands(whole).items()):
        parts += [f"## jitonnx {name}", _help(command)]
    return "\n\n".join(parts) + "\n"


def _commands(whole: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    action: Any = next(action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    commands: dict[str, argparse.ArgumentParser] = action.choices
    return commands


def _help(command: argparse.ArgumentParser) -> str:
    command.formatter_class = lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=100)
    return f"```text\n{command.format_help()}```"
