"""DelaySchedules on a real API server: scanners watch them, and none is lost or doubled, in any order of deletion.

Scanners and workers are processes of this host (harness/node.py), with the token of their account.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from delayq import SyncClient
from delayq_operator.base import names
from delayq_operator.desired import token

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually
from tests.cluster.plugin import Plugin
from tests.cluster.test_end_to_end import document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.container import Container
    from tests.cluster.harness.node import ProcessNode
    from tests.cluster.harness.rest import Object
    from tests.cluster.world import World
    from tests.servers import RedisServer

PLURAL: Final = names.DELAY_SCHEDULE.plural
POLL: Final = {"everySeconds": 1, "misfire": {"policy": "RunAll"}, "task": {"payload": "1"}}


def make(world: World, name: str, **spec: Any) -> Object:  # noqa: ANN401 -- parts of a document
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.DELAY_SCHEDULE.kind,
        "metadata": {"name": name},
        "spec": {"queueRef": {"name": "orders"}, **spec},
    }
    return world.make(PLURAL, body)


def edit(world: World, name: str, **spec: Any) -> Object:  # noqa: ANN401
    return world.patch(PLURAL, name, {"spec": spec})


def until(world: World, name: str, wanted: str, *, timeout_s: float = 40) -> dict[str, Any]:
    """The status, once a condition of the spec's generation is as wanted: type, status and reason."""
    kind = wanted.split(maxsplit=1)[0]

    def look() -> dict[str, Any]:
        body = world.get(PLURAL, name)
        found = {each["type"]: each for each in body.get("status", {}).get("conditions", ())}
        assert kind in found, body.get("status")
        assert f"{kind} {found[kind]['status']} {found[kind]['reason']}" == wanted, found[kind]
        assert found[kind]["observedGeneration"] == body["metadata"]["generation"], found[kind]
        return dict(body["status"])

    return eventually(look, timeout_s=timeout_s, what=f"{name} is {wanted}")


def events(world: World, name: str, reason: str) -> list[str]:
    selector = f"involvedObject.name={name},involvedObject.kind=DelaySchedule,reason={reason}"
    return [event["message"] for event in world.items("events", fieldSelector=selector)]


def ran(redis: RedisServer, name: str) -> list[int]:
    """The nominal times of the runs, Unix seconds, in the order of the runs."""
    with redis.client() as ledger:
        ids = [str(each) for each in ledger.lrange("ledger", 0, -1)]
    times = [each.removeprefix(f"@{name}@") for each in ids if each.startswith(f"@{name}@")]
    return [int(time.mktime(time.strptime(each, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone) for each in times]


def until_ran(redis: RedisServer, name: str, more: int) -> None:
    wanted = len(ran(redis, name)) + more
    eventually(lambda: len(ran(redis, name)) >= wanted, timeout_s=40, what=f"{more} more runs of {name}")


@contextmanager
def each_second_once(redis: RedisServer, name: str) -> Iterator[None]:
    """Through all of it: from the first run to the last, each second was run once."""
    until_ran(redis, name, 3)
    yield
    until_ran(redis, name, 5)
    found = sorted(ran(redis, name))
    assert found == list(range(found[0], found[-1] + 1))


def scanners(process_node: ProcessNode) -> list[int]:
    return [
        container.process.pid
        for pod in process_node.pods.values()
        if "-scanner-" in pod.seen["metadata"]["name"]
        for container in pod.containers
        if container.process is not None
    ]


def test_a_schedule_runs_through_edits_deaths_of_scanners_and_the_deletion_of_its_queue(
    process_node: ProcessNode, world: World, redis: RedisServer
) -> None:
    """The schedule is there before its queue. The queue goes, with its tasks kept, and comes back.

    One that is deleted before its queue exists, or while it does not, leaves nothing.
    """
    for name in ("poll", "early"):
        make(world, name, **POLL)
        until(world, name, "Ready False QueueNotFound")
    world.delete(PLURAL, "early")
    eventually(lambda: not world.there(PLURAL, "early"), what="nothing holds it")
    orders = document(world, redis, schedules={})
    world.make(names.PLURAL, orders)
    status = until(world, "poll", "Ready True Scheduled")
    make(world, "gone", everySeconds=60, task={"payload": "1"})
    eventually(lambda: waiting(redis, "gone") > 9, what="occurrences")
    assert len(status["nextTimes"]) == 5
    found = {each["type"]: each["reason"] for each in status["conditions"]}
    assert found == {"Accepted": "Valid", "Ready": "Scheduled", "Suspended": "NotSuspended"}
    with each_second_once(redis, "poll"):
        edit(world, "poll", task={"payload": "2"})
        until(world, "poll", "Ready True Scheduled")
        [message] = eventually(lambda: events(world, "poll", "Updated"), what="the event")
        assert message.startswith("updated; removed ")
        assert int(message.split()[2]) > 100  # ten minutes ahead, of one a second
        until_ran(redis, "poll", 3)
        for pid in scanners(process_node):
            os.kill(pid, signal.SIGKILL)
        until_ran(redis, "poll", 3)
        world.cluster.rest.delete(world.path(names.PLURAL, "orders"), {"propagationPolicy": "Foreground"})
        eventually(lambda: not world.there(names.PLURAL, "orders"), timeout_s=60, what="the queue is gone")
        for name in ("poll", "gone"):
            until(world, name, "Ready False QueueNotFound")
        world.delete(PLURAL, "gone")
        eventually(lambda: not world.there(PLURAL, "gone"), what="nothing holds it")
        world.make(names.PLURAL, orders)
        until(world, "poll", "Ready True Scheduled")
    eventually(lambda: recorded(redis) == ["poll"], timeout_s=60, what="its record is gone")
    assert waiting(redis, "gone") == 0
    eventually(lambda: world.get(PLURAL, "poll")["status"].get("lastRun"), timeout_s=40, what="the last run")
    last = world.get(PLURAL, "poll")["status"]["lastRun"]
    assert last.keys() == {"nominalTime", "startTime", "latenessMilliseconds"}
    assert datetime.fromisoformat(last["nominalTime"]) <= datetime.fromisoformat(last["startTime"])


def test_a_schedule_that_no_scanner_has_looked_at_says_so(world: World, redis: RedisServer) -> None:
    """Nothing runs the pods here. It said for ever that there is no DelayQueue, or nothing."""
    make(world, "before", **POLL)
    until(world, "before", "Ready False QueueNotFound")
    world.make(names.PLURAL, document(world, redis, schedules={}))
    until(world, "before", "Ready False ScannersNotReady")
    make(world, "after", **POLL)
    until(world, "after", "Ready False ScannersNotReady")


def test_suspending_and_deleting_remove_what_was_created_ahead(
    process_node: ProcessNode,  # noqa: ARG001 -- runs the pods
    world: World,
    redis: RedisServer,
) -> None:
    """Also a deletion that no scanner saw. A change is applied within seconds of a document that is watched."""
    world.make(names.PLURAL, document(world, redis, schedules={}))
    world.until("Ready", "True", timeout_s=40)
    for name in ("hourly", "daily", "unseen"):
        make(world, name, everySeconds=60, startTime="2026-01-01T00:00:00Z", task={"payload": f'"{name}"'})
        until(world, name, "Ready True Scheduled")

    def several(*of: str) -> bool:
        return all(waiting(redis, name) > 9 for name in of)

    eventually(partial(several, "hourly", "daily", "unseen"), what="occurrences of each")
    edit(world, "hourly", suspend=True)
    status = until(world, "hourly", "Suspended True SuspendRequested")
    assert status["nextTimes"] == []
    assert waiting(redis, "hourly") == 0
    edit(world, "hourly", suspend=False)
    until(world, "hourly", "Suspended False NotSuspended")
    eventually(partial(several, "hourly"), what="they are created again")
    world.delete(PLURAL, "daily")
    eventually(lambda: waiting(redis, "daily") == 0, what="none is left")
    assert eventually(lambda: events(world, "daily", "Deleted"), what="the event")[0].startswith(
        "deleted; removed "
    )
    world.patch(names.PLURAL, "orders", {"spec": {"scanner": {"replicas": 0}}})
    until(world, "unseen", "Ready False NoScanners", timeout_s=60)
    eventually(lambda: not world.pods("scanner"), timeout_s=60, what="no scanner is left")
    world.delete(PLURAL, "unseen")
    world.delete(PLURAL, "hourly")
    world.patch(names.PLURAL, "orders", {"spec": {"scanner": {"replicas": 1}}})
    eventually(
        lambda: waiting(redis, "unseen") + waiting(redis, "hourly") == 0, timeout_s=60, what="none is left"
    )


def test_errors_are_reported(
    process_node: ProcessNode,  # noqa: ARG001 -- runs the pods
    world: World,
    redis: RedisServer,
) -> None:
    """The API server refuses what a schema can; a condition and an event name the field of the rest."""
    for spec, words in (
        ({"cron": "0 0 1--100000000 * *", "everySeconds": 3}, "expected exactly one of"),
        ({"cron": "* * * *"}, "spec.cron"),
        ({"times": ["2026-12-01T00:00:00Z"] * 10_000}, "spec.times"),
        ({"everySeconds": 60, "jitterSeconds": 60}, "jitterSeconds must be less than everySeconds"),
        (
            {"everySeconds": 60, "startTime": "2026-12-02T00:00:00Z", "endTime": "2026-12-01T00:00:00Z"},
            "endTime must not be before startTime",
        ),
        ({"everySeconds": 60, "timeZone": "Europe/Lisbon"}, "timeZone needs cron"),
        ({"everySeconds": 60, "misfire": {"policy": "Skip"}}, "policy Skip needs maxLatenessSeconds"),
    ):
        with pytest.raises(Refused, match=words):
            make(world, "wrong", **spec)
    world.make(names.PLURAL, document(world, redis, schedules={}))
    world.until("Ready", "True", timeout_s=40)
    make(world, "fine", everySeconds=3600)
    until(world, "fine", "Ready True Scheduled")
    for name, spec, words in (
        ("ranges", {"cron": "0 0 1--100000000 * *"}, "spec.cron"),
        ("never", {"cron": "0 0 31 2 *"}, "spec.cron: expected a cron expression that matches some time"),
        (
            "nowhere",
            {"cron": "0 0 * * *", "timeZone": "Europe/Atlantis"},
            "spec.timeZone: expected a time zone",
        ),
    ):
        make(world, name, **spec)
        status = until(world, name, "Accepted False InvalidSpec")
        assert words in status["conditions"][0]["message"]
        assert words in eventually(partial(events, world, name, "InvalidSpec"), what="the event")[0]
    edit(world, "nowhere", timeZone="Europe/Lisbon")
    until(world, "nowhere", "Accepted True Valid")
    with SyncClient(redis.url, queue="orders") as client:
        [record] = [each for each in client.schedules() if each.name == "fine"]
        assert record.owner == "kubernetes"
        shown = world.kubectl("get", "dsched", "fine", "-o", "wide")
    plugin = Plugin(world.cluster, world.namespace)
    nights = plugin.run("cron", "preview", "nowhere", "--count=2", "--from=2026-03-27T12:00:00Z").stdout
    assert [line.split()[1:6] for line in nights.splitlines()[1:]] == [
        ["2026-03-28T00:00:00.000Z", "Sat", "2026-03-28", "00:00:00", "WET"],
        ["2026-03-29T00:00:00.000Z", "Sun", "2026-03-29", "00:00:00", "WET"],
    ]
    assert shown.splitlines()[1].split()[:3] == ["fine", "orders", "3600"]


def waiting(redis: RedisServer, name: str) -> int:
    with SyncClient(redis.url, queue="orders") as client:
        return client.count_many(tag=f"@{name}").tasks


def recorded(redis: RedisServer) -> list[str]:
    with SyncClient(redis.url, queue="orders") as client:
        return [each.name for each in client.schedules()]


def test_a_queue_takes_schedules_only_while_its_document_says_so(
    process_node: ProcessNode, world: World, redis: RedisServer
) -> None:
    """Without `schedules`, scanners have no token; what an earlier document let in is deleted from Redis."""
    orders = document(world, redis)
    world.make(names.PLURAL, orders)
    make(world, "poll", **POLL)
    status = until(world, "poll", "Accepted False NotAllowed")
    until(world, "poll", "Ready False NotAllowed")
    assert 'add "schedules: {}" to its spec' in status["conditions"][0]["message"]
    world.until("Ready", "True", timeout_s=40)
    assert recorded(redis) == []
    world.patch(names.PLURAL, "orders", {"spec": {"schedules": {}}})
    until(world, "poll", "Ready True Scheduled")
    until_ran(redis, "poll", 2)
    assert {container.spec["name"] for container in with_token(process_node)} == {"scanner"}
    world.patch(names.PLURAL, "orders", {"spec": {"schedules": None}})
    until(world, "poll", "Accepted False NotAllowed")
    eventually(lambda: not recorded(redis), timeout_s=60, what="its record is gone")
    assert waiting(redis, "poll") == 0
    eventually(lambda: not with_token(process_node), timeout_s=60, what="no scanner has a token")
    assert not world.there("rolebindings", "orders-scanner")
    world.delete(PLURAL, "poll")
    eventually(lambda: not world.there(PLURAL, "poll"), what="nothing holds it")


def with_token(process_node: ProcessNode) -> list[Container]:
    return [
        container
        for pod in process_node.pods.values()
        for container in pod.containers
        if container.process is not None and not container.finished
        if any(each["name"] == token.VOLUME for each in container.spec["volumeMounts"])
    ]


def test_the_page_shows_what_the_commands_say(world: World) -> None:
    """The documents of the page, and what kubectl and its plugin print of them."""
    page = (ROOT / "docs/how-to/schedules-operate.md").read_text()
    [documents] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/how-to/schedules.md").read_text(), re.DOTALL)
    [shown] = [block for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL) if "kubectl" in block]
    for body in yaml.safe_load_all(documents):
        if body["kind"] == names.DELAY_SCHEDULE.kind:
            world.make(PLURAL, body)
    _, head, *rows, command, times_head, times = shown.splitlines()
    printed = world.kubectl("get", "dsched").splitlines()
    assert printed[0].split() == head.split()
    for row, wanted in zip(printed[1:], rows, strict=True):
        assert row.split()[:2] == wanted.split()[:2]
    found = Plugin(world.cluster, world.namespace).run(*command.split()[3:]).stdout
    assert found.splitlines() == [times_head, times]
