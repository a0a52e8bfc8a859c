"""spec.redis: where the queue is kept, and how to connect to it."""

# ruff: noqa: RUF009 - fields.py's functions return dataclasses.field(...), as a default should be
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from delayq.contract.fields import section, sections, text, whole
from delayq.contract.record import Rule, Shape, exclusive
from delayq.contract.references import (
    CaConfigMapRef,
    CaSecretRef,
    CertSecretRef,
    KeySecretRef,
    PasswordSecretRef,
    UsernameSecretRef,
)
from delayq.contract.words import HOST, KEY_PREFIX, MASTER_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """The user to log in as."""

    username_secret_ref: UsernameSecretRef | None = section(
        UsernameSecretRef, default=None, doc="Name of the ACL user. Absent: Redis' default user."
    )
    password_secret_ref: PasswordSecretRef = section(PasswordSecretRef, doc="Password of the user.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where one server listens."""

    host: str = text(HOST, doc="Host name or address, without the port.")
    port: int = whole(1, 65_535, default=6379, doc="TCP port.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standalone(Node):
    """One Redis server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelNode(Node):
    """One Sentinel."""

    port: int = whole(1, 65_535, default=26_379, doc="TCP port.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinel:
    """A master that Sentinels watch and replace when it fails."""

    master_name: str = text(MASTER_NAME, doc="Name of the master in the configuration of Sentinel.")
    nodes: tuple[SentinelNode, ...] = sections(
        SentinelNode, least=1, most=16, doc="The Sentinels; any one that answers is enough to start."
    )
    auth: Auth | None = section(
        Auth, default=None, doc="Credentials for the Sentinels themselves. Absent: none."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode(Node):
    """One node of a Redis Cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Redis Cluster; each shard of the queue lives on one of its nodes."""

    nodes: tuple[ClusterNode, ...] = sections(
        ClusterNode, least=1, most=64, doc="Nodes to ask for the others; any one that answers is enough."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS towards Redis; an empty mapping turns it on with the system's certificate authorities."""

    SHAPE: ClassVar[Shape] = Shape(
        rules=(
            exclusive("ca_secret_ref", "ca_config_map_ref"),
            Rule(
                "certSecretRef and keySecretRef need each other",
                ("cert_secret_ref", "key_secret_ref"),
                lambda cert, key: (cert is None) == (key is None),
                "has(self.certSecretRef) == has(self.keySecretRef)",
            ),
        )
    )

    ca_secret_ref: CaSecretRef | None = section(
        CaSecretRef, default=None, doc="Certificate authority to trust. Absent: the system's own."
    )
    ca_config_map_ref: CaConfigMapRef | None = section(
        CaConfigMapRef, default=None, doc="The same, from a ConfigMap."
    )
    cert_secret_ref: CertSecretRef | None = section(
        CertSecretRef, default=None, doc="Certificate to show to Redis. Absent: none."
    )
    key_secret_ref: KeySecretRef | None = section(
        KeySecretRef, default=None, doc="Private key of the certificate to show."
    )
    server_name: str | None = text(
        HOST, default=None, doc="Name expected in the server's certificate. Absent: the host connected to."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Redis:
    """Where the queue is kept: exactly one of standalone, sentinel, cluster."""

    SHAPE: ClassVar[Shape] = Shape(
        one_of=("standalone", "sentinel", "cluster"),
        renamed=(
            (
                "connection",
                "write redis.timeoutSeconds; max_connections is an argument of SyncClient.open()",
            ),
        ),
        rules=(
            Rule(
                "database must be 0 with cluster",
                ("cluster", "database"),
                lambda cluster, database: cluster is None or database == 0,
                "!has(self.cluster) || self.database == 0",
            ),
        ),
    )

    standalone: Standalone | None = section(Standalone, default=None, doc="One Redis server.")
    sentinel: Sentinel | None = section(
        Sentinel, default=None, doc="A master that Sentinels watch and replace when it fails."
    )
    cluster: Cluster | None = section(Cluster, default=None, doc="A Redis Cluster.")
    database: int = whole(0, 1023, default=0, doc="Number of the database; a cluster has only 0.")
    tls: Tls | None = section(
        Tls, default=None, doc="TLS settings; an empty mapping is enough to turn it on. Absent: no TLS."
    )
    auth: Auth | None = section(Auth, default=None, doc="Credentials for Redis. Absent: none.")
    key_prefix: str = text(
        KEY_PREFIX,
        default="delayq",
        doc="First part of every key of the queue in Redis. Cannot be changed later.",
        immutable=True,
    )
    timeout_seconds: int = whole(
        1, 300, default=5, doc="Longest wait for a connection or an answer before it counts as failed."
    )
