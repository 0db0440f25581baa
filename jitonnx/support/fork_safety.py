"""What a process that forks owes its child: no lock of ours held by a thread that the child does not have, nothing
half made, no compiler in the middle of something. Imports nothing of ours.

    _lock = forks.lock()                a lock for short sections; the child finds it free
    _making = forks.WorkLock()          held while something is made, which may take long
    with forks.critical: …              no other thread forks this process meanwhile
    with forks.safepoint: …             but here one may: this thread waits for others, or calls what is not ours

`fork` copies one thread and all that the others have in hands: locks that nobody will release, imports and compiles
that nobody will end. So who forks waits until every other thread is outside of critical sections, or at a safepoint
within one, where all that is shared is whole. Locks that are held at a safepoint are free in the child, which makes
anew what was in the making. llvmlite's lock, which it holds in LLVM, is taken for the time of the fork.

A thread in a critical section may wait for another thread only at a safepoint; `WorkLock` keeps to that by itself.
Should somebody not keep to it, the fork goes ahead after `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any, Generic, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

PATIENCE_SECONDS = 30.0
"""How long a fork waits for other threads. Most critical sections take some milliseconds, a kernel's compile tenths of
a second."""

_LOCKING_MODULES = ("logging", "concurrent.futures.thread")
"""Modules that take a lock of theirs before a fork. A thread in a critical section may need it, so the fork has to wait
for that thread first."""


class _Critical:
    """`with critical:`. Sections may lie in each other. It knows which threads are in one, and which want to fork."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._depths: dict[int, int] = {}
        """How many critical sections threads are in, those at safepoints left out."""
        self._paused: dict[int, list[int]] = {}
        """The same of threads at safepoints, and of those that fork."""
        self._forking: set[int] = set()
        self._behind = list(_LOCKING_MODULES)
        """Those that our hooks do not run before yet, as far as we know."""

    def __enter__(self) -> None:
        me = get_ident()
        with self._lock:
            depth = self._depths.get(me, 0)
            if not depth:
                if self._forking:
                    self._wait()
                if self._behind:
                    self._keep_ahead()
            self._depths[me] = depth + 1

    def __exit__(self, *_: object) -> None:
        me = get_ident()
        with self._lock:
            depth = self._depths[me]
            if depth > 1:
                self._depths[me] = depth - 1
                return
            del self._depths[me]
            if self._forking:
                self._changed.notify_all()

    def pause(self) -> None:
        """Note that the thread is at a safepoint."""
        me = get_ident()
        with self._lock:
            self._paused.setdefault(me, []).append(self._depths.pop(me, 0))
            if self._forking:
                self._changed.notify_all()

    def resume(self) -> None:
        """Goes on."""
        with self._lock:
            self._wait()
            self._restore(get_ident())

    def begin_fork(self) -> None:
        """Wait until no other thread is in a critical section; none begins one before `end_fork`."""
        me, deadline = get_ident(), time.monotonic() + PATIENCE_SECONDS
        with self._lock:
            self._forking.add(me)
            self.pause()
            while self._depths and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def end_fork(self) -> None:
        """Let all go on in the parent."""
        with self._lock:
            self._forking.discard(get_ident())
            self._restore(get_ident())
            self._changed.notify_all()

    def begin_child(self) -> None:
        """Begin anew in the child, where there is no other thread."""
        me = get_ident()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._depths, self._paused, self._forking = {}, {me: self._paused.get(me, [])}, set()
        self._restore(me)

    def _wait(self) -> None:
        while self._forking:
            self._changed.wait()

    def _restore(self, me: int) -> None:
        depths = self._paused.get(me)
        depth = depths.pop() if depths else 0
        if not depths:
            self._paused.pop(me, None)
        if depth:
            self._depths[me] = depth

    def _keep_ahead(self) -> None:
        """Register the hooks once more where a module with a lock of its own has been imported: the last go first."""
        for name in [name for name in self._behind if name in sys.modules]:
            self._behind.remove(name)
            _register()


class _Safepoint:
    """`with safepoint:`. Outside of critical sections it does nothing."""

    def __enter__(self) -> None:
        critical.pause()

    def __exit__(self, *_: object) -> None:
        critical.resume()


def lock() -> threading.RLock:
    """A lock for sections that neither wait nor take long. Its thread may take it again, as collecting garbage can run
    anything. In a child process it is free, unless the thread that forked holds it.
    """
    made = threading.RLock()
    _locks.add(made)
    return made


class WorkLock:
    """A lock that is held while something is made, in a critical section. Its thread may take it again."""

    def __init__(self) -> None:
        self._lock = lock()

    def __enter__(self) -> None:
        critical.__enter__()
        taken = False
        try:
            taken = self._lock.acquire(blocking=False)
            if not taken:
                with safepoint:
                    taken = self._lock.acquire()
        except BaseException:  # Ctrl-C
            if taken:
                self._lock.release()
            critical.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        critical.__exit__()


def once(make: Callable[_P, _T]) -> Callable[_P, _T]:
    """A function whose result is made once for the same arguments, also under several threads, and kept.

    Arguments are hashable and given by position.
    """
    made: dict[Any, _T] = {}
    making = WorkLock()

    @functools.wraps(make)
    def get(*arguments: _P.args, **named: _P.kwargs) -> _T:
        found: Any = made.get(arguments, _MISSING)
        if found is _MISSING:
            with making:
                if arguments not in made:
                    made[arguments] = make(*arguments, **named)
                return made[arguments]
        known: _T = found
        return known

    return get


class cached_property(Generic[_T]):
    """`functools.cached_property`, but that all threads get the same value; and without the lock that one
    has up to Python 3.11, which a fork could leave held.
    """

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self._make, self._name = make, make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, instance: Any, owner: type) -> _T:
        if instance is None:
            return self  # type: ignore[return-value]
        made: _T = instance.__dict__.setdefault(self._name, self._make(instance))
        return made


def in_child(function: Callable[[], None]) -> None:
    """Have a function called in every child process, before anything else runs there."""
    os.register_at_fork(after_in_child=function)


_MISSING: Any = object()
critical, safepoint = _Critical(), _Safepoint()
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_begun: dict[int, tuple[Any, bool]] = {}
"""It holds, for each thread that is about to fork, llvmlite's lock if there is one, and whether the thread could take
it."""


def _before() -> None:
    me = get_ident()
    if me in _begun:  # by a hook that was registered later, and so has run before
        return
    _begun[me] = None, False
    critical.begin_fork()
    llvm = _llvm_lock()
    if llvm is not None:
        _begun[me] = llvm, llvm.acquire(timeout=PATIENCE_SECONDS)


def _after_in_parent() -> None:
    begun = _begun.pop(get_ident(), None)
    if begun is not None:
        llvm, taken = begun
        if taken:
            llvm.release()
        critical.end_fork()


def _after_in_child() -> None:
    begun = _begun.pop(get_ident(), None)
    if begun is not None:
        llvm, taken = begun
        if taken:
            llvm.release()
        elif llvm is not None:
            llvm._at_fork_reinit()
        _begun.clear()
        for made in list(_locks):
            if not made._is_owned():
                made._at_fork_reinit()
        critical.begin_child()


def _llvm_lock() -> Any:
    """The lock that llvmlite holds during each call of LLVM; None while it is not imported."""
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    return getattr(getattr(library, "_lock", None), "_lock", None)


def release_llvm() -> None:
    """Release llvmlite's lock if this thread still holds it: an interrupt (Ctrl-C) in the few lines of Python around a
    call leaves it held, and other threads would wait for it for ever. To be called outside of LLVM.
    """
    llvm = _llvm_lock()
    while llvm is not None and llvm._is_owned():
        llvm.release()


def _register() -> None:
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


_register()
