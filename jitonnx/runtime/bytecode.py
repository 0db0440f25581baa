"""Chains of programs: native segments one after the other, whose sizes those before tell, in one native call.

    chain = Bytecode(links, pool, threads, variables, room)
    steps = chain.run(arrays)

Native code (`native/bytecode.py`) makes a link's program for the values that the dimension variables have by then,
where they are not those of the run before, runs it, and reads off its results what they tell of sizes. Between links
lies a list of arrays, Python's, which has a place for each value. Where anything is unusual native code says how many
steps are done, and Python does the others. One run at a time has a chain.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.support.records import NamedTuple

from .blocks import ALIGNED_BYTES, LARGE_BYTES, blocks
from .bytecode_loops import BytecodeLoop, BytecodeLoopPlaces
from .entry import EntryKeeper, chain_builtin, entry_record, supported
from .execution_contexts import ExecutionContextPool
from .instantiation import Arithmetic, Instantiation
from .layout import BINDING, CHAIN, CHAINED_INPUT, LINK, PROGRAM, WORD_BYTES, Opcode, Record, address, offset
from .native_memory import NativeMemory
from .observed_loops import NativeLoop
from .program import TensorKinds, Words
from .signature import Signature
from .tables import Common
from .threads import team

if TYPE_CHECKING:
    from .executable import Executable


class Sized(NamedTuple):
    """What a link's programs are made by.

    arithmetic: of the chain's own, as others use theirs at the same time. first: the register of the first variable.
    variables: which of the chain's. quick: a run estimated to take no more nanoseconds keeps the GIL.
    """

    native: Instantiation
    arithmetic: Arithmetic
    first: int
    variables: Sequence[int]
    quick: int


class BoundVariable(NamedTuple):
    """A variable that an array tells: its element `place`, of integers of `itemsize` bytes, 4 or 8; of `itemsize` 0 the
    size of its axis `place`.

    size: how many elements the array has, which must not be negative.
    """

    slot: int
    itemsize: int
    place: int
    size: int
    variable: int


Program: TypeAlias = "Executable | Sized | NativeLoop"
"""A program that serves all sizes, what makes those for each, or a loop and the variables that it depends on."""


class SegmentInstruction(NamedTuple):
    """A native segment or loop. program: what runs it, None if that is Python.

    inputs: the places that it reads, and whether a link has filled them. outputs: those that it fills.
    shared: given where callers may put arrays in the places of outputs, which are written to then: the input that may
    be the same memory as an output, by output. Such a segment tells no sizes. target: of a loop that further links can
    do, too, the number of the link behind these, else -1.
    """

    program: Program | None
    inputs: Sequence[tuple[int, bool]]
    outputs: Sequence[int]
    bound: Sequence[BoundVariable] = ()
    shared: Mapping[int, int] | None = None
    target: int = -1


class SizesInstruction(NamedTuple):
    """Reads variables off the inputs, which lie in the first places of the list. kinds: of these.

    shapes: what is known of their sizes, -1 for what may be any.
    """

    kinds: TensorKinds
    shapes: Sequence[Sequence[int]]
    bound: Sequence[BoundVariable]


class BranchInstruction(NamedTuple):
    """Goes on at link number `target` unless the truth value in a place holds."""

    condition: int
    target: int


class MoveInstruction(NamedTuple):
    """Places of the list get what others hold; goes on at link number `target`."""

    moves: Sequence[tuple[int, int]]
    target: int


class LoopInstruction(NamedTuple):
    """A part of a loop whose body is links of the chain: `kind` says which. target: as `layout.LINK` says."""

    kind: Opcode
    loop: BytecodeLoopPlaces
    target: int = -1
    bound: Sequence[BoundVariable] = ()


BytecodeInstruction: TypeAlias = (
    "SegmentInstruction | BranchInstruction | MoveInstruction | LoopInstruction | SizesInstruction"
)


class Placed(NamedTuple):
    """A link in its chain.

    step: which step it is of. checks: operations on the variables that are done before it, None if there are none;
    where one misses something the link is left to Python. drops: places whose arrays nobody reads any more.
    """

    link: BytecodeInstruction
    step: int
    checks: Words | None
    drops: Sequence[int]


_Fields: TypeAlias = "dict[str, int]"


class _Kept(NamedTuple):
    """What a link of programs made for sizes points to: the record of its program, and other things."""

    program: Record
    others: tuple[Any, ...]


class Bytecode:
    """Links that run one after the other.

    steps: how many steps they are of. registers: the variables, and what checks need behind them.
    """

    def __init__(
        self, links: Sequence[Placed], steps: int, pool: ExecutionContextPool, threads: int, registers: Words
    ) -> None:
        assert supported(), "Bug: a chain reads objects that do not lie as it expects"
        self.registers = registers
        """The values of the variables come first."""
        self._pool, self._threads, self._memory = pool, threads, NativeMemory()
        self._programs: dict[int, Any] = {}
        """What the links of segments point to."""
        self._bytecode_loops: dict[int, BytecodeLoop] = {}
        """Loops whose bodies are links, by the place of their number."""
        self._links = np.zeros(len(links), LINK)
        for number, placed in enumerate(links):
            self._set(number, self._link(placed))
            if isinstance(placed.link, SegmentInstruction) and placed.link.program is not None:
                self.set(number, placed.link.program)
        self._record = np.zeros(1, CHAIN)
        self._record[0] = (
            pool.address,
            address(self._links),
            len(links),
            steps,
            address(registers),
            self._memory.place(np.zeros(1, np.int64)),
            0,
            0,
            LARGE_BYTES,
            ALIGNED_BYTES,
            id(None),
            0,
        )
        self._done, self._large, self._unlike = (
            ctypes.c_int64.from_address(address(self._record) + offset(CHAIN, name))
            for name in ("done", "large", "unlike")
        )
        self._serves = False
        # Its keeper is not the chain itself, which would hold itself alive.
        self._call = chain_builtin(self._record, (self._memory, self._programs, self._links))

    def run(self, arrays: list[Any]) -> int:
        """How many steps are done. arrays: a place for each value; those that are given are filled."""
        self._call(arrays)
        if self._large.value and not self._serves:
            self._serves = True
            blocks().serve(self)
        return self._done.value

    def take_unlike(self) -> bool:
        """Whether runs since the last call have met loops of inputs that their links are not for."""
        met, self._unlike.value = self._unlike.value > 0, 0
        return met

    def set(self, number: int, program: Program | None) -> None:
        """Have the segment that is link `number` run by a program, or by those that are made from now on, or a loop.
        None: a loop that further links do, if there are any."""
        if program is None:
            if self._links[number]["target"] >= 0:
                self._set(number, {"kind": Opcode.SKIP})
            return
        if isinstance(program, NativeLoop):
            fields, kind = self._observed(program), Opcode.LOOP
            self._programs[number] = program
        else:
            made = self._sized(program) if isinstance(program, Sized) else self._fixed(program)
            (fields, self._programs[number]), kind = made, Opcode.SEGMENT
        self._set(number, {**fields, "kind": kind})

    def memory_bytes(self, number: int) -> int:
        """The memory of a frame that the last program of link `number` needs, whose programs are made for sizes."""
        record: Record = self._programs[number].program
        return int(record["memory_bytes"][0])

    def _set(self, number: int, fields: _Fields) -> None:
        for name, value in fields.items():
            self._links[number][name] = value

    def _link(self, placed: Placed) -> _Fields:
        link = placed.link
        fields = {
            "step": placed.step,
            "checks": 0 if placed.checks is None else self._memory.place(placed.checks),
            "drops": self._memory.place(np.array(placed.drops, np.int64)),
            "drop_count": len(placed.drops),
        }
        if isinstance(link, BranchInstruction):
            return {**fields, "kind": Opcode.CHOICE, "condition": link.condition, "target": link.target}
        if isinstance(link, MoveInstruction):
            inputs = [(source, True) for source, _ in link.moves]
            outputs = np.array([target for _, target in link.moves], np.int64)
            return {
                **fields,
                "kind": Opcode.MOVE,
                "inputs": self._inputs(inputs),
                "outputs": self._memory.place(outputs),
                "move_count": len(inputs),
                "target": link.target,
            }
        fields |= {
            "bindings": self._memory.records(BINDING, link.bound),
            "binding_count": len(link.bound),
        }
        if isinstance(link, SizesInstruction):
            given = self._inputs([(place, False) for place in range(len(link.shapes))])
            return {**fields, "kind": Opcode.SIZES, "entry": self._described(link), "inputs": given}
        fields["target"] = link.target
        if isinstance(link, LoopInstruction):
            return {**fields, "kind": link.kind, "bytecode_loop": self._bytecode_loop(link.loop)}
        return {
            **fields,
            "kind": Opcode.LEFT if link.target < 0 else Opcode.PASS,
            "inputs": self._inputs(link.inputs),
            "outputs": self._memory.place(np.array(link.outputs, np.int64)),
            "shared": 0 if link.shared is None else self._shared(link.shared, len(link.outputs)),
        }

    def _bytecode_loop(self, loop: BytecodeLoopPlaces) -> int:
        """The address of the record of a loop, which its links share."""
        if loop.number not in self._bytecode_loops:
            made = self._bytecode_loops[loop.number] = BytecodeLoop(self._pool, loop)
            self._memory.kept.append(made)
        return self._bytecode_loops[loop.number].address

    def _shared(self, shared: Mapping[int, int], outputs: int) -> int:
        return self._memory.place(np.array([shared.get(output, -1) for output in range(outputs)], np.int64))

    def _described(self, link: SizesInstruction) -> int:
        """The address of an entry that says what the inputs are."""
        signature = Signature(link.kinds, TensorKinds.of([], [], []))
        pitch = max(map(len, link.shapes), default=0)
        shapes = np.full((len(link.shapes), max(pitch, 1)), -1, np.int64)
        for row, sizes in zip(shapes, link.shapes, strict=True):
            row[: len(sizes)] = sizes
        nothing = np.zeros(1, np.int64)
        entry = entry_record(
            self._pool,
            0,
            (*signature.inputs_place, address(shapes), shapes.shape[1] * WORD_BYTES),
            (*signature.outputs_place, address(nothing), 0),
            nothing,
            release_gil=False,
        )
        self._memory.kept += [signature, shapes, nothing, entry]
        return address(entry)

    def _fixed(self, executable: Executable) -> tuple[_Fields, Any]:
        """A program that serves all sizes, and what is kept for it."""
        keeper = EntryKeeper(executable.loadable, self._pool, release_gil=True)
        return {"entry": address(keeper.record), "fresh": 0}, keeper

    def _sized(self, sized: Sized) -> tuple[_Fields, Any]:
        """Programs that are made as the chain runs, all in one block."""
        native, arithmetic = sized.native, sized.arithmetic
        plan, common = native.record(len(arithmetic.results)), native.common
        plan.use(arithmetic)
        block = plan.template.copy()
        places = {name: address(block) + WORD_BYTES * place.start for name, place in plan.places.items()}
        program = _program(common, places, plan.step_count, sum(plan.tensors), zeros=self._pool.zeros)
        large = np.zeros(max(plan.tensors[1], 1), np.int64)
        signature, pitch, shapes = common.signature, plan.pitch * WORD_BYTES, places["shapes"]
        entry = entry_record(
            self._pool,
            address(program),
            (*signature.inputs_place, shapes, pitch),
            (*signature.outputs_place, shapes + plan.tensors[0] * pitch, pitch),
            large,
            release_gil=True,
            some_aligned=True,
        )
        variables = np.array(sized.variables, np.int64)
        crew = team(self._threads) if self._threads > 1 else None
        fields = {
            "plan": plan.address,
            "block": address(block),
            "program": address(program),
            "entry": address(entry),
            "threads": self._threads,
            "team": crew.address if crew else 0,
            "arena_begin": common.arena_begin,
            "quick": sized.quick,
            "variables": address(variables),
            "variable_count": len(variables),
            "known": address(arithmetic.registers) + WORD_BYTES * sized.first,
            "fresh": 1,
        }
        return fields, _Kept(program, (plan, native, arithmetic, block, large, entry, variables, crew))

    def _observed(self, observed: NativeLoop) -> _Fields:
        """A loop."""
        return {
            "observed_loop": observed.address,
            "entry": observed.entry,
            "variables": address(observed.variables),
            "variable_count": len(observed.variables),
        }

    def _inputs(self, inputs: Sequence[tuple[int, bool]]) -> int:
        return self._memory.records(CHAINED_INPUT, inputs)


def _program(common: Common, places: Mapping[str, int], steps: int, bases: int, *, zeros: bool) -> Record:
    """A `PROGRAM` whose tables lie at certain places, but for what follows from sizes."""
    record = np.zeros(1, PROGRAM)
    numbers = {
        "rows": places["rows"],
        "row_count": steps,
        "patches": places["patches"],
        "patch_count": common.patch_count,
        "flag_count": len(common.flags),
        "flush": int(zeros),
        "pointers": places["pointers"],
        "in_arena": common.in_arena_place,
        "pointer_count": len(common.in_arena),
        "base_count": bases,
    }
    for name, number in numbers.items():
        record[name] = number
    return record
