"""What `kubectl dq resume` reads in the status that the operator writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq_operator.kubectl.suspending import by_command
from delayq_operator.scrape.backlog import SuspendCommand
from delayq_operator.status.status import status

from tests.unit.operator.queues import queue
from tests.unit.operator.views import NOW, view

if TYPE_CHECKING:
    from delayq_operator.status.view import View


@pytest.mark.parametrize(
    ("seen", "still"),
    [
        (view(), False),
        (view(queue=queue(suspend=True)), False),
        (view(command=SuspendCommand(NOW)), True),
        (view(queue=queue(suspend=True), command=SuspendCommand(NOW, drains=True)), True),
    ],
)
def test_it_finds_a_command_that_still_suspends_the_queue(seen: View, *, still: bool) -> None:
    """A DelayQueue that the operator has not seen yet has no status."""
    assert by_command({"status": status(seen, {}, NOW)}) is still
    assert not by_command({})
