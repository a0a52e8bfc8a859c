"""Defects that a history must show: a line of a script is replaced when it is loaded, in this process only."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

from delayq.protocol import scripts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ROLES: Final = ("caller", "caller", "caller", "holder", "holder", "holder", "keeper", "keeper")


class Mutant(NamedTuple):
    """What a script does wrong, and a workload in which that happens often."""

    name: str
    file: str  # in the folder of the scripts
    old: str  # occurs once
    new: str
    bias: Mapping[str, Any] = MappingProxyType({})  # of Plan


def _bias(verbs: str = "", settles: str = "", keeps: str = "", **more: Any) -> Mapping[str, Any]:  # noqa: ANN401
    words = {"verbs": verbs, "settles": settles, "keeps": keeps}
    return {
        name: tuple(word.replace("_mode_", " ") for word in said.split()) for name, said in words.items()
    } | more


FOLLOWED: Final = "schedule_mode_replace schedule_mode_replace schedule_mode_debounce get cancel reschedule"
SEEN: Final = "reclaim reclaim reconcile"

MUTANTS: Final = (
    Mutant(
        "an ack without its token",
        *("ack.lua", "'ZREM', processing, member) == 1", "'ZREM', processing, member)"),
        _bias("schedule get", "ack extend forget", "reclaim"),
    ),
    Mutant(
        "a claim by the client's time",
        *("claim.lua", "local at = math.floor(us / 1000)", "local at = tonumber(ARGV[4])"),
    ),
    Mutant("a claim before the due time", "claim.lua", "delayed, '-inf', at,", "delayed, '-inf', at + 50,"),
    Mutant(
        "a claim that ignores deadlines",
        *("claim.lua", "if not begins(id, envelopes[n], n) then", "if false then"),
        _bias("schedule reschedule get", "retry forget", "reclaim", slots=(2, 7)),
    ),
    Mutant(
        "a claim after its latest time, also one that was returned",
        *("prelude/basics.lua", "number <= last or at > tonumber(not_after_ms)", "false"),
        _bias("schedule get", "ack release extend", "reclaim", cuts=0.1),
    ),
    Mutant(
        "a reschedule that keeps the old index entry",
        *("reschedule.lua", "if suspected then redis.call('ZREM', suspect, id) end", ""),
        _bias("schedule reschedule get", "forget", SEEN, lease_ms=(50, 60)),
    ),
    Mutant(
        "a reschedule that keeps a task parked",
        *("reschedule.lua", "if member then redis.call('ZREM', parked, member) end", ""),
        _bias("schedule reschedule get", "park", "reconcile reclaim"),
    ),
    Mutant(
        "a reschedule that leaves the due time in the envelope",
        *("reschedule.lua", "  redis.call('HSET', tasks, id, envelope)\n", ""),
        _bias("schedule reschedule get"),
    ),
    Mutant(
        "a replacement that loses the follow-up",
        *("prelude/transitions.lua", "  redis.call('HSET', followups, id, envelope)\n", ""),
        _bias(FOLLOWED),
    ),
    Mutant(
        "a follow-up that is stored again and again",
        *("prelude/transitions.lua", "    redis.call('HDEL', followups, id) -- first", "    -- first"),
        _bias(FOLLOWED),
    ),
    Mutant(
        "a replacement that keeps the follow-up",
        *("schedule.lua", "ipairs({ followups, attempts, dlq_info })", "ipairs({ attempts, dlq_info })"),
        _bias(FOLLOWED, "retry release extend"),
    ),
    Mutant(
        "a debounced task that waits for ever",
        *("prelude/transitions.lua", "math.max(at, math.min(due, latest))", "math.max(at, due)"),
        _bias("schedule_mode_debounce get"),
    ),
    Mutant(
        "a repeated call that does not find its task",
        *("prelude/transitions.lua", "repeated and apart >= 0 and apart <= 60000", "false"),
        _bias(
            "schedule_mode_reject schedule_mode_reject get",
            "ack",
            tasks=30,
            cuts=0.15,
            cut_kinds=("reply_lost",),
        ),
    ),
    Mutant("a cancel that keeps the task", "cancel.lua", "  redis.call('HDEL', tasks, id)\n", ""),
    Mutant(
        "a cancel that leaves the failures to the next task",
        *("cancel.lua", "  redis.call('HDEL', attempts, id)\n", ""),
        _bias("schedule cancel get", "retry forget"),
    ),
    Mutant(
        "an extension of a lost lease",
        *("extend.lua", "'ZREM', processing, ARGV[i]) == 1", "'ZREM', processing, ARGV[i])"),
        _bias("schedule get cancel", "ack extend extend", "reclaim"),
    ),
    Mutant(
        "a retry without its token",
        *(
            "retry.lua",
            "redis.call('ZREM', processing, member) == 0",
            "not redis.call('ZREM', processing, member)",
        ),
    ),
    Mutant(
        "a retry without a charge",
        *("retry.lua", "failures = failures + tonumber(charge)", ""),
        _bias(settles="retry retry forget"),
    ),
    Mutant(
        "a last failure that loses the task",
        *("retry.lua", "    redis.call('ZADD', dlq, at, id)\n", ""),
        _bias("schedule get redrive", "retry", "reclaim"),
    ),
    Mutant(
        "a last failure without its story",
        *(
            "retry.lua",
            "    redis.call('HSET', dlq_info, id, failures .. ' '",
            "    tostring(failures .. ' '",
        ),
        _bias("schedule_mode_keep get", "retry", "reclaim"),
    ),
    Mutant(
        "a burial without its story",
        *("bury.lua", "redis.call('HSET', dlq_info, id, (failures", "tostring((failures"),
        _bias("schedule_mode_keep get", "bury"),
    ),
    Mutant(
        "an unclaim that keeps the lease",
        *("unclaim.lua", "      redis.call('ZREM', processing, member)\n", ""),
        _bias("schedule get", "ack release", "reconcile", cuts=0.15, cut_kinds=("reply_lost",)),
    ),
    Mutant(
        "an unpark that loses failed tasks",
        *("unpark.lua", "      redis.call('ZADD', retry, due, id)\n", ""),
        _bias("schedule_mode_keep get", "retry park", "unpark_all reconcile"),
    ),
    Mutant(
        "a redrive that loses the task",
        *("redrive.lua", "    redis.call('ZADD', delayed, due, ARGV[i])\n", ""),
        _bias("schedule_mode_keep redrive get", "bury", "reconcile"),
    ),
    Mutant(
        "an extension that does not say that the run is to be cancelled",
        *("extend.lua", "cancelled[#cancelled + 1] = i - 2", "local _ = i"),
        _bias("schedule cancel_running get", "extend ack"),
    ),
    Mutant(
        "a cancellation of a run that is forgotten",
        *("prelude/cancelling.lua", "return last and token <= last", "return last and token < 0"),
        _bias("schedule cancel_running get", "extend retry"),
    ),
    Mutant(
        "a retry of a run that was to be cancelled",
        *("retry.lua", "  if cancels(id, token) then return 'cancelled' end\n", ""),
        _bias("schedule cancel_running get", "retry retry ack"),
    ),
    Mutant(
        "a reclaim of a run that was to be cancelled",
        *("reclaim.lua", "  if cancels(id, token) then return 'cancelled' end\n", ""),
        _bias("schedule cancel_running get", "forget extend", "reclaim"),
    ),
    Mutant(
        "a cancelled run that keeps its task",
        *("end_cancelled.lua", "  if held then finish(id) end\n", ""),
        _bias("schedule cancel_running get", "end_cancelled", "reconcile"),
    ),
    Mutant("a counter that stands still", "ack.lua", "  tally(stats, 'acked', #ids)\n", ""),
    Mutant(
        "a burial without its token",
        *("bury.lua", "'ZREM', processing, ARGV[i]) == 1", "'ZREM', processing, ARGV[i])"),
        _bias(settles="bury ack"),
    ),
    Mutant(
        "a release without its token",
        *("release.lua", "'ZREM', processing, ARGV[i]) == 1", "'ZREM', processing, ARGV[i])"),
        _bias(settles="release ack"),
    ),
    Mutant(
        "a park without its token",
        *("park.lua", "'ZREM', processing, ARGV[n]) == 1", "'ZREM', processing, ARGV[n])"),
        _bias(settles="park ack"),
    ),
    Mutant(
        "an unpark that loses tasks",
        *("unpark.lua", "      redis.call('ZADD', delayed, due, id)\n", ""),
        _bias("schedule get", "park", "unpark_all reconcile"),
    ),
    Mutant(
        "an unclaim that loses tasks",
        *("unclaim.lua", "      put_back(id, token, due_of(id)", "      tostring(id, token, due_of(id)"),
        _bias("schedule get", "ack", "reconcile", cuts=0.15, cut_kinds=("reply_lost",)),
    ),
    Mutant(
        "a reclaim of valid leases",
        *("reclaim.lua", "local before = math.min(at, tonumber(ARGV[3]) or at)", "local before = at + 500"),
    ),
    Mutant(
        "a crash that is not charged",
        *("prelude/transitions.lua", "crashes + 1, due, 0, last, mark", "crashes, due, 0, last, mark"),
        _bias("schedule get", "forget", "reclaim"),
    ),
    Mutant(
        "a verdict about an extended lease",
        *(
            "recover.lua",
            "if expiry ~= tonumber(ARGV[2]) or math.abs(expiry) > at then return 'alive' end",
            "",
        ),
        _bias("schedule get", "extend", "recover", lease_ms=(50, 80)),
    ),
    Mutant(
        "a redrive that keeps the dead letter's story",
        *("redrive.lua", "    redis.call('HDEL', dlq_info, ARGV[i])\n", ""),
        _bias("schedule redrive get", "bury"),
    ),
    Mutant(
        "a purge that keeps the task",
        *("purge.lua", "    redis.call('HDEL', tasks, ARGV[i])\n", ""),
        _bias("schedule purge get", "bury"),
    ),
    Mutant(
        "a task without its tag",
        *("prelude/entries.lua", "do redis.call('ZADD', tags, 0, entry) end", "do local _ = entry end"),
        _bias("schedule count_many cancel_many"),
    ),
)


@contextmanager
def mutated(mutant: Mutant, directory: Path) -> Iterator[None]:
    """Load the scripts with one line replaced."""
    folder = directory / "lua"
    shutil.copytree(str(scripts._LUA), folder)
    file = folder / mutant.file
    source = file.read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1, (
        f"{mutant.file}: expected once {mutant.old!r}, got {source.count(mutant.old)}"
    )
    file.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    with patch.object(scripts, "_LUA", folder):
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    for cached in (scripts._files, scripts.load, scripts.prelude):
        cached.cache_clear()
