"""Find keys that another program overwrote: with another type, or with counters that are not numbers.

Unreadable tasks are not checked: workers bury them and keep their bytes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delayq.cli.doctor.findings import Finding, failed, warning
from delayq.cli.formats import clean
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delayq.connection import SyncConnection
    from delayq.protocol.commands import Commands

KINDS: Final = {
    "sorted set": (
        "ZCARD",
        (
            *("delayed", "retry", "suspect", "processing", "parked", "dlq", "scanners", "moving"),
            "delayqueues",
            *("deadlines", "tags", "schedules", "finished"),
        ),
    ),
    "hash": (
        "HLEN",
        (
            *("tasks", "attempts", "dlq_info", "followups", "cursors", "stats", "moving_info", "arrived"),
            *("finished_info", "cancelling", "kinds"),
        ),
    ),
    "list": ("LLEN", ("wake", "alarm")),
    "string": ("GET", ("leader", "rate", "shard_map", "isolation")),
}
"""Type of key → a command that Redis refuses for any other type, and the keys. TYPE would need another right."""

_LOOK: Final = """
local wrong, unread = {}, {}
for at, command in ipairs(ARGV) do
  local reply = redis.pcall(command, KEYS[at])
  if type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE') then wrong[#wrong + 1] = at end
end
local counters = redis.pcall('HGETALL', KEYS[#KEYS])
for at = 1, counters.err and 0 or #counters, 2 do
  local counter = counters[at] ~= 'suspended'
  if counter and not string.match(counters[at + 1], '^-?%d+$') then unread[#unread + 1] = counters[at] end
end
return { wrong, unread }
"""


def poison(connection: SyncConnection, commands: Commands, shards: Sequence[int]) -> Iterator[Finding]:
    """Yield the problems of these shards' keys."""
    for keys in map(commands.keys, shards):
        asked = [(kind, command, name) for kind, (command, names) in KINDS.items() for name in names]
        named = [str(getattr(keys, name)) for _, _, name in asked]
        reads = [command for _, command, _ in asked]
        look = ("EVAL", _LOOK, str(len(named) + 1), *named, keys.stats, *reads)
        reply = None
        with suppress(DelayQError):  # unavailable, or no right to run scripts: the next check reports it
            [reply] = connection.send([look], keys)
        wrong, unread = reply if isinstance(reply, list) else ([], [])
        for at in wrong:
            yield _wrong(named[at - 1], *asked[at - 1])
        if unread:
            yield _unread(keys.stats, [clean(field.decode(errors="replace")) for field in unread])


def _wrong(key: str, kind: str, _: str, name: str) -> Finding:
    said = f"{key} is not a {kind}: another program overwrote it, and its shard cannot continue"
    if name == "tasks":
        return failed(
            "keys", said, "its payloads are overwritten: restore a backup, or DEL it and schedule again"
        )
    return failed("keys", said, f"inspect it, then RENAME or DEL it; {_NEXT.get(name, _OTHERS)}")


_PUT_BACK: Final = "reapers restore the index entries of its tasks"
_NEXT: Final = dict.fromkeys(("delayed", "retry", "suspect", "processing", "dlq", "moving"), _PUT_BACK)
_OTHERS: Final = "it stores no tasks"


def _unread(key: str, fields: list[str]) -> Finding:
    said = f"{key} has values that are not numbers in {', '.join(fields)}: another program wrote them"
    return warning("keys", said, f"HDEL {key} {' '.join(fields)}; these counters restart at 0")
