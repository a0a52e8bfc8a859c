"""A DelayQueue as the API server stores it: the document and its metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq.contract import Problem, SpecError

from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.base.objects import mapping
from delayq_operator.cache.places import places

if TYPE_CHECKING:
    from delayq.kube.objects import Object

OVERSIZE: Final = "oversize"
"""Field of a body whose spec was too large to keep: the error text."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One DelayQueue; the spec may not fit the model."""

    body: Object

    @property
    def key(self) -> Key:
        return Key(self._metadata["namespace"], self._metadata["name"])

    @property
    def uid(self) -> str:
        return str(self._metadata["uid"])

    @property
    def outline(self) -> bool:
        """Whether it was too large to keep."""
        return OVERSIZE in self.body

    @property
    def generation(self) -> int:
        return int(self._metadata["generation"])

    @property
    def version(self) -> str:
        return str(self._metadata["resourceVersion"])

    @property
    def deleting(self) -> bool:
        """Whether it was deleted, and only finalizers keep it."""
        return "deletionTimestamp" in self._metadata

    @property
    def finalizers(self) -> list[str]:
        return list(self._metadata.get("finalizers") or ())

    @property
    def left_alone(self) -> bool:
        """Whether the annotation suspends reconciliation."""
        return self.suspend_reconciliation == "true"

    @property
    def suspend_reconciliation(self) -> str:
        """The value of the annotation; "false" without one."""
        return str((self._metadata.get("annotations") or {}).get(names.SUSPEND_RECONCILIATION, "false"))

    @property
    def abandons(self) -> str:
        """The address of the Redis whose tasks may be abandoned; empty: none."""
        return str((self._metadata.get("annotations") or {}).get(names.ABANDON_TASKS, ""))

    @property
    def erases(self) -> bool:
        """Whether its tasks are deleted with it. From the raw spec, as an invalid DelayQueue can be deleted too."""
        return bool(self.body.get("spec", {}).get("deletionPolicy") == "Delete")

    @property
    def asked(self) -> tuple[str, int, str, str, bool]:
        """All fields that other clients write and the operator reacts to."""
        return self.uid, self.generation, self.suspend_reconciliation, self.abandons, self.deleting

    @property
    def tasks(self) -> frozenset[str]:
        """The places of its tasks, according to the spec."""
        spec = mapping(self.body.get("spec"))
        queue = str(spec.get("queueName") or self.key.name)
        return places(queue, mapping(spec.get("redis")), self.key.namespace)

    @property
    def status(self) -> dict[str, Any]:
        return self.body.get("status") or {}

    @property
    def document(self) -> Object:
        """The document to parse, without metadata that delayq ignores. SpecError if it is too large."""
        if self.outline:
            raise SpecError((Problem("spec", self.body[OVERSIZE]),))
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.DELAY_QUEUE.kind,
            "metadata": {"name": self.key.name, "namespace": self.key.namespace},
            "spec": self.body.get("spec"),
        }

    @property
    def _metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = self.body["metadata"]
        return metadata
