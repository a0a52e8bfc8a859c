"""The kinds of the tasks that fall due soon, estimated from a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.contract.metrics import KINDS_SAMPLED
from delayq.errors import DelayQError
from delayq.protocol.due_histogram import ALWAYS, asked

from tests.redis.state import NOW, State, envelope
from tests.redis.test_parked import exporter_of, of_kind

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Call

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
def test_kinds_that_alternate_are_seen_whatever_the_number_of_tasks(shard: Shard, period: int) -> None:
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


@pytest.mark.parametrize("fails", [False, True])
async def test_a_scanner_looks_at_kinds_only_when_asked_to(
    shard: Shard, connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """An error there costs no other number."""
    calls: list[int] = []
    rightful = shard.commands.due_kinds

    def due_kinds(at: int, within_ms: int) -> Call[dict[str, float]]:
        calls.append(within_ms)
        return rightful(at, "x") if fails else rightful(at, within_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(shard.commands, "due_kinds", due_kinds)
    if fails:
        with pytest.raises(DelayQError):
            found(shard, 0)
        calls.clear()
    exporter = exporter_of(shard, connection)
    shard.seed(due(MAIL, MAIL, REPORT))

    async def exported(kinds_within: list[str] | None) -> dict[str, dict[tuple[str, ...], float]]:
        horizons = ALWAYS if kinds_within is None else asked(["60"], kinds_within)
        families = {each.name: each.samples for each in await exporter.families(horizons)}
        return {
            name: {tuple(each.labels.values())[1:]: each.value for each in families[f"delayq_{name}"]}
            for name in ("tasks", "due_kind_tasks")
        }

    assert (await exported(None))["due_kind_tasks"] == {}
    assert (await exported([]))["due_kind_tasks"] == {}
    assert calls == []
    wanted = await exported(["19.5"])
    assert calls == [19_500]
    assert wanted["tasks"]["0", "due"] + wanted["tasks"]["0", "scheduled"] == 3
    assert wanted["due_kind_tasks"] == ({} if fails else {("0", "mail"): 2, ("0", "report"): 1})
