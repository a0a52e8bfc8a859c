"""delayq cron on a queue: apply, list, next, run, backfill, delete. And what a client refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import SyncClient
from delayq.contract.document import parse_schedule
from delayq.errors import InvalidTask, ScheduleRefused
from delayq.protocol.results import Cancelled

from tests.redis.commands import NIGHTLY, answer, on

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract.schedule import DelaySchedule

    from tests.redis.state import Shard


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "nightly.yaml"
    file.write_text(NIGHTLY)
    return file


def test_a_schedule_from_its_document_to_its_end(orders: Shard, file: Path) -> None:
    def apply() -> str:
        return on(orders, "cron", "apply", "orders", str(file)).stdout

    assert on(orders, "cron", "list", "orders").stdout == "no schedules\n"
    assert [apply(), apply()] == ["nightly: created\n", "nightly: unchanged\n"]
    file.write_text(NIGHTLY.replace("0 3", "0 4"))
    assert apply() == "nightly: updated\n"
    [row] = answer(orders, "cron", "list", "orders")
    assert (row["schedule"], row["when"], row["owner"]) == ("nightly", "0 4 * * * UTC", "client")
    assert (row["missed"], row["last_began"], row["next"][10:]) == (0, None, "T04:00:00.000Z")
    times = ("cron", "next", "orders", "-c", "2", "--from", "2030-01-01T00:00:00Z")
    found = [(each["schedule"], each["nominal"]) for each in answer(orders, *times)]
    assert found == [("nightly", f"2030-01-0{day}T04:00:00.000Z") for day in (1, 2)]
    assert answer(orders, *times[:3], "nightly", *times[3:]) == answer(orders, *times)
    task_id = answer(orders, "cron", "run", "orders", "nightly")["id"]
    task = answer(orders, "task", "get", "orders", task_id)
    assert (task["kind"], task["payload"], task["tags"]) == ("report", {"region": "eu"}, ["eu"])
    assert on(orders, "task", "cancel", "orders", task_id).exit_code == 0
    done = on(orders, "cron", "delete", "orders", "nightly")
    assert done.stdout == "nightly: deleted\n"
    for command in ("delete", "run", "next"):
        again = on(orders, "cron", command, "orders", "nightly")
        assert (again.exit_code, "there is no schedule nightly" in again.stderr) == (6, True)
    assert orders.whole().tasks == {}


def test_a_range_is_filled_once_and_a_dry_run_says_with_what(orders: Shard, file: Path) -> None:
    on(orders, "cron", "apply", "orders", str(file))
    asked = ("cron", "backfill", "orders", "nightly", "--from", "2029-12-01T00:00:00Z")
    until = ("--before", "2029-12-04T00:00:00Z")
    ids = [f"@nightly@2029-12-0{day}T03:00:00Z" for day in (1, 2, 3)]
    assert answer(orders, *asked, *until, "--dry-run") == {"ids": ids, "created": 0, "dry_run": True}
    assert orders.whole().delayed == {}
    assert answer(orders, *asked, *until)["created"] == 3
    assert answer(orders, *asked, *until)["created"] == 0
    assert set(orders.whole().delayed) == set(ids)
    many = on(orders, "cron", "backfill", "orders", "nightly", "--from", "1990-01-01T00:00:00Z", *until)
    assert (many.exit_code, "choose a shorter range" in many.stderr) == (5, True)


def test_ids_of_schedules_are_for_schedules_only(orders: Shard) -> None:
    with SyncClient(orders.server.url, queue="orders") as client:
        with pytest.raises(InvalidTask, match="expected an ID that does not begin with @"):
            client.schedule(1, delay_ms=0, task_id="@nightly@2029-12-01T03:00:00Z")
        client.apply_schedule(nightly())
        assert client.get("@nightly") is None
        assert client.cancel("@nightly") is Cancelled.NOT_FOUND
        assert client.reschedule("@nightly", delay_ms=0).outcome == "not_found"
        assert len(client.schedules()) == 1
        assert client.get("@nightly@2029-12-01T03:00:00Z") is None


def nightly(**spec: Any) -> DelaySchedule:  # noqa: ANN401
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": "nightly"}}
    return parse_schedule({**meta, "spec": {"queueRef": {"name": "orders"}, "everySeconds": 60, **spec}})


def test_another_owner_is_named(orders: Shard, file: Path) -> None:
    schedule = nightly()
    with SyncClient(orders.server.url, queue="orders") as client:
        client.sync_schedules([schedule], owner="file")
        refused = on(orders, "cron", "apply", "orders", str(file))
        assert (refused.exit_code, refused.stdout) == (5, "")
        assert "schedule nightly belongs to the file of `delayq run`" in refused.stderr
        with pytest.raises(ScheduleRefused, match="belongs to the file"):
            client.delete_schedule("nightly")
        client.sync_schedules([], owner="file")
        assert client.schedules() == []
