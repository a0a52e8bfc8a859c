"""Why Redis does not serve: each cause, what it is, and what to do, for conditions and doctor alike.

Not here: which error has which cause (delayq/connection/outages.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Remedy(NamedTuple):
    """What is wrong, after `Redis: `, and what to do about it."""

    what: str
    cure: str

    def __str__(self) -> str:
        """Return both, without a full stop."""
        return f"{self.what}; {self.cure}"


_TLS: Final = "whether spec.redis.tls (rediss://) fits the port"
_NAMED: Final = "correct the cause that it names: docs/reference/redis-errors.md"

REMEDIES: Final[Mapping[str, Remedy]] = {
    "refused": Remedy("connection refused", "check host and port in spec.redis, and whether Redis runs"),
    "no_route": Remedy(
        "no route to its host", "check the host in spec.redis, network policies and firewalls"
    ),
    "timeout": Remedy(
        "it does not answer in time",
        f"check spec.redis, {_TLS}, network policies, and how busy Redis is",
    ),
    "closed": Remedy(
        "it closes connections",
        f"check {_TLS}, whether it requires a client certificate, its maxclients, and its log",
    ),
    "dns": Remedy("unknown host name", "check the host in spec.redis, and whether DNS works"),
    "not_redis": Remedy("it does not answer as Redis does", "check host and port in spec.redis"),
    "tls_absent": Remedy(
        "it does not speak TLS at that port",
        "set another port, or remove spec.redis.tls (redis:// instead of rediss://)",
    ),
    "tls_name": Remedy(
        "its certificate names another host",
        "correct the host, or set spec.redis.tls.serverName (?ssl_server_name=) to a name in the certificate",
    ),
    "tls_expired": Remedy(
        "its certificate is not valid at this time", "renew it, or correct the clock of this machine"
    ),
    "tls_untrusted": Remedy(
        "another CA signed its certificate",
        "check that spec.redis.tls.caSecretRef (?ssl_ca_certs=) is the right CA, and current",
    ),
    "tls_client": Remedy(
        "it requires a client certificate",
        "set spec.redis.tls.certSecretRef and keySecretRef (?ssl_certfile=, ?ssl_keyfile=)",
    ),
    "tls": Remedy(
        "TLS failed", "check spec.redis.tls, its Secrets, and whether server and client trust the other's CA"
    ),
    "auth": Remedy(
        "it refuses the password or the user",
        "check spec.redis.auth (spec.redis.sentinel.auth of Sentinels), and that the Secrets are current",
    ),
    "denied": Remedy(
        "it denies commands of delayq",
        "apply the ACL that delayq acl prints (with --sentinel for Sentinels) on every server",
    ),
    "protected_mode": Remedy(
        "it accepts connections from its own machine only (protected mode)",
        "give its users passwords and set spec.redis.auth, or set protected-mode no",
    ),
    "no_database": Remedy(
        "it has no database of that number",
        "set spec.redis.database below its setting `databases`; a Cluster has only database 0",
    ),
    "max_clients": Remedy(
        "it accepts no more connections",
        "raise its maxclients, or look for a client that leaks connections (CLIENT LIST)",
    ),
    "rejected": Remedy("it rejects a call with an error that the logs have", _NAMED),
    "unsupported_format": Remedy(
        "another version of delayq wrote the keys of this queue, which this one leaves as they are",
        "do what the logs say: docs/reference/redis-errors.md#keys-of-another-version",
    ),
    "loading": Remedy("it is loading its data", "wait"),
    "busy": Remedy("another client's script blocks it", "wait, or end the script with SCRIPT KILL"),
    "out_of_memory": Remedy(
        "its memory is full (maxmemory)", "give it more memory, or set spec.limits.maxBytes"
    ),
    "read_only": Remedy("it is a replica that takes no writes", "name the master in spec.redis"),
    "cannot_persist": Remedy(
        "it takes no writes because it cannot write to its disk", "look at its disk and its log"
    ),
    "no_replicas": Remedy(
        "it takes no writes with fewer replicas than its min-replicas-to-write", "repair the replicas"
    ),
    "no_master": Remedy(
        "its Sentinels name no server that is a master",
        "wait for their fail-over, or check spec.redis.sentinel",
    ),
    "cluster_down": Remedy(
        "its Cluster has no node for the slots of some shards, or serves none while any slot lacks one",
        "look at CLUSTER INFO, and set cluster-require-full-coverage no",
    ),
    "migrating": Remedy(
        "its Cluster is moving the slots of some shards to another node", "wait until that has ended"
    ),
    "other": Remedy("the logs have the error", _NAMED),
}
"""Label values of delayq_redis_down → remedy."""


def remedy(cause: str) -> Remedy:
    """Return the remedy of a label value; that of `other` for values of a newer scanner."""
    return REMEDIES.get(cause, REMEDIES["other"])
