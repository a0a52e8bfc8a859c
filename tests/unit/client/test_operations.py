"""operations: what needs no Redis to be refused."""

from __future__ import annotations

import pytest
from delayq.client.operations import Operations
from delayq.contract import Limits
from delayq.protocol.commands import Commands
from delayq.protocol.results import State


@pytest.mark.parametrize(
    ("state", "why"), [(State.ORPHAN, "no index"), (State.DONE, "done cannot be listed")]
)
def test_states_without_an_index_cannot_be_listed(state: State, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        next(Operations(Commands("q"), Limits()).page(state, limit=1))
