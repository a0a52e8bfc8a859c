"""The schedules of the files of a run: it tries until they are written, and says what was refused, once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from delayq.errors import ScheduleRefused, Unavailable
from delayq.local import supervisor
from delayq.local.app_schedules import AppSchedules

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


class Client:
    """Fails in these ways, then does what it is asked."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        self.errors, self.written = list(errors), list[str]()

    async def sync_schedules(self, schedules: Sequence[str], *, owner: str, source: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.written += [f"{owner} {source} {each}" for each in schedules]


async def test_schedules_that_were_refused_are_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "AGAIN_SECONDS", 0)
    monkeypatch.setattr(supervisor, "REFUSED_SECONDS", 0)
    said: list[str] = []
    run: Any = SimpleNamespace(say=said.append)
    served: Any = SimpleNamespace(document=SimpleNamespace(name="q.yaml"))
    found: Any = AppSchedules("file", ["s"])  # type: ignore[list-item]
    full = ScheduleRefused("full")
    client: Any = Client([full, Unavailable("redis", "gone"), full, ScheduleRefused("owned")])
    await supervisor.Run._apply_to(run, served, client, found, "/q.yaml")
    assert (said, client.written) == (["q.yaml: full", "q.yaml: owned"], ["file /q.yaml s"])
