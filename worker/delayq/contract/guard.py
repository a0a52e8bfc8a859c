"""spec.guard: what keeps a task from taking effect twice."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from delayq.contract.fields import choice, listing, section, text, whole
from delayq.contract.record import Rule, Shape, needing
from delayq.contract.references import DatabaseSecretRef, UrlsSecretRef
from delayq.contract.words import KIND_NAME, STATEMENT

OnIncompleteRun = Literal["Run", "Bury"]
AppliesTo = Literal["AllTasks", "NamedKinds"]
RowWait = Literal["Wait", "NoWait", "SkipLocked"]
MOST_GUARDED_KINDS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisLock:
    """A lock per task in the queue's own Redis."""

    ttl_seconds: int = whole(1, 86_400, default=30, doc="When the lock expires unless it is renewed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redlock:
    """A lock per task held on the majority of independent Redis servers."""

    urls_secret_ref: UrlsSecretRef = section(
        UrlsSecretRef, doc="URLs of three or more independent Redis servers, one per line."
    )
    ttl_seconds: int = whole(1, 86_400, default=30, doc="When the lock expires unless it is renewed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlGuard:
    """Fields of every guard that keeps rows in a database."""

    database_secret_ref: DatabaseSecretRef = section(DatabaseSecretRef, doc="URL of the database.")
    max_connections: int | None = whole(
        1,
        1000,
        default=None,
        doc="Most connections of one worker to the database. A run may hold one until its end. "
        "Absent: one more than worker.concurrency.",
    )
    lock_timeout_milliseconds: int = whole(
        1,
        600_000,
        default=5000,
        doc="Longest wait for a lock, of the guard or of the handler's statements on its connection. Then the task is "
        "retried soon. At most half of delivery.handlerTimeoutSeconds counts.",
    )
    retention_seconds: int = whole(
        60, 315_360_000, default=604_800, doc="How long finished tasks are remembered."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlUnique(SqlGuard):
    """A row per finished task, under a unique index."""

    on_incomplete_run: OnIncompleteRun = choice(
        "Run",
        "Bury",
        default="Run",
        doc="For a handler without a connection, whose earlier run did not record its end. "
        "Run: runs the task again, at the risk of a second effect. Bury: makes it a dead letter.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlPessimistic(SqlGuard):
    """A row per task, locked while the handler runs."""

    select: str | None = text(
        STATEMENT,
        default=None,
        doc="Query for the rows to lock. No row means that the task is done. Absent: a row of delayq's own table.",
    )
    wait: RowWait = choice(
        "Wait",
        "NoWait",
        "SkipLocked",
        default="Wait",
        doc="If another transaction has locked the row: Wait waits for it, NoWait and SkipLocked retry the task later.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptimistic(SqlGuard):
    """A row per task, changed only if it has not changed meanwhile."""

    SHAPE: ClassVar[Shape] = Shape(rules=(needing("select", "update"),))

    select: str | None = text(
        STATEMENT,
        default=None,
        doc="Query before the handler runs. Its columns are parameters of update. No row means that the task is done.",
    )
    update: str | None = text(
        STATEMENT,
        default=None,
        doc="Statement after the handler, in the same transaction. If it changes no row, another run has done the "
        "task. Absent: a row of delayq's own table.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What prevents a second effect of a task: exactly one guard, for all tasks or for named kinds."""

    SHAPE: ClassVar[Shape] = Shape(
        one_of=("redis_lock", "redlock", "sql_unique", "sql_pessimistic", "sql_optimistic"),
        rules=(
            Rule(
                "kinds needs appliesTo: NamedKinds",
                ("applies_to", "kinds"),
                lambda applies_to, kinds: kinds is None or applies_to == "NamedKinds",
                "!has(self.kinds) || (has(self.appliesTo) && self.appliesTo == 'NamedKinds')",
            ),
        ),
    )

    redis_lock: RedisLock | None = section(
        RedisLock,
        default=None,
        doc="A lock per task in the queue's own Redis. It saves work, and does not exclude a second effect.",
    )
    redlock: Redlock | None = section(
        Redlock, default=None, doc="A lock per task on the majority of independent Redis servers."
    )
    sql_unique: SqlUnique | None = section(
        SqlUnique,
        default=None,
        doc="A row per finished task under a unique index; recommended with a database.",
    )
    sql_pessimistic: SqlPessimistic | None = section(
        SqlPessimistic, default=None, doc="A row per task, locked while the handler runs."
    )
    sql_optimistic: SqlOptimistic | None = section(
        SqlOptimistic, default=None, doc="A row per task, changed only if it has not changed meanwhile."
    )

    applies_to: AppliesTo = choice(
        "AllTasks",
        "NamedKinds",
        default="AllTasks",
        doc="AllTasks: the guard applies to every task. NamedKinds: to the kinds of an App that ask for it with "
        "guard=True, and to those that kinds names.",
    )
    kinds: tuple[str, ...] | None = listing(
        KIND_NAME,
        least=1,
        most=MOST_GUARDED_KINDS,
        default=None,
        doc="Kinds of task that the guard applies to, with appliesTo: NamedKinds.",
    )

    @property
    def sql(self) -> SqlGuard | None:
        """The guard, if it keeps rows in a database."""
        return self.sql_unique or self.sql_pessimistic or self.sql_optimistic
