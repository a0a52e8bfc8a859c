"""A worker dies at once, with tasks at a certain point of their handler; another one is there to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.fault import Fault

if TYPE_CHECKING:
    from tests.faults.stage import Stage


def kill(stage: Stage) -> None:
    stage.victim.kill()


BEFORE = Fault("kill-before", "worker killed before the effect", kill, "before")
DURING = Fault("kill-during", "worker killed in the middle of the transaction", kill, "during")
AFTER = Fault("kill-after", "worker killed after the commit, before the ack", kill, "after")
