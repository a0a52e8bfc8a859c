"""Read DelayQueues and their pods, events and Lease from the cluster. status_text.py formats them."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Final

from delayq_operator.base import names

from delayq.cli.exits import NOT_FOUND, CommandError
from delayq.cli.kubectl.times import unix
from delayq.contract.problems import quote

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Kubectl, Object

KIND: Final = f"{names.PLURAL}.{names.DELAY_QUEUE.group}"
"""The full name: the short name `dq` may be ambiguous."""


MOST_NAMED: Final = 8
LEASE_EXPIRED_SECONDS: Final = 60.0
"""A Lease is renewed every 3 s and lasts 15; clocks differ."""


def one(kubectl: Kubectl, name: str) -> Object:
    """Return a DelayQueue; the error for an unknown name lists the existing ones."""
    try:
        return kubectl.json("get", KIND, name)
    except CommandError as error:
        if error.code != NOT_FOUND or names.PLURAL not in error.message:
            raise
        raise _unknown(kubectl, name) from None


def _unknown(kubectl: Kubectl, name: str) -> CommandError:
    there = [each["metadata"]["name"] for each in kubectl.items("get", KIND)]
    close = difflib.get_close_matches(name, there, n=1)
    namespace = kubectl.where.namespace or _own_namespace(kubectl)
    hint = f"did you mean {close[0]}?" if close else f"there {_listed(there, namespace)}"
    return CommandError(f"no DelayQueue {quote(name)} in namespace {namespace}", hint, NOT_FOUND)


def _own_namespace(kubectl: Kubectl) -> str:
    """Return the context's namespace, kubectl's default."""
    namespace = kubectl.text(
        "config", "view", "--minify", "--output=jsonpath={.contexts[0].context.namespace}"
    )
    return namespace.strip() or "default"


def _listed(there: list[str], namespace: str) -> str:
    more = ", …" if len(there) > MOST_NAMED else ""
    names_of_them = ", ".join(sorted(there)[:MOST_NAMED]) if there else f"none in {namespace}"
    return f"{'are' if len(there) > 1 else 'is'} {names_of_them}{more}; -n selects another namespace"


def place(queue: Object) -> tuple[str, str]:
    """Return namespace and name."""
    return str(queue["metadata"]["namespace"]), str(queue["metadata"]["name"])


def selector(name: str, component: str | None = None) -> str:
    """Return the label selector of a queue's children."""
    mine = f"--selector={names.QUEUE_LABEL}={names.label_value(name)}"
    return f"{mine},{names.COMPONENT_LABEL}={component}" if component else mine


def component(pod: Object) -> str:
    """Return the component that a pod belongs to."""
    return str((pod["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL, ""))


def pods(kubectl: Kubectl, queue: Object, component: str | None = None) -> list[Object]:
    """Return the pods of a queue, or of one of its components."""
    namespace, name = place(queue)
    return kubectl.items("get", "pods", selector(name, component), namespace=namespace)


def events(kubectl: Kubectl, queue: Object) -> list[Object]:
    """Return the events of a DelayQueue, the oldest first."""
    namespace, name = place(queue)
    about = f"--field-selector=involvedObject.kind={names.DELAY_QUEUE.kind},involvedObject.name={name}"
    found = kubectl.items("get", "events", about, namespace=namespace)
    return sorted(found, key=when)


def expired_lease(kubectl: Kubectl, queue: Object, now: float) -> str:
    """Return the Lease of the queue's operator if it has expired; empty if it is valid or cannot be read."""
    namespace, name = place(queue)
    config = kubectl.run("get", "configmap", names.config(name), "--output=json", namespace=namespace)
    annotations = (
        json.loads(config.stdout)["metadata"].get("annotations") or {} if config.returncode == 0 else {}
    )
    lease = str(annotations.get(names.INSTALLATION, "")).partition(" ")[2]
    if not lease:
        return ""
    where, _, held = lease.partition("/")
    answer = kubectl.run("get", "lease", held, "--output=json", "--ignore-not-found", namespace=where)
    if answer.returncode != 0:
        return ""
    spec = json.loads(answer.stdout)["spec"] if answer.stdout.strip() else {}
    renewed = unix(spec.get("renewTime")) if spec.get("holderIdentity") else None
    return lease if renewed is None or now - renewed > LEASE_EXPIRED_SECONDS else ""


def when(event: Object) -> str:
    """Return the last time of an event, in the API's format."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), str(event["metadata"].get("creationTimestamp") or ""))
