"""spec.guard: what keeps a task from taking effect twice."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from delayq.contract.fields import section, whole
from delayq.contract.record import Shape
from delayq.contract.references import DatabaseSecretRef, UrlsSecretRef


@dataclass(frozen=True, slots=True, kw_only=True)
class NoGuard:
    """Nothing: the handler is idempotent by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisLock:
    """A lock per task in the queue's own Redis."""

    ttl_seconds: int = whole(1, 86_400, default=30, doc="How long the lock lives without being renewed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redlock:
    """A lock per task held on the majority of independent Redis servers."""

    urls_secret_ref: UrlsSecretRef = section(
        UrlsSecretRef, doc="URLs of three or more independent Redis servers."
    )
    ttl_seconds: int = whole(1, 86_400, default=30, doc="How long the lock lives without being renewed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlUnique:
    """A row per finished task, under a unique index."""

    database_secret_ref: DatabaseSecretRef = section(DatabaseSecretRef, doc="URL of the database.")
    retention_seconds: int = whole(
        60, 315_360_000, default=604_800, doc="How long finished tasks are remembered."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlPessimistic:
    """A row per task, locked while the handler runs."""

    database_secret_ref: DatabaseSecretRef = section(DatabaseSecretRef, doc="URL of the database.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptimistic:
    """A row per task, changed only if nobody changed it meanwhile."""

    database_secret_ref: DatabaseSecretRef = section(DatabaseSecretRef, doc="URL of the database.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What keeps a task from taking effect twice: exactly one of its fields."""

    SHAPE: ClassVar[Shape] = Shape(
        one_of=("none", "redis_lock", "redlock", "sql_unique", "sql_pessimistic", "sql_optimistic")
    )

    none: NoGuard | None = section(NoGuard, default=None, doc="Nothing; the handler is idempotent by itself.")
    redis_lock: RedisLock | None = section(
        RedisLock,
        default=None,
        doc="A lock per task in the queue's own Redis; good for efficiency, no proof.",
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
        SqlOptimistic, default=None, doc="A row per task, changed only if nobody changed it meanwhile."
    )
