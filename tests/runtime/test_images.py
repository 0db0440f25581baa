"""Linked blocks in the kernel cache: found again, made again, and left to LLVM where they cannot be linked ahead."""

import ctypes
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jitonnx.runtime import driver, linker
from jitonnx.runtime.images import find_linked, load_linked
from jitonnx.runtime.linker import UnlinkableError
from jitonnx.runtime.loader import CodeImage, LoadError
from jitonnx.runtime.mapping import Linked
from jitonnx.runtime.native.functions import FunctionBuilder
from jitonnx.support.kernel_cache import KernelCache
from tests.runtime.kernels import SYMBOLS, compile_module, new_module, object_code


def constant(name: str, value: int) -> bytes:
    module = new_module()
    FunctionBuilder(module, f"i64 {name}()", exported=True).give(value)
    return compile_module(module)


def call(image: Mapping[str, int], symbol: str) -> int:
    result: int = ctypes.CFUNCTYPE(ctypes.c_int64)(image[symbol])()
    return result


def never() -> list[bytes]:
    raise AssertionError("what is in the cache is not asked for")


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path)


def test_found_again(cache: KernelCache) -> None:
    objects = [constant("one", 1), constant("two", 2)]
    assert find_linked(cache, ["one", "two"]) is None
    made = load_linked(cache, ["one", "two"], lambda: objects)
    again = load_linked(cache, ["two", "one", "one"], never)
    for image in (made, again):
        assert (call(image, "one"), call(image, "two"), sorted(image)) == (1, 2, ["one", "two"])
    assert find_linked(cache, ["one"]) is None and find_linked(cache, ["one", "two"], "another version") is None


def test_functions_of_libc(cache: KernelCache) -> None:
    """The tests' kernels call functions of the C library, whose addresses each process looks up anew."""
    load_linked(cache, SYMBOLS, lambda: [object_code()])
    assert set(load_linked(cache, SYMBOLS, never)) == set(SYMBOLS)


def test_no_functions(cache: KernelCache) -> None:
    assert dict(load_linked(cache, [], list)) == {}
    found = find_linked(cache, [])
    assert found is not None and dict(found) == {}


def test_damaged_blocks_are_made_again(cache: KernelCache) -> None:
    load_linked(cache, ["one"], lambda: [constant("one", 1)])
    (path,) = cache.directory.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert call(load_linked(cache, ["one"], lambda: [constant("one", 1)]), "one") == 1
    assert call(load_linked(cache, ["one"], never), "one") == 1


def test_left_to_llvm(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Linked:
        raise UnlinkableError("another system")

    monkeypatch.setattr(linker, "link", refuse)
    image = load_linked(cache, ["one"], lambda: [constant("one", 1)])
    assert isinstance(image, CodeImage) and call(image, "one") == 1
    assert cache.info().entries == 0
    with pytest.raises(LoadError):
        load_linked(cache, ["one"], lambda: [b"no object code"])


def test_threads_take_a_part_of_the_driver_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others wait for is there when it is their turn: taking it anew would end the code that runs are in."""
    driver.image("chains")
    taken: list[Mapping[str, int]] = []

    def found(*arguments: Any) -> Mapping[str, int] | None:
        taken.append(find_linked(*arguments) or {})
        return taken[-1]

    monkeypatch.setattr(driver, "_images", {})
    monkeypatch.setattr(driver, "_begun", set())  # an earlier test may have had it compiled in the background
    monkeypatch.setattr(driver, "find_linked", found)
    with driver._making:
        threads = [threading.Thread(target=driver.make_ahead, args=(["chains"],)) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)  # by which they wait
    for thread in threads:
        thread.join()
    assert len(taken) == 1 and driver._images["chains"] is taken[0]
