"""Random models of loops within loops and choices, for tests by difference.

    model, feeds = random_loops(seed, depth)

Each graph has values of its own, `float[n]` and, where a cache grows, `float[k, n]`; its loops and choices read those
of the graphs around it, too. Trip counts are inputs of the model, so runs differ in them. They may be 0 where `n` is a
number: of stacks without rows onnxruntime takes open sizes to be 0, and refuses what is done with these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.session.bodies import bytes_of, constant, graph
from tests.session.models import BOOL, FLOAT, INT64, node, tensor

TRIPS = ("m0", "m1", "m2")
WIDTH = 3


class _Writer:
    """The nodes of one graph; names are unique in the whole model."""

    count = 0

    def __init__(self, rng: np.random.Generator, seen: Sequence[str], size: Any) -> None:
        self.rng, self.nodes, self.values, self.size = rng, list[Any](), list(seen), size
        self.own: list[str] = []

    def name(self) -> str:
        _Writer.count += 1
        return f"v{_Writer.count}"

    def pick(self) -> str:
        """A value of this graph or one around it, its own ones more often."""
        if self.own and self.rng.random() < 0.7:
            return str(self.rng.choice(self.own))
        return str(self.rng.choice(self.values))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = self.name()
        self.nodes.append(node(operator, list(inputs), [name], **attributes))
        return name

    def keep(self, name: str) -> str:
        self.values.append(name)
        self.own.append(name)
        return name

    def constant(self, value: Any, kind: int) -> str:
        name = self.name()
        self.nodes.append(constant(name, value, kind))
        return name

    def elementwise(self) -> str:
        operator = self.rng.choice(["Add", "Sub", "Max", "Tanh", "Sigmoid", "product"])
        if operator == "product":
            return self.keep(self.add("Tanh", self.add("MatMul", self.pick(), "w")))
        inputs = [self.pick()] if operator in ("Tanh", "Sigmoid") else [self.pick(), self.pick()]
        return self.keep(self.add(str(operator), *inputs))

    def truth(self) -> str:
        """A truth value of this graph."""
        total = self.add("ReduceSum", self.pick(), keepdims=0)
        return self.add("Greater", total, self.constant(float(self.rng.normal()), FLOAT))

    def choice(self, depth: int) -> str:
        branches = []
        for _ in range(2):
            branch = _Writer(self.rng, self.values, self.size)
            branch.fill(depth)
            out = branch.add("Add", branch.pick(), branch.pick())
            branches.append(graph(branch.nodes, [], [tensor(out, None)], branch.name()))
        condition, name = self.truth(), self.name()
        self.nodes.append(node("If", [condition], [name], then_branch=branches[0], else_branch=branches[1]))
        return self.keep(name)

    def loop(self, depth: int) -> str:
        """A Loop with one or two states of n elements, perhaps a cache that grows, and rows."""
        rng, body = self.rng, _Writer(self.rng, self.values, self.size)
        grows, states = rng.random() < 0.5, int(rng.integers(1, 3))
        carried = [body.keep(body.name()) for _ in range(states)]
        number, told, cache = body.name(), body.name(), body.name()
        as_float = body.add("Cast", number, to=FLOAT)
        body.keep(body.add("Add", carried[0], as_float))
        if grows:
            zero = body.constant([0], INT64)
            seen = body.add("ReduceMean", body.add("Tanh", cache), zero, keepdims=0)
            body.keep(body.add("Add", seen, carried[-1]))
        body.fill(depth)
        # States may change places.
        handed = [str(one) for one in rng.permutation([*carried, *body.own])[: states - 1]]
        handed.append(body.add("Tanh", body.add("Add", carried[0], body.pick())))
        results = [body.add("Identity", one) for one in rng.permutation(handed)]
        outputs = [tensor(one, None) for one in results]
        initial = [self.pick() for _ in range(states)]
        inputs = [tensor(one, (self.size,)) for one in carried]
        if grows:
            row = body.add("Unsqueeze", body.pick(), body.constant([0], INT64))
            grown = body.add("Concat", cache, row, axis=0)
            outputs.append(tensor(grown, None))
            initial.append(self.add("Unsqueeze", self.pick(), self.constant([0], INT64)))
            inputs.append(tensor(cache, ("k", self.size)))
        row = body.add("Identity", body.pick())
        early = rng.random() < 0.4
        condition_out = body.truth() if early else body.add("Identity", told)
        graph_of = graph(
            body.nodes,
            [tensor(number, [], INT64), tensor(told, [], BOOL), *inputs],
            [tensor(condition_out, [], BOOL), *outputs, tensor(row, None)],
            body.name(),
        )
        names = [self.name() for _ in range(len(outputs) + 1)]
        trips = str(rng.choice(TRIPS))
        self.nodes.append(node("Loop", [trips, "", *initial], names, body=graph_of))
        for one in names[:states]:
            self.keep(one)
        # Rows and caches come back as sums: there may be none.
        for one in names[states:]:
            self.keep(self.add("ReduceSum", one, self.constant([0], INT64), keepdims=0))
        return names[0]

    def scan(self, depth: int) -> str:
        """A Scan over the rows of the model's input `z`."""
        rng, body = self.rng, _Writer(self.rng, self.values, self.size)
        state, element = body.keep(body.name()), body.keep(body.name())
        body.fill(depth)
        new = body.add("Tanh", body.add("Add", state, body.pick()))
        row = body.add("Identity", body.pick())
        back = [int(rng.integers(2)) for _ in range(2)]
        inner = graph(
            body.nodes,
            [tensor(state, (self.size,)), tensor(element, (self.size,))],
            [tensor(new, None), tensor(row, None)],
            body.name(),
        )
        names = [self.name(), self.name()]
        attributes = {"scan_input_directions": back[:1], "scan_output_directions": back[1:]}
        self.nodes.append(node("Scan", [self.pick(), "z"], names, body=inner, num_scan_inputs=1, **attributes))
        first = self.constant([0], INT64)
        last = self.add("Slice", names[1], first, self.constant([1], INT64), first)
        self.keep(self.add("ReduceSum", last, first, keepdims=0))
        return self.keep(names[0])

    def fill(self, depth: int) -> None:
        """Nodes; those with bodies go `depth` levels deeper."""
        for _ in range(int(self.rng.integers(1, 3))):
            self.elementwise()
        if depth:
            make = (self.loop, self.loop, self.scan, self.choice)[int(self.rng.integers(4))]
            make(depth - 1)
            self.elementwise()


def random_loops(seed: int, depth: int, fixed: bool) -> tuple[bytes, list[dict[str, Any]]]:
    """A model whose loops nest `depth` deep, and feeds of it: other sizes unless `fixed`, other trip counts."""
    rng = np.random.default_rng(seed)
    size: Any = WIDTH if fixed else "n"
    writer = _Writer(rng, ["x", "y"], size)
    writer.loop(depth - 1)
    writer.fill(0)
    shapes = {"x": (size,), "y": (size,), "z": ("t", size), "w": (size, size)}
    inputs = [tensor(name, shape) for name, shape in shapes.items()]
    inputs += [tensor(name, [], INT64) for name in TRIPS]
    model = bytes_of(writer.nodes, inputs, [tensor(name, None) for name in writer.own[-3:]])
    feeds = []
    for number in range(4):
        n, t = (WIDTH, 4) if number < 2 or fixed else (int(rng.integers(1, 6)), int(rng.integers(1, 5)))
        sizes = {"n": n, "t": t, WIDTH: WIDTH}
        feed: dict[str, Any] = {
            name: rng.standard_normal([sizes[size] for size in shape]).astype(np.float32)
            for name, shape in shapes.items()
        }
        feed |= {name: np.array(int(rng.integers(0 if number and fixed else 1, 4))) for name in TRIPS}
        feeds.append(feed)
    return model, feeds
