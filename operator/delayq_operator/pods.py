"""The pods of all queues, and not more of each than matters."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from delayq_operator import names
from delayq_operator.pod import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq_operator.names import Key, Kind
    from delayq_operator.objects import Name, Object
    from delayq_operator.pod import Pod
    from delayq_operator.queues import Queues


class Pods:
    """The pods of all queues; a Listener."""

    def __init__(self, queues: Queues, mark: Callable[[Key], None]) -> None:
        """Tell `mark` of the queue whose pods come or go, get ready, or get into trouble."""
        self._of: dict[tuple[str, str], dict[str, Pod]] = defaultdict(dict)
        self._label: dict[Name, str] = {}
        self._queues, self._mark = queues, mark

    def of(self, key: Key) -> list[Pod]:
        """Return the pods of a queue."""
        return list(self._of.get((key.namespace, names.label_value(key.name)), {}).values())

    def seen(self, kind: Kind, body: Object) -> None:
        """Take note of a pod as it is now."""
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        label = body["metadata"]["labels"].get(names.QUEUE_LABEL)
        if label is None or body.get("status", {}).get("phase") == "Succeeded":
            self.gone(kind, (namespace, name))
            return
        if self._label.get((namespace, name), label) != label:
            self.gone(kind, (namespace, name))  # it changed hands
        pod, known = read(body), self._of[namespace, label].get(name)
        self._label[namespace, name] = label
        self._of[namespace, label][name] = pod
        if known is None or (known.ready, known.trouble) != (pod.ready, pod.trouble):
            self._changed(namespace, label)

    def gone(self, _kind: Kind, name: Name) -> None:
        """Forget a pod."""
        label = self._label.pop(name, None)
        if label is None:
            return
        pods = self._of[name[0], label]
        pods.pop(name[1], None)
        if not pods:
            del self._of[name[0], label]
        self._changed(name[0], label)

    def _changed(self, namespace: str, label: str) -> None:
        key = self._queues.labelled(namespace, label)
        if key is not None:
            self._mark(key)
