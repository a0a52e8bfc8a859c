"""What stands beside the API pods of a queue: their Service, and the keys of ServiceAccount tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.desired.child import child

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.kube.objects import Object

    from delayq_operator.desired.facts import Facts


def service(queue: DelayQueue, facts: Facts) -> Object | None:
    """Return the Service that callers connect to: port 443, or 80 without TLS."""
    api = queue.spec.api
    if api is None:
        return None
    port = {"name": "http", "port": 80} if api.tls is None else {"name": "https", "port": 443}
    return child(
        names.SERVICE,
        "api",
        queue,
        facts,
        spec={
            "type": "ClusterIP",
            "selector": names.selector(queue.metadata.name, "api"),
            "ports": [{**port, "protocol": "TCP", "targetPort": names.API_PORT_NAME}],
        },
    )


def issuer_keys(queue: DelayQueue, facts: Facts) -> Object | None:
    """Return the ConfigMap with the keys of ServiceAccount tokens; None while they are not known.

    Pods mount it as a volume, so that the kubelet refreshes it without a restart.
    """
    if not trusts_accounts(queue) or not facts.issuer_keys:
        return None
    return child(names.CONFIG_MAP, "api", queue, facts, data={names.ISSUER_KEY: facts.issuer_keys})


def trusts_accounts(queue: DelayQueue) -> bool:
    """Whether a ServiceAccount has rights, so that the API needs the keys of their tokens."""
    api = queue.spec.api
    return api is not None and any(rule.service_account for rule in api.access)
