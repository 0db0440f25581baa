"""Who draws which random numbers: states, each a key and the number of the next draw.

A state is two int64 words that native code reads and counts on (`kernels/random`): each draw of a run, and each
evaluation on NumPy, takes the next number. Keys are the system's randomness; after `set_seed` they follow from its
seed and from how many states were made since.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt

_ALIGNMENT = 64
_WORD = (1 << 64) - 1


class Drawn(NamedTuple):
    """A draw: numbers follow from the key, of 64 bits, and the number of the draw."""

    key: int
    number: int


class _Source:
    """The source of keys, which come from the system, or from a seed."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed, self._made = seed, 0
        self._lock = fork_safety.lock()
        self._here: npt.NDArray[np.int64] | None = None

    def key(self) -> int:
        """A key that no other state has."""
        if self.seed is None:
            return int.from_bytes(os.urandom(8), "little")
        with self._lock:
            self._made += 1
            return _mixed(_mixed(self.seed & _WORD) + self._made & _WORD)

    def draw(self) -> Drawn:
        """The next draw of what is evaluated on NumPy."""
        with self._lock:
            if self._here is None:
                self._here = new_state()
            key, number = int(self._here[0]) & _WORD, int(self._here[1])
            self._here[1] += 1
        return Drawn(key, number)


_source = _Source()
_states: weakref.WeakValueDictionary[int, npt.NDArray[np.int64]] = weakref.WeakValueDictionary()
"""The memory of those that there are, by address: what holds a state may hold another view of it."""


def new_state() -> npt.NDArray[np.int64]:
    """A state with a key of its own, at the beginning of a cache line: [key, number of the next draw]."""
    memory = np.zeros((_ALIGNMENT + 16) // 8 + 1, np.int64)
    skip = -memory.ctypes.data % _ALIGNMENT // 8
    state = memory[skip : skip + 2]
    state.view(np.uint64)[0] = _source.key()
    _states[state.ctypes.data] = memory
    return state


def is_state(place: int) -> bool:
    """Whether a state lies at this address."""
    return place in _states


def draw() -> Drawn:
    """The next draw of what is evaluated on NumPy."""
    return _source.draw()


def set_seed(seed: int) -> None:
    """Let the keys of all states that are made from now on follow from `seed`."""
    global _source
    _source = _Source(seed)


def _mixed(word: int) -> int:
    """64 bits that depend on all of `word`, one to one (the finalizer of SplitMix64)."""
    word = (word + 0x9E3779B97F4A7C15) & _WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31


def _after_fork() -> None:
    """The child draws other numbers than its parent, unless a seed says which."""
    if _source.seed is None:
        for place, memory in list(_states.items()):
            memory.view(np.uint64)[(place - memory.ctypes.data) // 8] = _source.key()


fork_safety.in_child(_after_fork)
