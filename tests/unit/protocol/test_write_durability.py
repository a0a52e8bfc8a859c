"""Finding out whether a server confirms before its disk has it, from the answers alone: none here has that patience."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import Client, DelayQError, Durability, NewTask, SyncClient
from delayq.client.operations import Operations
from delayq.client.routing import Trip
from delayq.contract import Limits
from delayq.protocol.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Sequence

HASTY = Durability("Fsynced", timeout_ms=100)
YES, NO = [1, 0], [0, 0]


def asked_of(pairs: Sequence[tuple[list[int], list[int]]]) -> list[Any]:
    """What a first call waits for until it stores something, where pairs of confirmations end like these."""
    answers = iter([[1, YES], [[b"appendfsync", b"everysec"]], *([1, one, 1, two] for one, two in pairs)])
    operation = Operations(Commands("orders"), Limits(), HASTY).schedule(NewTask(1, 1), "reject")
    asked = []
    try:
        trip = next(operation)
        while isinstance(trip, Trip):
            asked.append(trip.confirm)
            trip = operation.send([next(answers)])
    except StopIteration:
        pass
    return asked


@pytest.mark.parametrize(
    "pairs",
    [
        [(YES, NO), (YES, NO)],
        [(YES, YES), (YES, NO), (YES, NO)],  # once, a sync came right after
        [(NO, YES), (NO, YES)],  # a slow disk: the second confirms what the first waited for
    ],
)
def test_a_server_that_takes_until_its_next_sync_is_believed(
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    assert len(asked_of(pairs)) == 2 + len(pairs)


def test_a_server_that_confirms_twice_at_once_is_not() -> None:
    with pytest.raises(DelayQError, match="answers WAITAOF before"):
        asked_of([(YES, YES), (YES, NO), (YES, YES)])


def test_the_patience_of_the_caller_decides_nothing_about_the_server() -> None:
    *_, twice = asked_of([(YES, NO), (YES, NO)])
    assert [question[-1] for question in twice.requests] == [3000, 400]
    assert HASTY.longest_ms > 3000 + 400 + HASTY.timeout_ms


@pytest.mark.parametrize("client", [Client, SyncClient])
@pytest.mark.parametrize(
    ("given", "error", "got"), [(True, TypeError, "got bool"), ("Replicate", ValueError, "got 'Replicate'")]
)
def test_anything_else_is_refused_by_what_is_expected(
    client: type[Client | SyncClient], given: object, error: type[Exception], got: str
) -> None:
    with pytest.raises(error, match=f'^durability: expected .*"Replicated".*{got}$'):
        client(queue="orders", durability=given)  # type: ignore[arg-type]  # which is the point
