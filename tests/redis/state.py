"""One shard as a value: write it into Redis, read it back, compare. The clock stands still meanwhile.

Not here: code of the product. Keys are read raw, so a test sees what is really there.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from delayq import NewTask
from delayq.connection import Address, SyncConnection
from delayq.protocol.commands import Commands
from delayq.protocol.envelope import encode
from delayq.protocol.keys import FORMAT

from tests.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq import SyncClient
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.replies import Stored
    from delayq.protocol.results import TaskView
    from delayq.protocol.scripts import Argument
    from redis import Redis

    from tests.topologies.kinds import Servers

T = TypeVar("T")
NOW = 1_893_456_000_000  # 2030-01-01: the instant at which the clock stands still, ms
TOKEN = (NOW + 3_600_000) * 1000  # later than NOW in µs, so the next token is TOKEN + 1 on every server
PLENTY: dict[str, Any] = {"max_length": 1_000_000, "max_delay_ms": 10_000_000}


def envelope(due_ms: int = NOW, payload: object = None, headers: Mapping[str, str] | None = None) -> bytes:
    return encode(payload, None, headers)[0] + due_ms.to_bytes(6, "big")


@dataclass(frozen=True, kw_only=True)
class State:
    """Everything a shard keeps. Without `tasks`, every task in an index has an envelope."""

    delayed: Mapping[str, int] = field(default_factory=dict)
    retry: Mapping[str, int] = field(default_factory=dict)
    suspect: Mapping[str, int] = field(default_factory=dict)
    processing: Mapping[str, int] = field(default_factory=dict)
    dlq: Mapping[str, int] = field(default_factory=dict)
    parked: Mapping[str, int] = field(default_factory=dict)
    deadlines: Mapping[str, int] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    schedules: Mapping[str, float] = field(default_factory=dict)
    finished: Mapping[str, int] = field(default_factory=dict)
    finished_info: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, bytes] | None = None
    attempts: Mapping[str, str] = field(default_factory=dict)
    dlq_info: Mapping[str, str] = field(default_factory=dict)
    followups: Mapping[str, bytes] = field(default_factory=dict)
    wake: int = 0
    alarm: int = 0
    leader: str = ""
    stats: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.tasks is None:
            running = [member.rpartition(":")[0] for member in self.processing]
            parked = [member.split(" ", 3)[3] for member in self.parked]
            ids = [*self.delayed, *self.retry, *self.suspect, *running, *self.dlq, *parked]
            object.__setattr__(self, "tasks", {task_id: envelope() for task_id in ids})

    @property
    def envelopes(self) -> Mapping[str, bytes]:
        return self.tasks or {}

    def but(self, **changes: Any) -> State:  # noqa: ANN401
        """The same state with some keys changed: a test says what moved and nothing else."""
        return replace(self, **changes)

    def without(self, *ids: str, **changes: Any) -> State:  # noqa: ANN401
        """The same, and these envelopes gone."""
        kept = {task_id: kept for task_id, kept in self.envelopes.items() if task_id not in ids}
        return replace(self, tasks=kept, **changes)


USUAL = {"largest", "bytes", "bytes_in", "finished_bytes", "format"}
ZSETS, HASHES, LISTS = (
    (
        "delayed",
        "retry",
        "suspect",
        "processing",
        "dlq",
        "parked",
        "deadlines",
        "tags",
        "schedules",
        "finished",
    ),
    ("tasks", "attempts", "dlq_info", "stats", "followups", "finished_info"),
    ("wake", "alarm"),
)


def seed(redis: Redis, keys: Keys, state: State) -> State:
    """Write the whole state of a shard over all that is there."""
    pipe = redis.pipeline(transaction=False)
    pipe.delete(*[getattr(keys, each.name) for each in fields(state)])
    for name in (*ZSETS, *HASHES):
        content = getattr(state, name)
        write = pipe.zadd if name in ZSETS else pipe.hset
        if content:
            write(getattr(keys, name), mapping=dict(content))
    if state.envelopes or state.stats or state.finished_info:
        pipe.hsetnx(keys.stats, "format", str(FORMAT))
    if state.envelopes:
        pipe.hset(keys.stats, "bytes", weight(state.envelopes))
    if state.finished_info:
        pipe.hset(keys.stats, "finished_bytes", history_weight(state.finished_info))
    for name in LISTS:
        for _ in range(getattr(state, name)):
            pipe.lpush(getattr(keys, name), "1")
    if state.leader:
        pipe.set(keys.leader, state.leader)
    pipe.execute()
    return state


def weight(envelopes: Mapping[str, bytes]) -> int:
    """What the counter of bytes should say of these tasks."""
    return sum(len(task_id.encode()) + len(held) for task_id, held in envelopes.items() if held)


def history_weight(entries: Mapping[str, str]) -> int:
    """What the counter of bytes should say of these entries of the history."""
    return sum(2 * len(task_id.encode()) + len(entry) + 140 for task_id, entry in entries.items())


def whole(redis: Redis, keys: Keys, *, transaction: bool = True) -> State:
    """Read the whole state of a shard. In every state, its counter of bytes is exact.

    Redis refuses a transaction when its memory is full.
    """
    pipe = redis.pipeline(transaction=transaction)
    for name in ZSETS:
        pipe.zrange(getattr(keys, name), 0, -1, withscores=True)
    for name in HASHES:
        pipe.hgetall(getattr(keys, name))
    for name in LISTS:
        pipe.llen(getattr(keys, name))
    pipe.get(keys.leader)
    answers = pipe.execute()
    zsets = {
        name: {member.decode(): int(score) if score < inf else score for member, score in found}
        for name, found in zip(ZSETS, answers, strict=False)
    }
    tasks, attempts, dlq_info, stats, followups, finished, wake, alarm, leader = answers[len(ZSETS) :]
    finished_info = {name: entry.decode() for name, entry in _named(finished).items()}
    assert not stats or int(stats[b"format"]) == FORMAT
    assert int(stats.get(b"bytes", 0)) == weight(_named(tasks))
    assert int(stats.get(b"finished_bytes", 0)) == history_weight(finished_info)
    return State(
        **zsets,
        tasks=_named(tasks),
        attempts={name: entry.decode() for name, entry in _named(attempts).items()},
        dlq_info={name: entry.decode() for name, entry in _named(dlq_info).items()},
        followups=_named(followups),
        finished_info=finished_info,
        # What says nothing that `tasks` or `finished_info` does not is no counter of its own.
        stats={name: int(count) for name, count in _named(stats).items() if name not in USUAL},
        wake=wake,
        alarm=alarm,
        leader=(leader or b"").decode(),
    )


def _named(found: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in found.items()}


def one_server(shard: Shard) -> RedisServer:
    """The only server of a test that is about one."""
    assert isinstance(shard.server, RedisServer)
    return shard.server


@contextmanager
def still(server: Servers) -> Iterator[None]:
    """The server's clock stands at NOW, and goes on from the real time afterwards."""
    assert server.clock is not None
    set_clock(server, NOW)
    try:
        yield
    finally:
        server.clock.set_ms(0)


def set_clock(server: Servers, at_ms: int) -> None:
    """Let the clock stand at `at_ms`. For that, libfaketime takes a time of its server's zone, which is UTC."""
    assert server.clock is not None
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_ms // 1000))
    new = server.clock.file.with_suffix(".new")
    # Half a microsecond more: libfaketime reads a binary fraction, and .499 would become the millisecond before.
    new.write_text(f"{stamp}.{at_ms % 1000:03d}0005\n")
    new.replace(server.clock.file)


@dataclass(frozen=True)
class Shard:
    """One shard of a queue on a server whose clock stands still at NOW."""

    server: Servers
    redis: Redis
    commands: Commands
    connection: SyncConnection
    index: int = 0
    redises: tuple[Redis, ...] = ()  # each is where the shard of that number is

    @property
    def keys(self) -> Keys:
        return self.commands.shards[self.index]

    def seed(self, state: State) -> State:
        return seed(self.redis, self.keys, state)

    def whole(self) -> State:
        return whole(self.redis, self.keys)

    def run(self, call: Call[T]) -> T:
        answer: T = self.connection.run([call])[0]
        return answer

    def store(self, *flat: Argument, if_exists: str = "reject", **options: int) -> Stored:
        """Schedule tasks: of each, its id, when it is due and its envelope without the due time."""
        limits: dict[str, Any] = {"repeated": 0, **PLENTY, **options}
        return self.run(self.commands.schedule(0, flat, if_exists=if_exists, **limits))

    def view(self, task_id: str) -> TaskView:
        """What `get` says of a task that has to be there."""
        view = self.run(self.commands.get(task_id))
        assert view is not None
        return view

    def clock(self, at_ms: int) -> None:
        """Move the clock and wait until scripts see it: a server may look at it once per tick only."""
        set_clock(self.server, at_ms)
        for redis in self.redises or (self.redis,):
            _await_clock(redis, at_ms)

    @contextmanager
    def full_memory(self) -> Iterator[None]:
        """Redis refuses every command that could take memory."""
        self.redis.config_set("maxmemory", 1)
        try:
            yield
        finally:
            self.redis.config_set("maxmemory", 0)

    def now_ms(self) -> int:
        return _now_ms(self.redis)


def _await_clock(redis: Redis, at_ms: int) -> None:
    for _ in range(10_000):
        if _now_ms(redis) == at_ms:
            return
    raise AssertionError(f"the clock stands at {_now_ms(redis)} instead of {at_ms}")


def _now_ms(redis: Redis) -> int:
    seconds, micros = redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


@contextmanager
def shard_on(server: Servers, queue: str, shards: int = 1) -> Iterator[Shard]:
    commands = Commands(queue, shards=shards)
    with ExitStack() as stack:
        redises = tuple(stack.enter_context(server.on(keys)) for keys in commands.shards)
        stack.enter_context(still(server))
        connection = stack.enter_context(closing(SyncConnection(Address.from_url(server.url))))
        shard = Shard(server, redises[0], commands, connection, redises=redises)
        shard.clock(NOW)
        yield shard


def tasks(count: int) -> Iterator[NewTask]:
    return (NewTask(n, delay_ms=60_000 + n, task_id=f"t{n}") for n in range(count))


def known(client: SyncClient, task_id: str) -> TaskView:
    """The task, which has to be there."""
    view = client.get(task_id)
    assert view is not None
    return view
