"""Check that the handler takes the tasks of the queue's schedules, and that those of its App are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.cli.app_check import schedule_checker
from delayq.cli.doctor.findings import Finding, ok, warning
from delayq.client.taken_kinds import app_of
from delayq.contract import SpecError
from delayq.errors import DelayQError
from delayq.scaling.sentences import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delayq.cli.target import Target
    from delayq.contract import DelayQueue
    from delayq.schedules.stored import Schedule

CHECK: Final = "schedules"
PARKED: Final = "correct the schedule, or deploy a worker that takes its task: else its tasks wait or fail"
APPLY: Final = "once for each release, call app.apply_schedules(), or run `delayq cron apply QUEUE`"


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
            yield warning(CHECK, f"{each.name}: {error}", PARKED)
    yield from _of_app(target.document, {each.name: each for each in stored if not each.deleting})


def _of_app(document: DelayQueue, stored: dict[str, Schedule]) -> Iterator[Finding]:
    """Report schedules of @app.schedule that are not stored as the code has them."""
    python = document.spec.handler.python
    path = None if python is None else python.app
    app = app_of(path)
    if path is None or app is None:
        return
    owner, found = app.schedule_owner(path), list[Finding]()
    wanted = {each.metadata.name: each for each in app.schedule_documents(document.metadata.name)}
    for name, schedule in wanted.items():
        there = stored.get(name)
        if there is None:
            found.append(_wrong(name, path, "is not stored, so its task does not recur", APPLY))
        elif there.owner != owner:
            why = f"is not stored: {there.owner} owns a schedule of this name"
            found.append(_wrong(name, path, why, "give one of them another name"))
        elif there.definition != schedule:
            found.append(_wrong(name, path, "is stored as another version of the App has it", APPLY))
    gone: Sequence[str] = [
        name for name, each in stored.items() if each.owner == owner and name not in wanted
    ]
    found += [
        warning(CHECK, f"{name}: stored, and not in the code of {path} any more", APPLY) for name in gone
    ]
    if wanted and not found:
        found.append(
            ok(
                CHECK,
                f"{counted(len(wanted), 'schedule')} of {path} {'is' if len(wanted) == 1 else 'are'} stored",
            )
        )
    yield from found


def _wrong(name: str, path: str, why: str, hint: str) -> Finding:
    return warning(CHECK, f"{name}: defined in {path}, {why}", hint)
