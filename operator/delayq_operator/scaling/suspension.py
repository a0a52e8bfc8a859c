"""What suspends a queue: its spec, the command `delayq suspend`, whose state is in Redis, or both. Pure."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delayq_operator.base.phrases import BY_COMMAND, timestamp
from delayq_operator.scrape.backlog import SuspendCommand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delayq.contract import Spec

_REPORTED: Final = re.compile(rf"{BY_COMMAND} since (?P<since>\S+Z)(?P<drain>, with --drain)?")


class Suspension(NamedTuple):
    """What suspends a queue."""

    message: str
    """Empty if nothing does."""
    drains: bool
    """Whether the workers must end."""


def suspension(spec: Spec, command: SuspendCommand | None) -> Suspension:
    """Return what suspends a queue. It drains if the spec or the command says so."""
    by_command = "" if command is None else f"{BY_COMMAND} since {timestamp(command.since)}"
    if command is not None and command.drains:
        by_command += ", with --drain"
    drains = spec.drains or (command is not None and command.drains)
    return Suspension(" and ".join(filter(None, (spec.suspension, by_command))), drains)


def restored(conditions: Iterable[Mapping[str, Any]]) -> SuspendCommand | None:
    """Return the command that the conditions of a queue report, which an earlier operator has written."""
    for each in conditions:
        found = _REPORTED.search(each["message"]) if each["type"] == "Suspended" else None
        if found:
            with suppress(ValueError):  # another client has written it
                since = datetime.fromisoformat(found["since"]).timestamp()
                return SuspendCommand(since, found["drain"] is not None)
    return None
