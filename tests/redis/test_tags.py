"""Tags and bulk operations: which tasks a page covers, and that the index of tags is a hint that no use relies on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from delayq import InvalidTask, NewTask, SyncClient
from delayq.errors import DelayQError
from delayq.protocol.envelope import Further, encode, with_fields
from delayq.protocol.results import Bulk, MigratingTask, Outcome, Rescheduled, Selection
from delayq.protocol.results import State as In
from delayq.protocol.shard_map import ShardMap

from tests.redis.state import NOW, State

if TYPE_CHECKING:
    from delayq.protocol.results import BulkPage

    from tests.redis.conftest import Make
    from tests.redis.state import Shard


def tagged(
    *tags: str,
    kind: str = "",
    due_ms: int = NOW,
    payload: object = None,
    deadline_ms: int | None = None,
) -> bytes:
    further = Further(kind, 1 if kind else 0, deadline_ms, tags=tags)
    return with_fields(encode(payload, None, None)[0], further) + due_ms.to_bytes(6, "big")


def store(
    shard: Shard, task_id: str, envelope: bytes, when: str = "+0", *, if_exists: str = "reject"
) -> Outcome:
    stored = shard.store(task_id, when, envelope[:-6], if_exists=if_exists)
    return stored.notes.get(0, Outcome.CREATED)


def bulk(
    shard: Shard,
    action: Any,  # noqa: ANN401
    cursor: bytes = b"",
    *,
    count: int = 100,
    **chosen: Any,  # noqa: ANN401
) -> BulkPage:
    call = shard.commands.bulk(0, action, Selection(**chosen), cursor, count=count)
    return shard.run(call)


A = tagged("x")
EVERY_HOME = State(
    delayed={"delayed": NOW + 5},
    retry={"retry": NOW + 6},
    suspect={"suspect": 7},
    parked={f"- 00000 {NOW:015d} parked": 0},
    processing={"running:1": NOW + 9},
    dlq={"dead": NOW - 9},
    dlq_info={"dead": "1 0 buried no"},
    tasks=dict.fromkeys(["delayed", "retry", "suspect", "parked", "running", "dead"], A)
    | {"other": tagged("xy")},
    tags=dict.fromkeys(
        [*(f"x {name}" for name in ("delayed", "retry", "suspect", "parked", "running", "dead")), "xy other"],
        0,
    ),
)


def test_a_task_is_found_by_each_of_its_tags_from_the_same_call_that_stores_it(shard: Shard) -> None:
    store(shard, "a", tagged("x", "ü:1"))
    store(shard, "plain", b"\x11{}......")
    store(shard, "kind", tagged(kind="push"))
    whole = shard.whole()
    assert whole.tags == {"x a": 0, "ü:1 a": 0}
    assert shard.view("a").tags == ("x", "ü:1")
    [lease, *_] = shard.run(shard.commands.claim(0, 1, 1000)).leases
    assert lease.task.tags == ("x", "ü:1")


def test_a_queue_without_tags_and_deadlines_has_no_key_of_them(shard: Shard) -> None:
    store(shard, "a", b"\x11{}......")
    shard.run(shard.commands.claim(0, 1, 1000))
    assert not shard.redis.exists(shard.keys.tags, shard.keys.deadlines)


@pytest.mark.parametrize("end", ["ack", "cancel", "bulk"])
def test_the_entries_of_a_task_end_with_it(shard: Shard, end: str) -> None:
    store(shard, "a", tagged("x", "y", deadline_ms=60))
    store(shard, "b", tagged("x", deadline_ms=60), "+99")
    assert shard.whole().deadlines == {"a": NOW + 61, "b": NOW + 160}
    if end == "ack":
        [lease] = shard.run(shard.commands.claim(0, 1, 1000)).leases
        shard.run(shard.commands.ack(0, [lease.member]))
    elif end == "cancel":
        shard.run(shard.commands.cancel("a"))
    else:
        assert bulk(shard, "cancel", tag="y").found == Bulk(1)
    whole = shard.whole()
    assert (whole.tags, whole.deadlines) == ({"x b": 0}, {"b": NOW + 160})


def test_a_page_finds_tasks_in_every_state_and_cancels_those_that_wait(shard: Shard) -> None:
    """Also with full memory."""
    before = shard.seed(EVERY_HOME)
    assert bulk(shard, "count", tag="x") == (b"", Bulk(4, 0, 1, 1), [], [])
    assert sorted(bulk(shard, "list", tag="x").listed) == [
        *(("delayed", NOW + 5), ("parked", NOW), ("retry", NOW + 6), ("suspect", NOW))
    ]
    letters = shard.run(shard.commands.list(0, In.DEAD, limit=9, chosen=Selection("x")))
    assert [row.id for row in letters.rows.values()] == ["dead"]
    assert shard.whole() == before
    with shard.full_memory():
        assert bulk(shard, "cancel", tag="x").found == Bulk(4, 0, 1, 1)
    after = before.without(
        *("delayed", "retry", "suspect", "parked"),
        **{index: {} for index in ("delayed", "retry", "suspect", "parked")},
        tags={"x running": 0, "x dead": 0, "xy other": 0},
        stats={"cancelled": 4},
    )
    assert shard.whole() == after
    assert bulk(shard, "cancel", tag="x").found == Bulk(0, 0, 1, 1)
    assert shard.whole() == after


def test_a_kind_and_a_due_time_select_with_or_without_a_tag(shard: Shard) -> None:
    tasks = {
        "a": tagged("x", kind="push"),
        "b": tagged("x", kind="pus"),
        "c": tagged("x"),
        "d": b"\x11{}......",
    }
    dues = {"a": NOW + 1, "b": NOW + 2, "c": NOW + 3, "d": NOW + 4}
    shard.seed(State(delayed=dues, tasks=tasks, tags={"x a": 0, "x b": 0, "x c": 0}))

    def ids(**chosen: Any) -> str:  # noqa: ANN401
        return "".join(sorted(name for name, _ in bulk(shard, "list", **chosen).listed))

    for tag in ("x", None):
        assert (ids(tag=tag, kind="push"), ids(tag=tag, kind="pus")) == ("a", "b")
        assert ids(tag=tag, due_from_ms=NOW + 2, due_before_ms=NOW + 3) == "b"
        assert ids(tag=tag, due_before_ms=NOW + 3) == "ab"
    assert ids(due_from_ms=NOW + 3) == "cd"
    assert ids(tag="x", due_from_ms=NOW + 3) == "c"


@pytest.mark.parametrize("tag", ["x", None], ids=["tag", "no tag"])
def test_a_call_is_bounded_and_the_pages_cover_each_task_once(shard: Shard, tag: str | None) -> None:
    """In a small hash, HSCAN returns all tasks at once: what a call changes is bounded all the same."""
    names = [f"t{n:03d}" for n in range(120)]
    before = State(
        delayed=dict.fromkeys(names, NOW),
        processing={"running:1": NOW + 9},
        dlq={"dead": NOW},
        tasks=dict.fromkeys(["running", "dead", *names], A),
        tags={f"x {name}": 0 for name in [*names, "running", "dead"]},
    )
    for action in ("count", "cancel"):
        shard.seed(before)
        cursor, found, most = b"", Bulk(), 0
        while True:
            page = bulk(shard, action, cursor, count=25, tag=tag, due_from_ms=NOW)
            found = Bulk(*map(sum, zip(found, page.found, strict=True)))
            most, cursor = max(most, page.found.tasks), page.cursor
            if not cursor:
                break
        assert found == Bulk(120, 0, 1, 1)
        if action == "cancel" or tag:
            assert most <= 25
    assert sorted(shard.whole().envelopes) == ["dead", "running"]


def test_a_cursor_of_another_server_starts_again(shard: Shard) -> None:
    """Another server, or the same after a restart, has the tasks in another order."""
    names = [f"t{n}" for n in range(1000)]
    shard.seed(State(delayed=dict.fromkeys(names, NOW)))
    cursor = bulk(shard, "count", due_from_ms=0, count=500).cursor
    found, cursor = 0, b"0123abc " + cursor.split()[1]
    while cursor:
        page = bulk(shard, "count", cursor, due_from_ms=0)
        found, cursor = found + page.found.tasks, page.cursor
    assert found == 1000


def test_a_stale_entry_selects_nothing_and_the_reaper_removes_it(shard: Shard) -> None:
    store(shard, "a", tagged("x"))
    store(shard, "a", tagged("y"), if_exists="replace")
    shard.redis.zadd(shard.keys.tags, {"x gone": 0, "garbage": 0})
    assert bulk(shard, "cancel", tag="x").found == Bulk()
    shard.run(shard.commands.reconcile(0, "tags", 0, count=100))
    assert shard.whole().tags == {"y a": 0}


def test_an_entry_that_was_lost_is_added(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW, "b": NOW}, tasks={"a": A, "b": b"\x11{}......"}))
    shard.run(shard.commands.audit_size(0))
    assert (shard.whole().tags, shard.whole().stats) == ({"x a": 0}, {})


def test_a_follow_up_is_found_by_its_own_tags(shard: Shard) -> None:
    store(shard, "a", tagged("x"))
    [lease] = shard.run(shard.commands.claim(0, 1, 1000)).leases
    assert store(shard, "a", tagged("x", "y", deadline_ms=50), "+7", if_exists="replace") is Outcome.FOLLOWS
    assert bulk(shard, "list", tag="y").listed == [("a", NOW + 7)]
    assert bulk(shard, "count", tag="x").found == Bulk(0, 1, 1)
    moved = shard.run(shard.commands.reschedule("a", str(NOW + 9), max_delay_ms=99, was_ms=NOW + 7))
    assert moved.outcome == "rescheduled"
    shard.run(shard.commands.reconcile(0, "tags", 0, count=100))
    shard.run(shard.commands.ack(0, [lease.member]))
    whole = shard.whole()
    assert (whole.tags, whole.deadlines) == ({"x a": 0, "y a": 0}, {"a": NOW + 60})
    assert bulk(shard, "count", tag="y").found == Bulk(1)
    shard.clock(NOW + 9)
    [lease] = shard.run(shard.commands.claim(0, 1, 1000)).leases
    store(shard, "a", tagged("y"), "+7", if_exists="replace")
    assert bulk(shard, "cancel", tag="y").found == Bulk(0, 1, 1)
    shard.run(shard.commands.ack(0, [lease.member]))
    assert shard.whole().but(stats={}, wake=0, alarm=0) == State()


def test_a_reschedule_from_a_time_changes_nothing_that_is_due_at_another(shard: Shard) -> None:
    before = shard.seed(State(delayed={"a": NOW + 5}, tasks={"a": A}))
    call = shard.commands.reschedule("a", str(NOW + 7), max_delay_ms=99, was_ms=NOW + 4)
    assert shard.run(call) == Rescheduled("changed", NOW + 5)
    assert shard.whole() == before


def test_a_task_arrives_with_its_entries_and_one_in_migration_is_reported(shard: Shard) -> None:
    arguments = (b"a", b"delayed", b"%d" % NOW, A, b"", b"")
    shard.run(shard.commands.migrate_in(0, 1, 7, [MigratingTask(0, arguments)]))
    assert shard.whole().tags == {"x a": 0}
    shard.redis.zadd(shard.keys.moving, {"a": 7})
    assert bulk(shard, "cancel", tag="x") == (b"", Bulk(), [b"a"], [])
    shard.redis.delete(shard.keys.moving)


# clients


def several(client: SyncClient, count: int = 700) -> None:
    client.schedule_many(
        NewTask(n, delay_ms=60_000 + n, task_id=f"t{n}", tags=["x", f"n:{n % 2}"]) for n in range(count)
    )


@pytest.mark.every_topology
def test_a_client_covers_every_shard_and_repeats_safely(make: Make) -> None:
    client = make(shards=4)
    several(client)
    client.schedule(1, delay_ms=60_000, task_id="other", tags=["y"])
    seen = list[Bulk]()
    assert client.count_many(tag="x", progress=seen.append) == Bulk(700)
    assert seen[-1] == Bulk(700)
    assert len(seen) >= 2
    assert client.cancel_many(tag="n:1") == Bulk(350)
    assert client.cancel_many(tag="n:1") == Bulk()
    now = client.counts().now_ms
    soon = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now + 5000_000)
    assert client.reschedule_many(due=soon, tag="x") == Bulk(350)
    assert client.reschedule_many(due_ms=now + 5000_000, tag="x") == Bulk(350)
    assert client.counts(["83m", timedelta(minutes=84)], instants=[soon]).due_within == {
        "83m": 1,
        timedelta(minutes=84): 351,
    }
    assert client.counts(instants=[soon]).due_by == {soon: 351}
    assert client.counts(instants_ms=[now + 4999_999, now + 5000_000]).due_by == {
        now + 4999_999: 1,
        now + 5000_000: 351,
    }
    assert client.reschedule_many(shift="-1s", tag="x") == Bulk(350)
    second = timedelta(seconds=1)
    assert client.count_many(due_from=soon - second, due_before_ms=now + 4999_001) == Bulk(350)
    assert client.count_many(tag="x", due_before=soon - second) == Bulk()
    assert client.reschedule_many(shift=second, tag="x") == Bulk(350)
    assert client.reschedule_many(shift_ms=-1000, tag="x") == Bulk(350)
    far = client.reschedule_many(shift_ms=10**12, tag="x")
    assert (far.tasks, far.too_far) == (0, 350)
    assert client.cancel_many(due_from_ms=0) == Bulk(351)
    assert client.counts().waiting == 0


@pytest.mark.parametrize(("was", "shards"), [(2, 5), (5, 2)], ids=["more", "fewer"])
@pytest.mark.parametrize("verb", ["cancel", "later"])
def test_tasks_that_migrate_meanwhile_are_covered_once(make: Make, was: int, shards: int, verb: str) -> None:
    """A batch of each shard is in migration, another has arrived and is not committed."""
    client = make(shards=was)
    several(client, 400)
    before = client.shard_map
    moving = ShardMap(before.epoch + 1, shards, was, shards, max(was, shards))
    commands = client.commands
    run = SyncClient(client.address, queue=client.queue).open()._connection.run
    run([commands.sync_shard_map(shard, moving) for shard in range(max(was, shards))])
    pinned = commands.pinned_to(moving)
    names = sorted(f"t{n}" for n in range(400))
    leaving = [
        [name.encode() for name in names if before.home(name) == shard != moving.home(name)]
        for shard in range(was)
    ]

    def migrate(first: int, last: int, *, arrive: bool) -> int:
        """Migrate some tasks of each shard, in the order in which a bulk operation reads them."""
        found = 0
        for shard in range(was):
            [batch] = run([pinned.migrate_out(shard, leaving[shard][first:last], near_ms=1)])
            found += len(batch.tasks)
            for to, tasks in batch.by_shard().items() if arrive else ():
                run([pinned.migrate_in(to, shard, batch.token, tasks)])
        return found

    assert migrate(10, 20, arrive=False) + migrate(20, 30, arrive=True) >= 30
    late = iter([True])

    def progress(_: Bulk) -> None:
        """Those of the first page migrate when it is done."""
        if next(late, None):
            migrate(0, 10, arrive=True)

    if verb == "cancel":
        assert client.cancel_many(tag="x", progress=progress).tasks == 400
        assert client.counts().waiting == 0
        return
    now = client.counts().now_ms
    assert client.reschedule_many(shift_ms=1_000_000, tag="x", progress=progress).tasks == 400
    assert client.counts(instants_ms=[now + 1_000_000, now + 1_070_000]).due_by == {
        now + 1_000_000: 0,
        now + 1_070_000: 400,
    }


def test_dead_letters_are_listed_by_tag_and_kind(make: Make, shard: Shard) -> None:
    shard.seed(
        EVERY_HOME.but(
            dlq={"dead": NOW - 9, "pushed": NOW - 8},
            dlq_info=dict.fromkeys(["dead", "pushed"], "1 0 buried no"),
            tasks={**EVERY_HOME.envelopes, "pushed": tagged("x", kind="push")},
            tags={**EVERY_HOME.tags, "x pushed": 0},
        )
    )
    client = make()
    assert [row.id for row in client.dlq_list(tag="x")] == ["dead", "pushed"]
    assert [row.id for row in client.dlq_list(tag="x", kind="push")] == ["pushed"]
    assert [row.id for row in client.dlq_list(["dead", "pushed"], tag="x", kind="")] == ["dead"]
    assert (
        client.dlq_list(tag="y") == client.dlq_list(["other"], tag="x") == client.dlq_list(kind="pus") == []
    )
    assert client.dlq_redrive([row.id for row in client.dlq_list(tag="x", kind="")]).tasks == 1
    assert bulk(shard, "count", tag="x").found == Bulk(5, 0, 1, 1)


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        (["a b"], "tags of task t: expected 1 to 64 bytes without spaces or control characters, got 'a b'"),
        (["ü" * 33], "expected 1 to 64 bytes"),
        ([1], "got 1"),
        ("customer", "expected a list of strings, got 'customer'"),
        ([str(n) for n in range(9)], "expected at most 8, got 9"),
    ],
)
def test_tags_that_cannot_be_stored_are_refused(make: Make, tags: list[str], says: str) -> None:
    client = make()
    with pytest.raises(InvalidTask, match=says):
        client.schedule(1, delay_ms=0, task_id="t", tags=tags)
    assert client.get("t") is None


def test_a_bulk_operation_needs_a_valid_selection(make: Make) -> None:
    client = make()
    with pytest.raises(ValueError, match="expected a tag, a kind, due_from or due_before, got none"):
        client.cancel_many()
    with pytest.raises(InvalidTask, match="tag: expected 1 to 64 bytes"):
        client.count_many(tag="a b")
    with pytest.raises(InvalidTask, match="kind: expected the name of a kind"):
        client.count_many(kind="a b")
    with pytest.raises(ValueError, match="due_from_ms: expected milliseconds since 1970, got -1"):
        client.count_many(due_from_ms=-1)
    with pytest.raises(ValueError, match="exactly one of due and shift"):
        client.reschedule_many(tag="x")
    with pytest.raises(DelayQError, match="looks like seconds"):
        client.reschedule_many(tag="x", due_ms=1_893_456_000)
