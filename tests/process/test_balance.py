"""Three scanners lead as many shards each, give or take one, whichever of them comes, dies, hangs or leaves."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.process.fleet import led_by, until, wait_said

if TYPE_CHECKING:
    from redis import Redis

    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process

PROMISED_SECONDS = 5.0
NOISE_SECONDS = 5.0  # for processes that others keep from a core; the times are printed


def even(scanners: list[Process], shards: int) -> bool:
    """Whether every shard has one leader, and nobody leads two more than another."""
    led = [led_by(each) for each in scanners]
    sizes = [len(each) for each in led]
    return (
        sorted(shard for each in led for shard in each) == list(range(shards))
        and max(sizes) - min(sizes) <= 1
    )


def balanced(scanners: list[Process], shards: int, what: str) -> None:
    took_s = until(lambda: even(scanners, shards), what, timeout_s=PROMISED_SECONDS + NOISE_SECONDS)
    print(f"{what}: {took_s:.2f} s")


@pytest.mark.parametrize("shards", [7, pytest.param(8, marks=pytest.mark.full)])
def test_shards_are_balanced_soon_after_every_change(new_fleet: NewFleet, shards: int) -> None:
    fleet = new_fleet({"shards": shards})
    first, second = fleet.start_all("scanner", "scanner")
    balanced([first, second], shards, "two share them")
    third = fleet.start("scanner", ready=False)
    wait_said(third, "started")
    balanced([first, second, third], shards, "a third one joins")
    second.kill()
    balanced([first, third], shards, "one is killed")
    second = fleet.start("scanner", ready=False)
    wait_said(second, "started")
    balanced([first, second, third], shards, "another comes")
    first.pause()
    balanced([second, third], shards, "one hangs")
    first.resume()
    balanced([first, second, third], shards, "it goes on")
    third.send(signal.SIGTERM)
    assert third.wait() == 0
    balanced([first, second], shards, "one leaves")


def test_shards_stay_where_they_are_while_redis_hangs_for_a_moment(new_fleet: NewFleet) -> None:
    fleet = new_fleet({"shards": 8})
    scanners = fleet.start_all("scanner", "scanner", "scanner")
    balanced(scanners, 8, "three share them")
    before = [led_by(each) for each in scanners]
    said = [len(each.lines) for each in scanners]
    with fleet.server.client() as redis:
        redis.execute_command("CLIENT", "PAUSE", 1500, "ALL")
        redis.ping()  # answered when it is over
        seen = {name: redis.zscore(fleet.keys.scanners, name) or 0 for name in names(redis, fleet)}
        until(
            lambda: all((redis.zscore(fleet.keys.scanners, name) or 0) > at for name, at in seen.items()),
            "all have been there since",
        )
    assert [led_by(each) for each in scanners] == before
    assert not any(
        "leadership_lost" in line for each, n in zip(scanners, said, strict=True) for line in each.lines[n:]
    )


def names(redis: Redis, fleet: Fleet) -> list[str]:
    return [str(name) for name in redis.zrange(fleet.keys.scanners, 0, -1)]
