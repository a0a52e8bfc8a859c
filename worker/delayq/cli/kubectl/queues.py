"""Read DelayQueues and their pods, events and Lease from the cluster. status_text.py formats them."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq_operator.base import names

from delayq.cli.exits import NOT_FOUND, CommandError
from delayq.contract.problems import quote

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Kubectl, Object

KIND: Final = f"{names.PLURAL}.{names.DELAY_QUEUE.group}"
"""The full name: the short name `dq` may be ambiguous."""


MOST_NAMED: Final = 8
CONFIGS: Final = f"--selector={names.MANAGED_BY_LABEL}={names.OPERATOR},{names.COMPONENT_LABEL}=config"
_ANNOTATION: Final = names.INSTALLATION.replace(".", "\\.")
INSTALLATIONS: Final = (
    f'--output=jsonpath={{range .items[*]}}{{.metadata.annotations.{_ANNOTATION}}}{{"\\n"}}{{end}}'
)
"""Age and name of the operator's Lease, a line for each ConfigMap."""
MOST_LEASES: Final = 8
_NAMED: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}/[a-z0-9][a-z0-9.-]{0,252}", re.ASCII)
"""The name becomes arguments of kubectl, and who may write a ConfigMap chooses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The Lease of an operator, which renews it every 3 s."""

    name: str
    """With its namespace: delayq-system/delayq-operator."""
    renew_time: str | None
    """None if no operator holds it."""


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


def lease(kubectl: Kubectl, queue: Object) -> Lease | None:
    """Return the Lease of the operator that serves a queue; None if it cannot be read."""
    namespace, name = place(queue)
    found = leases(kubectl, f"--field-selector=metadata.name={names.config(name)}", namespace=namespace)
    return found[0] if found else None


def leases(kubectl: Kubectl, *which: str, namespace: str | None = None) -> list[Lease]:
    """Return the Leases of the operators that serve queues, by the ConfigMaps of these, as far as they can be read."""
    answer = kubectl.run("get", "configmaps", *which, INSTALLATIONS, namespace=namespace)
    lines = answer.stdout.splitlines() if answer.returncode == 0 else []
    named = filter(_NAMED.fullmatch, {line.partition(" ")[2] for line in lines})
    return [found for each in sorted(named)[:MOST_LEASES] if (found := _lease(kubectl, each)) is not None]


def _lease(kubectl: Kubectl, named: str) -> Lease | None:
    namespace, _, name = named.partition("/")
    answer = kubectl.run("get", "lease", name, "--output=json", "--ignore-not-found", namespace=namespace)
    if answer.returncode != 0:
        return None
    spec = json.loads(answer.stdout)["spec"] if answer.stdout.strip() else {}
    return Lease(name=named, renew_time=spec.get("renewTime") if spec.get("holderIdentity") else None)


def when(event: Object) -> str:
    """Return the last time of an event, in the API's format."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), str(event["metadata"].get("creationTimestamp") or ""))
