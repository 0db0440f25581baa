"""What the innermost loops of a kernel's assembly hold, for x86-64 and AArch64."""

from __future__ import annotations

import re
from typing import NamedTuple

from jitonnx.target.machine import Target

_STACK = {"x86_64": ("(%rsp", "movq\t%rsp, %rbp", "(%rbp"), "aarch64": ("[sp", "x29, sp", "[x29")}
"""How the stack is addressed, what makes a second register address it, and how that one does."""


class Loop(NamedTuple):
    """One loop without another label in it. text: its assembly."""

    text: str
    multiply_adds: int
    stack_accesses: int
    """Instructions that address the stack: loads and stores of what found no register."""
    spilled_vectors: int
    """Those of them that load or store a vector; the others, of addresses, do not wait for the multipliers."""
    instructions: int


def multiplying_loops(text: str, target: Target) -> list[Loop]:
    """The loops in which whole vectors of floats are multiplied and added, of a kernel's assembly for a target."""
    wide = {16: "%xmm", 32: "%ymm", 64: "%zmm"}[target.vector_bytes]
    return innermost_loops(
        text, r"\tfmla\t.*v\d+\.(4s|2d)" if target.on_arm else rf"\tvfn?madd\w+p[sd]\t.*{wide}", target
    )


def innermost_loops(text: str, multiply_add: str, target: Target) -> list[Loop]:
    """The loops without another label in them that have instructions which a regular expression tells."""
    stack, framed, frame = _STACK["aarch64" if target.on_arm else "x86_64"]
    jump = r"\tb\.\w+\t" if target.on_arm else r"\tj\w+\t"
    spilled = re.compile(r"\b[qv]\d+" if target.on_arm else r"%[xyz]mm")
    places = (stack, frame) if framed in text else (stack,)
    found = []
    for block in re.split(r"^(?=\.?L\w+:)", text, flags=re.MULTILINE):
        label = block.partition(":")[0]
        jumps = list(re.finditer(rf"^{jump}{re.escape(label)}$", block, flags=re.MULTILINE))
        if not jumps:
            continue
        body = block[: jumps[-1].end()]
        lines = [line for line in body.splitlines() if line.startswith("\t") and line[1] not in "./#"]
        count = sum(bool(re.match(multiply_add, line)) for line in lines)
        stacked = [line for line in lines if any(place in line for place in places)]
        if count:
            vectors = sum(bool(spilled.search(line)) for line in stacked)
            found.append(Loop(body, count, len(stacked), vectors, len(lines)))
    return found
