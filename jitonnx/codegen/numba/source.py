"""A kernel as the text of a Python function: what is compiled, and part of the key that it is kept by."""

from __future__ import annotations

from jitonnx.support.records import dataclass


@dataclass(frozen=True)
class Source:
    """A function in Python's text, and where its arguments come from when it is called as a kernel."""

    name: str
    text: str
    buffers: tuple[tuple[int, str, int], ...]
    """For each operand its place among the call's buffers, its NumPy type in memory, and how many elements the first
    one that is touched lies in front of where the buffer's pointer is."""
    sizes: tuple[int, ...]
    """The places of sizes among the call's."""
    has_tasks: bool
    """Whether it is told which tasks to do; else it does all, which are one."""
