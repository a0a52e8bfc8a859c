"""How the queue itself does: who leads, what is overdue, and whether anybody claims it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from delayq.cli.doctor.findings import Finding, ok, warning
from delayq.cli.words import clean, length, tasks
from delayq.operations import summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.broker import Broker
    from delayq.connection import SyncConnection
    from delayq.values import Counts

PATIENCE_SECONDS = 1.0  # between two looks at what is claimed
LATE_MS = 5000  # two and a half of the waits that idle workers make at most


def queue(connection: SyncConnection, broker: Broker) -> Iterator[Finding]:
    """Check what only the queue's own keys tell."""
    yield leaders(connection, broker)
    yield overdue(connection, broker)


def leaders(connection: SyncConnection, broker: Broker) -> Finding:
    """Each shard wants a scanner that leads it."""
    [(seconds, micros), *replies] = connection.send(
        [("TIME",), *(("GET", keys.leader) for keys in broker.shards)]
    )
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    alive = [_holder(reply, now_ms) for reply in replies]
    without = [str(shard) for shard, holder in enumerate(alive) if not holder]
    if without:
        said = f"no scanner leads shard {', '.join(without)} of {len(alive)}"
        return warning("scanner", said, "tasks may start 2 s late: start delayq run, or delayq scanner")
    return ok(
        "scanner", f"{len(alive)} of {len(alive)} shards led, by {clean(', '.join(sorted(set(alive))))}"
    )


def _holder(reply: object, now_ms: int) -> str:
    """Return who leads a shard; nobody when the lease has run out."""
    owner, _, expiry = (
        reply.decode(errors="replace").rpartition(" ") if isinstance(reply, bytes) else ("", "", "")
    )
    return owner if expiry.isdigit() and int(expiry) > now_ms else ""


def overdue(connection: SyncConnection, broker: Broker) -> Finding:
    """Overdue tasks are no trouble while somebody claims them."""
    before = _counts(connection, broker)
    if before.oldest_overdue_ms < LATE_MS:
        waiting = f"{tasks(before.scheduled)} waiting, {before.processing:,} in flight, {before.dlq:,} dead"
        return ok("tasks", f"{waiting}, {before.overdue:,} overdue")
    time.sleep(PATIENCE_SECONDS)
    after = _counts(connection, broker)
    claimed = after.stats.get("claimed", 0) - before.stats.get("claimed", 0)
    said = f"{tasks(after.overdue)} overdue, the oldest for {length(after.oldest_overdue_ms)}"
    if claimed:
        return warning(
            "tasks", f"{said}, {claimed:,} claimed within a second", "more workers, or more concurrency"
        )
    if after.processing:
        return warning(
            "tasks",
            f"{said}, {after.processing:,} in flight, none claimed",
            "every slot is busy: more workers",
        )
    return warning(
        "tasks", f"{said}, nobody claims", "no worker is running: start delayq run, or delayq worker"
    )


def _counts(connection: SyncConnection, broker: Broker) -> Counts:
    return summed(connection.run([broker.counts(shard) for shard in range(len(broker.shards))]))
