"""From spec.guard to what a SQL guard is made of: its limits, and where its database is said."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, TypeVar

from delayq.contract.files import secret_path
from delayq.contract.guard import SqlGuard
from delayq.errors import InvalidDocument
from delayq.guards.sql import urls
from delayq.guards.sql.limits import Limits
from delayq.guards.sql.source import Fixed, Mounted

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.guards.sql.source import Source

log = logging.getLogger(__name__)

URL_VARIABLE: Final = "DELAYQ_DATABASE_URL"


_S = TypeVar("_S", bound=SqlGuard)


def read(queue: DelayQueue, kind: type[_S], secrets_dir: Path, url: str | None) -> tuple[_S, Source, Limits]:
    """Return what spec.guard says of one kind of guard, its database and its bounds; InvalidDocument for no URL."""
    spec = queue.spec.guard and queue.spec.guard.sql
    assert isinstance(spec, kind)  # noqa: S101 -- guards.build asks for what is there
    field = f"spec.guard.{kind.__name__[0].lower()}{kind.__name__[1:]}"
    return spec, source(spec, field, secrets_dir, url), limits(queue, spec)


def source(spec: SqlGuard, field: str, secrets_dir: Path, url: str | None = None) -> Source:
    """Return the URL's place: the URL given, else $DELAYQ_DATABASE_URL, else the mounted Secret."""
    told = url or os.environ.get(URL_VARIABLE)
    if told:
        try:
            found = Fixed(told)
        except InvalidDocument as error:
            raise InvalidDocument(f"{'--database' if url else '$' + URL_VARIABLE}: {error}") from None
        if not url:
            fields = {"variable": URL_VARIABLE, "instead_of": f"{field}.databaseSecretRef"}
            log.info("database_overridden", extra={"fields": {**fields, "where": urls.where(found.url())}})
        return found
    secret = spec.database_secret_ref
    return Mounted(secret_path(secrets_dir, secret.name, secret.key), field=f"{field}.databaseSecretRef")


def limits(queue: DelayQueue, spec: SqlGuard) -> Limits:
    """Read the bounds.

    A wait for somebody else's lock that outlasts the handler's time limit would be charged as one. And without a number
    every slot has a connection, and the check one more.
    """
    seconds = queue.spec.delivery.handler_timeout_seconds
    return Limits(
        max_connections=spec.max_connections or queue.spec.worker.concurrency + 1,
        lock_timeout_ms=min(spec.lock_timeout_milliseconds, seconds * 1000 // 2),
        retention_seconds=spec.retention_seconds,
        run_seconds=seconds,
    )
