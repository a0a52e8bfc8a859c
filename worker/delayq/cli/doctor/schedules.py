"""Check that the handler takes the tasks of the queue's schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.cli.app_check import schedule_checker
from delayq.cli.doctor.findings import Finding, warning
from delayq.contract import SpecError
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.cli.target import Target

PARKED: Final = "correct the schedule, or deploy a worker that takes its task: else its tasks wait or fail"


def schedules(target: Target) -> Iterator[Finding]:
    """Report each schedule whose task no handler takes. The handler was checked, so its App is imported."""
    if target.document is None:
        return
    check = schedule_checker(target.document, None)
    with target.client() as client:
        try:
            stored = client.schedules()
        except DelayQError:  # the checks of Redis report it
            return
    for each in stored:
        try:
            if each.definition is not None:
                check(each.definition)
        except SpecError as error:
            yield warning("schedules", f"{each.name}: {error}", PARKED)
