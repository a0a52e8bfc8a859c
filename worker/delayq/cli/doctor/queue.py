"""How the queue itself does: who leads, what is overdue, and whether anybody claims it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from delayq.cli.doctor.findings import Finding, failed, ok, unreachable, warning
from delayq.cli.look import held_by, not_served
from delayq.cli.words import clean, length, tasks
from delayq.client.operations import summed
from delayq.errors import Unavailable
from delayq.protocol.keys import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delayq.connection import SyncConnection
    from delayq.contract import Limits
    from delayq.protocol.commands import Commands
    from delayq.protocol.keys import Keys
    from delayq.protocol.results import Counts

PATIENCE_SECONDS = 1.0  # between two looks at what is claimed
LATE_MS = 5000  # two and a half of the waits that idle workers make at most


def serving(connection: SyncConnection, commands: Commands) -> tuple[list[Finding], list[int]]:
    """Return what is wrong, and the shards that are served; all of them where none is, for the rest to say why.

    A node that is away keeps its own shards from being checked, and no other.
    """
    every = range(commands.shard_map.covers)
    answers = connection.answers([commands.counts(shard) for shard in every])
    away = {shard: answers[shard] for shard in every if isinstance(answers[shard], Unavailable)}
    served = [shard for shard in every if shard not in away]
    wrong = not_served(away, len(every)) if served else []
    hint = "its tasks wait for it, those of the others run"
    return [unreachable("shards", each, hint) for each in wrong], served or list(every)


def queue(
    connection: SyncConnection,
    commands: Commands,
    *,
    documented: int | None,
    served: Sequence[int],
    limits: Limits,
) -> Iterator[Finding]:
    """Check what only the queue's own keys tell, of the shards that are served.

    `documented` are the shards of its document, if there is one.
    """
    yield from shards(commands, documented)
    yield from formats(connection, commands, served)
    yield leaders(connection, commands, served)
    yield overdue(connection, commands, served, limits)


def shards(commands: Commands, documented: int | None) -> Iterator[Finding]:
    """Tell when the queue's shard map is not what the document says, or not yet."""
    shard_map = commands.shard_map
    if not shard_map.epoch:
        return
    if not shard_map.settled:
        phase = (
            f"tasks move from {shard_map.was} to"
            if shard_map.moves
            else f"{shard_map.shards}, about to become"
        )
        yield ok("shards", f"{phase} {shard_map.target} shards; nothing waits for it")
    elif documented not in (None, shard_map.shards):
        said = f"the document says {documented}, the queue has {shard_map.shards}"
        yield warning(
            "shards", said, "a scanner that starts with the document changes that, and nothing else does"
        )


def formats(connection: SyncConnection, commands: Commands, served: Sequence[int]) -> Iterator[Finding]:
    """Tell when a newer delayq wrote keys that this one does not know."""
    found = _counts(connection, commands, served).format
    if found > FORMAT:
        said = f"a newer delayq wrote this queue, in format {found}; this delayq reads formats up to {FORMAT}"
        hint = "reapers and scanners of this version do not repair, move or erase it: run the newer version"
        yield warning("format", said, hint)


def leaders(connection: SyncConnection, commands: Commands, served: Sequence[int]) -> Finding:
    """Each shard wants a scanner that leads it."""
    led = {
        keys.shard: holder
        for keys, reply, now_ms in _asked(connection, commands, served, lambda keys, _: ("GET", keys.leader))
        if (holder := _holder(reply, now_ms))
    }
    without = [str(shard) for shard in served if shard not in led]
    if without:
        said = f"no scanner leads shard {', '.join(without)} of {len(commands.shards)}"
        return warning("scanner", said, "tasks may start 2 s late: start delayq run, or delayq scanner")
    by = clean(", ".join(sorted(set(led.values()))))
    return ok("scanner", f"{len(led)} of {len(commands.shards)} shards led, by {by}")


def _asked(
    connection: SyncConnection,
    commands: Commands,
    served: Sequence[int],
    question: Callable[[Keys, int], tuple[str, ...]],
) -> Iterator[tuple[Keys, Any, int]]:
    """Ask a question of each shard; yield its keys, the answer, and the time of its server, which questions get."""
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


def overdue(connection: SyncConnection, commands: Commands, served: Sequence[int], limits: Limits) -> Finding:
    """Overdue tasks are expected while workers claim them, or a limit delays them."""
    before = _counts(connection, commands, served)
    if before.late_ms < LATE_MS:
        later = f"{tasks(before.scheduled)} scheduled, {before.due:,} due, {before.in_flight:,} in flight"
        return ok("tasks", f"{later}, {before.retrying:,} retrying, {before.dead:,} dead")
    time.sleep(PATIENCE_SECONDS)
    held = held_by(connection, commands, limits=limits, found=before, shards=served)
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
        "no worker serves this queue: start delayq run, or delayq worker; its log says why it does not claim",
    )


def _leased(connection: SyncConnection, commands: Commands, served: Sequence[int]) -> int:
    """Count the tasks in flight whose lease a worker keeps up: those of a dead one stay in flight for a while."""
    replies = _asked(
        connection, commands, served, lambda keys, now_ms: ("ZCOUNT", keys.processing, f"({now_ms}", "+inf")
    )
    return sum(reply for _, reply, _ in replies if isinstance(reply, int))


def _counts(connection: SyncConnection, commands: Commands, served: Sequence[int]) -> Counts:
    return summed(connection.run([commands.counts(shard) for shard in served]))
