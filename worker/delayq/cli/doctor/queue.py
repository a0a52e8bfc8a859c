"""Check the queue itself: shard map, format, leaders, and overdue tasks."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delayq.cli.doctor.findings import Finding, Level, failed, ok, unreachable, warning
from delayq.cli.formats import clean, length, tasks
from delayq.cli.refused import refused_sentence
from delayq.cli.snapshot import held_by, not_served
from delayq.cli.status import parked_sentence
from delayq.cli.suspension import WORKERS, by_command, by_document, resume_command
from delayq.client.operations import summed
from delayq.errors import Unavailable, UnsupportedFormat
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import combined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delayq.cli.target import Target
    from delayq.connection import SyncConnection
    from delayq.protocol.commands import Commands
    from delayq.protocol.keys import Keys
    from delayq.protocol.results import Counts

PATIENCE_SECONDS = 1.0  # between two samples of the claims
LATE_MS = 5000  # 2.5 times the longest wait of an idle worker
BLOCKED_MS = 600_000  # for how long a blocked event loop is reported


def serving(connection: SyncConnection, commands: Commands) -> tuple[list[Finding], list[int]]:
    """Return findings of unavailable shards, and the available ones; all shards if none is available.

    An unavailable node excludes only its own shards from the checks.
    """
    every = range(commands.shard_map.shards_in_use)
    answers = connection.answers([commands.counts(shard) for shard in every])
    away = {shard: answers[shard] for shard in every if isinstance(answers[shard], Unavailable)}
    served = [shard for shard in every if shard not in away]
    wrong = not_served(away, len(every)) if served else []
    hint = "its tasks wait; those of other shards run"
    return [unreachable("shards", each, hint) for each in wrong], served or list(every)


def queue(
    connection: SyncConnection, commands: Commands, target: Target, served: Sequence[int]
) -> Iterator[Finding]:
    """Check the keys of the available shards."""
    yield from shards(commands, None if target.document is None else target.shards)
    found = _counts(connection, commands, served)
    yield leaders(connection, commands, target, served)
    if found.suspension is not None:
        said = f"{by_command(found.suspension, found.now_ms)}: {WORKERS}"
        yield warning("suspend", said, resume_command(target))
    yield from parked(connection, commands, target, served, found=found)
    yield from arguments(connection, commands, served, found)
    blocked = list(event_loops(connection, commands, served))
    yield from blocked
    late = overdue(connection, commands, target, served, before=found)
    yield replace(late, hint="see event-loop above") if blocked and late.level is Level.WARNING else late


def parked(
    connection: SyncConnection, commands: Commands, target: Target, served: Sequence[int], *, found: Counts
) -> Iterator[Finding]:
    """Report tasks that no worker runs, because none has their kind or version."""
    if not found.parked:
        return
    answers = connection.answers([commands.parked(shard) for shard in served])
    # A user without the right to ZLEXCOUNT sees the number only.
    kinds = combined(kind for each in answers if not isinstance(each, Exception) for kind in each)
    said = parked_sentence(found, kinds)
    delete = f"{target.command('task cancel')} ID, with IDs of {target.command('task list')} --state parked"
    yield warning("parked", said, f"deploy a worker with these kinds, or delete the tasks: {delete}")


def arguments(
    connection: SyncConnection, commands: Commands, served: Sequence[int], found: Counts
) -> Iterator[Finding]:
    """Report tasks whose arguments the workers refuse."""
    if found.retrying and (said := refused_sentence(connection, commands, served)):
        hint = "deploy workers whose function takes them, or schedule others and correct the schedule that has them"
        yield warning("arguments", clean(said), f"{hint}: after an hour they become dead letters")


def shards(commands: Commands, documented: int | None) -> Iterator[Finding]:
    """Report resharding, and a shard map that differs from the document."""
    shard_map = commands.shard_map
    if not shard_map.epoch:
        return
    if not shard_map.settled:
        phase = (
            f"tasks move from {shard_map.was} to"
            if shard_map.moves
            else f"{shard_map.shards}, about to become"
        )
        yield ok("shards", f"{phase} {tasks(shard_map.target, 'shard')}; tasks run meanwhile")
    elif documented not in (None, shard_map.shards):
        said = f"the document says {documented}, the queue has {shard_map.shards}"
        yield warning("shards", said, "only a scanner that starts with the document changes that")


def formats(connection: SyncConnection, commands: Commands, served: Sequence[int]) -> Iterator[Finding]:
    """Report shards that another version of delayq has written: this one changes nothing there."""
    found = connection.answers([commands.counts(shard) for shard in served])
    for shard, each in zip(served, found, strict=True):
        if not isinstance(each, Exception) and each.format != FORMAT:
            error = UnsupportedFormat(commands.queue, shard, found=each.format, known=FORMAT)
            yield failed("format", error.what, error.cure)


def leaders(connection: SyncConnection, commands: Commands, target: Target, served: Sequence[int]) -> Finding:
    """Check that each shard has a leader."""
    led = {
        keys.shard: holder
        for keys, reply, now_ms in _asked(connection, commands, served, lambda keys, _: ("GET", keys.leader))
        if (holder := _holder(reply, now_ms))
    }
    without = [str(shard) for shard in served if shard not in led]
    if without:
        said = f"no scanner leads shard {', '.join(without)} of {len(commands.shards)}"
        return warning("scanner", said, f"tasks may start 2 s late: {_start(target, 'scanner')}")
    by = clean(", ".join(sorted(set(led.values()))))
    return ok("scanner", f"{len(led)} of {tasks(len(commands.shards), 'shard')} led, by {by}")


def event_loops(connection: SyncConnection, commands: Commands, served: Sequence[int]) -> Iterator[Finding]:
    """Report that a coroutine blocked the event loop of a worker for more than half a lease: note_blocked.lua."""
    replies = _asked(connection, commands, served, lambda keys, _: ("HGET", keys.stats, "blocked_at"))
    ages_ms = [now_ms - int(reply) for _, reply, now_ms in replies if reply is not None]
    if ages_ms and (age_ms := min(ages_ms)) < BLOCKED_MS:
        said = f"a coroutine handler blocked the event loop of a worker, last {length(max(0, age_ms))} ago"
        hint = "event_loop_blocked in the workers' logs names it: use `def` instead of `async def`, or await what waits"
        yield warning("event-loop", said, hint)


def _asked(
    connection: SyncConnection,
    commands: Commands,
    served: Sequence[int],
    question: Callable[[Keys, int], tuple[str, ...]],
) -> Iterator[tuple[Keys, Any, int]]:
    """Send a command to each shard; yield its keys, the reply, and the server's time, which `question` receives."""
    for _, held in connection.servers([commands.keys(shard) for shard in served]):
        [(seconds, micros)] = connection.send([("TIME",)], held[0])
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        replies = connection.send([question(keys, now_ms) for keys in held], held[0])
        yield from ((keys, reply, now_ms) for keys, reply in zip(held, replies, strict=True))


def _holder(reply: object, now_ms: int) -> str:
    """Return the leader of a shard; empty when its lease has expired."""
    owner, _, expiry = (
        reply.decode(errors="replace").rpartition(" ") if isinstance(reply, bytes) else ("", "", "")
    )
    return owner if expiry.isdigit() and int(expiry) > now_ms else ""


def overdue(
    connection: SyncConnection, commands: Commands, target: Target, served: Sequence[int], *, before: Counts
) -> Finding:
    """Check overdue tasks: they are normal while workers claim them, or a hold or a limit delays them."""
    if before.late_ms < LATE_MS:
        later = f"{tasks(before.scheduled)} scheduled, {before.due:,} due, {before.in_flight:,} in flight"
        return ok("tasks", f"{later}, {before.retrying:,} retrying, {before.dead:,} dead")
    command = "" if before.suspension is None else by_command(before.suspension, before.now_ms)
    if suspended := " and ".join(filter(None, (by_document(target), command))):
        return ok("tasks", f"{tasks(before.due)} due, the oldest for {length(before.late_ms)}: {suspended}")
    time.sleep(PATIENCE_SECONDS)
    held = held_by(connection, commands, limits=target.limits, found=before, shards=served)
    after = _counts(connection, commands, served)
    claimed = after.stats.get("claimed", 0) - before.stats.get("claimed", 0)
    said = f"{tasks(after.due)} due, the oldest for {length(after.late_ms)}"
    if held:
        return ok("tasks", f"{said}, held back by spec.limits.{held}; {claimed:,} claimed within a second")
    if claimed:
        return warning(
            "tasks", f"{said}, {claimed:,} claimed within a second", "more workers, or more concurrency"
        )
    if _leased(connection, commands, served):
        return warning(
            "tasks",
            f"{said}, {after.in_flight:,} in flight, none claimed",
            "every slot is busy: more workers",
        )
    return failed(
        "tasks",
        f"{said}, none claimed within a second, and no worker holds a lease",
        f"no worker serves this queue: {_start(target, 'worker')}; a worker's log shows why it does not claim",
    )


def _start(target: Target, process: str) -> str:
    """Return what to do where no such process works: on Kubernetes the status says what one that runs waits for."""
    name = target.delay_queue
    return f"see kubectl dq status {name}" if name else f"start delayq run, or delayq {process}"


def _leased(connection: SyncConnection, commands: Commands, served: Sequence[int]) -> int:
    """Count the valid leases: tasks of a crashed worker stay in flight until a scanner reclaims them."""
    replies = _asked(
        connection, commands, served, lambda keys, now_ms: ("ZCOUNT", keys.processing, f"({now_ms}", "+inf")
    )
    return sum(reply for _, reply, _ in replies if isinstance(reply, int))


def _counts(connection: SyncConnection, commands: Commands, served: Sequence[int]) -> Counts:
    return summed(connection.run([commands.counts(shard) for shard in served]))
