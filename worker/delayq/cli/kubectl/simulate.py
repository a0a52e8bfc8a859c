"""kubectl dq simulate: `delayq simulate` of a live queue, with what the operator has learnt and the tasks that wait.

It runs on this machine; only the times at which tasks fall due come from the cluster.
"""

from __future__ import annotations

import tempfile
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from delayq.cli.exits import Wrong
from delayq.cli.kubectl import queues
from delayq.cli.kubectl.forward import in_this_process, run
from delayq.cli.kubectl.learnt import of_simulate
from delayq.cli.kubectl.passed import Passed
from delayq.cli.kubectl.redis_access import SCANNER
from delayq.cli.kubectl.remote_command import errand
from delayq.cli.root import load
from delayq.contract.files import CONFIG_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import click

    from delayq.cli.kubectl.kubectl import Kubectl, Object
    from delayq.cli.kubectl.redis_access import Way

ELSEWHERE: Final = ("trace", "scenario")
"""Options that bring tasks of their own."""

FILES: Final = ("trace", "png")

ABOUT: Final = """Simulate how the number of workers would follow the work, with the decisions of production.

The document is the live one, the lead and the handler time are those that the operator has learnt, and the tasks are
those that wait now; every option puts something else in their place."""


class Simulate(Passed):
    """Fetches what it takes, and has the CLI's command do the rest here."""

    def go(self, kubectl: Kubectl, raw: Mapping[str, Any], params: Mapping[str, Any]) -> int:
        """Simulate."""
        if raw.get("decision") is not None:
            return in_this_process(errand(self, raw, params).without_document())
        name = params["queue"]
        if name is None:
            raise Wrong("expected NAME, or --decision FILE")
        if any(raw.get(each) is not None for each in ELSEWHERE):
            queue = queues.one(kubectl, name)
            return self._simulated(queue, {**of_simulate(queue, raw), **raw}, params)
        found = self.way(kubectl, name, params)
        typed = {**of_simulate(found.queue, raw), **raw}
        if found.pod is None:
            return run(kubectl, found, errand(self, typed, params))
        return self._simulated(found.queue, typed, params, _waiting(kubectl, found, params["until"]))

    def _simulated(
        self, queue: Object, typed: Mapping[str, Any], params: Mapping[str, Any], waiting: str | None = None
    ) -> int:
        name = queues.place(queue)[1]
        typed = {each: _absolute(value) if each in FILES else value for each, value in typed.items()}
        # From within the directory: messages name the document, and not where it stands for a second.
        with tempfile.TemporaryDirectory(prefix="kubectl-dq-") as directory, chdir(directory):
            document = Path(f"{name}.yaml")
            document.write_text(yaml.safe_dump(_document(queue), allow_unicode=True))
            if waiting is not None:
                trace = Path("waiting.jsonl")
                trace.write_text(waiting)
                typed = {each: value for each, value in typed.items() if each != "snapshot"} | {
                    "trace": str(trace)
                }
            return in_this_process(errand(self, typed, params).here(str(document)))


def _absolute(name: str) -> str:
    return name if name == "-" else str(Path(name).absolute())


def _document(queue: Object) -> Object:
    metadata = {"name": queue["metadata"]["name"], "namespace": queue["metadata"]["namespace"]}
    return {**{field: queue[field] for field in ("apiVersion", "kind", "spec")}, "metadata": metadata}


def _waiting(kubectl: Kubectl, found: Way, until_ms: int) -> str:
    """Ask a scanner pod when what falls due."""
    words = ("--", "python3", "-m", "delayq.cli.kubectl.waiting", CONFIG_FILE, str(until_ms))
    said = kubectl.text("exec", str(found.pod), f"--container={SCANNER}", *words, namespace=found.namespace)
    if not said:
        raise Wrong("no task is waiting that falls due in time", "--for, --scenario or --trace")
    return said


def _command() -> click.Command:
    original = load("simulate")
    return Simulate(original, ("simulate",), ABOUT)


simulate = _command()
