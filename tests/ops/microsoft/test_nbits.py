"""Matrices of few bits an element, against onnxruntime."""

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jitonnx.ops.microsoft.nbits import unpacked
from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-4)
RANDOM = np.random.default_rng(5)


def product(
    shape: tuple[int, ...], n: int, bits: int, block: int, zeros: str = "", bias: bool = False, **options: Any
) -> Case:
    """A random product of a matrix [n, shape[-1]]."""
    k = shape[-1]
    blocks = -(-k // block)
    a = RANDOM.normal(size=shape).astype(np.float32)
    b = RANDOM.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    scales = RANDOM.normal(size=(n, blocks)).astype(np.float32)
    z = None
    if zeros == "packed":
        z = RANDOM.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8)
    elif zeros == "float":
        z = (RANDOM.normal(size=(n, blocks)) + (1 << (bits - 1))).astype(np.float32)
    groups, dtype = options.pop("groups", None), options.pop("dtype", np.float32)
    added = RANDOM.normal(size=n).astype(np.float32) if bias else None
    if zeros == "packed" and (groups is not None or block > 256):
        # onnxruntime, where g_idx is deprecated, takes other zero points, and has no blocks of more than 256.
        numbers = unpacked(b.reshape(n, -1), bits)[:, :k].astype(np.float64)
        of = np.arange(k) // block if groups is None else groups.astype(int)
        w = (numbers - unpacked(z, bits)[:, :blocks].astype(np.float64)[:, of]) * scales.astype(np.float64)[:, of]
        options["expected"] = (a @ w.T).astype(np.float32)
    inputs: list[Any] = [a, b, scales, z, groups, added]
    inputs = [x.astype(dtype) if x is not None and x.dtype == np.float32 else x for x in inputs]
    while inputs[-1] is None:
        inputs.pop()
    return case(
        "MatMulNBits",
        1,
        *inputs,
        **{"constants": tuple(range(1, len(inputs))), "K": k, "N": n, "bits": bits, "block_size": block, **options},
    )


def shuffled_groups(k: int, block: int) -> np.ndarray:
    return RANDOM.permutation(np.arange(k) // block).astype(np.int32)


CASES: list[Case] = [
    *(product((1, 96), 70, bits, 32, zeros) for bits in (2, 4, 8) for zeros in ("", "packed")),
    *(product((2, 3, 100), 33, bits, 32, zeros) for bits in (2, 4, 8) for zeros in ("", "packed")),
    *(product((4, 64), 20, bits, 16, "float") for bits in (2, 4)),
    *(product((11, 300), 40, 4, block, "packed", bias=True) for block in (16, 64, 128, 256)),
    product((37, 40), 130, 4, 32),
    product((2, 700), 20, 4, 512, "packed"),
    product((64,), 20, 4, 32),
    product((2, 0, 64), 20, 4, 32),
    product((1, 64), 20, 4, 32, accuracy_level=1, bias=True),
    product((1, 96), 24, 4, 32, "packed", groups=shuffled_groups(96, 32)),
    product((5, 96), 24, 4, 32, groups=np.sort(RANDOM.integers(0, 3, 96)).astype(np.int32)),
    product((3, 96), 24, 4, 32, groups=(np.arange(96) // 32).astype(np.int32)),
    product((3, 96), 24, 4, 32, "packed", constants=()),
    product((3, 64), 24, 2, 32, "float", constants=()),
    product((3, 64), 24, 8, 32, constants=(), bias=True),
    product((1, 96), 70, 4, 32, "packed", bias=True, dtype=np.float16),
    product((12, 96), 70, 8, 32, dtype=np.float16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_n_bits(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("rows", [1, 8, 9, 40])
def test_accuracy_levels(level: int, rows: int) -> None:
    """Many rows may be rounded to bfloat16 from level 3 on, and all are quantised to int8 at level 4, as onnxruntime
    does: by up to 1 / 254 of a block's largest element."""
    exact = level < 3 or (level < 4 and rows <= 8)
    error: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4} if exact else {"rtol": 0.02, "atol": 3.0}
    check(product((rows, 160), 50, 4, 32, "packed", bias=True, accuracy_level=level, **error))


REFUSED = [
    (product((1, 72), 20, 4, 24), "block_size is 24"),
    (product((1, 64), 20, 3, 32), "bits is 3"),
    (product((1, 64), 20, 4, 32, K=65), "last size is to be K"),
    (product((1, 64), 20, 4, 32, N=21), "B is uint8"),
    (product((1, 64), 20, 4, 32, weight_prepacked=1), "laid out for GPUs"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)


def table(bits: int, block: int, zeros: bool, indices: tuple[int, ...], dtype: Any = np.float32) -> Case:
    """Rows of a table of uint8."""
    rows, width = 11, 72
    blocks = -(-width // block)
    data = RANDOM.integers(0, 256, (rows, width * bits // 8), np.uint8)
    scales = RANDOM.normal(size=(rows, blocks)).astype(dtype)
    inputs: list[Any] = [data, RANDOM.integers(0, rows, indices), scales]
    if zeros:
        inputs.append(RANDOM.integers(0, 256, (rows, -(-blocks * bits // 8)), np.uint8))
    constants = (0, 2, 3)[: len(inputs) - 1]
    return case("GatherBlockQuantized", 1, *inputs, constants=constants, bits=bits, block_size=block)


def table_of_4_bits(dtype: Any, axes: tuple[int, int], zeros: bool) -> Case:
    low, shape, block = (-8 if dtype is ml_dtypes.int4 else 0), (6, 40, 5), 16
    gathered, blocked = axes
    of_blocks = [-(-size // block) if axis == blocked else size for axis, size in enumerate(shape)]
    inputs: list[Any] = [
        RANDOM.integers(low, low + 16, shape).astype(dtype),
        RANDOM.integers(0, shape[gathered], (2, 3)).astype(np.int32),
        RANDOM.normal(size=of_blocks).astype(np.float32),
    ]
    if zeros:
        inputs.append(RANDOM.integers(low, low + 16, of_blocks).astype(dtype))
    options = {"gather_axis": gathered, "quantize_axis": blocked, "block_size": block}
    return case("GatherBlockQuantized", 1, *inputs, constants=(0, 2, 3)[: len(inputs) - 1], **options)


def bits_and_bytes(shape: tuple[int, ...], n: int, kind: int, block: int = 16) -> Case:
    count = n * shape[-1]
    a = RANDOM.normal(size=shape).astype(np.float32)
    b = RANDOM.integers(0, 256, -(-count // 2), np.uint8)
    factors = RANDOM.uniform(0.1, 2, -(-count // block)).astype(np.float32)
    options = {"K": shape[-1], "N": n, "block_size": block, "quant_type": kind}
    return case("MatMulBnb4", 1, a, b, factors, constants=(1, 2), **options)


OTHERS = [
    *(table(bits, 16, zeros, (2, 3)) for bits in (4, 8) for zeros in (False, True)),
    table(4, 32, True, (5,)),
    *(
        table_of_4_bits(dtype, axes, zeros)
        for dtype in (ml_dtypes.int4, ml_dtypes.uint4)
        for axes, zeros in (((0, 1), False), ((0, 1), True), ((2, 1), True))
    ),
    *(bits_and_bytes((2, 3, 32), 12, kind) for kind in (0, 1)),
]


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_tables(case: Case) -> None:
    check(case)
