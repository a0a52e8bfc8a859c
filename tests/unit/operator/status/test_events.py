"""Events: the same again counts up the first, nothing waits for them, and there are never too many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from delayq_operator.base.errors import NotFound, OperatorError, Unavailable
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

    def __init__(self, *errors: OperatorError) -> None:
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


def waiting(recorder: Recorder) -> list[dict[str, Any]]:
    found = []
    while not recorder._waiting.empty():
        found.append(recorder._waiting.get_nowait())
    return found


def recorder(api: Posted | None = None) -> Recorder:
    return Recorder(api or Posted(), "operator-1")  # type: ignore[arg-type]


def test_the_same_again_counts_up_the_first_every_half_minute(clock: Clock) -> None:
    one = recorder()
    for _ in range(100):
        one.post(ORDERS, "BackendUnavailable", "no route")
        clock.now += 1
    posted = waiting(one)
    assert [event["count"] for event in posted] == [1, 31, 61, 91]
    assert len({event["metadata"]["name"] for event in posted}) == 1


def test_after_an_hour_or_of_another_queue_or_with_another_message_it_is_another_event(clock: Clock) -> None:
    """The API server forgets events after an hour, too."""
    one = recorder()
    one.post(ORDERS, "Repaired", "restored a")
    one.post(ORDERS, "Repaired", "restored b")
    one.post(resource(uid="another"), "Repaired", "restored a")
    clock.now += EXPIRY_SECONDS + 1
    one.post(ORDERS, "Repaired", "restored a")
    posted = waiting(one)
    assert len({event["metadata"]["name"] for event in posted}) == 4
    assert {event["count"] for event in posted} == {1}


@pytest.mark.usefixtures("clock")
def test_what_is_remembered_and_what_waits_is_bounded() -> None:
    one = recorder()
    for number in range(MOST_REMEMBERED + 10):
        one.post(ORDERS, "Repaired", f"restored {number}")
    assert len(one._series) == MOST_REMEMBERED
    assert len(waiting(one)) == MOST_WAITING


@pytest.mark.usefixtures("clock")
def test_long_names_and_messages_are_cut() -> None:
    one = recorder()
    one.post(resource(name="o" * 253), "InvalidSpec", "x" * 10_000)
    (event,) = waiting(one)
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"]) == 1024


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
    errors: list[OperatorError],
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
