"""Cache of the pods of all queues, reduced to what the operator needs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.cache.pod import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq_operator.base.names import Key, Kind
    from delayq_operator.base.objects import Name, Object
    from delayq_operator.cache.pod import Pod
    from delayq_operator.cache.queues import Queues


class Pods:
    """The pods of all queues; a Listener."""

    def __init__(self, queues: Queues, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for the queue whose pods appear, disappear, become ready or fail."""
        self._of: dict[tuple[str, str], dict[str, Pod]] = defaultdict(dict)
        self._label: dict[Name, str] = {}
        self._runs: dict[tuple[str, str], str] = {}
        self._queues, self._enqueue = queues, enqueue

    def of(self, key: Key) -> list[Pod]:
        return list(self._of.get((key.namespace, names.label_value(key.name)), {}).values())

    def seen(self, kind: Kind, body: Object) -> None:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        label = body["metadata"]["labels"].get(names.QUEUE_LABEL)
        ended_well = body.get("status", {}).get("phase") == "Succeeded"
        if label is not None and (not ended_well or self._queues.labelled(namespace, label) is not None):
            self._remember(body, label)
        if label is None or ended_well:
            self.gone(kind, (namespace, name))
            return
        if self._label.get((namespace, name), label) != label:
            self.gone(kind, (namespace, name))  # it has another owner now
        pod, known = read(body), self._of[namespace, label].get(name)
        self._label[namespace, name] = label
        self._of[namespace, label][name] = pod
        if known is None or _significant(known) != _significant(pod):
            self._changed(namespace, label)

    def gone(self, _kind: Kind, name: Name) -> None:
        label = self._label.pop(name, None)
        if label is None:
            return
        pods = self._of[name[0], label]
        pods.pop(name[1], None)
        if not pods:
            del self._of[name[0], label]
            if self._queues.labelled(name[0], label) is None:  # it was deleted before its pods
                self._runs.pop((name[0], label), None)
        self._changed(name[0], label)

    def newest_run(self, key: Key) -> str:
        """Return when the newest pod of the reaper was created, also one that has ended well; empty without any."""
        return self._runs.get((key.namespace, names.label_value(key.name)), "")

    def forget(self, key: Key) -> None:
        self._runs.pop((key.namespace, names.label_value(key.name)), None)

    def _remember(self, body: Object, label: str) -> None:
        metadata = body["metadata"]
        if metadata["labels"].get(names.COMPONENT_LABEL) == "reaper":
            where = (metadata["namespace"], label)
            self._runs[where] = max(self._runs.get(where, ""), metadata.get("creationTimestamp", ""))

    def _changed(self, namespace: str, label: str) -> None:
        key = self._queues.labelled(namespace, label)
        if key is not None:
            self._enqueue(key)


def _significant(pod: Pod) -> tuple[bool, str, str]:
    return pod.ready, pod.trouble, pod.waiting
