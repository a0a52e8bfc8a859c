"""What the operator has learnt of a queue, as options of the CLI: what the user says counts more. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq.cli.kubectl.kubectl import Object

Options = dict[str, str]
"""Name of the CLI's parameter → what to type for it."""


def of_forecast(queue: Object, _typed: Mapping[str, Any]) -> Options:
    """Say the number of workers, too: the document in the pods leaves it out."""
    spec = queue["spec"]
    replicas = spec.get("worker", {}).get("replicas")
    fixed = {"most": str(replicas)} if replicas is not None and spec.get("autoscaling") is None else {}
    return {**_times(queue), **fixed}


def of_simulate(queue: Object, typed: Mapping[str, Any]) -> Options:
    """Begin with the workers that there are, unless other bounds are tried."""
    replicas = queue.get("status", {}).get("replicas")
    bounds = ("least", "most")
    starts = {} if replicas is None or any(name in typed for name in bounds) else {"replicas": str(replicas)}
    return {**_times(queue), **starts}


def _times(queue: Object) -> Options:
    """Return lead and handler time; a leadTimeSeconds of the document is in force, and not what was learnt."""
    scaling = queue.get("status", {}).get("scaling") or {}
    told = (queue["spec"].get("autoscaling") or {}).get("leadTimeSeconds")
    found = {}
    if scaling.get("handlerMilliseconds"):
        found["handler_ms"] = str(scaling["handlerMilliseconds"])
    if scaling.get("leadSeconds") and told in (None, "auto"):
        found["lead"] = f"{scaling['leadSeconds']}s"
    return found


LEARNT: Final[Mapping[str, Callable[[Object, Mapping[str, Any]], Options]]] = {
    "forecast": of_forecast,
    "simulate": of_simulate,
}
"""Command → what is known for it."""
