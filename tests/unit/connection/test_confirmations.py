"""What went behind calls that took two steps: each step may have been another server's, and each has to confirm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.connection import Address
from delayq.connection.deadline import Deadline
from delayq.connection.part import Part
from delayq.connection.place import Place
from delayq.connection.single import Single
from delayq.errors import Unavailable
from delayq.protocol.commands import Commands
from delayq.protocol.write_durability import Durability
from redis.exceptions import NoScriptError, ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection.round_trip import Command
    from delayq.protocol.write_durability import Behind

BEHIND = Durability("Replicated", 1, 100).behind()


class Replying:
    """Takes the place of a line whose server is another one at each step, as after a fail-over in between."""

    def __init__(self, *steps: list[Any]) -> None:
        self._steps = list(steps)
        self.connector, self.brought = SimpleNamespace(where="here"), set[str]()

    async def send(self, commands: Sequence[Command], behind: Behind | None, stats: str) -> list[Any]:
        replies = self._steps.pop(0)
        assert len(replies) == len(commands) + len(behind.commands(stats) if behind else ())
        return replies


class Left:
    """Takes the place of a line that is dropped when its server turns out to be no master any more."""

    def __init__(self, *replies: Any) -> None:  # noqa: ANN401  as redis-py hands them over
        self.connected, self._replies, self.written = True, list(replies), 0

    def write(self, commands: Sequence[Command], deadline: Deadline) -> None:
        assert not deadline.over
        self.written += len(commands)

    def read(self, count: int, deadline: Deadline) -> list[Any]:
        assert not deadline.over
        return [self._replies.pop(0) for _ in range(count)]

    def drop(self) -> None:
        self.connected = False


def test_a_second_step_never_goes_to_a_server_that_is_no_master_any_more() -> None:
    """It would connect again by itself, and ask nobody what it leads to."""
    servers: Any = SimpleNamespace(address=Address.from_url("redis://here"), deposed=lambda _: None)
    calls: list[Any] = [Commands("orders").counts(0), Commands("orders").cancel("a")]
    line: Any = Left(NoScriptError("No matching script"), ReadOnlyError("You can't write"))
    line._replies[1].status_code = "READONLY"
    part = Part(servers, Place("here", 1), calls[0].keys, Deadline(60), calls, (0, 1))
    part.send(line)
    with pytest.raises(Unavailable, match="not yet, the master"):
        part.answers()
    assert line.written == len(calls)


async def confirmations(*steps: list[Any]) -> list[Any]:
    calls: list[Any] = [Commands("orders").counts(0), Commands("orders").cancel("a")]
    line: Any = Replying(*steps)
    return (await Single(line).driven(calls, BEHIND, ()))[1]


async def test_a_script_that_was_unknown_has_another_server_confirm_its_own_call_only() -> None:
    unknown = NoScriptError("No matching script")
    assert await confirmations([[], unknown, 1, 0], [b"missing", 1, 1]) == [[1, 0], [1, 1]]


async def test_where_no_script_was_known_nothing_was_done_that_the_first_step_could_confirm() -> None:
    unknown = NoScriptError("No matching script")
    assert await confirmations([unknown, unknown, 1, 0], [[], b"missing", 2, 1]) == [[2, 1]]
