"""Each script's header and its body say the same. What calls them is proven where Redis runs: tests/redis."""

from __future__ import annotations

import inspect
import re
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import pytest
from delayq.cli.doctor.poison import KINDS
from delayq.protocol import scripts
from delayq.protocol.commands import Commands
from delayq.protocol.keys import FORMAT, ClaimerKeys, Keys, TaskKeys

LUA = files("delayq") / "protocol" / "lua"
VERBS = scripts.names()
KEY_NAMES = {name for name, kept in vars(Keys).items() if isinstance(kept, cached_property)} - {
    "slot",
    "_lists",
}
TASK_KEY_NAMES = {name for name, kept in vars(TaskKeys).items() if isinstance(kept, cached_property)}
CLAIMER_KEY_NAMES = {name for name, kept in vars(ClaimerKeys).items() if isinstance(kept, cached_property)}
TYPES = {
    **dict.fromkeys(
        ("delayed", "retry", "suspect", "processing", "parked", "dlq", "scanners", "moving", "delayqueues"),
        "zset",
    ),
    **dict.fromkeys(("deadlines", "tags", "schedules", "finished"), "zset"),
    **dict.fromkeys(
        ("tasks", "attempts", "dlq_info", "cursors", "stats", "moving_info", "arrived", "followups"), "hash"
    ),
    "finished_info": "hash",
    "cancelling": "hash",
    "kinds": "hash",
    **dict.fromkeys(("wake", "alarm"), "list"),
    **dict.fromkeys(("leader", "lock", "recovery_lock", "claim", "rate", "shard_map", "isolation"), "string"),
    "index": "hash or zset",  # in reconcile.lua; list.lua walks sorted sets only
}
# Commands of Redis 5: no ZADD GT, ZRANGESTORE, LPOS, SMISMEMBER, COPY, LMPOP, GETDEL, EXPIRETIME, functions …
REDIS_5 = {
    "DEL", "EXISTS", "GET", "HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HLEN", "HMGET", "HSCAN", "HSET", "HSETNX",
    "HSTRLEN", "INFO", "LLEN", "LPUSH", "PEXPIRE", "PTTL", "SET", "TIME", "ZADD", "ZCARD", "ZCOUNT", "ZLEXCOUNT",
    "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREM", "UNLINK", "ZREMRANGEBYRANK", "ZREVRANGEBYSCORE", "ZSCAN",
    "ZSCORE",
}  # fmt: skip


def lines(verb: str) -> list[str]:
    if verb == "prelude":
        return scripts.prelude().splitlines()
    return (LUA / f"{verb}.lua").read_text().splitlines()


def header(verb: str) -> list[str]:
    found = lines(verb)
    return found[: next(at for at, line in enumerate(found) if not line.startswith("--"))]


def body(verb: str) -> list[str]:
    """The code, without comments."""
    return [line.partition("--")[0].rstrip() for line in lines(verb)[len(header(verb)) :]]


def declared(verb: str) -> list[tuple[str, str]]:
    """Name and type of each KEYS line, in order."""
    pattern = re.compile(r"^-- KEYS (\w+)(?: \.\.\.)?\s+(hash or zset|zset|hash|list|string)\s+\S")
    found = [pattern.match(line) for line in header(verb) if line.startswith("-- KEYS")]
    return [match.group(1, 2) if match else ("?", "?") for match in found]  # type: ignore[misc]


def destructured(verb: str) -> list[str]:
    """The locals that the first line of code takes from KEYS, in order."""
    first, *more = body(verb)
    names, _, values = first.removeprefix("local ").partition(" = ")
    if values == "unpack(KEYS)":
        found = names.split(", ")
        for line in more:  # too many for one line
            if not line.endswith(f" = unpack(KEYS, {len(found) + 1})"):
                break
            found += line.removeprefix("local ").partition(" = ")[0].split(", ")
        return found
    positions = [int(at) for at in re.findall(r"KEYS\[(\d)\]", values)]
    assert positions == list(range(1, len(positions) + 1))
    return names.split(", ")[: len(positions)]


def test_every_script_has_a_method_and_every_method_a_script() -> None:
    methods = {
        name for name, _ in inspect.getmembers(Commands, inspect.isfunction) if not name.startswith("_")
    }
    assert set(VERBS) == methods - {"shard_of", "use_shard_map", "apply_shard_map", "keys", "pinned_to"}


@pytest.mark.parametrize("verb", VERBS)
def test_the_header_has_its_lines_in_order_and_declares_the_keys_that_the_first_line_names(verb: str) -> None:
    """Verb and purpose, keys, arguments, the answer, and nothing else. A key has the same type everywhere."""
    first, *middle, last = [line.split()[1] for line in header(verb)]
    assert (first, last) == (f"{verb}:", "RETURNS")
    assert middle == sorted(middle, key=["KEYS", "ARGV"].index)
    each = scripts.load(verb).each_key  # one for each task: found by its position
    assert [name for name, _ in declared(verb)] == [*destructured(verb), *each]
    code = "\n".join(body(verb)[1:])
    for name, kind in declared(verb):
        assert name in KEY_NAMES | TASK_KEY_NAMES | CLAIMER_KEY_NAMES | {"index"}
        assert kind == TYPES[name] or (verb, name, kind) == ("list", "index", "zset")
        assert re.search(rf"\b{name}\b", code), name
    assert len(body(verb)) <= 60, "a script is short enough to be read at once"
    assert max(map(len, body(verb))) <= 120


@pytest.mark.parametrize("verb", [*VERBS, "prelude"])
def test_every_key_a_command_touches_came_in_keys(verb: str) -> None:
    """No script builds a key, so a Cluster sees all of them, and keys.py is where each is born."""
    code = "\n".join(lines("prelude") if verb == "prelude" else body(verb))
    literal = re.findall(r"redis\.call\('(?!INFO)\w+',\s*(?:'|\"|\w+\s*\.\.)", code)
    joined = re.findall(r"(?:delayq:|KEYS\[\w+\]\s*\.\.|\.\.\s*KEYS)", code)
    assert literal + joined == []


@pytest.mark.parametrize("verb", [*VERBS, "prelude"])
def test_only_commands_that_redis_5_has(verb: str) -> None:
    code = "\n".join(lines("prelude") if verb == "prelude" else body(verb))
    calls = re.findall(r"redis\.call\('?([\w\[\]]+)'?", code)
    sliced = re.findall(r"each_slice\('(\w+)'", code)
    # reconcile.lua gets HSCAN or ZSCAN as an argument, and each_slice() its command.
    assert {*calls, *sliced} - REDIS_5 <= {"ARGV[2]", "command"}
    assert not re.search(r"redis\.(setresp|acl_check_cmd|register_function)|#!lua", code)
    # An error is reported, not ignored: only a counter that cannot be read restarts, `stats` of another type is left
    # to its script, and a look does not depend on the alarm.
    passed_over = [
        "redis.pcall('HMGET', stats, 'format', 'cancelling')",
        "redis.pcall('HINCRBY', stats, field, more)",
    ]
    passed_over.append("redis.pcall('LLEN', list)")
    expected = {"prelude": passed_over, "erase": ["redis.pcall('HGET', stats, 'format')"]}
    assert [each.split(")")[0] + ")" for each in re.findall(r"redis\.pcall\(.*", code)] == expected.get(
        verb, []
    )
    # What cannot be written to the history is left out: the tasks are done all the same.
    assert re.findall(r"(?<!\.)\bpcall\((\w+)", code) == ["note_finished"] * (verb == "ack")


@pytest.mark.parametrize("verb", VERBS)
def test_no_script_reads_a_clock_of_its_own(verb: str) -> None:
    """TIME is read in the prelude, once for each of now() and now_us(), and os.* and math.random nowhere."""
    assert not re.search(r"'TIME'|\bos\.|math\.random", "\n".join(body(verb)))


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_has_what_it_uses_of_the_prelude(verb: str) -> None:
    """In the prelude's order: each local is known to those below it only."""
    defined = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)
    every, known = defined.findall("\n".join(lines("prelude"))), set[str]()
    for part in scripts.load(verb).source.split("-- PRELUDE"):
        found = [name for name in defined.findall(part) if name in every]
        assert found == sorted(found, key=every.index)
        known.update(found)
        code = re.sub(r"--.*", "", part)
        assert {name for name in every if re.search(rf"\b{name}\b", code)} <= known


@pytest.mark.parametrize("verb", VERBS)
def test_the_body_reads_as_many_arguments_as_the_header_declares(verb: str) -> None:
    script = scripts.load(verb)
    code = "\n".join(body(verb))
    fixed = {int(at) for at in re.findall(r"ARGV\[(\d+)\]", code)}
    assert fixed == set(range(1, len(script.arguments) + 1))
    steps = re.findall(r"for i = (\d+), #ARGV(?:, (\d+))?", code)
    if script.repeating and "ipairs(ARGV)" not in code:
        step = "" if len(script.repeating) == 1 else str(len(script.repeating))
        assert set(steps) == {(str(len(script.arguments) + 1), step)}


def test_scripts_and_python_know_the_same_format() -> None:
    assert f"local FORMAT = '{FORMAT}'" in lines("prelude")


WRITES = "DEL|HDEL|HINCRBY|HSET|HSETNX|LPUSH|PEXPIRE|SET|UNLINK|ZADD|ZREM"


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_that_writes_checks_the_format_of_the_shard_first(verb: str) -> None:
    """What a script uses of the prelude may write, too."""
    code, source = "\n".join(body(verb)), re.sub(r"--.*", "", scripts.load(verb).source)
    before, checks, _ = code.partition("check_format(stats")
    assert bool(checks) == bool(re.search(rf"'(?:{WRITES})\w*'", source))
    assert not re.search(rf"'(?:{WRITES})\w*'|\b(?:outdated|tally|set_stats|hint|leave_one)\(", before)


def test_what_writes_stats_writes_the_format() -> None:
    """Of a new shard, whose `stats` do not exist, or were deleted."""
    written = "\n".join(code for verb in VERBS for code in body(verb)) + "\n".join(lines("prelude"))
    for command, fields in re.findall(r"redis\.p?call\('(H(?:SET|SETNX|INCRBY))', stats, (.*)", written):
        assert fields.startswith("field, more)" if command == "HINCRBY" else "'format', FORMAT"), fields


def test_erase_has_every_key_and_those_of_single_tasks_and_claimers_expire() -> None:
    assert set(scripts.load("erase").keys) == KEY_NAMES


def test_the_same_verbs_lock_a_task_for_its_recovery() -> None:
    commands = Commands("q", shards=2)
    keys = commands.shards[commands.shard_of("id")].of("id")
    for call in (
        commands.lock("id", "owner", 1, lock="recovery_lock"),
        commands.renew("id", "owner", 1, lock="recovery_lock"),
        commands.unlock("id", "owner", lock="recovery_lock"),
    ):
        assert call.arguments[:3] == [2, keys.recovery_lock, keys.stats]


def test_doctor_has_the_type_of_each_key() -> None:
    found = {name: kind.replace("sorted set", "zset") for kind, (_, names) in KINDS.items() for name in names}
    assert found == {name: TYPES[name] for name in KEY_NAMES}


def test_a_call_that_forgets_or_invents_an_argument_is_refused() -> None:
    keys = Keys("p", "q", 0)
    with pytest.raises(TypeError, match=r"claim\.lua takes \('limit', 'lease_ms', "):
        scripts.load("claim").bind(keys.claimed_by("one"), limit=1)
    with pytest.raises(TypeError, match="claim"):
        scripts.load("claim").bind(keys.claimed_by("one"), limit=1, lease_ms=1, more=1)


def test_the_architecture_page_names_scripts_and_functions_that_exist() -> None:
    page = (Path(__file__).parents[2] / "docs" / "contributing" / "architecture.md").read_text()
    arrows = re.findall(r"──([a-z]+(?:, [a-z]+)*)──", page.split("## Keys")[0])
    assert len(arrows) > 4
    assert {verb for each in arrows for verb in each.split(", ")} - {*VERBS} == set()
    assert set(re.findall(r"`(\w+)\.lua`", page)) - {*VERBS} == set()
    named = re.findall(r"`(\w+)\.lua` \(`(\w+)`\)", page)
    for verb, name in [*named, *(("reconcile", name) for name in re.findall(r"where `(\w+)` finds", page))]:
        assert re.search(rf"local [\w, ]*\b{name}\b", (LUA / f"{verb}.lua").read_text()), (verb, name)
