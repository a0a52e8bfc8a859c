"""Durability of `schedule`: which commands confirm a write on replicas or on disk, and how to read replies. No I/O.

WAIT and WAITAOF confirm the last write of their own connection; newer servers confirm a connection without a write at
once. A task that a repeated call finds stored would be "confirmed" without a replica. So a small write precedes each,
later than the writes to confirm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from delayq.protocol.keys import FORMAT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.contract.durability import DurabilitySpec

Kind = Literal["Replicated", "Fsynced"]
Commands = tuple[tuple[str | int, ...], ...]

MARK: Final = """
local found = redis.call('HGET', KEYS[1], 'format')
if found ~= ARGV[1] and redis.call('EXISTS', KEYS[1]) == 1 then return end
redis.call('HINCRBY', KEYS[1], 'confirmations', 1)
if not found then redis.call('HSET', KEYS[1], 'format', ARGV[1]) end
"""
"""The small write: it counts the confirmations requested. As check_format() in prelude/basics.lua, without an error."""
MIN_WAIT_MS: Final = 1
"""Timeout of a confirmation whose reply is immediate or no longer needed."""
FIRST_MS: Final = 3000
"""Timeout of the first of two confirmations, independent of the caller's: more than two syncs of everysec."""
TWICE_MS: Final = 400
"""Timeout of the second of two confirmations: four rounds of an idle server, less than half of everysec."""


@dataclass(frozen=True, slots=True)
class ConfirmCommands:
    """Commands that follow scripts on their connection, each after a small write if `marked`.

    In a Cluster every server confirms its own writes: calls of one round trip to one server share a confirmation.
    """

    requests: Commands
    marked: bool = True

    def commands(self, stats: str) -> Commands:
        """Return the commands to send; `stats` is a key on the same server, for the small write."""
        if not self.marked:
            return self.requests
        mark: tuple[str | int, ...] = ("EVAL", MARK, 1, stats, FORMAT)
        return tuple(command for request in self.requests for command in (mark, request))


@dataclass(frozen=True, slots=True)
class Durability:
    """Replicated: `replicas` replicas have the task. Fsynced: Redis' append-only file with the task is on disk."""

    kind: Kind
    replicas: int = 1
    timeout_ms: int = 1000

    def __post_init__(self) -> None:
        """ValueError for an unknown kind, or a number below 1."""
        if self.kind not in ("Replicated", "Fsynced"):
            raise ValueError(f'durability: expected "Replicated" or "Fsynced", got {self.kind!r:.60}')
        for name, value in (("replicas", self.replicas), ("timeout_ms", self.timeout_ms)):
            if type(value) is not int or value < 1:
                raise ValueError(f"durability: {name}: expected a whole number from 1, got {value!r:.60}")

    @classmethod
    def parse(cls, value: object) -> Durability | None:
        """Convert a client's argument: a Durability, its kind, or None; TypeError for anything else."""
        if value is None or isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls(value)  # type: ignore[arg-type]  # __post_init__ validates it
        expected = 'expected a Durability, "Replicated", "Fsynced" or None'
        raise TypeError(f"durability: {expected}, got {type(value).__name__}")

    @property
    def wanted(self) -> int:
        """The number of confirmations needed: replicas, or the one disk."""
        return self.replicas if self.kind == "Replicated" else 1

    def waiting(self, timeout_ms: int | None = None) -> tuple[str | int, ...]:
        """Return the command that waits."""
        longest = self.timeout_ms if timeout_ms is None else timeout_ms
        return ("WAIT", self.replicas, longest) if self.kind == "Replicated" else ("WAITAOF", 1, 0, longest)

    def confirm_commands(self, timeout_ms: int | None = None) -> ConfirmCommands:
        """Return the confirmation that follows the scripts on their connection."""
        return ConfirmCommands((self.waiting(timeout_ms),))

    def twice(self) -> ConfirmCommands:
        """Return two consecutive confirmations. The second is too soon to be true with everysec, see EARLY_WAITAOF."""
        return ConfirmCommands((self.waiting(FIRST_MS), self.waiting(TWICE_MS)))

    @property
    def longest_ms(self) -> int:
        """The longest time for which all confirmations of one round trip wait."""
        return self.timeout_ms + MIN_WAIT_MS + (FIRST_MS + TWICE_MS if self.kind == "Fsynced" else 0)

    def confirmed(self, replies: object) -> int:
        """Return the number of confirmations in the replies to confirm_commands(); 0 for an error."""
        return _count(replies[-1]) if isinstance(replies, list) else 0

    def early(self, replies: object) -> bool:
        """Whether the replies to twice() confirm both times; a single confirmation proves nothing."""
        return isinstance(replies, list) and all(map(_count, replies[1::2]))


def durability_of(section: DurabilitySpec) -> Durability | None:
    """Return the durability of a document."""
    if section.confirm == "None":
        return None
    return Durability(section.confirm, section.replicas, section.timeout_milliseconds)


def longest_seconds(asked: Durability | None) -> float:
    """Return for how long a round trip may wait for its confirmations, in addition to Redis' timeout."""
    return asked.longest_ms / 1000 if asked else 0.0


def _count(reply: Any) -> int:  # noqa: ANN401 -- a raw reply
    return int(reply[0]) if isinstance(reply, list) else int(reply)


def worst(found: Sequence[Any]) -> Any:  # noqa: ANN401 -- raw replies or errors
    """Return the replies of the server with the fewest confirmations; an error counts as none."""
    return min(found, key=lambda replies: _count(replies[-1]) if isinstance(replies, list) else -1)


def fsync_problem(appendfsync: object) -> str:
    """Return why Redis with this setting cannot confirm Fsynced; empty when it can."""
    setting = appendfsync[1] if isinstance(appendfsync, list) and len(appendfsync) > 1 else b""
    if setting == b"no":
        return "Redis has appendfsync no and never forces its file to the disk; set everysec or always"
    if not setting:
        return (
            "delayq cannot check whether Redis forces its file to the disk: this user may not run CONFIG GET; "
            "allow it with the rule that `delayq acl --config-get` prints, or use durability Replicated"
        )
    return ""


EARLY_WAITAOF: Final = (
    "this Redis answers WAITAOF before its file is on the disk, as Valkey 9.1, and Redis 7.2 and 7.4 before their "
    "fix of 2025, do with appendfsync everysec; update Redis, set appendfsync always, or use durability Replicated"
)
"""Problem of a server that confirms twice within a millisecond, although it syncs its file once a second."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A durability that was not reached."""

    asked: Durability
    confirmed: int
    why: str = ""

    def message(self, unconfirmed: Sequence[str]) -> str:
        """Return the error message: what is stored, what is not confirmed, what may happen, what to do next."""
        one = len(unconfirmed) == 1
        what = f"task {unconfirmed[0]} is" if one else f"{len(unconfirmed):,} tasks are"
        task = "it" if one else "they"
        within = f"within {self.asked.timeout_ms:,} ms"
        if self.asked.kind == "Replicated":
            replicas = "replica" if self.asked.replicas == 1 else "replicas"
            who = f"{self.confirmed} of {self.asked.replicas} {replicas} confirmed {within}"
            fate = f"{task} may be lost at a fail-over"
        else:
            who, fate = f"its disk did not confirm {within}", f"{task} may be lost if its machine fails"
        because = f" ({self.why})" if self.why else ""
        again = (
            'call again with the same id and if_exists="keep" to confirm it; '
            "a task that is done by then runs once more"
        )
        return f"{what} stored on the primary, but {who}{because}: until then {fate}; {again}"
