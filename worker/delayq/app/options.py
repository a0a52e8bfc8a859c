"""How one task is scheduled: when, under which ID, and what happens if the ID exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from delayq.client.enqueue import IfExists
    from delayq.durations import Duration


class Options(NamedTuple):
    """The options of one task. A delay is "30m" or a timedelta; `due` is a time with its zone."""

    delay: Duration | None = None
    due: datetime | None = None
    id: str | None = None
    if_exists: IfExists = "reject"
    headers: Mapping[str, str] | None = None
    deadline: Duration | None = None  # after the due time
    debounce: Duration | None = None  # how far the due time may move, from the first call
    tags: Sequence[str] | None = None
