"""Both clients: numbers and names of the wrong kind are refused before anything is sent, and the message names them."""

from __future__ import annotations

from datetime import datetime
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest
from delayq import InvalidTask
from delayq.errors import NoSuchSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq import SyncClient

WRONG: tuple[Any, ...] = (-1, True, 1.5, nan, inf, "5", (1 << 53) + 1)
CALLS: dict[str, tuple[Callable[[Any, Any], object], tuple[Any, ...]]] = {
    "horizons_ms": (lambda client, value: client.counts(horizons_ms=[value]), (*WRONG, None)),
    "instants_ms": (lambda client, value: client.counts(instants_ms=[value]), (*WRONG, None)),
    "horizons_ms as a whole": (lambda client, value: client.counts(horizons_ms=value), (5, "5", None)),
    "horizons": (lambda client, value: client.counts([value]), (90_000, 1.5, "90", "-1s", None)),
    "horizons as a whole": (lambda client, value: client.counts(value), (5, "90s", None)),
    "instants": (
        lambda client, value: client.counts(instants=[value]),
        (5, "1s", None, datetime(2100, 1, 1)),  # noqa: DTZ001 -- on purpose
    ),
    "limit": (lambda client, value: client.list("scheduled", limit=value), (*WRONG, None)),
    "offset": (lambda client, value: client.list("scheduled", offset=value), (*WRONG, None)),
    "before_ms": (lambda client, value: client.dlq_purge(["a"], before_ms=value), WRONG),
    "rate_per_second": (
        lambda client, value: client.dlq_redrive(["a", "b"], rate_per_second=value),
        (-1, 0, True, nan, "5", 1e-300),
    ),
    "ids": (lambda client, value: client.dlq_purge(value), (5, None, "a", [5])),
    "since_ms": (lambda client, value: client.backfill_schedule("a", since_ms=value, before_ms=5), WRONG),
    "since": (lambda client, value: client.backfill_schedule("a", since=value, before_ms=5), (5, None)),
    "before_ms of a backfill": (
        lambda client, value: client.backfill_schedule("a", since_ms=5, before_ms=value),
        WRONG,
    ),
    "due_from_ms": (lambda client, value: client.count_many(due_from_ms=value), WRONG),
    "shift_ms": (
        lambda client, value: client.reschedule_many(tag="a", shift_ms=value),
        (True, 1.5, nan, "5"),
    ),
    "kind": (lambda client, value: client.count_many(kind=value), (5, b"mail", "", "no name")),
    "kind of dead letters": (
        lambda client, value: client.dlq_list(kind=value),
        (5, 0, ["x"], [], b"", "no name"),
    ),
    "schedule_many": (lambda client, value: client.schedule_many(value), (5, None)),
}


@pytest.mark.parametrize(
    ("name", "call", "value"),
    [(name, call, value) for name, (call, values) in CALLS.items() for value in values],
    ids=[f"{name}={value!r}" for name, (_, values) in CALLS.items() for value in values],
)
def test_an_argument_of_the_wrong_kind_is_refused_by_name(
    client: SyncClient, name: str, call: Callable[[Any, Any], object], value: object
) -> None:
    argument = name.partition(" ")[0]
    with pytest.raises((ValueError, TypeError, InvalidTask), match=f"^{argument}: expected .*, got "):
        call(client, value)


def test_numbers_at_the_limits_are_accepted(client: SyncClient) -> None:
    client.schedule(1, due_ms=0, task_id="a")
    largest = 1 << 53
    assert client.counts(horizons_ms=[0, largest], instants_ms=[0, largest]).due_within == {0: 0, largest: 0}
    assert [row.id for row in client.list("scheduled", limit=largest)] == ["a"]  # type: ignore[arg-type]
    assert client.list("scheduled", offset=1, limit=0) == []  # type: ignore[arg-type]
    assert client.dlq_purge(["a"], before_ms=0) == 0
    assert client.dlq_redrive(["a"], rate_per_second=inf) == (0, 0.0)
    with pytest.raises(NoSuchSchedule):
        client.backfill_schedule("a", since_ms=largest, before_ms=largest)
