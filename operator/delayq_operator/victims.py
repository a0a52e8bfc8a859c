"""Has those workers go first that have the least to do, when some have to.

A ReplicaSet that shrinks deletes pods that are not ready before ready ones, and of these those with the lowest deletion
cost. So before a number is lowered, each ready worker is asked how many tasks it runs, and that is written down as its
cost. All of it is bounded, and a favour only: a busy worker that goes finishes or hands back what it runs.

None of it happens in a reconciliation: it comes back when the costs are there to be seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from delayq_operator import names
from delayq_operator.errors import Conflict, NotFound, OperatorError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from delayq_operator.api import Api
    from delayq_operator.names import Key
    from delayq_operator.pod import Pod
    from delayq_operator.pods import Pods

log = logging.getLogger(__name__)

WRITE_SECONDS: Final = 2.0
SEEN_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 0.2
"""What our watch has told, that of the controller manager is told at about the same time."""
GOOD_SECONDS: Final = 5.0
WRITES_AT_ONCE: Final = 16
UNKNOWN: Final = 1_000_000
"""The cost of a worker that does not say what it runs."""


class Victims:
    """The costs of the workers of all queues that are about to have fewer."""

    def __init__(
        self,
        api: Api,
        pods: Pods,
        busy: Callable[[Key, list[Pod]], Awaitable[Mapping[str, int]]],
        mark: Callable[[Key], None],
    ) -> None:
        """`busy` asks workers how many tasks they run; `mark` is told of the queue whose costs are written."""
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
            self._running[key] = asyncio.create_task(self._name(key, ready))
        return False

    def forget(self, key: Key) -> None:
        """Ask again next time: what workers run will be something else by then."""
        self._good_until.pop(key, None)

    async def _name(self, key: Key, pods: list[Pod]) -> None:
        try:
            wanted = costs(pods, await self._busy(key, pods))
            async with asyncio.timeout(WRITE_SECONDS):
                written = await asyncio.gather(*(self._write(key, pod, wanted[pod.name]) for pod in pods))
            await self._seen(key, {name: wanted[name] for name in written if name})
        except TimeoutError:
            log.info("costs_late", extra={"fields": {"queue": str(key)}})
        except Exception:  # a bug must not keep the number up
            log.exception("costs_broke", extra={"fields": {"queue": str(key)}})
        finally:
            del self._running[key]
            self._good_until[key] = time.monotonic() + GOOD_SECONDS
            self._mark(key)

    async def _write(self, key: Key, pod: Pod, cost: int) -> str:
        """Write one cost, unless somebody else did: then it is theirs. The name of the pod if ours is new."""
        if pod.cost == _text(cost):
            return ""
        metadata = {
            "name": pod.name,
            "namespace": key.namespace,
            "uid": pod.uid,
            "annotations": {names.DELETION_COST: str(cost)},
        }
        body = {"apiVersion": names.POD.api_version, "kind": names.POD.kind, "metadata": metadata}
        try:
            async with self._places:
                await self._api.apply(names.POD, body, manager=names.VICTIMS, force=False)
        except (Conflict, NotFound):
            return ""  # it has a cost of somebody else's, or is gone
        except OperatorError as error:
            log.info("cost_not_written", extra={"fields": {"pod": pod.name, "error": str(error)}})
            return ""
        return pod.name

    async def _seen(self, key: Key, wanted: Mapping[str, int]) -> None:
        """Return when our watch tells of the costs, or after a while."""
        deadline = time.monotonic() + SEEN_SECONDS
        while time.monotonic() < deadline:
            told = {pod.name: pod.cost for pod in self._ready(key)}
            if all(told[name] == _text(cost) for name, cost in wanted.items() if name in told):
                break
            await asyncio.sleep(0.02)  # the watch tells whoever has to reconcile, and nobody else
        await asyncio.sleep(SETTLE_SECONDS)

    def _ready(self, key: Key) -> list[Pod]:
        return [
            pod
            for pod in self._pods.of(key)
            if pod.component == "worker" and pod.ready and not pod.leaving | pod.failed
        ]


def costs(pods: Iterable[Pod], busy: Mapping[str, int]) -> dict[str, int]:
    """Return what it costs to delete each."""
    return {pod.name: busy.get(pod.name, UNKNOWN) for pod in pods}


def _text(cost: int) -> str:
    """Return the annotation: none is as good as nothing."""
    return str(cost) if cost else ""
