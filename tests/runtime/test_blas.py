"""How many threads NumPy's BLAS takes in runs on NumPy."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from jitonnx.runtime import blas
from tests.forking import forked


def threads_of_blas() -> int:
    """How many threads NumPy's BLAS takes now."""
    found = blas._blas()
    if found is None:
        pytest.skip(f"NumPy calls another BLAS than OpenBLAS here: {np.show_config(mode='dicts')}")
    return int(found.get())


@pytest.fixture
def four() -> None:
    """A BLAS that takes four threads, whatever the machine."""
    found, before = blas._blas(), threads_of_blas()
    assert found is not None
    found.set(4)
    yield
    found.set(before)


def test_numpy_wheels_have_a_blas_that_is_known() -> None:
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    assert (blas._blas() is not None) == ("openblas" in built)


@pytest.mark.usefixtures("four")
def test_the_least_number_holds_until_the_last_block_ends() -> None:
    with blas.limited(3):
        assert threads_of_blas() == 3
        with blas.limited(1):
            assert threads_of_blas() == 1
        with blas.limited(8):
            assert threads_of_blas() == 3
        inside, leave = threading.Event(), threading.Event()

        def other() -> None:
            with blas.limited(2):
                inside.set()
                leave.wait(60)

        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(60)
    assert threads_of_blas() == 2
    leave.set()
    thread.join()
    assert threads_of_blas() == 4


@pytest.mark.usefixtures("four")
def test_an_error_ends_a_block() -> None:
    with pytest.raises(ValueError, match="wrong"), blas.limited(1):
        raise ValueError("something is wrong")
    assert threads_of_blas() == 4


@pytest.mark.usefixtures("four")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_has_no_part_in_blocks_of_other_threads() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with blas.limited(1):
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    with blas.limited(3):
        forked(lambda: threads_of_blas() == 3)
    forked(lambda: threads_of_blas() == 4)
    leave.set()
    thread.join()
