"""What `schedule` waits for beyond Redis' own answer: replicas that have the task, or the disk. Nothing here waits.

WAIT and WAITAOF speak of what their own connection wrote last, and newer servers count a connection that wrote nothing
as confirmed at once: a task found again after a lost reply would be "confirmed" without a replica. So a small
write of our own goes before each, and is younger than the writes to confirm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.contract.durability import DurabilitySpec

Kind = Literal["Replicated", "Fsynced"]
Commands = tuple[tuple[str | int, ...], ...]

MARK: Final = "confirmations"
"""Field of `stats`: how often anybody asked for one."""
HURRY_MS: Final = 1
"""How long to wait where the answer is to be had at once, or does not matter any more."""
FIRST_MS: Final = 3000
"""How long the first of two confirmations may take, whatever its caller's patience: more than two syncs of everysec."""
TWICE_MS: Final = 400
"""How long the second of two confirmations may take: four rounds of an idle server, less than half of everysec."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What follows scripts on their connection: each of these questions, behind a small write of our own if `marked`.

    In a Cluster every server has its own confirmations, and so its own write: calls that go out together to one server
    share both, whatever their shards.
    """

    questions: Commands
    marked: bool = True

    def commands(self, stats: str) -> Commands:
        """Return what to send; `stats` is the key of a counter of ours on the server that is asked."""
        if not self.marked:
            return self.questions
        mark: tuple[str | int, ...] = ("HINCRBY", stats, MARK, 1)
        return tuple(command for question in self.questions for command in (mark, question))


@dataclass(frozen=True, slots=True)
class Durability:
    """Replicated: `replicas` of them have the task. Fsynced: the append-only file with it is on Redis' own disk."""

    kind: Kind
    replicas: int = 1
    timeout_ms: int = 1000

    def __post_init__(self) -> None:
        """ValueError for what no Redis could do."""
        if self.kind not in ("Replicated", "Fsynced"):
            raise ValueError(f'durability: expected "Replicated" or "Fsynced", got {self.kind!r:.60}')
        for name, value in (("replicas", self.replicas), ("timeout_ms", self.timeout_ms)):
            if type(value) is not int or value < 1:
                raise ValueError(f"durability: {name}: expected a whole number from 1, got {value!r:.60}")

    @classmethod
    def given(cls, said: object) -> Durability | None:
        """Return what a client is told: one of these, its kind alone, or None; TypeError for anything else."""
        if said is None or isinstance(said, cls):
            return said
        if isinstance(said, str):
            return cls(said)  # type: ignore[arg-type]  # __post_init__ looks
        expected = 'expected a Durability, "Replicated", "Fsynced" or None'
        raise TypeError(f"durability: {expected}, got {type(said).__name__}")

    @classmethod
    def of(cls, section: DurabilitySpec) -> Durability | None:
        """Return what a document asks for."""
        if section.confirm == "None":
            return None
        return cls(section.confirm, section.replicas, section.timeout_milliseconds)

    @property
    def wanted(self) -> int:
        """How many have to confirm: replicas, or the one disk."""
        return self.replicas if self.kind == "Replicated" else 1

    def waiting(self, timeout_ms: int | None = None) -> tuple[str | int, ...]:
        """Return the command that waits."""
        longest = self.timeout_ms if timeout_ms is None else timeout_ms
        return ("WAIT", self.replicas, longest) if self.kind == "Replicated" else ("WAITAOF", 1, 0, longest)

    def behind(self, timeout_ms: int | None = None) -> Behind:
        """Return what follows the scripts on their connection."""
        return Behind((self.waiting(timeout_ms),))

    def twice(self) -> Behind:
        """Return two confirmations in a row: the second has no time to come true."""
        return Behind((self.waiting(FIRST_MS), self.waiting(TWICE_MS)))

    @property
    def longest_ms(self) -> int:
        """How long all that may be behind one round trip can wait together."""
        return self.timeout_ms + HURRY_MS + (FIRST_MS + TWICE_MS if self.kind == "Fsynced" else 0)

    def confirmed(self, replies: object) -> int:
        """Return how many have confirmed, by the replies to behind(); none when these are an error."""
        return _count(replies[-1]) if isinstance(replies, list) else 0

    def early(self, replies: object) -> bool:
        """Whether both of two confirmations came, by the replies to twice(): the second alone may have come in time."""
        return isinstance(replies, list) and all(map(_count, replies[1::2]))


def longest_seconds(asked: Durability | None) -> float:
    """Return how long a round trip may wait for what is to confirm it: that is no sign of a Redis that hangs."""
    return asked.longest_ms / 1000 if asked else 0.0


def _count(reply: Any) -> int:  # noqa: ANN401 -- as Redis sent it
    return int(reply[0]) if isinstance(reply, list) else int(reply)


def worst(found: Sequence[Any]) -> Any:  # noqa: ANN401 -- replies as Redis sent them, or an error
    """Return what the server with the fewest confirmations replied; an error confirms nothing."""
    return min(found, key=lambda replies: _count(replies[-1]) if isinstance(replies, list) else -1)


def unfit(appendfsync: object) -> str:
    """Say why an append-only file with this setting confirms nothing; empty when it may."""
    setting = appendfsync[1] if isinstance(appendfsync, list) and len(appendfsync) > 1 else b""
    if setting == b"no":
        return "Redis has appendfsync no and never forces its file to the disk; set everysec or always"
    if not setting:
        return (
            "delayq cannot check whether Redis forces its file to the disk, for this user may not use CONFIG GET; "
            "allow it with the rule that `delayq acl --config-get` prints, or use durability Replicated"
        )
    return ""


EARLY: Final = (
    "this Redis answers WAITAOF before its file is on the disk, as Valkey 9.1 does with appendfsync everysec; "
    "set appendfsync always, or durability Replicated"
)
"""Of a server that confirms twice within a millisecond, though it syncs its file once a second."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What was confirmed of what was to be."""

    asked: Durability
    confirmed: int
    why: str = ""

    def message(self, unconfirmed: Sequence[str]) -> str:
        """Say what is stored, what is not known of it, what may become of it, and what calling again does."""
        one = len(unconfirmed) == 1
        what = f"task {unconfirmed[0]} is" if one else f"{len(unconfirmed):,} tasks are"
        task = "it" if one else "they"
        within = f"within {self.asked.timeout_ms:,} ms"
        if self.asked.kind == "Replicated":
            who = f"{self.confirmed} of {self.asked.replicas} replicas confirmed {within}"
            fate = f"{task} may be lost at a fail-over"
        else:
            who, fate = f"its disk did not confirm {within}", f"{task} may be lost if its machine fails"
        because = f" ({self.why})" if self.why else ""
        again = (
            'call again with the same id and if_exists="keep" to have it confirmed; '
            "a task that is done by then runs once more"
        )
        return f"{what} stored on the primary, but {who}{because}: until then {fate}; {again}"
