"""A control plane of our own on 127.0.0.1: etcd, kube-apiserver, kube-controller-manager.

No kubelet and no scheduler: pods are made and stay Pending, unless a ProcessNode runs them (node.py). Everything is
in one directory, and every process dies with the one that started it. tests/node has one with a real node, made from
this: what it does differently is in methods and fields of their own here.
"""

from __future__ import annotations

import secrets
import shutil
import ssl
import subprocess
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from tests.cluster.harness import audit, kubeconfig
from tests.cluster.harness.binaries import binary
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.server import LoggedProcess, Server, free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOPBACK: Final = "127.0.0.1"
ADMIN: Final = "delayq-tests-admin"
NODE: Final = "system:node:delayq-node"
UNUSED: Final = (
    *("persistentvolume-attach-detach", "persistentvolume-binder", "persistentvolume-expander"),
    *("ephemeral-volume", "volumeattributesclass-protection", "resourceclaim", "device-taint-eviction"),
    *("certificatesigningrequest-approving", "certificatesigningrequest-cleaner"),
    *("certificatesigningrequest-signing", "podcertificaterequest-cleaner"),
    *("legacy-serviceaccount-token-cleaner", "storageversion-garbage-collector", "ttl"),
    *("daemonset", "replicationcontroller", "endpoints", "endpointslice", "endpointslice-mirroring"),
    "node-lifecycle",  # which takes a node without a kubelet for dead
)
"""Controllers that no test needs where processes replace pods: they take half of the manager's time."""
GROUPS: Final = {ADMIN: ["system:masters"], NODE: ["system:nodes"]}


@dataclass
class Ports:
    """Chosen at the first start, kept over restarts."""

    etcd: int = 0
    etcd_peer: int = 0
    api_server: int = 0

    def choose_etcd(self) -> None:
        self.etcd, self.etcd_peer = free_port(), free_port()

    def choose_api_server(self) -> None:
        self.api_server = free_port()


class ControlPlane(Cluster):
    """Start it with `ControlPlane.start(directory)`, and stop it; its servers can be stopped one by one."""

    address: str = LOOPBACK
    """Where the API server listens."""
    users: tuple[str, ...] = (ADMIN, "system:kube-controller-manager")

    def __init__(self, directory: Path, into: Callable[..., LoggedProcess] = LoggedProcess.into) -> None:
        """`into` is what starts a process."""
        super().__init__(directory, directory / "admin.kubeconfig")
        self._into = into
        self._ports = Ports()
        # The key of its own certificate serves for the tokens of service accounts too: one key less to make.
        self._token_keys = [directory / "certificates" / "apiserver.key"]
        self._tokens = {name: secrets.token_hex(16) for name in self.users}
        self.etcd = self._server("etcd", self._etcd, self._etcd_ready, self._ports.choose_etcd)
        self.api_server = self._server(
            "kube-apiserver", self._api_server, self._api_ready, self._ports.choose_api_server
        )
        self.controller_manager = self._server(
            "kube-controller-manager", self._controller_manager, self._controllers_ready
        )

    def _server(
        self,
        name: str,
        argv: Callable[[], list[str]],
        is_ready: Callable[[], bool],
        choose_ports: Callable[[], None] = lambda: None,
    ) -> Server:
        return Server(name, self.dir, argv, is_ready, choose_ports, self._into)

    @classmethod
    def start(cls, directory: Path) -> Self:
        """Start all of it in an empty directory; ready when service accounts are being made."""
        plane = cls(directory)
        try:
            plane.start_servers()
        except BaseException:
            plane.stop()
            raise
        return plane

    def start_servers(self) -> None:
        self.dir.mkdir(parents=True, exist_ok=True)
        self._prepare()
        self.etcd.start_anywhere()
        self.api_server.start_anywhere()
        self._write_kubeconfigs()
        self.controller_manager.start()

    def repair(self) -> None:
        """Undo what a test did to the servers: start what is dead, resume what is paused."""
        for server in (self.etcd, self.api_server):
            server.repair()
        if self.controller_manager.started_at < self.api_server.started_at:
            self.controller_manager.stop()  # its watches would stay away for up to half a minute
        self.controller_manager.repair()

    def stop(self) -> None:
        """Stop all of it and drop the data; logs stay."""
        self.close()
        for server in (self.controller_manager, self.api_server, self.etcd):
            if server.alive:
                server.kill()
        shutil.rmtree(self.dir / "etcd", ignore_errors=True)

    @property
    def _url(self) -> str:  # `url` is read from the kubeconfig, which is written once the API server is up
        return f"https://{self.address}:{self._ports.api_server}"

    @property
    def authority(self) -> Path:
        """The API server signs its own certificate, and appends the authority that it signed it with."""
        return self.dir / "certificates" / "apiserver.crt"

    @property
    def token_key(self) -> Path:
        """What the API server signs tokens of service accounts with, once it has started."""
        return self._token_keys[-1]

    def rotate_token_key(self) -> None:
        """Sign tokens with another key from now on; those that are signed already stay valid."""
        key = self.dir / f"tokens-{len(self._token_keys)}.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        self._token_keys.append(key)
        self.api_server.stop()
        self.repair()

    def audit_mark(self) -> int:
        """A place in the audit log, for `audit_events(since=…)`: what follows comes after this call."""
        log = self.dir / "audit.log"
        return log.stat().st_size if log.exists() else 0

    def audit_events(self, since: int = 0, *, user: str | None = None) -> list[audit.AuditEvent]:
        """Requests answered since a mark, of one user or of all but the control plane itself."""
        events = audit.read(self.dir / "audit.log", since)
        return [event for event in events if user in {None, event.user}]

    def _prepare(self) -> None:
        (self.dir / "audit-policy.yaml").write_text(audit.POLICY)
        lines = [",".join([token, name, name, *GROUPS.get(name, ())]) for name, token in self._tokens.items()]
        (self.dir / "tokens.csv").write_text("\n".join(lines) + "\n")

    @property
    def admin_token(self) -> str:
        return self._tokens[ADMIN]

    def kubeconfig_of(self, user: str) -> Path:
        """Of one of `users`."""
        return self.kubeconfig if user == ADMIN else self.dir / f"{user.rpartition(':')[2]}.kubeconfig"

    def _write_kubeconfigs(self) -> None:
        cluster = {"server": self._url, "certificate-authority": str(self.authority)}
        for user, token in self._tokens.items():
            kubeconfig.write(self.kubeconfig_of(user), cluster=cluster, token=token)

    # --- The servers' command lines.

    def _etcd(self) -> list[str]:
        url, peer = f"http://{LOOPBACK}:{self._ports.etcd}", f"http://{LOOPBACK}:{self._ports.etcd_peer}"
        return [
            binary("etcd"),
            *(f"--data-dir={self.dir / 'etcd'}", "--name=default", f"--initial-cluster=default={peer}"),
            *(f"--listen-client-urls={url}", f"--advertise-client-urls={url}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            "--unsafe-no-fsync",  # the machine may lose its power, the tests will not care
            *("--logger=zap", "--log-level=warn", "--quota-backend-bytes=4294967296"),
        ]

    def _api_server(self) -> list[str]:
        return [
            binary("kube-apiserver"),
            f"--etcd-servers=http://{LOOPBACK}:{self._ports.etcd}",
            *(f"--bind-address={self.address}", f"--advertise-address={self.address}"),
            *(f"--secure-port={self._ports.api_server}", f"--cert-dir={self.authority.parent}"),
            *self._network(),
            *("--authorization-mode=Node,RBAC", f"--token-auth-file={self.dir / 'tokens.csv'}"),
            # As careful administrators have it: who blocks the deletion of an owner needs the right to.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            *("--service-account-issuer=https://kubernetes.default.svc", "--allow-privileged"),
            *(f"--service-account-key-file={key}" for key in self._token_keys),
            f"--service-account-signing-key-file={self.token_key}",
            f"--audit-policy-file={self.dir / 'audit-policy.yaml'}",
            f"--audit-log-path={self.dir / 'audit.log'}",
            "--audit-log-mode=blocking-strict",  # answered means logged
            # No rotation: marks are offsets. A thousand requests are 1 MB.
            "--audit-log-maxsize=2000",
            # Without it, a SIGTERM waits a minute for clients to end their watches.
            "--shutdown-watch-termination-grace-period=2s",
        ]

    def _network(self) -> list[str]:
        # There are no endpoints on loopback addresses: the `kubernetes` Service stays without any.
        return ["--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16"]

    def _controller_manager(self) -> list[str]:
        return [
            binary("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig_of('system:kube-controller-manager')}",
            *("--secure-port=0", "--leader-elect=false", "--use-service-account-credentials"),
            f"--service-account-private-key-file={self._token_keys[0]}",
            f"--root-ca-file={self.authority}",
            # The defaults, 20 and 30, would make a test of a thousand queues wait for this process.
            *("--kube-api-qps=500", "--kube-api-burst=1000"),
            "--horizontal-pod-autoscaler-sync-period=2s",  # 15 s is how long a test would wait for each step
            *self._controllers(),
        ]

    def _controllers(self) -> list[str]:
        return [f"--controllers=*,{','.join(f'-{name}-controller' for name in UNUSED)}"]

    # --- When they are ready.

    def _etcd_ready(self) -> bool:
        return answers(f"http://{LOOPBACK}:{self._ports.etcd}/health")

    def _api_ready(self) -> bool:
        return self.authority.exists() and answers(
            f"{self._url}/readyz", authority=self.authority, token=self._tokens[ADMIN]
        )

    def _controllers_ready(self) -> bool:
        found = f"{self._url}/api/v1/namespaces/default/serviceaccounts/default"
        return answers(found, authority=self.authority, token=self._tokens[ADMIN])


def answers(url: str, *, authority: Path | None = None, token: str = "") -> bool:
    """Whether there is a 200 at the URL."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310
    with suppress(OSError):
        context = ssl.create_default_context(cafile=authority) if authority else None
        with urllib.request.urlopen(request, timeout=5, context=context):  # noqa: S310  our own servers
            return True
    return False
