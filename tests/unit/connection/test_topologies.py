"""What servers of a topology say of each other, and what is made of it: no server here says anything."""

from __future__ import annotations

from typing import Any

import pytest
from delayq.connection import Address, sentinels, slots
from delayq.connection.place import Place
from delayq.connection.routing import Redirect, is_cluster_down, is_transient, is_unblocked, redirect
from delayq.connection.topology_state import ClusterTopology, SentinelTopology, no_master
from delayq.errors import Unavailable
from delayq.protocol.keys import Keys
from redis.exceptions import ResponseError

ASKED = Place("10.0.0.1", 7000)
OTHER = Place("10.0.0.2", 7000)
HEALTHY = b"cluster_state:ok\r\ncluster_current_epoch:7\r\n"
HALVES = [
    [0, 8191, [b"10.0.0.1", 7000, b"id1"], [b"10.0.0.9", 7000, b"id9"]],
    [8192, 16383, [b"10.0.0.2", 7000, b"id2"]],
]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("MOVED 866 10.0.0.2:7000", Redirect("MOVED", 866, OTHER)),
        ("ASK 866 10.0.0.2:7000", Redirect("ASK", 866, OTHER)),
        ("MOVED 866 :7001", Redirect("MOVED", 866, Place("10.0.0.1", 7001))),
        ("MOVED 866 ?:7001", Redirect("MOVED", 866, Place("10.0.0.1", 7001))),
        ("MOVED 866 fe80::1:7001", Redirect("MOVED", 866, Place("fe80::1", 7001))),
        ("MOVED 866 node-2.redis.svc:7000", Redirect("MOVED", 866, Place("node-2.redis.svc", 7000))),
        (
            "ERR Error running script (call to f_ab): @user_script: 1: -MOVED 866 10.0.0.2:7000",
            Redirect("MOVED", 866, OTHER),
        ),
        ("ERR unknown task MOVED 866 10.0.0.2:7000", None),
        ("TRYAGAIN Multiple keys request during rehashing of slot", None),
    ],
)
def test_a_redirection_is_read_as_it_was_said(text: str, said: Redirect | None) -> None:
    assert redirect(text, ASKED) == said


def test_a_temporary_error_differs_from_a_refusal() -> None:
    assert is_transient("TRYAGAIN Multiple keys request during rehashing of slot")
    assert is_transient("CLUSTERDOWN Hash slot not served")
    assert is_transient("ERR Error running script (call to f_ab): 1: -TRYAGAIN Multiple keys")
    assert is_transient("ERR Lua script attempted to access a non local key in a cluster node script: f_ab")
    assert not is_transient("CROSSSLOT Keys in request don't hash to the same slot")
    assert is_cluster_down("CLUSTERDOWN The cluster is down")
    assert not is_cluster_down("TRYAGAIN Multiple keys request during rehashing of slot")
    assert is_unblocked("UNBLOCKED force unblock from blocking operation, instance state changed")


def test_slots_are_read_with_their_masters_and_all_nodes() -> None:
    found = slots.parse([HEALTHY, HALVES], ASKED)
    assert found is not None
    assert (found.holders[0], found.holders[8191], found.holders[8192]) == (ASKED, ASKED, OTHER)
    assert found.nodes == {ASKED, OTHER, Place("10.0.0.9", 7000)}
    assert (found.masters, found.epoch, found.healthy) == (frozenset({ASKED, OTHER}), 7, True)
    half = slots.parse([HEALTHY, HALVES[:1]], ASKED)
    assert half is not None
    assert (half.holders[8191], half.holders[8192]) == (ASKED, None)


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ([b"", 7003, b"id"], Place("10.0.0.1", 7003)),
        ([None, 7003, b"id"], Place("10.0.0.1", 7003)),
        ([b"?", 7003, b"id", [b"ip", b"10.0.0.5"]], Place("10.0.0.5", 7003)),
        ([b"?", 7003, b"id", []], Place("10.0.0.1", 7003)),
        ([b"redis-3.example", 7003, b"id", [b"ip", b"10.0.0.5"]], Place("redis-3.example", 7003)),
        ([b"fe80::1", 7003], Place("fe80::1", 7003)),
    ],
)
def test_a_node_is_where_it_announces_itself_or_where_we_asked(server: list[Any], place: Place) -> None:
    found = slots.parse([HEALTHY, [[0, 1, server]]], ASKED)
    assert found is not None
    assert found.holders[0] == place


def test_a_key_in_a_slot_is_where_redis_takes_it_to_be() -> None:
    """12739 is what Redis' own specification says of 123456789."""
    assert slots.slot_of("123456789") == 12739
    keys = Keys("delayq", "orders", 3)
    assert slots.slot_of(keys.wake) == keys.slot
    assert slots.slot_of("{b}x{c}") == slots.slot_of("b")
    assert slots.slot_of("{}b") != slots.slot_of("b")


CLUSTER = Address.from_url("redis+cluster://10.0.0.1:7000,10.0.0.2:7000")


def cluster() -> ClusterTopology:
    return ClusterTopology(CLUSTER)


def view(epoch: int, holder: Place, *, state: str = "ok") -> list[Any]:
    info = f"cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n".encode()
    return [info, [[0, 16383, [holder.host.encode(), holder.port, b"id"]]]]


def test_a_node_that_is_cut_off_is_not_believed_while_another_has_newer_slots() -> None:
    topology = cluster()
    assert topology.add_reply(ASKED, view(7, OTHER))
    topology.begin_round()
    assert not topology.add_reply(OTHER, view(6, ASKED))
    assert not topology.add_reply(OTHER, view(7, ASKED, state="fail"))
    assert topology.holder(0) == OTHER


def test_where_all_nodes_are_cut_off_the_newest_view_is_believed() -> None:
    topology = cluster()
    assert topology.add_reply(ASKED, view(7, OTHER))
    topology.begin_round()
    assert not topology.add_reply(OTHER, view(5, OTHER, state="fail"))
    assert not topology.add_reply(ASKED, view(6, ASKED, state="fail"))
    topology.end_round()
    assert topology.holder(0) == ASKED


def test_a_node_that_is_no_cluster_says_why() -> None:
    topology = cluster()
    refused = ResponseError("This instance has cluster support disabled")
    assert not topology.add_reply(ASKED, [refused, refused])
    assert "10.0.0.1:7000" in topology.why
    assert "cluster support disabled" in topology.why
    assert topology.holder(0) is None


def test_a_slot_that_moved_is_where_its_last_holder_said_and_others_stay() -> None:
    topology = cluster()
    topology.add_reply(ASKED, view(7, ASKED))
    topology.apply_redirect(Redirect("MOVED", 5, OTHER))
    assert (topology.holder(4), topology.holder(5), topology.holder(6)) == (ASKED, OTHER, ASKED)
    assert {address.places[0] for address in topology.candidates()} == {ASKED, OTHER}


def test_a_cluster_without_slots_was_reached() -> None:
    topology = cluster()
    topology.begin_round()
    topology.add_reply(ASKED, [b"cluster_state:fail\r\ncluster_current_epoch:0\r\n", []])
    topology.end_round()
    error = no_master(CLUSTER, topology, None)
    assert isinstance(error, Unavailable)
    assert (error.answered, error.outage) == (True, "cluster_down")
    assert str(error).endswith("does not serve (CLUSTERDOWN no node serves the slot)")


def test_a_cluster_without_known_nodes_is_an_error() -> None:
    refused = Unavailable("a:7000", "connection refused", outage="refused")
    error = no_master(CLUSTER, cluster(), refused)
    assert (str(error), getattr(error, "outage", "")) == (
        f"cannot reach Redis at {CLUSTER.where} (connection refused)",
        "refused",
    )


SENTINELS = [Place("10.0.1.1", 26379), Place("10.0.1.2", 26379), Place("10.0.1.3", 26379)]


def sentinel() -> SentinelTopology:
    where = ",".join(map(str, SENTINELS))
    return SentinelTopology(Address.from_url(f"redis+sentinel://{where}/mymaster/0"))


def named(place: Place, epoch: int) -> list[Any]:
    said = [place.host.encode(), str(place.port).encode()]
    return [said, [b"name", b"mymaster", b"config-epoch", str(epoch).encode()]]


def test_every_sentinel_is_asked_and_the_first_answer_is_used_until_a_newer_one() -> None:
    topology = sentinel()
    assert [address.places[0] for address in topology.candidates()] == SENTINELS
    assert topology.add_reply(SENTINELS[0], named(OTHER, 1))
    assert topology.holder(0) == OTHER
    assert topology.add_reply(SENTINELS[1], named(ASKED, 2))
    assert topology.holder(0) == ASKED
    topology.end_round()
    assert topology.holder(0) == ASKED


def test_a_sentinel_without_such_a_master_or_that_refuses_is_not_the_last_to_be_asked() -> None:
    topology = sentinel()
    assert not topology.add_reply(SENTINELS[0], [None, ResponseError("No such master with that name")])
    assert topology.why == "Sentinel 10.0.1.1:26379: it has no such master; check masterName"
    refused = ResponseError("NOAUTH Authentication required.")
    assert not topology.add_reply(SENTINELS[0], [refused, refused])
    assert "NOAUTH" in topology.why
    assert topology.holder(0) is None


@pytest.mark.parametrize(
    ("known", "views", "believed"),
    [
        (5, [(1, ASKED, 4)], OTHER),  # it missed a fail-over
        (5, [(1, ASKED, 4), (2, ASKED, 0)], ASKED),  # most of them say so
        (5, [(0, ASKED, 4), (1, ASKED, 4), (2, OTHER, 5)], OTHER),  # newer than what most say
        # Who tells Sentinels by hand of another master makes no fail-over: the epoch stays.
        (0, [(0, ASKED, 0), (1, OTHER, 0), (2, ASKED, 0)], ASKED),
    ],
)
def test_the_newest_view_of_sentinels_is_believed_or_that_of_most(
    known: int, views: list[tuple[int, Place, int]], believed: Place
) -> None:
    topology = sentinel()
    topology.add_reply(SENTINELS[0], named(OTHER, known))
    topology.begin_round()
    for nth, master, epoch in views:
        topology.add_reply(SENTINELS[nth], named(master, epoch))
        assert topology.holder(0) == OTHER, "until all were asked"
    topology.end_round()
    assert topology.holder(0) == believed


def test_a_sentinel_without_the_right_to_tell_more_is_believed_where_no_other_tells() -> None:
    refused = ResponseError("NOPERM …")
    topology = sentinel()
    topology.add_reply(SENTINELS[0], named(OTHER, 5))
    topology.begin_round()
    assert topology.add_reply(SENTINELS[1], [named(ASKED, 0)[0], refused])
    topology.end_round()
    assert topology.holder(0) == ASKED
    topology.add_reply(SENTINELS[2], named(OTHER, 5))
    topology.end_round()
    assert topology.holder(0) == OTHER


def test_a_role_is_a_masters_or_it_is_not() -> None:
    assert sentinels.is_master([b"master", 0, []])
    assert not sentinels.is_master([b"slave", b"10.0.0.1", 6379, b"connected", 0])
    assert not sentinels.is_master(ResponseError("NOPERM …"))
