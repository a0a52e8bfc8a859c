"""Say what suspends a queue: the document, the command `delayq suspend`, or both."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from delayq.cli.formats import clean, relative
from delayq.cli.output import note
from delayq.connection import SyncConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.cli.target import Target, TargetClient
    from delayq.protocol.commands import Call
    from delayq.protocol.results import Suspension

WORKERS = "workers claim no tasks"


def by_command(found: Suspension, now_ms: int) -> str:
    """Describe what `delayq suspend` stored: `suspended by delayq suspend 3m ago (incident 7)`."""
    drain = " --drain" if found.drain else ""
    reason = f" ({clean(found.reason)})" if found.reason else ""
    return f"suspended by delayq suspend{drain} {relative(found.since_ms, now_ms)}{reason}"


def by_document(target: Target) -> str:
    """Describe how the document suspends the queue; empty if it does not."""
    return f"suspended by the document: {target.suspension}" if target.suspension else ""


def in_each_shard(client: TargetClient, call: Callable[[int], Call[Suspension | None]]) -> Suspension | None:
    """Send a call to shard 0, and in a Cluster to the copies in all other shards; return the reply of shard 0."""
    client.used()  # reads the shard map
    copies = range(1, client.shard_map.widest if client.address.is_cluster else 1)
    with closing(SyncConnection(client.address)) as connection:
        found: Suspension | None = connection.run([call(0)])[0]
        answers = connection.answers([call(shard) for shard in copies])
    missed = [str(n) for n, each in zip(copies, answers, strict=True) if isinstance(each, Exception)]
    if missed:
        note(f"note: shard {', '.join(missed)} not reached: repeat the command when it serves")
    return found


def resume_document(target: Target) -> str:
    """Return what to do about the document."""
    name = target.delay_queue
    return f"kubectl dq resume {name}" if name else "set spec.suspend to false, and restart the workers"


def resume_command(target: Target) -> str:
    """Return the command that undoes `delayq suspend`. `kubectl dq resume` changes the document instead."""
    name = target.delay_queue
    if name:
        return f"kubectl exec deploy/{name}-scanner -- delayq resume {target.path}"
    return target.command("resume")
