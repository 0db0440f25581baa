"""Runs finished programs: loads their object code, holds their memory and threads, and calls their kernels.

The modules in the order in which a program passes through them:

| module | what it does |
|---|---|
| `program` | what a program is: plain data |
| `cache` | object code on disk |
| `loader` | object code in memory |
| `driver` | the native functions that carry out a run, made once a process from `native/` |
| `threads` | the team of threads that a run shares its work with; how many CPUs this process may use |
| `executable` | a program made ready: its tables, arenas, and `run` |
| `entry` | the whole of `run` as one native function |
| `artifact`, `artifact_writer` | programs, code and constants in one file: opening it, writing it |
| `linker`, `mapping` | code for artifacts: linked ahead, put into memory without LLVM |
| `cpu`, `trust` | whether this machine can run an artifact, and who can have written it |

Nothing here imports the planner or the code generator, so that a saved model runs without them. docs/runtime.md
explains a run from beginning to end, docs/artifacts.md what artifacts are.
"""
