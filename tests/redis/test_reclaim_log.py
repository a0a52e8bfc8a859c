"""A crash of a worker with many tasks is one line of the log, with a count and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.recovery.reclaim import reclaim

from tests.redis.state import NOW, State, envelope

if TYPE_CHECKING:
    import pytest
    from delayq.connection import AsyncConnection

    from tests.redis.state import Shard


async def test_many_expired_leases_are_one_line_with_a_count_and_examples(
    shard: Shard, connection: AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [f"task-{n:02}" for n in range(50)]
    leases = {f"{each}:7": NOW - 1 for each in [*ids, "gone"]}
    shard.seed(State(processing=leases, tasks={each: envelope() for each in ids}))
    taken = await reclaim(shard.commands, connection, 0, max_crashes=3)
    assert len(taken) == len(leases)
    [line] = [record for record in caplog.records if record.message == "reclaimed"]
    fields: dict[str, Any] = line.fields  # type: ignore[attr-defined]
    assert (fields["leases"], fields["reclaimed"], fields["orphans"]) == (51, 50, 1)
    assert len(fields["examples"]) == 3
    assert set(fields["examples"]) <= set(leases)
