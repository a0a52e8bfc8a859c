"""A primary that is cut off goes on serving who is cut off with it: what is confirmed there, and what is left of it."""

from __future__ import annotations

import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process.storm import storm
from tests.processes import Process
from tests.topologies.network import Switch
from tests.topologies.sentinels import REPLICAS, Sentinels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.fleet import NewFleet

CLIENT = str(Path(__file__).with_name("partitioned_client.py"))
# A primary that hears of no replica for two seconds takes no more writes: what it took until then is what is lost.
GUARDED = {"min-replicas-to-write": "1", "min-replicas-max-lag": "2"}


@pytest.fixture
def switch() -> Iterator[Switch]:
    made = Switch.start()
    yield made
    made.stop()


def confirmed(process: Process) -> set[str]:
    return set(re.findall(r"^(\S+) confirmed$", process.output, re.MULTILINE))


def test_of_two_primaries_only_the_one_with_replicas_confirms(
    new_fleet: NewFleet, flavour: str, tmp_path: Path, switch: Switch
) -> None:
    """A client that asks for a replica's confirmation gets the truth on both sides; another one after two seconds."""
    machines = [switch.machine(name) for name in "abc"]
    with ExitStack() as stack:
        servers = Sentinels.start(flavour, dir=tmp_path / "s", machines=machines, config=GUARDED)
        stack.callback(servers.stop)
        with storm(new_fleet, servers, replicas=REPLICAS) as load:
            stale = servers.primary()
            machine = next(each for each in machines if each.host == stale.host)
            argv = (*machine.enter, sys.executable, CLIENT, stale.url, load.fleet.queue)
            careless, careful = (Process.start(*argv, replicas) for replicas in "01")
            for each in (careless, careful):
                stack.callback(each.kill)
                each.wait_line(" confirmed$")
            [sentinel] = [each for each in servers.sentinels if each.host == stale.host]
            sentinel.cut_off = True
            with servers.promoting() as promotion, switch.cut(machine):
                cut = time.time()
                promotion.wait()
                promoted = time.time()
                print(f"cut off: promoted after {promoted - cut:.2f} s")
                load.resumed(promoted, "cut off", load.plain)
                for each in (careless, careful):
                    each.wait_line("Unavailable cannot|does not serve .NOREPLICAS")
            sentinel.cut_off = False
            healed = time.time()
            servers.wait_well()
            load.resumed(healed, "one again")
            for each in (careless, careful):
                each.kill()
        load.check([cut, healed])
    lost = confirmed(careless) - load.fleet.ended()
    print(f"lost on the wrong side: {len(lost)} of {len(confirmed(careless))} plain, 0 of the careful")
    assert confirmed(careful) - load.fleet.ended() == set()
