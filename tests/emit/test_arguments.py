"""Records of kernels' arguments: places by name, from one declaration."""

from __future__ import annotations

import pytest

from jitonnx.emit.arguments import Arguments, Buffer, Size, Sizes, by_name, computed, each, record, rest, result
from jitonnx.kernels.gemm.spec import GemmBuffers, GemmSizes, GemmSpec
from jitonnx.plan.calls import KernelCall


class Buffers(Arguments):
    x: Buffer
    y: Buffer = result()
    count: Buffer = result()


class Given(Arguments):
    rows: Size
    extents: Sizes = each(3, fill=1)
    strides: Sizes = each(2)
    last: Size


class Completed(Given):
    task_rows: Size = computed()


GIVEN = Given(last=9, rows=4, strides=(7, 8), extents=[5, 6])


def test_values_lie_in_the_order_of_the_declaration() -> None:
    assert GIVEN == (4, 5, 6, 1, 7, 8, 9)
    assert (GIVEN.rows, GIVEN.extents, GIVEN.strides, GIVEN.last) == (4, (5, 6, 1), (7, 8), 9)
    assert Given.WIDTH == 7 and Given.place("strides") == 4
    assert Given.names() == ["rows", "extents[0]", "extents[1]", "extents[2]", "strides[0]", "strides[1]", "last"]
    assert Given.make(range(7)).extents == (1, 2, 3)
    assert GIVEN.named() == {"rows": 4, "extents": (5, 6, 1), "strides": (7, 8), "last": 9}


def test_a_subclass_has_the_places_of_its_base_in_front() -> None:
    completed = Completed.following(GIVEN, task_rows=3)
    assert completed == (*GIVEN, 3) and completed.task_rows == 3 and completed.strides == (7, 8)
    assert (Completed.WIDTH, Completed.GIVEN, Given.GIVEN) == (8, 7, 7)


def test_computed_values_lie_behind_the_given_ones() -> None:
    class Rows(Arguments):
        rows: Size
        tasks: Size = computed()
        places: Sizes = computed(2)

    given = Rows(rows=1)
    assert given == (1,) == Rows.make([1]) and given.is_given and given.named() == {"rows": 1}
    complete = Rows.following(given, tasks=2, places=(3, 4))
    assert complete == (1, 2, 3, 4) and complete.places == (3, 4) and not complete.is_given
    with pytest.raises(TypeError, match="Bug: Rows: there is no tasks"):
        Rows(rows=1, tasks=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Bug: Rows has 4 values, and not 2"):
        Rows.make([1, 2])


def test_buffers_that_are_written() -> None:
    assert Buffers.results() == [1, 2]
    assert Buffers(x="a", y="b", count="c").count == "c"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": 1, "y": 2}, "count is missing"),
        ({"x": 1, "y": 2, "count": 3, "z": 4}, "there is no z"),
    ],
)
def test_names_that_do_not_match(given: dict[str, int], message: str) -> None:
    with pytest.raises(TypeError, match=f"Bug: Buffers: {message}"):
        Buffers(**given)
    with pytest.raises(TypeError, match="Bug: Completed: rows is missing"):
        Completed(**by_name("extents strides last", ((), (1, 2), 3)))


def test_wrong_numbers_of_values() -> None:
    with pytest.raises(TypeError, match="Bug: Given has 7 values, and not 3"):
        Given.make([1, 2, 3])
    with pytest.raises(TypeError, match="strides has 2 values, and not 1"):
        Given(rows=1, extents=(), strides=(1,), last=0)
    with pytest.raises(TypeError, match="extents has 3 values, and not 4"):
        Given(rows=1, extents=(1, 2, 3, 4), strides=(1, 2), last=0)
    with pytest.raises(TypeError, match="there is no rows"):
        Completed.following(GIVEN, rows=3, task_rows=3)


def test_the_last_name_may_be_of_all_that_is_left() -> None:
    class Open(Given):
        others: Sizes = rest()

    assert Open.following(GIVEN, others=[1, 2]).others == (1, 2) and Open.following(GIVEN, others=()).others == ()
    assert Open.WIDTH == Given.WIDTH and Open.make(range(9)).others == (7, 8)
    with pytest.raises(TypeError, match="Bug: Open has 7 values, and not 6"):
        Open.make(range(6))


def test_records_of_as_many_places_as_a_spec_says() -> None:
    loops = record("Loops", inputs=each(2), outputs=each(1, result=True))
    assert loops(inputs=[1, 2], outputs=[3]) == (1, 2, 3) and loops.results() == [2]  # type: ignore[call-arg]
    cut = record("Cut", loops, rows=computed())
    assert cut.following(loops.make([1, 2, 3]), rows=4).names()[-1] == "rows"


def test_calls_take_the_arguments_of_their_kernel() -> None:
    buffers = GemmBuffers(a=1, b=2, c=3)
    message = "Bug: GemmSpec is called with GemmBuffers and 16 of GemmSizes, and not with 3 of GemmBuffers and 18"
    with pytest.raises(TypeError, match=message):
        KernelCall(GemmSpec((1,), (16,)), buffers, GemmSizes.make([0] * GemmSizes.WIDTH))
