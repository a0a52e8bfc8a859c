"""Arguments that name a DelayQueue, and the Leases of the operators that serve it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from delayq_operator.base import names

if TYPE_CHECKING:
    from delayq.kube.objects import Object

    from delayq_operator.kubectl.kubectl import Kubectl

KIND: Final = f"{names.PLURAL}.{names.DELAY_QUEUE.group}"
"""The full name: the short name `dq` may be ambiguous."""
CONFIGS: Final = f"--selector={names.MANAGED_BY_LABEL}={names.OPERATOR},{names.COMPONENT_LABEL}=config"
_ANNOTATION: Final = f"{{.metadata.annotations.{names.INSTALLATION.replace('.', chr(92) + '.')}}}"
INSTALLATIONS: Final = f'--output=jsonpath={{range .items[*]}}{_ANNOTATION}{{"\\n"}}{{end}}'
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


def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a DelayQueue; without a cluster, there are no candidates."""
    try:
        answer = ctx.find_root().obj.run("get", KIND, "--output=name")
    except click.ClickException:
        return []
    found = (line.rpartition("/")[2] for line in answer.stdout.splitlines())
    return [name for name in found if name.startswith(incomplete) and not ctx.params.get("words")]


NAME: Final = click.argument("name", metavar="NAME", shell_complete=complete)


class Words(click.Command):
    """A command that parses nothing: its words go on as they are. The first may be the name of a DelayQueue."""

    def __init__(self, *args: Any, name_metavar: str = "NAME", **more: Any) -> None:  # noqa: ANN401 -- click's
        """`name_metavar`: how its help calls the words."""
        raw: Any = {"nargs": -1, "type": click.UNPROCESSED, "metavar": name_metavar}
        words = click.Argument(["words"], **raw, shell_complete=complete)
        super().__init__(*args, **{**more, "params": [words]})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse nothing but a request for help."""
        return super().parse_args(ctx, args if args[:1] in (["-h"], ["--help"]) else ["--", *args])


def place(body: Object) -> tuple[str, str]:
    """Return namespace and name."""
    return str(body["metadata"]["namespace"]), str(body["metadata"]["name"])


def selector(name: str) -> str:
    """Return the label selector of a queue's children."""
    return f"--selector={names.QUEUE_LABEL}={names.label_value(name)}"


def leases(kubectl: Kubectl, *which: str) -> list[Lease]:
    """Return the Leases of the operators that serve queues, by their ConfigMaps, as far as they can be read."""
    answer = kubectl.run("get", "configmaps", *which, INSTALLATIONS)
    lines = answer.stdout.splitlines() if answer.returncode == 0 else []
    named = sorted(filter(_NAMED.fullmatch, {line.partition(" ")[2] for line in lines}))
    return [found for each in named[:MOST_LEASES] if (found := _lease(kubectl, each)) is not None]


def _lease(kubectl: Kubectl, named: str) -> Lease | None:
    namespace, _, name = named.partition("/")
    answer = kubectl.run("get", "lease", name, "--output=json", "--ignore-not-found", namespace=namespace)
    if answer.returncode != 0:
        return None
    spec = json.loads(answer.stdout)["spec"] if answer.stdout.strip() else {}
    return Lease(name=named, renew_time=spec.get("renewTime") if spec.get("holderIdentity") else None)
