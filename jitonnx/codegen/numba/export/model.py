"""A model that is lowered, as a package: its weights, a Numba function for each region, and `run`, which goes through
them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import FunctionType

import numpy as np

from jitonnx.codegen.numba import scalars
from jitonnx.codegen.numba.export import operators
from jitonnx.codegen.numba.export.calls import CALLS, Call, dtype_text
from jitonnx.codegen.numba.export.kernels import Region, region_of, write_kernel
from jitonnx.codegen.numba.export.modules import first_module, model_module, operators_module, run_function
from jitonnx.codegen.numba.export.names import Names, identifier, literal, size_text, tuple_text
from jitonnx.codegen.numba.writing import Uncovered
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowered, Statement
from jitonnx.ir.dims import DimLike, taking, variables
from jitonnx.ir.dtypes import COMPILED, HALVES, DType
from jitonnx.ir.graph import Binding, Node, Value, short_name
from jitonnx.ir.types import is_symbolic
from jitonnx.plan.fusion import Group, fuse
from jitonnx.support.records import NamedTuple

INLINE = 4
"""Elements of a constant that is written into the module, at most; others are weights in files."""
TYPES = COMPILED - {DType.BFLOAT16}
"""Element types that kernels compute with and NumPy has by itself."""
_RESERVED = frozenset({"np", "njit", "run", "sizes", "Any", "Path", "INPUTS", "OUTPUTS", "WEIGHTS"})
_FUNCTIONS = frozenset(name for name in vars(operators) if not name.startswith("__"))
_SCALARS = frozenset(name for name, value in vars(scalars).items() if isinstance(value, FunctionType))
_TAKEN = _RESERVED | _FUNCTIONS | _SCALARS


class Package(NamedTuple):
    """What is written: modules by their files' names, and weights by theirs without the ending."""

    modules: dict[str, str]
    weights: dict[str, np.ndarray]
    regions: int
    kernels: int
    """How many functions the regions are, as equal ones are one."""


class CannotExport(Exception):
    """What has no plain form, nodes and inputs, each with the reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{what}: {reason}" for what, reason in reasons.items()))
        self.reasons = dict(reasons)


def write_package(
    lowered: Lowered, title: str, outputs: Sequence[str], bindings: Mapping[str, Binding] | None = None
) -> Package:
    """The modules and weights of a lowered graph. title: what the model is called. outputs: what it calls its outputs,
    which may be values of other names behind rewrites.

    bindings: what dimension variables are bound to that only a run tells, elements of values, as of `Graph`.

    Raises: CannotExport with all that has no plain form.
    """
    with taking(lowered.assumptions.taken):
        return _PackageWriter(lowered, bindings or {}).package(title, outputs)


class _Kernel:
    """A function, and the regions that it is."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.name = ""


class _PackageWriter:
    def __init__(self, lowered: Lowered, bindings: Mapping[str, Binding]) -> None:
        self._lowered, self._bindings = lowered, bindings
        self._names = Names(_TAKEN)
        self._of_value: dict[Value, str] = {}
        """What values are called in `run`."""
        self._of_size: dict[str, str] = {}
        """What dimension variables are called that are known by now."""
        self._of_constant: dict[tuple[object, ...], str] = {}
        self._weights: dict[str, np.ndarray] = {}
        self._constants: list[str] = []
        """Lines that define weights and small constants."""
        self._lines: list[str] = []
        """Those of `run`."""
        self._called: dict[str, None] = {}
        """Functions of `operators`."""
        self._kernels: dict[Region, _Kernel] = {}
        self._refused: dict[str, str] = {}
        self._ready: set[Value] = set(lowered.inputs)
        self._unmet = list(lowered.assumptions)
        """Pairs of sizes that have to be equal and of which `run` does not know both yet."""

    def package(self, title: str, output_names: Sequence[str]) -> Package:
        groups = fuse(self._lowered, lambda statement: False, lambda statement, value: False)
        self._find_refused()
        self._find_kernels(groups)
        self._take_inputs()
        self._write_groups(groups)
        if self._refused:
            raise CannotExport(self._refused)
        results = [f"{self._function('owned')}({self._value(value)})" for value in self._lowered.outputs]
        self._lines.append(f"return {tuple_text(results)}")
        sources = [self._kernel_source(region, kernel) for region, kernel in self._kernels.items()]
        run = run_function([self._of_value[value] for value in self._lowered.inputs], self._lines)
        shapes = zip(self._lowered.inputs, self._lowered.given_shapes, strict=True)
        inputs = {value.name: self._type(value, shape) for value, shape in shapes}
        given = zip(output_names, self._lowered.outputs, strict=True)
        outputs = {name: self._type(value, value.shape) for name, value in given}
        modules = {
            "__init__.py": first_module(title),
            "model.py": model_module(title, inputs, outputs, self._constants, sources, run, _FUNCTIONS | _SCALARS),
            "operators.py": operators_module(self._called, sources),
        }
        regions = sum(len(kernel.groups) for kernel in self._kernels.values())
        return Package(modules, self._weights, regions, len(self._kernels))

    # ---------------------------------------------------------------- what cannot be exported

    def _find_refused(self) -> None:
        """Note inputs and nodes of computations or types that have no plain form."""
        for value in self._lowered.inputs:
            if value.dtype not in TYPES:
                self._refused[f"input {value.name!r}"] = _foreign(value)
        for statement in self._lowered.statements:
            computation = statement.computation
            if isinstance(computation, c.Host):
                self._refuse(statement.node, "it has no kernel: jitonnx evaluates it by code of its own on NumPy")
            elif not isinstance(computation, c.Map | c.Fill) and type(computation) not in CALLS:
                self._refuse(statement.node, f"its computation, {computation.name}, has no plain form")
            for operand in (*statement.inputs, *statement.outputs):
                if operand is not None and operand.dtype not in TYPES:
                    self._refuse(statement.node, _foreign(operand))

    def _refuse(self, node: Node, reason: str) -> None:
        self._refused.setdefault(short_name(node), reason)

    # ---------------------------------------------------------------- regions

    def _find_kernels(self, groups: Sequence[Group]) -> None:
        """Find the regions, and those that are the same."""
        for group in groups:
            region = _region(group)
            if region is not None:
                self._kernels.setdefault(region, _Kernel()).groups.append(group)
        for kernel in self._kernels.values():
            first = kernel.groups[0]
            operators = dict.fromkeys(statement.node.operator.name for statement in first.maps)
            wish = first.origin[-1] if len(kernel.groups) == 1 and first.origin else "_".join(operators)
            kernel.name = self._names.of(f"region_{identifier(wish)}")

    def _kernel_source(self, region: Region, kernel: _Kernel) -> str:
        """A function; the model's names are in it where it is one region's alone."""
        first = kernel.groups[0]
        assert first.output is not None
        arguments = [value.name for value in (*_operands(first), first.output)]
        if len(kernel.groups) > 1:
            arguments = [*(f"x{number}" for number in range(len(region.operands))), "y"]
        return write_kernel(region, kernel.name, arguments, list(map(_stands_for, kernel.groups)), _TAKEN)

    # ---------------------------------------------------------------- the function `run`

    def _take_inputs(self) -> None:
        """Take the inputs, and learn their sizes."""
        inputs, shapes = self._lowered.inputs, self._lowered.given_shapes
        told = dict.fromkeys(name for shape in shapes for dim in shape for name in sorted(variables(dim)))
        self._of_value.update((value, self._names.of(value.name)) for value in inputs)
        self._of_size.update((name, self._names.of(name)) for name in told)
        if inputs:
            self._lines.append("sizes: dict[str, int] = {}")
        for value, shape in zip(inputs, shapes, strict=True):
            name = self._of_value[value]
            wanted = tuple_text([str(dim) if isinstance(dim, int) else json.dumps(self._size(dim)) for dim in shape])
            given = f"{json.dumps(value.name)}, {name}, {dtype_text(value.dtype)}, {wanted}, sizes"
            self._lines.append(f"{name} = {self._function('take_input')}({given})")
        self._lines += [f'{self._of_size[name]} = sizes["{self._of_size[name]}"]' for name in told]
        for value in inputs:
            self._learn_sizes(value)
        self._require_equal()

    def _learn_sizes(self, value: Value) -> None:
        """Take the sizes that a value's elements tell."""
        for variable, binding in self._bindings.items():
            if binding.value is value or (variable not in self._of_size and binding.value.name == value.name):
                name = self._of_size[variable] = self._names.of(variable)
                self._lines.append(f"{name} = int({self._of_value[value]}.reshape(-1)[{binding.place}])")

    def _require_equal(self) -> None:
        """Ask for sizes to be equal that the graph takes to be, as soon as they are known."""
        for pair in list(self._unmet):
            if not variables(pair[0]) | variables(pair[1]) <= self._of_size.keys():
                continue
            self._unmet.remove(pair)
            condition = " == ".join(map(self._size, pair))
            node = self._lowered.assumptions.demanded_by(pair)
            why = f"{node} needs" if node else "the package is for sizes with"
            told = [
                self._bindings[name]
                for name in sorted(variables(pair[0]) | variables(pair[1]))
                if name in self._bindings
            ]
            hint = "" if node else "; export the model anew for others, with --shape"
            if told and not node:
                hint = f", where elements of {', '.join(repr(binding.value.name) for binding in told)} are sizes"
            self._lines.append(f"{self._function('require')}({condition}, {json.dumps(f'{why} {condition}{hint}')})")

    def _write_groups(self, groups: Sequence[Group]) -> None:
        """The groups in order, each as soon as what it reads and the sizes in it are there."""
        waiting = list(groups)
        while waiting:
            left = [group for group in waiting if not self._written(group)]
            if len(left) == len(waiting):
                for group in left:
                    self._refuse(group.statements[-1].node, "it needs sizes that only a run tells")
                return
            waiting = left

    def _written(self, group: Group) -> bool:
        """Whether a group could be written, or has been refused, and so does not wait any more."""
        values = [value for s in group.statements for value in (*s.inputs, *s.outputs) if value is not None]
        made = [value for statement in group.statements for value in statement.outputs]
        waits = {value for value in values if value.contents is None} - self._ready - set(made)
        if waits or any(not _sizes_in(value) <= self._of_size.keys() for value in values):
            return False
        try:
            if group.anchor is not None and type(group.anchor.computation) in CALLS:
                self._write_call(group.anchor)
            if (region := _region(group)) is not None:
                self._write_region(group, region)
        except Uncovered as reason:
            self._refuse((group.anchor or group.maps[-1]).node, f"there is no plain form of {reason}")
        for value in made:
            self._ready.add(value)
            if value in self._of_value:
                self._learn_sizes(value)
            self._of_value.setdefault(value, "refused")  # others may read it, and be refused, too
        self._require_equal()
        return True

    def _write_region(self, group: Group, region: Region) -> None:
        """An array for the result, and the call of the kernel, which writes it."""
        name = self._kernels[region].name
        node = _stem(group.maps[-1].node)
        operands = [self._value(value, f"{node}_{number}") for number, value in enumerate(_operands(group))]
        self._kernel_source(region, self._kernels[region])  # which tells what has no source
        result = self._of_value[group.output] = self._names.of(group.output.name)
        arrays = zip((*operands, result), (*region.operands, region.result), strict=True)
        given = ", ".join(f"{text}.view(np.uint16)" if of.dtype in HALVES else text for text, of in arrays)
        self._lines.append(
            f"{result} = np.empty({self._literal(group.output.shape)}, {dtype_text(group.output.dtype)})"
        )
        self._lines.append(f"{name}({given})")

    def _write_call(self, statement: Statement) -> None:
        node = _stem(statement.node)
        roles = dict(enumerate(("x", "weight", "bias") if len(statement.inputs) < 4 else ()))
        operands = [
            None if value is None else self._value(value, f"{node}_{roles.get(number, number)}")
            for number, value in enumerate(statement.inputs)
        ]
        call = Call(statement, operands, self._variable)
        text = CALLS[type(statement.computation)](call)
        self._called.update(dict.fromkeys(call.functions))
        if isinstance(statement.computation, c.Check):
            self._lines.append(text)
            return
        first = statement.outputs[0]
        if len(statement.outputs) == 1 and not first.shape and not isinstance(statement.computation, c.View):
            text = f"np.asarray({text})"  # for NumPy makes a number of an array with one element and no axes
        names = [self._names.of(value.name) for value in statement.outputs]
        self._of_value.update(zip(statement.outputs, names, strict=True))
        shape = "" if isinstance(statement.computation, c.View) else f"  # {self._type(first, first.shape)}"
        self._lines.append(f"{', '.join(names)} = {text}{shape}")

    def _function(self, name: str) -> str:
        self._called[name] = None
        return name

    # ---------------------------------------------------------------- texts

    def _variable(self, name: str) -> str:
        return self._of_size[name]

    def _size(self, dim: DimLike) -> str:
        return size_text(dim, self._variable)

    def _literal(self, value: object) -> str:
        return literal(value, self._variable)

    def _type(self, value: Value, shape: Sequence[DimLike]) -> str:
        return f"{value.dtype.numpy.name}[{', '.join(map(self._size, shape))}]"

    def _value(self, value: Value, wish: str = "") -> str:
        """The name of a value that is there. wish: what to call a constant that nobody has named."""
        if value in self._of_value:
            return self._of_value[value]
        unnamed = re.fullmatch(r"(constant|dims)\w*", value.name) is not None
        wish = wish if wish and unnamed else value.name
        if value.constant is not None:
            name = self._constant(wish, value.constant, value.dtype)
        else:
            assert value.contents is not None, f"Bug: {value} is read before it is made"
            name = self._names.of(wish)
            self._lines.append(f"{name} = {self._small(value.contents, value.dtype)}")
        self._of_value[value] = name
        return name

    def _small(self, array: np.ndarray, dtype: DType) -> str:
        """Elements, which may be sizes, as an array in the module."""
        elements = [self._literal(element) for element in array.reshape(-1)]
        if array.ndim == 0:
            return f"np.array({elements[0]}, {dtype_text(dtype)})"
        shaped = "" if array.ndim == 1 else f".reshape({self._literal(array.shape)})"
        return f"np.array([{', '.join(elements)}], {dtype_text(dtype)}){shaped}"

    def _constant(self, wish: str, array: np.ndarray, dtype: DType) -> str:
        """A constant of the module, for all values that have these elements where they lie."""
        small = array.size <= INLINE
        place = (array.tobytes() if small else (array.ctypes.data, array.strides), array.shape, array.dtype)
        if place not in self._of_constant:
            name = self._of_constant[place] = self._names.of(wish)
            if small:
                self._constants.append(f"{name} = {self._small(array, dtype)}")
            else:
                self._weights[name] = array
                shape = f"  # {dtype.numpy.name}{list(array.shape)}"
                self._constants.append(f'{name} = {self._function("load_weight")}(WEIGHTS, "{name}"){shape}')
        return self._of_constant[place]


def _region(group: Group) -> Region | None:
    """What a group computes element by element, behind its anchor, if it has one."""
    if group.expr is None:
        return None
    return region_of(group.expr, _operands(group), group.output)


def _operands(group: Group) -> list[Value]:
    """What a region reads: behind an anchor first what that gives."""
    return [group.anchor.outputs[0], *group.operands] if group.anchor else group.operands


def _stands_for(group: Group) -> str:
    """The nodes of a region, with their operators."""
    operators = {name: s.node.operator.name for s in group.statements for name in s.node.origin or (s.node.name,)}
    return ", ".join(f"{operators.get(name, 'node')} {name!r}" for name in group.origin)


def _stem(node: Node) -> str:
    """What constants that only a node reads are called after."""
    return identifier((node.origin or (node.name,))[0])


def _foreign(value: Value) -> str:
    kind = "of no known type" if value.dtype is None else f"of {value.dtype.text}"
    return f"{value.name!r} is {kind}, which NumPy does not have by itself"


def _sizes_in(value: Value) -> set[str]:
    """The dimension variables that a value's shape and elements are made of."""
    sizes = list(value.type.shape or ())
    if value.contents is not None and is_symbolic(value.contents):
        sizes += value.contents.flat
    return set().union(*map(variables, sizes))
