"""get and list where test_machine.py does not get: thousands of leases, and what cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.protocol.commands import LEASES, PAGE_BYTES
from delayq.protocol.results import Failures, Searching, TaskRow, TaskView
from delayq.protocol.results import State as In

from tests.redis.state import NOW, Shard, State, envelope, known

if TYPE_CHECKING:
    from delayq import SyncClient


def test_no_call_looks_at_all_of_thousands_of_leases(shard: Shard) -> None:
    """A search goes on where the last call ended, and is repeated if it found no lease."""
    shard.seed(State(processing={f"t{n}:{n}": NOW + n for n in range(3 * LEASES)}))
    shard.redis.hset(shard.keys.tasks, "lost", envelope())
    views = [found(shard, f"t{n}") for n in range(0, 3 * LEASES, 100)]
    assert [view.token for view, _ in views if view] == list(range(0, 3 * LEASES, 100))
    assert max(calls for _, calls in views) > 1
    view, calls = found(shard, "lost")
    assert view is not None
    assert (view.state, calls >= 6) == (In.ORPHAN, True)


def test_a_client_goes_on_with_the_search(client: SyncClient, shard: Shard) -> None:
    shard.seed(State(processing={f"t{n}:{n}": NOW + n for n in range(2 * LEASES)}))
    assert [known(client, f"t{n}").token for n in (0, 234, 999)] == [0, 234, 999]


def found(shard: Shard, task_id: str) -> tuple[TaskView | None, int]:
    """A task, and how many calls it took to find it."""
    answer: Any = shard.run(shard.commands.get(task_id))
    calls = 1
    while isinstance(answer, Searching):
        answer, calls = shard.run(answer.next), calls + 1
    return answer, calls


def test_an_envelope_that_cannot_be_read_is_shown_as_it_is(shard: Shard) -> None:
    """A dead letter of a newer delayq does not keep others from being exported."""
    raw = b"\xf1future" + bytes(6)
    shard.seed(State(dlq={"a": NOW}, tasks={"a": raw}, dlq_info={"a": "1 0 buried x"}))
    view = shard.view("a")
    assert (view.state, view.body, view.content_type) == (In.DEAD, raw, "application/octet-stream")


def test_an_entry_without_an_envelope_is_listed_with_zero_bytes(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW}, tasks={}))
    page = shard.run(shard.commands.list(0, In.SCHEDULED, limit=10))
    assert [*page.rows.values()] == [TaskRow("a", In.SCHEDULED, NOW, 0, Failures())]


def test_a_page_ends_after_a_mebibyte_of_envelopes_and_a_listing_continues(
    shard: Shard, client: SyncClient
) -> None:
    """It reads whole envelopes for their kinds; a page of the largest would hold Redis for long."""
    size = PAGE_BYTES // 3
    envelope = b"\x11" + b" " * (size - 7) + NOW.to_bytes(6, "big")
    shard.seed(
        State(delayed={f"t{n}": NOW + n for n in range(8)}, tasks={f"t{n}": envelope for n in range(8)})
    )
    counts = [
        len(shard.run(shard.commands.list(0, In.SCHEDULED, limit=9, kinds=kinds)).rows)
        for kinds in (True, False)
    ]
    assert counts == [4, 8]
    assert [row.id for row in client.list(In.SCHEDULED)] == [f"t{n}" for n in range(8)]
