"""One log event for each change by the API, and for each request that rights refuse. Payloads are never logged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.api.access.rights import Caller
    from delayq.contract.api import Verb

log = logging.getLogger(__name__)


def changed(caller: Caller, verb: Verb, *, what: Mapping[str, object], count: int, request: str) -> None:
    """Log that a request changed `count` tasks, or none because none matched.

    `what`: the operation and its filter as fields, such as `{"operation": "redrive", "kind": "email", "tag": "eu"}`.
    Absent ones (None) are left out. `request`: the ID of the request.
    """
    log.info(
        "api_changed", extra={"fields": _fields(caller, verb, what) | {"count": count, "request": request}}
    )


def refused(caller: Caller, verb: Verb, *, what: Mapping[str, object], request: str) -> None:
    """Log that the caller lacks a right."""
    log.warning("api_refused", extra={"fields": _fields(caller, verb, what) | {"request": request}})


def _fields(caller: Caller, verb: Verb, what: Mapping[str, object]) -> dict[str, Any]:
    given = {name: value for name, value in what.items() if value is not None}
    return {"caller": caller.name, "verb": verb, **given}
