"""Find the servers: ask Sentinels for the master, and a Cluster's nodes for the slots."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from delayq.cli.doctor import causes
from delayq.cli.doctor.findings import Finding, failed, ok, unreachable, warning
from delayq.connection import SyncConnection, reason
from delayq.connection import sentinels as saying
from delayq.connection import slots as holding
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection import Address
    from delayq.connection.place import Place
    from delayq.connection.sentinels import Master
    from delayq.connection.slots import SlotMap
    from delayq.protocol.keys import Keys

    Found = tuple[list[Finding], list[Address]]

STOPPED = (
    "does a majority of its masters run, and does each slot have one (redis-cli --cluster check)? "
    "With cluster-require-full-coverage no, the other slots stay available"
)
REACH = "do they run there, does a firewall or NetworkPolicy allow the connection, do spec.redis.tls and Secrets match?"


def find(address: Address, shards: Sequence[Keys]) -> Found:
    """Return findings, and the addresses of the servers of these shards."""
    if address.kind == "sentinel":
        return _by_sentinels(address)
    return _by_slots(address, shards) if address.is_cluster else ([], [address])


def _replies(address: Address, commands: Sequence[Any]) -> list[Any] | str:
    """Return the replies of a server, or its error."""
    with closing(SyncConnection(address)) as connection:
        try:
            return connection.send(commands)
        except Unavailable as error:
            return reason(error.why)
        except DelayQError as error:
            return str(error)


def _by_sentinels(address: Address) -> Found:
    masters: dict[Place, Master] = {}
    silent: list[str] = []
    for sentinel in address.sentinels:
        place, replies = sentinel.places[0], _replies(sentinel, saying.queries(address.master_name))
        master = None if isinstance(replies, str) else saying.parse(replies)
        if master is not None:
            masters[place] = master
        else:
            silent.append(f"{place}: {_why(replies, 0, f'knows no {address.master_name}')}")
    if not masters:
        said = "; ".join(silent)
        unknown = "spec.redis.sentinel.masterName: do they monitor a master of this name?"
        return [
            unreachable("sentinels", said, unknown if "knows no " in said else _hint(said, sentinel=True))
        ], []
    newest = max(masters.values(), key=lambda master: master.epoch or 0)
    return [_agreement(address.master_name, masters, silent)], [address.at(newest.place)]


def _hint(said: str, *, sentinel: bool = False) -> str:
    refused = any(word in said.lower() for word in ("auth", "pass", "ssl", "certificate", "perm"))
    return causes.hint(said, sentinel=sentinel) if refused else REACH


def _why(replies: list[Any] | str, at: int, otherwise: str) -> str:
    if isinstance(replies, str):
        return replies
    return str(replies[at]) if isinstance(replies[at], Exception) else otherwise


def _agreement(name: str, masters: dict[Place, Master], silent: list[str]) -> Finding:
    named = sorted({str(master.place) for master in masters.values()})
    if len(named) > 1:
        said = f"they name {len(named)} masters of {name}: {', '.join(named)}"
        return warning(
            "sentinels", said, "a failover is in progress, or a network partition: run the checks again"
        )
    said = f"{len(masters)} of {len(masters) + len(silent)} answer: {name} is {named[0]}"
    if silent:
        hint = f"a failover needs a majority of them; {REACH}"
        return warning("sentinels", f"{said}; {'; '.join(silent)}", hint)
    return ok("sentinels", said)


def _by_slots(address: Address, shards: Sequence[Keys]) -> Found:
    maps: dict[Place, SlotMap] = {}
    silent: list[str] = []
    for place in address.places:
        replies = _replies(address.at(place), holding.QUERIES)
        slots = None if isinstance(replies, str) else holding.parse(replies, place)
        if slots is not None:
            maps[place] = slots
        else:
            silent.append(f"{place}: {_why(replies, 1, 'does not report its slots')}")
    said, findings = "; ".join(silent), list[Finding]()
    if not maps:
        one = "it is one server: use spec.redis.standalone, or redis://host:port"
        return [unreachable("cluster", said, one if "cluster support disabled" in said else _hint(said))], []
    if silent:
        named = f"{len(maps)} of {len(address.places)} named nodes answer; {said}"
        findings.append(
            warning("cluster", named, "add other nodes to spec.redis.cluster.nodes, or repair these")
        )
    best = max(maps.values(), key=lambda each: (each.healthy, each.epoch))
    return [*findings, _state(best, shards)], [address.at(place) for place in sorted(_holders(best, shards))]


def _holders(slots: SlotMap, shards: Sequence[Keys]) -> set[Place]:
    return {place for keys in shards if (place := slots.holders[keys.slot]) is not None}


def _state(slots: SlotMap, shards: Sequence[Keys]) -> Finding:
    lost = [str(keys.shard) for keys in shards if slots.holders[keys.slot] is None]
    if lost:
        said = f"no node serves the slots of shards {', '.join(lost)}"
        return failed("cluster", said, "redis-cli --cluster check lists the uncovered slots")
    masters = len(slots.masters)
    said = (
        f"{masters} masters, {len(slots.nodes) - masters} replicas; "
        f"{len(shards)} shards on {len(_holders(slots, shards))} of them"
    )
    if not slots.healthy:
        return failed("cluster", f"cluster_state:fail; {said}", STOPPED)
    return ok("cluster", said)
