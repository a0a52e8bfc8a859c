"""The common part of both clients: the queue, Redis' address, the queue's limits, and results of bulk calls."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Final, Self, TypeAlias, TypedDict

from delayq.client.dead_letters import DeadLetters
from delayq.client.document import read
from delayq.client.enqueue import Results
from delayq.client.operations import Operations
from delayq.client.recurring import RecurringSchedules
from delayq.client.taken_kinds import TakenKinds
from delayq.client.times import exact_instant, exact_span
from delayq.connection import Address
from delayq.connection.address import secrets_dir
from delayq.contract import DelayQueue, Limits
from delayq.contract.files import RUN_DIR, RUN_URL
from delayq.contract.words import KEY_PREFIX, OBJECT_NAME
from delayq.durations import Duration
from delayq.errors import InvalidDocument, TasksRefused, Unavailable
from delayq.protocol.commands import Commands
from delayq.protocol.results import DeadGroup, Scheduled, Selection, TaskRow, TaskView
from delayq.protocol.shard_map import ShardMap
from delayq.protocol.write_durability import Durability, Kind, durability_of, longest_seconds
from delayq.schedules.stored import Schedule

OTHER_REDIS: Final = (
    '`delayq run` has a Redis of its own: export DELAYQ_REDIS_URL="$(cat {file})", '
    'and give the App or the client url=os.environ.get("DELAYQ_REDIS_URL")'
)
"""A program uses spec.redis unless it has a url; the commands use the Redis of a `delayq run` by themselves."""

# Inside the clients, `list` is a method.
Rows: TypeAlias = list[TaskRow]
Schedules: TypeAlias = list[Schedule]
Groups: TypeAlias = list[DeadGroup]
Views: TypeAlias = list[TaskView]


class Filters(TypedDict, total=False):
    """Which tasks a bulk operation is about: those that have all that is given. See Client.count_many."""

    tag: str | None
    kind: str | None
    due_from: datetime | None
    due_before: datetime | None
    due_from_ms: int | None
    due_before_ms: int | None


def selected(
    tag: str | None = None,
    kind: str | None = None,
    *,
    due_from: datetime | None = None,
    due_before: datetime | None = None,
    due_from_ms: int | None = None,
    due_before_ms: int | None = None,
) -> Selection:
    """Return the selection of these filters."""
    return Selection(
        tag,
        kind,
        exact_instant(due_from, due_from_ms, "due_from"),
        exact_instant(due_before, due_before_ms, "due_before"),
    )


class QueueClient:
    """A queue, without I/O."""

    _document: Path | None = None  # the file that says where Redis is; None: the caller says it

    def __init__(
        self,
        url: str | Address = "redis://localhost:6379/0",
        *,
        queue: str,
        key_prefix: str = "delayq",
        shards: int = 1,
        limits: Limits | None = None,
        durability: Durability | Kind | None = None,
        deadline: Duration | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        """`queue` and `key_prefix` must be those of the queue's document.

        `shards` is the number of shards of a queue that is not in use yet; otherwise it is read from Redis.

        `durability`: what schedule waits for; "Replicated" means one replica, and either word a second at most.

        `deadline` ("1h"; `deadline_ms` in milliseconds): of tasks that have none of their own.
        """
        for name, kind, given in (("queue", OBJECT_NAME, queue), ("key_prefix", KEY_PREFIX, key_prefix)):
            if not kind.fits(given):  # no document can have this name, so no worker would run the tasks
                raise ValueError(f"{name}: expected {kind.expected}, got {given!r}")
        confirmed = Durability.parse(durability)
        self.address = url if isinstance(url, Address) else Address.from_url(url)
        """Where Redis is."""
        self.queue = queue
        """The name of the queue."""
        self.limits = limits or Limits()
        """The limits that this client checks: spec.limits."""
        deadline_ms = exact_span(deadline, deadline_ms, "deadline")
        commands = Commands(queue, prefix=key_prefix, shards=shards, limits=limits)
        self._operations = Operations(commands, self.limits, confirmed, deadline_ms=deadline_ms)
        self._operations.homes.is_cluster = self.address.is_cluster
        self._longest_seconds = longest_seconds(confirmed)
        self._dead_letters = DeadLetters(self._operations)
        self._recurring = RecurringSchedules(self._operations)

    @classmethod
    def from_document(
        cls,
        document: DelayQueue | str | Path,
        *,
        queue: str | None = None,
        url: str | Address | None = None,
        unknown_kinds: bool = False,
    ) -> Self:
        """Create a client for a DelayQueue document, parsed or a path; `url` overrides spec.redis.

        `queue` is the name of a queue, if the file describes several.

        The client refuses tasks whose kind no handler of the document takes, unless `unknown_kinds`: a worker of
        that kind may be deployed later. Kinds of an App are known where its module is imported.
        """
        found = document if isinstance(document, DelayQueue) else read(document, queue)
        if queue not in (None, found.queue):
            raise InvalidDocument(f"expected the document of queue {queue}, got that of {found.queue}")
        spec = found.spec
        address = url if isinstance(url, Address) else Address.of(spec.redis, secrets_dir(), url=url)
        made = cls(
            address,
            queue=found.queue,
            key_prefix=spec.redis.key_prefix,
            shards=spec.shards,
            limits=spec.limits,
            durability=durability_of(spec.durability),
            deadline_ms=spec.delivery.deadline_ms,
        )
        if url is None and not isinstance(document, DelayQueue):
            made._document = Path(document)
        made.take_only(None if unknown_kinds else TakenKinds.of(spec.handler))
        return made

    def _explain(self, error: Unavailable) -> None:
        """Add a note to the error if the document is beside the data of a `delayq run`, which has its own Redis."""
        if self._document is None:
            return
        file = self._document.parent / RUN_DIR / RUN_URL
        note = OTHER_REDIS.format(file=quote(str(file)))
        if file.is_file() and note not in getattr(error, "__notes__", ()):  # concurrent calls share one error
            error.add_note(note)

    def take_only(self, kinds: TakenKinds | None) -> None:
        """Refuse tasks that these kinds do not take; None: refuse none."""
        self._operations.writer.encoder.taken = kinds

    @property
    def shard_map(self) -> ShardMap:
        """The cached shard map; every call that is not about one task refreshes it."""
        return self._operations.commands.shard_map

    @property
    def commands(self) -> Commands:
        """The scripts, for tools that call each shard separately."""
        return self._operations.commands

    @property
    def _patient(self) -> Address:
        """The address with the longer timeout of calls that wait for confirmation."""
        return self.address.patient(self._longest_seconds)


def all_stored(results: Results) -> list[Scheduled]:
    """Return the stored tasks in order, or raise NotConfirmed or TasksRefused with them."""
    results.check_confirmed()
    if results.refused:
        raise TasksRefused(dict(sorted(results.refused.items())), results.scheduled)
    return results.scheduled
