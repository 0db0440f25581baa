"""What holds for all tests: a machine and a kernel cache of their own, defects raised, Hypothesis without deadlines."""

import os
import tempfile
import zlib
from math import ceil

import pytest
from hypothesis import settings

from jitonnx.ir.defects import STRICT
from tests.machines import MACHINES, USUAL, pretend

CACHE_VARIABLE = "JITONNX_CACHE_DIR"

# What a user is only warned of fails a test. Processes that tests start inherit the variable.
os.environ[STRICT] = "1"

# The first call of a compiled kernel takes as long as compiling it, which says nothing about the example.
settings.register_profile("jitonnx", deadline=None)
settings.load_profile("jitonnx")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--machine", default=USUAL, choices=MACHINES, help="what to take this machine for")


@pytest.hookimpl(tryfirst=True)  # before cases are chosen by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow all but a few cases of the tests with many that a kernel is compiled for. Which are left goes by a
    digest of their names, as each n-th would leave out the same values of a parameter."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of_one in cases.values():
        (every,) = of_one[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        of_one.sort(key=lambda item: zlib.crc32(item.nodeid.partition("[")[2].encode()))
        for item in of_one[ceil(len(of_one) / every) :]:
            item.add_marker(pytest.mark.slow)


def pytest_configure(config: pytest.Config) -> None:
    """Give the test run a machine, so that no result goes by the one that is there, and a kernel cache of its own, so
    that it neither uses nor fills the user's.

    pytest-xdist's workers inherit the variable and so share the cache. A variable that is set already is respected.
    """
    pretend(config.getoption("--machine"))
    if CACHE_VARIABLE in os.environ:
        return
    cache = tempfile.TemporaryDirectory(prefix="jitonnx-test-cache-")
    os.environ[CACHE_VARIABLE] = cache.name

    def remove() -> None:
        del os.environ[CACHE_VARIABLE]
        cache.cleanup()

    config.add_cleanup(remove)
