"""Drawing a plan as a layered graph: boxes in rows by depth, edges between them that go around other boxes.

The method of Sugiyama, Tagawa and Toda ("Methods for visual understanding of hierarchical system structures", 1981):
each box gets the row below its deepest predecessor, an edge that crosses rows gets a bend in each of them, rows are put
in order by the mean place of their neighbours, and then everything moves towards its neighbours as far as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jitonnx.api.explanation import ExplainedOperand, Explanation

BOX_WIDTH, BOX_HEIGHT = 244.0, 58.0
PILL_HEIGHT = 30.0
_BEND_WIDTH = 10.0
_GAP, _ROW_GAP = 26.0, 40.0
_SWEEPS = 8


@dataclass(eq=False)
class Box:
    """Something drawn: a kernel, an input or output of the model, or (unseen) the bend of an edge."""

    kind: str
    """kernel, input, output or bend."""
    number: int = -1
    """It is the number of the kernel."""
    text: str = ""
    row: int = 0
    x: float = 0.0
    """The middle."""
    y: float = 0.0
    """The top."""
    above: list[Box] = field(default_factory=list)
    below: list[Box] = field(default_factory=list)

    @property
    def width(self) -> float:
        return _BEND_WIDTH if self.kind == "bend" else BOX_WIDTH

    @property
    def height(self) -> float:
        return PILL_HEIGHT if self.kind in ("input", "output") else BOX_HEIGHT


@dataclass(frozen=True)
class Edge:
    """A tensor on its way: from a box, through bends, to another."""

    source: Box
    target: Box
    bends: tuple[Box, ...]
    text: str


@dataclass(frozen=True)
class Drawing:
    """Boxes and edges with their places, in pixels from (0, 0) to (width, height)."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float

    @property
    def top(self) -> float:
        """The x to look at first: the middle of the kernel that runs first, which is in the first row of kernels."""
        return next((box.x for box in self.boxes if box.kind == "kernel"), self.width / 2)


def draw(explanation: Explanation) -> Drawing:
    """Places for the kernels of an explanation, its inputs and its outputs."""
    boxes, links = _links(explanation)
    _assign_rows(boxes, links)
    edges, bends = _with_bends(links)
    rows = _rows([*boxes, *bends])
    _order(rows)
    width = _place(rows)
    return Drawing(tuple(boxes), tuple(edges), width, _set_heights(rows))


@dataclass(frozen=True)
class _Link:
    source: Box
    target: Box
    text: str


def _links(explanation: Explanation) -> tuple[list[Box], list[_Link]]:
    boxes: list[Box] = []
    links: dict[tuple[Box, Box], _Link] = {}
    ends: dict[tuple[str, str], Box] = {}
    writers: dict[str, list[Box]] = {}

    def end(kind: str, operand: ExplainedOperand) -> Box:
        if (kind, operand.name) not in ends:
            ends[kind, operand.name] = Box(kind, text=operand.name)
            boxes.append(ends[kind, operand.name])
        return ends[kind, operand.name]

    def link(source: Box, target: Box, operand: ExplainedOperand) -> None:
        if source is not target:
            links.setdefault((source, target), _Link(source, target, f"{operand.name} {operand.type}"))

    for kernel in explanation.kernels:
        box = Box("kernel", kernel.number, kernel.label)
        boxes.append(box)
        for operand in kernel.reads:
            if operand.space == "input":
                link(end("input", operand), box, operand)
            for writer in writers.get(operand.buffer, ()):
                link(writer, box, operand)
        for operand in kernel.writes:
            if operand.space == "output":
                link(box, end("output", operand), operand)
            writers.setdefault(operand.buffer, []).append(box)
    return boxes, list(links.values())


def _assign_rows(boxes: Sequence[Box], links: Sequence[_Link]) -> None:
    """Each box below all that it reads; inputs directly above their first reader."""
    for link in links:
        link.target.above.append(link.source)
        link.source.below.append(link.target)
    kernels = [box for box in boxes if box.kind == "kernel"]  # in the order of the plan: producers first
    for box in kernels:
        box.row = 1 + max((source.row for source in box.above if source.kind == "kernel"), default=0)
    for box in boxes:
        if box.kind == "input":
            box.row = min((target.row for target in box.below), default=1) - 1
        elif box.kind == "output":
            box.row = 1 + max((source.row for source in box.above), default=0)
        box.above, box.below = [], []


def _with_bends(links: Sequence[_Link]) -> tuple[list[Edge], list[Box]]:
    """The edges, with a bend in each row between; edges from the same box share them."""
    shared: dict[tuple[Box, int], Box] = {}
    edges, bends = [], []
    for link in links:
        way = []
        last = link.source
        for row in range(link.source.row + 1, link.target.row):
            bend = shared.get((link.source, row))
            if bend is None:
                bend = shared[link.source, row] = Box("bend", row=row)
                bends.append(bend)
            _connect(last, bend)
            way.append(bend)
            last = bend
        _connect(last, link.target)
        edges.append(Edge(link.source, link.target, tuple(way), link.text))
    return edges, bends


def _connect(upper: Box, lower: Box) -> None:
    if lower not in upper.below:
        upper.below.append(lower)
        lower.above.append(upper)


def _rows(boxes: Sequence[Box]) -> list[list[Box]]:
    rows: dict[int, list[Box]] = {}
    for box in boxes:
        rows.setdefault(box.row, []).append(box)
    return [rows[number] for number in sorted(rows)]


def _order(rows: Sequence[list[Box]]) -> None:
    """Each row by the mean place of its neighbours above, then of those below, a few times."""
    for row in rows:
        _number(row)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            means = {box: _mean(box.above if down else box.below, box.x) for box in row}
            row.sort(key=means.__getitem__)
            _number(row)


def _number(row: Sequence[Box]) -> None:
    for place, box in enumerate(row):
        box.x = place - len(row) / 2


def _mean(neighbours: Sequence[Box], otherwise: float) -> float:
    return sum(box.x for box in neighbours) / len(neighbours) if neighbours else otherwise


def _boxes_first(neighbours: Sequence[Box]) -> Sequence[Box]:
    """The boxes among neighbours if there are any: a chain of kernels shall be straight, edges may bend."""
    return [box for box in neighbours if box.kind != "bend"] or neighbours


def _place(rows: Sequence[list[Box]]) -> float:
    """Set x so that boxes do not touch and stand under their neighbours where they can; returns the whole width."""
    for row in rows:
        _spread(row, [0.0] * len(row))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            _spread(row, [_mean(_boxes_first(box.above if down else box.below), box.x) for box in row])
    boxes = [box for row in rows for box in row]
    left = min((box.x - box.width / 2 for box in boxes), default=0.0) - _GAP
    for box in boxes:
        box.x -= left
    return max((box.x + box.width / 2 for box in boxes), default=0.0) + _GAP


def _spread(row: Sequence[Box], wanted: Sequence[float]) -> None:
    """Put boxes near the places wanted, in their order and without overlap: the mean of pushing right and left."""
    to_right, to_left = list(wanted), list(wanted)
    for place in range(1, len(row)):
        to_right[place] = max(wanted[place], to_right[place - 1] + _distance(row[place - 1], row[place]))
    for place in range(len(row) - 2, -1, -1):
        to_left[place] = min(wanted[place], to_left[place + 1] - _distance(row[place], row[place + 1]))
    for box, right, left in zip(row, to_right, to_left, strict=True):
        box.x = (right + left) / 2


def _distance(left: Box, right: Box) -> float:
    return (left.width + right.width) / 2 + _GAP


def _set_heights(rows: Sequence[Sequence[Box]]) -> float:
    y = _ROW_GAP
    for row in rows:
        height = max(box.height for box in row)
        for box in row:
            box.y = y + (height - box.height) / 2 if box.kind != "bend" else y
        y += height + _ROW_GAP
    return y
