"""Two shard groups on two servers, of which one hangs: the other one gets the slots, and late claims are released."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq import NewTask, SyncClient
from delayq.protocol.commands import Commands
from delayq.protocol.keys import shard_of

from tests.redis.recovering import until
from tests.redis.working import LONGEST_LOOK_MS, Handler, own_servers, queue, working

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RedisServer

SLOTS = 2
QUEUE = queue(SLOTS)
HINTED = queue(SLOTS, look_ms=LONGEST_LOOK_MS)
IDS = [[id_ for id_ in map(str, range(200)) if shard_of(id_, 2) == shard] for shard in range(2)]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[RedisServer]]:
    """Each for one of two shards."""
    with own_servers(tmp_path, 2) as found:
        yield found


def schedule(server: RedisServer, ids: list[str]) -> None:
    """Store due tasks on a server; all of them are of one shard."""
    with SyncClient(server.url, queue="orders", shards=2) as client:
        client.schedule_many([NewTask(None, delay_ms=0, task_id=id_) for id_ in ids])


def suspect(server: RedisServer, ids: list[str]) -> None:
    """Store tasks whose lease expired."""
    schedule(server, ids)
    keys = Commands("orders", shards=2).keys(1)
    with server.client() as redis:
        redis.delete(keys.delayed)
        redis.zadd(keys.suspect, dict.fromkeys(ids, 7))


@pytest.mark.parametrize("isolated", [False, True])
async def test_a_server_that_hangs_keeps_no_slot_from_the_other_and_no_suspects(
    servers: list[RedisServer], *, isolated: bool
) -> None:
    ids = IDS[1][:1] if isolated else IDS[1][:50]
    (suspect if isolated else schedule)(servers[1], ids)
    servers[0].pause()
    handler = Handler()
    handler.may_end.set()
    async with working([server.url for server in servers], handler, QUEUE) as slots:
        await until(lambda: slots.counters.settled["acked"] == len(ids))
        assert slots.exchanging  # and for a minute still
    assert sorted(handler.began) == sorted(ids)


async def test_tasks_of_a_late_claim_are_released_while_suspects_run(servers: list[RedisServer]) -> None:
    handler = Handler()
    async with working([server.url for server in servers], handler, HINTED) as slots:
        await until(lambda: not (slots.hinted or slots.exchanging))  # each has the time of its server
        schedule(servers[0], IDS[0][:1])
        servers[0].pause()
        slots.group_states[0].hint(0)
        await until(lambda: slots.group_states[0].unresponsive)
        suspect(servers[1], IDS[1][:1])
        slots.group_states[1].hint(1)
        await until(lambda: handler.began)
        servers[0].resume()
        await until(lambda: slots.counters.settled["released"] == 1)
        assert handler.began == IDS[1][:1]
        handler.may_end.set()
        await until(lambda: slots.counters.settled["acked"] == 2)


async def test_tasks_of_a_late_claim_are_released_when_others_have_the_slots(
    servers: list[RedisServer],
) -> None:
    """No attempt is charged; they run when there is room."""
    late, quick = IDS[0][:SLOTS], IDS[1][:SLOTS]
    handler = Handler()
    async with working([server.url for server in servers], handler, HINTED) as slots:
        await until(lambda: not (slots.hinted or slots.exchanging))  # each has the time of its server
        schedule(servers[0], late)
        schedule(servers[1], quick)
        servers[0].pause()
        for shard, group_state in enumerate(slots.group_states):
            group_state.hint(shard)
        await until(lambda: len(handler.began) == SLOTS)
        servers[0].resume()
        await until(lambda: slots.counters.settled["released"] == 1)  # its half of the slots
        assert handler.began == quick
        assert len(slots.running) == SLOTS
        handler.may_end.set()
        await until(lambda: slots.counters.settled["acked"] == 2 * SLOTS)
    assert sorted(handler.began[SLOTS:]) == sorted(late)
    with servers[0].client() as redis:
        stats = redis.hgetall(Commands("orders").keys(0).stats)
    assert (stats["claimed"], stats["released"], stats["acked"]) == (str(SLOTS + 1), "1", str(SLOTS))


async def test_a_server_that_answers_again_counts_as_responsive_though_no_slot_is_free(
    servers: list[RedisServer],
) -> None:
    handler = Handler()
    async with working([server.url for server in servers], handler, HINTED) as slots:
        await until(lambda: not (slots.hinted or slots.exchanging))
        schedule(servers[1], IDS[1][:SLOTS])
        doubted, busy = slots.group_states
        busy.hint(1)
        await until(lambda: len(handler.began) == SLOTS)
        doubted.unresponsive = True
        doubted.hint(0)
        await until(lambda: not doubted.unresponsive)
