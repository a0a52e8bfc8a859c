"""Whether another program wrote into the queue's keys: another type than ours, or a counter that holds no number.

Not here: tasks that cannot be read. Workers make dead letters of them, with their bytes kept.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delayq.cli.doctor.findings import Finding, failed, warning
from delayq.cli.words import clean
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delayq.connection import SyncConnection
    from delayq.protocol.commands import Commands

KINDS: Final = {
    "sorted set": ("ZCARD", ("delayed", "retry", "suspect", "processing", "dlq", "scanners", "moving")),
    "hash": (
        "HLEN",
        ("tasks", "attempts", "dlq_info", "followups", "cursors", "stats", "moving_info", "arrived"),
    ),
    "list": ("LLEN", ("wake", "alarm")),
    "string": ("GET", ("leader", "rate", "shard_map", "isolation")),
}
"""What each key is, and a command that Redis refuses for any other type. TYPE would take one right more."""

_LOOK: Final = """
local wrong, unread = {}, {}
for at, command in ipairs(ARGV) do
  local reply = redis.pcall(command, KEYS[at])
  if type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE') then wrong[#wrong + 1] = at end
end
local counters = redis.pcall('HGETALL', KEYS[#KEYS])
for at = 1, counters.err and 0 or #counters, 2 do
  if not string.match(counters[at + 1], '^-?%d+$') then unread[#unread + 1] = counters[at] end
end
return { wrong, unread }
"""


def poison(connection: SyncConnection, commands: Commands, shards: Sequence[int]) -> Iterator[Finding]:
    """Yield what is wrong with the keys of any of these shards; nothing when all are as they should be."""
    for keys in map(commands.keys, shards):
        asked = [(kind, command, name) for kind, (command, names) in KINDS.items() for name in names]
        named = [str(getattr(keys, name)) for _, _, name in asked]
        reads = [command for _, command, _ in asked]
        look = ("EVAL", _LOOK, str(len(named) + 1), *named, keys.stats, *reads)
        reply = None
        with suppress(DelayQError):  # not served, or without the right to run scripts: the next check tells
            [reply] = connection.send([look], keys)
        wrong, unread = reply if isinstance(reply, list) else ([], [])
        for at in wrong:
            yield _wrong(named[at - 1], *asked[at - 1])
        if unread:
            yield _unread(keys.stats, [clean(field.decode(errors="replace")) for field in unread])


def _wrong(key: str, kind: str, _: str, name: str) -> Finding:
    said = f"{key} is no {kind}: another program wrote there, and its shard cannot continue"
    if name == "tasks":
        return failed(
            "keys", said, "its payloads are overwritten: restore a backup, or DEL it and schedule again"
        )
    return failed(
        "keys", said, f"look what it is, then RENAME it away, or DEL it; {_NEXT.get(name, _OTHERS)}"
    )


_PUT_BACK: Final = "reapers put the tasks that were listed there where they belong"
_NEXT: Final = dict.fromkeys(("delayed", "retry", "suspect", "processing", "dlq", "moving"), _PUT_BACK)
_OTHERS: Final = "no task was kept there"


def _unread(key: str, fields: list[str]) -> Finding:
    said = f"{key} holds no number in {', '.join(fields)}: another program wrote there"
    return warning("keys", said, f"HDEL {key} {' '.join(fields)}; what is counted there begins anew")
