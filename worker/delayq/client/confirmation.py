"""Whether the servers of a queue can confirm what they are told to, and what they have confirmed.

Generators, as in operations.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.client.routing import persistently
from delayq.errors import DelayQError, Unavailable
from delayq.protocol.write_durability import EARLY_WAITAOF, MIN_WAIT_MS, Behind, fsync_problem, worst

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.client.routing import Operation
    from delayq.protocol.commands import Commands
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import Durability


class Confirmation:
    """What asks the servers of one queue for confirmations."""

    def __init__(self, commands: Commands, asked: Durability) -> None:
        """`asked` is what a client, or its document, wants confirmed."""
        self.asked, self._commands = asked, commands
        self._able: set[int] = set()  # shards whose servers were asked

    def behind(self, *, hurry: bool = False) -> Behind:
        """What has to confirm a round trip; not waited for in a `hurry`, when what it says does not matter any more."""
        return self.asked.behind(MIN_WAIT_MS if hurry else None)

    def check(self, shards: Iterable[int]) -> Operation[None]:
        """Find out, before anything is stored there, whether the Redis of these can confirm, and speaks the truth."""
        asked, missing = self.asked, set(shards) - self._able
        if not missing:
            return
        held = tuple(map(self._commands.keys, sorted(missing)))
        replies = yield from self._told(asked.behind(MIN_WAIT_MS), held)  # a write: only a master takes one
        why = str(replies) if isinstance(replies, DelayQError) else ""
        if not why and asked.kind == "Fsynced":
            replies = yield from self._told(Behind((("CONFIG", "GET", "appendfsync"),), marked=False), held)
            settings: Any = [each[0] for each in replies] if isinstance(replies, list) else [None]
            why = next(filter(None, map(fsync_problem, settings)), "")
            why = why or (yield from self._answers_early(settings, held))
        if why:
            raise DelayQError(f"durability {asked.kind}: {why}; nothing was stored")
        self._able |= missing

    def _answers_early(self, settings: list[Any], held: tuple[Keys, ...]) -> Operation[str]:
        """Ask for two confirmations in a row: a disk that is synced once a second cannot give the second at once.

        The better of three, for each server: a sync may last as long as the time to the next, and a server may be slow
        to answer.
        """
        if all(setting[1] != b"everysec" for setting in settings):
            return ""
        early = [0] * len(settings)
        for tries in range(1, 4):
            replies = yield from self._told(self.asked.twice(), held)
            found = replies if isinstance(replies, list) else [replies]
            early = [so_far + self.asked.early(each) for so_far, each in zip(early, found, strict=False)]
            if all(tries - each >= 2 for each in early):  # noqa: PLR2004 -- of three
                return ""
        return EARLY_WAITAOF

    def again(self, shards: Iterable[int], *, hurry: bool = False) -> Operation[Any]:
        """Ask the servers that hold these shards once more; returns the worst of their replies, or the error."""
        held = tuple(map(self._commands.keys, sorted(set(shards))))
        try:
            found = yield from self._told(self.behind(hurry=hurry), held)
        except Unavailable as error:
            return error
        return worst(found) if isinstance(found, list) else found

    def _told(self, behind: Behind, held: tuple[Keys, ...]) -> Operation[list[Any] | DelayQError]:
        """Return what each server replies to this, or why one refuses; what will pass is tried again."""
        try:
            replies = yield from persistently([], behind, held)
        except Unavailable:
            raise
        except DelayQError as error:
            return error
        return replies
