"""Has those workers go first that have the least to do, when some have to.

A ReplicaSet that shrinks deletes pods that are not ready before ready ones, and of these those with the lowest deletion
cost; a pod without one has 0. So before a number is lowered, each ready worker is asked how many tasks it runs, and as
many as have to go are given a cost below that of all others. All of it is bounded, and a favour only: a busy worker
that goes finishes or hands back what it runs.

None of it happens in a reconciliation: it comes back when the costs are there to be seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from math import inf
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.base.errors import Conflict, NotFound, OperatorError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from delayq_operator.base.names import Key
    from delayq_operator.cache.pod import Pod
    from delayq_operator.cache.pods import Pods
    from delayq_operator.kube.api import Api

log = logging.getLogger(__name__)

MARK: Final = "-1"
WRITE_SECONDS: Final = 2.0
SEEN_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 0.2
"""What our watch has told, that of the controller manager is told at about the same time."""
GOOD_SECONDS: Final = 5.0
WRITES_AT_ONCE: Final = 16


class Victims:
    """The marks on workers of all queues that are about to have fewer."""

    def __init__(
        self,
        api: Api,
        pods: Pods,
        busy: Callable[[Key, list[Pod]], Awaitable[Mapping[str, int]]],
        mark: Callable[[Key], None],
    ) -> None:
        """`busy` asks workers how many tasks they run; `mark` is told of the queue whose victims are marked."""
        self._api, self._pods, self._busy, self._mark = api, pods, busy, mark
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._good_until: dict[Key, float] = {}
        self._places = asyncio.Semaphore(WRITES_AT_ONCE)

    def named(self, key: Key, replicas: int) -> bool:
        """Whether the number can be lowered to this now; if not, see to it, and have the queue marked then."""
        ready = self._ready(key)
        if not 0 < replicas < len(ready) or time.monotonic() < self._good_until.get(key, 0.0):
            return True
        if key not in self._running:
            self._running[key] = asyncio.create_task(self._name(key, ready, len(ready) - replicas))
        return False

    def forget(self, key: Key) -> None:
        """Ask again next time: what workers run will be something else by then."""
        self._good_until.pop(key, None)

    async def _name(self, key: Key, pods: list[Pod], number: int) -> None:
        try:
            wanted = marks(pods, await self._busy(key, pods), number)
            async with asyncio.timeout(WRITE_SECONDS):
                written = await asyncio.gather(
                    *(self._write(key, pod, wanted[pod.name]) for pod in pods if pod.name in wanted)
                )
            await self._seen(key, {name: wanted[name] for name in written if name})
        except TimeoutError:
            log.info("deletion_costs_delayed", extra={"fields": {"queue": str(key)}})
        except Exception:  # a bug must not keep the number up
            log.exception("deletion_costs_crashed", extra={"fields": {"queue": str(key)}})
        finally:
            del self._running[key]
            self._good_until[key] = time.monotonic() + GOOD_SECONDS
            self._mark(key)

    async def _write(self, key: Key, pod: Pod, cost: str) -> str:
        """Mark a worker, or remove our mark, unless another client set the cost; return its name if our mark is new."""
        metadata: dict[str, Any] = {"name": pod.name, "namespace": key.namespace, "uid": pod.uid}
        if cost:
            metadata["annotations"] = {names.DELETION_COST: cost}
        body = {"apiVersion": names.POD.api_version, "kind": names.POD.kind, "metadata": metadata}
        try:
            async with self._places:
                await self._api.apply(names.POD, body, manager=names.VICTIMS, force=False)
        except (Conflict, NotFound):
            return ""  # another client set its cost, or it is gone
        except OperatorError as error:
            log.info("deletion_cost_not_written", extra={"fields": {"pod": pod.name, "error": str(error)}})
            return ""
        return pod.name

    async def _seen(self, key: Key, wanted: Mapping[str, str]) -> None:
        """Return when our watch tells of the costs, or after a while."""
        deadline = time.monotonic() + SEEN_SECONDS
        while time.monotonic() < deadline:
            told = {pod.name: pod.cost for pod in self._ready(key)}
            if all(told[name] == cost for name, cost in wanted.items() if name in told):
                break
            await asyncio.sleep(0.02)  # the watch enqueues the queue, but does not wake us
        await asyncio.sleep(SETTLE_SECONDS)

    def _ready(self, key: Key) -> list[Pod]:
        return [
            pod
            for pod in self._pods.of(key)
            if pod.component == "worker" and pod.ready and not pod.leaving | pod.failed
        ]


def marks(pods: Iterable[Pod], busy: Mapping[str, int], number: int) -> dict[str, str]:
    """Return which costs have to become others so that as many go as have the least to do; the youngest first.

    Each is right without the others. Who does not say what it runs is taken to be busy; a cost that we would not give
    belongs to another client, and has precedence.
    """

    def order(pod: Pod) -> tuple[float, float, float]:
        theirs = 0.0 if pod.cost == MARK else _number(pod.cost)
        return theirs, busy.get(pod.name, inf), -pod.created_at

    first = sorted(pods, key=order)
    costs = {pod.name: MARK for pod in first[:number] if not pod.cost}
    return costs | {pod.name: "" for pod in first[number:] if pod.cost == MARK}


def _number(cost: str) -> float:
    """Read a cost; Kubernetes takes what is no number for 0."""
    try:
        return float(cost or 0)
    except ValueError:
        return 0.0
