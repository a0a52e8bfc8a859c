"""A control plane and an operator to measure, with the operator's rights from the chart."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from tests.cluster.harness.control_plane import ControlPlane
from tests.cluster.harness.resources import install_crd, make_namespace
from tests.cluster.operator import Operator, install_rights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.harness.audit import AuditEvent

NAMESPACE: Final = "bench"
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
NOT_ABOUT_QUEUES: Final = frozenset({"leases"})
TICKS: Final = os.sysconf("SC_CLK_TCK")
KINDS: Final = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ConfigMap": f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    "Service": f"/api/v1/namespaces/{NAMESPACE}/services",
    "PodDisruptionBudget": f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "CronJob": f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs",
}
PER_QUEUE: Final = {"PodDisruptionBudget": 2, "Deployment": 2}
"""Children of a kind that a queue has; one of the others."""


@dataclass
class Stage:
    """What the phases work on."""

    plane: ControlPlane
    kubeconfig: Path
    operator: Operator

    def restart(self) -> float:
        """Stop the operator and start another; seconds until the new one leads and has seen everything."""
        self.operator.process.stop()
        began = time.monotonic()
        self.operator = Operator.start(self.kubeconfig, NAMESPACE).wait_ready(timeout_s=120)
        return time.monotonic() - began

    def writes(self, since: int) -> list[AuditEvent]:
        """What the operator wrote since a mark of the audit log."""
        return [
            event
            for event in self.plane.audit_events(since)
            if event.user.startswith(f"system:serviceaccount:{NAMESPACE}:")
            and event.verb in WRITES
            and event.resource not in NOT_ABOUT_QUEUES
        ]

    def children(self) -> dict[str, int]:
        """How many objects of each kind there are, without reading them."""
        return {kind: self._count(path) for kind, path in KINDS.items()}

    def _count(self, path: str) -> int:
        page = self.plane.rest.get(path, limit="1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    @property
    def rss_mib(self) -> float:
        """The operator's resident memory."""
        status = Path(f"/proc/{self.operator.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def peak_rss_mib(self) -> float:
        """The most it ever was."""
        status = Path(f"/proc/{self.operator.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the operator so far."""
        stat = Path(f"/proc/{self.operator.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS

    def settled(self, *, quiet_s: float = 10.0, timeout_s: float = 600.0) -> None:
        """Wait until the operator has written nothing for a while: pods, too, take their time to be made."""
        deadline = time.monotonic() + timeout_s
        mark, since = self.plane.audit_mark(), time.monotonic()
        while time.monotonic() - since < quiet_s:
            if self.writes(mark):
                mark, since = self.plane.audit_mark(), time.monotonic()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the operator still writes after {timeout_s:g} s")
            time.sleep(0.5)


@contextmanager
def stage(say: Callable[[str], None]) -> Iterator[Stage]:
    """Start all of it, and stop it at the end."""
    with TemporaryDirectory(prefix="delayq-bench-") as directory:
        say("starting a control plane and the operator")
        plane = ControlPlane.start(Path(directory))
        try:
            install_crd(plane)
            make_namespace(plane, NAMESPACE)
            kubeconfig = install_rights(plane, NAMESPACE)
            operator = Operator.start(kubeconfig, NAMESPACE).wait_ready()
            ready = Stage(plane, kubeconfig, operator)
            try:
                yield ready
            finally:
                ready.operator.process.stop()
        finally:
            plane.stop()
