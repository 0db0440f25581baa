"""All tables of cases at once: for tests that go through every declared operator."""

import importlib
from pathlib import Path

from tests.ops.harness import Case


def all_cases() -> list[Case]:
    """Every case of every table in this folder and those of the domains, in a fixed order."""
    found: list[Case] = []
    root = Path(__file__).parent
    for path in sorted(root.rglob("test_*.py")):
        module = importlib.import_module(".".join(["tests.ops", *path.relative_to(root).with_suffix("").parts]))
        for name, table in sorted(vars(module).items()):
            if isinstance(table, list) and name.isupper():
                found += [entry for entry in table if isinstance(entry, Case)]
    return found
