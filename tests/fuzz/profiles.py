"""The kinds of models that are drawn, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import parametric
from tests.fuzz.growing import FUSION_SIZES, Growing, Model
from tests.fuzz.steps import BODIES, FUSION, STEPS

TYPES = (
    *(("float32",), ("float32",), ("float16", "float32"), ("bfloat16", "float32")),
    *(("int8", "uint8", "float32"), ("float32", "bool", "int64")),
)


def general(seed: int) -> Growing:
    """A graph of 5 to 30 nodes of all operators, and of nodes that run graphs."""
    growing = Growing(seed)
    begin(growing)
    steps = STEPS | BODIES
    growing.grow(list(steps), list(steps.values()), growing.number(5, 30))
    return growing


def fusion(seed: int) -> Growing:
    """A graph of 3 to 14 nodes of what is fused, with sizes at the edges of vectors."""
    rest = seed % len(TYPES)
    growing = Growing(seed, types=TYPES[rest], sizes=FUSION_SIZES, sets=1 if seed % 4 == 3 else 3)
    begin(growing)
    growing.grow(list(FUSION), list(FUSION.values()), growing.number(3, 14))
    return growing


def begin(growing: Growing) -> None:
    """Inputs, of which one holds floating-point numbers."""
    for _ in range(growing.number(1, 3)):
        growing.input()
    if not any(value.type.startswith(("float", "bfloat")) for value in growing.values):
        growing.input("float32", growing.number(1, 4))


GROWN: dict[str, Callable[[int], Growing]] = {"general": general, "fusion": fusion}
PROFILES: tuple[str, ...] = (*GROWN, "parametric")


def draw(profile: str, seed: int) -> Model:
    """The model of a seed. Left if it has no outputs."""
    return parametric.draw(seed) if profile == "parametric" else GROWN[profile](seed).finish()


def level(seed: int) -> int:
    """Which optimisation level a seed is judged at: rewrites are off in every third."""
    return 0 if seed % 3 == 1 else 99


def again(seed: int) -> bool:
    """Whether a seed is judged with a filled cache as well."""
    return seed % 5 == 0
