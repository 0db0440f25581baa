"""The order of nodes: producers stand in front of those who read what they give, and nobody waits for himself."""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.model.checker.nodes import describe, reads
from jitonnx.proto import NodeProto


def sorted_nodes(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """The nodes of a body without a cycle, producers before their users, else in the order given."""
    order, _ = _sorted(_needs(nodes))
    return [nodes[position] for position in order]


def cycle(nodes: Sequence[NodeProto]) -> list[int]:
    """The places of nodes of which each gives what the next one reads, the last what the first one reads; [] if there
    are none."""
    needs = _needs(nodes)
    _, start = _sorted(needs)
    return [] if start is None else _shortest(needs, start)


def drawn(nodes: Sequence[NodeProto], places: Sequence[int]) -> str:
    """A cycle for people."""
    shown = [describe(nodes[place]) for place in places[:_SHOWN]]
    if len(places) > _SHOWN:
        shown.append(f"… ({len(places) - _SHOWN} more)")
    return " -> ".join([*shown, describe(nodes[places[0]])])


_SHOWN = 10
"""How many nodes of a cycle are named."""


def _needs(nodes: Sequence[NodeProto]) -> list[list[int]]:
    """The places of the nodes whose outputs each node reads."""
    producer: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in node.output:
            if name:
                producer.setdefault(name, position)
    return [[producer[name] for name in reads(node) if name in producer] for node in nodes]


def _sorted(needs: list[list[int]]) -> tuple[list[int], int | None]:
    """The places with needs first, and a place on a cycle if there is one, in which case the order is not whole."""
    order: list[int] = []
    state = [0] * len(needs)  # 1: being visited, 2: placed
    following = [0] * len(needs)  # how many of a node's needs were looked at
    for start in range(len(needs)):
        stack = [start]
        while stack:
            position = stack[-1]
            if state[position] == 2:
                stack.pop()
                continue
            state[position] = 1
            if following[position] == len(needs[position]):
                state[position] = 2
                order.append(position)
                stack.pop()
                continue
            need = needs[position][following[position]]
            following[position] += 1
            if state[need] == 1:
                return order, position
            if not state[need]:
                stack.append(need)
    return order, None


def _shortest(needs: list[list[int]], start: int) -> list[int]:
    """The shortest cycle through `start`, each needed by the next."""
    came: dict[int, int] = {}
    frontier = [start]
    while frontier and start not in came:
        found = []
        for position in frontier:
            for need in needs[position]:
                if need not in came:
                    came[need] = position
                    found.append(need)
        frontier = found
    path = [start]
    while came[path[-1]] != start:
        path.append(came[path[-1]])
    return path
