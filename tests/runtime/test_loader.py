"""Object code in memory: found by symbol, refused when damaged, loaded in little time."""

import ctypes
import time

import pytest

from jitonnx.runtime.loader import CodeImage, LoadError, load
from jitonnx.runtime.native.functions import EXTERNAL, FunctionBuilder
from tests.runtime.kernels import SYMBOLS, compile_module, new_module, object_code


def _constant(name: str, value: int) -> bytes:
    module = new_module()
    FunctionBuilder(module, f"i64 {name}()", exported=True).give(value)
    return compile_module(module)


def _call(image: CodeImage, symbol: str) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(image[symbol])()


def test_mapping() -> None:
    image = load([object_code()], ["scale", "add"])
    assert sorted(image) == ["add", "scale"] and len(image) == 2 and "burn" not in image
    assert all(address > 0 for address in image.values())


def test_several_objects_and_several_images() -> None:
    image = load([_constant("first", 1), _constant("second", 2)], ["first", "second"])
    other = load([_constant("first", 3)], ["first"])
    assert (_call(image, "first"), _call(image, "second"), _call(other, "first")) == (1, 2, 3)
    del other
    assert _call(image, "first") == 1


def test_nothing_to_load() -> None:
    assert len(load([], [])) == 0


def test_damaged_code_is_refused() -> None:
    good = object_code()
    for bad in (b"", b"not an object", good[: len(good) // 2]):
        with pytest.raises(LoadError, match="clear the kernel cache"):
            load([bad], SYMBOLS)


def test_missing_symbols_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoadError, match="no_such_kernel"):
        load([object_code()], ["no_such_kernel"])
    monkeypatch.setitem(EXTERNAL, "no_such_function", "i64 no_such_function()")
    module = new_module()
    code = FunctionBuilder(module, "i64 calls()", exported=True)
    code.give(code.call("no_such_function"))
    with pytest.raises(LoadError):
        load([compile_module(module)], ["calls"])


def test_load_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed, and bounded loosely: a few hundred objects are loaded in well under a second on any machine."""
    names = [f"kernel_{number}" for number in range(100)]
    objects = [_constant(name, number) for number, name in enumerate(names)]
    started = time.perf_counter()
    image = load(objects, names)
    seconds = time.perf_counter() - started
    with capsys.disabled():
        print(f"\nloading: {seconds / len(objects) * 1e3:.2f} ms an object ({len(objects[0])} bytes each)")
    assert _call(image, "kernel_42") == 42
    assert seconds < 2
