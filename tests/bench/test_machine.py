"""The machine's limits: the kernels do what their rates are computed from, and the description is complete."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import machine
from jitonnx.target.cpu import available
from tests.targets import ON_X86_64


@pytest.mark.parametrize("lanes", [machine.vector_lanes(), 4])
def test_fma_kernel_steps_every_chain(lanes):
    size = lanes * 12
    state = machine._aligned(size)
    machine._fma_kernel(lanes, 12).call(state.ctypes.data, 3)
    np.testing.assert_array_equal(state, np.full(size, 1.875, np.float32))  # 1 -> 1.5 -> 1.75 -> 1.875


@pytest.mark.parametrize("kernel", ["copy", "copy_streaming"])
def test_copy_kernel_copies_all_and_no_more(kernel):
    size = 3 * machine.vector_lanes() * machine.UNROLL
    source, target = machine._aligned(size), machine._aligned(size + machine.vector_lanes())
    source[:] = np.arange(size)
    getattr(machine._kernels(), kernel)(target.ctypes.data, source.ctypes.data, 3, 2)
    np.testing.assert_array_equal(target[:size], source)
    np.testing.assert_array_equal(target[size:], 1)


def test_read_kernel_reads_all():
    size = 3 * machine.vector_lanes() * machine.UNROLL
    source, target = machine._aligned(size), machine._aligned(size // 3)
    source.view(np.uint32)[:] = np.random.default_rng(0).integers(0, 2**32, size, np.uint32)
    machine._kernels().read(target.ctypes.data, source.ctypes.data, 3, 2)
    expected = np.bitwise_xor.reduce(source.view(np.uint32).reshape(3, -1), 0)
    np.testing.assert_array_equal(target.view(np.uint32), expected)


def test_kernels_use_the_widest_vectors():
    text = machine.fma_ir("fma", machine.vector_lanes(), 2) + machine.copy_ir("copy", machine.vector_lanes())
    assert f"<{machine.vector_lanes()} x float>" in text
    assert machine.describe()["vector_bits"] == 32 * machine.vector_lanes()


def has_vnni() -> bool:
    return bool(available(("avx512vnni",)))


@pytest.mark.parametrize("threads", [1, 2])
def test_rates_are_plausible(threads):
    assert 0 < machine.fma_peak(threads, rounds=2) < 1000 * threads
    assert 0 < machine.fma_peak(threads, 2, "haswell" if ON_X86_64 else "host") < 1000 * threads
    assert 0 < machine.byte_peak(threads, rounds=2) < 20000 * threads
    assert 0 < machine.bfloat16_peak(threads, rounds=2) < 10000 * threads
    assert 0 < machine.byte_peak(threads, 2, "cascadelake" if has_vnni() else "host") < 20000 * threads
    for streaming in (False, True):
        assert 0 < machine.copy_bandwidth(1 << 20, threads, streaming=streaming, rounds=2) < 2000 * threads


def test_copy_refuses_a_working_set_below_one_step():
    with pytest.raises(ValueError, match=r"nbytes=64: 2 thread\(s\) need at least"):
        machine.copy_bandwidth(64, threads=2)


def test_arrays_lie_half_a_page_apart():
    for count in (16, 512, 1024, 5000):
        assert (count + machine._half_page_gap(count)) % 1024 == 512
        assert 0 <= machine._half_page_gap(count) < 1024


def test_threads_get_a_cpu_each_while_there_are_enough():
    allowed = machine.cores_allowed()
    assert len(machine._own_cpus(1)) == 1
    assert len(machine._own_cpus(1)[0]) == allowed
    assert len(machine._own_cpus(allowed + 1)) == allowed + 1


def test_description_names_what_the_figures_depend_on():
    description = machine.describe()
    assert description["cpu"]
    assert description["cores_allowed"] >= 1
    assert {"python", "numpy", "llvmlite"} <= description["versions"].keys()
    json.dumps(description)


def test_command_line_prints_json():
    command = [sys.executable, "-m", "bench.machine", "--json", "--threads", "1", "--rounds", "1"]
    root = Path(machine.__file__).parents[1]
    report = json.loads(subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout)
    assert report["limits"]["1"]["float32 FMA, GFLOP/s"] > 1
