"""operations: what needs no Redis to be refused."""

from __future__ import annotations

import pytest
from delayq.client.operations import Operations
from delayq.contract import Limits
from delayq.protocol.commands import Commands
from delayq.protocol.results import State


def test_orphans_cannot_be_listed_for_they_are_in_no_index() -> None:
    page = Operations(Commands("q"), Limits()).page(State.ORPHAN, offset=0, limit=1)
    with pytest.raises(ValueError, match="no index"):
        next(page)
