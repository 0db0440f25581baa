"""What an operator's inference is given beside its inputs: answers about sizes that only a run tells.

An operator either has no meaning for other sizes (`demand_equal`: the inner sizes of a matrix product), or it does
something else for them (`assume_equal`: broadcasting, where one of the sizes is 1). Both are noted with the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from typing import TYPE_CHECKING, Any

from jitonnx.ir.assumptions import Assumptions
from jitonnx.ir.dims import Dim, DimLike, evaluate, floor_divide, maximum, minimum, taking, variables
from jitonnx.ir.operator import DataDependentError, InferenceError
from jitonnx.ir.types import Shape

if TYPE_CHECKING:
    from typing import Protocol

    from jitonnx.ir.graph import Value

    class Follow(Protocol):
        """Follows a value's elements back to what a run computes, in place, see `Graph`."""

        def __call__(self, value: Value, *, signed: bool) -> None: ...


def _nobody() -> str:
    return ""


def _nothing(value: Value, *, signed: bool) -> None:
    """Elements that are not known stay so."""


class InferenceContext:
    """Questions about sizes, whose answers are noted in `assumptions`.

    node: describes the node that is being inferred. follow: follows a small integer value's elements back to what is
    known, see `Graph`. deciding: comparisons of sizes that inputs leave open are decided by examples.
    """

    def __init__(
        self,
        assumptions: Assumptions,
        node: Callable[[], str] = _nobody,
        follow: Follow = _nothing,
        *,
        deciding: bool = False,
    ) -> None:
        self.assumptions, self._node, self._follow, self.deciding = assumptions, node, follow, deciding

    # ------------------------------------------------------------ equal or not

    def assume_equal(self, a: DimLike, b: DimLike) -> bool:
        """Take two dimensions to be equal where that is not certain. False: they differ, and another way is taken."""
        return self._decide(a, b, demanded=False)

    def demand_equal(self, a: DimLike, b: DimLike) -> bool:
        """What `assume_equal` answers, for an operator that has no meaning for other sizes: False calls for an
        InferenceError."""
        return self._decide(a, b, demanded=True)

    def demand_divisible(self, size: DimLike, divisor: DimLike) -> bool:
        """What `demand_equal` answers, for a size that has to be a multiple of another."""
        if isinstance(size, int) and isinstance(divisor, int):
            return divisor != 0 and size % divisor == 0
        return self.demand_equal(floor_divide(size, divisor) * divisor, size)

    def demand_some(self, size: DimLike) -> bool:
        """What `demand_equal` answers, for an axis that has to have elements."""
        return self.demand_equal(maximum(size, 1), size)

    def demand_not_negative(self, size: DimLike) -> bool:
        """What `demand_equal` answers, for a size that a difference gives."""
        return self.demand_equal(maximum(size, 0), size)

    def is_one(self, dim: DimLike) -> bool:
        """Whether a size is 1. One that is not certain to be is taken not to be, unless the examples say so."""
        if isinstance(dim, int):
            return dim == 1
        # A size that differs from 1 is either 0 or at least 2.
        return not self.assume_equal(minimum(dim, maximum(2 - dim, 0)), 0) and self.assume_equal(dim, 1)

    def assume_size(self, dim: DimLike, usual: int) -> int:
        """A number that a size is assumed to be, on which more hangs than sizes: the examples', or else the usual one.

        DataDependentError where nothing may be assumed.
        """
        if isinstance(dim, int):
            return dim
        examples = self.assumptions.examples
        told = examples is not None and variables(dim) <= examples.keys()
        size = evaluate(dim, examples) if examples is not None and told else usual
        if not self.assume_equal(dim, size):
            raise DataDependentError(f"more than sizes depends on {dim}")
        return size

    def shown_equal(self, a: DimLike, b: DimLike) -> bool:
        """Whether the examples show two dimensions to be equal, which is noted then.

        For what is unusual: that they are not is no assumption of its own but follows from others.
        """
        examples = self.assumptions.examples
        return examples is not None and variables(a) | variables(b) <= examples.keys() and self.assume_equal(a, b)

    def decide_order(self, a: DimLike, b: DimLike, *, equal_only: bool = False) -> int | None:
        """Which of two sizes is larger where that is not certain: -1, 0 or 1 as a < b, a = b or a > b. It is assumed.

        equal_only: it does not matter which is larger, only whether they are equal. None where nothing is to be
        decided, without examples, of which there is no usual case here, and where inputs alone do not tell.
        """
        examples = self.assumptions.examples
        if not self.deciding or examples is None or not variables(a) | variables(b) <= examples.keys():
            return None
        order = (evaluate(a, examples) > evaluate(b, examples)) - (evaluate(a, examples) < evaluate(b, examples))
        if order == 0:
            return 0 if self.assume_equal(a, b) else None
        if equal_only:
            return order if self.assume_equal(minimum((a - b) * (a - b), 1), 1) else None
        larger, smaller = (a, b) if order > 0 else (b, a)
        return order if self.assume_equal(maximum(larger, smaller + 1), larger) else None

    def _decide(self, a: DimLike | None, b: DimLike | None, *, demanded: bool) -> bool:
        if a is None or b is None:  # what broadcasting gives, where nothing may be assumed
            if not demanded:
                raise DataDependentError("a size follows from others that are broadcast")
            return True
        difference = a - b
        if isinstance(difference, int):
            return difference == 0
        if _never_zero(difference):
            return False
        if self.assumptions.demands_only and not demanded:
            raise DataDependentError(f"whether {a} and {b} are equal depends on the sizes")
        if not self.assumptions.hold(a, b):
            return False
        self._note(a, b, demanded=demanded)
        return True

    def _note(self, a: DimLike, b: DimLike, *, demanded: bool) -> None:
        self.assumptions.note(a, b, self._node() if demanded else "")

    # ------------------------------------------------------------ shapes

    def broadcast_shapes(self, *shapes: Sequence[DimLike]) -> Shape | None:
        """The shape that NumPy's broadcasting gives; None if the shapes do not fit.

        A variable dimension beside an integer above 1, or beside another variable, is assumed to equal it, or to be 1.
        Where nothing may be assumed, a size that two variables decide is None.
        """
        if self.assumptions.demands_only:
            return broadcast_for_all_sizes(shapes)
        result: list[DimLike] = []
        for position in range(1, max(map(len, shapes), default=0) + 1):
            chosen: DimLike = 1
            for shape in shapes:
                both = self._broadcast(chosen, shape[-position] if position <= len(shape) else 1)
                if both is None:
                    return None
                chosen = both
            result.append(chosen)
        return tuple(reversed(result))

    def _broadcast(self, a: DimLike, b: DimLike) -> DimLike | None:
        """What two sizes broadcast to; None if they do not fit."""
        if b == 1 or a == b:
            return a
        if a == 1:
            return b
        if self.assume_equal(a, b):
            return b if isinstance(b, int) else a
        if self.assume_equal(b, 1):
            return a
        return b if self.assume_equal(a, 1) else None

    def broadcast(self, *inputs: Value) -> Shape:
        """The shape that the inputs broadcast to. InferenceError if they do not."""
        shape = self.broadcast_shapes(*(value.shape for value in inputs))
        if shape is None:
            raise InferenceError(f"shapes do not broadcast: {', '.join(str(value.type) for value in inputs)}")
        return shape

    # ------------------------------------------------------------ elements of inputs

    def constant_of(self, value: Value | None, what: str, *, signed: bool = False) -> list[Any]:
        """Elements of an input that shapes depend on, as a list of integers and dimension expressions.

        Elements that a run computes become dimension variables, which stand for sizes: a run in which one of them is
        negative is not what the graph was planned for. signed: what the elements are may well be negative, so that
        they become variables only where they follow from others. DataDependentError where they are not known before
        the run.
        """
        if value is None:
            raise InferenceError(f"input {what} is absent")
        if value.contents is None or signed:
            self._follow(value, signed=signed)
        if value.contents is None or (signed and value.measured):
            raise DataDependentError(f"the output's shape depends on the values of {what} ({value.name!r})")
        return list(value.contents.ravel().tolist())


def broadcast_for_all_sizes(shapes: Sequence[Sequence[DimLike]]) -> Shape | None:
    """The shape that broadcasting gives whatever the sizes are, None for those that depend on them; None as a whole if
    the shapes never fit."""
    result = []
    for position in range(1, max(map(len, shapes), default=0) + 1):
        sizes = dict.fromkeys(shape[-position] for shape in shapes if position <= len(shape) and shape[-position] != 1)
        numbers = [size for size in sizes if isinstance(size, int)]
        if len(numbers) > 1:
            return None
        result.append(numbers[0] if numbers else 1 if not sizes else next(iter(sizes)) if len(sizes) == 1 else None)
    return tuple(reversed(result))


class _Exact(InferenceContext):
    """The context where sizes are numbers. DataDependentError about others."""

    def _note(self, a: DimLike, b: DimLike, *, demanded: bool) -> None:
        raise DataDependentError(f"whether {a} and {b} are equal depends on the sizes")


EXACT = _Exact(Assumptions())
"""What evaluations ask, which know all sizes."""


def unnoted() -> InferenceContext:
    """A context whose answers are noted nowhere: for those that were asked for, and noted, before."""
    return InferenceContext(Assumptions())


@contextmanager
def inferring(assumptions: Assumptions) -> Iterator[InferenceContext]:
    """A context that notes what is assumed; within the block, expressions are built as what they are taken for."""
    with taking(assumptions.taken):
        yield InferenceContext(assumptions)


def _never_zero(dim: Dim) -> bool:
    """Whether a number divides all terms but the constant one, so that no integers make the sum 0."""
    divisor = gcd(*(coefficient for monomial, coefficient in dim.terms if monomial))
    return any(coefficient % divisor for monomial, coefficient in dim.terms if not monomial)
