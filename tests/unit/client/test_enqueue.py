"""Storing while another call reads the shard map: no task goes to a shard that was only a guess."""

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
from delayq.protocol.commands import Commands
from delayq.protocol.results import ShardMapState
from delayq.protocol.shard_map import ShardMap
from delayq.protocol.write_durability import Durability

Begin: TypeAlias = Callable[[Operations], Generator[Any, Any, Any]]

REAL = ShardMap(5, 2, 2, 2, 8)
ID = "abcd"  # of eight shards in another than of two

ONE_AND_MANY: tuple[Begin, ...] = (
    lambda operations: operations.schedule(NewTask(1, 1, task_id=ID), "keep"),
    lambda operations: operations.schedule_many([NewTask(1, 1, task_id=ID)], "keep"),
)
each_way = pytest.mark.parametrize("begin", ONE_AND_MANY, ids=["one", "many"])


def guessing(*, apart: bool, durability: Durability | None = None) -> tuple[Commands, Operations]:
    """A client that takes the queue for one of eight shards, and has not asked."""
    commands = Commands("q", shards=8)
    assert REAL.home(ID) != commands.shard_of(ID)
    operations = Operations(commands, Limits(), durability)
    operations.homes.is_cluster = apart
    return commands, operations


def checked_and_stored(operation: Generator[Any, Any, Any], learn: Callable[[], object]) -> tuple[Any, Any]:
    """Learn the shard map at the first question; return which shards' servers were asked to confirm, and the call."""
    asked, checked = next(operation), []
    learn()
    while not isinstance(asked, Start | Each):
        if isinstance(asked, Trip):
            checked += [keys.shard for keys in asked.shards]
            asked = operation.send([[1]])
        else:
            asked = operation.send([ShardMapState(REAL, 0, 0, 0)] * len(asked))
    [call] = asked.calls
    operation.close()
    return checked, call


@each_way
@pytest.mark.parametrize("durability", [None, Durability("Replicated")])
@pytest.mark.parametrize("apart", [False, True])
def test_a_shard_map_learned_meanwhile_counts(
    begin: Begin,
    durability: Durability | None,
    apart: bool,  # noqa: FBT001
) -> None:
    commands, operations = guessing(apart=apart, durability=durability)
    checked, call = checked_and_stored(begin(operations), lambda: commands.apply_shard_map(REAL))
    assert call.keys.shard == REAL.home(ID)
    assert REAL.known in call.arguments
    assert checked == ([] if durability is None else [REAL.home(ID) if apart else 0])


@each_way
def test_what_is_learned_while_a_task_is_read_counts(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread."""
    commands, operations = guessing(apart=False)
    encode = envelope.encode

    def learned(*given: Any) -> Any:  # noqa: ANN401
        commands.apply_shard_map(REAL)
        return encode(*given)

    monkeypatch.setattr(envelope, "encode", learned)
    asked = next(begin(operations))
    assert isinstance(asked, Start | Each)
    [call] = asked.calls
    assert (call.keys.shard, REAL.known in call.arguments) == (REAL.home(ID), True)
