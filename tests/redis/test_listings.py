"""Both clients: listings by tag, kind and due time, and iterating over tasks while others change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.protocol.results import State

if TYPE_CHECKING:
    from delayq import SyncClient

    from tests.redis.conftest import Make


@pytest.fixture(params=[1, 3])
def client(request: pytest.FixtureRequest, make: Make) -> SyncClient:
    """A client of a queue with 90 tasks of two kinds and three tags, due after 1, 2, … minutes."""
    client = make(shards=request.param)
    client.schedule_many(
        NewTask(n, delay=f"{n}m", task_id=f"{n}", kind="mail" if n % 2 else "call", tags=[f"of:{n % 3}"])
        for n in range(1, 91)
    )
    return client


def ids(found: Any) -> list[int]:  # noqa: ANN401 -- rows or views
    return [int(each.id.partition(":")[2]) for each in found]


def due(client: SyncClient, task: int) -> datetime:
    view = client.get(f"{task}", kind="mail")
    assert view is not None
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=view.at_ms)


def test_a_listing_takes_filters(client: SyncClient) -> None:
    soon = due(client, 11)
    assert ids(client.list(State.SCHEDULED, kind="mail", limit=3)) == [1, 3, 5]
    assert ids(client.list(State.SCHEDULED, kind="mail", tag="of:0", offset=1, limit=2)) == [9, 15]
    assert ids(client.list(State.SCHEDULED, due_from=soon, limit=2)) == [11, 12]
    assert ids(client.list(State.SCHEDULED, due_before=soon, kind="call")) == [2, 4, 6, 8, 10]
    assert client.list(State.RETRYING, kind="mail") == []
    assert client.list(State.DEAD, kind="mail") == []
    with pytest.raises(ValueError, match="tasks in flight cannot be selected"):
        client.list(State.IN_FLIGHT, kind="mail")


def test_all_waiting_tasks_are_iterated_by_due_time_with_their_payloads(client: SyncClient) -> None:
    assert ids(client.tasks()) == list(range(1, 91))
    assert [view.body for view in client.tasks(tag="of:1", kind="call")] == [
        str(n).encode() for n in range(1, 91) if n % 3 == 1 and n % 2 == 0
    ]
    assert list(client.tasks(kind="other")) == []


def test_tasks_that_end_meanwhile_are_left_out_of_an_iteration(client: SyncClient) -> None:
    found = iter(client.tasks(kind="mail"))
    first = next(found)
    client.cancel_many(kind="mail", due_from=due(client, 45))
    assert ids([first, *found]) == list(range(1, 45, 2))
