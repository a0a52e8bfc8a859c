"""Pods replaced under load, because a Secret or an image changed: work goes on, nothing is lost, nobody is charged."""

from __future__ import annotations

import random
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq.contract.files import SECRETS_DIR, secret_path

from tests.cluster.harness.waiting import eventually
from tests.node.world import READY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.node.harness.node import Node
    from tests.node.world import NodeWorld, Payload

SPREAD_MS: Final = 20_000
LOGIN: Final = {"usernameSecretRef": {"name": "login", "key": "user"}, "passwordSecretRef": {"name": "login"}}


def stream(world: NodeWorld, count: int, what: str = "t") -> None:
    """Tasks that fall due from now on, steadily, and take a moment each."""
    payload: Payload = {"do": "sleep", "seconds": 0.05}
    tasks = {f"{what}{nth}": payload for nth in range(count)}
    world.schedule(tasks, partial(random.Random(count).randrange, SPREAD_MS))


def rolled_out(world: NodeWorld) -> None:
    world.until("Progressing", "True", "NewReplicaSetAvailable", timeout_s=READY_SECONDS)


def test_a_rotated_password_is_taken_up_by_the_pods_that_are_there(world: NodeWorld) -> None:
    """Redis takes both passwords for a while; once the kubelet has written the new one, it takes only that."""
    redis: Any = world.connection
    redis.execute_command("ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all")
    world.make("secrets", {"metadata": {"name": "login"}, "stringData": {"user": "app", "password": "first"}})
    world.begin(redis={"auth": LOGIN})
    stream(world, 2000)
    redis.execute_command("ACL", "SETUSER", "app", ">second")
    world.patch("secrets", "login", {"stringData": {"password": "second"}})
    pods = [pod["metadata"]["name"] for pod in (*world.wait_running(2), *world.pods("scanner"))]
    eventually(lambda: all(password(world, pod) == "second" for pod in pods), timeout_s=180, every_s=2)
    redis.execute_command("ACL", "SETUSER", "app", "<first")
    redis.execute_command("CLIENT", "KILL", "USER", "app")
    stream(world, 100, "late")
    world.account()
    world.until("BackendAvailable", "True")
    assert (world.revisions("scanner"), world.revisions()) == (1, 1)


def password(world: NodeWorld, pod: str) -> str:
    """What a process of this pod would log in with now."""
    file = secret_path(Path(SECRETS_DIR), "login", "password")
    command = ("exec", f"--namespace={world.namespace}", pod, "--", "cat", str(file))
    return world.node.cluster.kubectl(*command).stdout


@pytest.fixture
def next_image(node: Node, images: dict[str, str]) -> Iterator[str]:
    """The worker's image by another name."""
    name = "localhost/delayq-worker:next"
    node.ctr("images", "tag", images["worker"], name)
    eventually(
        lambda: "io.cri-containerd.image=managed" in node.ctr("images", "list", f"name=={name}").stdout
    )
    yield name
    node.ctr("images", "remove", name)


@pytest.mark.full
def test_two_versions_of_a_worker_share_a_queue_while_one_replaces_the_other(
    world: NodeWorld, next_image: str
) -> None:
    """Both handle tasks side by side for a while; not one is lost, nor charged for the change."""
    world.begin(worker={"replicas": 3, "concurrency": 10})
    stream(world, 2000)
    first = {pod["metadata"]["name"] for pod in world.wait_running(3)}
    world.wait_entries("end", ["t0"])
    template = world.worker(env={"VERSION": "2"})["template"]
    world.edit(worker={"image": next_image, "template": template})
    batches = count()
    eventually(lambda: side_by_side(world, next(batches)), timeout_s=READY_SECONDS, every_s=0.5)
    world.event("RolledOut", "orders-worker", f"to {next_image}")
    rolled_out(world)
    second = {pod["metadata"]["name"] for pod in world.wait_running(3)}
    assert not first & second
    stream(world, 100, "late")
    world.account()
    assert {each.pod for each in world.ledger if each.version == "1"} <= first
    assert world.revisions() == 2


def side_by_side(world: NodeWorld, batch: int) -> bool:
    """Whether the first version has done anything after the second has begun; until then, there is more work."""
    by = {version: [each.at_ms for each in world.ledger if each.version == version] for version in "12"}
    if by["2"] and min(by["2"]) < max(by["1"]):
        return True
    world.schedule({f"more-{batch}-{nth}": None for nth in range(50)})
    return False
