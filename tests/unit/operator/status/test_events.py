"""Events: the same again counts up the first, nothing waits for them, and there are never too many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from delayq.kube.errors import KubernetesError, NotFound, Unavailable
from delayq_operator.status import events
from delayq_operator.status.events import (
    EXPIRY_SECONDS,
    MOST_REMEMBERED,
    MOST_WAITING,
    Recorder,
)

from tests.unit.operator.fakes import Clock
from tests.unit.operator.views import resource

ORDERS = resource()


class Posted:
    """An API server that takes events, or refuses the first few."""

    def __init__(self, *errors: KubernetesError) -> None:
        self.events: list[dict[str, Any]] = []
        self._errors = list(errors)

    async def apply(self, _kind: object, body: dict[str, Any], **_: object) -> dict[str, Any]:
        if self._errors:
            raise self._errors.pop(0)
        self.events.append(body)
        return body


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(events, "time", clock)
    return clock


def recorder(api: Posted | None = None) -> Recorder:
    return Recorder(api or Posted(), "operator-1")  # type: ignore[arg-type]


def waiting(recorder: Recorder) -> list[tuple[str, int]]:
    """Name and count of each event that is yet to be posted; they are taken."""
    found = [recorder._waiting.get_nowait() for _ in range(recorder._waiting.qsize())]
    assert all(len(event["metadata"]["name"]) <= 253 and len(event["message"]) <= 1024 for event in found)
    return [(event["metadata"]["name"], event["count"]) for event in found]


def test_the_same_again_counts_up_the_first_every_half_minute_and_anything_else_does_not(
    clock: Clock,
) -> None:
    """Another queue, another message; and after an hour, for the API server forgets events then, too."""
    one, long = recorder(), resource(name="o" * 253, uid="another")
    for _ in range(100):
        one.post(ORDERS, "BackendUnavailable", "no route")
        clock.now += 1
    names, counts = zip(*waiting(one), strict=True)
    assert (len(set(names)), counts) == (1, (1, 31, 61, 91))
    one.post(ORDERS, "BackendUnavailable", "x" * 10_000)
    one.post(long, "BackendUnavailable", "no route")
    clock.now += EXPIRY_SECONDS
    one.post(ORDERS, "BackendUnavailable", "no route")
    others, counts = zip(*waiting(one), strict=True)
    assert (len({*names, *others}), counts) == (4, (1, 1, 1))


@pytest.mark.usefixtures("clock")
def test_what_is_remembered_and_what_waits_is_bounded() -> None:
    one = recorder()
    for number in range(MOST_REMEMBERED + 10):
        one.post(ORDERS, "Repaired", f"restored {number}")
    assert len(one._series) == MOST_REMEMBERED
    assert len(waiting(one)) == MOST_WAITING


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("pauses", "errors", "posted"),
    [
        ((0.0, 0.0), [Unavailable("away")] * 2, ["0", "1", "2"]),
        ((), [Unavailable("away"), NotFound(404, "NotFound", "namespace")], ["2"]),
    ],
    ids=["waits while the API server is away", "is lost, and the next is not"],
)
async def test_an_event(
    monkeypatch: pytest.MonkeyPatch,
    pauses: tuple[float, ...],
    errors: list[KubernetesError],
    posted: list[str],
) -> None:
    monkeypatch.setattr(events, "RETRY_SECONDS", pauses)
    api = Posted(*errors)
    one = recorder(api)
    for number in range(3):
        one.post(ORDERS, "Repaired", str(number))
    task = asyncio.create_task(one.run())
    await asyncio.sleep(0.01)
    task.cancel()
    assert [event["message"] for event in api.events] == posted
