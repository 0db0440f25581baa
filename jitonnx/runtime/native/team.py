"""The workers of a team: a thread's life, and how threads get work, begin and end."""

from __future__ import annotations

import llvmlite.ir as ir

from ..layout import FRAME, MAILBOX, TEAM
from .emit import POINTER, Code


def define(module: ir.Module, set_mask: int) -> None:
    """Add the functions to a module that has those of `sync` and `walk`; `set_mask` is the system's SIG_SETMASK."""
    _post(module)
    _worker(module, set_mask)
    _start(module)
    _stop(module)


def _post(module: ir.Module) -> None:
    """Give a worker a frame to walk."""
    code = Code(module, "void jitonnx_post(ptr mailbox, ptr frame)")
    mailbox = code["mailbox"]
    epoch = code.field(mailbox, MAILBOX, "epoch")
    code.build.store(code["frame"], code.field(mailbox, MAILBOX, "frame"))
    code.publish(epoch, code.add(code.load(epoch), 1))
    code.call("jitonnx_wake", code.field(mailbox, MAILBOX, "gate"))
    code.give()


def _worker(module: ir.Module, set_mask: int) -> None:
    """A thread's life: wait for an epoch, walk its frame, until the team stops.

    Signals are left to Python's threads, so that Ctrl-C interrupts what the main thread waits for.
    """
    code = Code(module, "ptr jitonnx_worker(ptr mailbox)")
    mailbox = code["mailbox"]
    team = code.pointer(mailbox, MAILBOX, "team")
    code.call("pthread_sigmask", set_mask, code.field(team, TEAM, "signals"), POINTER(None))
    epoch = code.variable(code.word(mailbox, MAILBOX, "start"))
    with code.forever():
        word = code.field(mailbox, MAILBOX, "epoch")
        code.call("jitonnx_wait", word, code.load(epoch), code.field(mailbox, MAILBOX, "gate"), team)
        code.store(epoch, code.watch(word))
        with code.when(code.compare(code.watch(code.field(team, TEAM, "stop")), "!=", 0)):
            code.build.ret(POINTER(None))
        frame = code.pointer(mailbox, MAILBOX, "frame")
        begin, end = code.word(frame, FRAME, "worker_begin"), code.word(frame, FRAME, "worker_end")
        code.call("jitonnx_walk_shared", frame, team, code.word(mailbox, MAILBOX, "index"), begin, end)
    code.build.unreachable()


def _start(module: ir.Module) -> None:
    """Create the workers that do not run yet; returns how many run. The caller holds the team."""
    code = Code(module, "i64 jitonnx_start(ptr team)")
    team = code["team"]
    mailboxes = code.pointer(team, TEAM, "mailboxes")
    worker = module.globals["jitonnx_worker"]
    with code.loop(code.word(team, TEAM, "started"), code.word(team, TEAM, "workers")) as index:
        mailbox = code.item(mailboxes, MAILBOX, index)
        code.put(mailbox, MAILBOX, "start", code.word(mailbox, MAILBOX, "epoch"))
        thread, attributes = code.field(mailbox, MAILBOX, "thread"), code.field(team, TEAM, "attributes")
        failed = code.call("pthread_create", thread, attributes, worker, mailbox)
        with code.when(code.build.icmp_signed("!=", failed, failed.type(0))):
            code.give(index)
        code.put(team, TEAM, "started", code.add(index, 1))
    code.give(code.word(team, TEAM, "workers"))


def _stop(module: ir.Module) -> None:
    """End the workers and wait for that. The caller holds the team, and no run may use it afterwards."""
    code = Code(module, "void jitonnx_stop(ptr team)", exported=True)
    team = code["team"]
    mailboxes, started = code.pointer(team, TEAM, "mailboxes"), code.word(team, TEAM, "started")
    code.publish(code.field(team, TEAM, "stop"), 1)
    with code.loop(0, started) as index:
        code.call("jitonnx_post", code.item(mailboxes, MAILBOX, index), POINTER(None))
    with code.loop(0, started) as index:
        thread = code.word(code.item(mailboxes, MAILBOX, index), MAILBOX, "thread")
        code.call("pthread_join", thread, POINTER(None))
    code.put(team, TEAM, "started", 0)
    code.give()
