"""The occurrences of schedules that are stored later, for commands that look ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.cli.formats import iso, tasks
from delayq.protocol.results import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.client.blocking import SyncClient
    from delayq.schedules.unstored import Unstored


def unstored(
    client: SyncClient, now_ms: int, until_ms: int, chosen: Selection | None = None
) -> Unstored | None:
    """Return those up to an instant, of all schedules of the queue; None if there are no schedules."""
    records = [each.record for each in client.schedules()]
    if not records:
        return None
    from delayq.schedules.unstored import unstored as computed  # noqa: PLC0415 -- a queue without schedules

    return computed(records, now_ms, until_ms, chosen or Selection())


def view(found: Unstored | None) -> dict[str, Any]:
    """Return the JSON fields."""
    if found is None:
        return {"occurrences": 0, "counted_until": {}}
    until = {name: iso(at_ms) for name, at_ms in found.counted_until_ms.items()}
    return {"occurrences": len(found.due_ms), "counted_until": until}


def text(found: Unstored | None) -> str:
    """Return how many there are, for a sentence; empty without any."""
    if found is None or not found.due_ms:
        return ""
    return (
        f"{tasks(len(found.due_ms), 'occurrence')} of schedules, which {_are(len(found.due_ms))} stored later"
    )


def notes(found: Unstored | None) -> Iterator[str]:
    """Yield what is not counted."""
    cut = found.counted_until_ms if found else {}
    if cut:
        at_ms, name = min((at_ms, name) for name, at_ms in cut.items())
        whose = f"schedule {name}" if len(cut) == 1 else f"{tasks(len(cut), 'schedule')} such as {name}"
        yield f"note: too many occurrences of the {whose}: from {iso(at_ms)} on, they are not counted"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
