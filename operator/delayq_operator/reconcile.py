"""One reconciliation: parse → observe → decide → desired objects → apply → report.

Level-triggered: it never asks what happened, only what is.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delayq.contract import SpecError, parse

from delayq_operator import metrics, names, scaling
from delayq_operator.desired import desired
from delayq_operator.drift import stamped
from delayq_operator.errors import Conflict, OperatorError, Unavailable
from delayq_operator.facts import missing, unserved
from delayq_operator.plan import plan
from delayq_operator.view import View
from delayq_operator.work import LATER_SECONDS, SOON_SECONDS
from delayq_operator.workload import workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delayq.contract import DelayQueue

    from delayq_operator.apply import Applier, Outcome
    from delayq_operator.desired.facts import Facts, Setting
    from delayq_operator.ending import Ending
    from delayq_operator.facts import Referees
    from delayq_operator.inventory import Inventory
    from delayq_operator.names import Key
    from delayq_operator.plan import Plan
    from delayq_operator.pod import Pod
    from delayq_operator.report import Reporter
    from delayq_operator.resource import Resource
    from delayq_operator.scaler import Scaler
    from delayq_operator.scaling import Scale
    from delayq_operator.scrape import Scraper

log = logging.getLogger(__name__)

RETRY_SECONDS: Final[dict[str, float | None]] = {
    "done": None,
    "invalid": None,  # until the spec is edited
    "unavailable": SOON_SECONDS,
    "waiting": LATER_SECONDS,
    "refused": LATER_SECONDS,
    "error": LATER_SECONDS,
    "bug": LATER_SECONDS,
}
"""How a reconciliation can end → the longest pause before it is tried again."""


class Reconciler:
    """Makes the world of one DelayQueue as its document says, whatever it was before."""

    def __init__(
        self,
        inventory: Inventory,
        *,
        referees: Referees,
        applier: Applier,
        scraper: Scraper,
        reporter: Reporter,
        ending: Ending,
        scaler: Scaler,
        setting: Setting,
    ) -> None:
        """Every part is shared by all queues."""
        self._queues, self._children, self._pods = inventory.queues, inventory.children, inventory.pods
        self._referees, self._applier, self._scraper = referees, applier, scraper
        self._reporter, self._ending, self._setting = reporter, ending, setting
        self._scaler, self._autoscaler = scaler, scraper.autoscaler

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one DelayQueue; how long to wait at most before it is tried again, None when all is done."""
        started = time.monotonic()
        try:
            result = await self._reconcile(key)
        except (Conflict, Unavailable) as error:
            result = "unavailable"
            log.info("reconcile_put_off", extra={"fields": {"queue": str(key), "error": str(error)}})
        except OperatorError as error:
            result = "error"
            log.warning("reconcile_failed", extra={"fields": {"queue": str(key), "error": str(error)}})
        except Exception:  # a bug must not stop the other queues
            result = "bug"
            log.exception("reconcile_broke", extra={"fields": {"queue": str(key)}})
        metrics.RECONCILES.labels(result).inc()
        metrics.RECONCILE_SECONDS.observe(time.monotonic() - started)
        return RETRY_SECONDS[result]

    async def _reconcile(self, key: Key) -> str:
        resource = self._queues.get(key)
        if resource is None:
            await self._ending.abandon(key)
            self._forget(key)
            return "done"
        if resource.deleting:
            view = await self._ending.end(resource)
            if view is None:
                return "done"
            await self._report(view)
            return "refused" if view.erasing is not None and view.erasing.failed else "waiting"
        resource = await self._ending.prepare(resource)
        if leaving := await self._ending.undo(resource):
            await self._report(self._seen(View(resource=resource, leaving=tuple(leaving))))
            return "waiting"
        try:
            queue = parse(resource.document)
            facts = await self._referees.facts(resource, queue, self._children.of(key))
            wanted = [stamped(body) for body in desired(queue, self._setting, facts)]
        except SpecError as error:
            await self._report(self._seen(View(resource=resource, problems=error.problems)))
            return "invalid"
        return await self._realise(resource, queue, facts, wanted)

    async def _realise(
        self, resource: Resource, queue: DelayQueue, facts: Facts, wanted: list[dict[str, object]]
    ) -> str:
        children = self._children.of(resource.key)
        todo = plan(wanted, children, resource.uid)
        worker = children.get(("Deployment", names.worker(resource.key.name)))
        current = worker.body["spec"].get("replicas") if worker else None
        decision = self._autoscaler.decision(resource.key, time.time())
        down = self._scraper.guards.down(resource.key)
        scale = scaling.scale(queue, current, decision, paused=resource.paused, guard_down=down)
        view = View(
            resource=resource,
            queue=queue,
            scale=scale,
            missing=missing(facts),
            unserved=unserved(queue, facts),
            sharing=tuple(map(str, self._queues.sharing(resource.key))),
            foreign=todo.foreign,
            leaving=tuple(f"{child.kind.kind} {child.name}" for child in todo.leaving),
        )
        if not resource.paused:
            outcome = await self._apply(resource, todo, scale)
            await self._scaler.hand_over(resource, queue, scale, outcome)
            view = replace(view, failures=tuple(outcome.failures), taken=tuple(outcome.taken))
        result = await self._report(self._seen(view))
        if view.failures or view.taken:
            return "refused"
        return "waiting" if view.leaving else result

    async def _apply(self, resource: Resource, todo: Plan, scale: Scale) -> Outcome:
        # A child without an owner may be what `kubectl delete --cascade=orphan` has just left of this very DelayQueue.
        if any(change.live is None or change.live.owner_uid is None for change in todo.changes):
            await self._ending.still_there(resource)
        outcome = await self._applier.apply(resource, todo, scale)
        worker = self._children.of(resource.key).get((names.DEPLOYMENT.kind, names.worker(resource.key.name)))
        if worker is not None and worker.owner_uid in (None, resource.uid):
            await self._scaler.scale(resource, worker, scale, outcome)
        self._reporter.tell(resource, outcome)
        return outcome

    def _seen(self, view: View) -> View:
        """Add what the children and the scanners look like now, after everything was applied."""
        key = view.resource.key
        children = self._children.of(key)

        def body(kind: str, name: str) -> dict[str, Any] | None:
            child = children.get((kind, name))
            return child.body if child else None

        reaper = body("CronJob", names.reaper(key.name)) or {}
        return replace(
            view,
            scanner=workload(body("Deployment", names.scanner(key.name))),
            worker=workload(body("Deployment", names.worker(key.name))),
            troubles=_troubles(self._pods.of(key), reaper.get("status") or {}),
            reaper=reaper.get("status") or {},
            backlog=self._scraper.backlog(key),
            unread=self._scraper.complaint(key),
            guarding=self._scraper.guards.seen(key),
            learnt=self._autoscaler.learnt(key, time.time()),
        )

    async def _report(self, view: View) -> str:
        await self._reporter.report(view)
        return "done"

    def _forget(self, key: Key) -> None:
        self._referees.forget(key)
        self._reporter.forget(key)
        self._scraper.forget(key)
        self._scaler.forget(key)
        self._children.forget(key)


def _troubles(pods: Iterable[Pod], reaper: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong now: a run of the reaper that failed counts until one has ended well after it."""
    good = reaper.get("lastSuccessfulTime", "")
    found = {}
    for pod in pods:
        past = pod.failed and (pod.component != "reaper" or pod.created <= good)
        if pod.trouble and not past:
            found[pod.component] = pod.trouble
    return found
