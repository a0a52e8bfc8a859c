"""Guards: what keeps a task from taking effect twice. One per file; docs/how-to/guards.md helps to choose.

Each kind is imported only when it is asked for: a worker without a database needs no SQLAlchemy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from delayq.errors import InvalidDocument
from delayq.guards.base import Guard, Hold
from delayq.service import extras

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.connection import Address
    from delayq.contract import DelayQueue
    from delayq.contract import Guard as GuardSpec
    from delayq.guards.redis_lock import RedisLock
    from delayq.guards.redlock import Redlock
    from delayq.guards.sql.guard import SqlGuard
    from delayq.guards.sql.settings import SqlLimits
    from delayq.guards.sql_optimistic import SqlOptimistic
    from delayq.guards.sql_pessimistic import SqlPessimistic
    from delayq.guards.sql_unique import SqlUnique

__all__ = [
    "Guard",
    "Hold",
    "RedisLock",
    "Redlock",
    "SqlLimits",
    "SqlOptimistic",
    "SqlPessimistic",
    "SqlUnique",
]
_KINDS = {
    "redis_lock": "RedisLock",
    "redlock": "Redlock",
    "sql_unique": "SqlUnique",
    "sql_pessimistic": "SqlPessimistic",
    "sql_optimistic": "SqlOptimistic",
}
"""Field of spec.guard, which is also the name of the module → the class in it."""


def build(queue: DelayQueue, address: Address, *, secrets_dir: Path, apart: bool) -> Guard[Any] | None:
    """Return the guard that the document names, None for none; InvalidDocument when it cannot be set up here.

    `address` is the queue's own Redis. `apart`: the handler takes no connection, so its effects are apart from the
    guard's transaction.
    """
    spec = queue.spec.guard
    for field, kind in _KINDS.items():
        if spec is not None and getattr(spec, field) is not None:
            if said := _lacking(field):
                raise InvalidDocument(f"spec.guard.{kind[0].lower()}{kind[1:]}: {said}")
            made: Guard[Any] = getattr(import_module(f"delayq.guards.{field}"), kind).of(
                queue, address, secrets_dir=secrets_dir, apart=apart
            )
            return made
    return None


def sql_kind(spec: GuardSpec) -> type[SqlGuard]:
    """Return the class of the SQL guard that a document names; it has one. ImportError without the extra."""
    field = next(each for each in _KINDS if each.startswith("sql_") and getattr(spec, each) is not None)
    kind: type[SqlGuard] = __getattr__(_KINDS[field])
    return kind


def _lacking(field: str) -> str:
    return extras.lacking(*extras.SQL) if field.startswith("sql") else ""


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- any object of the module
    """Import on first use: see above."""
    for field, kind in {**_KINDS, "sql.settings": "SqlLimits"}.items():
        if kind == name:
            if said := _lacking(field):
                raise ImportError(f"delayq.guards.{name}: {said}")
            return getattr(import_module(f"delayq.guards.{field}"), name)
    raise AttributeError(f"module 'delayq.guards' has no attribute {name!r}")
