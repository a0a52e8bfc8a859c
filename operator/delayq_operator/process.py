"""The operator's process: puts the parts together, stands by, leads, stops.

Everything that runs for ever runs side by side; the first of them that ends, ends the process, for a watch that died or
rights that were withdrawn are nothing to carry on without.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from delayq_operator import handlers, names
from delayq_operator.api import Api, own_namespace
from delayq_operator.apply import Applier
from delayq_operator.ending import Ending
from delayq_operator.errors import Denied, LeadershipLost, NoCluster, OperatorError
from delayq_operator.events import Recorder
from delayq_operator.facts import Referees
from delayq_operator.health import Health
from delayq_operator.inventory import Children, Inventory, Pods, Queues, Versions
from delayq_operator.lease import Leadership
from delayq_operator.reconcile import Reconciler
from delayq_operator.reflector import Limits, Reflector
from delayq_operator.report import Reporter
from delayq_operator.scrape import Scraper
from delayq_operator.witness import Witness
from delayq_operator.work import Work

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from delayq_operator.desired.facts import Setting
    from delayq_operator.names import Key, Kind
    from delayq_operator.reflector import Listener

log = logging.getLogger(__name__)

STOPPED: Final = 0
FAILED: Final = 1
DENIED: Final = 4
LEADERSHIP_LOST: Final = 5

END_SECONDS: Final = 1.5
LABELLED: Final = f"{names.MANAGED_BY_LABEL}={names.OPERATOR}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the operator was started."""

    setting: Setting
    namespaces: tuple[str, ...] = ()
    """Those it serves; none: all."""
    lease_name: str | None = names.OPERATOR
    """None: no election."""
    lease_namespace: str | None = None
    """None: the operator's own."""
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 8
    resync_seconds: float = 300.0
    limits: Limits = field(default_factory=Limits)


class Operator:
    """All parts of the operator, connected."""

    def __init__(self, api: Api, options: Options) -> None:
        """Nothing runs before run()."""
        self.api, self.options = api, options
        identity = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
        self.leadership = _leadership(api, options, identity)
        api.may_write = lambda: self.leadership.leads
        self.work = Work()
        self.queues = Queues(self.work.mark)
        self.witness = Witness(api, self.queues)
        self.health = Health(self.leadership, self.witness)
        self.children = Children(self.queues, self.work.mark)
        self.pods = Pods(self.queues, self.work.mark)
        self.secrets, self.config_maps = Versions(self.work.mark), Versions(self.work.mark)
        self.recorder = Recorder(api, identity)
        self.referees = Referees(api, self.secrets, self.config_maps)
        self.inventory = Inventory(self.queues, self.children, self.pods)
        self.scraper = Scraper(self.inventory, self.work)
        self.reconciler = self._reconciler()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _reconciler(self) -> Reconciler:
        applier = Applier(self.api, self.children)
        ending = Ending(
            self.api,
            inventory=self.inventory,
            scraper=self.scraper,
            applier=applier,
            referees=self.referees,
            recorder=self.recorder,
            setting=self.options.setting,
        )
        return Reconciler(
            self.inventory,
            referees=self.referees,
            applier=applier,
            scraper=self.scraper,
            reporter=Reporter(self.api, self.queues, self.work, self.recorder),
            ending=ending,
            setting=self.options.setting,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Stand by, then lead, until `stop`. Raises what ended it, if something did."""
        self._start("leadership", self.leadership.run())
        self._start("health", self.health.run())
        try:
            await self._unless(stop, self._work(stop))
        finally:
            await self._end()

    async def _work(self, stop: asyncio.Event) -> None:
        await self.leadership.confirmed()
        await self._lead(stop)
        await stop.wait()

    async def _lead(self, stop: asyncio.Event) -> None:
        for reflector in self._reflectors():
            self._follow(reflector)
        self._start("events", self.recorder.run())
        for reflector in self.health.reflectors:
            await reflector.synced.wait()
        memo = handlers.Memo(self.queues, self.witness)
        self._start("kopf", handlers.follow(memo, self.options.namespaces, stop))
        self._start("witness", self.witness.run())
        for number in range(self.options.workers):
            self._start(f"worker-{number}", self.work.run(self._reconcile))
        self._start("scraper", self.scraper.run())
        self._start("resync", self._resync())
        await self.witness.listed.wait()
        self.health.synced = True

    async def _reconcile(self, key: Key) -> float | None:
        await self.leadership.confirmed()
        return await self.reconciler.reconcile(key)

    def _reflectors(self) -> list[Reflector]:
        found = []
        for namespace in self.options.namespaces or (None,):
            found += [self._reflector(kind, self.children, namespace) for kind in names.CHILDREN]
            found.append(self._reflector(names.POD, self.pods, namespace))
            by_metadata: tuple[tuple[Kind, Listener], ...] = (
                (names.SECRET, self.secrets),
                (names.CONFIG_MAP, self.config_maps),
                (names.DELAY_QUEUE, self.witness),
            )
            for kind, versions in by_metadata:
                found.append(self._reflector(kind, versions, namespace, metadata_only=True))
        return found

    def _reflector(
        self, kind: Kind, listener: Listener, namespace: str | None, *, metadata_only: bool = False
    ) -> Reflector:
        """Objects of ours are wanted whole; of all others, only that they are there, and at which version."""
        return Reflector(
            self.api,
            kind,
            listener,
            namespace=namespace,
            label_selector=None if metadata_only else LABELLED,
            metadata_only=metadata_only,
            limits=self.options.limits,
        )

    def _follow(self, reflector: Reflector) -> None:
        self.health.reflectors.append(reflector)
        self._start(f"watch {reflector.kind.plural}", reflector.run())

    async def _resync(self) -> None:
        """Look at every queue again now and then, and whether the API serves more kinds by now."""
        while True:
            await self._look_for_optional_kinds()
            keys = self.queues.keys()
            period = self.options.resync_seconds
            for key in keys:
                self.work.mark_in(key, random.uniform(0, period))
            await asyncio.sleep(period)

    async def _look_for_optional_kinds(self) -> None:
        for kind in names.OPTIONAL_CHILDREN:
            if kind.kind in self.referees.kinds:
                continue
            with contextlib.suppress(OperatorError):
                if await self.api.serves(kind):
                    self._serve(kind)

    def _serve(self, kind: Kind) -> None:
        for namespace in self.options.namespaces or (None,):
            self._follow(self._reflector(kind, self.children, namespace))
        self.referees.kinds |= {kind.kind}
        for key in self.queues.keys():  # noqa: SIM118 -- a method, and a copy
            self.work.mark(key)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Take note of the first part that ended; none does without a reason."""
        self._tasks.discard(task)
        if task.cancelled() or self._over.done():
            return
        error = task.exception()
        if error is not None:
            self._over.set_exception(error)
        else:
            self._over.set_result(None)

    async def _unless(self, stop: asyncio.Event, work: Coroutine[Any, Any, Any]) -> None:
        """Do `work` until `stop`, or until a part ends: then raise what ended it."""
        mine, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
        try:
            done, _ = await asyncio.wait({mine, stopped, self._over}, return_when=asyncio.FIRST_COMPLETED)
            for future in done - {stopped}:
                future.result()
        finally:
            mine.cancel()
            stopped.cancel()

    async def _end(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)
        await self.leadership.resign()


def _leadership(api: Api, options: Options, identity: str) -> Leadership:
    if options.lease_name is None:
        return Leadership()
    namespace = options.lease_namespace or own_namespace() or "default"
    return Leadership(api, namespace=namespace, name=options.lease_name, identity=identity)


async def run(options: Options) -> int:
    """Run an operator until SIGTERM or SIGINT; its exit code."""
    stop = asyncio.Event()
    handlers.stop_on_signals(stop)
    try:
        api = await Api.connect()
    except NoCluster as error:
        hint = "run it in a pod, or set KUBECONFIG"
        log.critical("no_cluster", extra={"fields": {"error": str(error), "hint": hint}})
        return FAILED
    operator = Operator(api, options)
    runner, port = await operator.health.serve(options.host, options.port)
    log.info("started", extra={"fields": {"namespaces": list(options.namespaces) or "all", "port": port}})
    try:
        return await _verdict(operator, stop)
    finally:
        await runner.cleanup()
        await api.close()


async def _verdict(operator: Operator, stop: asyncio.Event) -> int:
    try:
        await operator.run(stop)
    except Denied as error:
        hint = "compare the chart's Role with the rights of the service account"
        log.critical("rights_missing", extra={"fields": {"error": str(error), "hint": hint}})
        return DENIED
    except LeadershipLost as error:
        log.warning("leadership_lost", extra={"fields": {"error": str(error)}})
        return LEADERSHIP_LOST
    except Exception:
        log.exception("failed")
        return FAILED
    log.info("stopped")
    return STOPPED
