"""What tells the pods of one component from those of another."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq_operator.base.names import Component
    from delayq_operator.desired.child import Object
    from delayq_operator.desired.mounts import Keys

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One kind of pod."""

    component: Component
    """Also the name of our container, by which a template addresses it."""
    image: str
    arguments: tuple[str, ...]
    """What `delayq` is started with."""
    resources: Object
    grace_seconds: int
    mounted: Keys
    """Secrets and ConfigMaps of the document that these pods read, and which keys."""
    template: Mapping[str, object] | None
    """The user's own, to be laid over ours."""
    path: str
    """Where in the document that template stands."""
    probes: Object
    """Probes of the container, by field."""
    protected: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Fields of the pod that the template may not touch, beside those no template may, and why."""
    under: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    """What these pods take from spec.worker.template, laid over ours before the user's own."""
    pod: Mapping[str, object] = field(default_factory=dict)
    """More fields of the pod."""
    container: Mapping[str, object] = field(default_factory=dict)
    """More fields of the container."""
