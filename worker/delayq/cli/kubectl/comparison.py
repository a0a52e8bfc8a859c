"""Each child as it is and as it would be, by the API server's own word: a server-side apply that stores nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import yaml
from delayq_operator.base import names
from delayq_operator.desired import desired
from delayq_operator.reconcile.drift import differs, fingerprint, stamped

from delayq.cli.exits import REFUSED, Wrong
from delayq.cli.kubectl.setting import OTHER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.cli.kubectl.kubectl import Kubectl, Object
    from delayq.cli.kubectl.surroundings import Surroundings

Reference = tuple[str, str]
"""Kind and name."""

APPLY: Final = (
    "apply",
    "--server-side",
    "--dry-run=server",
    f"--field-manager={names.OPERATOR}",
    "--force-conflicts",
)
UNTRIED: Final = "you may not try changes of the children: compared without what the API server makes of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One child that would change; None where there is none."""

    kind: str
    name: str
    before: Object | None
    after: Object | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All children that would change, those that would go last."""

    children: tuple[Compared, ...]
    notes: tuple[str, ...] = ()

    def of(self, kind: str, name: str) -> Compared | None:
        """Return one of them."""
        return next((each for each in self.children if (each.kind, each.name) == (kind, name)), None)


def compare(kubectl: Kubectl, world: Surroundings) -> Comparison:
    """Compare what follows from the old document with what would follow from the new one."""
    now = _wanted(world, new=False) if world.old else {}
    then = _wanted(world, new=True)
    changed = [
        who for who, body in then.items() if who not in now or fingerprint(body) != fingerprint(now[who])
    ]
    behind = [who for who in now if who in world.children and differs(now[who], world.children[who])]
    gone = [who for who in world.children if who not in then]
    bases = {who: now[who] for who in changed if who in behind}
    try:
        before, after = (
            _tried(kubectl, bases, world),
            _tried(kubectl, {who: then[who] for who in changed}, world),
        )
    except Wrong as error:
        if error.code != REFUSED:
            raise
        before, after = {who: now[who] for who in changed if who in now}, {who: then[who] for who in changed}
        return Comparison(
            children=_pairs(before, after, world, gone, live=False), notes=(*_notes(behind), UNTRIED)
        )
    return Comparison(children=_pairs(before, after, world, gone, live=True), notes=_notes(behind))


def _wanted(world: Surroundings, *, new: bool) -> dict[Reference, Object]:
    queue, facts = (world.new, world.new_facts) if new else (world.old, world.facts)
    assert queue is not None  # noqa: S101 -- for the type checker
    return {
        (body["kind"], body["metadata"]["name"]): stamped(body)
        for body in desired(queue, world.setting, facts)
    }


def _notes(behind: list[Reference]) -> tuple[str, ...]:
    """The operator repairs what differs within seconds: what differs now, it makes in another way, or is paused."""
    return (OTHER.format(what=", ".join(" ".join(who) for who in behind)),) if behind else ()


def _tried(
    kubectl: Kubectl, bodies: Mapping[Reference, Object], world: Surroundings
) -> dict[Reference, Object]:
    """Ask the API server what these would come to."""
    if not bodies:
        return {}
    text = yaml.safe_dump_all(list(bodies.values()), allow_unicode=True)
    answer = kubectl.json(*APPLY, "--filename=-", text=text, namespace=world.namespace)
    found = answer["items"] if answer.get("kind") == "List" else [answer]
    return {(body["kind"], body["metadata"]["name"]): body for body in found}


def _pairs(
    before: Mapping[Reference, Object],
    after: Mapping[Reference, Object],
    world: Surroundings,
    gone: list[Reference],
    *,
    live: bool,
) -> tuple[Compared, ...]:
    """What is as it should be is compared as it is; the rest as it should be."""
    known = {**world.children, **before} if live else before
    pairs = [
        Compared(kind=who[0], name=who[1], before=known.get(who), after=body) for who, body in after.items()
    ]
    going = [Compared(kind=who[0], name=who[1], before=world.children[who], after=None) for who in gone]
    return (*pairs, *going)
