"""A node without containers: pods that are bound to it run as processes of this host.

What it proves: that the real processes, started with the pod's command, variables, ConfigMaps and Secrets, do their
work, get ready, drain and end as their Deployments and Jobs expect. What it cannot: images, users, cgroups, security
contexts, the pod's network.
"""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import urllib3

from tests.cluster.harness.pod import Pod
from tests.cluster.harness.rest import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.rest import Object

LOOK_SECONDS: Final = 0.2


class ProcessNode:
    """A Node for the pods of one namespace; a scheduler too, that binds them all to itself."""

    def __init__(
        self, cluster: Cluster, namespace: str, directory: Path, images: Mapping[str, Path] | None = None
    ) -> None:
        """`images`: the builds that some images stand for, unpacked; all others are the build under test."""
        self.name = f"node-{namespace}"
        self.pods: dict[str, Pod] = {}
        """By uid."""
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._dir = directory
        self._images = images or {}
        self._stopping = threading.Event()
        # A network of its own on the loopback interface, on which all of 127.0.0.0/8 can be listened on.
        self._network = f"127.{random.randint(1, 254)}.{random.randint(0, 255)}"
        self._last_address = 0

    def __enter__(self) -> Self:
        self._cluster.rest.create("/api/v1/nodes", {"metadata": {"name": self.name}})
        threading.Thread(target=self._follow, name=self.name, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all processes, as a node that loses its power; its pods stay as they were last reported."""
        self._stopping.set()
        for pod in self.pods.values():
            pod.gone = True
        for pod in self.pods.values():
            pod.join()
        with suppress(Refused, urllib3.exceptions.HTTPError):
            self._cluster.rest.delete(f"/api/v1/nodes/{self.name}")

    def _follow(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            with suppress(Refused, urllib3.exceptions.HTTPError, OSError):
                self._look()  # without the API server the processes go on

    def _look(self) -> None:
        found = {pod["metadata"]["uid"]: pod for pod in self._cluster.rest.items(self._path)}
        for uid in self.pods.keys() - found.keys():
            self.pods[uid].gone = True
        for pod in found.values():
            self._seen(pod)

    def _seen(self, pod: Object) -> None:
        metadata = pod["metadata"]
        uid, bound_to = metadata["uid"], pod["spec"].get("nodeName")
        if uid in self.pods:
            self.pods[uid].seen = pod
        elif bound_to == self.name and pod["status"]["phase"] in {"Pending", "Running"}:
            self._start(pod)
        elif not bound_to and "deletionTimestamp" not in metadata:
            self._bind(metadata["name"])

    def _bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": self.name}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        with suppress(Refused):  # it is gone, or bound already
            self._cluster.rest.create(f"{self._path}/{name}/binding", body)

    def _start(self, pod: Object) -> None:
        if self._stopping.is_set():
            return
        uid = pod["metadata"]["uid"]
        self._last_address += 1
        directory = self._dir / f"{pod['metadata']['name']}.{uid[:8]}"
        directory.mkdir(parents=True)
        address = f"{self._network}.{self._last_address}"
        self.pods[uid] = Pod(self._cluster, pod, directory, address, images=self._images)
        self.pods[uid].start()
