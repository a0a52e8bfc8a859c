"""Which kinds the workers of a queue take, as one hash in Redis that they renew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from delayq.app.accepted import Described
from delayq.errors import UnsupportedFormat
from delayq.protocol.commands import KINDS_KEEP_MS, KINDS_REST_MS
from delayq.worker.kinds_publication import MOST_BYTES, MOST_TOTAL_BYTES, KindsPublication, published

from tests.redis.state import NOW

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection

    from tests.redis.state import Shard

OLD, NEW = '{"kinds":["old"]}', '{"kinds":["new"]}'


def publish(shard: Shard, release: str, body: str = "") -> bool:
    return shard.run(shard.commands.publish_kinds(release, body))


def read(shard: Shard, *known: str) -> dict[str, str]:
    return shard.run(shard.commands.published_kinds(known))


@pytest.mark.each_redis
def test_a_release_is_stored_once_and_renewed_and_goes_when_its_workers_are_gone(shard: Shard) -> None:
    """Two releases stand side by side. A reader gets the text of those that it does not know."""
    assert publish(shard, "a") is False, "its text is not there yet"
    assert (publish(shard, "a", OLD), publish(shard, "b", NEW)) == (True, True)
    assert read(shard) == {"a": OLD, "b": NEW}
    assert read(shard, "a") == {"a": "", "b": NEW}
    shard.clock(NOW + KINDS_KEEP_MS - 1)
    assert publish(shard, "b") is True
    assert read(shard, "a", "b") == {"a": "", "b": ""}
    shard.clock(NOW + KINDS_KEEP_MS)
    assert read(shard) == {"b": NEW}, "no worker of the older release has renewed it"
    assert publish(shard, "b") is True
    assert set(shard.redis.hkeys(shard.keys.kinds)) == {b"b", b"b:until"}
    assert KINDS_REST_MS - 60_000 < shard.redis.pttl(shard.keys.kinds) <= KINDS_REST_MS
    assert shard.redis.exists(shard.keys.tasks, shard.keys.stats) == 0


def test_after_an_outage_the_first_worker_gives_the_others_time_to_renew(shard: Shard) -> None:
    """Else the API would refuse the kinds of a live release until its workers have renewed it."""
    publish(shard, "a", OLD)
    publish(shard, "b", NEW)
    shard.clock(NOW + 2 * KINDS_KEEP_MS)
    assert read(shard) == {}
    assert publish(shard, "b") is True
    assert read(shard) == {"a": OLD, "b": NEW}
    shard.clock(NOW + 3 * KINDS_KEEP_MS - 1)
    publish(shard, "b")
    shard.clock(NOW + 3 * KINDS_KEEP_MS)
    publish(shard, "b")
    assert set(shard.redis.hkeys(shard.keys.kinds)) == {b"b", b"b:until"}


def test_after_a_step_back_of_the_clock_a_release_does_not_stay_longer(shard: Shard) -> None:
    publish(shard, "a", OLD)
    shard.clock(NOW - 86_400_000)
    publish(shard, "b", NEW)
    assert read(shard) == {"a": OLD, "b": NEW}
    shard.clock(NOW - 86_400_000 + KINDS_KEEP_MS)
    assert read(shard) == {}


def test_a_shard_of_another_format_is_left_alone(shard: Shard) -> None:
    shard.redis.hset(shard.keys.stats, "format", 99)
    with pytest.raises(UnsupportedFormat):
        publish(shard, "a", OLD)
    assert shard.redis.exists(shard.keys.kinds) == 0


def test_kinds_are_renewed_although_memory_is_full(shard: Shard) -> None:
    """Else the API would forget the kinds of live workers during an incident."""
    publish(shard, "a", OLD)
    publish(shard, "b", NEW)
    shard.clock(NOW + KINDS_KEEP_MS)
    with shard.full_memory():
        assert publish(shard, "a") is True
    assert read(shard) == {"a": OLD, "b": NEW}


def test_an_erased_queue_has_no_kinds(shard: Shard) -> None:
    publish(shard, "a", OLD)
    assert shard.run(shard.commands.erase(0)).keys == 1
    assert shard.redis.exists(shard.keys.kinds) == 0


async def test_workers_of_one_release_send_their_text_once(shard: Shard, connection: AsyncConnection) -> None:
    """The second worker, and each renewal, sends the digest alone. A lost key is written again."""
    text = published({("remind", 1): None}, {})  # type: ignore[dict-item] # how it is delivered does not matter here
    services = [KindsPublication(shard.commands, connection, text) for _ in range(2)]
    for each in services:
        assert 225 <= await each.step() <= 300
    assert [*read(shard).values()] == [text]
    assert json.loads(text) == {"kinds": [{"name": "remind", "version": 1}]}
    shard.redis.delete(shard.keys.kinds)
    await services[1].step()
    assert [*read(shard).values()] == [text]


def test_what_is_published_is_bounded() -> None:
    """Of a kind with a large schema the name stays, and of very many kinds, too."""
    large, small = {"title": "x" * MOST_BYTES}, {"type": ["object"]}
    one = published({("a", 1): None, ("b", None): None}, {("a", 1): Described(large, small)})  # type: ignore[dict-item]
    assert json.loads(one) == {"kinds": [{"name": "a", "version": 1, "accepts": small}, {"name": "b"}]}
    parts = Described({"title": "x" * 400}, small)
    keys = [(f"kind-{n}", 1) for n in range(200)]
    many = json.loads(published(dict.fromkeys(keys), dict.fromkeys(keys, parts)))  # type: ignore[arg-type]
    assert {*many["kinds"][0]} == {"name", "version", "accepts"}
    wide = Described(parts.schema, {"enum": ["x" * 400]})
    most = published(dict.fromkeys(keys), dict.fromkeys(keys, wide))  # type: ignore[arg-type]
    assert len(json.loads(most)["kinds"]) == 200
    assert len(most) < MOST_TOTAL_BYTES
