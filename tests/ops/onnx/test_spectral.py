"""DFT, STFT, windows and the mel scale: lengths that factor or not, both sides, inverses, types."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def index(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def spectrum(x: np.ndarray, length: int, axis: int, *, inverse: bool = False, half: bool = False) -> np.ndarray:
    """What DFT gives, by NumPy in float64."""
    wide = x.astype(np.float64)
    numbers = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
    if inverse and half:
        return np.fft.irfft(numbers, length, axis)[..., None].astype(x.dtype)
    found = (np.fft.ifft if inverse else np.fft.fft)(numbers, length, axis)
    found = found.take(range(length // 2 + 1), axis) if half else found
    return np.stack([found.real, found.imag], -1).astype(x.dtype)


def dft(x: np.ndarray, axis: int = 1, length: int | None = None, *, inverse: bool = False, half: bool = False) -> Case:
    default = 2 * (x.shape[axis] - 1) if inverse and half else x.shape[axis]
    expected = spectrum(x, length or default, axis, inverse=inverse, half=half)
    flags = {"inverse": int(inverse), "onesided": int(half)}
    inputs = (x, None if length is None else index(length), index(axis))
    scale = np.sqrt(length or default)
    return case("DFT", 20, *inputs, constants=(1, 2), expected=expected, atol=3e-6 * scale, rtol=1e-4, **flags)


def stft(signal: np.ndarray, step: int, window: np.ndarray) -> Case:
    """Compare with NumPy in float64: onnxruntime's sums of many elements are off by 1e-3."""
    frames = np.lib.stride_tricks.sliding_window_view(signal.astype(np.float64), window.size, 1)[:, ::step] * window
    found = np.fft.rfft(frames)
    expected = np.stack([found.real, found.imag], -1).astype(signal.dtype)
    return case("STFT", 17, signal, index(step), window, constants=(1, 2), expected=expected, **LONG)


LONG = {"atol": 2e-4, "rtol": 1e-4}
CASES: list[Case] = [
    *(c for parts in (1, 2) for c in each_version("DFT", normal(2, 12, parts), atol=2e-5)),
    case("DFT", 17, normal(2, 12, 1), index(8), constants=(1,), atol=2e-5),
    *(dft(normal(2, n, parts)) for n in (1, 2, 7, 16, 100) for parts in (1, 2)),
    *(dft(normal(3, n, 1), half=True) for n in (1, 2, 9, 64)),
    *(dft(normal(2, n, parts), inverse=True) for n in (1, 6, 15) for parts in (1, 2)),
    *(dft(normal(2, n, 2), inverse=True, half=True) for n in (2, 5, 9)),
    dft(normal(2, 5, 2), length=9, inverse=True, half=True),
    *(dft(normal(2, 10, 1), length=n, half=half) for n in (4, 10, 16) for half in (False, True)),
    *(dft(normal(4, 5, 6, 2), axis=axis) for axis in (0, 1, 2)),
    dft(normal(16, 2), axis=0),
    # Longer than one product: even and odd factors, a prime, and one that is left to NumPy.
    *(dft(normal(1, n, parts)) for n in (600, 1024, 1001, 521) for parts in (1, 2)),
    dft(normal(2, 2048, 1), half=True),
    dft(normal(2, 513, 2), inverse=True, half=True),
    dft(normal(1, 4099, 1), half=True),
    dft(normal(2, 12, 2).astype(np.float64)),
    *(
        case("DFT", 20, normal(2, 12, 1).astype(t), onesided=1, rtol=2e-2, atol=2e-2)
        for t in (np.float16, ml_dtypes.bfloat16)
    ),
    case("DFT", 17, normal(2, 3, 8, 1), axis=2, onesided=1),
    *(
        case("STFT", 17, signal, index(step), window, None if length is None else index(length), constants=held, **LONG)
        for signal in (normal(2, 96), normal(1, 100, 1))
        for step, window, length in (
            (16, normal(32), None),
            (8, normal(24), 24),
            (5, normal(16), None),
            (7, None, 16),
            (100, None, 32),
        )
        for held in ((1, 2, 3), (1, 3))
    ),
    case("STFT", 17, normal(1, 64, 2), index(8), normal(16), constants=(1, 2), onesided=0, **LONG),
    case("STFT", 17, normal(1, 64), index(8), normal(16), constants=(1, 2), onesided=0, **LONG),
    stft(normal(2, 2000), 160, normal(400)),
    stft(normal(1, 3000), 256, normal(1024)),
    stft(normal(1, 64).astype(np.float64), 8, normal(16).astype(np.float64)),
    *(
        case(name, 17, index(size), periodic=periodic, constants=held, atol=2e-6)
        for name in ("HannWindow", "HammingWindow", "BlackmanWindow")
        for size in (2, 9, 64)
        for periodic in (0, 1)
        for held in ((), (0,))
    ),
    case("HannWindow", 17, np.array(8, np.int32), constants=(0,), output_datatype=11),
    case("HannWindow", 17, index(8), constants=(0,), output_datatype=10, rtol=1e-3, atol=1e-3),
    *(
        case("MelWeightMatrix", 17, *map(index, sizes), *map(np.float32, edges), constants=held, rtol=1e-4)
        for sizes, edges in (((8, 16, 8192), (0, 4096)), ((40, 512, 16000), (20, 8000)))
        for held in ((0, 1, 2, 3, 4), (0, 1))
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_spectral(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("DFT", 20, normal(8)), "no axis beside the last one"),
        (case("DFT", 20, normal(2, 8, 3)), "the size 3; allowed is 1 or 2"),
        (case("DFT", 20, normal(2, 8, 2), onesided=1), "two sides"),
        (case("DFT", 20, normal(2, 8, 1), None, index(2), constants=(2,)), "axis 2 is the last one"),
        (case("DFT", 20, normal(2, 8, 1), index(0), constants=(1,)), "dft_length is 0"),
        (case("STFT", 17, normal(8), index(2), constants=(1,)), r"\[batch, length\]"),
        (case("STFT", 17, normal(1, 8, 2), index(2), constants=(1,)), "onesided is set"),
        (case("STFT", 17, normal(1, 8), index(0), constants=(1,)), "frame_step is 0"),
        (case("STFT", 17, normal(1, 8), index(2), normal(3), index(4), constants=(1, 3)), "window has 3 elements"),
        (case("HannWindow", 17, index(-1), constants=(0,)), "size is -1"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)
