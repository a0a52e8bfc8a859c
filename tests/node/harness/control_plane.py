"""The control plane of a node: the one of tests/cluster in the node's namespaces, and a scheduler."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from tests.cluster.harness.binaries import binary
from tests.cluster.harness.control_plane import ADMIN, NODE, ControlPlane

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node.harness.network import Block
    from tests.node.harness.sandbox import Sandbox

API_PORT: Final = 6443


class NodeControlPlane(ControlPlane):
    """Listens on the node's own address; etcd on the loopback interface in there."""

    users = (ADMIN, "system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy", NODE)

    def __init__(self, directory: Path, sandbox: Sandbox, block: Block) -> None:
        super().__init__(directory, sandbox.launch)
        self._sandbox = sandbox
        self._block = block
        self.address = str(block.node)
        self._ports.etcd, self._ports.etcd_peer, self._ports.api_server = 2379, 2380, API_PORT
        # No other process is in there to take a port.
        self.etcd.choose_ports = self.api_server.choose_ports = lambda: None
        self.scheduler = self._server("kube-scheduler", self._scheduler, lambda: True)

    @property
    def kubelet_client(self) -> Path:
        """The certificate that the API server shows to the kubelet; its key is beside it."""
        return self.dir / "kubelet-client.crt"

    def start_servers(self) -> None:
        super().start_servers()
        self.scheduler.start()

    def stop(self) -> None:
        super().stop()
        if self.scheduler.alive:
            self.scheduler.kill()

    def _prepare(self) -> None:
        super()._prepare()
        # It signs itself, and the kubelet takes it for the authority. It may do anything: it is the API server's.
        subprocess.run(
            [
                *(
                    "openssl",
                    "req",
                    "-x509",
                    "-nodes",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:prime256v1",
                ),
                *("-days", "30", "-subj", "/O=system:masters/CN=kube-apiserver"),
                *("-addext", "extendedKeyUsage=clientAuth"),
                *("-keyout", str(self.kubelet_client.with_suffix(".key")), "-out", str(self.kubelet_client)),
            ],
            check=True,
            capture_output=True,
        )

    def _network(self) -> list[str]:
        return [
            f"--service-cluster-ip-range={self._block.services}",
            f"--kubelet-client-certificate={self.kubelet_client}",
            f"--kubelet-client-key={self.kubelet_client.with_suffix('.key')}",
            # The node's name does not resolve.
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _controllers(self) -> list[str]:
        return []  # all of them

    def _scheduler(self) -> list[str]:
        return [
            binary("kube-scheduler"),
            f"--kubeconfig={self.kubeconfig_of('system:kube-scheduler')}",
            *("--secure-port=0", "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000"),
        ]

    def _etcd_ready(self) -> bool:
        """It cannot be asked from out here."""
        return self._sandbox.bound("tcp", self._ports.etcd)
