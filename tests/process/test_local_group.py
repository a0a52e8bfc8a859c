"""`delayq run` with several queues: one group that starts, restarts and stops as one."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
import yaml
from delayq import SyncClient

from tests.process.local_home import HANDLERS, QUEUE, Home, children, running, stopped, swept
from tests.process.receiver import receiving
from tests.processes import DELAYQ, Process
from tests.servers import free_port
from tests.topologies.kinds import stopping

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RedisServer

RUN = (DELAYQ, "run", "--no-api", "--log-format", "json", "--log-level", "info")


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
    first = free_port(range(5_500, 6_300))  # no other test has a server there
    (home.dir / "more").mkdir()
    home.described(described("orders"), described("mails"))
    home.described(described("refunds"), file="more/queue.yaml")
    files = ("queue.yaml", "more/queue.yaml", "--data-dir", ".delayq")
    with stopped(home.run(*files, "--metrics-port", str(first))) as run:
        everything = "orders, mails, refunds"
        workers = {f"{queue}/worker-1": queue for queue in everything.split(", ")}
        assert started(run) == workers | {"scanner-1": everything, "reaper": everything}
        for queue, task_id in (("orders", "of-orders"), ("refunds", "of-refunds"), ("mails", "slow")):
            home.schedule(queue, task_id)
        home.wait_handled("of-orders", "of-refunds")
        run.wait_line(r"^orders/worker-1 \| handling of-orders")
        run.wait_line(r"^refunds  scanner  1 of 1 shard led$")
        run.wait_line(r"^mails             due 0 · scheduled 0 · in flight 1 ")
        scraped = run.wait_http(f"http://127.0.0.1:{first + 3}/metrics").decode()
        assert set(
            re.findall(r'^delayq_shard_leader{queue="(\w+)",shard="0"} 1.0$', scraped, re.MULTILINE)
        ) == {*everything.split(", ")}
        assert scraped.count("# TYPE delayq_shard_leader") == 1
        assert run.wait_http(f"http://127.0.0.1:{first + 3}/readyz") == b"ok\n"
        run.send(signal.SIGTERM)
        run.wait_line('"event": "drained"')
        assert "slow" not in home.handled(), "its handler is not done"
        (home.dir / "released").touch()
        home.note(run)
        assert run.wait(timeout_s=40) == 0
    assert sorted(home.handled()) == ["of-orders", "of-refunds", "slow"]


def test_a_killed_process_is_started_again_and_no_other_and_none_outlives_a_killed_run(home: Group) -> None:
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
        assert len([pid for pid in home.seen if running(pid)]) == 5
        run.kill()
        home.wait_gone()


def test_a_queue_that_cannot_start_ends_the_group_and_says_which(home: Group) -> None:
    path = home.described(described("orders"), described("mails", function="no_such"))
    run = Process.start(*RUN, str(path), cwd=home.dir)
    assert run.wait(timeout_s=40) == 3
    said = 'spec.handler.python.callable: module "shop_handlers" has no attribute "no_such"'
    assert re.search(rf"{path}, document 2, line \d+: {said}", run.output)
    assert "process_exited" not in run.output, "no use in starting it again"


def test_with_spec_each_redis_has_a_scanner_and_a_reaper_and_a_worker_of_http_handlers(
    home: Group, aof_server: RedisServer, tmp_path: Path
) -> None:
    other = type(aof_server).start(aof_server.flavour, dir=tmp_path / "other")
    servers = {"orders": aof_server, "mails": aof_server, "refunds": other}
    with receiving(200) as (url, seen), stopping(other):
        http = {"http": {"url": url}}
        home.described(*(described(name, server.port, handler=http) for name, server in servers.items()))
        with stopped(home.run("queue.yaml", "--redis", "spec", "--status-interval", "0.2s")) as run:
            both = "orders, mails"
            assert started(run) == {
                "worker-1": both,
                "refunds/worker-1": "refunds",
                "scanner-1": both,
                "scanner-2": "refunds",
                "reaper-1": both,
                "reaper-2": "refunds",
            }
            for name, server in servers.items():
                home.schedule(name, f"of-{name}", server.url)
                run.wait_line(rf"^{name} .* in flight 0 · .* late p50 ")
                run.wait_line(rf"^redis    \S+ at 127\.0\.0\.1:{server.port} ")
            assert {dict(headers)["Delayq-Task-Id"] for headers, _ in seen} == {
                f"of-{name}" for name in servers
            }
            home.note(run)
            home.ports -= {server.port for server in servers.values()}
