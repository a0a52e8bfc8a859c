"""What suspends a queue: its spec, the command `delayq suspend`, whose state is in Redis, or both. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from delayq_operator.base.phrases import BY_COMMAND, timestamp

if TYPE_CHECKING:
    from delayq.contract import Spec

    from delayq_operator.scrape.backlog import SuspendCommand


class Suspension(NamedTuple):
    """What suspends a queue."""

    message: str
    """Empty if nothing does."""
    drains: bool
    """Whether the workers are to end."""


def suspension(spec: Spec, command: SuspendCommand | None) -> Suspension:
    """Return what suspends a queue. It drains if the spec or the command says so."""
    by_command = "" if command is None else f"{BY_COMMAND} since {timestamp(command.since)}"
    if command is not None and command.drains:
        by_command += ", with --drain"
    drains = spec.drains or (command is not None and command.drains)
    return Suspension(" and ".join(filter(None, (spec.suspension, by_command))), drains)
