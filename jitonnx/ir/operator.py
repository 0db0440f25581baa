"""What an operator is: the base class of every declaration in `jitonnx.ops`, and the errors that name a node.

An operator instance is one parsed use of an operator: it works as a frozen dataclass whose fields are the attributes of
the newest version. Instances compare by value, so equal nodes are found by comparing their operators and inputs.

    class Softmax(Operator):
        axis: int = -1                       # an attribute with its default; without one it is required
        coerce: bool = internal(default=False)  # no ONNX attribute: set by `upgrade` for what an old version meant

What ONNX says of inputs, outputs and their types is in the schemas (`jitonnx.ir.schema`), and not said again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import InferenceError as InferenceError
from jitonnx.ir.strings import string_scalar
from jitonnx.ir.types import TensorType, Type
from jitonnx.support.records import dataclass

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from jitonnx.ir.bodies import Bodies
    from jitonnx.ir.computation.lowering import Lowering
    from jitonnx.ir.graph import Node, Value
    from jitonnx.ir.inference import InferenceContext
    from jitonnx.ir.raw import RawNode
else:

    def dataclass_transform(**_):
        """The mark that tells type checkers, and only them, that subclasses of Operator become dataclasses."""
        return lambda cls: cls


def internal(*, default: Any) -> Any:
    """A field of an operator that is no ONNX attribute: `upgrade` sets it to keep what an older version meant."""
    return field(default=default, metadata={"internal": True})


class DataDependentError(InferenceError):
    """Sizes of outputs that only a run can tell. Whoever infers a graph asks `Operator.infer_open` then."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(internal,))
class Operator:
    """One operator with its attributes. A subclass is the declaration; see docs/operators.md for how to write one."""

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__name__
        # Only the fields are taken from `dataclass`. The methods that it would generate, and compile, for each of some
        # 200 declarations take 60 ms of every start; those below serve all.
        dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        for entry in fields(cls):  # type: ignore[arg-type]
            if isinstance(entry.default, float) and not entry.metadata:
                entry.default = float(np.float32(entry.default))  # as a file would have it

    def __init__(self, **attributes: Any) -> None:
        """An operator with these attributes. TypeError for one that is missing or that there is not."""
        values = self.__dict__
        for entry in fields(self):  # type: ignore[arg-type]
            value = attributes.pop(entry.name, entry.default)
            if value is MISSING:
                raise TypeError(f"{self.name} needs the attribute {entry.name!r}")
            values[entry.name] = value
        if attributes:
            raise TypeError(f"{self.name} has no attribute {next(iter(attributes))!r}")

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"operators do not change: {name!r} of {self!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"operators do not change: {name!r} of {self!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and attributes_of(self) == attributes_of(other)

    def __hash__(self) -> int:
        return hash((type(self), *attributes_of(self).values()))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in attributes_of(self).items())})"

    name: ClassVar[str] = ""
    """ONNX's operator type; that of the class where a declaration does not say."""
    domain: ClassVar[str] = ""
    """ONNX's domain, "" for ai.onnx."""
    versions: ClassVar[tuple[int, ...]] = ()
    """A user's operator says here, and in the next three, in which versions it changed, oldest first; (1,) by
    default."""
    inputs: ClassVar[tuple[str, ...]] = ()
    """The names of the inputs; a trailing "?" marks an optional one, a trailing "*" a repeated last one. Types stand
    behind a colon, as in "bias?: T" or "shape: tensor(int64)"; without one any tensor will do."""
    outputs: ClassVar[tuple[str, ...]] = ()
    types: ClassVar[frozenset[DType] | Mapping[str, Collection[DType | str]] | None] = None
    """What each type variable of inputs and outputs stands for; or the element types of the first input."""
    elementwise: ClassVar[bool] = False
    """One scalar expression with broadcasting: every output element depends on one element of each input."""
    commutative: ClassVar[bool] = False
    any_attributes: ClassVar[bool] = False
    """A node may have any attributes, of which `of_node` makes the operator."""
    attached: ClassVar[bool] = False
    """`attach` is called for each node of what a session runs, before its first run."""
    deterministic: ClassVar[bool] = True
    """Equal inputs give equal outputs: may be folded and merged."""
    symbolic: ClassVar[bool] = False
    """`evaluate` also works on object arrays of dimension expressions: shape arithmetic."""
    counted: ClassVar[bool] = False
    """`lower` gives outputs of sizes that only a run tells by `Lowering.counted`, where types allow it."""
    decides: ClassVar[bool] = False
    """The first input is a condition that is decided before the run wherever the inputs' sizes tell it."""
    bodies: ClassVar[tuple[str, ...]] = ()
    """ONNX's names of the attributes that are graphs, which the operator runs. `evaluate` is given, as `bodies`, a
    function for each, of a body's own inputs, which gives a list of its outputs. A trailing "?" marks one that may be
    absent: it then gives what it is given."""
    declared_bodies: ClassVar[bool] = False
    """The bodies' own inputs are of the types that the file declares for them, not of those of `body_inputs`, which is
    for bodies that are absent."""

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        """Bring a node of an older version to the newest form, in place: called before its attributes are read."""

    @classmethod
    def of_node(cls, node: RawNode) -> Operator:
        """The operator of a node, whose attributes nothing is declared of: called where `any_attributes` is true."""
        raise NotImplementedError

    def attach(self, node: Node) -> None:
        """Make what a run needs, of types and constants that are known by now; whatever is wrong is an `Error`."""
        raise NotImplementedError

    # A declaration names its inputs one by one. `*Any, **Any` is what type checkers let it narrow in that way.

    def infer(self, context: InferenceContext, /, *inputs: Any, **unused: Any) -> Type | Sequence[Type]:
        """The types of the outputs. An optional input that is absent is None.

        context: answers whether sizes are equal, and what elements inputs have. `value.type` is the input's type,
        `value.contents` its elements where they are known before the run.
        InferenceError for what ONNX does not allow.
        """
        raise NotImplementedError

    def infer_open(self, *inputs: Any, **unused: Any) -> TensorType | Sequence[TensorType]:
        """The types of the outputs where `infer` met sizes that only a run can tell, these being None.

        DataDependentError where not even the ranks are known.
        """
        raise DataDependentError(f"the rank of what {self.name} gives depends on data")

    def body_inputs(self, context: InferenceContext, /, index: int, *inputs: Any, **unused: Any) -> Sequence[Type]:
        """The types of a body's own inputs, when it is run first for these inputs of the node."""
        raise NotImplementedError

    def infer_bodies(self, bodies: Bodies, *inputs: Any, **unused: Any) -> Type | Sequence[Type]:
        """What `infer` gives, for an operator that runs graphs, of which `bodies` tells the types; it has the
        context, too."""
        raise NotImplementedError

    def taken(self, *inputs: Any, **unused: Any) -> int | None:
        """Which of the operator's bodies, of which it runs one, is known to be the one; None: a run tells."""
        return None

    def decompose(self, parts: Any, inputs: Sequence[Value | None], outputs: int) -> Sequence[Value] | None:
        """The first `outputs` outputs by several operators, of which the host evaluates some only; None: as it is.

        parts: `add(operator, *inputs)` and `add_many(operator, inputs, outputs)` make nodes.
        """
        return None

    def contents(self, *inputs: Any, **unused: Any) -> np.ndarray | None:
        """Elements of the first output that follow from the inputs' types alone (Shape, Size), else None.

        An object array that may hold dimension expressions.
        """
        return None

    def evaluate(self, *inputs: Any, **unused: Any) -> Any:
        """The outputs for NumPy arrays (one array, or a tuple of as many as there are outputs): the ground truth."""
        raise NotImplementedError

    def evaluate_sizes(self, context: InferenceContext, /, *inputs: Any) -> Any:
        """What `evaluate` gives, for object arrays of dimension expressions; called if the operator is `symbolic`.

        DataDependentError where expressions stay undecided, as in a comparison.
        """
        return self.evaluate(*inputs)

    def lower(self, to: Lowering, *inputs: Any, **unused: Any) -> Value | Sequence[Value]:
        """State with the computations of `to` what this operator does; the planner decides how.

        By default it is evaluated by the host, between native programs.
        """
        return to.host(self, inputs)


class Tensor:
    """A tensor attribute that compares and hashes by its elements."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def _key(self) -> tuple[Any, ...]:
        elements = tuple(self.array.flat) if self.array.dtype == object else self.array.tobytes()
        return self.array.dtype.str, self.array.shape, elements

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.array!r})"


class SparseTensor(Tensor):
    """A sparse tensor attribute. `array` has zeros, or strings without characters, where the file has no elements."""

    __slots__ = ()


def attributes_of(operator: Operator) -> dict[str, Any]:
    """Attribute names and values of an operator instance."""
    return {entry.name: getattr(operator, entry.name) for entry in fields(operator)}  # type: ignore[arg-type]


def shared_attributes(operator: Operator, declaration: type[Operator]) -> dict[str, Any]:
    """The attributes of an operator that another declaration has, too: what one made in its place is given."""
    names = {entry.name for entry in fields(declaration)}  # type: ignore[arg-type]
    return {name: value for name, value in attributes_of(operator).items() if name in names}


def is_custom(declaration: type[Operator]) -> bool:
    """Whether an operator is a user's."""
    return not declaration.__module__.startswith("jitonnx.ops.")


def as_tuple(result: Any) -> tuple[Any, ...]:
    """What `infer` or `evaluate` returned, as a tuple of outputs."""
    if isinstance(result, tuple | list):
        return tuple(result)
    return (result,)


def evaluate_arrays(operator: Operator, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of `operator` for NumPy arrays, floating-point warnings silenced: infinities and NaN are results."""
    with np.errstate(all="ignore"):
        return results_of(operator, inputs)


def results_of(operator: Operator, inputs: Sequence[Any], **bodies: Any) -> tuple[Any, ...]:
    """The outputs of `operator`: arrays, also where NumPy gives the element of a tensor of rank 0. An operator that
    gives a sequence returns it in a tuple."""
    results = operator.evaluate(*inputs, **bodies)
    return tuple(map(_as_array, results if isinstance(results, tuple) else (results,)))


def _as_array(result: Any) -> Any:
    if isinstance(result, str):  # of which NumPy would make an array of another type than `object`
        return string_scalar(result)
    return np.asarray(result) if isinstance(result, np.generic) else result
