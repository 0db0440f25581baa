"""Views as a value of their own: which elements of a base tensor stand where, whatever chain of operators says so.

A `View` maps the axes of its result to factors of the base's axes. Reshape regroups factors, Transpose reorders them,
Slice moves offsets; so any chain of them is one View, and a View is written back as the shortest canonical chain:

    Slice? -> Reshape? -> Transpose? -> Reshape?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitonnx.ir.assumptions import Assumptions
from jitonnx.ir.dims import DimLike, ceil_divide, exact_divide, maximum, not_negative, product
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.inference import inferring
from jitonnx.ir.operator import DataDependentError
from jitonnx.ops.onnx.concat_split import Split
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.shape import Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Result, ranked, rule
from jitonnx.support.records import dataclass

INT64_MIN = -(2**63)

Step = tuple[Any, ...]
"""("slice", starts, steps, shape), ("reshape", shape) or ("transpose", permutation)."""


@dataclass(frozen=True)
class Factor:
    """A part of a base axis: steps of `stride` elements along it, `size` of them (never 1)."""

    axis: int
    stride: DimLike
    size: DimLike


@dataclass(frozen=True)
class View:
    """Result axis i runs over the factors axes[i], the last the fastest; offsets are where base axes start."""

    base: tuple[DimLike, ...]
    offsets: tuple[DimLike, ...]
    axes: tuple[tuple[Factor, ...], ...]

    @property
    def shape(self) -> tuple[DimLike, ...]:
        return tuple(product(factor.size for factor in axis) for axis in self.axes)

    # ------------------------------------------------------------ composing

    def reshape(self, shape: Sequence[DimLike]) -> View | None:
        """Regrouped to `shape`; None where that would split a factor in no whole parts."""
        left = _joined([factor for axis in self.axes for factor in axis])
        axes: list[tuple[Factor, ...]] = []
        for dim in shape:
            taken = _take(left, dim)
            if taken is None:
                return None
            axes.append(taken)
        return None if left else View(self.base, self.offsets, tuple(axes))

    def transpose(self, permutation: Sequence[int]) -> View:
        """Axis i of the result is axis permutation[i]."""
        return View(self.base, self.offsets, tuple(self.axes[axis] for axis in permutation))

    def slice(self, starts: Sequence[DimLike], steps: Sequence[int], shape: Sequence[DimLike]) -> View | None:
        """Element i of axis a is element starts[a] + i * steps[a]; None where it cuts across factors."""
        offsets, axes = list(self.offsets), []
        for axis, start, step, size, whole in zip(self.axes, starts, steps, shape, self.shape, strict=False):
            if size == whole and start == 0 and step == 1:
                axes.append(axis)
            elif size == 0:
                return None
            elif not axis:
                axes.append(())
            else:
                cut = _cut(axis, start, step, size)
                if cut is None:
                    return None
                outer, moved = cut
                offsets[axis[0].axis] = offsets[axis[0].axis] + moved
                axes.append((*outer, *axis[1:]) if size != 1 else outer)
        return View(self.base, tuple(offsets), tuple(axes))

    # ------------------------------------------------------------ writing

    def steps(self) -> list[Step] | None:
        """The canonical chain from the base to this view; None where there is none of this form."""
        order: list[Factor] = []
        starts: list[DimLike] = []
        strides: list[int] = []
        sizes: list[DimLike] = []
        for axis in range(len(self.base)):
            run = _dense_run([factor for group in self.axes for factor in group if factor.axis == axis])
            if run is None:
                return None
            factors, step = run
            starts.append(self.offsets[axis])
            strides.append(step)
            sizes.append(product(factor.size for factor in factors))
            order.extend(factors)
        chain: list[Step] = []
        if tuple(sizes) != self.base or any(step != 1 for step in strides):
            chain.append(("slice", tuple(starts), tuple(strides), tuple(sizes)))
        return chain + _rearrange(tuple(sizes), order, self.axes, self.shape)


def identity(shape: Sequence[DimLike]) -> View:
    """The view of a tensor as it is."""
    axes = tuple((Factor(axis, 1, dim),) if dim != 1 else () for axis, dim in enumerate(shape))
    return View(tuple(shape), (0,) * len(axes), axes)


def _joined(factors: list[Factor]) -> list[Factor]:
    """Factors that follow each other in the base too, as one."""
    result: list[Factor] = []
    for factor in factors:
        last = result[-1] if result else None
        if last is not None and last.axis == factor.axis and last.stride == factor.stride * factor.size:
            result[-1] = Factor(factor.axis, factor.stride, last.size * factor.size)
        else:
            result.append(factor)
    return result


def _take(left: list[Factor], dim: DimLike) -> tuple[Factor, ...] | None:
    """Factors from the front of `left` whose sizes multiply to `dim`; the last may be split."""
    taken: list[Factor] = []
    missing = dim
    while missing != 1:
        if not left or missing == 0:
            return None
        factor = left.pop(0)
        if (rest := exact_divide(missing, factor.size)) is not None:
            taken.append(factor)
            missing = rest
        elif (inner := exact_divide(factor.size, missing)) is not None:
            taken.append(Factor(factor.axis, factor.stride * inner, missing))
            left.insert(0, Factor(factor.axis, factor.stride, inner))
            missing = 1
        else:
            return None
    return tuple(taken)


def _cut(
    axis: tuple[Factor, ...], start: DimLike, step: int, size: DimLike
) -> tuple[tuple[Factor, ...], DimLike] | None:
    """The first factor of an axis narrowed to a slice (nothing if one element is left), and how far the base moves."""
    outer, inner = axis[0], product(factor.size for factor in axis[1:])
    if len(axis) == 1:
        factor = Factor(outer.axis, outer.stride * step, size)
        return ((factor,) if size != 1 else ()), start * outer.stride
    first, count = exact_divide(start, inner), exact_divide(size, inner)
    if step != 1 or first is None or count is None:
        return None
    factor = Factor(outer.axis, outer.stride, count)
    return ((factor,) if count != 1 else ()), first * outer.stride


def _dense_run(factors: list[Factor]) -> tuple[list[Factor], int] | None:
    """Factors of one base axis, slowest first, and their step, if together they run through it evenly."""
    if not factors:
        return [], 1
    ends = {factor.stride * factor.size for factor in factors}
    innermost = [factor for factor in factors if factor.stride not in ends]
    if len(innermost) != 1 or not isinstance(innermost[0].stride, int):
        return None
    run = innermost
    while len(run) < len(factors):
        outer = [factor for factor in factors if factor.stride == run[0].stride * run[0].size]
        if len(outer) != 1:
            return None
        run = outer + run
    return run, run[-1].stride  # type: ignore[return-value]


def _rearrange(
    sizes: tuple[DimLike, ...], order: list[Factor], axes: tuple[tuple[Factor, ...], ...], shape: tuple[DimLike, ...]
) -> list[Step]:
    """Reshape? Transpose? Reshape? from an array of `sizes`, whose factors are `order`, to the axes wanted."""
    place = {factor: position for position, factor in enumerate(order)}
    groups = [_adjacent(axis, place) for axis in axes]
    if all(len(axis) <= 1 for axis in groups):
        front, permutation = _with_units([axis[0] if axis else None for axis in groups], place)
        rest: list[Step] = []
    else:
        flat = [group for axis in groups for group in axis]
        ordered = sorted(flat, key=lambda group: place[group[0]])
        front, permutation = [_size(group) for group in ordered], [ordered.index(group) for group in flat]
        units = len(sizes) - len(front)
        if [size for size in sizes if size != 1] == front:
            front, permutation = list(sizes), _keep_units(sizes, permutation) if units else permutation
        rest = [("reshape", shape)]
    steps: list[Step] = [] if tuple(front) == sizes else [("reshape", tuple(front))]
    if permutation != list(range(len(permutation))):
        steps.append(("transpose", tuple(permutation)))
    return steps + rest


def _adjacent(axis: tuple[Factor, ...], place: dict[Factor, int]) -> list[list[Factor]]:
    """Runs of factors that stand side by side in the base too."""
    groups: list[list[Factor]] = []
    for factor in axis:
        if groups and place[groups[-1][-1]] + 1 == place[factor]:
            groups[-1].append(factor)
        else:
            groups.append([factor])
    return groups


def _size(group: list[Factor]) -> DimLike:
    return product(factor.size for factor in group)


def _with_units(wanted: list[list[Factor] | None], place: dict[Factor, int]) -> tuple[list[DimLike], list[int]]:
    """The shape before the transpose and the permutation, for axes of one group each (None: an axis of size 1).

    An axis of size 1 stands where it moves least: in front, or behind the axis that it follows in the result.
    """
    base = sorted((i for i, group in enumerate(wanted) if group), key=lambda i: place[wanted[i][0]])  # type: ignore[index]
    last = -1
    for i, group in enumerate(wanted):
        if group is None:
            base.insert(base.index(last) + 1 if last >= 0 else 0, i)
        last = i
    return [_size(wanted[i] or []) for i in base], [base.index(i) for i in range(len(wanted))]


def _keep_units(sizes: tuple[DimLike, ...], permutation: list[int]) -> list[int]:
    """A permutation of the axes that are not of size 1 as one of all axes, those of size 1 in front."""
    real = [axis for axis, size in enumerate(sizes) if size != 1]
    return [axis for axis, size in enumerate(sizes) if size == 1] + [real[position] for position in permutation]


# ---------------------------------------------------------------- nodes


def write(steps: Sequence[Step], base: Value, edit: Edit) -> Value:
    """Nodes for a chain of steps."""
    value = base
    for kind, *arguments in steps:
        if kind == "slice":
            starts, strides, shape = arguments
            value = slice_node(value, starts, strides, shape, edit)
        elif kind == "reshape":
            value = edit.reshape(value, arguments[0])
        else:
            value = edit.add(Transpose(perm=arguments[0]), value)
    return value


def slice_node(
    x: Value, starts: Sequence[DimLike], steps: Sequence[int], shape: Sequence[DimLike], edit: Edit
) -> Value:
    """A Slice of the axes that are not taken whole.

    Decline where Slice takes such starts and ends for others: of sizes that contradict what was assumed of them.
    """
    axes = [
        axis
        for axis, (start, step, size) in enumerate(zip(starts, steps, shape, strict=False))
        if start != 0 or step != 1 or size != x.shape[axis]
    ]
    ends = [_end(starts[axis], steps[axis], shape[axis], x.shape[axis]) for axis in axes]
    operands = ([starts[axis] for axis in axes], ends, axes, [steps[axis] for axis in axes])
    result = edit.add(Slice(), x, *(edit.dims(operand) for operand in operands))
    if result.shape != tuple(shape):
        raise Decline(Reason.SHAPE, f"a slice would have the shape {list(result.shape)}, not {list(shape)}")
    return result


def _end(start: DimLike, step: int, size: DimLike, whole: DimLike) -> DimLike:
    """The end of a slice of an axis of `whole` elements, as Slice reads it: negative numbers count from behind.

    Decline for an expression that may be the place before the first element, -1, which is none.
    """
    if size == 0:
        return start
    if step > 0:
        if isinstance(size, int):
            return start + step * (size - 1) + 1
        # Of no elements the last one would lie before the start.
        return whole if size == maximum(ceil_divide(whole - start, step), 0) else start + step * size
    end = start + step * (size - 1) - 1
    if end == -1 or size == maximum(ceil_divide(start + 1, -step), 0):
        return INT64_MIN
    behind = end - whole
    if isinstance(behind, int) and not isinstance(end, int):
        return behind
    if not not_negative(end):
        raise Decline(Reason.UNDECIDED, "whether a reversed slice ends before the first element")
    return end


def step_of(value: Value, assumptions: Assumptions) -> Step | None:
    """What the operator that gives `value` does to its first input, if it is a view of it; None otherwise.

    assumptions: those of the graph.
    """
    node = value.producer
    if node is None or not node.inputs or node.inputs[0] is None or value.type.shape is None:
        return None
    x, operator = node.inputs[0], node.operator
    if x.type.shape is None:
        return None
    if isinstance(operator, Reshape | Squeeze | Unsqueeze | Flatten | Identity):
        return ("reshape", value.shape)
    if isinstance(operator, Transpose):
        return ("transpose", operator.permutation(len(x.shape)))
    if isinstance(operator, Slice):
        return _slice_step(node, operator, assumptions, value)
    if isinstance(operator, Split):
        return _split_step(node, operator, x, value)
    return None


def _slice_step(node: Node, operator: Slice, assumptions: Assumptions, value: Value) -> Step | None:
    """None where only the run tells where it begins."""
    if any(entry is not None and entry.contents is None for entry in node.inputs[1:]):
        return None
    try:
        with inferring(assumptions.apart()) as context:  # what it asks was noted when its type was inferred
            starts, strides = operator.begins(context, node)
    except DataDependentError:
        return None
    return ("slice", tuple(starts), tuple(strides), value.shape)


def _split_step(node: Node, operator: Split, x: Value, value: Value) -> Step | None:
    axis = operator.axis % len(x.shape)
    start: DimLike = 0
    for output in node.outputs:
        if output is value:
            break
        start = start + output.shape[axis]
    starts = [0] * axis + [start] + [0] * (len(x.shape) - axis - 1)
    return ("slice", tuple(starts), (1,) * len(x.shape), value.shape)


def apply_step(view: View, step: Step) -> View | None:
    """The view behind one more step; None where the two do not compose."""
    kind, *arguments = step
    if kind == "reshape":
        return view.reshape(arguments[0])
    if kind == "transpose":
        return view.transpose(arguments[0])
    return view.slice(*arguments)


VIEWS = (Reshape, Squeeze, Unsqueeze, Flatten, Identity, Transpose, Slice, Split)
"""The operators that `step_of` knows."""


@rule("views", *VIEWS, equation="a chain of Reshape, Transpose, Slice … = Slice? Reshape? Transpose? Reshape?")
def views(node: Node, edit: Edit) -> Result:
    """One canonical chain for what several views do together; nothing where they do nothing.

    before: Reshape [2,3,4] -> [6,4], Transpose, Reshape -> [4,2,3]
    after:  Transpose (2, 0, 1)
    """
    if isinstance(node.operator, Split) or not ranked(node) or not _read_as_tensor(node, edit):
        return None
    chain = _chain(node, edit.graph.assumptions)
    existing = [step for step, _ in reversed(chain)]
    for skipped in range(len(chain)):
        steps, nodes = existing[skipped:], [node for _, node in chain[: len(chain) - skipped]]
        base = nodes[-1].inputs[0]
        assert base is not None
        written = _compose(base.shape, steps)
        if written is None and len(_last_reshapes(steps)) == len(steps):
            continue
        if written == steps and all(isinstance(one.operator, Reshape | Transpose | Slice) for one in nodes):
            return None
        edit.shares(nodes)
        return write(_last_reshapes(steps) if written is None else written, base, edit)
    return None


def _read_as_tensor(node: Node, edit: Edit) -> bool:
    """Whether anybody but further views reads the result: they will look through it themselves."""
    value = node.output
    return value in edit.graph.results or any(
        not isinstance(user.operator, VIEWS) or user.inputs[0] is not value or isinstance(user.operator, Split)
        for user in value.users
    )


def _chain(node: Node, assumptions: Assumptions) -> list[tuple[Step, Node]]:
    """The views above a node and itself, the last first. A Split is looked through where a view lies above it."""
    chain: list[tuple[Step, Node]] = []
    value = node.output
    while (step := step_of(value, assumptions)) is not None:
        above = value.producer
        assert above is not None and above.inputs[0] is not None
        if isinstance(above.operator, Split) and not isinstance(
            above.inputs[0].producer and above.inputs[0].producer.operator, VIEWS
        ):
            break
        chain.append((step, above))
        value = above.inputs[0]
    return chain


def _last_reshapes(steps: Sequence[Step]) -> list[Step]:
    """Steps without the reshapes that are followed by another one."""
    following = [*steps[1:], ("end",)]
    return [step for step, after in zip(steps, following, strict=True) if not step[0] == after[0] == "reshape"]


def _compose(base: Sequence[DimLike], steps: Sequence[Step]) -> list[Step] | None:
    view = identity(base)
    for step in steps:
        further = apply_step(view, step)
        if further is None:
            return None
        view = further
    return view.steps()
