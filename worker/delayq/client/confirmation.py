"""Confirmations of a queue's servers: whether they can confirm writes, and which ones they have confirmed.

Generators, as in operations.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.client.routing import persistently
from delayq.errors import DelayQError, Unavailable
from delayq.protocol.write_durability import EARLY_WAITAOF, MIN_WAIT_MS, ConfirmCommands, fsync_problem, worst

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.client.routing import Operation
    from delayq.protocol.commands import Commands
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import Durability


class Confirmation:
    """Requests confirmations from the servers of one queue."""

    def __init__(self, commands: Commands, asked: Durability) -> None:
        """`asked` is the durability of the client or its document."""
        self.asked, self._commands = asked, commands
        self._able: set[int] = set()  # shards whose servers can confirm

    def confirm_commands(self, *, hurry: bool = False) -> ConfirmCommands:
        """Return the confirmation of a round trip; with `hurry`, it does not wait, as its result is not needed."""
        return self.asked.confirm_commands(MIN_WAIT_MS if hurry else None)

    def check(self, shards: Iterable[int], *, so: str = "; nothing was stored") -> Operation[None]:
        """Check, before the first write, whether the servers of these shards can confirm reliably.

        `so` ends the error: what follows for the caller.
        """
        asked, missing = self.asked, set(shards) - self._able
        if not missing:
            return
        held = tuple(map(self._commands.keys, sorted(missing)))
        replies = yield from self._replies(
            asked.confirm_commands(MIN_WAIT_MS), held
        )  # a write: only a master takes one
        why = str(replies) if isinstance(replies, DelayQError) else ""
        if not why and asked.kind == "Fsynced":
            replies = yield from self._replies(
                ConfirmCommands((("CONFIG", "GET", "appendfsync"),), marked=False), held
            )
            settings: Any = [each[0] for each in replies] if isinstance(replies, list) else [None]
            why = next(filter(None, map(fsync_problem, settings)), "")
            why = why or (yield from self._answers_early(settings, held))
        if why:
            raise DelayQError(f"durability {asked.kind}: {why}{so}")
        self._able |= missing

    def _answers_early(self, settings: list[Any], held: tuple[Keys, ...]) -> Operation[str]:
        """Request two consecutive confirmations: with a sync per second, the second one cannot be immediate.

        The majority of three tries counts for each server, because a sync or a reply may be slow.
        """
        if all(setting[1] != b"everysec" for setting in settings):
            return ""
        early = [0] * len(settings)
        for tries in range(1, 4):
            replies = yield from self._replies(self.asked.twice(), held)
            found = replies if isinstance(replies, list) else [replies]
            early = [so_far + self.asked.early(each) for so_far, each in zip(early, found, strict=False)]
            if all(tries - each >= 2 for each in early):  # noqa: PLR2004 -- of three
                return ""
        return EARLY_WAITAOF

    def again(self, shards: Iterable[int], *, hurry: bool = False) -> Operation[Any]:
        """Request a confirmation from these shards' servers again; returns the worst of their replies, or the error."""
        held = tuple(map(self._commands.keys, sorted(set(shards))))
        try:
            found = yield from self._replies(self.confirm_commands(hurry=hurry), held)
        except Unavailable as error:
            return error
        return worst(found) if isinstance(found, list) else found

    def _replies(
        self, confirm: ConfirmCommands, held: tuple[Keys, ...]
    ) -> Operation[list[Any] | DelayQError]:
        """Return the replies of all servers, or the error of one; outages are retried."""
        try:
            replies = yield from persistently([], confirm, held)
        except Unavailable:
            raise
        except DelayQError as error:
            return error
        return replies
