"""delayq simulate on real queues: their waiting tasks as they are, counted and not touched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq import NewTask, SyncClient
from delayq.simulation import Tasks
from delayq.simulation import snapshot as snapshots
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.redis.commands import on
from tests.redis.state import NOW, Shard, State, one_server
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delayq.protocol.results import Counts

    from tests.servers import RedisServer

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def written(directory: Path, name: str, port: int = 1, **spec: Any) -> str:  # noqa: ANN401 -- any part of a document
    path = directory / "queue.yaml"
    spec = {
        "redis": {"standalone": {"host": "127.0.0.1", "port": port}},
        "handler": {"http": {"url": "http://127.0.0.1/"}},
        "worker": {"concurrency": 10},
        "autoscaling": {"maxReplicas": 100},
        **spec,
    }
    document = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": name},
        "spec": spec,
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def taken(shard: Shard, until_ms: int = DAY, state: State | None = None) -> snapshots.Snapshot:
    if state is not None:
        shard.seed(state)
    with SyncClient(shard.server.url, queue=shard.broker.queue) as client:
        return snapshots.take(client.counts, until_ms, 0.5)


def test_waiting_tasks_are_simulated_as_they_are_and_stay_as_they_are(shard: Shard, tmp_path: Path) -> None:
    """A rush of 600 in half an hour, ten overdue, five in flight: all of them, none early, and nothing is written."""
    before = shard.seed(
        State(
            delayed={f"r-{n}": NOW + HOUR // 2 for n in range(600)} | {"next-month": NOW + 30 * DAY},
            retry={f"o-{n}": NOW - 5000 for n in range(10)},
            processing={f"p-{n}:7": NOW + MINUTE for n in range(5)},
            dlq={"dead": NOW - 9000},
        )
    )
    path = written(tmp_path, shard.broker.queue)
    result = on(shard, "simulate", path, "--snapshot", "--handler-ms", "500", "-o", "json")
    assert result.stderr == (
        f"note: 615 tasks of queue {shard.broker.queue}, with due times to 10ms\n"
        "note: left out 1 task due later than 1d; --for takes them in\n"
    )
    [found] = json.loads(result.stdout)["runs"]
    assert (found["tasks"], found["early"], found["start_ms"]) == (615, 0, NOW)
    assert [change["after"] for change in found["changes"][:1]] == [1]
    # No group of 30 was seen to start: it is asked for 1.5 times the lead time of 15 s ahead, and a few seconds.
    assert next(change for change in found["changes"] if change["after"] >= 30)["at_ms"] == HOUR // 2 - 26_000
    assert shard.whole() == before


@pytest.mark.one_server
@pytest.mark.parametrize("how", ["--snapshot", "--redis", "document"])
def test_the_queue_is_found_as_every_command_finds_it(shard: Shard, tmp_path: Path, how: str) -> None:
    shard.seed(State(delayed={"a": NOW + 1000}))
    path = written(tmp_path, shard.broker.queue, port=one_server(shard).port)
    args = {
        "--snapshot": ["--snapshot"],
        "--redis": ["--redis", shard.server.url],
        "document": ["--snapshot"],
    }[how]
    result = run(
        "simulate", path, *args, "-o", "json", DELAYQ_REDIS_URL="" if how == "document" else shard.server.url
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["runs"][0]["tasks"] == 1


def test_a_url_in_the_environment_alone_asks_for_no_snapshot(shard: Shard, tmp_path: Path) -> None:
    shard.seed(State(delayed={"a": NOW + 1000}))
    result = on(shard, "simulate", written(tmp_path, shard.broker.queue), "-o", "json")
    assert json.loads(result.stdout)["runs"][0]["tasks"] == 2000


def test_an_empty_queue_is_told(shard: Shard, tmp_path: Path) -> None:
    result = on(shard, "simulate", written(tmp_path, shard.broker.queue), "--snapshot")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "expected tasks to simulate, found none that falls due in time" in result.stderr


def test_without_a_redis_it_is_told_which(tmp_path: Path) -> None:
    result = run("simulate", written(tmp_path, "orders"), "--snapshot")
    assert result.exit_code == 4
    assert "127.0.0.1:1" in result.stderr
    assert "delayq doctor" in result.stderr


def test_all_shards_count(redis_server: RedisServer, queue_name: str, tmp_path: Path) -> None:
    path = written(tmp_path, queue_name, port=redis_server.port, shards=4)
    with SyncClient(redis_server.url, queue=queue_name, shards=4) as client:
        client.schedule_many(NewTask(n, delay_ms=HOUR + n) for n in range(200))
    result = run("simulate", path, "--snapshot", "-o", "json")
    assert json.loads(result.stdout)["runs"][0]["tasks"] == 200


@given(st.lists(st.integers(-1000, 2 * HOUR), min_size=1, max_size=60))
@settings(max_examples=25)
def test_due_times_are_those_of_the_queue_within_ten_milliseconds_and_never_earlier(
    shard: Shard, delays: list[int]
) -> None:
    found = taken(shard, HOUR, State(delayed={str(n): NOW + delay for n, delay in enumerate(delays)}))
    expected = sorted(max(0, delay) for delay in delays if delay <= HOUR)
    got = [round(due * 1000) for due in Tasks.of(found.arrivals).due]
    assert found.start == NOW / 1000
    assert found.later == sum(1 for delay in delays if delay > HOUR)
    assert len(got) == len(expected)
    assert all(due <= seen < due + snapshots.FINEST_MS for due, seen in zip(expected, got, strict=True))


def test_a_look_costs_the_same_however_many_tasks_there_are(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 tasks all over a day: the budget is kept, all are counted, and times are as exact as it allows."""
    monkeypatch.setattr(snapshots, "BUDGET", 5000)
    shard.seed(State(delayed={str(n): NOW + n * 1728 for n in range(1, 50_001)}, tasks={}))
    asked = 0
    with SyncClient(shard.server.url, queue=shard.broker.queue) as client:

        def counts(*, instants_ms: Sequence[int] = ()) -> Counts:
            nonlocal asked
            asked += len(instants_ms)
            assert len(instants_ms) <= 100
            return client.counts(instants_ms=instants_ms)

        found = snapshots.take(counts, DAY, 0.5)
    assert asked <= 5001
    assert (sum(each.tasks for each in found.arrivals), found.step_ms) == (50_000, 43_200)


def test_a_queue_in_motion_is_never_counted_below_nothing(shard: Shard) -> None:
    """Tasks are claimed and come between two calls: the picture is not sharp, but it is one."""
    shard.seed(State(delayed={str(n): NOW + n * 100 for n in range(500)}))
    with SyncClient(shard.server.url, queue=shard.broker.queue) as client:

        def counts(*, instants_ms: Sequence[int] = ()) -> Counts:
            shard.clock(shard.now_ms() + 500)
            shard.run(shard.broker.claim(0, 20, 10_000))
            client.schedule(1, delay_ms=10_000)
            return client.counts(instants_ms=instants_ms)

        found = snapshots.take(counts, HOUR, 0.5)
    assert all(each.tasks > 0 and 0 <= each.due <= HOUR / 1000 for each in found.arrivals)
    assert 300 < sum(each.tasks for each in found.arrivals) < 700
