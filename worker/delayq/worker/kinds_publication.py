"""Publishes which kinds the worker takes, and what their arguments may be, for the HTTP API, which has no App.

Workers of one release publish the same text, so Redis has it once, and they only renew it. Not here: who reads it.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import TYPE_CHECKING, Any

from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.app.accepted import Described
    from delayq.connection import AsyncConnection
    from delayq.handlers.base import Kinds
    from delayq.protocol.commands import Commands

RENEW_SECONDS = 300.0  # a third of KINDS_KEEP_MS
MOST_BYTES = 8 << 10
"""Of one schema. A larger one is left out: the arguments are not checked, or not described."""
MOST_TOTAL_BYTES = 64 << 10
"""Of all kinds. If they are larger, the descriptions are left out, and then what the arguments may be."""


class KindsPublication:
    """Publishes the kinds of an App, and renews them."""

    name, blocks = "kinds_publication", True

    def __init__(self, commands: Commands, connection: AsyncConnection, text: str) -> None:
        """`text` is what `published` returns."""
        self._commands, self._connection, self._text = commands, connection, text
        self._release = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.alarm = Alarm()

    async def step(self) -> float:
        """Renew; if Redis does not have the text, send it."""
        publish = self._commands.publish_kinds
        if not await self._connection.one(publish(self._release)):
            await self._connection.one(publish(self._release, self._text))
        return RENEW_SECONDS * random.uniform(0.75, 1.0)  # noqa: S311 -- spreads the workers' renewals


def published(kinds: Kinds, descriptions: Mapping[tuple[str, int], Described]) -> str:
    """Return the kinds of a handler as JSON. Those without a version are taken in every version."""
    items, total = list[dict[str, Any]](), 0
    for name, version in sorted(kinds, key=lambda each: (each[0], each[1] or 0)):
        known = descriptions.get((name, version)) if version else None
        parts = known._asdict() if known is not None else {}
        fitting = {
            part: node for part, node in parts.items() if node is not None and _size(node) <= MOST_BYTES
        }
        items.append({"name": name, **({"version": version} if version else {}), **fitting})
        total += _size(items[-1])
    for part in ("schema", "accepts"):
        if total > MOST_TOTAL_BYTES:
            total -= sum(_size(each.pop(part, None)) for each in items)
    return _text({"kinds": items})


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _size(value: object) -> int:
    return len(_text(value))
