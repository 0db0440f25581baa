"""What was measured: a table is a record, docs/results/PAGE/NAME.json, and pages docs/results/PAGE.md are made of them.

    python -m bench.results                                      # writes the pages anew
    python -m bench.models DIR --openvino --record models/zen5   # measures, keeps the record, and writes the pages anew

A record says on which CPU, on how many threads, when, with which versions and by which command its table was made; what
was not noted says so on the page. Measuring again keeps a record's title and `about`, which are written by hand, and
replaces the rest. How figures come about and what they mean is in the guides, which link to the pages;
tests/docs/test_results.py holds pages to records.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "results"

PAGES = {
    "models": "Models: float32 models as a whole, beside other runtimes. What bounds them: "
    "[performance](../performance.md).",
    "low-precision": "Low precision: float16 and bfloat16. How exact that is, and what bounds it: "
    "[low precision](../performance-low-precision.md).",
    "quantised": "Quantised models: integers of 8 bits. What is rounded, and what bounds them: "
    "[low precision](../performance-low-precision.md#quantised-models).",
    "language-models": "Language models: decoders, their caches, and weights of few bits. What bounds them: "
    "[low precision](../performance-low-precision.md#decoders).",
    "operators": "Operators: one by one, beside onnxruntime and the limits of the machine. What they mean: "
    "[operators one by one](../performance-operators.md).",
    "loops-and-trees": "Loops and trees: recurrences, greedy decoders, forests. What bounds them: "
    "[performance](../performance.md#loops).",
    "choices": "Choices: what bands of rows and tuning gain, and how far estimated costs are from times. Beside them: "
    "[performance](../performance.md#tuning), [tuning](../tuning.md).",
    "servers": "Batches and servers: tables of rows, and requests over HTTP. What they are: "
    "[scaling out](../batch.md#measured), [servers](../serving.md#measured).",
    "projects": "Other projects: their tests with jitonnx in the place of onnxruntime. How they are run: "
    "[coming from onnxruntime](../onnxruntime.md#other-projects-tests).",
}
"""The pages: a title, and behind a colon what is on it."""

UNNOTED = "not noted"


@dataclasses.dataclass
class Record:
    """A table, and where it comes from. Cells are text, as the page shows them."""

    title: str
    about: str
    """What the figures are, their units, and under which conditions they came about: Markdown."""
    cpu: str | None
    threads: str | None
    date: str | None
    """As in "2026-11-27"."""
    versions: Mapping[str, str]
    """The versions of packages, by name."""
    command: str | None
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    summary: str = ""
    """What follows of the rows, as their geometric mean: Markdown."""

    def text(self) -> str:
        """The content of its file: JSON, in which a row is a line."""
        fields = dataclasses.asdict(self)
        rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in fields["rows"])
        lines = [
            f' "{name}": ' + (f"[\n{rows}\n ]" if name == "rows" else json.dumps(value, ensure_ascii=False))
            for name, value in fields.items()
        ]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def section(self) -> str:
        """Its part of the page: Markdown."""
        versions = ", ".join(f"{package} {version}" for package, version in self.versions.items())
        date = self.date and datetime.date.fromisoformat(self.date)
        facts = {
            "CPU": self.cpu,
            "threads": self.threads,
            "date": date and f"{date.day} {date:%B %Y}",
            "versions": versions,
            "command": self.command and f"`{self.command}`",
        }
        origin = "; ".join(f"{name}: {value or UNNOTED}" for name, value in facts.items())
        table = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (self.columns, *self.rows)]
        table.insert(1, "|---" * len(self.columns) + "|")
        parts = [f"## {self.title}", self.about, f"*{origin}.*", "\n".join(table), self.summary]
        return "\n\n".join(part for part in parts if part)


def read(path: Path) -> Record:
    """The record of a file."""
    return Record(**json.loads(path.read_text(encoding="utf-8")))


def page(name: str, folder: Path = FOLDER) -> str:
    """A page, of the records of its folder in the order of their titles: Markdown."""
    title, _, about = PAGES[name].partition(": ")
    records = sorted(map(read, (folder / name).glob("*.json")), key=lambda record: record.title)
    written = f"Written by `python -m bench.results` from the records in docs/results/{name}/; do not edit."
    head = f"# {title}\n\n{about[0].upper()}{about[1:]}\n\n{written}"
    return "\n\n".join([head, *(record.section() for record in records)]) + "\n"


def write_pages(folder: Path = FOLDER) -> None:
    for name in PAGES:
        (folder / f"{name}.md").write_text(page(name, folder), encoding="utf-8")


def add_record(parser: argparse.ArgumentParser) -> None:
    """The option `--record`, for `keep`."""
    parser.add_argument("--record", metavar="PAGE/NAME", help="keep the table as docs/results/PAGE/NAME.json")


def keep(
    name: str,
    threads: Sequence[int],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    summary: str = "",
    folder: Path = FOLDER,
) -> None:
    """Keep what this command measured just now as the record PAGE/NAME, and write the pages anew."""
    from bench.machine import describe

    machine = describe()
    path = folder / f"{name}.json"
    if path.parent.parent != folder or path.parent.name not in PAGES:
        raise ValueError(f"{name!r} is not PAGE/NAME with PAGE one of {', '.join(PAGES)}")
    former = read(path) if path.exists() else None
    record = Record(
        title=former.title if former else path.stem,
        about=former.about if former else "",
        cpu=f"{machine['cpu']} ({machine['llvm_cpu']}), {machine['cores_allowed']} cores",
        threads=", ".join(map(str, threads)),
        date=datetime.date.today().isoformat(),
        versions=machine["versions"],
        command=command_line(sys.orig_argv),
        columns=columns,
        rows=rows,
        summary=summary,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.text(), encoding="utf-8")
    write_pages(folder)


def command_line(arguments: Sequence[str]) -> str:
    """How others would call a command: without the interpreter's path, the names of folders and the record's."""
    words = ["python"]
    following = iter(arguments[1:])
    for word in following:
        if word == "--record":
            next(following)
        elif not word.startswith("--record="):
            words.append("DIR" if Path(word).is_dir() else word)
    return shlex.join(words)


if __name__ == "__main__":
    write_pages()
