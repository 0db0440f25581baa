"""Sessions used by several threads with shapes of all sorts, forked beside compiles, and first used by many threads at
once in processes that find the cache filled: what must never go wrong.

    python -m tests.session.stress threads SECONDS [SEED]
    python -m tests.session.stress forks COUNT [SEED]
    python -m tests.session.stress starts SECONDS [SEED]

Ends with status 0 if every output was right. What would hang is ended by an alarm, with the stacks of all threads. The
tests run this in processes of its own, as what it looks for are crashes and hangs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

import jitonnx
from jitonnx.errors import InvalidArgument
from tests.session.models import model, node, tensor

THREADS = 6
SWITCH_SECONDS = 1e-6
HANG_SECONDS, CHILD_SECONDS = 300, 100
FORKS_A_PROCESS = 10
EXAMPLES = 60
STARTING_THREADS, STARTING_CASES, RUNS_A_START = 16, 2, 6
FEWEST_STARTS = 3

Feeds = dict[str, np.ndarray]


class Case(NamedTuple):
    """A model of a few kernels, feeds of a random shape for it, and what NumPy makes of them: small integers, so that
    every order of summing gives the same bits."""

    name: str
    model: bytes
    feeds: Callable[[random.Random], Feeds]
    expected: Callable[[Feeds], list[np.ndarray]]
    entries: dict[str, str]


_RNG = np.random.default_rng(7)
_FIRST = _RNG.integers(-3, 4, (8, 24)).astype(np.float32)
_SECOND = _RNG.integers(-3, 4, (24, 5)).astype(np.float32)
_TABLE = _RNG.integers(-9, 10, (11, 6)).astype(np.float32)


def _integers(chosen: random.Random, *shape: int) -> np.ndarray:
    return np.random.default_rng(chosen.getrandbits(32)).integers(-4, 5, shape).astype(np.float32)


def _size(chosen: random.Random) -> int:
    """A size of any magnitude: frames grow for the larger ones, and go again as they hold more than a session may."""
    return int(2 ** chosen.uniform(0, 12))


def _layers() -> Case:
    nodes = [
        node("MatMul", ["x", "first"], ["m"]),
        node("Relu", ["m"], ["r"]),
        node("MatMul", ["r", "second"], ["s"]),
        node("Add", ["s", "s"], ["y"]),
        node("ReduceMax", ["r"], ["most"], keepdims=0),
    ]
    made = model(
        nodes,
        [tensor("x", ("rows", "columns", 8))],
        [tensor("y", None), tensor("most", None)],
        {"first": _FIRST, "second": _SECOND},
    )

    def expected(feeds: Feeds) -> list[np.ndarray]:
        hidden = np.maximum(feeds["x"] @ _FIRST, 0)
        return [2 * (hidden @ _SECOND), hidden.max()]

    return Case(
        "layers",
        made,
        lambda chosen: {"x": _integers(chosen, _size(chosen), chosen.randrange(1, 4), 8)},
        expected,
        {"program_megabytes": "1"},
    )


def _sums() -> Case:
    nodes = [
        node("Transpose", ["a"], ["t"], perm=[1, 0]),
        node("Mul", ["t", "b"], ["p"]),
        node("ReduceSum", ["p", "axes"], ["rows"], keepdims=0),
        node("ReduceMax", ["p"], ["most"], keepdims=1),
        node("Sub", ["p", "most"], ["y"]),
    ]
    made = model(
        nodes,
        [tensor("a", ("n", "m")), tensor("b", ("m", "n"))],
        [tensor("y", ("m", "n")), tensor("rows", ("m",))],
        {"axes": np.array([1], np.int64)},
    )

    def feeds(chosen: random.Random) -> Feeds:
        n = _size(chosen)
        m = max(1, _size(chosen) // n)
        return {"a": _integers(chosen, n, m), "b": _integers(chosen, m, n)}

    def expected(feeds: Feeds) -> list[np.ndarray]:
        product = feeds["a"].T * feeds["b"]
        return [product - product.max(keepdims=True), product.sum(axis=1)]

    return Case("sums", made, feeds, expected, {"program_megabytes": "1"})


def _lookup() -> Case:
    """Feeds with an index out of range end in InvalidArgument, in the middle of the run."""
    nodes = [node("Gather", ["table", "i"], ["g"]), node("Add", ["g", "g"], ["y"])]
    made = model(nodes, [tensor("i", ("n",), TensorProto.INT64)], [tensor("y", None)], {"table": _TABLE})

    def feeds(chosen: random.Random) -> Feeds:
        indices = np.random.default_rng(chosen.getrandbits(32)).integers(0, 11, _size(chosen))
        if chosen.random() < 0.2:
            indices[chosen.randrange(len(indices))] = 11
        return {"i": indices}

    def expected(feeds: Feeds) -> list[np.ndarray]:
        return [] if feeds["i"].max() > 10 else [2 * _TABLE[feeds["i"]]]

    return Case("lookup", made, feeds, expected, {"program_megabytes": "1"})


def _rows() -> Case:
    """Cut at a node whose output's shape depends on data; what is behind it has an engine for each shape."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Compress", ["r", "chosen"], ["c"], axis=0),
        node("MatMul", ["c", "first"], ["y"]),
    ]
    made = model(
        nodes,
        [tensor("x", ("n", 8)), tensor("chosen", ("n",), TensorProto.BOOL)],
        [tensor("y", None)],
        {"first": _FIRST},
    )

    def feeds(chosen: random.Random) -> Feeds:
        rows = chosen.randrange(1, 12)
        mask = np.arange(rows) < chosen.randrange(1, rows + 1)
        return {"x": _integers(chosen, rows, 8), "chosen": mask}

    def expected(feeds: Feeds) -> list[np.ndarray]:
        return [np.maximum(feeds["x"], 0)[feeds["chosen"]] @ _FIRST]

    return Case("rows", made, feeds, expected, {})


def _scaled() -> Case:
    """Make one with an input that has a default, which is fed or not."""
    made = model(
        [node("Mul", ["x", "scale"], ["m"]), node("ReduceSum", ["m"], ["sum"], keepdims=0)],
        [tensor("x", ("n",)), tensor("scale", (1,))],
        [tensor("m", ("n",)), tensor("sum", ())],
        {"scale": np.array([3], np.float32)},
    )

    def feeds(chosen: random.Random) -> Feeds:
        fed = {"x": _integers(chosen, _size(chosen))}
        return {**fed, "scale": _integers(chosen, 1)} if chosen.random() < 0.3 else fed

    def expected(feeds: Feeds) -> list[np.ndarray]:
        scaled = feeds["x"] * feeds.get("scale", np.array([3], np.float32))
        return [scaled, scaled.sum()]

    return Case("scaled", made, feeds, expected, {"program_megabytes": "1"})


def _fixed() -> Case:
    """Make one of fixed shapes: kept as a whole in the kernel cache where it comes from a file."""
    nodes = [node("MatMul", ["x", "first"], ["m"]), node("Relu", ["m"], ["y"])]
    made = model(nodes, [tensor("x", (7, 8))], [tensor("y", (7, 24))], {"first": _FIRST})
    return Case(
        "fixed",
        made,
        lambda chosen: {"x": _integers(chosen, 7, 8)},
        lambda feeds: [np.maximum(feeds["x"] @ _FIRST, 0)],
        {},
    )


CASES = (_layers(), _sums(), _lookup(), _rows(), _scaled(), _fixed())


def options(entries: dict[str, str], threads: int = 2) -> jitonnx.SessionOptions:
    made = jitonnx.SessionOptions()
    made.intra_op_num_threads = threads
    for name, value in entries.items():
        made.add_session_config_entry(f"jitonnx.{name}", value)
    return made


def session(case: Case, **entries: str) -> jitonnx.InferenceSession:
    return jitonnx.InferenceSession(case.model, options({**case.entries, **entries}))


def check(case: Case, made: jitonnx.InferenceSession, feeds: Feeds, wanted: list[np.ndarray]) -> None:
    """Run and compare with what NumPy makes of it: all bits."""
    try:
        outputs = made.run(None, feeds)
    except InvalidArgument:
        if wanted:
            raise
        return
    shapes = {name: array.shape for name, array in feeds.items()}
    assert len(outputs) == len(wanted), f"{case.name} {shapes}: {len(outputs)} outputs, not {len(wanted)}"
    for output, right in zip(outputs, wanted, strict=True):
        if not np.array_equal(output, right) or np.shape(output) != np.shape(right):
            raise AssertionError(f"{case.name} {shapes}: wrong in {np.sum(output != right)} of {right.size} places")


class Shared:
    """The sessions that all threads use; any of them may be closed and made anew at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._makers: list[tuple[Case, Callable[[], jitonnx.InferenceSession]]] = []
        for case in CASES:
            self._makers.append((case, lambda case=case: session(case)))
            if case.name in ("layers", "lookup"):
                self._makers.append((case, self._saved(case)))
        self._makers.append((CASES[0], lambda: session(CASES[0], compile="background")))
        file = folder / "fixed.onnx"
        file.write_bytes(CASES[-1].model)
        self._makers.append((CASES[-1], lambda: jitonnx.InferenceSession(file, options({}))))
        self.slots: list[jitonnx.InferenceSession] = [make() for _, make in self._makers]

    def _saved(self, case: Case) -> Callable[[], jitonnx.InferenceSession]:
        """Make one from an artifact that serves ranges of shapes."""
        path = self._folder / f"{case.name}.jitonnx"
        ranges = {"layers": {"x": ((1, 4096), (1, 4), 8)}, "lookup": {"i": ((1, 4096),)}}
        with session(case) as made:
            made.save(path, ranges[case.name])
        return lambda: jitonnx.load(str(path), options(case.entries))

    def choose(self, chosen: random.Random) -> tuple[int, Case, jitonnx.InferenceSession]:
        place = chosen.randrange(len(self.slots))
        return place, self._makers[place][0], self.slots[place]

    def replace(self, place: int) -> None:
        """Close a session in the middle of others' runs; those to come use another one."""
        old, self.slots[place] = self.slots[place], self._makers[place][1]()
        old.close()


def work(shared: Shared, seed: int, until: Callable[[], bool]) -> int:
    """Random runs, and now and then a pickled session, one closed, feeds that do not fit; how many."""
    chosen, count = random.Random(seed), 0
    known: dict[str, list[tuple[Feeds, list[np.ndarray]]]] = {}
    while not until():
        place, case, made = shared.choose(chosen)
        examples = known.setdefault(case.name, [])
        if (
            len(examples) < EXAMPLES
        ):  # made once: what is looked for happens between runs that follow each other at once
            feeds = case.feeds(chosen)
            examples.append((feeds, case.expected(feeds)))
        feeds, wanted = chosen.choice(examples)
        action = chosen.random()
        try:
            if action < 0.002:
                check(case, pickle.loads(pickle.dumps(made)), feeds, wanted)
            elif action < 0.004:
                shared.replace(place)
            elif action < 0.01:
                with contextlib.suppress(InvalidArgument):
                    made.run(None, {name: array[None] for name, array in feeds.items()})
                    raise AssertionError(f"{case.name}: feeds of a wrong rank were taken")
            elif action < 0.015:
                assert made.engine is not None, "what a session lacks that was opened from the cache is loaded"
            elif action < 0.02 and wanted:
                outputs = made.run_async(None, feeds).result()
                assert all(map(np.array_equal, outputs, wanted)), f"{case.name}: run_async is wrong"
            else:
                for _ in range(chosen.choice((1, 5, 50))):
                    check(case, made, *chosen.choice(examples))
        except RuntimeError as error:
            if "the session is closed" not in str(error) or shared.slots[place] is made:
                raise
        count += 1
    return count


def stress_threads(seconds: float, seed: int) -> int:
    """Six threads for so long; how many runs they made. Raises the first error."""
    errors: list[BaseException] = []
    counts: list[int] = []
    sys.setswitchinterval(SWITCH_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        shared = Shared(Path(folder))
        end = time.monotonic() + seconds

        def run(number: int) -> None:
            try:
                counts.append(work(shared, seed + number, lambda: bool(errors) or time.monotonic() > end))
            except BaseException as error:  # raised below
                errors.append(error)

        threads = [threading.Thread(target=run, args=(1000 * number,), daemon=True) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return sum(counts)


def fresh(chosen: random.Random) -> Case:
    """A model whose kernels are in no cache: numbers that are a part of code, chosen at random."""
    numbers = [float(chosen.randrange(1, 1 << 20)) for _ in range(4)]
    names = [f"c{place}" for place in range(len(numbers))]
    nodes = [node("Relu", ["x"], ["y0"])]
    for place, name in enumerate(names):
        nodes.append(node("Sub" if place % 2 else "Add", [f"y{place}", name], [f"y{place + 1}"]))
    nodes.append(node("ReduceMax", [f"y{len(numbers)}"], ["most"], keepdims=0))
    constants = {name: np.float32(number) for name, number in zip(names, numbers, strict=True)}
    made = model(nodes, [tensor("x", ("n", 8))], [tensor(f"y{len(numbers)}", ("n", 8)), tensor("most", ())], constants)

    def expected(feeds: Feeds) -> list[np.ndarray]:
        y = np.maximum(feeds["x"], 0)
        for place, number in enumerate(numbers):
            y = y - np.float32(number) if place % 2 else y + np.float32(number)
        return [y, y.max()]

    return Case("fresh", made, lambda chosen: {"x": _integers(chosen, chosen.randrange(1, 50), 8)}, expected, {})


def try_all(shared: list[tuple[Case, jitonnx.InferenceSession]], seed: int) -> None:
    """What a child process must be able to do: run known shapes and new ones, make sessions, compile."""
    chosen = random.Random(seed)

    def run(case: Case, made: jitonnx.InferenceSession) -> None:
        for _ in range(3):
            feeds = case.feeds(chosen)
            check(case, made, feeds, case.expected(feeds))

    for case, made in shared:
        run(case, made)
    case = chosen.choice(CASES)
    with session(case) as made:
        run(case, made)
    for compile in chosen.sample(("before", "background", ""), 2):
        case = fresh(chosen)
        with session(case, compile=compile) as made:
            run(case, made)
            made.wait_until_compiled()
            run(case, made)


def forked(work: Callable[[], None]) -> int:
    """A child process that does this, and ends with status 1 if it raises, or if it takes too long."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.alarm(CHILD_SECONDS)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def fork_beside(count: int, seed: int) -> None:
    """So many forks of this process while other threads make their first sessions, compile, and run new shapes."""
    chosen, over = random.Random(seed), threading.Event()
    errors: list[BaseException] = []
    shared: list[tuple[Case, jitonnx.InferenceSession]] = []
    sys.setswitchinterval(SWITCH_SECONDS)

    def beside(work: Callable[[random.Random], None], number: int) -> threading.Thread:
        def repeat() -> None:
            own = random.Random(seed + number)
            try:
                while not over.is_set():
                    work(own)
            except BaseException as error:  # raised below
                errors.append(error)

        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        return thread

    def compile(own: random.Random) -> None:
        case = fresh(own)
        with session(case, compile=own.choice(("before", "background", ""))) as made:
            for _ in range(own.randrange(20)):
                feeds = case.feeds(own)
                check(case, made, feeds, case.expected(feeds))

    def run(own: random.Random) -> None:
        if len(shared) < len(CASES):
            case = CASES[len(shared)]
            shared.append((case, session(case)))
        case, made = own.choice(shared)
        feeds = case.feeds(own)
        check(case, made, feeds, case.expected(feeds))

    threads = [beside(compile, 1), beside(run, 2)]
    time.sleep(chosen.uniform(0, 1.5))  # the first fork comes in the middle of imports, or of the first compile
    for number in range(count):
        here = functools.partial(try_all, list(shared), seed + number)
        if number % 4 == 3:
            process = multiprocessing.get_context("fork").Process(target=here)
            process.start()
            process.join()
            status = process.exitcode
        elif number % 4 == 2:  # from a thread other than the main one
            with ThreadPoolExecutor(1) as executor:
                status = executor.submit(lambda: os.waitpid(forked(here), 0)[1]).result()  # noqa: B023  # done at once
        else:
            status = os.waitpid(forked(here), 0)[1]
        assert status == 0, f"child {number} of seed {seed} ended with {status}"
        time.sleep(chosen.uniform(0, 0.3))
        if number == 0 and len(threads) == 2:
            threads.append(beside(run, 3))
    over.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def stress_forks(count: int, seed: int) -> None:
    """So many forks, ten of each of several processes, half of which begin without any compiled code."""
    for first in range(0, count, FORKS_A_PROCESS):
        with tempfile.TemporaryDirectory() as folder:
            cold = first // FORKS_A_PROCESS % 2 == 0
            environment = {**os.environ, "JITONNX_CACHE_DIR": folder} if cold else dict(os.environ)
            forks = min(FORKS_A_PROCESS, count - first)
            command = [sys.executable, "-m", "tests.session.stress", "process", str(forks), str(seed + first)]
            subprocess.run(command, env=environment, check=True)


def start(folder: Path, seed: int) -> None:
    """What a process begins with that finds all code in the cache: each session's first runs are on many threads at
    once, all of sizes of their own, so that whatever is made once is wanted by all of them."""
    sys.setswitchinterval(SWITCH_SECONDS)
    errors: list[BaseException] = []
    chosen = random.Random(seed)
    for number, case in enumerate([CASES[seed % len(CASES)], *chosen.sample(CASES, STARTING_CASES)]):
        meeting = threading.Barrier(STARTING_THREADS)
        path = folder / f"{case.name}.onnx"
        made = jitonnx.InferenceSession(path, options(case.entries, threads=1 + (seed + number) % 3))

        if number or seed % 4:  # runs of new sizes behind others go another way than the first
            feeds = case.feeds(chosen)
            check(case, made, feeds, case.expected(feeds))

        def run(chosen: random.Random, case: Case = case, made: Any = made, meeting: Any = meeting) -> None:
            fed = [case.feeds(chosen) for _ in range(RUNS_A_START)]
            wanted = [case.expected(feeds) for feeds in fed]
            meeting.wait()
            try:
                for feeds, right in zip(fed, wanted, strict=True):
                    check(case, made, feeds, right)
            except BaseException as error:  # raised below
                errors.append(error)

        own = [random.Random(seed * 1000 + 100 * number + place) for place in range(STARTING_THREADS)]
        threads = [threading.Thread(target=run, args=(chosen,)) for chosen in own]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def stress_starts(seconds: float, seed: int) -> int:
    """Processes with a filled cache, one after another for so long, three at least; how many."""
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            path = Path(folder) / f"{case.name}.onnx"
            path.write_bytes(case.model)
            os.utime(path, (1e9, 1e9))
        environment = {**os.environ, "JITONNX_CACHE_DIR": str(Path(folder) / "cache")}
        count, end = 0, None
        while end is None or count <= FEWEST_STARTS or time.monotonic() < end:
            command = [sys.executable, "-m", "tests.session.stress", "start", str(seed + count), folder]
            subprocess.run(command, env=environment, check=True)
            count += 1
            end = end or time.monotonic() + seconds  # the first fills the cache
    return count


def main(arguments: list[str]) -> None:
    """See above."""
    what, amount = arguments[0], float(arguments[1])
    seed = int(arguments[2]) if len(arguments) > 2 and what != "start" else 0
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)  # which ends the process
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    if what == "threads":
        signal.alarm(int(amount) + HANG_SECONDS)
        print(f"{stress_threads(amount, seed)} runs on {THREADS} threads: all right")
    elif what == "starts":
        print(f"{stress_starts(amount, seed)} starts: all right")
    elif what == "start":
        signal.alarm(HANG_SECONDS)
        start(Path(arguments[2]), int(amount))
    elif what == "process":
        signal.alarm(HANG_SECONDS)
        fork_beside(int(amount), seed)
    else:
        stress_forks(int(amount), seed)
        print(f"{int(amount)} forks: all right")


if __name__ == "__main__":
    main(sys.argv[1:])
