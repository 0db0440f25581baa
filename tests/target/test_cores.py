"""What cores do in a cycle: by kind where it is known, measured and kept where not."""

from pathlib import Path

import pytest

from jitonnx.target import calibration, cores
from jitonnx.target.cores import COOPER_LAKE, HALF_WIDTH, INTEL_SERVER, ZEN_4, ZEN_5, Core
from jitonnx.target.machine import host, named, of_any_architecture


@pytest.mark.parametrize(
    ("vendor", "family", "vector_bytes", "l2_bytes", "expected"),
    [
        ("GenuineIntel", "6", 64, 2 << 20, INTEL_SERVER),
        ("GenuineIntel", "6", 64, 512 << 10, None),  # a desktop's
        ("GenuineIntel", "6", 32, 2 << 20, INTEL_SERVER),
        ("AuthenticAMD", "25", 64, 1 << 20, ZEN_4),
        ("AuthenticAMD", "25", 32, 512 << 10, HALF_WIDTH),
        ("AuthenticAMD", "26", 64, 1 << 20, ZEN_5),
        ("CentaurHauls", "7", 32, 256 << 10, None),
        ("", "", 16, 512 << 10, None),
    ],
)
def test_known_kinds(vendor: str, family: str, vector_bytes: int, l2_bytes: int, expected: Core | None) -> None:
    assert cores._known(vendor, family, vector_bytes, l2_bytes) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("avx512_vnni", INTEL_SERVER), ("avx512_bf16", COOPER_LAKE), ("avx512_bf16 avx512_vbmi2", INTEL_SERVER)],
)
def test_cooper_lake_is_told_by_its_flags(flags: str, expected: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"vendor_id": "GenuineIntel", "cpu family": "6", "flags": f"avx512f {flags}"}
    monkeypatch.setattr(cores, "cpu_info", lambda: info)
    monkeypatch.setattr(cores, "this_machine", lambda: ("x86_64", "linux"))
    assert cores.core_of_host(64, 32, 1 << 20) == expected


def test_named_cpus_do_not_depend_on_this_machine() -> None:
    assert named("znver4").core == ZEN_4
    assert named("sapphirerapids").core == INTEL_SERVER
    assert named("haswell").core == INTEL_SERVER
    assert named("cooperlake").core == COOPER_LAKE
    assert named("znver3").core == HALF_WIDTH


def test_products_wait_for_the_third_level_cache_by_what_their_tiles_read() -> None:
    """A tile of 8 rows of NEON's vectors reads a quarter of the bytes an FMA that one of AVX-512 does."""
    assert named("sapphirerapids").waits_for_l3
    assert named("haswell").waits_for_l3
    assert not named("znver4").waits_for_l3
    arm = ("cortex-a72", "neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2", "apple-m1")
    assert not any(of_any_architecture(cpu).waits_for_l3 for cpu in arm)
    assert [of_any_architecture(cpu).core.fmas for cpu in arm] == [2, 2, 2, 4, 4, 4]


def test_unknown_cores_are_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cores, "cpu_info", lambda: {"vendor_id": "Another"})
    monkeypatch.setattr(calibration, "cpu_identity", lambda: "another")
    found = cores.core_of_host(host().vector_bytes, host().vector_registers, host().l2_bytes)
    assert found.fmas in range(1, 9)
    assert found.loads in range(1, 9)
    assert 0 < found.memory_bytes < 1000
    assert 0 < found.l3_bytes < 1000
    assert 0 <= found.bfloat16_rate < 16
    assert (found.bfloat16_rate > 0) == host().rounds_to_bfloat16
    monkeypatch.delattr(calibration, "_measured")
    assert cores.core_of_host(host().vector_bytes, host().vector_registers, host().l2_bytes) == found


def test_nothing_is_measured_where_choices_are_to_be_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(calibration.SWITCH, "0")
    monkeypatch.delattr(calibration, "_measured")
    assert calibration.calibrated(64, 32) == HALF_WIDTH


def test_the_microkernels_do_what_is_counted() -> None:
    lanes = host().vector_bytes // 4
    for text in (calibration.fma_ir("fma", lanes, 3), calibration.read_ir("read", lanes)):
        assert text.count(f"<{lanes} x ") > 3
    assert calibration._aligned(64).ctypes.data % 64 == 0
    assert calibration._aligned(3 * 4096).size == 3 * 4096


@pytest.mark.parametrize("seconds_a_step", [1e-9, 1e-6, 0.001, 0.0065])
def test_a_measurement_ends(seconds_a_step: float) -> None:
    """Five take 30 ms in all where a step is short, the longest being to read memory once; however fast it is."""
    now = 0.0

    def call(steps: int) -> None:
        nonlocal now
        now += steps * seconds_a_step

    found = calibration._per_second(call, clock=lambda: now)
    assert found == pytest.approx(1 / seconds_a_step, rel=1e-6)
    assert now <= calibration._SECONDS + max(2 * calibration._ROUND_SECONDS, seconds_a_step)
    assert 5 * (calibration._SECONDS + calibration._ROUND_SECONDS) < 0.03
