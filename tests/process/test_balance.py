"""Three scanners lead as many shards each, give or take one, whichever of them comes, dies, hangs or leaves."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.process.fleet import led_by, until, wait_said

if TYPE_CHECKING:
    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process

PROMISED_SECONDS = 5.0


def balanced(fleet: Fleet, scanners: list[Process], what: str) -> None:
    """Wait until every shard has one leader, and none leads two more than another: as soon as is promised."""
    shards, waited_ms = fleet.spec["shards"], fleet.waited_for_core_ms()

    def even() -> bool:
        led = [led_by(each) for each in scanners]
        sizes = [len(each) for each in led]
        return sorted(shard for each in led for shard in each) == list(range(shards)) and (
            max(sizes) - min(sizes) <= 1
        )

    took_s = until(even, what)
    waited_s = (fleet.waited_for_core_ms() - waited_ms) / 1000
    print(f"{what}: {took_s:.2f} s, {waited_s:.2f} s of which some process waited for a core")
    assert took_s <= PROMISED_SECONDS + max(waited_s, 0)


def stay_while_redis_hangs(fleet: Fleet, scanners: list[Process]) -> None:
    """For a moment: all report again, and no shard has changed its leader."""
    before = [led_by(each) for each in scanners]
    printed = [len(each.lines) for each in scanners]
    with fleet.server.client() as redis:
        redis.execute_command("CLIENT", "PAUSE", 1500, "ALL")
        redis.ping()  # answered when it is over

        def seen() -> dict[str, float]:
            return dict(redis.zrange(fleet.keys.scanners, 0, -1, withscores=True))

        at = seen()
        until(lambda: all(seen().get(name, 0) > at[name] for name in at), "all have reported since")
    assert [led_by(each) for each in scanners] == before
    lines = [line for each, n in zip(scanners, printed, strict=True) for line in each.lines[n:]]
    assert not any("leadership_lost" in line for line in lines)


def test_shards_are_balanced_soon_after_every_change(new_fleet: NewFleet) -> None:
    fleet = new_fleet({"shards": 7})
    first, second = fleet.start_all("scanner", "scanner")
    balanced(fleet, [first, second], "two share them")
    third = fleet.start("scanner", ready=False)
    wait_said(third, "started")
    balanced(fleet, [first, second, third], "a third one joins")
    stay_while_redis_hangs(fleet, [first, second, third])
    second.kill()
    balanced(fleet, [first, third], "one is killed")
    first.pause()
    balanced(fleet, [third], "one hangs")
    first.resume()
    balanced(fleet, [first, third], "it goes on")
    third.send(signal.SIGTERM)
    assert third.wait() == 0
    with fleet.server.client() as redis:
        [member] = redis.zrange(fleet.keys.scanners, 0, -1)
        leaders = {str(redis.get(key)).split()[0] for key in redis.scan_iter("*:leader")}
    assert leaders <= {str(member)}, "who leaves gives up its shards first"
    balanced(fleet, [first], "one leaves")
