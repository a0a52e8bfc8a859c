"""A real Kubernetes of one node, in namespaces of its own: `Node.start(directory)`, then `stop()`.

Everything of it ends with the process that started it, however that ends; so start it from the main thread.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.harness.control_plane import NODE, answers
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.server import Server
from tests.node.harness import cgroups, dns, images, leftovers, network, owners, pause, redis, requirements
from tests.node.harness.components import KUBELET_HEALTH, NAME, PROXY_HEALTH, SOCKET, Components
from tests.node.harness.control_plane import NodeControlPlane
from tests.node.harness.sandbox import Sandbox
from tests.processes import Gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.harness.rest import Object
    from tests.node.harness.network import Block

READY_SECONDS: Final = 90.0
POLL_SECONDS: Final = 0.1


def tell(line: str) -> None:
    """Say what takes time, in make's words for it."""
    print(f"\033[2m· {line}\033[0m", file=sys.stderr, flush=True)


@dataclass
class Node:
    """One node, with its servers."""

    run_dir: Path
    logs: Path
    say: Callable[[str], None]
    name: str
    """Of its cgroup and its run; the Kubernetes Node is always called `node_name`."""
    block: Block = field(init=False)
    sandbox: Sandbox = field(init=False)
    cluster: NodeControlPlane = field(init=False)
    containerd: Server = field(init=False)
    kubelet: Server = field(init=False)
    kube_proxy: Server = field(init=False)
    dns: Server = field(init=False)
    snapshotter: str = "overlayfs"
    node_name: str = NAME

    @classmethod
    def start(cls, run_dir: Path, *, logs: Path | None = None, say: Callable[[str], None] = tell) -> Node:
        """Start it; ready when pods run. `run_dir` is made, and removed by `stop()`; logs elsewhere stay."""
        requirements.check()
        for each in leftovers.sweep():
            say(f"removed what a killed run had left: {each}")
        node = cls(run_dir, logs or run_dir / "logs", say, owners.new_name())
        try:
            node._start()
        except BaseException:
            node.stop()
            raise
        return node

    def _start(self) -> None:
        began = time.monotonic()
        self.run_dir.mkdir(parents=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self.sandbox = Sandbox.start(self.run_dir, self.logs)
        self.block = network.connect(self.sandbox, network.interface_of(self.name))
        cgroups.make(self.name)
        self.say(f"starting a Kubernetes node on {self.block.node}; logs: {self.logs}")
        self.snapshotter = self._find_snapshotter()
        self.cluster = NodeControlPlane(self.logs, self.sandbox, self.block)
        self._define_servers()
        self.containerd.launch()  # meanwhile
        self.cluster.start_servers()
        self.say(f"control plane ready after {time.monotonic() - began:.1f} s")
        self.containerd.wait_ready()
        self.load_image(pause.write(self.run_dir / "pause.tar"))
        self.kubelet.launch()
        self.dns.launch()
        self.kube_proxy.start()
        self.dns.wait_ready()
        self.wait_ready()
        self.say(f"node ready after {time.monotonic() - began:.1f} s")

    def _define_servers(self) -> None:
        components = Components(
            run_dir=self.run_dir,
            block=self.block,
            cgroup=self.name,
            snapshotter=self.snapshotter,
            kubelet_client=self.cluster.kubelet_client,
            node_kubeconfig=self.cluster.kubeconfig_of(NODE),
            proxy_kubeconfig=self.cluster.kubeconfig_of("system:kube-proxy"),
        )
        components.write()

        def server(name: str, argv: Callable[[], list[str]], is_ready: Callable[[], bool]) -> Server:
            return Server(name, self.logs, argv, is_ready, into=self.sandbox.launch)

        def healthy(port: int) -> Callable[[], bool]:
            return lambda: answers(f"http://{self.block.node}:{port}/healthz")

        self.containerd = server("containerd", components.containerd, self._containerd_ready)
        self.kubelet = server("kubelet", components.kubelet, healthy(KUBELET_HEALTH))
        self.kube_proxy = server("kube-proxy", components.kube_proxy, healthy(PROXY_HEALTH))
        self.dns = server("dns", components.dns, lambda: self.sandbox.bound("udp", dns.PORT))

    def _find_snapshotter(self) -> str:
        """Layers as overlays, unless the directory is on one itself, as in a container: then as copies."""
        with tempfile.TemporaryDirectory(dir=self.run_dir) as trial:
            for name in ("lower", "upper", "work", "merged"):
                (Path(trial) / name).mkdir()
            options = ",".join(f"{name}dir={trial}/{name}" for name in ("lower", "upper", "work"))
            script = f"mount -t overlay -o {options} trial {trial}/merged && umount {trial}/merged"
            return (
                "overlayfs" if self.sandbox.run("sh", "-c", script, check=False).returncode == 0 else "native"
            )

    def stop(self) -> None:
        """Kill and remove all of it. The interface first: it must not outlive us when something dies slowly."""
        network.disconnect(network.interface_of(self.name))
        if hasattr(self, "sandbox"):
            self.sandbox.stop()
        if hasattr(self, "cluster"):
            self.cluster.stop()
        if hasattr(self, "containerd"):
            for server in self._servers:
                if server.process is not None:
                    server.process.wait()
        cgroups.remove(self.name)
        shutil.rmtree(self.run_dir)

    def wait_ready(self, *, timeout_s: float = READY_SECONDS) -> None:
        """Until the kubelet says that its node is ready, or one of the servers ends."""
        deadline = time.monotonic() + timeout_s
        while not self.ready:
            for server in self._servers:
                if not server.alive:
                    raise Gone(f"{server.name} ended ({server.log}):\n{server.tail()}")
            if time.monotonic() > deadline:
                raise Gone(
                    f"the node was not ready within {timeout_s:g} s: {self.conditions}\n"
                    f"{self.kubelet.log}:\n{self.kubelet.tail()}\n{self.containerd.log}:\n{self.containerd.tail()}"
                )
            time.sleep(POLL_SECONDS)

    @property
    def _servers(self) -> tuple[Server, ...]:
        return self.containerd, self.kubelet, self.kube_proxy, self.dns

    @property
    def conditions(self) -> dict[str, str]:
        """Of the Node: type → status."""
        with suppress(Refused):
            found = self.cluster.rest.get(f"/api/v1/nodes/{NAME}")
            return {each["type"]: each["status"] for each in found["status"].get("conditions", ())}
        return {}

    @property
    def ready(self) -> bool:
        return self.conditions.get("Ready") == "True"

    def load_image(self, archive: Path) -> list[str]:
        """Bring the images of an archive to the node; returns their names. They are never pulled."""
        return images.load(self.sandbox, archive, self.snapshotter)

    def redis(self, namespace: str, *, host: str | None = None) -> redis.NodeRedis:
        """A Redis of the image localhost/redis:test, with AOF on; `host` fixes its address among `block.services`."""
        return redis.start(self, namespace, host=host)

    def pids(self, pod: Object) -> set[int]:
        """This machine's numbers for the processes of a pod's first container."""
        statuses = {each["name"]: each for each in pod["status"]["containerStatuses"]}
        first = statuses[pod["spec"]["containers"][0]["name"]]
        container_id = first["containerID"].removeprefix("containerd://")
        return cgroups.of_container(self.name, container_id)

    def _containerd_ready(self) -> bool:
        with socket.socket(socket.AF_UNIX) as trial:
            try:
                trial.connect(f"/proc/{self.sandbox.pid}/root{SOCKET}")
            except OSError:
                return False
        return True
