"""The options the operator was started with, as far as they show: in the children, or in its own Deployment."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.desired import code, desired
from delayq_operator.desired.facts import Setting
from delayq_operator.reconcile.drift import fingerprint

from delayq.cli.exits import Wrong
from delayq.contract import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq_operator.desired.facts import Facts

    from delayq.cli.kubectl.kubectl import Kubectl, Object
    from delayq.contract import DelayQueue

UNKNOWN: Final = Setting(worker_image="unknown")
NO_IMAGE: Final = "the operator's --worker-image could not be found out: it stands as unknown"
OTHER: Final = (
    "the operator that runs here makes {what} of this queue in another way than this kubectl dq: "
    "another version, or options that do not show; compared as this one would"
)
_COMPONENTS: Final = ("scanner", "worker", "reaper")


def guessed(
    kubectl: Kubectl,
    old: DelayQueue | None,
    new: DelayQueue,
    *,
    facts: Facts,
    children: Mapping[tuple[str, str], Object],
) -> tuple[Setting, list[str]]:
    """Return the most likely options, and what is to be said about them."""
    live = list(children.values())
    hidden = _hidden(old)
    asked = not live or hidden or (new.spec.network_policy.enabled and not _peers(live))
    told = _of_operator(kubectl, facts.namespace) if asked else None
    candidates = [*([told] if told else []), *_of_children(live)]
    if old is None or not live:
        return (candidates[0], []) if candidates else (UNKNOWN, [NO_IMAGE])
    best = max(candidates, key=lambda each: len(_known(old, each, facts, children)), default=UNKNOWN)
    if told is not None and best is not told and best.own_namespace is None:
        best = _with_peer(best, told)
    if hidden:  # no child shows the operator's image, whatever else it shows
        return replace(best, worker_image=(told or UNKNOWN).worker_image), [] if told else [NO_IMAGE]
    return best, []


def _hidden(queue: DelayQueue | None) -> bool:
    """Whether no pod runs the operator's image: scanners and reapers have the user's code to ask."""
    return queue is not None and queue.spec.worker.image is not None and code.asked(queue)


def _with_peer(setting: Setting, told: Setting) -> Setting:
    return replace(setting, own_namespace=told.own_namespace, own_labels=told.own_labels)


def _known(
    queue: DelayQueue, setting: Setting, facts: Facts, children: Mapping[tuple[str, str], Object]
) -> list[str]:
    """Name the children that the operator made exactly so."""
    try:
        wanted = desired(queue, setting, facts)
    except SpecError:
        return []
    found = []
    for body in wanted:
        live = children.get((body["kind"], body["metadata"]["name"]))
        applied = ((live or {}).get("metadata", {}).get("annotations") or {}).get(names.APPLIED)
        if applied == fingerprint(body):
            found.append(str(body["metadata"]["name"]))
    return found


def _of_children(live: list[Object]) -> Iterator[Setting]:
    """Every way to start an operator that these children could come from."""
    pods = [pod for pod in map(_pod, live) if pod]
    ours = [c for pod in pods for c in pod.get("containers") or () if c.get("name") in _COMPONENTS]
    images = list(dict.fromkeys(str(each["image"]) for each in ours))
    policies = [None, *dict.fromkeys(each.get("imagePullPolicy") for each in ours)]
    pulls = [tuple(each["name"] for each in pod.get("imagePullSecrets") or ()) for pod in pods]
    peers = _peers(live) or [(None, {})]
    for image, policy, pull, (namespace, labels) in product(
        images, policies, dict.fromkeys([(), *pulls]), peers
    ):
        yield Setting(
            worker_image=image,
            image_pull_policy=policy,
            image_pull_secrets=pull,
            own_namespace=namespace,
            own_labels=labels,
        )


def _pod(body: Object) -> Object:
    spec = body.get("spec", {})
    found: Object = spec.get("jobTemplate", {}).get("spec", spec).get("template", {}).get("spec", {})
    return found


def _peers(live: list[Object]) -> list[tuple[str | None, dict[str, str]]]:
    """Return what could be the operator itself among those that a NetworkPolicy lets in."""
    found: list[tuple[str | None, dict[str, str]]] = []
    for body in live:
        if body["kind"] != names.NETWORK_POLICY.kind:
            continue
        found.append((None, {}))
        for rule in body["spec"].get("ingress") or ():
            for peer in (rule.get("from") or ())[:1]:  # it is written first
                labels = (peer.get("namespaceSelector") or {}).get("matchLabels") or {}
                if namespace := labels.get("kubernetes.io/metadata.name"):
                    found.append((namespace, (peer.get("podSelector") or {}).get("matchLabels") or {}))
    return found


def _of_operator(kubectl: Kubectl, namespace: str) -> Setting | None:
    """Read the options of the operator that serves a namespace, if the user may see it."""
    try:
        found = kubectl.items(
            "get", "deployments.apps", "--all-namespaces", "--selector=app.kubernetes.io/component=operator"
        )
    except Wrong:
        return None
    for body in found:
        for container in _pod(body).get("containers") or ():
            options = _options(container)
            if "worker-image" in options and namespace in options.get("namespace", [namespace]):
                return _setting(options, body["metadata"]["namespace"])
    return None


def _options(container: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in container.get("args") or ():
        name, equals, value = str(word).partition("=")
        if equals and name.startswith("--"):
            found.setdefault(name[2:], []).append(value)
    return found


def _setting(options: Mapping[str, list[str]], namespace: str) -> Setting:
    labels = options.get("own-labels", [""])[-1]
    return Setting(
        worker_image=options["worker-image"][-1],
        image_pull_policy=options.get("image-pull-policy", [None])[-1],
        image_pull_secrets=tuple(options.get("image-pull-secret", ())),
        own_namespace=options.get("own-namespace", [namespace])[-1],
        own_labels=dict(part.partition("=")[::2] for part in labels.split(",") if part),
    )
