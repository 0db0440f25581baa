"""The team of native threads that runs share, and how many CPUs this process may use.

A team of n is the calling thread and n - 1 workers, POSIX threads that never hold Python's lock. Teams are shared by
all sessions of a process with the same number of threads. Workers are created at the first run that wants them, and end
with the last session that holds the team, or with the process. A run that finds its team busy does all the work itself.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
import weakref
from pathlib import Path, PurePosixPath

import numpy as np

from jitonnx.support import fork_safety

from .driver import Driver, driver
from .layout import MEMBER, TEAM, Record, address, offset, records
from .libc import libc

SPIN_NANOSECONDS = 50_000
"""How long a thread spins before it begins to yield. Covers what lies between the steps of a run, and between runs of a
busy session; a team with more threads than CPUs does not spin, as it would keep from running what it waits for."""

PATIENCE_NANOSECONDS = 100_000
"""How long a thread waits before it sleeps. Waking it takes some 30 to 50 microseconds."""

_STACK_BYTES = 8 << 20
_STOP_SECONDS = 0.5

_lock = fork_safety.lock()
_teams: weakref.WeakValueDictionary[int, Team] = weakref.WeakValueDictionary()
_abandoned: list[object] = []
"""Memory of teams that could not be stopped because a run still used them when the process ended."""


class Team:
    """A team of `size` threads. Get one from `team()`, which shares it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._record = records(TEAM)
        self._members = records(MEMBER, size)
        spins = SPIN_NANOSECONDS if size <= allowed_cpus() else 0
        for name, value in {
            "members": address(self._members),
            "size": size,
            "spin": spins,
            "patience": PATIENCE_NANOSECONDS,
        }.items():
            self._record[name] = value
        self._members["team"] = self.address
        self._members["index"] = np.arange(size)
        _set_attributes(self._record)
        self.reset()
        self._end = weakref.finalize(self, _end, driver(), self._record, self._members)

    @property
    def address(self) -> int:
        """The address of the team's record."""
        return address(self._record)

    def reset(self) -> None:
        """Forget workers and runs, as those of a parent process: its threads are not copied by a fork."""
        for name in ("busy", "left", "sequence", "started"):
            self._record[name] = 0
        self._members["claim"] = 0
        for index in range(self.size):
            _make_bed(address(self._members) + index * MEMBER.itemsize)

    @property
    def workers(self) -> int:
        """How many worker threads run now."""
        return int(self._record["started"][0])


def team(size: int) -> Team:
    """The process's team of `size` threads (two or more), which lives as long as somebody holds it."""
    with _lock:
        found = _teams.get(size)
        if found is None:
            found = _teams[size] = Team(size)
        return found


def _make_bed(place: int) -> None:
    """Initialise the mutex and the condition that a member sleeps on, awake."""
    library = libc()
    ctypes.memset(place + offset(MEMBER, "asleep"), 0, 8)
    for name, initialise in (("mutex", library.pthread_mutex_init), ("condition", library.pthread_cond_init)):
        ctypes.memset(place + offset(MEMBER, name), 0, 64)
        initialise(ctypes.c_void_p(place + offset(MEMBER, name)), None)


def _set_attributes(record: Record) -> None:
    """How workers are created: with a stack of the usual size (some systems give far less), and signals blocked.

    Signals that a thread causes itself are let through, so that a crash is reported as one.
    """
    import signal

    library = libc()
    attributes = ctypes.c_void_p(address(record) + offset(TEAM, "attributes"))
    library.pthread_attr_init(attributes)
    library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
    signals = ctypes.c_void_p(address(record) + offset(TEAM, "signals"))
    library.sigfillset(signals)
    for own in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT):
        library.sigdelset(signals, ctypes.c_int(own))


def _end(native: Driver, record: Record, members: Record) -> None:
    """Stop a team's workers. Where a run still uses the team (in a daemon thread, at exit) its memory is left alone."""
    deadline = time.monotonic() + _STOP_SECONDS
    while not native.acquire(address(record)):
        if time.monotonic() > deadline:
            _abandoned.append((record, members))
            return
        time.sleep(0.001)
    native.stop(address(record))


def _after_fork() -> None:
    """Begin every team anew in a child process, with no worker."""
    for found in list(_teams.values()):
        found.reset()


fork_safety.in_child(_after_fork)


def allowed_cpus() -> int:
    """How many CPUs this process may use: its affinity, and the CPU quota of its control groups, rounded up."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota() if sys.platform == "linux" else None
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def cgroup_quota(process: Path = Path("/proc/self")) -> float | None:
    """The CPUs' worth of time that control groups (version 1 or 2) grant, the least on the way up; None: no bound.

    `process` is a process's folder in /proc, whose `cgroup` and `mountinfo` are read.
    """
    try:
        memberships = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for folder in _cgroup_folders(mounts, path, version=1 if controllers else 2):
            quota = _read_quota(folder)
            if quota is not None:
                quotas.append(quota)
    return min(quotas, default=None)


def _cgroup_folders(mounts: list[str], path: str, version: int) -> list[Path]:
    """The folders of a control group and of those it lies in, as far as this process sees them.

    A line of mountinfo: id, parent, device, root, mount point, options, …, "-", file system, source, its options.
    """
    folders = []
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        root, point = before.split()[3:5]
        system, _, options = after.split()[:3]
        if system != ("cgroup" if version == 1 else "cgroup2") or (version == 1 and "cpu" not in options.split(",")):
            continue
        # In a container the mount shows a part of the tree, whose root the membership names too, or nothing above "/".
        inside = PurePosixPath(path)
        relative = inside.relative_to(root) if inside.is_relative_to(root) else PurePosixPath()
        folders += [Path(point) / part for part in (relative, *relative.parents)]
    return folders


def _read_quota(folder: Path) -> float | None:
    """The quota of one control group in CPUs; None if it has none or the files are not there."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
    except OSError:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
