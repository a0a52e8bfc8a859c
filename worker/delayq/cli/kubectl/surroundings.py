"""What the operator would decide by: the children, the Secrets and ConfigMaps as digests, and its own options.

Those it was started with need not be readable to the user, but they show in the children: the guess is right when each
child's fingerprint is the one on the object.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.cache.resource import Resource
from delayq_operator.cache.rivals import claim_in
from delayq_operator.cache.versions import content_digest
from delayq_operator.desired import referenced
from delayq_operator.desired.facts import Facts, Setting
from delayq_operator.reconcile.facts import salted
from delayq_operator.reconcile.plan import inputs_of

from delayq.cli.exits import Wrong
from delayq.cli.kubectl import queues
from delayq.cli.kubectl.setting import guessed
from delayq.cli.kubectl.tolerant import readable
from delayq.contract import parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.cache.versions import Digest

    from delayq.cli.kubectl.kubectl import Kubectl, Object
    from delayq.contract import DelayQueue

Children = dict[tuple[str, str], dict[str, Any]]
"""Kind and name → the live object."""

CHILDREN: Final = tuple(kind for kind in names.CHILDREN if kind is not names.JOB)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Everything that desired() takes, for the DelayQueue as it is and as it would be."""

    old: DelayQueue | None
    new: DelayQueue
    namespace: str
    setting: Setting
    facts: Facts
    """As it is."""
    new_facts: Facts
    children: Children = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def look(kubectl: Kubectl, old: Object | None, new: Object, besides: Iterable[Object]) -> Surroundings:
    """Read it all; `besides` are Secrets and ConfigMaps that would be applied, too."""
    namespace, name = queues.place(new)
    before, after = model(old) if old else None, model(new)
    uid = str((old or new)["metadata"]["uid"])
    kinds = _kinds(kubectl)
    children = _children(kubectl, old, kinds) if old else {}
    read, unread = _digests(kubectl, namespace, [each for each in (before, after) if each])
    facts = Facts(
        uid=uid,
        namespace=namespace,
        installation=claim_in(children.get((names.CONFIG_MAP.kind, names.config(name)))),
        generation=_generation(old or new),
        secrets=salted(uid, read[names.SECRET], lambda digest: digest.safe),
        unkeyed=salted(uid, read[names.SECRET], lambda digest: digest.plain),
        config_maps=salted(uid, read[names.CONFIG_MAP], lambda digest: digest.plain),
        kinds=frozenset(kinds),
        inputs=_inputs(name, children),
    )
    then = replace(_with(facts, besides, uid), generation=_generation(new))
    setting, doubts = guessed(kubectl, before, after, facts=facts, children=children)
    return Surroundings(
        old=before,
        new=after,
        namespace=namespace,
        setting=setting,
        facts=facts,
        new_facts=then,
        children=children,
        notes=(*unread, *_missing(after, then, unread), *doubts),
    )


def model(body: Object) -> DelayQueue:
    """Parse a DelayQueue as the operator does; SpecError with everything wrong."""
    return parse(Resource(body).document)


def _generation(body: Object) -> int:
    """Return what the API server counts, of a new object for the first time."""
    return int(body["metadata"].get("generation", 1))


def _kinds(kubectl: Kubectl) -> list[str]:
    """Return the optional kinds that this cluster serves."""
    group = names.POD_MONITOR.api_version
    try:
        served = kubectl.text("get", "--raw", f"/apis/{group}")
    except Wrong:
        return []
    return [
        kind.kind for kind in names.OPTIONAL_CHILDREN if f'"kind":"{kind.kind}"' in served.replace(" ", "")
    ]


def _children(kubectl: Kubectl, queue: Object, kinds: list[str]) -> Children:
    namespace, name = queues.place(queue)
    wanted = [*CHILDREN, *(kind for kind in names.OPTIONAL_CHILDREN if kind.kind in kinds)]
    resources = ",".join(f"{kind.plural}.{kind.group}" if kind.group else kind.plural for kind in wanted)
    found = kubectl.items(
        "get", resources, queues.selector(name), "--show-managed-fields", namespace=namespace
    )
    return {
        (body["kind"], body["metadata"]["name"]): body
        for body in found
        if any(
            owner.get("uid") == queue["metadata"]["uid"]
            for owner in body["metadata"].get("ownerReferences") or ()
        )
    }


def _inputs(name: str, children: Children) -> dict[str, dict[str, str]]:
    """Return what the pods of each component were started with, as the operator reads it."""
    of = {"scanner": names.scanner(name), "worker": names.worker(name)}
    found = {part: children.get((names.DEPLOYMENT.kind, child)) for part, child in of.items()}
    return {part: inputs_of(body) for part, body in found.items() if body}


def _digests(
    kubectl: Kubectl, namespace: str, documents: list[DelayQueue]
) -> tuple[dict[names.Kind, dict[str, Digest | None]], list[str]]:
    """Digest what the documents refer to; what may not be read counts as unchanged, as one that is gone does."""
    unread: list[str] = []

    def digest(kind: names.Kind, name: str) -> Digest | None:
        body = readable(kubectl, kind.plural, name, namespace)
        if body is None:
            unread.append(f"{kind.kind} {name} may not be read: taken as unchanged")
        return content_digest(body) if body else None

    references = [referenced(each) for each in documents]
    wanted = {
        names.SECRET: sorted({name for each in references for name in each.secrets}),
        names.CONFIG_MAP: sorted({name for each in references for name in each.config_maps}),
    }
    return {kind: {name: digest(kind, name) for name in found} for kind, found in wanted.items()}, unread


def _missing(queue: DelayQueue, facts: Facts, unread: list[str]) -> list[str]:
    """Name what the new document refers to and is not there."""
    wanted = referenced(queue)
    gone = [f"Secret {name}" for name in sorted(wanted.secrets) if not facts.secrets.get(name)]
    gone += [f"ConfigMap {name}" for name in sorted(wanted.config_maps) if not facts.config_maps.get(name)]
    known = [each for each in gone if not any(told.startswith(f"{each} ") for told in unread)]
    return [f"{each} does not exist: pods wait for it" for each in known]


def _with(facts: Facts, besides: Iterable[Object], uid: str) -> Facts:
    """Take the digests of what would be applied, too; what no pod reads does not matter."""
    secrets, unkeyed, config_maps = dict(facts.secrets), dict(facts.unkeyed), dict(facts.config_maps)
    for body in besides:
        held = secrets if body["kind"] == names.SECRET.kind else config_maps
        name, digest = body["metadata"]["name"], content_digest(body)
        if name in held and body["metadata"]["namespace"] == facts.namespace:
            held |= salted(uid, {name: digest}, lambda each: each.safe)
        if held is secrets:
            unkeyed |= salted(uid, {name: digest}, lambda each: each.plain)
    return replace(facts, secrets=secrets, unkeyed=unkeyed, config_maps=config_maps)
