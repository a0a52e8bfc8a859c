"""A password of Redis is rotated under load: the pods that are there take it up, and lose no task."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delayq.contract.files import SECRETS_DIR, secret_path

from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from tests.node.world import NodeWorld, Payload

SPREAD_MS: Final = 20_000
LOGIN: Final = {"usernameSecretRef": {"name": "login", "key": "user"}, "passwordSecretRef": {"name": "login"}}


def stream(world: NodeWorld, count: int, what: str = "t") -> None:
    """Tasks that fall due from now on, steadily, and take a moment each."""
    payload: Payload = {"do": "sleep", "seconds": 0.05}
    tasks = {f"{what}{nth}": payload for nth in range(count)}
    world.schedule(tasks, partial(random.Random(count).randrange, SPREAD_MS))


def test_a_rotated_password_is_taken_up_by_the_pods_that_are_there(world: NodeWorld) -> None:
    """Redis takes both passwords for a while; once the kubelet has written the new one, it takes only that."""
    redis: Any = world.connection
    redis.execute_command("ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all")
    world.make("secrets", {"metadata": {"name": "login"}, "stringData": {"user": "app", "password": "first"}})
    world.begin(redis={"auth": LOGIN}, objective={"latenessMilliseconds": 60_000})
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
    world.until("ObjectiveMet", "True")
    assert (world.revisions("scanner"), world.revisions()) == (1, 1)


def password(world: NodeWorld, pod: str) -> str:
    """What a process of this pod would log in with now."""
    file = secret_path(Path(SECRETS_DIR), "login", "password")
    command = ("exec", f"--namespace={world.namespace}", pod, "--", "cat", str(file))
    return world.node.cluster.kubectl(*command).stdout
