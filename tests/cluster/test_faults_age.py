"""The operator runs for long: it forgets what is gone, and its tokens are renewed."""

from __future__ import annotations

import json
import signal
import sys
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest
from delayq.kube.errors import Denied
from delayq_operator.base import names
from delayq_operator.kube.api import Api
from kubernetes.aio.config import incluster_config

from tests.cluster.harness import kubeconfig as kubeconfigs
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator
from tests.cluster.world import World
from tests.processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.control_plane import ControlPlane

MOST_GROWTH_MIB: Final = 3.0
"""Of a round, on average: single rounds were up to 4.6 MiB apart, for what one thread frees, another may not take."""
FORGETS_LATER: Final = {"Inventory._gone", "Recorder._series"}
"""Kept on purpose, and bounded."""

WATCHED: Final = """
import gc, json, logging, os, signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from delayq_operator import handlers
from delayq_operator.kube import kopf_engine
from delayq_operator.runtime import cli

def sizes(*_):
    found = {}
    for part in gc.get_objects():
        ours = str(type(part).__module__).startswith("delayq_operator.") and "<locals>" not in type(part).__qualname__
        if ours and hasattr(part, "__dict__"):  # not: responses of watches, of which there are more or fewer
            for name, value in vars(part).items():
                if isinstance(value, (dict, set, list)):
                    where = f"{type(part).__name__}.{name}"
                    inner = value.values() if isinstance(value, dict) else ()
                    number = sum(len(each) for each in inner if isinstance(each, (dict, set, list)))
                    found[where] = found.get(where, 0) + len(value) + number
    os.write(1, f"sizes {json.dumps(found)}\\n".encode())  # at once: no line of the log within

signal.signal(signal.SIGUSR1, sizes)
kopf_engine.WATCH_SECONDS, begin = 1, kopf_engine.run

async def run(*args, **options):
    logging.getLogger("kopf").setLevel(logging.INFO)
    await begin(*args, **options)

kopf_engine.run = run
log_in = handlers.login

async def login(**options):
    return replace(await log_in(**options), expiration=datetime.now(UTC) + timedelta(seconds=1.2))

handlers.login = login
cli.delayq_operator()
"""
"""The operator, but it counts what it keeps when it gets SIGUSR1, and kopf logs in every second or so."""


@pytest.fixture
def world(cluster: ControlPlane, kubeconfig: Path, namespace: str) -> Iterator[World]:
    process = Process.start(
        *(sys.executable, "-c", WATCHED, "--worker-image=delayq-worker:test", "--port=0", "--list-seconds=1"),
        *("--log-format=console", "--namespace", namespace, "--lease-namespace", namespace),
        env={"KUBECONFIG": str(kubeconfig), "POD_NAME": ""},
    )
    port = int(process.wait_line(r"started .*port=\d+").rpartition("port=")[2])
    yield World(cluster, Operator(process, port).wait_ready(), namespace)
    process.stop()


def rss_mib(process: Process) -> float:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) / 256


def kept(process: Process) -> dict[str, int]:
    """How much the operator keeps, by class and attribute."""
    said = len(process.lines)
    process.send(signal.SIGUSR1)
    line = process.wait_line("^sizes ", after=said)
    found: dict[str, int] = json.loads(line.removeprefix("sizes "))
    return {where: count for where, count in found.items() if where not in FORGETS_LATER}


def as_before(process: Process, before: dict[str, int]) -> bool:
    """Fails, in the sense of `eventually`, with what differs."""
    now = kept(process)
    assert set(now.items()) ^ set(before.items()) == set()
    return True


@pytest.mark.parametrize(("queues", "rounds"), [(5, 4), pytest.param(40, 3, marks=pytest.mark.full)])
def test_what_is_gone_is_forgotten(world: World, queues: int, rounds: int) -> None:
    """After every round of DelayQueues that come and go, it keeps as much as before the first."""
    process, before = world.operator.process, kept(world.operator.process)
    sizes = []
    for number in range(rounds):
        come_and_go(world, number, queues)
        eventually(partial(as_before, process, before), what="as much as before", every_s=0.5)
        sizes.append(rss_mib(process))
    print("RSS after each round, MiB:", ", ".join(f"{size:.1f}" for size in sizes))
    assert world.operator.metric("delayq_operator_worker_replicas") == 0
    assert world.operator.metric("delayq_operator_queues") == 0
    assert sizes[-1] - sizes[0] < MOST_GROWTH_MIB * (rounds - 1)


def come_and_go(world: World, number: int, queues: int) -> None:
    wanted = {f"queue-{number}-{more}" for more in range(queues)}
    for name in wanted:
        world.create(name, worker={"replicas": 1}, scanner={"replicas": 1})
    reapers = {f"{name}-reaper" for name in wanted}  # the last child to be made
    eventually(
        lambda: reapers <= {item["metadata"]["name"] for item in world.items("cronjobs")}, timeout_s=60
    )
    metric = world.operator.metric
    eventually(lambda: metric("delayq_operator_worker_replicas", type="desired") == queues)
    assert metric("delayq_operator_queues") == queues
    for name in wanted:
        world.delete(names.PLURAL, name)
    eventually(lambda: not world.children(), what="children are gone", timeout_s=60, every_s=0.5)


def test_kopf_logs_in_again_while_it_works(world: World) -> None:
    """Nothing is missed meanwhile, and it need not begin anew."""
    world.start()
    said = len(world.operator.process.lines)
    for number in range(2, 8):
        world.edit(worker={"replicas": number})
        eventually(
            lambda number=number: world.get("deployments", "orders-worker")["spec"]["replicas"] == number,  # type: ignore[misc]
            timeout_s=5,
        )
        world.operator.process.wait_line("Re-authentication has finished", after=said)
        said = len(world.operator.process.lines)
    assert "kopf_stopped" not in world.operator.process.output


@pytest.fixture
def mounted(cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The token file of a pod, as far as the client can tell."""
    there = kubeconfigs.cluster_of(cluster.kubeconfig)
    host, port = there["server"].removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", there["certificate-authority"])
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    return tmp_path / "token"


async def test_a_token_that_kubelet_renews_is_read_again(
    cluster: ControlPlane, namespace: str, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a minute; here that minute passes at once."""
    grant(mounted, cluster, namespace, "first")
    api = await Api.connect()
    try:
        assert await who(api, namespace) == "first"
        grant(mounted, cluster, namespace, "second")
        later = SimpleNamespace(now=lambda: datetime.now() + timedelta(seconds=61))  # noqa: DTZ005  as the client does
        monkeypatch.setattr(
            incluster_config, "datetime", SimpleNamespace(datetime=later, timedelta=timedelta)
        )
        assert await who(api, namespace) == "second"
    finally:
        await api.close()


def grant(file: Path, cluster: ControlPlane, namespace: str, account: str) -> None:
    """Have the file hold a token of a new account."""
    cluster.kubectl("create", "serviceaccount", account, f"--namespace={namespace}")
    file.write_text(cluster.kubectl("create", "token", account, f"--namespace={namespace}").stdout.strip())


async def who(api: Api, namespace: str) -> str:
    """Whom the API server takes us for: it says so when it denies something."""
    with pytest.raises(Denied) as denied:
        await api.get(names.POD, namespace, "any")
    return str(denied.value).partition(f"{namespace}:")[2].partition('"')[0]
