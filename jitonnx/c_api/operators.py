"""Operators of libraries (OrtCustomOp) as declarations, which the host evaluates by calling the library."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from jitonnx.c_api import table
from jitonnx.c_api.contexts import Attributes, KernelContext, KernelInfo, Port, ShapeInferContext
from jitonnx.c_api.errors import FAIL, Refused
from jitonnx.c_api.table import POINTER, SIZE, TEXT, take_status
from jitonnx.c_api.values import TensorTypeAndShapeInfo, element_type
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import UNKNOWN, TensorType, Type, type_of
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

INT = ctypes.c_int

_FUNCTIONS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "CreateKernel": (1, (POINTER, POINTER, POINTER, POINTER)),
    "GetName": (1, (TEXT, POINTER)),
    "GetExecutionProviderType": (1, (TEXT, POINTER)),
    "GetInputType": (1, (INT, POINTER, SIZE)),
    "GetInputTypeCount": (1, (SIZE, POINTER)),
    "GetOutputType": (1, (INT, POINTER, SIZE)),
    "GetOutputTypeCount": (1, (SIZE, POINTER)),
    "KernelCompute": (1, (None, POINTER, POINTER)),
    "KernelDestroy": (1, (None, POINTER)),
    "GetInputCharacteristic": (8, (INT, POINTER, SIZE)),
    "GetOutputCharacteristic": (8, (INT, POINTER, SIZE)),
    "GetInputMemoryType": (13, (INT, POINTER, SIZE)),
    "GetVariadicInputMinArity": (14, (INT, POINTER)),
    "GetVariadicInputHomogeneity": (14, (INT, POINTER)),
    "GetVariadicOutputMinArity": (14, (INT, POINTER)),
    "GetVariadicOutputHomogeneity": (14, (INT, POINTER)),
    "CreateKernelV2": (16, (POINTER, POINTER, POINTER, POINTER, POINTER)),
    "KernelComputeV2": (16, (POINTER, POINTER, POINTER)),
    "InferOutputShapeFn": (17, (POINTER, POINTER, POINTER)),
    "GetStartVersion": (17, (INT, POINTER)),
}
"""The functions of an operator in their order: since which version of the interface it has them, and their types, that
of the result first. An operator's memory ends behind those of its version."""

_OPTIONAL, _VARIADIC = 1, 2
"""OrtCustomOpInputOutputCharacteristic."""


class _Struct(ctypes.Structure):
    """OrtCustomOp."""

    _fields_ = [("version", ctypes.c_uint32), *((name, POINTER) for name in _FUNCTIONS)]


class Parameter(NamedTuple):
    """An input or output of an operator."""

    dtype: DType | None
    """None: of any type."""
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True
    least: int = 1


class CustomOp:
    """An operator of a library. Refused where it says something that it may not, or asks for other devices."""

    def __init__(self, address: int) -> None:
        self.address = address
        self._struct = _Struct.from_address(address)
        self._functions: dict[str, Any] = {}
        self.version = self._struct.version
        self.name = (self.call("GetName", address) or b"").decode()
        provider = (self.call("GetExecutionProviderType", address) or b"").decode()
        if provider not in ("", "CPUExecutionProvider"):
            raise Refused(f"the operator {self.name} is one of {provider}; there is the CPU alone", FAIL)
        self.since = self.call("GetStartVersion", address) if self.has("GetStartVersion") else 1
        self.inputs, self.outputs = self._parameters("Input"), self._parameters("Output")
        if not self.outputs:
            raise Refused(f"the operator {self.name} gives nothing", FAIL)

    def has(self, name: str) -> bool:
        """Whether the operator's version has a function, and the library wrote it."""
        return self.version >= _FUNCTIONS[name][0] and bool(getattr(self._struct, name))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function, without the global interpreter lock."""
        called = self._functions.get(name)
        if called is None:
            pointer = getattr(self._struct, name)
            if not pointer:
                raise Refused(f"the operator has no function {name}", FAIL)
            called = self._functions[name] = _prototype(name)(pointer)
        return called(*arguments)

    def _parameters(self, what: str) -> tuple[Parameter, ...]:
        address = self.address
        count = self.call(f"Get{what}TypeCount", address)
        found = []
        for index in range(count):
            dtype = element_type(self.call(f"Get{what}Type", address, index))
            kind = 0
            if self.has(f"Get{what}Characteristic"):
                kind = self.call(f"Get{what}Characteristic", address, index)
            if kind != _VARIADIC or not self.has(f"GetVariadic{what}MinArity"):
                found.append(Parameter(dtype, optional=kind == _OPTIONAL))
                continue
            if index != count - 1:
                raise Refused(f"{what.lower()} {index} of {self.name} is variadic, and not the last one", FAIL)
            alike = bool(self.call(f"GetVariadic{what}Homogeneity", address))
            least = self.call(f"GetVariadic{what}MinArity", address)
            found.append(Parameter(dtype, variadic=True, homogeneous=alike, least=least))
        return tuple(found)

    def takes(self, dtypes: Sequence[DType | None]) -> bool:
        """Whether inputs may be of these types; None for one that is absent."""
        last = len(self.inputs) - 1
        return all(
            dtype is None or self.inputs[min(place, last)].dtype in (dtype, None) for place, dtype in enumerate(dtypes)
        )

    def output_type(self, place: int, dtypes: Sequence[DType | None]) -> DType | None:
        """The type of an output for these inputs: of any type are outputs as the last input that may be of any."""
        dtype = self.outputs[min(place, len(self.outputs) - 1)].dtype
        if dtype is not None:
            return dtype
        last = len(self.inputs) - 1
        free = [
            given for at, given in enumerate(dtypes) if given is not None and self.inputs[min(at, last)].dtype is None
        ]
        return free[-1] if free else None


@fork_safety.once
def _prototype(name: str) -> Any:
    return ctypes.CFUNCTYPE(*_FUNCTIONS[name][1])


class _Kernel:
    """What a library has made for a node."""

    def __init__(self, one: CustomOp, info: KernelInfo) -> None:
        self.one, self.info = one, info
        pointer = info.lent.new(info)
        if one.has("CreateKernelV2"):
            out = POINTER()
            failed = take_status(one.call("CreateKernelV2", one.address, table.api(), pointer, ctypes.addressof(out)))
            if failed is not None:
                info.lent.release()
                raise failed
            self.address = out.value
        else:
            self.address = one.call("CreateKernel", one.address, table.api(), pointer)
        # Not at the end of the process: the library's own memory may be gone by then.
        weakref.finalize(self, _destroy, one, self.address, info).atexit = False

    def run(self, arrays: Sequence[np.ndarray | None], dtypes: Sequence[DType | None]) -> list[np.ndarray | None]:
        """The outputs of these types; None for those that the kernel did not give. Refused as the kernel says."""
        context = KernelContext(arrays, dtypes)
        pointer = context.lent.new(context)
        try:
            if self.one.has("KernelComputeV2"):
                failed = take_status(self.one.call("KernelComputeV2", self.address, pointer))
                if failed is not None:
                    raise failed
            else:
                self.one.call("KernelCompute", self.address, pointer)
            return [None if value is None else value.finished() for value in context.outputs]
        finally:
            context.lent.release()


def _destroy(one: CustomOp, kernel: int | None, info: KernelInfo) -> None:
    if one.has("KernelDestroy"):
        one.call("KernelDestroy", kernel)
    info.lent.release()


class Site:
    """A node of a model with an operator of a library. Its kernel is made once, and may be run by several threads."""

    def __init__(self, node: RawNode) -> None:
        self.name, self.version = node.name, node.version
        self.attributes: Attributes = dict(node.attributes)
        self.inputs = [None if value is None else value.name for value in node.inputs]
        self.outputs = list(node.outputs)
        self.kernel: _Kernel | None = None
        self.lock = fork_safety.lock()


class LibraryOperator(Operator):
    """Base of the operators of libraries. It is given whatever attributes a node has."""

    any_attributes = True
    attached = True
    deterministic = False
    candidates: ClassVar[tuple[CustomOp, ...]] = ()
    """Those of the name, for different types of inputs."""
    library: ClassVar[str] = ""
    """The path that it was registered by."""

    site: Any = internal(default=None)

    @classmethod
    def of_node(cls, node: RawNode) -> Operator:
        return cls(site=Site(node))

    def _chosen(self, dtypes: Sequence[DType | None]) -> CustomOp:
        for one in self.candidates:
            if one.takes(dtypes):
                return one
        given = ", ".join("absent" if dtype is None else dtype.text for dtype in dtypes)
        raise InferenceError(f"{self.name} of {self.library} takes no inputs of the types {given}")

    def infer(self, context: InferenceContext, *inputs: Value | None) -> Sequence[Type]:
        dtypes = [None if value is None else value.dtype for value in inputs]
        one = self._chosen(dtypes)
        count = len(self.site.outputs)
        types: list[Type] = [_type(one.output_type(place, dtypes)) for place in range(count)]
        if not one.has("InferOutputShapeFn"):
            return types
        told = ShapeInferContext(
            [None if value is None else _info(value.type) for value in inputs], self.site.attributes, count
        )
        pointer = told.lent.new(told)
        try:
            failed = take_status(one.call("InferOutputShapeFn", one.address, pointer))
        finally:
            told.lent.release()
        if failed is not None:
            raise InferenceError(f"{self.name} of {self.library} cannot tell the shapes of its outputs: {failed.text}")
        for place, info in enumerate(told.outputs):
            if info is not None and info.shape is not None:
                dtype = info.dtype or one.output_type(place, dtypes)
                # A symbol is a name alone: nothing holds the library to it, so the run tells the size.
                sizes = tuple(size if size >= 0 else None for size in info.shape)
                types[place] = UNKNOWN if dtype is None else TensorType(dtype, sizes)  # type: ignore[arg-type]
        return types

    def attach(self, node: Node) -> None:
        """Make the kernel, so that what it refuses is known before a run."""
        inputs = [Port("", TensorTypeAndShapeInfo(), present=False) if v is None else _port(v) for v in node.inputs]
        outputs = [
            _port(value)._replace(present=bool(name))
            for name, value in zip(self.site.outputs, node.outputs, strict=True)
        ]
        self._made(inputs, outputs)

    def _made(self, inputs: Sequence[Port], outputs: Sequence[Port]) -> _Kernel:
        site: Site = self.site
        with site.lock:
            if site.kernel is None:
                one = self._chosen([port.info.dtype if port.present else None for port in inputs])
                about = (self.domain, self.name, site.version)
                try:
                    site.kernel = _Kernel(one, KernelInfo(site.name, about, site.attributes, inputs, outputs))
                except Refused as refused:
                    raise refused.error(
                        f"{self.name} node {site.name!r}: {refused.text} ({self.library} said so as it made the kernel)"
                    ) from None
            return site.kernel

    def evaluate(self, *inputs: np.ndarray | None) -> tuple[Any, ...]:
        site = self.site
        kernel = site.kernel
        if kernel is None:
            kernel = self._made([_fed(array) for array in inputs], [])
        given = list(inputs) + [None] * (len(site.inputs) - len(inputs))
        dtypes = [None if array is None else of_numpy(array.dtype) for array in given]
        wanted = [kernel.one.output_type(place, dtypes) if name else None for place, name in enumerate(site.outputs)]
        try:
            results = kernel.run(given, wanted)
            for name, result in zip(site.outputs, results, strict=True):
                if name and result is None:
                    raise Refused(f"the kernel gave nothing for the output {name!r}", FAIL)
        except Refused as refused:
            raise refused.error(
                f"Non-zero status code returned while running {self.name} node. Name:'{site.name}' "
                f"Status Message: {refused.text}"
            ) from None
        return tuple(_UNWANTED if result is None else result for result in results)


_UNWANTED = np.empty(0, np.uint8)
"""Stands for outputs that a node does not have."""


def _type(dtype: DType | None) -> Type:
    return UNKNOWN if dtype is None else TensorType(dtype, None)


def _info(type: Type) -> TensorTypeAndShapeInfo:
    shape = None if type.shape is None else tuple(size if isinstance(size, int) else -1 for size in type.shape)
    symbols = () if type.shape is None else tuple(b"" if isinstance(n, int) else str(n).encode() for n in type.shape)
    return TensorTypeAndShapeInfo(type.dtype, shape, symbols)


def _port(value: Value) -> Port:
    return Port(value.name, _info(value.type), value.constant)


def _fed(array: np.ndarray | None) -> Port:
    return Port("", TensorTypeAndShapeInfo(), present=False) if array is None else Port("", _info(type_of(array)))


def declaration(domain: str, library: str, candidates: Sequence[CustomOp]) -> type[LibraryOperator]:
    """The declaration of the operators of one name. Refused for numbers of inputs or outputs that differ."""
    first = candidates[0]
    types: dict[str, frozenset[DType]] = {}
    sides: list[tuple[str, ...]] = []
    for what, of in (("Input", [one.inputs for one in candidates]), ("Output", [one.outputs for one in candidates])):
        if len({len(parameters) for parameters in of}) > 1:
            raise Refused(f"the operators {first.name} have different numbers of {what.lower()}s", FAIL)
        sides.append(tuple(_text(f"{what}{place}", each, types) for place, each in enumerate(zip(*of, strict=True))))
    described = {
        "name": first.name,
        "domain": domain,
        "versions": tuple(sorted({one.since for one in candidates})),
        "inputs": sides[0],
        "outputs": sides[1],
        "types": types,
        "candidates": tuple(candidates),
        "library": library,
        "__doc__": f"{first.name} of {library}.",
        "__module__": __name__,
    }
    return type(first.name, (LibraryOperator,), described)


def _text(name: str, candidates: Sequence[Parameter], types: dict[str, frozenset[DType]]) -> str:
    """A parameter as declarations write it; what may be of several types becomes a variable of its own in `types`."""
    one = candidates[0]
    mark = "*" if one.variadic else "?" if all(each.optional for each in candidates) else ""
    dtypes = {each.dtype for each in candidates}
    if None in dtypes and not (one.variadic and one.homogeneous):
        return f"{name}{mark}"
    types[f"T{name}"] = frozenset(DType) if None in dtypes else frozenset(filter(None, dtypes))
    return f"{name}{mark}: T{name}"
