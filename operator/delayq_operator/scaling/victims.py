"""Selects the victims of a scale-down: the least busy workers.

A ReplicaSet that shrinks deletes pods that are not ready first, then those with the lowest deletion cost; the default
is 0. Before the number is lowered, the operator asks each ready worker how many tasks it runs, and gives the victims a
lower cost. This is best effort and bounded in time: a busy victim finishes or releases its tasks.

It runs outside of reconciliations: it enqueues the queue when the costs are set.
"""

from __future__ import annotations

import asyncio
import logging
import time
from math import inf
from typing import TYPE_CHECKING, Any, Final

from delayq.kube.errors import Conflict, KubernetesError, NotFound

from delayq_operator.base import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from delayq_operator.base.names import Key
    from delayq_operator.cache.pod import Pod, Pods
    from delayq_operator.kube.api import Api

log = logging.getLogger(__name__)

LOW_COST: Final = "-1"
WRITE_SECONDS: Final = 2.0
SEEN_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 0.2
"""Allowance for the controller manager's watch, after the operator's watch has delivered the costs."""
GOOD_SECONDS: Final = 5.0
WRITES_AT_ONCE: Final = 16


class Victims:
    """Sets deletion costs on the workers of all queues."""

    def __init__(
        self,
        api: Api,
        pods: Pods,
        busy: Callable[[Key, list[Pod]], Awaitable[Mapping[str, int]]],
        enqueue: Callable[[Key], None],
    ) -> None:
        """`busy` asks workers how many tasks they run; `enqueue` gets the key when its costs are set."""
        self._api, self._pods, self._busy, self._enqueue = api, pods, busy, enqueue
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._good_until: dict[Key, float] = {}
        self._places = asyncio.Semaphore(WRITES_AT_ONCE)

    def prepared(self, key: Key, replicas: int) -> bool:
        """Whether the number can be lowered to this now; if not, set the costs, and enqueue the queue afterwards."""
        ready = self._ready(key)
        if not 0 < replicas < len(ready) or time.monotonic() < self._good_until.get(key, 0.0):
            return True
        if key not in self._running:
            self._running[key] = asyncio.create_task(self._assign_costs(key, ready, len(ready) - replicas))
        return False

    def forget(self, key: Key) -> None:
        """Drop the state of a queue: ask its workers again next time."""
        self._good_until.pop(key, None)

    async def _assign_costs(self, key: Key, pods: list[Pod], number: int) -> None:
        try:
            wanted = cost_changes(pods, await self._busy(key, pods), number)
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
            self._enqueue(key)

    async def _write(self, key: Key, pod: Pod, cost: str) -> str:
        """Set or remove a deletion cost, unless another client set one. Return the pod's name if it was written."""
        metadata: dict[str, Any] = {"name": pod.name, "namespace": key.namespace, "uid": pod.uid}
        if cost:
            metadata["annotations"] = {names.DELETION_COST: cost}
        body = {"apiVersion": names.POD.api_version, "kind": names.POD.kind, "metadata": metadata}
        try:
            async with self._places:
                await self._api.apply(names.POD, body, manager=names.VICTIMS, force=False)
        except (Conflict, NotFound):
            return ""  # another client set its cost, or it is gone
        except KubernetesError as error:
            log.info("deletion_cost_not_written", extra={"fields": {"pod": pod.name, "error": str(error)}})
            return ""
        return pod.name

    async def _seen(self, key: Key, wanted: Mapping[str, str]) -> None:
        """Wait until the watch delivers the costs, at most SEEN_SECONDS."""
        deadline = time.monotonic() + SEEN_SECONDS
        while time.monotonic() < deadline:
            seen = {pod.name: pod.cost for pod in self._ready(key)}
            if all(seen[name] == cost for name, cost in wanted.items() if name in seen):
                break
            await asyncio.sleep(0.02)  # the watch enqueues the queue, but does not wake us
        await asyncio.sleep(SETTLE_SECONDS)

    def _ready(self, key: Key) -> list[Pod]:
        return [
            pod
            for pod in self._pods.of(key)
            if pod.component == "worker" and pod.ready and not pod.leaving | pod.failed
        ]


def cost_changes(pods: Iterable[Pod], busy: Mapping[str, int], number: int) -> dict[str, str]:
    """Return the costs to write ("" removes one) so that the `number` least busy workers go, the youngest first.

    Each write is useful without the others. A worker that does not answer counts as busy. A cost that the operator does
    not set belongs to another client and has precedence.
    """

    def order(pod: Pod) -> tuple[float, float, float]:
        theirs = 0.0 if pod.cost == LOW_COST else _number(pod.cost)
        return theirs, busy.get(pod.name, inf), -pod.created_at

    first = sorted(pods, key=order)
    costs = {pod.name: LOW_COST for pod in first[:number] if not pod.cost}
    return costs | {pod.name: "" for pod in first[number:] if pod.cost == LOW_COST}


def _number(cost: str) -> float:
    """Parse a cost; 0 if it is not a number, as in Kubernetes."""
    try:
        return float(cost or 0)
    except ValueError:
        return 0.0
