"""How a worker ends leases: what it sends to Redis about tasks that ended."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from delayq.errors import EnvelopeTooNew
from delayq.protocol.envelope import DUE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.results import Claimed, Lease, Settled
    from delayq.protocol.scripts import Argument
    from delayq.worker.slots import Running

log = logging.getLogger(__name__)

Verb = Literal["ack", "retry", "bury", "release", "park", "end_cancelled"]
# The shortest and the longest retry delay of a task that only another worker can run.
TOO_NEW_PAUSE_MS = (30_000, 600_000)
# How long a task waits for a worker that its arguments fit: a rolling update takes less.
REFUSED_MS = 3_600_000
REFUSED = "waits for a worker that its arguments fit"
# At the start of an error, so after the numbers of its entry: the text of another error may quote it.
_REFUSED = re.compile(
    rf"\d+ \d+ (?:@\d+ )?(?:~\d+:\d+:\d+ )?{REFUSED}, for (\d+) s of \d+ s so far, and for (\d+) s ".encode()
)


@dataclass(slots=True)
class Settlement:
    """How to end one lease; `arguments` are the verb's own, after the member. To freeze it would slow every task."""

    verb: Verb
    lease: Lease
    arguments: tuple[Argument, ...] = ()
    max_attempts: int = 0  # of a retry, if not that of the document
    running: Running | None = None  # whose handler has ended; None for a task that did not start


@dataclass(slots=True)
class Outbox:
    """Settlements that Redis has not confirmed.

    At most one per slot of a shard group, because it claims for a slot after sending the slot's settlement.
    """

    waiting: list[Settlement] = field(default_factory=list)
    sent: int = 0  # in the round trips under way
    refused: list[Settlement] = field(default_factory=list)  # to be sent again

    @property
    def unconfirmed(self) -> int:
        """The number of settlements without a reply."""
        return len(self.waiting) + self.sent + len(self.refused)

    def try_again(self, shard: int) -> None:
        """Send the rejected settlements of this shard again."""
        self.waiting += [each for each in self.refused if each.lease.shard == shard]
        self.refused = [each for each in self.refused if each.lease.shard != shard]

    def take(self) -> Iterator[tuple[int, list[Settlement]]]:
        """Empty the outbox: yield shards and settlements that one call can carry."""
        groups = defaultdict[tuple[int, Verb, int], list[Settlement]](list)
        for settlement in self.waiting:
            groups[settlement.lease.shard, settlement.verb, settlement.max_attempts].append(settlement)
        self.waiting = []
        for (shard, _, _), settlements in groups.items():
            yield shard, settlements


def settle_call(commands: Commands, batch: list[Settlement], max_attempts: int) -> Call[list[Settled]]:
    """Return the call for settlements of one verb in one shard; `max_attempts` is the document's."""
    shard, verb = batch[0].lease.shard, batch[0].verb
    if verb == "ack":
        tasks = [each.lease.task for each in batch] if commands.finished else ()
        return commands.ack(shard, [each.lease.member for each in batch], tasks)
    if verb == "park":
        return commands.park(
            shard, [item for each in batch for item in (each.lease.member, each.lease.run_before)]
        )
    if verb == "end_cancelled":
        return commands.end_cancelled(shard, [each.lease.member for each in batch])
    flat = [argument for each in batch for argument in (each.lease.member, *each.arguments)]
    if verb == "retry":
        return commands.retry(shard, flat, max_attempts=batch[0].max_attempts or max_attempts)
    return {"bury": commands.bury, "release": commands.release}[verb](shard, flat)


def of_refused(lease: Lease, why: str) -> tuple[int, str] | None:
    """Return the delay, and the error, of a task whose arguments this worker refuses; None if it has waited enough.

    The error has the sum of the delays, the coming one by itself, so that the next worker continues with it. Any other
    error begins anew.
    """
    found = _REFUSED.match(lease.entry)
    waited_ms = (int(found[1]) + int(found[2])) * 1000 if found else 0
    if waited_ms >= REFUSED_MS:
        return None
    delay_ms = _pause_ms(waited_ms)
    waited = f"{REFUSED}, for {waited_ms // 1000} s of {REFUSED_MS // 1000} s so far"
    return delay_ms, f"{waited}, and for {delay_ms // 1000} s more: {why}"


def of_unreadable(claimed: Claimed) -> Iterator[Settlement]:
    """Log tasks that cannot be decoded, and yield their settlements: those of a newer delayq wait for its workers."""
    too_new = [(lease, error) for lease, error in claimed.unreadable if isinstance(error, EnvelopeTooNew)]
    if too_new:  # one line for all: after a rollback there may be many, repeatedly
        first, why = too_new[0]
        fields = {"tasks": len(too_new), "task_id": first.task.id, "error": str(why)}
        log.error("envelope_too_new", extra={"fields": fields})
    for lease, error in claimed.unreadable:
        text = f"unreadable: {error}"
        if isinstance(error, EnvelopeTooNew):
            waited_ms = claimed.now_ms - int.from_bytes(lease.task.body[-DUE_BYTES:], "big")
            yield Settlement("retry", lease, (_pause_ms(waited_ms), 0, text))
        else:
            log.error(
                "envelope_unreadable", extra={"fields": {"task_id": lease.task.id, "error": str(error)}}
            )
            yield Settlement("bury", lease, (text,))


def _pause_ms(waited_ms: int) -> int:
    """Return the time that a task has waited already, within bounds, so that the delay doubles each time."""
    shortest, longest = TOO_NEW_PAUSE_MS
    return min(max(shortest, waited_ms), longest)
