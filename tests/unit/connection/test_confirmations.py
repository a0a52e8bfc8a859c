"""What went behind calls that took two steps: each step may have been another server's, and each has to confirm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from delayq.connection.aio import Single
from delayq.protocol.commands import Commands
from delayq.protocol.write_durability import Durability
from redis.exceptions import NoScriptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection.round_trip import Command
    from delayq.protocol.write_durability import ConfirmCommands

BEHIND = Durability("Replicated", 1, 100).confirm_commands()


class Replying:
    """Takes the place of a line whose server is another one at each step, as after a fail-over in between."""

    def __init__(self, *steps: list[Any]) -> None:
        self._steps = list(steps)
        self.connector, self.loading = SimpleNamespace(where="here"), set[str]()

    async def send(
        self, commands: Sequence[Command], behind: ConfirmCommands | None, stats: str
    ) -> list[Any]:
        replies = self._steps.pop(0)
        assert len(replies) == len(commands) + len(behind.commands(stats) if behind else ())
        return replies


async def confirmations(*steps: list[Any]) -> list[Any]:
    calls: list[Any] = [Commands("orders").counts(0), Commands("orders").cancel("a")]
    line: Any = Replying(*steps)
    return (await Single(line).execute(calls, BEHIND, ()))[1]


async def test_a_script_that_was_unknown_has_another_server_confirm_its_own_call_only() -> None:
    unknown = NoScriptError("No matching script")
    assert await confirmations([[], unknown, 1, 0], [b"missing", 1, 1]) == [[1, 0], [1, 1]]


async def test_where_no_script_was_known_nothing_was_done_that_the_first_step_could_confirm() -> None:
    unknown = NoScriptError("No matching script")
    assert await confirmations([unknown, unknown, 1, 0], [[], b"missing", 2, 1]) == [[2, 1]]
