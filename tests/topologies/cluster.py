"""A Redis Cluster of three primaries and three replicas: formed at once, and broken in any way a test asks for.

Node `n + 3` begins as the replica of node `n`; after a fail-over, ask `primaries()`. Not here: what delayq makes of it.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq.protocol.keys import SLOTS
from redis.cluster import ClusterNode, RedisCluster

from tests.processes import Gone
from tests.servers import PASSWORD, USER, Clock, RedisServer
from tests.topologies.waiting import answer, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from delayq.protocol.keys import Keys
    from redis import Redis

    from tests.topologies.certificates import Tls

PRIMARIES = 3
# A Cluster's nodes talk to each other at their port plus 10,000, which must not be a port that a client may be given.
PORTS = range(10_000, 20_000)
FOR_EVER = str(2**31 - 1)
PATIENT = {"cluster-node-timeout": FOR_EVER, "repl-timeout": FOR_EVER, "cluster-replica-no-failover": "yes"}
"""For a movable clock: a jump by an hour makes no node believe that the others are gone."""


FAIL_OVER_SECONDS, PATIENT_TRIES = 5.5, 6  # Redis gives up a manual one after 5 s


@dataclass
class Cluster:
    """Six servers. The slots are cut in three, in order, until a test moves some."""

    flavour: str
    nodes: list[RedisServer]
    clock: Clock | None = None
    tls: Tls | None = None
    ids: list[str] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        flavour: str,
        *,
        dir: Path,  # noqa: A002  as for a single server
        node_timeout_ms: int = 2000,
        movable_clock: bool = False,
        base_ms: int = 0,
        config: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        replicas: bool = True,
        **options: Any,  # noqa: ANN401  RedisServer.start's
    ) -> Cluster:
        """Start and form it. The primaries share a movable clock, which is fast by `base_ms` from the beginning."""
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(node_timeout_ms),
            "cluster-require-full-coverage": "no",
            "repl-diskless-sync-delay": "0",
            **(config or {}),
        }
        dir.mkdir(parents=True, exist_ok=True)
        clock = Clock(dir / "clock", 0, base_ms=base_ms) if movable_clock else None
        cluster = cls(flavour, [], clock, tls)
        try:
            for number in range(2 * PRIMARIES if replicas else PRIMARIES):
                primary = number < PRIMARIES
                cluster.nodes.append(
                    RedisServer.start(
                        flavour,
                        dir=dir / f"node-{number}",
                        movable_clock=(clock or False) if primary else False,
                        config=settings,
                        ports=PORTS,
                        tls=tls,
                        **options,
                    )
                )
            cluster.form()
            if clock is not None:
                clock.port = cluster.nodes[0].port
                cluster.be_patient()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    # how it comes to be

    def form(self) -> None:
        """Assign the slots, introduce all nodes to each other, and wait until all of them report the state ok."""
        with ExitStack() as stack:
            clients = [stack.enter_context(node.client()) for node in self.nodes]
            self.ids = [str(client.execute_command("CLUSTER MYID")) for client in clients]
            for number, client in enumerate(clients):
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                if number < PRIMARIES:
                    client.execute_command("CLUSTER ADDSLOTS", *share(number))
                for other in self.nodes[:number]:
                    client.execute_command("CLUSTER MEET", other.host, other.port)
            until(lambda: all(self._met(client) for client in clients), "all have met")
            for number, client in enumerate(clients[PRIMARIES:]):
                client.execute_command("CLUSTER REPLICATE", self.ids[number])
            until(lambda: self.well(clients), "the Cluster is formed")

    def be_patient(self) -> None:
        """Only now: nodes that are patient from the start get to know each other slowly."""
        for node in self.nodes:
            with node.client() as client:
                for name, value in PATIENT.items():
                    client.config_set(name, value)

    def _met(self, client: Redis) -> bool:
        lines = nodes_of(client)
        return {line[0] for line in lines} == set(self.ids) and not any(
            "handshake" in line[2] for line in lines
        )

    def well(self, clients: list[Any]) -> bool:
        """Whether all nodes know of all slots, and all replicas hold what their primaries do."""
        for client in clients:
            about = client.execute_command("CLUSTER INFO")
            if about["cluster_state"] != "ok" or int(about["cluster_slots_ok"]) != SLOTS:
                return False
            if sum("slave" in line[2] for line in nodes_of(client)) != len(self.nodes) - PRIMARIES:
                return False
            role: Any = client.execute_command("ROLE")
            if str(role[0]) == "slave" and role[3] != "connected":
                return False
        return True

    def wait_well(self, *, timeout_s: float = 60) -> float:
        """Until every node that runs says that all slots are served, and all by the same; the seconds it took."""
        with ExitStack() as stack:
            running = [node for node in self.nodes if node.process.alive and not node.paused]
            clients = [stack.enter_context(node.client()) for node in running]

            def agreed() -> bool:
                owners = [
                    {(line[0], *line[8:]) for line in nodes_of(client) if "master" in line[2] and line[8:]}
                    for client in clients
                ]
                return all(map(serving, clients)) and all(each == owners[0] for each in owners)

            return until(agreed, "the Cluster serves", timeout_s=timeout_s)

    # what tests of a single server ask it for, too

    @property
    def url(self) -> str:
        """Where and as whom delayq connects: three of the nodes are enough to find the others."""
        scheme, query = ("redis", "") if self.tls is None else ("rediss", f"?{self.tls.query()}")
        seeds = ",".join(f"{node.host}:{node.port}" for node in self.nodes[:PRIMARIES])
        return f"{scheme}+cluster://{USER}:{PASSWORD}@{seeds}{query}"

    @property
    def version(self) -> tuple[int, ...]:
        return self.nodes[0].version

    def client(self, *, decode: bool = True) -> Any:  # noqa: ANN401  it has the methods of Redis, and is none
        """A plain client that follows redirections."""
        tls: dict[str, Any] = {} if self.tls is None else self.tls.options()
        new: Any = ClusterNode  # without types
        seeds = [new(node.host, node.port) for node in self.nodes if node.process.alive]
        return RedisCluster(startup_nodes=seeds, decode_responses=decode, socket_timeout=20, **tls)

    def on(self, keys: Keys) -> Redis:
        """A client to where these keys are now, which takes and gives bytes."""
        return self.serving(keys.slot).client(decode=False)

    def all(self) -> list[RedisServer]:
        """Every server that keeps tasks: the primaries that the Cluster began with."""
        return self.nodes[:PRIMARIES]

    def now_ms(self) -> int:
        return self.nodes[0].now_ms()

    def reset(self) -> None:
        """Empty, on time, and with no script loaded."""
        if self.clock is not None and self.clock.offset_ms != 0:
            self.clock.set_ms(0)
        for node in self.all():
            node.reset()

    def stop(self) -> None:
        for node in self.nodes:
            node.process.kill()

    # who is who

    def map(self) -> list[tuple[int, int, RedisServer]]:
        """First and last slot, and who serves them, as the first node that answers sees it."""
        found: Any = answer(self.nodes, "CLUSTER SLOTS")
        return [(int(first), int(last), self.at(int(primary[1]))) for first, last, primary, *_ in found]

    def at(self, port: int) -> RedisServer:
        return next(node for node in self.nodes if node.port == port)

    def serving(self, slot: int) -> RedisServer:
        """The primary of a slot."""
        return next(node for first, last, node in self.map() if first <= slot <= last)

    def primaries(self) -> list[RedisServer]:
        """Those that serve slots now."""
        return list({node.port: node for _, _, node in self.map()}.values())

    def replica_of(self, primary: RedisServer) -> RedisServer:
        """A replica which is connected to it, once there is one."""
        with primary.client() as client:
            found: list[Any] = []

            def connected() -> bool:
                role: Any = client.execute_command("ROLE")
                found[:] = role[2] if str(role[0]) == "master" else []
                return bool(found)

            until(connected, f"{primary.port} has a replica")
        return self.at(int(found[0][1]))

    def id_of(self, node: RedisServer) -> str:
        return self.ids[self.nodes.index(node)]

    # fail-over

    def fail_over(self, slot: int, *, force: bool = False) -> RedisServer:
        """Have a replica take over; the new primary, as soon as it serves the slot.

        Asked again until it does: nodes elect no two successors of one primary shortly after each other.
        """
        replica = self.replica_of(self.serving(slot))
        for _ in range(PATIENT_TRIES):
            with replica.client() as client:
                client.execute_command("CLUSTER FAILOVER", *(["FORCE"] if force else []))
            with suppress(Gone):
                self.wait_promoted(replica, timeout_s=FAIL_OVER_SECONDS)
                return replica
        raise Gone(f"{replica.port} did not take over")

    def wait_promoted(self, replica: RedisServer, *, timeout_s: float = 60) -> float:
        """Until a replica serves as a primary, and all know; the seconds until it did."""
        with replica.client() as client:
            seconds = until(
                lambda: str(client.execute_command("ROLE")[0]) == "master" and serving(client),
                "a replica was promoted",
                timeout_s=timeout_s,
            )
        self.wait_well()
        return seconds

    # moving a slot, step by step

    def begin_move(self, slot: int, target: RedisServer) -> RedisServer:
        """From now on, keys that are not there any more are asked for at the target; says where it came from."""
        source = self.serving(slot)
        self._setslot(target, slot, "IMPORTING", self.id_of(source))
        self._setslot(source, slot, "MIGRATING", self.id_of(target))
        return source

    def move_keys(self, slot: int, source: RedisServer, target: RedisServer, *, most: int = 1000) -> int:
        """Move some keys of a slot that is on its way; how many."""
        with source.client(decode=False) as client:
            keys: Any = client.execute_command("CLUSTER GETKEYSINSLOT", slot, most)
            if keys:
                client.execute_command(
                    "MIGRATE", target.host, target.port, "", 0, 20_000, "REPLACE", "KEYS", *keys
                )
            return len(keys)

    def end_move(self, slot: int, target: RedisServer) -> None:
        """Set the owner on all nodes: on the target first, which must not see another owner in between."""
        others = [node for node in self.primaries() if node is not target]
        for node in (target, *others):
            self._setslot(node, slot, "NODE", self.id_of(target))

    def move(self, slot: int, target: RedisServer) -> None:
        """Move a slot with all its keys, while others may be writing to it."""
        source = self.begin_move(slot, target)
        while self.move_keys(slot, source, target):
            pass
        self.end_move(slot, target)

    def lose(self, slot: int) -> None:
        """Have no node hold it any more, by all nodes' word. Its holder goes first, or others learn of it again."""
        holder = self.serving(slot)
        for node in sorted(self.nodes, key=lambda node: node is not holder):
            with node.client() as client:
                client.execute_command("CLUSTER", "DELSLOTS", slot)

    def _setslot(self, node: RedisServer, slot: int, state: str, other: str) -> None:
        with node.client() as client:
            client.execute_command("CLUSTER SETSLOT", slot, state, other)


def share(number: int) -> Iterator[int]:
    """The slots that a primary begins with."""
    return iter(range(number * SLOTS // PRIMARIES, (number + 1) * SLOTS // PRIMARIES))


def nodes_of(client: Redis) -> list[list[str]]:
    """CLUSTER NODES as it stands, one list of words for each node: redis-py's reading of it loses some."""
    connection: Any = client.connection_pool.get_connection()
    try:
        connection.send_command("CLUSTER", "NODES")
        text = connection.read_response(disable_decoding=True)
    finally:
        client.connection_pool.release(connection)
    return [line.split() for line in text.decode().splitlines()]


def serving(client: Any) -> bool:  # noqa: ANN401  redis-py leaves this method without types
    about: Any = client.execute_command("CLUSTER INFO")
    return about["cluster_state"] == "ok" and int(about["cluster_slots_ok"]) == SLOTS
