"""Find the servers: ask Sentinels for the master, and a Cluster's nodes for the slots."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from delayq.cli.doctor.findings import Finding, cures, failed, ok, unreachable, warning
from delayq.cli.formats import tasks
from delayq.connection import SyncConnection, reason, translated
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
    Silent = dict[Place, DelayQError | None]
    """Servers without a usable answer; the error, if that is what they answer."""

STOPPED = (
    "does a majority of its masters run, and does each slot have one (redis-cli --cluster check)? "
    "With cluster-require-full-coverage no, the other slots stay available"
)
NO_CLUSTER = "cluster support disabled"  # the reply of a server that is no node
ONE_SERVER = "it is one server: use spec.redis.standalone, or redis://host:port"
MASTER_NAME = "spec.redis.sentinel.masterName: do they monitor a master of this name?"


def find(address: Address, shards: Sequence[Keys]) -> Found:
    """Return findings, and the addresses of the servers of these shards."""
    if address.kind == "sentinel":
        return _by_sentinels(address)
    return _by_slots(address, shards) if address.is_cluster else ([], [address])


def _replies(address: Address, commands: Sequence[Any]) -> list[Any] | DelayQError:
    """Return the replies of a server, or its error."""
    with closing(SyncConnection(address)) as connection:
        try:
            return connection.send(commands)
        except DelayQError as error:
            return error


def _by_sentinels(address: Address) -> Found:
    masters: dict[Place, Master] = {}
    silent: Silent = {}
    for sentinel in address.sentinels:
        place, replies = sentinel.places[0], _replies(sentinel, saying.queries(address.master_name))
        master = None if isinstance(replies, DelayQError) else saying.parse(replies)
        if master is not None:
            masters[place] = master
        else:
            silent[place] = _refusal(place, replies, 0)
    if not masters:
        said = _reasons(silent, f"has no master {address.master_name}")
        return [unreachable("sentinels", said, _hint(silent, MASTER_NAME))], []
    newest = max(masters.values(), key=lambda master: master.epoch or 0)
    return [_agreement(address.master_name, masters, silent)], [address.at(newest.place)]


def _refusal(place: Place, replies: list[Any] | DelayQError, at: int) -> DelayQError | None:
    """Return the error of a server, or its error reply at a position; None if it has another answer."""
    if isinstance(replies, DelayQError):
        return replies
    return translated(replies[at], str(place), "queries") if isinstance(replies[at], Exception) else None


def _reasons(silent: Silent, otherwise: str) -> str:
    return "; ".join(
        f"{place}: {reason(error.why) if isinstance(error, Unavailable) else error or otherwise}"
        for place, error in silent.items()
    )


def _hint(silent: Silent, otherwise: str) -> str:
    """Return what to do about the errors; `otherwise` if a server answers, but not what was asked."""
    errors = [error for error in silent.values() if error is not None and NO_CLUSTER not in str(error)]
    return cures(*errors) if len(errors) == len(silent) else otherwise


def _agreement(name: str, masters: dict[Place, Master], silent: Silent) -> Finding:
    named = sorted({str(master.place) for master in masters.values()})
    if len(named) > 1:
        said = f"they name {len(named)} masters of {name}: {', '.join(named)}"
        return warning(
            "sentinels", said, "a failover is in progress, or a network partition: run the checks again"
        )
    said = f"{len(masters)} of {len(masters) + len(silent)} answer: {name} is {named[0]}"
    if silent:
        hint = f"a failover needs a majority of them; {_hint(silent, MASTER_NAME)}"
        return warning("sentinels", f"{said}; {_reasons(silent, f'has no master {name}')}", hint)
    return ok("sentinels", said)


def _by_slots(address: Address, shards: Sequence[Keys]) -> Found:
    maps: dict[Place, SlotMap] = {}
    silent: Silent = {}
    for place in address.places:
        replies = _replies(address.at(place), holding.QUERIES)
        slots = None if isinstance(replies, DelayQError) else holding.parse(replies, place)
        if slots is not None:
            maps[place] = slots
        else:
            silent[place] = _refusal(place, replies, 1)
    said, findings = _reasons(silent, "does not report its slots"), list[Finding]()
    if not maps:
        return [unreachable("cluster", said, _hint(silent, ONE_SERVER))], []
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
        f"{tasks(masters, 'master')}, {tasks(len(slots.nodes) - masters, 'replica')}; "
        f"{tasks(len(shards), 'shard')} on {len(_holders(slots, shards))} of them"
    )
    if not slots.healthy:
        return failed("cluster", f"cluster_state:fail; {said}", STOPPED)
    return ok("cluster", said)
