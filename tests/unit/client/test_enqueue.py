"""Storing while somebody else learns the layout: no task goes to a shard that was only a guess."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import pytest
from delayq import NewTask
from delayq.client.enqueue import Start
from delayq.client.operations import Operations
from delayq.client.routing import Each, Trip
from delayq.contract import Limits
from delayq.protocol import envelope
from delayq.protocol.commands import Broker
from delayq.protocol.results import Told
from delayq.protocol.shard_map import Layout
from delayq.protocol.write_durability import Acknowledge

Begin: TypeAlias = Callable[[Operations], Generator[Any, Any, Any]]

REAL = Layout(5, 2, 2, 2, 8)
ID = "abcd"  # of eight shards in another than of two

ONE_AND_MANY: tuple[Begin, ...] = (
    lambda operations: operations.schedule(NewTask(1, 1, task_id=ID), "keep"),
    lambda operations: operations.schedule_many([NewTask(1, 1, task_id=ID)], "keep"),
)
each_way = pytest.mark.parametrize("begin", ONE_AND_MANY, ids=["one", "many"])


def guessing(*, apart: bool, acknowledge: Acknowledge | None = None) -> tuple[Broker, Operations]:
    """A client that takes the queue for one of eight shards, and has not asked."""
    broker = Broker("q", shards=8)
    assert REAL.home(ID) != broker.shard_of(ID)
    operations = Operations(broker, Limits(), acknowledge)
    operations.homes.apart = apart
    return broker, operations


def checked_and_stored(operation: Generator[Any, Any, Any], learn: Callable[[], object]) -> tuple[Any, Any]:
    """Learn the layout at the first question; return which shards' servers were asked to confirm, and the call."""
    asked, checked = next(operation), []
    learn()
    while not isinstance(asked, Start | Each):
        if isinstance(asked, Trip):
            checked += [keys.shard for keys in asked.shards]
            asked = operation.send([[1]])
        else:
            asked = operation.send([Told(REAL, 0, 0, 0)] * len(asked))
    [call] = asked.calls
    operation.close()
    return checked, call


@each_way
@pytest.mark.parametrize("acknowledge", [None, Acknowledge("Replicated")])
@pytest.mark.parametrize("apart", [False, True])
def test_what_somebody_learned_meanwhile_counts(
    begin: Begin,
    acknowledge: Acknowledge | None,
    apart: bool,  # noqa: FBT001
) -> None:
    broker, operations = guessing(apart=apart, acknowledge=acknowledge)
    checked, call = checked_and_stored(begin(operations), lambda: broker.learn(REAL))
    assert call.keys.shard == REAL.home(ID)
    assert REAL.known in call.arguments
    assert checked == ([] if acknowledge is None else [REAL.home(ID) if apart else 0])


@each_way
def test_what_is_learned_while_a_task_is_read_counts(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread."""
    broker, operations = guessing(apart=False)
    encode = envelope.encode

    def learned(*given: Any) -> Any:  # noqa: ANN401
        broker.learn(REAL)
        return encode(*given)

    monkeypatch.setattr(envelope, "encode", learned)
    asked = next(begin(operations))
    assert isinstance(asked, Start | Each)
    [call] = asked.calls
    assert (call.keys.shard, REAL.known in call.arguments) == (REAL.home(ID), True)
