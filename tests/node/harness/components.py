"""Configurations and command lines of a node's programs: containerd, kubelet, kube-proxy, and the pods' network."""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.cluster.harness.binaries import ROOT, binary
from tests.node.harness import cgroups, dns, pause, programs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node.harness.network import Block

NAME: Final = "delayq-node"
# Short paths of their own: /run is empty in the sandbox, and a socket's path must not be long.
SOCKET: Final = "/run/containerd/containerd.sock"
KUBELET_HEALTH, PROXY_HEALTH = 10248, 10256


@dataclass(frozen=True, slots=True)
class Components:
    """Of one node. What they keep is below its run directory, what only has to last as long as they, in /run."""

    run_dir: Path
    block: Block
    cgroup: str
    snapshotter: str
    kubelet_client: Path
    node_kubeconfig: Path
    proxy_kubeconfig: Path

    def write(self) -> None:
        for name in ("containerd", "kubelet", "pod-logs", "cni"):
            (self.run_dir / name).mkdir()
        (self.run_dir / "containerd.toml").write_text(self._containerd_config())
        (self.run_dir / "cni" / "10-pods.conflist").write_text(json.dumps(self._network()))
        (self.run_dir / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_config()))
        (self.run_dir / "kube-proxy.yaml").write_text(yaml.safe_dump(self._proxy_config()))

    # --- Command lines.

    def containerd(self) -> list[str]:
        return ["containerd", f"--config={self.run_dir / 'containerd.toml'}"]

    def kubelet(self) -> list[str]:
        return [
            binary("kubelet"),
            f"--config={self.run_dir / 'kubelet.yaml'}",
            f"--kubeconfig={self.node_kubeconfig}",
            f"--root-dir={self.run_dir / 'kubelet'}",
            f"--cert-dir={self.run_dir / 'kubelet' / 'pki'}",
            f"--hostname-override={NAME}",
            f"--node-ip={self.block.node}",
        ]

    def kube_proxy(self) -> list[str]:
        return [binary("kube-proxy"), f"--config={self.run_dir / 'kube-proxy.yaml'}"]

    def dns(self) -> list[str]:
        options = (f"--address={self.block.node}", f"--kubeconfig={self.proxy_kubeconfig}")
        return ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", dns.__name__, *options]

    # --- Configurations.

    def _containerd_config(self) -> str:
        others = ("aufs", "btrfs", "devmapper", "zfs")
        disabled = [
            "io.containerd.internal.v1.opt",
            *(f"io.containerd.snapshotter.v1.{name}" for name in others),
        ]
        return textwrap.dedent(f"""
            version = 2
            root = "{self.run_dir / "containerd"}"
            state = "/run/containerd"
            disabled_plugins = {json.dumps(disabled)}
            [grpc]
            address = "{SOCKET}"
            [plugins."io.containerd.grpc.v1.cri"]
            sandbox_image = "{pause.IMAGE}"
            # Where a score may not be lowered, runc would not start anything.
            restrict_oom_score_adj = true
            [plugins."io.containerd.grpc.v1.cri".containerd]
            snapshotter = "{self.snapshotter}"
            default_runtime_name = "runc"
            [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
            runtime_type = "io.containerd.runc.v2"
            [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
            SystemdCgroup = false
            [plugins."io.containerd.grpc.v1.cri".cni]
            bin_dir = "{programs.cni()}"
            conf_dir = "{self.run_dir / "cni"}"
            """)

    def _network(self) -> dict[str, Any]:
        """A pair of interfaces for each pod and no bridge.

        So every packet is routed, and kube-proxy's rules see the answers as well, without br_netfilter: a module
        that would change the bridges of the whole machine.
        """
        addresses = {
            "type": "host-local",
            "dataDir": "/run/cni",
            "ranges": [[{"subnet": str(self.block.pods)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        plugins = [{"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": addresses}]
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}

    def _kubelet_config(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": str(self.block.node),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.kubelet_client)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "healthzBindAddress": str(self.block.node),
            "healthzPort": KUBELET_HEALTH,
            # Its own tree of cgroups, beside others on this machine.
            "cgroupRoot": f"/{self.cgroup}",
            "cgroupDriver": "cgroupfs",
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            # A developer's disk may be rather full, and nothing here stays long.
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"}
            | {"nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
            "imageGCHighThresholdPercent": 100,
            # Off, the kubelet starts on any file system, and evicts nothing.
            "localStorageCapacityIsolation": False,
            "maxPods": 250,
            # The defaults are for nodes with hundreds of pods: here, a pod sees a changed Secret within seconds, and a
            # container that crashes again and again waits as long each time as it does the first time.
            "syncFrequency": "10s",
            "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
            "podLogsDir": str(self.run_dir / "pod-logs"),
            "volumePluginDir": str(self.run_dir / "kubelet" / "plugins"),
            "clusterDNS": [str(self.block.node)],
            "clusterDomain": dns.DOMAIN,
            "resolvConf": "/run/resolv.conf",
            "serializeImagePulls": False,
            # Lowering the one and raising the other takes rights that a sandbox may not give.
            "oomScoreAdj": 0,
            "maxOpenFiles": 10_000,
            **({} if cgroups.unified() else {"cgroupsPerQOS": True}),
            "kubeAPIQPS": 100,
            "kubeAPIBurst": 200,
        }

    def _proxy_config(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clientConnection": {"kubeconfig": str(self.proxy_kubeconfig)},
            "hostnameOverride": NAME,
            "bindAddress": str(self.block.node),
            "clusterCIDR": str(self.block.pods),
            "healthzBindAddress": f"{self.block.node}:{PROXY_HEALTH}",
            "metricsBindAddress": "127.0.0.1:10249",
            # How many connections are tracked is the whole machine's setting, and enough.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
            "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
            "oomScoreAdj": 0,
        }
