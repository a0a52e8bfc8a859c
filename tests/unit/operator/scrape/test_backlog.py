"""Readings of scanners, in the text that scanners really export."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract.files import Reference
from delayq.contract.metrics import horizon_label
from delayq.protocol.due_histogram import DueHistogram
from delayq.protocol.results import Counts, ParkedKind, Suspension
from delayq.service import metrics as scanner_metrics
from delayq.service.counters import ProcessCounters
from delayq.service.exposition import render
from delayq_operator.scrape.backlog import NEEDED, Backlog, Reading, SuspendCommand, UnknownKind, backlog
from delayq_operator.scrape.shards import Shards
from delayq_operator.status.status import status

from tests.exposition import samples
from tests.unit.operator.views import view

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from delayq.contract.metrics import DurabilityRisk
    from delayq.errors import Outage
    from delayq_operator.base.objects import Sample

NONE = DueHistogram({}, asked=True)
NOW = 1_800_000_000.0
NOW_MS = 1_700_000_000_000  # Redis' clock, which is another


def counts(**tasks: Any) -> Counts:  # noqa: ANN401 -- the fields of Counts
    none: dict[str, Any] = dict.fromkeys(("scheduled", "retrying", "due", "in_flight", "dead"), 0)
    return Counts(**{**none, "now_ms": NOW_MS, "oldest_due_ms": None, "next_due_ms": None, **tasks})


def scanner_text(
    led: Mapping[int, bool],
    risks: Collection[DurabilityRisk] | None = (),
    outage: Outage = "other",
    **tasks: Any,  # noqa: ANN401
) -> bytes:
    """What a scanner exports; the same counts for each shard it leads."""
    known = {shard: counts(**tasks) for shard, leads in led.items() if leads and risks is not None}
    horizons = DueHistogram({horizon_label(ms / 1000): ms for ms in tasks.get("due_within", ())}, asked=True)
    return render(
        [
            *scanner_metrics.queue_families("orders", led, known, horizons),
            *scanner_metrics.backend_families("orders", risks, outage),
        ]
    )


def scanner(
    led: Mapping[int, bool],
    risks: Collection[DurabilityRisk] | None = (),
    **tasks: Any,  # noqa: ANN401
) -> list[Sample]:
    """The same, read."""
    return list(samples(scanner_text(led, risks, **tasks).decode()))


def read(*scanners: list[Sample]) -> Backlog:
    return backlog(Reading(scanners), NOW)


BUSY: dict[str, Any] = {
    "scheduled": 6,
    "retrying": 3,
    "in_flight": 3,
    "dead": 2,
    "due": 5,
    "oldest_due_ms": NOW_MS - 9_000,
    "next_due_ms": NOW_MS + 60_000,
}


def test_one_leader_tells_everything() -> None:
    assert read(scanner({0: True}, **BUSY)) == Backlog(
        read_at=NOW,
        due=5,
        scheduled=6,
        in_flight=3,
        retrying=3,
        dead=2,
        oldest_due_at=NOW - 9,
        next_due_at=NOW + 60,
        whole=True,
        redis_up=True,
    )


def test_shards_add_up_and_the_extremes_are_those_of_all() -> None:
    late = {**BUSY, "oldest_due_ms": NOW_MS - 30_000, "next_due_ms": NOW_MS + 5_000}
    found = read(scanner({0: True, 1: False}, **BUSY), scanner({0: False, 1: True}, **late))
    assert (found.due, found.scheduled, found.in_flight, found.dead) == (10, 12, 6, 4)
    assert (found.oldest_due_at, found.next_due_at, found.whole) == (NOW - 30, NOW + 5, True)


def test_kinds_of_parked_tasks_add_up_and_names_that_cannot_be_are_ignored() -> None:
    kinds = [
        ParkedKind("push", 2, 9, NOW_MS - 9000),
        ParkedKind("", 0, 3, NOW_MS),
        ParkedKind("push", 2, 1, NOW_MS),
    ]
    found = read(
        *(
            list(
                samples(render(scanner_metrics.queue_families("orders", {}, {}, NONE, parked=each)).decode())
            )
            for each in (kinds, [ParkedKind("push", 2, 5, NOW_MS - 500)])
        ),
        [
            ("delayq_parked_tasks", {"queue": "orders", "kind": kind, "version": version}, 1e300)
            for kind, version in (("x" * 65, "1"), ("a b", "1"), ("a", "x"), ("a", "123456"), ("a", ""))
        ],
    )
    assert found.unknown_kinds == (
        UnknownKind("push", 2, 15, NOW_MS / 1000 - 9),
        UnknownKind("", 0, 3, NOW_MS / 1000),
    )


A = Reference("Secret", "shop", "a")


def test_keys_that_a_scanner_lacks_count_if_the_spec_names_them() -> None:
    """A change is a state, and not a number: it is reported at once."""
    counters = ProcessCounters(
        "scanner", "orders", lacks=lambda: {A: "", Reference("ConfigMap", "call", "555-0100"): ""}
    )
    lacking = list(samples(render(scanner_metrics.process_families(counters)).decode()))
    reading = Reading([scanner({0: True}), lacking])
    found = backlog(reading, NOW, frozenset({A, Reference("Secret", "shop", "b")}))
    assert found.missing == (A,)
    assert found.facts(10.0) != replace(found, missing=()).facts(10.0)
    assert backlog(reading, NOW).missing == ()
    waits = backlog(Reading([lacking]), NOW, [A])
    assert (waits.missing, waits.begun, found.begun) == ((A,), False, True), (
        "one that runs says whether Redis does"
    )


def test_delayqueues_that_share_the_tasks_are_those_that_a_scanner_has_found() -> None:
    """A label may say anything: only what can be a UID counts, and a change is a state."""
    uid = "0b6b0b9e-0000-4000-8000-00000000000a"
    found = list(samples(render([scanner_metrics.conflicts("orders", [uid, "call 555-0100"])]).decode()))
    read = backlog(Reading([scanner({0: True}), found]), NOW)
    assert read.conflicts == (uid,)
    assert read.facts(10.0) != replace(read, conflicts=()).facts(10.0)


def test_a_scanner_exports_the_most_frequent_of_many_unknown_kinds() -> None:
    many = [ParkedKind(f"kind-{number}", 1, 100 - number, NOW_MS) for number in range(50)]
    text = render(scanner_metrics.queue_families("orders", {}, {}, NONE, parked=many)).decode()
    exported = [labels["kind"] for name, labels, _ in samples(text) if name == "delayq_parked_tasks"]
    assert exported == [f"kind-{number}" for number in range(16)]


def test_why_redis_does_not_serve_is_reported_unless_it_serves_another_scanner() -> None:
    """A shard without a leader makes the reading incomplete: fewer numbers must not look like fewer tasks."""
    lost, fine = scanner({0: True}, risks=None, outage="auth", **BUSY), scanner({1: True}, **BUSY)
    assert read(lost) == Backlog(read_at=NOW, outage="auth", shards=Shards(leaderless=(0,)))
    found = read(lost, fine)
    assert (found.outage, found.redis_up, found.whole, found.due) == ("", True, False, 5)
    made_up: list[Sample] = [
        ("delayq_redis_down", {"queue": "orders", "cause": "x" * 10_000}, 1.0),
        ("delayq_durability_risk", {"queue": "orders", "risk": "x" * 10_000}, 1.0),
    ]
    found = read(made_up, scanner({0: True}, ["evicts"]))
    assert (found.outage, found.risks) == ("", ("evicts",))
    assert read(made_up).outage == ""


# --- What no scanner of ours says.


def test_lines_without_the_labels_they_should_have_and_what_is_no_number_count_for_nothing() -> None:
    bare: list[Sample] = [(name, {}, 1.0) for name in NEEDED]
    busy, idle = scanner({0: True}, **BUSY), scanner({0: True})
    assert read([*bare, *busy]) == read(busy)
    for value in (float("inf"), float("-inf"), float("nan"), -1e300):
        odd = [(name, labels, value) for name, labels, _ in busy if "leader" not in name]
        assert replace(read([*idle, *odd]), next_due_at=None, whole=True) == replace(read(idle), whole=True)


@pytest.mark.parametrize("value", [1e300, 2.0**63])
def test_status_can_be_written_after_any_reply_of_a_scanner(value: float) -> None:
    """Its numbers are int64, its times have four digits for the year."""
    many = dict.fromkeys(range(3), True)
    huge = [
        (name, labels, 1.0 if "leader" in name or "up" in name else value)
        for name, labels, _ in scanner(many, ["evicts"], **BUSY)
    ]
    made = status(view(backlog=read(huge)), {}, NOW)["backlog"]
    assert all(made[field] < 2**63 for field in ("due", "scheduled", "inFlight", "dead"))
    assert made["oldestDueTime"] == "1970-01-01T00:00:00Z"
    assert made["nextDueTime"].startswith("21")
    json.dumps(made, allow_nan=False)


def test_a_suspension_is_that_of_shard_0_and_stays_while_its_leader_is_silent() -> None:
    """In a Cluster, the other shards have copies, which count for workers only."""
    held = Suspension(NOW_MS)
    drained = replace(held, drain=True)
    for found, drains in ((held, False), (drained, True)):
        expected = SuspendCommand(NOW_MS / 1000, drains)
        assert read(scanner({0: True, 1: True}, suspension=found)).command == expected
    assert read(scanner({0: False, 1: True}, suspension=held)).command is None
    known = SuspendCommand(5.0)
    assert backlog(Reading([scanner({0: False, 1: True})]), NOW, (), known).command == known
    assert backlog(Reading([scanner({0: True})]), NOW, (), known).command is None
