"""The operator benchmark: its cases are sound models, its answers are judged, and what it prints and draws is whole."""

import json

import numpy as np
import onnx
import pytest

from bench.operators import __main__ as command
from bench.operators import chart
from bench.operators.cases import CASES, Case, cases
from bench.operators.layers import activated, gemm, integer_conv, integer_product
from bench.operators.measure import measure, shapes_text
from bench.operators.net import Net
from bench.operators.rows import Row, line, summary, table
from bench.operators.work import Bound, Limits, Work, work


@pytest.fixture
def limits(monkeypatch):
    """The limits of a machine that is known: 100 GFLOP/s, 200, 100, 50 and 10 GB/s, 1 us a call."""
    caches = {"L1": 1 << 15, "L2": 1 << 20, "L3": 1 << 25}
    rates = {1 << 15: 200.0, 1 << 20: 100.0, 1 << 25: 50.0, 1 << 28: 10.0}
    monkeypatch.setattr("bench.machine.fma_peak", lambda threads, rounds, cpu, clock: 100.0)
    monkeypatch.setattr("bench.machine.byte_peak", lambda threads, rounds, cpu, clock: 1000.0)
    monkeypatch.setattr("bench.machine.bfloat16_peak", lambda threads, rounds, cpu, clock: 1000.0)
    monkeypatch.setattr("bench.machine.cache_sizes", lambda: caches)

    def copy_bandwidth(nbytes, threads, *, streaming=False, rounds):
        return next(rate for size, rate in rates.items() if nbytes <= size * threads)

    monkeypatch.setattr("bench.machine.copy_bandwidth", copy_bandwidth)
    monkeypatch.setattr("timeit.repeat", lambda call, number, repeat: [1e-6 * number] * repeat)
    return Limits(1)


def tiny(build, name="tiny"):
    return Case("tests", name, build)


def add_numbers(net: Net) -> str:
    return net.node("Add", net.feed((4, 100)), net.feed((100,)))


def multiply(net: Net) -> str:
    return net.node("MatMul", net.feed((8, 64)), net.weight(64, 32))


@pytest.mark.parametrize("build", [add_numbers, multiply])
def test_case_is_measured_beside_onnxruntime(build, limits):
    row = measure(tiny(build), limits, rounds=2, block_seconds=0.002)
    assert not row.wrong
    assert not row.on_numpy
    assert row.difference < 1e-6
    assert 0 < row.ours < 1e6
    assert row.ratio == row.onnxruntime / row.ours
    assert row.rate > 0 and row.share > 0


def test_wrong_answers_are_told_and_fail(limits, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("bench.operators.measure.difference", lambda ours, theirs: 0.5)
    monkeypatch.setattr("bench.operators.measure.BLOCK_SECONDS", 0.002)
    monkeypatch.setattr(command, "Limits", lambda threads, cpu, clock: limits)
    monkeypatch.setattr(command, "cases", lambda filters: iter([tiny(add_numbers)]))
    with pytest.raises(SystemExit, match=r"wrong answers: tests/tiny differs by 5\.0e-01"):
        command.main(["--rounds", "1", "--json", str(tmp_path / "rows.json")])
    assert "WRONG" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert row["wrong"] is True


def test_work_is_counted_from_the_nodes():
    model, net = next(cases(["convolution/3x3/2 128, 56"])).make()
    y = np.zeros((1, 128, 28, 28), np.float32)
    needed = work(model, net, [y])
    assert needed.flops == 2 * 128 * 28 * 28 * 128 * 9 + 2 * y.size  # and the Relu
    assert needed.bytes == 4 * (128 * 56 * 56 + 128 * 128 * 9 + 128) + y.nbytes


def test_work_counts_what_is_picked_not_what_there_is():
    model, net = next(cases(["indexing/gather, embedding"])).make()
    y = np.zeros((1, 128, 768), np.float32)
    assert work(model, net, [y]) == Work(0, 2 * y.nbytes + 128 * 8, 4)


@pytest.mark.parametrize(
    "case, dtype, element_bytes",
    [
        ("logic/Not", bool, 1),
        ("logic/Equal int64", bool, 8),
        ("logic/Greater", bool, 4),
        ("arithmetic/Max int8", np.int8, 1),
        ("logic/Cast float16 to float32", np.float32, 4),
        ("logic/Cast float32 to float64", np.float64, 8),
    ],
)
def test_work_knows_what_a_vector_holds(case, dtype, element_bytes):
    model, net = next(cases([case])).make()
    assert work(model, net, [np.zeros((1, 128, 28, 28), dtype)]).element_bytes == element_bytes


@pytest.mark.parametrize(
    "needed, bound",
    [
        (Work(10**6, 1000, 4), Bound("FMA", 10**6)),
        (Work(10**6, 1000, 8), Bound("FMA", 2 * 10**6)),  # float64: half the peak
        (Work(100, 1 << 15, 4), Bound("call", 1)),
        (Work(100, 1 << 18, 4), Bound("L2", 1 << 18)),
        (Work(100, (1 << 20) + 1, 4), Bound("L3", (1 << 20) + 1)),
        (Work(100, 1 << 25, 4), Bound("L3", 1 << 25)),
        (Work(100, 1 << 26, 4), Bound("memory", 1 << 26)),
    ],
)
def test_the_limit_that_takes_longest_binds(needed, bound, limits):
    assert limits.binding(needed) == bound


def test_rates_are_of_what_is_counted():
    assert (Bound("L2", 2e9).rate(0.5), Bound("L2", 2e9).unit) == (4, "GB/s")
    assert (Bound("FMA", 3e9).rate(1), Bound("FMA", 3e9).unit) == (3, "GFLOP/s")
    assert (Bound("call", 1).rate(1e-6), Bound("call", 1).unit) == (1, "Mcall/s")


def test_threads_have_caches_of_their_own_but_share_the_largest(limits):
    limits.threads = 2
    assert limits.binding(Work(0, 1 << 21, 4)).limit == "L2"
    assert limits.binding(Work(0, 1 << 26, 4)).limit == "memory"


def test_products_of_bytes_are_held_to_a_limit_of_their_own(limits):
    model, net = tiny(integer_product(64, 512, 256)).make()
    needed = work(model, net, [np.zeros((64, 256), np.uint8)])
    assert (needed.flops, needed.byte_products) == (0, 2 * 64 * 512 * 256)
    assert limits.binding(needed) == Bound("dots", 2 * 64 * 512 * 256)
    assert limits.seconds(Bound("dots", 1e12)) == 1
    images, net = tiny(integer_conv((1, 16, 8, 8), 32, 3, 2)).make()
    assert work(images, net, [np.zeros((1, 4, 4, 32), np.uint8)]).byte_products == 2 * 16 * 32 * 16 * 9


def test_products_in_bfloat16_are_held_to_the_tiles(limits):
    model, net = tiny(gemm(64, 512, 256)).make()
    outputs = [np.zeros((64, 256), np.float32)]
    assert work(model, net, outputs).flops == 2 * 64 * 512 * 256
    needed = work(model, net, outputs, "bfloat16")
    assert (needed.flops, needed.rounded_products) == (0, 2 * 64 * 512 * 256)
    assert needed.bytes == 4 * (64 * 512 + 256 + 64 * 256) + 2 * 512 * 256
    assert limits.seconds(Bound("tiles", 1e12)) == 1


def test_limits_are_measured_anew_but_what_binds_stays(limits, monkeypatch):
    work = Work(10**6, 1000, 4)
    assert limits.seconds(limits.binding(work)) == 1e-5
    monkeypatch.setattr("bench.machine.fma_peak", lambda threads, rounds, cpu, clock: 1e6)
    assert limits.seconds(limits.binding(work)) == pytest.approx(1e-9)
    assert limits.binding(work).limit == "FMA"


def test_memory_is_as_fast_as_the_better_way_to_store(limits, monkeypatch):
    rates = {False: 10.0, True: 20.0}
    monkeypatch.setattr("bench.machine.copy_bandwidth", lambda n, threads, streaming=False, rounds=0: rates[streaming])
    assert limits.seconds(Bound("memory", 2e9)) == 0.1
    assert limits.seconds(Bound("L3", 2e9)) == 0.2


def example(family="product", case="128x768x768", ours=2.0, theirs=3.0, **other):
    more = {"rate": 110.0, "unit": "GFLOP/s", "limit": "FMA", "share": 0.95, "difference": 1e-7}
    more |= {"flops": 2 * 10**7, "bytes": 1000, "on_numpy": False, "wrong": False} | other
    return Row(family, case, "128x768 -> 128x768", ours, theirs, **more)


ROWS = [
    example(),
    example(case="slow", ours=4.0, theirs=1.0, share=0.5),
    example("movement", "Transpose", 1.0, 1.0, unit="GB/s", limit="L2", share=0.85, on_numpy=True),
]


def test_table_renders():
    lines = table(ROWS).splitlines()
    assert lines[2] == "product"
    assert " ".join(lines[3].split()) == "128x768x768 128x768 -> 128x768 2 3 1.50 110.0 GFLOP/s FMA 0.95 1.0e-07"
    assert lines[-1].startswith("Transpose* ")
    assert len({len(line) for line in lines if "->" in line}) == 1


def test_summary_counts_by_family_and_limit():
    text = summary(ROWS)
    assert [line.split() for line in text.splitlines()[1:4]] == [
        ["product", "2", "50%", "0.61", "0.25", "slow"],
        ["movement", "1", "100%", "1.00", "1.00", "Transpose"],
        ["all", "3", "67%", "0.72", "0.25", "slow"],
    ]
    assert "FMA, over 10 MFLOP: 1 of 2 rows reach 0.93" in text
    assert "memory: 1 of 1 rows reach 0.8" in text
    assert "bound by the call: 0 rows" in text


def test_what_onnxruntime_lacks_has_no_ratio():
    alone = example("linear attention", "LinearAttention", theirs=None)
    assert line(alone).split()[4:7] == ["2", "-", "-"]
    lines = summary([*ROWS, alone]).splitlines()
    assert lines[3].split() == ["linear", "attention", "1", "-", "-", "-"]
    assert lines[4].split() == ["all", "4", "67%", "0.72", "0.25", "slow"]


def test_shapes_are_short():
    arrays = [np.zeros((2, 3), np.float32)] * 2 + [np.zeros((), np.int64)]
    assert shapes_text(arrays) == "2*2x3, scalar int64"


@pytest.mark.parametrize("copies", [1, 60])
def test_chart_is_drawn(copies, tmp_path):
    chart.draw([row for row in ROWS for _ in range(copies)], 2, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_filters_choose_by_family_and_name(capsys):
    command.main(["--list", "softmax/1x", "TOPK"])
    assert capsys.readouterr().out.split("\n") == [
        *("softmax/1x1000", "reduction/TopK 5 of 1000", "reduction/TopK 100 of 8400", "reduction/TopK 50 of 32000"),
        "",
    ]
    with pytest.raises(SystemExit):
        command.main(["--list", "no such operator"])
    assert "no case fits no such operator; --list names them all" in capsys.readouterr().err


@pytest.mark.parametrize("family", CASES)
def test_one_case_of_each_family_is_a_sound_model(family):
    case = min(cases([f"{family}/"]), key=lambda case: len(case.name))
    model, net = case.make()
    onnx.checker.check_model(model, full_check=True)
    assert net.feeds.keys() == {value.name for value in model.graph.input}


def test_cases_repeat():
    case = next(cases(["product/16x64x64"]))
    (model, net), (again, other) = case.make(), case.make()
    assert model.SerializeToString() == again.SerializeToString()
    np.testing.assert_array_equal(net.feeds["x0"], other.feeds["x0"])


def test_activations_are_written_out_as_exporters_do():
    net = Net()
    net.model(activated(net, net.feed((2, 2)), "gelu"))
    assert [node.op_type for node in net.nodes] == ["Div", "Erf", "Add", "Mul", "Mul"]
