"""Broken models neither crash nor hang nor end in an error that is not ours; more of them by hand, see `mutations`."""

import pytest

from tests.models.mutations import bases, fault, mutated

MODELS, TOGETHER = 120, 12
"""How many models there are here, and in one test."""


@pytest.mark.parametrize("first", range(0, MODELS, TOGETHER))
def test_mutated_models(first: int) -> None:
    bases()  # made once, in this process and not in each
    found = {seed: fault(seed) for seed in range(first, first + TOGETHER)}
    wrong = {f"seed {seed}, {mutated(seed)[2]}": said for seed, said in found.items() if said != "right"}
    assert not wrong, "\n".join(f"{name}: {said}" for name, said in wrong.items())
