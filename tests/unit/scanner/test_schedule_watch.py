"""DelaySchedules and records are compared; an error or a change of one does not stop the others."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.client.recurring import ScheduleChange
from delayq.contract import to_document
from delayq.contract.document import parse
from delayq.contract.problems import SpecError
from delayq.errors import NoSuchSchedule, ScheduleRefused, Unavailable
from delayq.kube.errors import Denied, NotFound
from delayq.kube.errors import Unavailable as Away
from delayq.protocol.results import ParkedKind, SchedulePage, ScheduleRecord
from delayq.scanner.schedule_report import DELAY_SCHEDULE, Known
from delayq.scanner.schedule_watch import PAGE, PAGE_SECONDS, ScheduleWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq.contract.schedule import DelaySchedule

QUEUE = parse(
    {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": "orders"},
        "spec": {
            "redis": {"standalone": {"host": "redis"}},
            "handler": {"python": {"callable": "shop:handle"}},
        },
    }
)
NOW_MS = 1_772_000_000_000


def body(name: str, generation: int = 1, *, uid: str = "u", **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    metadata = {"namespace": "shop", "name": name, "uid": uid, "generation": generation}
    return {"metadata": metadata, "spec": {"queueRef": {"name": "orders"}, **({"everySeconds": 60} | spec)}}


class World:
    """Redis and the API server, as far as a ScheduleWatch sees them; also the client of both."""

    namespace = "shop"

    def __init__(self, led: tuple[int, ...] = (0,)) -> None:
        self.records: dict[str, ScheduleRecord] = {}
        self.led = set(led)
        self.objects: dict[str, dict[str, Any]] = {}
        self.page = PAGE
        self.applied: list[str] = []
        self.deleted: list[str] = []
        self.statuses: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[str, str]] = []
        self.tries: list[str] = []
        self.checked: list[bool] = []  # of each try: whether it need not check the times
        self.error: Mapping[str, Exception] = {}
        self.refuses: Exception | None = None  # the API server
        self.parked: list[ParkedKind] = []
        self.messages: list[str] = []  # of the events
        self.meanwhile: Callable[[], None] = lambda: None
        self.in_call: Callable[[], None] = lambda: None  # while a definition is written
        commands: Any = SimpleNamespace(
            shard_of=lambda record_id: int(record_id.endswith("-b")),
            list_schedules=lambda shard, offset, limit: (shard, offset, limit),
            parked=lambda shard: (shard,),
        )
        unused: Any = self
        self.watch = ScheduleWatch(
            *(QUEUE, unused), commands=commands, connection=unused, led=lambda: self.led, api=unused
        )
        self.watch._reflector.synced.set()
        self.watch._task = SimpleNamespace(done=lambda: False)  # type: ignore[assignment]

    def see(self, *bodies: dict[str, Any]) -> None:
        for each in bodies:
            self.objects[each["metadata"]["name"]] = each
            self.watch.seen(DELAY_SCHEDULE, each)

    def gone(self, name: str) -> None:
        del self.objects[name]
        self.watch.gone(DELAY_SCHEDULE, ("shop", name))

    async def settle(self) -> None:
        """Step until nothing is left; the pauses are not waited for."""
        for _ in range(100):
            if await self.watch.step() > 0 and self.watch._pages is None:
                break
            self.watch._next_page = 0.0
        self.watch._next_page = 0.0

    def wait_over(self, name: str) -> float:
        """End the wait of a refused schedule; returns how long it was."""
        found = self.watch._refused[name]
        self.watch._refused[name] = found._replace(until=0.0)
        return found.seconds

    # --- The client.

    async def apply_schedule(
        self, schedule: DelaySchedule, *, owner: str, notes: Mapping[str, object], checked: bool
    ) -> ScheduleChange:
        name = schedule.metadata.name
        self.tries.append(name)
        self.checked.append(checked)
        self.in_call()
        if name in self.error:
            raise self.error[name]
        body = json.dumps({"document": to_document(schedule), **notes}).encode()
        before = self.records.get(name)
        if before is not None and before.body == body:
            return ScheduleChange("unchanged", 0)
        self.applied.append(name)
        version = before.version + 1 if before else 1
        self.records[name] = ScheduleRecord(f"@{name}", body, version, "on", owner, NOW_MS)
        return ScheduleChange("updated" if before else "created", 3 if before else 0)

    async def delete_schedule(self, name: str, *, owner: str) -> ScheduleChange:
        if name not in self.records:
            raise NoSuchSchedule(name)
        if self.records[name].owner != owner:
            raise ScheduleRefused("belongs to a client")
        del self.records[name]
        self.deleted.append(name)
        return ScheduleChange("deleted", 7)

    # --- The connection.

    async def one(self, call: tuple[int, ...]) -> SchedulePage | list[ParkedKind]:
        if len(call) == 1:
            return self.parked
        shard, offset, limit = call
        of_shard = [each for each in self.records.values() if int(each.id.endswith("-b")) == shard]
        page = of_shard[offset : offset + min(limit, self.page)]
        return SchedulePage(NOW_MS, len(page), page, len(of_shard))

    # --- The API server.

    async def apply_status(self, _kind: object, body: dict[str, Any], *, manager: str) -> dict[str, Any]:
        assert manager == "delayq-scanner"
        if self.refuses is not None:
            raise self.refuses
        name = body["metadata"]["name"]
        known = self.watch._objects[name]
        answer = {"metadata": {"name": name, "uid": known.uid, "generation": known.generation}}
        self.statuses[name] = body["status"]
        spec = self.objects[name]["spec"]
        self.meanwhile()
        return {**answer, "spec": spec, "status": body["status"]}

    async def get(self, _kind: object, namespace: str, name: str) -> dict[str, Any]:
        assert namespace == "shop"
        if self.refuses is not None:
            raise self.refuses
        if name not in self.objects:
            raise NotFound(404, "NotFound", name)
        return self.objects[name]

    async def create(self, _kind: object, body: dict[str, Any]) -> None:
        self.events.append((body["involvedObject"]["name"], body["reason"]))
        self.messages.append(body["message"])


def ready(world: World, name: str) -> str:
    return next(str(each["reason"]) for each in world.statuses[name]["conditions"] if each["type"] == "Ready")


async def test_what_is_new_is_applied_and_what_is_gone_is_deleted_once() -> None:
    world = World()
    world.see(body("a"), body("c"), {**body("other"), "spec": {"queueRef": {"name": "bills"}}})
    await world.settle()
    assert (world.applied, ready(world, "a")) == (["a", "c"], "Scheduled")
    world.see(body("a"))  # as after a list
    await world.settle()
    world.gone("a")
    await world.settle()
    await world.settle()
    assert (world.applied, world.deleted) == (["a", "c"], ["a"])
    assert world.events == [("a", "Created"), ("c", "Created"), ("a", "Deleted")]
    world.see({**body("c"), "spec": {"queueRef": {"name": "bills"}}})
    await world.settle()
    assert world.deleted == ["a", "c"]


async def test_an_impossible_one_does_not_delay_others_and_is_reported_once() -> None:
    world = World()
    world.error = {"full": ScheduleRefused("no room", "QueueFull")}
    world.see(body("never", everySeconds=None, cron="0 0 31 2 *"), body("full"), body("a"))
    world.error = {**world.error, "never": SpecError(())}
    for _ in range(3):
        await world.settle()
    assert world.applied == ["a"]
    assert (ready(world, "never"), ready(world, "full")) == ("InvalidSpec", "QueueFull")
    assert sorted(world.events) == [("a", "Created"), ("full", "QueueFull"), ("never", "InvalidSpec")]
    assert world.tries.count("full") == 1, "each try computes the times of the schedule: not in every pass"
    world.error = {"never": SpecError(())}  # there is room, and the other is not edited
    await world.settle()
    assert world.tries.count("full") == 1
    world.wait_over("full")
    await world.settle()
    await world.settle()
    assert world.applied == ["a", "full"]
    world.error = {}
    world.see(body("never", 2))
    await world.settle()
    assert world.applied == ["a", "full", "never"]


async def test_one_that_is_refused_again_and_again_is_tried_ever_less_often_until_it_is_edited() -> None:
    world = World()
    world.error = {"full": ScheduleRefused("no room", "QueueFull")}
    world.see(body("full"))
    waits = []
    for _ in range(7):
        await world.settle()
        await world.settle()
        waits.append(world.wait_over("full"))
    assert waits == [10, 20, 40, 80, 160, 300, 300]
    assert world.checked == [False, *[True] * (len(world.tries) - 1)], "its times are checked once"
    world.error = {}
    world.see(body("full", 2))
    await world.settle()
    assert (world.applied, world.watch._refused) == (["full"], {})
    assert world.checked[-1] is False, "another generation has other times"


async def test_an_edit_while_another_generation_is_refused_has_its_times_checked() -> None:
    world = World()
    world.error = {"full": ScheduleRefused("no room", "QueueFull")}
    world.in_call = lambda: world.see(body("full", 2))
    world.see(body("full"))
    await world.watch.step()
    world.in_call, world.error = lambda: None, {}
    await world.settle()
    world.watch._changed["full"] = None
    await world.settle()
    assert world.applied == ["full"]
    assert world.checked[:2] == [False, False]


async def test_a_spec_that_is_invalid_is_checked_in_each_try() -> None:
    """It is tried again only if the API server did not take the status that says so."""
    world = World()
    world.error, world.refuses = {"never": SpecError(())}, Away("no answer")
    world.see(body("never"))
    for _ in range(2):
        await world.settle()
        world.wait_over("never")
        await world.settle()
    assert len(world.checked) > 1
    assert not any(world.checked)


async def test_a_deletion_while_its_status_is_written_is_not_undone_by_the_answer() -> None:
    world = World()
    world.see(body("a"))
    world.meanwhile = lambda: world.gone("a")
    await world.settle()
    world.meanwhile = lambda: None
    await world.settle()
    assert (world.records, world.watch._objects) == ({}, {})


async def test_an_edit_while_its_status_is_written_is_applied_and_not_undone_by_the_answer() -> None:
    world = World()
    world.see(body("a"))
    world.meanwhile = lambda: world.see(body("a", 2, everySeconds=90))
    await world.settle()
    world.meanwhile = lambda: None
    await world.settle()
    assert b"90" in world.records["a"].body
    assert world.watch._objects["a"].generation == 2


async def test_missed_deletions_and_records_that_redis_lost_are_found() -> None:
    world = World()
    world.see(body("a"), body("c"))
    await world.settle()
    del world.records["a"]
    world.records["orphan"] = replace(world.records["c"], id="@orphan")
    world.records["client's"] = replace(world.records["c"], id="@client's", owner="client")
    world.records["unseen"] = replace(world.records["c"], id="@unseen")
    world.objects["unseen"] = body("unseen")  # the watch is behind
    others = world.records["c"].body.replace(b"shop", b"bank")
    world.records["others"] = replace(world.records["c"], id="@others", body=others)
    await world.settle()
    await world.settle()
    assert set(world.records) == {"a", "c", "client's", "unseen", "others"}
    assert ("orphan", "Deleted") in world.events
    world.objects["unseen"] = {**body("unseen"), "spec": {"queueRef": {"name": "bills"}}}
    await world.settle()
    await world.settle()
    assert "unseen" not in world.records


async def test_a_copy_that_is_behind_does_not_undo_what_another_scanner_has_applied() -> None:
    world = World()
    world.see(body("a", 4))
    await world.settle()
    later = world.records["a"].body.replace(b'"generation": 4', b'"generation": 5')
    world.records["a"] = replace(world.records["a"], body=later)
    await world.settle()
    assert world.applied == ["a"]
    world.see(body("a", 6))
    await world.settle()
    assert world.applied == ["a", "a"]


@pytest.mark.parametrize("reason", ["Scheduled", "InvalidSpec"])
async def test_a_foreign_status_is_corrected(reason: str) -> None:
    """The operator writes one while no scanner is ready, which may be a moment ago."""
    world = World()
    world.error = {"a": SpecError(())} if reason == "InvalidSpec" else {}
    world.see(body("a"))
    await world.settle()
    await world.settle()
    world.statuses.clear()
    condition = {"type": "Ready", "lastTransitionTime": "x", "status": "False", "reason": "ScannersNotReady"}
    world.see({**body("a"), "status": {"conditions": [condition]}})
    await world.settle()
    await world.settle()
    assert ready(world, "a") == reason


async def test_large_records_make_short_pages_which_are_not_the_last() -> None:
    world = World()
    world.see(*(body(f"n{number}") for number in range(8)))
    await world.settle()
    world.page = 3
    for name in world.records:
        world.records[name] = replace(world.records[name], missed=1)
    world.statuses.clear()
    await world.settle()
    assert len(world.statuses) == 8


async def test_a_server_that_hangs_is_asked_once_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    world, asked = World(), list[str]()

    async def hangs(_kind: object, body: dict[str, Any], **_: object) -> dict[str, Any]:
        asked.append(body["metadata"].get("name", "event"))
        raise Away("no answer")

    monkeypatch.setattr(world, "apply_status", hangs)
    monkeypatch.setattr(world, "create", hangs)
    world.see(*(body(f"n{number}") for number in range(20)))
    await world.watch.step()
    assert (len(world.applied), len(asked)) == (20, 1)


async def test_only_schedules_of_led_shards_are_applied_and_those_of_new_ones_at_once() -> None:
    world = World()
    world.see(body("x-a"), body("x-b"), body("y-b"))
    world.gone("y-b")
    await world.settle()
    assert (world.applied, world.watch._changed, world.watch._deleted) == (["x-a"], {}, {})
    world.led = {0, 1}
    world.watch._next_page = 1e12
    assert await world.watch.step() <= PAGE_SECONDS  # though the next page was far away
    await world.settle()
    assert world.applied == ["x-a", "x-b"]


async def test_runs_are_reported_when_they_change_and_nothing_is_written_before() -> None:
    world = World()
    world.see(body("a"))
    await world.settle()
    await world.settle()
    world.statuses.clear()
    await world.settle()
    assert world.statuses == {}
    last = {"last_id": "@a@2026-02-25T06:13:00Z", "last_began_ms": NOW_MS, "last_late_ms": 4}
    world.records["a"] = replace(world.records["a"], missed=2, skipped=1, **last)  # type: ignore[arg-type]
    await world.settle()
    assert world.statuses["a"]["runs"] == {"missed": 2, "skipped": 1}
    assert world.statuses["a"]["lastRun"]["latenessMilliseconds"] == 4
    assert world.events[-2:] == [("a", "RunsMissed"), ("a", "RunsSkipped")]


async def test_specs_beyond_what_fits_into_memory_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the namespace can create schedules: ten thousand of them must not end the scanner."""
    fits = len(Known.of(body("a")).spec)
    monkeypatch.setattr("delayq.scanner.schedule_watch.MOST_HELD_BYTES", 2 * fits)
    world = World()
    names = ("a", "c", "d", "e")
    world.see(*map(body, names))

    def held() -> list[str]:
        return [name for name, known in world.watch._objects.items() if known.spec]

    assert held() == ["a", "c"]
    await world.settle()
    assert sorted(world.applied) == sorted(names)
    assert len(held()) == 2
    world.gone("a")
    world.see(body("e", 2, everySeconds=30))
    assert sorted(held()) == ["c", "e"]
    world.records.clear()  # Redis has lost them
    world.refuses, world.applied = Away("no answer"), []
    await world.settle()
    assert sorted(world.applied) == ["c", "e"]
    world.refuses = None
    world.watch._reporter._away_until = 0.0
    world.objects["d"] = body("d", 2)  # the watch has yet to tell
    await world.settle()
    assert sorted(world.applied) == ["c", "e"]
    world.see(world.objects["d"])
    await world.settle()
    assert sorted(world.applied) == ["c", "d", "e"]


@pytest.mark.parametrize(
    ("task", "parked", "cause"),
    [
        ({"kind": "mail", "version": 2}, ("mail", 2), "no worker runs the kind mail, version 2"),
        ({"kind": "mail"}, ("mail", 1), "no worker runs the kind mail, version 1"),
        ({}, ("", 0), "no worker runs tasks without a kind"),
        ({"kind": "mail"}, ("mail", 2), "see spec.misfire"),
    ],
)
async def test_what_was_missed_because_it_was_parked_names_the_unknown_kind(
    task: dict[str, Any], parked: tuple[str, int], cause: str
) -> None:
    world = World()
    world.see(body("a", task=task))
    await world.settle()
    await world.settle()
    world.parked = [ParkedKind("other", 1, 5, NOW_MS), ParkedKind(*parked, 1, NOW_MS)]
    world.records["a"] = replace(world.records["a"], missed=1)
    await world.settle()
    assert (world.events[-1], cause in world.messages[-1]) == (("a", "RunsMissed"), True)


@pytest.mark.parametrize("error", [Away("no answer"), Denied(403, "Forbidden", "no")])
async def test_without_the_api_server_definitions_are_applied_and_told_later(error: Exception) -> None:
    world = World()
    world.refuses = error
    world.see(body("a"))
    await world.settle()
    assert (world.applied, world.statuses) == (["a"], {})
    world.refuses = None
    world.watch._reporter._away_until = 0.0
    await world.settle()
    assert ready(world, "a") == "Scheduled"


async def test_without_redis_changes_are_kept() -> None:
    world = World()
    world.error = {"a": Unavailable("redis:6379", "connection refused")}
    world.see(body("a"))
    with pytest.raises(Unavailable):
        await world.watch.step()
    world.error = {}
    await world.settle()
    assert world.applied == ["a"]


async def test_many_are_applied_and_passed_a_page_at_a_time() -> None:
    world = World()
    world.see(*(body(f"n{number}") for number in range(3 * PAGE)))
    assert await world.watch.step() == 0.0
    assert len(world.applied) == PAGE
    await world.settle()
    assert len(world.applied) == 3 * PAGE
    assert [known.name for known in map(Known.of, [body("n0")])] == ["n0"]
