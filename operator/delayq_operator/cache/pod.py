"""Cache of the pods of all queues, reduced to what the operator needs: address, readiness, and the cause of a failure.

Pure.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.cache.groups import Groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.kube.objects import Kind, Object

    from delayq_operator.cache.queues import Queues

PASSING: Final = frozenset({"", "ContainerCreating", "PodInitializing", "Completed"})
"""Reasons of a waiting or ended container that require no action."""

LONGEST_WORDS: Final = 300
LOGGED: Final = '{"time": '
"""Prefix of delayq's log lines."""
SIGNALLED: Final = 128
"""Exit codes above are this and the number of the signal that ended a process."""
_SIGNALS: Final = {each.value: each.name for each in signal.Signals}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod of a queue."""

    name: str
    component: str
    address: str
    ready: bool
    leaving: bool
    """Whether it is terminating."""
    created: str
    """Creation time in the format of the API, which sorts by time."""
    created_at: float = 0.0
    """The same in Unix seconds."""
    uid: str = ""
    restarts: int = 0
    """Restarts of its containers."""
    cost: str = ""
    """Its deletion cost annotation, which a ReplicaSet reads; empty: none."""
    failed: bool
    """Whether it has failed; the object stays for inspection."""
    done: bool = False
    """Whether it has ended well."""
    trouble: str
    """Why it fails: the reason from Kubernetes and the last message of the container; empty if unknown."""
    waiting: str = ""
    """Why it is not ready although nothing failed: a sentence with its name and the cause; empty: no such cause."""

    @property
    def significant(self) -> object:
        return None if self.done else (self.ready, self.trouble, self.waiting)


def read(body: Object) -> Pod:
    metadata, status = body["metadata"], body.get("status", {})
    created = metadata.get("creationTimestamp", "")
    cost = (metadata.get("annotations") or {}).get(names.DELETION_COST, "")
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
    return Pod(
        name=metadata["name"],
        component=metadata["labels"].get(names.COMPONENT_LABEL, ""),
        address=status.get("podIP", ""),
        ready=ready,
        leaving="deletionTimestamp" in metadata,
        created=created,
        created_at=datetime.fromisoformat(created).timestamp() if created else 0.0,
        uid=metadata.get("uid", ""),
        restarts=sum(each.get("restartCount", 0) for each in status.get("containerStatuses") or ()),
        cost="" if cost == "0" else cost,
        failed=status.get("phase") == "Failed",
        done=status.get("phase") == "Succeeded",
        trouble="" if ready else _trouble(body),
        waiting="" if ready else _waiting(body),
    )


def _waiting(body: Object) -> str:
    """Name the container that runs and is not ready; delayq's own says in /readyz which of these causes it is."""
    name, component = body["metadata"]["name"], body["metadata"]["labels"].get(names.COMPONENT_LABEL, "")
    for container in body.get("status", {}).get("containerStatuses") or ():
        if container.get("ready") or "running" not in container.get("state", {}):
            continue
        if container.get("name") != component:
            return f"{name}: container {container.get('name')} runs and is not ready"
        if container.get("started") is False:
            return f"{name} is starting: it has not answered its startup probe"
        if component == "worker":
            causes = "waits for Redis, a Secret, memory or threads, or a handler blocks its event loop"
            return f"{name} runs and {causes}: see event_loop_blocked in kubectl logs {name}, and kubectl dq doctor"
        return f"{name} runs and waits for Redis or for a Secret; see kubectl logs {name}"
    return ""


def _trouble(body: Object) -> str:
    trouble = next((trouble for trouble in _troubles(body) if trouble), "")
    return f"{body['metadata']['name']}: {trouble}"[:LONGEST_WORDS].rstrip(".") if trouble else ""


def _troubles(body: Object) -> Iterator[str]:
    status = body.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        yield f"{scheduled.get('reason', '')}: {scheduled.get('message', '')}"
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        yield _container_trouble(container)
    # The node controller has set Ready to False, because the kubelet does not report.
    gates = body.get("spec", {}).get("readinessGates")
    if conditions.get("ContainersReady", {}).get("status") == "True" and not gates:
        yield "NodeNotReady: the kubelet of its node does not report; its containers may still run"


def _container_trouble(container: dict[str, Any]) -> str:
    """Return why a container waits or has ended."""
    state, waiting = container.get("state", {}), container.get("state", {}).get("waiting", {})
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated") or {}
    killed = _killed(ended)
    termination_message = killed or _termination_message(ended)
    reason = waiting.get("reason") or (not killed and ended.get("reason")) or ""
    if reason in PASSING and not termination_message:
        return ""
    return ": ".join(part for part in (reason, termination_message or waiting.get("message", "")) if part)


def _killed(ended: dict[str, Any]) -> str:
    """Return what killed a process; the end of its log does not contain the cause."""
    if ended.get("reason") == "OOMKilled":
        return "OOMKilled: it took more memory than its limit"
    number = ended.get("exitCode", 0) - SIGNALLED
    return f"killed by {_SIGNALS.get(number, f'signal {number}')}" if number > 0 else ""


def _termination_message(ended: dict[str, Any]) -> str:
    """Return the termination message of a process without its earlier log events; the reason is just "Error"."""
    lines = (ended.get("message") or "").strip().splitlines()
    spoken = [line for line in lines if not line.startswith(LOGGED)] or lines[-1:]
    return " ".join(" ".join(spoken).split()).removeprefix("error: ")


class Pods(Groups[Pod]):
    """The pods of all queues."""

    def __init__(self, queues: Queues) -> None:
        super().__init__(queues.enqueue_labelled)

    def read(self, _kind: Kind, body: Object) -> tuple[Key, Pod] | None:
        metadata = body["metadata"]
        label = metadata["labels"].get(names.QUEUE_LABEL)
        return (Key(metadata["namespace"], label), read(body)) if label is not None else None

    def of(self, key: Key) -> list[Pod]:
        """Return the pods of a queue, but those that have ended well."""
        return [pod for pod in self.group(names.labelled(key)).values() if not pod.done]

    def newest_run(self, key: Key) -> str:
        """Return when the newest pod of the reaper was created, also one that has ended well; empty without any."""
        pods = self.group(names.labelled(key)).values()
        return max((pod.created for pod in pods if pod.component == "reaper"), default="")
