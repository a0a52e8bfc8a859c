"""Leader election with a Lease, so that one operator works and others stand by.

Two leaders would write the same objects, which is harmless with server-side apply; the Lease prevents it in normal
operation. The leader election of the Kubernetes client ends when the API server is unavailable for longer than the
lease duration. Here, the leader stops writing, and continues once it has renewed the Lease, unless another holder has
acquired it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from delayq.kube.errors import Conflict, Denied, KubernetesError, NotFound
from delayq.kube.objects import Kind

from delayq_operator.base import metrics
from delayq_operator.base.errors import LeadershipLost

if TYPE_CHECKING:
    from delayq.kube.objects import Object

    from delayq_operator.kube.api import Api

log = logging.getLogger(__name__)

LEASE: Final = Kind("coordination.k8s.io/v1", "Lease", "leases")
LEASE_SECONDS: Final = 15
RENEW_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 4.0  # after a lost request, two more must fit before the Lease expires
# No write starts within this time before another may lead; one in progress may end later.
MARGIN_SECONDS: Final = 2.0
DENIED_SECONDS: Final = 30.0
RESIGN_SECONDS: Final = 1.0


class Leadership:
    """Leadership of this operator. Without a Lease it always leads."""

    def __init__(
        self,
        api: Api | None = None,
        *,
        namespace: str = "",
        name: str = "",
        identity: str = "",
        pod_uid: str = "",
    ) -> None:
        """Compete for Lease `namespace`/`name` as `identity`; without `api`, always lead.

        `pod_uid`: UID of that pod, which owns the Lease: when the pod is deleted, a successor does not wait.
        """
        api = api and api.hasty(ANSWER_SECONDS)  # other slow requests must not delay the renewal
        self._api, self._namespace, self._name, self._identity = api, namespace, name, identity
        self.installation = ""
        """Age and name of the Lease, equal for all candidates; empty before the first read, and without a Lease."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": identity, "uid": pod_uid}
        self._owners = [owner] if pod_uid else []
        self._renewed = asyncio.Event()
        self._renewed_at = float("-inf")
        self._seen: tuple[str, float] = ("", 0.0)  # last version of the Lease, and when it was first seen
        self._held: Object | None = None  # the Lease as our last renewal left it
        self._was_leader = False
        self._answered_at = time.monotonic()

    @property
    def leads(self) -> bool:
        """Whether no other process can be the leader now."""
        return self._api is None or time.monotonic() - self._renewed_at < LEASE_SECONDS - MARGIN_SECONDS

    @property
    def unanswered_seconds(self) -> float:
        """How long ago the Lease was last read or renewed; 0 without a Lease."""
        return 0.0 if self._api is None else time.monotonic() - self._answered_at

    async def confirmed(self) -> None:
        """Wait until this operator certainly leads; called before each write."""
        while not self.leads:
            self._renewed.clear()
            await self._renewed.wait()

    async def run(self) -> None:
        """Hold the Lease until cancelled. LeadershipLost if another operator acquires it; Denied by RBAC."""
        denied_since: float | None = None
        while self._api is not None:
            try:
                await self._try(self._api)
                denied_since = None
            except Denied:
                denied_since = denied_since or time.monotonic()
                if time.monotonic() - denied_since > DENIED_SECONDS:
                    raise
            except Conflict:
                pass  # another process wrote it first; read it again
            except LeadershipLost:
                raise
            except KubernetesError as error:
                log.info("lease_not_renewed", extra={"fields": {"error": str(error)}})
            metrics.LEADER.set(self.leads)
            pause = RENEW_SECONDS if self.leads else RETRY_SECONDS
            await asyncio.sleep(pause * random.uniform(0.8, 1.0))
        metrics.LEADER.set(1)
        self._renewed.set()
        await asyncio.Event().wait()

    async def _try(self, api: Api) -> None:
        asked_at = time.monotonic()
        lease = await self._renew(api) or await self._take(api)
        if lease is None:
            return
        created = lease["metadata"].get("creationTimestamp") or _now()
        self.installation = f"{created} {self._namespace}/{self._name}"
        self._lead(asked_at, lease["metadata"]["resourceVersion"])
        self._held = lease

    async def _renew(self, api: Api) -> Object | None:
        """Renew the Lease in one request, if it is unchanged since our last renewal; None if not."""
        held, self._held = self._held, None
        if held is None or not self.leads:
            return None
        try:
            return await api.replace(LEASE, self._lease(held))
        except (Conflict, NotFound):
            return None

    async def _take(self, api: Api) -> Object | None:
        """Read the Lease, and acquire or renew it; None while another operator holds it."""
        try:
            lease = await api.get(LEASE, self._namespace, self._name)
        except NotFound:
            return await api.create(LEASE, self._lease())
        self._answered_at = time.monotonic()
        return await api.replace(LEASE, self._lease(lease)) if self._may_take(lease) else None

    def _may_take(self, lease: Object) -> bool:
        """Whether the Lease is ours, free, or expired by the local clock."""
        holder = lease["spec"].get("holderIdentity") or ""
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        if holder in ("", self._identity):
            return True
        if self._was_leader:
            raise LeadershipLost(f"{holder} holds the Lease {self._namespace}/{self._name}")
        length = lease["spec"].get("leaseDurationSeconds") or LEASE_SECONDS
        return time.monotonic() - self._seen[1] > length

    def _lead(self, asked_at: float, version: str) -> None:
        if not self._was_leader:
            log.info(
                "leadership_acquired",
                extra={"fields": {"lease": f"{self._namespace}/{self._name}", "as": self._identity}},
            )
        self._was_leader, self._renewed_at, self._seen = True, asked_at, (version, asked_at)
        self._answered_at = time.monotonic()
        self._renewed.set()

    def _lease(self, before: Object | None = None) -> Object:
        now = _now()
        spec = before["spec"] if before else {}
        ours = spec.get("holderIdentity") == self._identity
        metadata = before["metadata"] if before else {"name": self._name, "namespace": self._namespace}
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {**metadata, "ownerReferences": self._owners},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": LEASE_SECONDS,
                "acquireTime": spec.get("acquireTime", now) if ours else now,
                "renewTime": now,
                "leaseTransitions": spec.get("leaseTransitions", 0) + (0 if ours or not before else 1),
            },
        }

    async def resign(self) -> None:
        """Release the Lease, so that a successor need not wait for its expiry."""
        if self._api is None or not self.leads:
            return
        try:
            async with asyncio.timeout(RESIGN_SECONDS):
                lease = await self._api.get(LEASE, self._namespace, self._name)
                if lease["spec"].get("holderIdentity") == self._identity:
                    lease["spec"].update(holderIdentity="", leaseDurationSeconds=1)
                    lease["metadata"].pop("ownerReferences", None)  # it is free, and keeps its age
                    await self._api.replace(LEASE, lease)
        except (KubernetesError, TimeoutError) as error:
            log.info("lease_not_released", extra={"fields": {"error": str(error)}})


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
