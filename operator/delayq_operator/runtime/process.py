"""The operator process: composes the parts, stands by, leads, stops. supervision.py runs them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.kube.errors import Denied, KubernetesError, NoCluster

from delayq_operator.base.errors import LeadershipLost
from delayq_operator.base.supervision import Parts
from delayq_operator.base.work_queue import WorkQueue
from delayq_operator.cache.inventory import Inventory
from delayq_operator.kube.api import Api, own_namespace
from delayq_operator.kube.lease import Leadership
from delayq_operator.polling.issuer import IssuerKeys
from delayq_operator.polling.scanner_poller import ScannerPoller
from delayq_operator.polling.worker_poller import WorkerPoller
from delayq_operator.reconcile.apply import Applier
from delayq_operator.reconcile.deletion import Deletion
from delayq_operator.reconcile.facts import FactSource
from delayq_operator.reconcile.lists import Lists
from delayq_operator.reconcile.reconcile import Reconciler
from delayq_operator.reconcile.report import Reporter
from delayq_operator.reconcile.scaler import Scaler
from delayq_operator.runtime.delivery import Delivery
from delayq_operator.runtime.health import Health
from delayq_operator.scaling.autoscaler import Autoscaler
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scaling.victims import Victims
from delayq_operator.scaling.workers import Workers
from delayq_operator.status.events import Recorder

if TYPE_CHECKING:
    from delayq_operator.desired.facts import Setting

log = logging.getLogger(__name__)

STOPPED: Final = 0
FAILED: Final = 1
DENIED: Final = 4
LEADERSHIP_LOST: Final = 5

RELEASE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the operator."""

    setting: Setting
    namespaces: tuple[str, ...]
    """The namespaces to serve; empty: all."""
    lease_name: str | None
    """Name of the Lease; None: no leader election."""
    lease_namespace: str | None
    """None: the operator's own."""
    host: str
    port: int
    concurrency: int
    resync_seconds: float
    list_seconds: float
    silence_seconds: float


class Operator:
    """All parts of the operator, connected."""

    def __init__(self, api: Api, options: Options) -> None:
        self.api, self.options = api, options
        identity = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
        self.leadership = _leadership(api, options, identity)
        api.may_write = lambda: self.leadership.leads
        self.parts = Parts()
        self.work = WorkQueue()
        self.inventory = Inventory(self.work.enqueue)
        self.queues = self.inventory.queues
        self.recorder = Recorder(api, identity)
        self.facts = FactSource()
        self.lists = Lists(
            *(api, self.inventory, self.facts),
            namespaces=options.namespaces,
            enqueue_all=self._enqueue_all,
        )
        self.delivery = Delivery(
            *(self.lists, self.inventory),
            namespaces=options.namespaces,
            list_seconds=options.list_seconds,
            silence_seconds=options.silence_seconds,
        )
        self.health = Health(self.leadership, self.lists, self.delivery, self.work)
        configs = ScalingConfigs(self.queues)
        workers = Workers(self.inventory, configs, self.work)
        autoscaler = Autoscaler(self.inventory, configs, workers, self.work)
        self.scraper = ScannerPoller(self.inventory, configs, autoscaler, workers=workers, work=self.work)
        self.survey = WorkerPoller(self.queues, configs, workers)
        self.issuer = IssuerKeys(api, self.queues, self.facts.issuer, self.work.enqueue)
        self.reconciler = self._reconciler()

    def _reconciler(self) -> Reconciler:
        applier = Applier(self.api, self.inventory)
        victims = Victims(self.api, self.inventory.pods, self.survey.busy, self.work.enqueue)
        self.deletion = Deletion(
            self.api,
            inventory=self.inventory,
            scraper=self.scraper,
            applier=applier,
            facts=self.facts,
            recorder=self.recorder,
            setting=self.options.setting,
        )
        return Reconciler(
            self.inventory,
            facts=self.facts,
            applier=applier,
            scraper=self.scraper,
            reporter=Reporter(self.api, self.inventory, self.work, self.recorder),
            deletion=self.deletion,
            scaler=Scaler(self.api, self.inventory, self.scraper.autoscaler, victims),
            setting=self.options.setting,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Stand by, then lead, until `stop`. Raises the error that ended it, if any."""
        self.parts.start("leadership", self.leadership.run())
        self.parts.start("health", self.health.run())
        try:
            await self.parts.unless(stop, self._lead(stop))
        finally:
            await self.parts.end()
            await self._release()
            await self.leadership.resign()

    async def _release(self) -> None:
        """Remove the finalizers in the operator's namespace if that is being deleted."""
        own = self.options.setting.own_namespace
        if own is None or not self.leadership.leads:
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self.deletion.release(own)
        except (KubernetesError, TimeoutError) as error:
            log.warning("finalizers_not_released", extra={"fields": {"namespace": own, "error": str(error)}})

    async def _lead(self, stop: asyncio.Event) -> None:
        await self.leadership.confirmed()
        self.inventory.rivals.me = self.facts.installation = self.leadership.installation
        self.parts.start("events", self.recorder.run())
        self.parts.start("delivery", self.delivery.run())
        await self.delivery.synced.wait()  # before that, what exists could seem to be gone
        for number in range(self.options.concurrency):
            self.parts.start(
                f"worker-{number}",
                self.work.run(self.reconciler.reconcile, allowed=self.leadership.confirmed),
            )
        self.parts.start("scraper", self.scraper.run())
        self.parts.start("survey", self.survey.run())
        self.parts.start("issuer", self.issuer.run())
        self.parts.start("resync", self._resync())
        await stop.wait()

    async def _resync(self) -> None:
        """Enqueue every queue periodically."""
        period = self.options.resync_seconds
        while True:
            for key in self.queues.keys():  # noqa: SIM118 -- a method, and a copy
                self.work.enqueue_in(key, random.uniform(0, period))
            await asyncio.sleep(period)

    def _enqueue_all(self) -> None:
        for key in self.queues.keys():  # noqa: SIM118 -- a method, and a copy
            self.work.enqueue(key)


def _leadership(api: Api, options: Options, identity: str) -> Leadership:
    if options.lease_name is None:
        return Leadership()
    namespace = options.lease_namespace or own_namespace() or "default"
    own = os.environ.get("POD_UID", "") if namespace == own_namespace() else ""
    return Leadership(api, namespace=namespace, name=options.lease_name, identity=identity, pod_uid=own)


async def run(options: Options) -> int:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        api = await Api.connect()
    except NoCluster as error:
        hint = "run it in a pod, or set KUBECONFIG"
        log.critical("cluster_not_found", extra={"fields": {"error": str(error), "hint": hint}})
        return FAILED
    operator = Operator(api, options)
    server = operator.health.server()
    port = await server.start(options.host, options.port)
    log.info("started", extra={"fields": {"namespaces": list(options.namespaces) or "all", "port": port}})
    try:
        return await _verdict(operator, stop)
    finally:
        await server.close()
        await api.close()


async def _verdict(operator: Operator, stop: asyncio.Event) -> int:
    try:
        await operator.run(stop)
    except Denied as error:
        hint = "compare the chart's Role with the rights of the service account"
        log.critical("permissions_missing", extra={"fields": {"error": str(error), "hint": hint}})
        return DENIED
    except LeadershipLost as error:
        log.warning("leadership_lost", extra={"fields": {"error": str(error)}})
        return LEADERSHIP_LOST
    except Exception:
        log.exception("operator_failed")
        return FAILED
    log.info("stopped")
    return STOPPED
