"""The kinds of the tasks that fall due soon, estimated from a sample."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract.metrics import KINDS_SAMPLED
from delayq.protocol.due_histogram import ALWAYS, asked
from delayq.scanner.exporter import Exporter
from delayq.service.counters import ProcessCounters

from tests.redis.state import NOW, State, envelope
from tests.redis.test_parked import member, of_kind
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection

    from tests.redis.state import Shard

MAIL, REPORT = of_kind("mail"), of_kind("report", version=2)


def due(*envelopes: bytes | None, at: int = NOW) -> State:
    """Tasks that fall due one ms after the other; None for an ID without an envelope."""
    named = {f"{number:05}": each for number, each in enumerate(envelopes)}
    return State(
        delayed={task_id: at + int(task_id) for task_id in named},
        tasks={task_id: each for task_id, each in named.items() if each is not None},
    )


def found(shard: Shard, within_ms: int) -> dict[str, float]:
    return shard.run(shard.commands.due_kinds(0, within_ms))


def test_few_tasks_are_counted_as_far_as_they_fall_due_in_time(shard: Shard) -> None:
    assert found(shard, 1000) == {}
    before = shard.seed(due(MAIL, MAIL, REPORT, of_kind("mail", version=2), envelope(), REPORT, at=NOW - 2))
    assert found(shard, 0) == {"mail": 2, "report": 1}
    assert found(shard, 2) == {"mail": 3, "report": 1, "": 1}
    assert shard.whole() == before


@pytest.mark.parametrize("first", [0, 1, 200, 640, 999, 1000])
def test_many_tasks_are_sampled_in_equal_parts(shard: Shard, first: int) -> None:
    """Of tasks in order of their kind, no estimate is off by more than one of the sample."""
    shard.seed(due(*[MAIL] * first, *[REPORT] * (1000 - first)))
    mix = found(shard, 60_000)
    assert sum(mix.values()) == pytest.approx(1000)
    assert mix.get("mail", 0) == pytest.approx(first, abs=1000 / KINDS_SAMPLED)
    # Beyond the time are others.
    assert found(shard, 99).get("mail", 0) == pytest.approx(min(first, 100), abs=100 / KINDS_SAMPLED)


@pytest.mark.parametrize("period", [2, 4, 16])
def test_kinds_that_alternate_are_seen_with_any_number_of_tasks(shard: Shard, period: int) -> None:
    """1,024 is a multiple of the number of tasks in the sample, and of the period."""
    shard.seed(due(*([MAIL] + [REPORT] * (period - 1)) * (1024 // period)))
    seen = [found(shard, 60_000).get("mail", 0) / 1024 for _ in range(16)]
    assert sum(seen) / 16 == pytest.approx(1 / period, rel=0.5)  # of 1,024 random ranks: more than 4 sigma
    assert len(set(seen)) > 1


def test_ids_without_an_envelope_and_bytes_of_other_programs_do_not_stop_the_others(shard: Shard) -> None:
    foreign = [
        b"",
        b"\x21",
        b"\x2f\xff",
        b"\x21\x01\xffmail\x00\x01{}",
        b"\x21\x01\x03a b\x00\x01{}" + bytes(6),
    ]
    shard.seed(due(None, MAIL, *foreign, None, MAIL, None))
    assert found(shard, 1000) == {"mail": pytest.approx(20 / 7), "": pytest.approx(50 / 7)}
    shard.seed(due(None, None))
    assert found(shard, 1000) == {}


def test_of_large_tasks_fewer_are_read_from_all_parts(shard: Shard) -> None:
    """Four of 64 KiB are more than 256 KiB, for each has a few bytes more."""
    mail, report = (each[:-6] + bytes(65_536) + each[-6:] for each in (MAIL, REPORT))
    shard.seed(due(*[mail] * 50, *[report] * 50))
    shard.redis.config_resetstat()
    assert found(shard, 1000) == {"mail": 50, "report": 50}
    assert shard.redis.info("commandstats")["cmdstat_hget"]["calls"] == 4


@pytest.mark.parametrize("denied", [False, True])
async def test_a_scanner_exports_kinds_as_far_as_it_may_read_them(
    shard: Shard, connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch, *, denied: bool
) -> None:
    """An error costs no other number: rules of an older version do not give the right to ZLEXCOUNT."""
    calls: list[tuple[str, ...]] = []

    def recorded(name: str, **wrong: str) -> Any:  # noqa: ANN401 -- a method
        rightful = getattr(shard.commands, name)

        def call(at: int, *within_ms: int) -> Any:  # noqa: ANN401
            calls.append((name, *map(str, within_ms)))
            return rightful(at, **wrong) if denied else rightful(at, *within_ms)

        return call

    monkeypatch.setattr(shard.commands, "parked", recorded("parked", limit="x"))
    monkeypatch.setattr(shard.commands, "due_kinds", recorded("due_kinds", within_ms="x"))
    scanner: Any = SimpleNamespace(
        shards=[SimpleNamespace(shard=0, leads=True)],
        others=frozenset(),
        down={},
        connects=1,
        scans={},
        scheduled=set(),
        unconfirmed=False,
        counters=ProcessCounters("scanner", "orders"),
    )
    spec = document({"http": {"url": "http://127.0.0.1:1/"}}).spec
    exporter = Exporter(scanner, shard.commands, connection, spec)

    async def exported(kinds_within: list[str] | None = None) -> dict[str, dict[tuple[str, ...], float]]:
        horizons = ALWAYS if kinds_within is None else asked(["60"], kinds_within)
        return {
            family.name: {tuple(each.labels.values())[1:]: each.value for each in family.samples}
            for family in await exporter.families(horizons)
        }

    waiting = shard.seed(due(MAIL, MAIL, REPORT))
    for found in (await exported(), await exported([])):
        assert found["delayq_due_kind_tasks"] == found["delayq_parked_tasks"] == {}
    assert calls == [], "nothing is parked, and no kinds are asked for"
    parked = {member("a", due_ms=NOW + 2): 0, member("b", due_ms=NOW - 3): 0, member("c", "-", 0): 0}
    shard.seed(waiting.but(parked=parked, tasks={**waiting.envelopes, **dict.fromkeys("abc", MAIL)}))
    found = await exported(["19.5"])
    assert calls == [("parked",), ("due_kinds", "19500")]
    tasks = found["delayq_tasks"]
    assert (tasks["0", "due"] + tasks["0", "scheduled"], tasks["0", "parked"]) == (3, 3)
    wanted: list[dict[tuple[str, ...], float]] = [
        {("0", "mail"): 2, ("0", "report"): 1},
        {("push", "1"): 2, ("", "0"): 1},
        {("push", "1"): (NOW - 3) / 1000, ("", "0"): NOW / 1000},
    ]
    names = ("due_kind_tasks", "parked_tasks", "parked_oldest_due_timestamp_seconds")
    assert [found[f"delayq_{name}"] for name in names] == ([{}] * 3 if denied else wanted)
