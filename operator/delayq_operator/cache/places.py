"""The places of a DelayQueue's tasks, according to its spec: whether a changed spec.redis names another Redis. Pure.

Each node that the spec names is a place: of one Cluster, or of the Sentinels of one master, two documents may name
different nodes in different orders. Two names of one server are not recognized as one, nor is a master that one
document names itself and another by its Sentinels. The spec may be invalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base.objects import mapping, mappings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
PREFIX: Final = "delayq"


def places(queue: str, redis: Mapping[str, Any], namespace: str) -> frozenset[str]:
    """Name every place; the namespace is that of the DelayQueue."""
    common = f"{queue} {redis.get('keyPrefix') or PREFIX} {redis.get('database') or 0}"
    return frozenset(
        f"{common} {master} {_full(str(host), namespace)}:{port}" for master, host, port in _nodes(redis)
    )


def joined(found: Iterable[str]) -> str:
    """Return places as one text, to be split by `separate`."""
    return ", ".join(sorted(found))


def separate(text: str) -> frozenset[str]:
    """Return the places of a text."""
    return frozenset(text.split(", ")) if text else frozenset()


def addresses(found: Iterable[str]) -> list[str]:
    """Return host and port of each place, as host:port."""
    return sorted({place.rpartition(" ")[2] for place in found})


def _nodes(redis: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
    """Name of the master (Sentinels may watch several), host and port."""
    sentinel = mapping(redis.get("sentinel"))
    for node in mappings(sentinel.get("nodes")):
        yield str(sentinel.get("masterName")), node.get("host"), node.get("port") or SENTINEL_PORT
    for node in (mapping(redis.get("standalone")), *mappings(mapping(redis.get("cluster")).get("nodes"))):
        if node:
            yield "", node.get("host"), node.get("port") or PORT


def _full(host: str, namespace: str) -> str:
    """Return the full name of a Service: without a dot, it is in the queue's namespace."""
    name = host.lower().removesuffix(".").removesuffix(".cluster.local")
    return name if set(name) & set(".:") else f"{name}.{namespace}.svc"
