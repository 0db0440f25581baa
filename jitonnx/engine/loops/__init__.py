"""Loops and Scans as native code, in two forms, which a loop's body chooses between.

*A repeated program* (`step.py`, `run.py`): the body is one native segment, and no more is done between two iterations
than to move addresses, some 30 ns. `planning.py` tells which bodies are so. Such a loop is one call, from Python
(`run.py`) or as one link of a chain (`observed.py`).

*Bytecode* (`bytecode.py`): the body is links of the chain that the loop is in: several segments, loops and choices,
of sizes that only a run tells. Its interpreter goes through some ten links and new arrays an iteration, 0.35 µs.

A loop of the first form within one of the second is written both ways, the other for inputs that its one link is not
for. docs/runtime.md has the figures by which there are two forms.
"""
