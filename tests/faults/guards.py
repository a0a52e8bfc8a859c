"""The guards of the table: what each is in a DelayQueue, and what the handler does with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

SECRET: Final = "faults"  # noqa: S105  the name of a Secret, not what is in it
DATABASE: Final = {
    "databaseSecretRef": {"name": SECRET},
    "lockTimeoutMilliseconds": 1000,
    "maxConnections": 20,
}
TTL: Final = {"ttlSeconds": 3}  # with 1, a busy machine loses locks though nothing has happened


@dataclass(frozen=True, slots=True)
class GuardKind:
    """One column."""

    name: str
    meaning: str
    """What the document says of it."""
    spec: dict[str, Any]
    exact: bool = False
    """Whether the effect is in the guard's own transaction, so that no fault may double it."""
    lock_servers: int = 0
    """How many Redis servers of its own the guard has."""

    @property
    def handler(self) -> str:
        return f"tests.faults.teller:{'transfer' if self.exact else 'charge'}"

    @property
    def sql(self) -> bool:
        return any(each.startswith("sql") for each in self.spec)


def _redlock(servers: int) -> GuardKind:
    spec = {"redlock": {"urlsSecretRef": {"name": SECRET}, **TTL}}
    return GuardKind(f"redlock-{servers}", f"`redlock` on {servers} servers", spec, lock_servers=servers)


KINDS: Final = (
    GuardKind("none", "no guard", {}),
    GuardKind("redis-lock", "`redisLock`", {"redisLock": TTL}),
    _redlock(3),
    GuardKind("sql-mark", "`sqlUnique` around a handler that takes no connection", {"sqlUnique": DATABASE}),
    GuardKind(
        "sql-unique", "`sqlUnique`, the handler writes on its connection", {"sqlUnique": DATABASE}, exact=True
    ),
    GuardKind("sql-pessimistic", "`sqlPessimistic`, the same", {"sqlPessimistic": DATABASE}, exact=True),
    GuardKind("sql-optimistic", "`sqlOptimistic`, the same", {"sqlOptimistic": DATABASE}, exact=True),
)
GUARDS: Final = {kind.name: kind for kind in KINDS}
