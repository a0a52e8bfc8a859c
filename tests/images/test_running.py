"""Images as processes: no shell, a root that cannot be written, no privilege, process 1, and signals.

The network is the machine's, so that Redis is where tests have it; the rest is what a pod has.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask, SyncClient

from tests.images.container import first, terminate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.images.container import Container
    from tests.processes import Process

HANDLERS = Path(__file__).parent / "handlers" / "slow.py"
EXAMPLES = Path(__file__).parents[2] / "examples"
WORKER = ("worker", "--port", "0", "/etc/delayq/queue.yaml")


def start(container: Container, document: Path) -> tuple[str, ...]:
    container.put("etc/delayq", document)
    return WORKER


def event(process: Process, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(process.wait_line(rf'"event": ?"{name}"', timeout_s=60))
    return found


def ready(process: Process) -> str:
    """The address of the probes, once /readyz says so."""
    url = f"http://127.0.0.1:{event(process, 'started')['port']}"
    process.wait_http(f"{url}/readyz", timeout_s=60)
    return url


@pytest.mark.parametrize("name", ["operator", "worker", "hello", "shop"])
def test_no_shell_is_needed(unpacked: Callable[[str], Container], name: str) -> None:
    container = unpacked(name)
    container.without_shell()
    assert "Usage: delayq" in container.output(*container.image.config["config"]["Entrypoint"], "--help")


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("operator", "delayq_operator.runtime.process, delayq.cli"),
        ("worker", "delayq.cli.root, delayq.cli.worker, delayq.cli.scanner, delayq.cli.reaper"),
        ("worker", "delayq.processes.api, delayq.api.access.service_accounts"),
        ("worker", "sqlalchemy.ext.asyncio, sqlalchemy.dialects.postgresql, psycopg"),
        # With what it takes to log in to MySQL without TLS, where the password itself is encrypted.
        (
            "worker",
            "sqlalchemy.ext.asyncio, sqlalchemy.dialects.mysql, aiomysql, cryptography.hazmat.backends",
        ),
    ],
)
def test_nothing_is_compiled_at_a_start(
    unpacked: Callable[[str], Container], name: str, modules: str
) -> None:
    """Python says of each module whether it came from bytecode (with quotes) or from source (without)."""
    said = unpacked(name).output("python", "-v", "-c", f"import {modules}")
    loaded = [line for line in said.splitlines() if line.startswith("# code object from ")]
    compiled = [line for line in loaded if "/client/models/" not in line and not line.endswith(".pyc'")]
    assert len(loaded) > 200
    assert compiled == []


def test_a_worker_is_process_1_as_nobody_and_drains_on_sigterm(
    unpacked: Callable[[str], Container], document: Callable[..., Path], redis_url: str
) -> None:
    container = unpacked("worker")
    container.put("app", HANDLERS)
    arguments = start(container, document('{python: {callable: "slow:slow"}}'))
    with SyncClient(redis_url, queue="orders") as queue, container.running(*arguments) as process:
        ready(process)
        status = Path(f"/proc/{first(process)}/status").read_text()
        assert "Uid:\t65532\t65532\t65532\t65532\n" in status
        assert "CapEff:\t0000000000000000\n" in status
        assert "NoNewPrivs:\t1\n" in status
        queue.schedule_many(NewTask({}, delay_ms=0) for _ in range(3))
        process.wait_line("slow begins")
        terminate(process)
        assert process.wait(timeout_s=60) == 0
        assert process.output.count("slow begins") == process.output.count("slow ends") > 0
        counts = queue.counts()
        assert (counts.in_flight, counts.retrying, counts.dead) == (0, 0, 0)


def test_a_worker_that_is_still_starting_ends_at_once(
    unpacked: Callable[[str], Container], document: Callable[..., Path]
) -> None:
    """The kernel keeps signals from process 1 that it has no handler for: the pod would wait for its grace to end."""
    container = unpacked("worker")
    container.put("app", HANDLERS)
    arguments = start(container, document('{python: {callable: "slow:never"}}'))
    with container.running(*arguments) as process:
        process.wait_line("importing", timeout_s=60)
        terminate(process)
        assert process.wait(timeout_s=20) == 143


def test_what_commands_leave_behind_does_not_stay_in_the_table_of_processes(
    unpacked: Callable[[str], Container], document: Callable[..., Path], redis_url: str
) -> None:
    """A daemon, in a session of its own, becomes a child of process 1 when its parent ends."""
    container = unpacked("worker")
    container.put("app", HANDLERS)
    arguments = start(container, document("{exec: {command: [python, /app/slow.py]}}"))
    with SyncClient(redis_url, queue="orders") as queue, container.running(*arguments) as process:
        ready(process)
        pid = first(process)
        for number in range(3):
            queue.schedule({}, delay_ms=0, task_id=f"daemon-{number}")
        settled(queue)
        # A daemon that ends after its command is found when another command ends.
        deadline = time.monotonic() + 60
        while children(pid) and time.monotonic() < deadline:
            queue.schedule({}, delay_ms=0)
            settled(queue)
        assert children(pid) == {}
        assert queue.counts().dead == 0


def settled(queue: SyncClient) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        counts = queue.counts()
        if counts.waiting + counts.retrying + counts.in_flight == 0:
            return
        time.sleep(0.05)
    pytest.fail("tasks are left")


def children(parent: int) -> dict[int, str]:
    """The state of each child."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just gone
            state, of = path.read_text().rpartition(")")[2].split()[:2]
            if int(of) == parent:
                found[int(path.parent.name)] = state
    return found


def test_an_image_with_handlers_of_the_users_own_handles_tasks(
    unpacked: Callable[[str], Container], redis_url: str
) -> None:
    """By the example's own document; where Redis is comes from outside, as in the example it is a cluster's."""
    container = unpacked("shop")
    arguments = (*start(container, EXAMPLES / "shop-image" / "queue.yaml"), "--redis", redis_url)
    with SyncClient(redis_url, queue="reminders") as queue, container.running(*arguments) as process:
        ready(process)
        queue.schedule({"name": "Ann", "things": ["a lamp"]}, delay_ms=0)
        process.wait_line("Dear Ann, a lamp is still waiting.", timeout_s=60)


def test_the_handler_of_hello_is_where_its_image_looks_for_it(unpacked: Callable[[str], Container]) -> None:
    said = unpacked("hello").output(
        "python", "-c", "from shop.orders import cancel_unpaid as it; print(it.__name__)"
    )
    assert said.strip() == "cancel_unpaid"
