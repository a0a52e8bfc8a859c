"""The command line of delayq-operator."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from typing import TYPE_CHECKING, Any, Final, get_args

import click
from delayq.contract.words import LABEL_NAME, LABEL_VALUE
from delayq.service import logs

from delayq_operator.base import names
from delayq_operator.desired.facts import Setting
from delayq_operator.desired.policy import PodSecurity, Policy
from delayq_operator.kube import api
from delayq_operator.runtime.process import Options, run

if TYPE_CHECKING:
    from collections.abc import Mapping

TAKEN_AS_THEY_ARE: Final = (
    *("namespaces", "lease_namespace", "host", "port", "concurrency", "resync_seconds", "list_seconds"),
    "silence_seconds",
)
"""Options of the command that are fields of Options."""


def labels(_context: click.Context, _option: click.Parameter, text: str | None) -> dict[str, str]:
    """Parse key=value,… and reject invalid labels, which the API server would reject later for every queue."""
    found = dict(part.partition("=")[::2] for part in (text or "").split(",") if part)
    for key, value in found.items():
        if not (re.match(f"{LABEL_NAME.pattern}", key) and re.match(f"{LABEL_VALUE.pattern}", value)):
            raise click.BadParameter(f"{key}={value} is no label")
    return found


@click.command(
    name="delayq-operator", context_settings={"auto_envvar_prefix": "DELAYQ_OPERATOR", "show_default": True}
)
@click.option(
    "--worker-image", required=True, help="Image of scanners and reapers, and of workers by default."
)
@click.option(
    "--scanner-role",
    default="delayq-scanner",
    help="ClusterRole of scanners that watch DelaySchedules; with --namespace a Role.",
)
@click.option("--image-pull-policy", type=click.Choice(["Always", "IfNotPresent", "Never"]), help="Of these.")
@click.option(
    "--image-pull-secret", "pull_secrets", multiple=True, help="Secret to pull them with; repeatable."
)
@click.option("--namespace", "namespaces", multiple=True, help="Namespace to serve; repeatable. None: all.")
@click.option("--leader-election/--no-leader-election", default=True, help="Whether to compete for a Lease.")
@click.option("--lease-name", default=names.OPERATOR, help="Name of the Lease.")
@click.option("--lease-namespace", help="Its namespace. Absent: the operator's own.")
@click.option(
    "--own-namespace", help="Namespace of the operator's own pods. Absent: $POD_NAMESPACE, or the pod's."
)
@click.option(
    "--own-labels",
    callback=labels,
    metavar="KEY=VALUE,…",
    help="What selects them there, so that NetworkPolicies of queues let them in. None: every pod there.",
)
@click.option(
    "--own-service-account",
    help="The operator's ServiceAccount, which no queue may use. Absent: its token's.",
)
@click.option(
    "--serve-own-namespace/--no-serve-own-namespace",
    default=False,
    help="Whether DelayQueues in the operator's own namespace are allowed, beside others.",
)
@click.option(
    "--pod-security",
    type=click.Choice(get_args(PodSecurity)),
    default="baseline",
    help="Pod Security Standard that pod templates must satisfy.",
)
@click.option(
    "--allow-service-account",
    "service_accounts",
    multiple=True,
    default=("*",),
    help="ServiceAccount that pod templates may name; repeatable. *: any.",
)
@click.option("--host", default="127.0.0.1", help="Where probes and metrics listen; *: every address.")
@click.option("--port", default=8080, type=click.IntRange(0, 65535), help="Their port; 0 takes a free one.")
@click.option(
    "--concurrency", default=8, type=click.IntRange(1, 256), help="DelayQueues to reconcile at a time."
)
@click.option(
    "--resync-seconds", default=300.0, type=click.FloatRange(1), help="Look at each again after this."
)
@click.option("--list-seconds", default=60.0, hidden=True)
@click.option("--silence-seconds", default=90.0, hidden=True)  # the API server sends a bookmark every minute
@click.option("--log-format", default="json", type=click.Choice(["json", "console"]))
@click.option("--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]))
def delayq_operator(*, log_format: logs.LogFormat, log_level: str, **given: Any) -> None:  # noqa: ANN401 -- by option
    """Turn DelayQueues into running workers, scanners and reapers.

    Exits with 0 when stopped by a signal, 1 on a bug, 4 when its rights do not suffice, 5 when
    another operator took over.
    """
    logs.configure(log_format, log_level)
    if log_level != "debug":
        logging.getLogger("kopf").setLevel(logging.WARNING)  # its other messages do not help users
    options = Options(
        setting=_setting(given),
        lease_name=given["lease_name"] if given["leader_election"] else None,
        **{name: given[name] for name in TAKEN_AS_THEY_ARE},
    )
    sys.exit(asyncio.run(run(options)))


def _setting(given: Mapping[str, Any]) -> Setting:
    """Return what is the same for every queue; what is not given about the operator's own pod follows from the pod."""
    home = given["own_namespace"] or api.own_namespace()
    serves_home = given["serve_own_namespace"] or set(given["namespaces"]) == {home}
    return Setting(
        worker_image=given["worker_image"],
        scanner_role=given["scanner_role"],
        scanner_role_kind="Role" if given["namespaces"] else "ClusterRole",
        image_pull_policy=given["image_pull_policy"],
        image_pull_secrets=given["pull_secrets"],
        own_namespace=home,
        own_labels=given["own_labels"],
        policy=Policy(
            pod_security=given["pod_security"],
            service_accounts=tuple(filter(None, given["service_accounts"])),
            own_service_account=given["own_service_account"] or api.own_service_account(),
            closed_namespace=None if serves_home else home,
        ),
    )
