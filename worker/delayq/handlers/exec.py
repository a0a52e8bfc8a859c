"""Handlers that are commands: one process group per run of a task, payload on stdin, result by exit code.

Not here: the process (`child.py`), and the commands of a killed worker (`warden.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.errors import Bury, Retry
from delayq.handlers.base import Handler, HandlerSetupError, optional_fields
from delayq.handlers.child import Child, spawn
from delayq.handlers.text import last_lines, printable
from delayq.handlers.warden import Warden
from delayq.protocol.envelope import MAX_HEADERS_JSON, headers_json
from delayq.service import logs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from delayq.contract import ExecHandler as ExecSpec
    from delayq.protocol.envelope import Task

log = logging.getLogger(__name__)

FIELD = "spec.handler.exec"
GRACE_SECONDS = 5.0
ERROR_LINES, ERROR_CHARS = 10, 1_000
OWN_PREFIX = "DELAYQ_"
CREDENTIALS = frozenset({"REDISCLI_AUTH", "REDIS_PASSWORD", "REDIS_URL", "REDIS_USERNAME"})


class ExecFailed(Exception):
    """The command ended with an exit code other than 0, or by a signal."""


class ProcessGroups:
    """The process groups of all tasks that run commands now, also of several commands.

    Process 1 reaps the ended children that are not here, so two handlers of one process must share it.
    """

    def __init__(self) -> None:
        """No command runs yet."""
        self.running: set[Child] = set()
        self.ended: set[Child] = set()  # finished, but some processes may not have exited yet
        self.warden: Warden | None = None


class ExecHandler(Handler):
    """A command, and the process groups of the tasks that run it now."""

    def __init__(
        self,
        spec: ExecSpec,
        *,
        groups: ProcessGroups | None = None,
        grace_seconds: float = GRACE_SECONDS,
        field: str = FIELD,
    ) -> None:
        """`groups` are those of all commands in this process.

        `grace_seconds`: time from SIGTERM to SIGKILL when a task is cancelled. `field` is the path in the document that
        errors name.
        """
        self._groups, self._field = groups or ProcessGroups(), field
        self._argv = tuple(spec.command)
        self._max_output_bytes = spec.max_output_bytes
        self._env = base_env(os.environ, spec.env)
        self._grace_seconds = grace_seconds

    async def start(self) -> None:
        """Check that the command is there, without running it."""
        if shutil.which(self._argv[0], path=self._env.get("PATH")) is None:
            raise HandlerSetupError(
                f"{self._field}.command", f'"{self._argv[0]}" is not on the PATH, or not executable'
            )
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # Some launchers ignore SIGCHLD. The kernel then discards exit codes, and every failure would be an ack.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if os.getpid() != 1 and self._groups.warden is None:
            # If process 1 of a container ends, the kernel kills all others.
            self._groups.warden = Warden()

    async def close(self) -> None:
        """Wait for the last killed commands, then stop the warden."""
        for child in tuple(self._groups.ended):
            await child.ended()
        self._reap()
        warden, self._groups.warden = self._groups.warden, None
        if warden:
            await asyncio.to_thread(warden.close)

    async def call(self, task: Task) -> None:
        """Run the command once and settle by its exit code."""
        child = self._start(task)
        try:
            code = await child.run()
        except asyncio.CancelledError:
            await child.stop(self._grace_seconds)
            raise
        finally:
            self._forget(child)
        _log(task, child, code)
        settle(code, bytes(child.errors.data) or bytes(child.output.data))

    def _start(self, task: Task) -> Child:
        spawned = spawn(self._argv, self._env | task_env(task))
        if self._groups.warden:
            self._groups.warden.watch(
                spawned.process.pid
            )  # before it gets the payload, so that it does no work unwatched
        child = Child(spawned, body=task.body, max_output_bytes=self._max_output_bytes)
        self._groups.running.add(child)
        return child

    def _forget(self, child: Child) -> None:
        self._groups.running.remove(child)
        self._groups.ended.add(child)
        self._reap()

    def _reap(self) -> None:
        """Reap child processes, and forget process groups that are empty.

        Killed grandchildren become children of process 1. In a container that may be this process, which must then reap
        them. Groups with remaining processes are checked again after the next task.
        """
        groups = self._groups
        for child in tuple(groups.ended):
            if not child.running and not _has_children(child.group):
                groups.ended.remove(child)
                if groups.warden:
                    groups.warden.forget(child.group)
        _reap_orphans({child.group for child in groups.running | groups.ended if child.running})


def base_env(worker: Mapping[str, str], document: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for all tasks. A command that needs Redis gets its credentials from the document's env."""
    inherited = {
        name: value
        for name, value in worker.items()
        if not (name.startswith(OWN_PREFIX) or name in CREDENTIALS)
    }
    return inherited | dict(document)


def task_env(task: Task) -> dict[str, str | bytes]:
    """Return the task's metadata. Headers are UTF-8 in every locale; Bury if they are too large for a variable."""
    optional = optional_fields(task).items()
    headers = headers_json(task.headers)
    if len(headers) > MAX_HEADERS_JSON:
        raise Bury(f"headers: expected at most {MAX_HEADERS_JSON:,} bytes as JSON, got {len(headers):,}")
    found: dict[str, str | bytes] = {
        "DELAYQ_TASK_ID": task.id,
        "DELAYQ_QUEUE": task.queue,
        "DELAYQ_ATTEMPT": str(task.attempt),
        "DELAYQ_TOKEN": str(task.token),
        "DELAYQ_DUE_MS": str(task.due_ms),
        "DELAYQ_SCHEDULED_MS": str(task.scheduled_ms),
        "DELAYQ_CONTENT_TYPE": task.content_type,
        "DELAYQ_HEADERS": headers,
    }
    return found | {f"DELAYQ_{name.replace('-', '_').upper()}": value for name, value in optional}


def settle(code: int, errors: bytes) -> None:
    """Return to ack, else raise Retry or ExecFailed."""
    if code == 0:
        return
    failure = ExecFailed(_describe(code) + _detail(errors))
    if code == os.EX_TEMPFAIL:
        raise Retry(f"ExecFailed: {failure}") from failure
    raise failure


def _describe(code: int) -> str:
    if code > 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):  # real-time signals have no name
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _detail(errors: bytes) -> str:
    """Put the last line first: it has a traceback's message, and dead letters are grouped by an error's first line."""
    lines = last_lines(errors, lines=ERROR_LINES, limit=ERROR_CHARS)
    if not lines:
        return ""
    before = "".join(f"\n{line}" for line in lines[:-1])
    return f": {lines[-1]}{before}"


def _has_children(group: int) -> bool:
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _log(task: Task, child: Child, code: int) -> None:
    level = logging.DEBUG if code == 0 else logging.INFO
    if log.isEnabledFor(level):
        fields = logs.of_task(task) | {
            "attempt": task.attempt,
            "exit_code": code,
            "output": printable(bytes(child.output.data)),
            "output_dropped_bytes": child.output.dropped,
        }
        log.log(level, "command_exited", extra={"fields": fields})


def _reap_orphans(known: Collection[int]) -> None:
    """Reap ended children of process 1, except those in `known`: once reaped here, their exit code is lost.

    They left their command's group, and stay zombies until process 1 of the container, which inherits them, reaps them.
    """
    if os.getpid() == 1 and _any_ended():
        for pid in _ended_children():
            if pid not in known:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _any_ended() -> bool:
    """Check without reaping: one system call instead of several for each process."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _ended_children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just gone
            # The fields after the command's name, which can contain brackets.
            state, parent = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) == os.getpid():
                yield int(path.parent.name)
