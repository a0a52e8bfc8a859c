"""`delayq run` with several queues: one group that starts, restarts and stops as one."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq import SyncClient

from tests.process.local_home import HANDLERS, QUEUE, Home, children, running, stopped, swept, until
from tests.process.receiver import receiving
from tests.processes import DELAYQ, Process
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RedisServer

RUN = (DELAYQ, "run", "--log-format", "json", "--log-level", "info")


def described(name: str, port: int | None = None, *, function: str = "keep", **spec: object) -> str:
    found = yaml.safe_load(QUEUE.replace("HANDLER", function))
    found["metadata"]["name"] = name
    found["spec"] |= spec
    if port is not None:
        found["spec"]["redis"] = {"standalone": {"host": "127.0.0.1", "port": port}}
    return str(yaml.safe_dump(found))


class Group(Home):
    """A directory with several queues; their handlers note the tasks of all of them in one file."""

    def described(self, *documents: str, file: str = "queue.yaml") -> Path:
        (self.dir / "shop_handlers.py").write_text(HANDLERS)
        (self.dir / file).write_text("---\n".join(documents))
        return self.dir / file

    def run(self, *words: str | Path, env: dict[str, str] | None = None) -> Process:
        run = Process.start(*RUN, *map(str, words), env=env, cwd=self.dir)
        run.wait_line('"event": "ready"', timeout_s=40)
        self.note(run)
        return run

    def schedule(self, queue: str, task_id: str, url: str | None = None) -> None:
        with SyncClient(url or self.url, queue=queue) as client:
            client.schedule({}, task_id=task_id, delay_ms=0)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Group]:
    home = Group(tmp_path / "home")
    home.dir.mkdir()
    yield home
    home.wait_gone()


def started(run: Process) -> dict[str, str]:
    """The queues that each process serves."""
    events = [json.loads(line) for line in run.lines if '"event": "started"' in line]
    return {each["process"]: each["queue"] for each in events}


def test_queues_of_two_files_share_a_scanner_and_a_reaper_and_end_together(home: Group) -> None:
    """Each line of the panel and each process of a queue has the queue's name, and the port after the one before."""
    first = free_port(range(21_100, 21_900))
    home.described(described("orders"), described("mails", function="until_told"))
    home.described(described("refunds"), file="more.yaml")
    with stopped(home.run("queue.yaml", "more.yaml", "--metrics-port", str(first))) as run:
        everything = "orders, mails, refunds"
        workers = {f"{queue}/worker-1": queue for queue in everything.split(", ")}
        assert started(run) == workers | {"scanner-1": everything, "reaper": everything}
        for queue in ("orders", "refunds", "mails"):
            home.schedule(queue, f"of-{queue}")
        home.wait_handled("of-orders", "of-refunds")
        run.wait_line(r"^orders/worker-1 \| handling of-orders")
        run.wait_line(r"^refunds  scanner  1 of 1 shards led$")
        run.wait_line(r"^mails             due 0 · scheduled 0 · in flight 1 ")
        scraped = run.wait_http(f"http://127.0.0.1:{first + 3}/metrics").decode()
        assert set(
            re.findall(r'^delayq_shard_leader{queue="(\w+)",shard="0"} 1.0$', scraped, re.MULTILINE)
        ) == {*everything.split(", ")}
        assert scraped.count("# TYPE delayq_shard_leader") == 1
        assert run.wait_http(f"http://127.0.0.1:{first + 3}/readyz") == b"ok\n"
        run.send(signal.SIGTERM)
        run.wait_line('"event": "drained"')
        assert "of-mails" not in home.handled(), "its handler is not done"
        (home.dir / "told").touch()
        home.note(run)
        assert run.wait(timeout_s=40) == 0
    assert sorted(home.handled()) == ["of-mails", "of-orders", "of-refunds"]


def test_a_killed_process_is_started_again_and_no_other(home: Group) -> None:
    home.described(described("orders"), described("mails"))
    with stopped(home.run("queue.yaml")) as run:
        swept(run)
        for word, names in (("scanner", ["scanner-1"]), ("worker", ["orders/worker-1", "mails/worker-1"])):
            before, heard, killed = set(children(run.pid)), len(run.lines), home.child(run, word)
            os.kill(killed, signal.SIGKILL)
            again = json.loads(run.wait_line('"event": "started"', after=heard))
            assert again["process"] in names
            assert before - set(children(run.pid)) == {killed}
        for queue in ("orders", "mails"):
            home.schedule(queue, f"of-{queue}")
        home.wait_handled("of-orders", "of-mails")
        home.note(run)


def test_a_queue_that_cannot_start_ends_the_group_and_says_which(home: Group) -> None:
    path = home.described(described("orders"), described("mails", function="no_such"))
    run = Process.start(*RUN, str(path), cwd=home.dir)
    assert run.wait(timeout_s=40) == 3
    said = (
        f'{path}, document 2: spec.handler.python.callable: module "shop_handlers" has no attribute "no_such"'
    )
    assert said in run.output


def test_a_check_in_python_runs_in_no_process_of_another_queue(home: Group) -> None:
    """Its scanner and its reaper import it, and may die of it."""
    check = {"check": {"python": {"callable": "shop_handlers:keep"}}}
    home.described(described("orders"), described("mails", recovery=check), described("refunds"))
    with stopped(home.run("queue.yaml")) as run:
        served = started(run)
        home.note(run)
    assert served["scanner-1"] == served["reaper-1"] == "orders, refunds"
    assert served["scanner-2"] == served["reaper-2"] == "mails"


def test_queues_with_http_handlers_share_a_worker_and_those_with_other_code_or_a_guard_do_not(
    home: Group, tmp_path: Path
) -> None:
    guard = {"sqlUnique": {"databaseSecretRef": {"name": "database"}}}
    env = {"DELAYQ_DATABASE_URL": f"sqlite:///{tmp_path}/shop.sqlite"}
    with receiving(200) as (url, seen):
        http: dict[str, Any] = {"handler": {"http": {"url": url}}}
        home.described(
            *(described(name, **http) for name in ("orders", "mails")),
            described("refunds", **http, guard=guard),
            described("reports", **http, worker={"replicas": 2}),
            described("pushes"),
        )
        with stopped(home.run("queue.yaml", "--status-interval", "0.2s", env=env)) as run:
            served = started(run)
            workers = {name: queue for name, queue in served.items() if "worker" in name}
            assert workers == {
                "worker-1": "orders, mails",
                "refunds/worker-1": "refunds",
                "reports/worker-1": "reports",
                "reports/worker-2": "reports",
                "pushes/worker-1": "pushes",
            }
            for queue in ("orders", "mails"):
                home.schedule(queue, f"of-{queue}")
                run.wait_line(rf"^{queue} .* in flight 0 · .* late p50 ")
            assert {dict(headers)["Delayq-Task-Id"] for headers, _ in seen} == {"of-orders", "of-mails"}
            home.note(run)


def test_a_worker_of_several_queues_refuses_code_that_could_end_it(home: Group) -> None:
    path = home.described(described("orders"), described("mails"))
    worker = Process.start(DELAYQ, "worker", "--config", str(path), cwd=home.dir)
    assert worker.wait(timeout_s=40) == 3
    said = "document 1: a worker of several queues needs http handlers only, and no guard, in each; "
    assert f"{said}choose one with --queue: orders, mails" in worker.output


def test_with_spec_each_redis_has_a_scanner_and_a_reaper(
    home: Group, aof_server: RedisServer, tmp_path: Path
) -> None:
    other = type(aof_server).start(aof_server.flavour, dir=tmp_path / "other")
    try:
        ports = [aof_server.port, other.port, aof_server.port]
        names = ["orders", "mails", "refunds"]
        home.described(*(described(name, port) for name, port in zip(names, ports, strict=True)))
        with stopped(home.run("queue.yaml", "--redis", "spec")) as run:
            served = started(run)
            assert served["scanner-1"] == served["reaper-1"] == "orders, refunds"
            assert served["scanner-2"] == served["reaper-2"] == "mails"
            for name, server in zip(names, [aof_server, other, aof_server], strict=True):
                home.schedule(name, f"of-{name}", server.url)
            home.wait_handled(*(f"of-{name}" for name in names))
            for server in (aof_server, other):
                run.wait_line(rf"^redis    \S+ at 127\.0\.0\.1:{server.port} ")
            home.note(run)
            home.ports -= {*ports}
    finally:
        other.stop()


ELSEWHERE = {"cluster": {"nodes": [{"host": "127.0.0.1", "port": 7}]}}


@pytest.mark.parametrize(
    ("documents", "options", "said"),
    [
        (
            [described("orders"), described("orders")],
            [],
            ", document 2: DelayQueue orders is in queue.yaml, document 1 too; names must differ",
        ),
        (
            [described("orders"), "kind: Secret\n", described("mails", queueName="orders")],
            [],
            ", document 3: queue orders is in queue.yaml, document 1 too; names must differ",
        ),
        (["kind: Secret\n", "kind: Service\n"], [], ": expected a document of kind DelayQueue, found none"),
        (
            [described("orders"), described("mails", shards=0)],
            [],
            ", document 2: spec.shards: expected a whole number from 1 to 256, got 0",
        ),
        (
            [described("orders", 7), described("mails"), described("x", redis=ELSEWHERE)],
            ["--redis", "spec"],
            ", document 3: spec.redis: 127.0.0.1:7 is cluster without TLS, and standalone without TLS in queue.yaml",
        ),
    ],
)
def test_documents_that_contradict_each_other_are_named(
    home: Group, documents: list[str], options: list[str], said: str
) -> None:
    home.described(*documents)
    run = Process.start(*RUN, "queue.yaml", *options, cwd=home.dir)
    assert run.wait(timeout_s=40) == 3
    assert f"queue.yaml{said}" in run.output
    assert not (home.dir / ".delayq").exists()


def test_documents_in_two_directories_need_a_place_for_their_redis(home: Group) -> None:
    (home.dir / "more").mkdir()
    home.described(described("orders"))
    home.described(described("mails"), file="more/queue.yaml")
    run = Process.start(*RUN, "queue.yaml", "more/queue.yaml", cwd=home.dir)
    assert run.wait(timeout_s=40) == 2
    assert "queue.yaml, more/queue.yaml are in different directories" in run.output
    with stopped(home.run("queue.yaml", "more/queue.yaml", "--data-dir", ".delayq")) as run:
        home.schedule("mails", "of-mails")
        home.wait_handled("of-mails")
        home.note(run)


def test_nothing_of_a_killed_group_is_left(home: Group) -> None:
    home.described(described("orders"), described("mails"))
    run = home.run("queue.yaml")
    assert len(home.seen) == 1 + 5
    run.kill()
    until(lambda: not [pid for pid in home.seen if running(pid)], "gone")
