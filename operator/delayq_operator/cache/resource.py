"""A DelayQueue as the API server stores it: the document, and what is around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq.contract import Problem, SpecError

from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.cache.sharing import credentials, mapping, places

if TYPE_CHECKING:
    from delayq_operator.base.objects import Object
    from delayq_operator.cache.sharing import Credentials

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
    def paused(self) -> bool:
        return self.pausing == "true"

    @property
    def pausing(self) -> str:
        """What the annotation says; "false" without one."""
        return str((self._metadata.get("annotations") or {}).get(names.PAUSED, "false"))

    @property
    def abandons(self) -> bool:
        return (self._metadata.get("annotations") or {}).get(names.ABANDON_TASKS) == "true"

    @property
    def erases(self) -> bool:
        """Whether its tasks go with it. Read from the spec as it is, for an invalid one must be deletable too."""
        return bool(self.body.get("spec", {}).get("deletionPolicy") == "Delete")

    @property
    def asked(self) -> tuple[str, int, str, bool, bool]:
        """Everything about it that others write and the operator acts on."""
        return self.uid, self.generation, self.pausing, self.abandons, self.deleting

    @property
    def tasks(self) -> frozenset[str]:
        """Where its tasks are, as far as the spec tells: DelayQueues that have one of these in common share them."""
        spec = mapping(self.body.get("spec"))
        queue = str(spec.get("queueName") or self.key.name)
        return places(queue, mapping(spec.get("redis")), self.key.namespace)

    @property
    def credentials(self) -> Credentials:
        """Secrets with which its pods log in to Redis, as far as the spec tells."""
        return credentials(mapping(mapping(self.body.get("spec")).get("redis")))

    @property
    def status(self) -> dict[str, Any]:
        return self.body.get("status") or {}

    @property
    def document(self) -> Object:
        """What the model parses: without the metadata that is none of its business. SpecError if it is too large."""
        if OVERSIZE in self.body:
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
