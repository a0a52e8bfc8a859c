"""A primary that Sentinels watch is killed or frozen under load: all go on with the next one by themselves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.process.storm import storm
from tests.topologies.sentinels import REPLICAS, Sentinels

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet


@pytest.mark.parametrize("how", ["kill", pytest.param("pause", marks=pytest.mark.full)])
def test_a_primary_that_goes_is_followed_by_the_next(
    new_fleet: NewFleet, sentinels: Sentinels, how: str
) -> None:
    """All replicas confirm: whichever is promoted has the task."""
    with storm(new_fleet, sentinels, replicas=REPLICAS) as load:
        old = sentinels.primary()
        # Two replicas remain, one of which is promoted: the safe producer has to be content with the other.
        with sentinels.promoting() as promotion:
            failed = time.time()
            getattr(old, how)()
            promotion.wait()
        promoted = time.time()
        print(f"{how}: promoted after {promoted - failed:.2f} s")
        load.resumed(promoted, how, load.plain)
        old.restart() if how == "kill" else old.resume()
        back = time.time()
        load.resumed(back, "with all replicas")
    load.check([failed, back])
