"""The limits of a SQL guard, and the source of its database's URL."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import URL

from delayq.contract.files import DATABASE_URL
from delayq.errors import InvalidDocument
from delayq.guards.sql import urls
from delayq.service.mounted import Mounted

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.contract.guard import SqlGuard


@dataclass(frozen=True, kw_only=True)
class SqlLimits:
    """The limits of spec.guard and spec.delivery."""

    max_connections: int = 20
    """Size of the pool. A run with an open transaction keeps a connection; others wait for one as for a lock."""
    lock_timeout_ms: int = 5000
    """How long to wait for another transaction, or for a connection of the pool: then GuardBusy is raised."""
    retention_seconds: int = 604_800
    """How long the row of a finished task prevents a second effect; prune() deletes older ones."""
    run_seconds: int = 300
    """How long a handler may run: a transaction that is idle for much longer belongs to a worker that hangs."""

    @property
    def lock_seconds(self) -> int:
        """The lock timeout in whole seconds, rounded up."""
        return -(-self.lock_timeout_ms // 1000)

    @property
    def pool_seconds(self) -> float:
        """How long to wait for a connection of the pool: as long as for a lock."""
        return self.lock_timeout_ms / 1000

    @property
    def idle_seconds(self) -> int:
        """How long a transaction may be idle before the database ends it."""
        return self.run_seconds + 30

    @property
    def answer_seconds(self) -> float:
        """How long one step may take in all: waits for a connection and a lock, and 20 s more."""
        return 2 * self.pool_seconds + 20


log = logging.getLogger(__name__)


Source: TypeAlias = Callable[[], URL]
"""Returns the URL as it is now: it may change while the process runs."""


def always(url: URL) -> Source:
    """Return the source of a URL that does not change."""
    return lambda: url


def source(spec: SqlGuard, secrets_dir: Path, url: str | None = None) -> Source:
    """Return the source of the URL: `url`, else $DELAYQ_DATABASE_URL, else the mounted Secret."""
    kind = type(spec).__name__
    field = f"spec.guard.{kind[0].lower()}{kind[1:]}.databaseSecretRef"
    given = url or os.environ.get(DATABASE_URL)
    if given:
        try:
            found = urls.parse(given)
        except InvalidDocument as error:
            raise InvalidDocument(f"{'--database' if url else '$' + DATABASE_URL}: {error}") from None
        if not url:
            fields = {"variable": DATABASE_URL, "instead_of": field}
            log.info("database_overridden", extra={"fields": {**fields, "where": urls.where(found)}})
        return always(found)
    reference = spec.database_secret_ref.reference
    file = reference.file(secrets_dir)
    return Mounted(file, _usable, field=field, reference=reference, variable=DATABASE_URL).read


def _usable(content: bytes) -> URL:
    try:
        url = urls.parse(content.decode())
    except UnicodeDecodeError:
        raise InvalidDocument(urls.EXPECTED) from None
    urls.aio(url) or urls.plain(url)
    return url


def limits(queue: DelayQueue, spec: SqlGuard) -> SqlLimits:
    """Read the limits.

    A lock wait ends before the handler's timeout, which would charge an attempt. By default, there is one connection
    for each slot, and one for the check.
    """
    seconds = queue.spec.delivery.handler_timeout_seconds
    return SqlLimits(
        max_connections=spec.max_connections or queue.spec.worker.concurrency + 1,
        lock_timeout_ms=min(spec.lock_timeout_milliseconds, seconds * 1000 // 2),
        retention_seconds=spec.retention_seconds,
        run_seconds=seconds,
    )
