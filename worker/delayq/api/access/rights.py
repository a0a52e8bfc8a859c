"""Rights: which verbs a caller may use, and on which kinds of task. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delayq.contract.api import VERBS, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delayq.contract.api import AccessRule

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Grant:
    """One entry of the rights."""

    who: str
    """Name of the caller, from `account()` or `token()`."""
    verbs: tuple[Verb, ...]
    kinds: tuple[str, ...] | None = None
    """Names of kinds; None: all, and tasks without a kind."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and what the caller may do."""

    name: str
    """For logs: `system:serviceaccount:NAMESPACE:NAME`, or `token:NAME`."""
    rights: Mapping[Verb, frozenset[str] | None] = field(default_factory=dict, repr=False)

    def may(self, verb: Verb, kind: str | None) -> bool:
        """Whether the caller may use the verb on a kind. `kind` None: on tasks without a kind, and on the queue."""
        kinds = self.kinds(verb)
        return kinds is None or kind in kinds

    def kinds(self, verb: Verb) -> frozenset[str] | None:
        """Return the kinds that the caller may use the verb on; None: all, empty: none. ValueError: no such verb."""
        if verb not in VERBS:
            raise ValueError(f"expected a verb of {', '.join(VERBS)}; got {verb}")
        return self.rights.get(verb, _NONE)


def grants(rules: Iterable[AccessRule]) -> Iterator[Grant]:
    """Return the rights of spec.api.access."""
    for rule in rules:
        of = rule.service_account
        yield Grant(account(of.namespace, of.name) if of else token(rule.token or ""), rule.verbs, rule.kinds)


class Rights:
    """The rights of all callers: of each, the union of its entries."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        found: dict[str, dict[Verb, frozenset[str] | None]] = {}
        for grant in grants:
            of = found.setdefault(grant.who, {})
            for verb in grant.verbs:
                of[verb] = _union(of.get(verb, _NONE), grant.kinds)
        self._callers = {name: Caller(name, rights) for name, rights in found.items()}

    def of(self, name: str) -> Caller:
        """Return a caller; without an entry, it may do nothing."""
        return self._callers.get(name) or Caller(name)


def _union(before: frozenset[str] | None, kinds: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if before is None or kinds is None else before.union(kinds)


def account(namespace: str, name: str) -> str:
    """Return the name of a ServiceAccount as a caller, the same as Kubernetes' user name of it."""
    return f"system:serviceaccount:{namespace}:{name}"


def token(name: str) -> str:
    """Return the name of a named token as a caller."""
    return f"token:{name}"
