from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Header(_message.Message):
    __slots__ = ("writer", "cpu", "threads", "model", "code", "constants", "labels", "programs", "flags", "explanation", "plans", "ranges")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    PLANS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    writer: str
    cpu: Cpu
    threads: int
    model: ModelInfo
    code: Code
    constants: _containers.RepeatedCompositeFieldContainer[Constant]
    labels: _containers.RepeatedScalarFieldContainer[str]
    programs: _containers.RepeatedCompositeFieldContainer[Program]
    flags: _containers.RepeatedCompositeFieldContainer[Flag]
    explanation: bytes
    plans: _containers.RepeatedCompositeFieldContainer[SavedPlan]
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    def __init__(self, writer: _Optional[str] = ..., cpu: _Optional[_Union[Cpu, _Mapping]] = ..., threads: _Optional[int] = ..., model: _Optional[_Union[ModelInfo, _Mapping]] = ..., code: _Optional[_Union[Code, _Mapping]] = ..., constants: _Optional[_Iterable[_Union[Constant, _Mapping]]] = ..., labels: _Optional[_Iterable[str]] = ..., programs: _Optional[_Iterable[_Union[Program, _Mapping]]] = ..., flags: _Optional[_Iterable[_Union[Flag, _Mapping]]] = ..., explanation: _Optional[bytes] = ..., plans: _Optional[_Iterable[_Union[SavedPlan, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ...) -> None: ...

class Cpu(_message.Message):
    __slots__ = ("architecture", "system", "name", "features", "vector_bytes")
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    VECTOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    architecture: str
    system: str
    name: str
    features: _containers.RepeatedScalarFieldContainer[str]
    vector_bytes: int
    def __init__(self, architecture: _Optional[str] = ..., system: _Optional[str] = ..., name: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., vector_bytes: _Optional[int] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata", "opsets", "inputs", "outputs")
    class CustomMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class OpsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    GRAPH_NAME_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    GRAPH_DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_METADATA_FIELD_NUMBER: _ClassVar[int]
    OPSETS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata: _containers.ScalarMap[str, str]
    opsets: _containers.ScalarMap[str, int]
    inputs: _containers.RepeatedCompositeFieldContainer[Argument]
    outputs: _containers.RepeatedCompositeFieldContainer[Argument]
    def __init__(self, producer_name: _Optional[str] = ..., graph_name: _Optional[str] = ..., domain: _Optional[str] = ..., description: _Optional[str] = ..., graph_description: _Optional[str] = ..., version: _Optional[int] = ..., custom_metadata: _Optional[_Mapping[str, str]] = ..., opsets: _Optional[_Mapping[str, int]] = ..., inputs: _Optional[_Iterable[_Union[Argument, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[Argument, _Mapping]]] = ...) -> None: ...

class Argument(_message.Message):
    __slots__ = ("name", "type", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    shape: Shape
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., shape: _Optional[_Union[Shape, _Mapping]] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ("dims",)
    DIMS_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedCompositeFieldContainer[Dimension]
    def __init__(self, dims: _Optional[_Iterable[_Union[Dimension, _Mapping]]] = ...) -> None: ...

class Dimension(_message.Message):
    __slots__ = ("size", "name")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    size: int
    name: str
    def __init__(self, size: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Code(_message.Message):
    __slots__ = ("sha256", "image", "objects", "symbols", "offsets", "driver")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    image: Image
    objects: _containers.RepeatedScalarFieldContainer[int]
    symbols: _containers.RepeatedScalarFieldContainer[str]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    driver: str
    def __init__(self, sha256: _Optional[bytes] = ..., image: _Optional[_Union[Image, _Mapping]] = ..., objects: _Optional[_Iterable[int]] = ..., symbols: _Optional[_Iterable[str]] = ..., offsets: _Optional[_Iterable[int]] = ..., driver: _Optional[str] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("imports", "imports_offset")
    IMPORTS_FIELD_NUMBER: _ClassVar[int]
    IMPORTS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    imports: _containers.RepeatedScalarFieldContainer[str]
    imports_offset: int
    def __init__(self, imports: _Optional[_Iterable[str]] = ..., imports_offset: _Optional[int] = ...) -> None: ...

class Constant(_message.Message):
    __slots__ = ("offset", "bytes", "dtype", "shape", "sha256")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    offset: int
    bytes: int
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    sha256: bytes
    def __init__(self, offset: _Optional[int] = ..., bytes: _Optional[int] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class Flag(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class Program(_message.Message):
    __slots__ = ("inputs", "outputs", "arena_bytes", "constants", "steps", "keeps_gil")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    ARENA_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    KEEPS_GIL_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[Tensor]
    outputs: _containers.RepeatedCompositeFieldContainer[Tensor]
    arena_bytes: int
    constants: _containers.RepeatedScalarFieldContainer[int]
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    keeps_gil: bool
    def __init__(self, inputs: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., arena_bytes: _Optional[int] = ..., constants: _Optional[_Iterable[int]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., keeps_gil: bool = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("kernel", "slots", "sizes", "tasks", "shared", "grain", "scratch", "label")
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    GRAIN_FIELD_NUMBER: _ClassVar[int]
    SCRATCH_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    kernel: int
    slots: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    tasks: int
    shared: bool
    grain: int
    scratch: int
    label: int
    def __init__(self, kernel: _Optional[int] = ..., slots: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., tasks: _Optional[int] = ..., shared: bool = ..., grain: _Optional[int] = ..., scratch: _Optional[int] = ..., label: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("plan", "inputs")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    plan: int
    inputs: _containers.RepeatedCompositeFieldContainer[Extent]
    def __init__(self, plan: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[Extent, _Mapping]]] = ...) -> None: ...

class Extent(_message.Message):
    __slots__ = ("low", "high")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    low: _containers.RepeatedScalarFieldContainer[int]
    high: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, low: _Optional[_Iterable[int]] = ..., high: _Optional[_Iterable[int]] = ...) -> None: ...

class SavedPlan(_message.Message):
    __slots__ = ("plan", "constants", "kernels")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    plan: Plan
    constants: _containers.RepeatedScalarFieldContainer[int]
    kernels: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, plan: _Optional[_Union[Plan, _Mapping]] = ..., constants: _Optional[_Iterable[int]] = ..., kernels: _Optional[_Iterable[int]] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("numbers", "inputs", "outputs", "arena", "constants", "specs", "calls", "assumptions", "expressions")
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    SPECS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    ASSUMPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXPRESSIONS_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    inputs: _containers.RepeatedCompositeFieldContainer[PlanTensor]
    outputs: _containers.RepeatedCompositeFieldContainer[PlanTensor]
    arena: _containers.RepeatedCompositeFieldContainer[ArenaBuffer]
    constants: _containers.RepeatedCompositeFieldContainer[PlanConstant]
    specs: _containers.RepeatedCompositeFieldContainer[Spec]
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    assumptions: _containers.RepeatedScalarFieldContainer[int]
    expressions: _containers.RepeatedCompositeFieldContainer[Expression]
    def __init__(self, numbers: _Optional[_Iterable[int]] = ..., inputs: _Optional[_Iterable[_Union[PlanTensor, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[PlanTensor, _Mapping]]] = ..., arena: _Optional[_Iterable[_Union[ArenaBuffer, _Mapping]]] = ..., constants: _Optional[_Iterable[_Union[PlanConstant, _Mapping]]] = ..., specs: _Optional[_Iterable[_Union[Spec, _Mapping]]] = ..., calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ..., assumptions: _Optional[_Iterable[int]] = ..., expressions: _Optional[_Iterable[_Union[Expression, _Mapping]]] = ...) -> None: ...

class Expression(_message.Message):
    __slots__ = ("terms",)
    TERMS_FIELD_NUMBER: _ClassVar[int]
    terms: _containers.RepeatedCompositeFieldContainer[Term]
    def __init__(self, terms: _Optional[_Iterable[_Union[Term, _Mapping]]] = ...) -> None: ...

class Term(_message.Message):
    __slots__ = ("coefficient", "factors")
    COEFFICIENT_FIELD_NUMBER: _ClassVar[int]
    FACTORS_FIELD_NUMBER: _ClassVar[int]
    coefficient: int
    factors: _containers.RepeatedCompositeFieldContainer[Factor]
    def __init__(self, coefficient: _Optional[int] = ..., factors: _Optional[_Iterable[_Union[Factor, _Mapping]]] = ...) -> None: ...

class Factor(_message.Message):
    __slots__ = ("variable", "operation")
    VARIABLE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    variable: str
    operation: Operation
    def __init__(self, variable: _Optional[str] = ..., operation: _Optional[_Union[Operation, _Mapping]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("function", "left", "right")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    function: str
    left: int
    right: int
    def __init__(self, function: _Optional[str] = ..., left: _Optional[int] = ..., right: _Optional[int] = ...) -> None: ...

class PlanTensor(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class ArenaBuffer(_message.Message):
    __slots__ = ("bytes", "first", "last")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    first: int
    last: int
    def __init__(self, bytes: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class PlanConstant(_message.Message):
    __slots__ = ("array", "contents", "computed")
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    array: int
    contents: Contents
    computed: Computed
    def __init__(self, array: _Optional[int] = ..., contents: _Optional[_Union[Contents, _Mapping]] = ..., computed: _Optional[_Union[Computed, _Mapping]] = ...) -> None: ...

class Contents(_message.Message):
    __slots__ = ("dtype", "shape", "elements")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    elements: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., elements: _Optional[_Iterable[int]] = ...) -> None: ...

class Computed(_message.Message):
    __slots__ = ("maker", "part", "sizes")
    MAKER_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    maker: Spec
    part: int
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, maker: _Optional[_Union[Spec, _Mapping]] = ..., part: _Optional[int] = ..., sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class Spec(_message.Message):
    __slots__ = ("family", "name", "fields")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    family: str
    name: str
    fields: _containers.RepeatedCompositeFieldContainer[Field]
    def __init__(self, family: _Optional[str] = ..., name: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[Field, _Mapping]]] = ...) -> None: ...

class Field(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: Plain
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[Plain, _Mapping]] = ...) -> None: ...

class Plain(_message.Message):
    __slots__ = ("integer", "number", "text", "truth", "items")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TRUTH_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    integer: int
    number: float
    text: str
    truth: bool
    items: Plains
    def __init__(self, integer: _Optional[int] = ..., number: _Optional[float] = ..., text: _Optional[str] = ..., truth: bool = ..., items: _Optional[_Union[Plains, _Mapping]] = ...) -> None: ...

class Plains(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Plain]
    def __init__(self, items: _Optional[_Iterable[_Union[Plain, _Mapping]]] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("spec", "sizes", "stage_sizes", "operands", "label")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    STAGE_SIZES_FIELD_NUMBER: _ClassVar[int]
    OPERANDS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    spec: int
    sizes: _containers.RepeatedScalarFieldContainer[int]
    stage_sizes: _containers.RepeatedScalarFieldContainer[int]
    operands: _containers.RepeatedScalarFieldContainer[int]
    label: str
    def __init__(self, spec: _Optional[int] = ..., sizes: _Optional[_Iterable[int]] = ..., stage_sizes: _Optional[_Iterable[int]] = ..., operands: _Optional[_Iterable[int]] = ..., label: _Optional[str] = ...) -> None: ...
