"""One task that runs under a SQL guard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delayq.guards.base import Hold

if TYPE_CHECKING:
    from sqlalchemy import RootTransaction

    from delayq.guards.sql.engines import Pool


@dataclass(eq=False)
class SqlHold(Hold):
    """`connection` is None when no transaction stays open while the handler runs."""

    pool: Pool[Any] | None = None
    """Where the connection came from."""
    transaction: RootTransaction | None = None
    facts: Any = None
    """What the guard read when it began."""
    threaded: bool = False
    """Whether the connection belongs to a driver without asyncio."""
