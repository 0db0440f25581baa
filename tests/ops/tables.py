"""All tables of cases at once: for tests that go through every declared operator."""

import importlib
from pathlib import Path

from tests.ops.harness import Case


def all_cases() -> list[Case]:
    """Every case of every table beside this module, in a fixed order."""
    found: list[Case] = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.ops.{path.stem}")
        for name, table in sorted(vars(module).items()):
            if isinstance(table, list) and name.isupper():
                found += [entry for entry in table if isinstance(entry, Case)]
    return found
