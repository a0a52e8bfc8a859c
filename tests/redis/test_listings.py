"""Both clients: listings by tag, kind and due time, pages, and iterating over tasks while others change."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.client.operations import TRIPS
from delayq.protocol.commands import BATCH, Commands
from delayq.protocol.keys import shard_of
from delayq.protocol.results import State
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from delayq import SyncClient

    from tests.redis.conftest import Make


LATER = round((time.time() + 86_400) * 1000)


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


def pages(client: SyncClient, state: State, limit: int, **chosen: Any) -> list[list[str]]:  # noqa: ANN401 -- filters
    """All pages of a list: the IDs of each."""
    page = client.page(state, limit=limit, **chosen)
    found = [[row.id for row in page.rows]]
    while page.after:
        page = client.page(state, after=page.after, limit=limit, **chosen)
        found.append([row.id for row in page.rows])
    return found


def test_pages_go_on_where_the_one_before_ended(client: SyncClient) -> None:
    listed = [row.id for row in client.list(State.SCHEDULED)]
    assert pages(client, State.SCHEDULED, 40) == [listed[:40], listed[40:80], listed[80:]]
    assert pages(client, State.SCHEDULED, 90) == [listed]
    assert pages(client, State.RETRYING, 40) == [[]]


def test_pages_take_filters(client: SyncClient) -> None:
    listed = [row.id for row in client.list(State.SCHEDULED, kind="mail", tag="of:0")]
    found = pages(client, State.SCHEDULED, 4, kind="mail", tag="of:0")
    assert found == [listed[at : at + 4] for at in range(0, 15, 4)]
    soon, late = due(client, 11), due(client, 15)
    found = pages(client, State.SCHEDULED, 9, due_from=soon, due_before=late)
    assert found == [["mail:11", "call:12", "mail:13", "call:14"]]


def test_a_page_reads_no_further_than_it_needs(client: SyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, rows = list[int](), Commands.list

    def counted(commands: Commands, shard: int, *args: Any, **named: Any) -> Any:  # noqa: ANN401 -- of list()
        asked.append(shard)
        return rows(commands, shard, *args, **named)

    monkeypatch.setattr(Commands, "list", counted)
    page = client.page(State.SCHEDULED, limit=5)
    client.page(State.SCHEDULED, limit=5, after=page.after)
    assert sorted(asked) == sorted([*set(asked)] * 2)


def test_a_page_with_a_filter_that_few_tasks_fit_ends_after_some_round_trips(make: Make) -> None:
    """It has no task behind those that another shard has still to look at."""
    client, count = make(shards=2), TRIPS * BATCH
    first = (name for name in map(str, range(9**9)) if shard_of(name, 2) == 0)
    second = (name for name in map(str, range(9**9)) if shard_of(name, 2) == 1)
    client.schedule_many(
        NewTask(1, due_ms=LATER + n, task_id=name) for n, name in enumerate(islice(first, count))
    )
    for due, names in ((LATER + count, first), (LATER + count + 1, second)):
        client.schedule(1, due_ms=due, task_id=next(names), tags=["b"])
    listed = [row.id for row in client.list(State.SCHEDULED, tag="b")]
    assert [shard_of(name, 2) for name in listed] == [0, 1]
    assert pages(client, State.SCHEDULED, 10, tag="b") == [[], listed]


@pytest.mark.parametrize("gone", [False, True])
def test_pages_within_tasks_of_one_due_time_go_on_by_id(make: Make, *, gone: bool) -> None:
    """Also behind a task that was removed since. IDs are compared by their bytes, whatever the locale is."""
    client, names = make(shards=2), [f"{letter}{n}" for letter in "aBé~Z" for n in range(20)]
    due_ms = client.counts().now_ms + 3_600_000  # the clock of a Cluster is in 2030
    client.schedule_many(NewTask(1, due_ms=due_ms, task_id=name) for name in names)
    first = client.page(State.SCHEDULED, limit=30)
    if gone:
        for row in first.rows:
            client.cancel(row.id)
    rest = client.page(State.SCHEDULED, after=first.after, limit=100)
    assert [row.id for row in [*first.rows, *rest.rows]] == sorted(names, key=str.encode)


CHANGES = st.tuples(st.sampled_from(["remove", "add", "move"]), st.integers(0, 15), st.integers(0, 2))


@given(
    dues=st.lists(st.integers(0, 2), min_size=2, max_size=12),
    between=st.lists(st.lists(CHANGES, max_size=3), max_size=6),
    limit=st.integers(1, 3),
)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_task_that_stays_is_on_one_page_whatever_others_do(
    make: Make, dues: list[int], between: list[list[tuple[str, int, int]]], limit: int
) -> None:
    """Between two pages, tasks are removed, added, and moved to due times before and after the position."""
    client, changed = make(shards=3), set[str]()
    client.cancel_many(due_from_ms=0)  # what the example before has left
    client.schedule_many(NewTask(1, due_ms=LATER + due, task_id=f"t{n}") for n, due in enumerate(dues))
    page = client.page(State.SCHEDULED, limit=limit)
    seen, later = [row.id for row in page.rows], iter(between)
    while page.after:
        for verb, n, due_ms in next(later, []):
            changed.add(f"t{n}")
            if verb == "remove":
                client.cancel(f"t{n}")
            elif verb == "add":
                client.schedule(1, due_ms=LATER + due_ms, task_id=f"t{n}", if_exists="keep")
            else:
                client.reschedule(f"t{n}", due_ms=LATER + due_ms)
        page = client.page(State.SCHEDULED, after=page.after, limit=limit)
        seen += [row.id for row in page.rows]
    stayed = {f"t{n}" for n in range(len(dues))} - changed
    assert sorted(each for each in seen if each not in changed) == sorted(stayed)
