"""What both clients share: the queue, where Redis is, the queue's limits, and what a bulk call comes to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from delayq.client.dead_letters import Letters
from delayq.client.document import read
from delayq.client.operations import Operations
from delayq.connection import Address
from delayq.contract import DelayQueue, Limits
from delayq.contract.files import SECRETS_DIR
from delayq.contract.words import KEY_PREFIX, OBJECT_NAME
from delayq.errors import TasksRefused
from delayq.protocol.commands import Broker
from delayq.protocol.write_durability import Acknowledge, longest_seconds

if TYPE_CHECKING:
    from delayq.client.enqueue import Results
    from delayq.protocol.results import DeadGroup, Scheduled, TaskRow, TaskView
    from delayq.protocol.shard_map import Layout
    from delayq.protocol.write_durability import Kind

# Inside the clients, `list` is a method.
Rows: TypeAlias = "list[TaskRow]"
Groups: TypeAlias = "list[DeadGroup]"
Views: TypeAlias = "list[TaskView]"

SECRETS_VARIABLE = "DELAYQ_SECRETS_DIR"


def secrets_dir() -> Path:
    """Return where secrets are mounted: $DELAYQ_SECRETS_DIR, else the directory the operator mounts them in."""
    return Path(os.environ.get(SECRETS_VARIABLE, SECRETS_DIR))


class QueueClient:
    """A queue, before it is said how to wait for it."""

    def __init__(
        self,
        url: str | Address = "redis://localhost:6379/0",
        *,
        queue: str,
        key_prefix: str = "delayq",
        shards: int = 1,
        limits: Limits | None = None,
        acknowledge: Acknowledge | Kind | None = None,
    ) -> None:
        """Name a queue and its Redis. `key_prefix` has to be that of the queue's document.

        `shards` is how many a queue gets that nobody has used yet; any other tells its clients by itself.

        `acknowledge`: what schedule waits for; "Replicated" means one replica, and either word a second at most.
        """
        for name, kind, given in (("queue", OBJECT_NAME, queue), ("key_prefix", KEY_PREFIX, key_prefix)):
            if not kind.fits(given):  # no document could name that queue, so no worker would run its tasks
                raise ValueError(f"{name}: expected {kind.expected}, got {given!r}")
        confirmed = Acknowledge.given(acknowledge)
        self.address = url if isinstance(url, Address) else Address.from_url(url)
        self.queue = queue
        self.limits = limits or Limits()
        broker = Broker(queue, prefix=key_prefix, shards=shards, limits=limits)
        self._operations = Operations(broker, self.limits, confirmed)
        self._operations.homes.apart = self.address.apart
        self._longest_seconds = longest_seconds(confirmed)
        self._letters = Letters(self._operations)

    @classmethod
    def from_document(cls, document: DelayQueue | str | Path, *, url: str | None = None) -> Self:
        """Take everything from a DelayQueue document, parsed or a path; `url` overrides spec.redis."""
        queue = document if isinstance(document, DelayQueue) else read(document)
        spec = queue.spec
        address = Address.of(spec.redis, secrets_dir(), url=url)
        return cls(
            address,
            queue=queue.queue,
            key_prefix=spec.redis.key_prefix,
            shards=spec.shards,
            limits=spec.limits,
            acknowledge=Acknowledge.of(spec.delivery),
        )

    @property
    def layout(self) -> Layout:
        """How many shards there are, as far as this client knows: every call that is not about one task asks."""
        return self._operations.broker.layout

    @property
    def broker(self) -> Broker:
        """The scripts, for tools that ask each shard by itself."""
        return self._operations.broker

    @property
    def _patient(self) -> Address:
        """Where to send what waits to be confirmed."""
        return self.address.patient(self._longest_seconds)


def all_stored(results: Results) -> list[Scheduled]:
    """Return the stored tasks in order, or raise NotAcknowledged or TasksRefused with them."""
    results.check_acknowledged()
    if results.refused:
        raise TasksRefused(dict(sorted(results.refused.items())), results.scheduled)
    return results.scheduled
