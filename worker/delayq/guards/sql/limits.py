"""The bounds of a SQL guard: connections, waits, and how long rows are kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """As spec.guard and spec.delivery have them."""

    max_connections: int = 20
    """Most connections of the pool; runs that take the connection keep one, and others wait for it as for a lock."""
    lock_timeout_ms: int = 5000
    """How long to wait for somebody else's transaction, or for a connection of the pool: then GuardBusy is raised."""
    retention_seconds: int = 604_800
    """How long the row of a finished task prevents a second effect; prune() deletes older ones."""
    run_seconds: int = 300
    """How long a handler may run: a transaction that is idle for much longer belongs to a worker that stands still."""

    @property
    def lock_seconds(self) -> int:
        """The same, for databases that count in seconds: never less than asked for."""
        return -(-self.lock_timeout_ms // 1000)

    @property
    def pool_seconds(self) -> float:
        """How long to wait for a connection of the pool: as long as for a lock."""
        return self.lock_timeout_ms / 1000

    @property
    def idle_seconds(self) -> int:
        """After how long the database may end a transaction in which nothing happens."""
        return self.run_seconds + 30

    @property
    def answer_seconds(self) -> float:
        """How long one step of a guard may take in all: waits for a connection and a lock, and then some."""
        return 2 * self.pool_seconds + 20
