"""The HTTP API's contract, docs/reference/http.md: each row of its tables against a running process."""

from __future__ import annotations

import base64
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from delayq import DelaySchedule, parse_schedule
from delayq.api.problems import TYPES
from delayq.protocol.envelope import Further, encode, with_fields

from tests.process.http_api import serving
from tests.redis.state import State, seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.http_api import Served

STATES = ("unknown", "scheduled", "retrying", "suspect", "parked", "in_flight", "dead", "done")
POLICIES = ("keep", "reject", "replace", "debounce")
WAITING = {
    "keep": (200, "kept"),
    "reject": (409, "exists"),
    "replace": (200, "replaced"),
    "debounce": (200, "replaced"),
}
CREATED = dict.fromkeys(POLICIES, (201, "created"))
TABLE = {
    "unknown": CREATED,
    **dict.fromkeys(("scheduled", "retrying", "suspect", "parked", "dead"), WAITING),
    "in_flight": WAITING | {"replace": (202, "follows"), "debounce": (202, "follows")},
    "done": CREATED | {"keep": (200, "kept")},
}
LATER = 1_893_456_000_000  # 2030, ms
PUSH = with_fields(encode(None, None, None)[0], Further("push", 1)) + LATER.to_bytes(6, "big")


@pytest.fixture(scope="module")
def api(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        flavour,
        tmp_path_factory.mktemp("api"),
        limits={"maxPayloadBytes": 100_000, "maxDelaySeconds": 86_400},
        retention={"finished": {"seconds": 3600}},
        schedules={},
    ) as served:
        yield served


@pytest.fixture
def empty(api: Served) -> Served:
    """The same without a task."""
    with api.server.client(decode=False) as redis:
        seed(redis, api.keys, State())
    return api


def ids(state: str) -> list[str]:
    return [f"email:{state}-{policy}" for policy in POLICIES]


@pytest.fixture
def seeded(api: Served) -> Served:
    """A task in each state for each value of ifExists."""
    now_ms = round(time.time() * 1000)
    with api.server.client(decode=False) as redis:
        seed(
            redis,
            api.keys,
            State(
                tasks={f"email:{state}-{policy}": PUSH for state in STATES[1:-1] for policy in POLICIES},
                delayed=dict.fromkeys(ids("scheduled"), LATER),
                retry=dict.fromkeys(ids("retrying"), LATER),
                suspect=dict.fromkeys(ids("suspect"), LATER),
                processing=dict.fromkeys(
                    [f"{each}:{n}" for n, each in enumerate(ids("in_flight"), 1)], LATER
                ),
                parked={f"push 00001 {LATER:015d} {each}": 0 for each in ids("parked")},
                dlq=dict.fromkeys(ids("dead"), now_ms),
                finished=dict.fromkeys(ids("done"), now_ms),
                finished_info=dict.fromkeys(ids("done"), f"1 0 {now_ms} 3600"),
            ),
        )
    return api


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("state", STATES)
def test_what_a_put_answers_if_the_id_exists(seeded: Served, state: str, policy: str) -> None:
    """Each cell of the table."""
    body = {"payload": 1, "delay": "1m", **({"debounce": "1h"} if policy == "debounce" else {})}
    reply = seeded.call("PUT", f"/tasks/email/{state}-{policy}?ifExists={policy}", body)
    status, word = TABLE[state][policy]
    assert reply.status == status
    assert (reply.body["outcome"] if status < 400 else reply.kind) == word
    if status < 400:
        assert reply.body["id"] == f"email:{state}-{policy}"


def test_a_task_is_stored_read_changed_and_cancelled(empty: Served) -> None:
    task = {
        "payload": {"n": 1},
        "delay": "30m",
        "deadline": "2h",
        "headers": {"a": "b"},
        "tags": ["eu"],
        "version": 2,
    }
    stored = empty.call("PUT", "/tasks/email/order-7", task, X_Request_Id="mine")
    assert (stored.status, stored.headers["x-request-id"]) == (201, "mine")
    with empty.client() as client:
        view = client.get("order-7", kind="email")
    assert view is not None
    assert (view.payload, view.headers, view.tags, view.kind_version) == ({"n": 1}, {"a": "b"}, ("eu",), 2)
    assert view.deadline_ms == 7_200_000
    read = empty.call("GET", "/tasks/email/order-7").body
    assert read["payload"] == {"n": 1}
    assert read["due"] == stored.body["due"]
    at = datetime.now(timezone(timedelta(hours=1))).replace(microsecond=7_000) + timedelta(hours=1)
    moved = empty.call("PATCH", "/tasks/email/order-7", {"due": at.isoformat()})
    utc = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert moved.body == {"outcome": "rescheduled", "due": utc}
    assert empty.call("DELETE", "/tasks/email/order-7").body == {"outcome": "cancelled"}
    assert empty.call("DELETE", "/tasks/email/order-7").kind == "not-found"
    assert empty.call("GET", "/tasks/email/order-7").status == 404
    assert empty.call("PATCH", "/tasks/email/order-7", {"delay": "1m"}).status == 404


def test_ids_may_have_slashes_and_kinds_may_be_absent(empty: Served) -> None:
    assert empty.call("PUT", "/tasks/email?id=a%2Fb").body["id"] == "email:a/b"
    assert empty.call("GET", "/tasks/email/a%2Fb").body["id"] == "email:a/b"
    assert empty.call("GET", "/tasks/-/email:a%2Fb").status == 200
    assert empty.call("PUT", "/tasks/-/plain").body["id"] == "plain"
    assert empty.call("PUT", "/tasks/email/x?id=y").body["errors"][0]["path"] == "id"
    assert empty.call("PUT", "/tasks/email").body["errors"][0]["path"] == "id"


def test_a_generated_id_can_be_used_in_a_path(empty: Served) -> None:
    made = empty.call(
        "POST", "/tasks", {"kind": "email", "payloadBase64": base64.b64encode(b"\xff").decode()}
    ).body
    kind, _, task_id = made["id"].partition(":")
    found = empty.call("GET", f"/tasks/{kind}/{task_id}").body
    assert (found["payloadBase64"], found["contentType"]) == ("/w==", "application/octet-stream")


def test_the_run_of_a_task_is_cancelled_only_on_request(seeded: Served) -> None:
    """A task that waits is deleted, whether its run is asked for or not."""
    path = "/tasks/email/in_flight-reject"
    refused = seeded.call("DELETE", f"{path}?running=false")
    assert (refused.kind, "?running=true cancels the run" in refused.body["detail"]) == ("in-flight", True)
    assert "cancelling" not in seeded.call("GET", path).body
    for _ in range(2):
        reply = seeded.call("DELETE", f"{path}?running=true")
        assert (reply.status, reply.body) == (202, {"outcome": "cancelling"})
    assert seeded.call("GET", path).body["cancelling"] is True
    waits = seeded.call("DELETE", "/tasks/email?id=scheduled-reject&running=true")
    assert (waits.status, waits.body) == (200, {"outcome": "cancelled"})
    assert seeded.call("DELETE", "/tasks/email/dead-reject?running=true").kind == "dead-letter"
    assert seeded.call("DELETE", f"{path}?running=yes").body["errors"][0]["path"] == "running"


def test_tasks_in_flight_and_dead_letters_are_neither_cancelled_nor_rescheduled(seeded: Served) -> None:
    for state, word in (("in_flight-reject", "in-flight"), ("dead-reject", "dead-letter")):
        for method in ("DELETE", "PATCH"):
            reply = seeded.call(
                method, f"/tasks/email/{state}", {"delay": "1m"} if method == "PATCH" else None
            )
            assert (reply.status, reply.kind) == (409, word)


def test_a_batch_is_checked_whole_before_its_first_task_is_stored(empty: Served) -> None:
    wrong = {"tasks": [{"id": "good"}, {"id": "a b"}, {"payload": "x" * 200_000}]}
    reply = empty.call("POST", "/tasks:batch", wrong)
    assert (reply.status, [each["path"] for each in reply.body["errors"]]) == (
        400,
        ["tasks[1].id", "tasks[2]"],
    )
    assert empty.call("POST", "/tasks:batch", {"tasks": [{"id": "good"}, {"delai": "1m"}]}).status == 400
    assert empty.call("GET", "/queue").body["due"] == 0


def test_a_batch_has_a_result_for_each_task(empty: Served) -> None:
    """Also of tasks that only Redis can refuse."""
    tasks = [{"id": "a"}, {"id": "far", "delay": "2d"}, {"id": "a"}, {"kind": "email", "delayMs": 1_000}]
    reply = empty.call("POST", "/tasks:batch?ifExists=reject", {"tasks": tasks}).body
    assert (reply["stored"], reply["refused"]) == (2, 2)
    first, far, again, fresh = reply["results"]
    assert (first["id"], first["outcome"], far["error"]["status"], again["error"]["status"]) == (
        "a",
        "created",
        400,
        409,
    )
    assert fresh["id"].startswith("email:")
    many = {"tasks": [{"id": f"n-{n}", "tags": ["many"]} for n in range(5_000)]}
    assert empty.call("POST", "/tasks:batch", many).body["stored"] == 5_000
    assert empty.call("POST", "/tasks:batch", {"tasks": [{}] * 5_001}).body["errors"][0]["path"] == "tasks"


def test_lists_have_pages_and_filters(empty: Served) -> None:
    tasks = [{"kind": "email", "id": f"n-{n}", "delay": f"{n + 1}m", "tags": ["eu"]} for n in range(5)]
    empty.call("POST", "/tasks:batch", {"tasks": [*tasks, {"id": "other", "delay": "1m"}]})
    path, pages, cursor = "/tasks?kind=email&limit=2", [], ""
    reply = empty.call("GET", path).body
    while "cursor" in reply:
        pages.append([each["id"] for each in reply["items"]])
        cursor = reply["cursor"]
        reply = empty.call("GET", f"{path}&cursor={cursor}").body
    pages.append([each["id"] for each in reply["items"]])
    assert pages == [["email:n-0", "email:n-1"], ["email:n-2", "email:n-3"], ["email:n-4"]]
    for wrong in (f"kind=other&cursor={cursor}", *(f"kind=email&cursor={each}" for each in garbage(cursor))):
        reply = empty.call("GET", f"/tasks?{wrong}")
        assert (reply.status, reply.body["errors"][0]["path"]) == (400, "cursor"), wrong
    assert empty.call("GET", "/tasks?state=in_flight&kind=email").body == {"items": []}
    assert empty.call("GET", "/tasks:count?tag=eu").body["tasks"] == 5
    middle = empty.call("GET", "/tasks/email/n-2").body["due"].replace(":", "%3A")
    assert empty.call("GET", f"/tasks:count?kind=email&dueBefore={middle}").body["tasks"] == 2


def garbage(cursor: str) -> list[str]:
    """Cursors that no answer had."""
    found = base64.urlsafe_b64decode(cursor)
    changed = [found[:4], found[:-1], found + b"x", b"0000" + found[4:], b"", b"\0" * 700]
    made = [base64.urlsafe_b64encode(each).decode() for each in changed]
    return ["x", "%C3%A9", cursor[:-1], f"{cursor[:4]}!{cursor[4:]}", *made]


def test_many_tasks_are_cancelled_and_rescheduled_by_filters(empty: Served) -> None:
    tasks = [{"kind": "email", "id": f"n-{n}", "delay": "1h", "tags": ["eu"]} for n in range(3)]
    empty.call("POST", "/tasks:batch", {"tasks": tasks})
    dry = empty.call("POST", "/tasks:cancel", {"tag": "eu", "dryRun": True}).body
    assert (dry["tasks"], dry["dryRun"]) == (3, True)
    before = empty.call("GET", "/tasks/email/n-0").body["due"]
    assert empty.call("POST", "/tasks:reschedule", {"tag": "eu", "shift": "-30m"}).body["tasks"] == 3
    assert empty.call("GET", "/tasks/email/n-0").body["due"] < before
    assert empty.call("POST", "/tasks:cancel", {"kind": "email"}).body["tasks"] == 3
    assert empty.call("POST", "/tasks:cancel", {}).status == 400
    assert empty.call("POST", "/tasks:reschedule", {"tag": "eu"}).status == 400


@pytest.fixture
def letters(empty: Served) -> Served:
    """Three dead letters with two errors."""
    names = ["email:a", "email:b", "c"]
    info = dict(
        zip(names, ("attempts card 17 is damaged", "attempts card 18 is damaged", "buried gone"), strict=True)
    )
    with empty.server.client(decode=False) as redis:
        now_ms = round(time.time() * 1000)
        seed(redis, empty.keys, State(dlq=dict.fromkeys(names, now_ms), dlq_info=info))
    return empty


@pytest.mark.parametrize("path", ["/deadletters?", "/tasks?state=dead&"])
def test_a_cursor_goes_on_behind_tasks_that_are_gone(letters: Served, path: str) -> None:
    first = letters.call("GET", f"{path}limit=2").body
    gone = [each["id"] for each in first["items"]]
    assert letters.call("POST", "/deadletters:purge", {"ids": gone}).body["tasks"] == 2
    rest = letters.call("GET", f"{path}limit=1&cursor={first['cursor']}").body
    assert (gone, [each["id"] for each in rest["items"]]) == (["c", "email:a"], ["email:b"])
    assert "cursor" not in rest


def test_dead_letters_are_grouped_redriven_and_purged(letters: Served) -> None:
    assert [each["id"] for each in letters.call("GET", "/deadletters").body["items"]] == [
        "c",
        "email:a",
        "email:b",
    ]
    first, second = letters.call("GET", "/deadletters:groups").body["items"]
    assert (first["count"], second["count"]) == (2, 1)
    dry = letters.call(
        "POST", "/deadletters:redrive", {"group": first["group"], "ratePerSecond": 1, "dryRun": True}
    )
    assert dry.body["tasks"] == 2
    assert letters.call("POST", "/deadletters:redrive", {"ids": ["email:a"]}).body["tasks"] == 1
    assert letters.call("GET", "/tasks/email/a").body["state"] == "scheduled"
    assert letters.call("POST", "/deadletters:purge", {"group": "nope"}).status == 404
    assert letters.call("POST", "/deadletters:purge", {"ids": ["c"], "all": True}).status == 400
    assert letters.call("POST", "/deadletters:purge", {"all": True}).body == {"tasks": 2, "dryRun": False}
    assert letters.call("GET", "/queue").body["dead"] == 0


def test_schedules_are_listed_and_run(empty: Served) -> None:
    document: dict[str, Any] = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelaySchedule",
        "metadata": {"name": "nightly"},
        "spec": {"queueRef": {"name": "orders"}, "cron": "0 2 * * *", "task": {"payload": "1"}},
    }
    schedule = parse_schedule(document)
    assert isinstance(schedule, DelaySchedule)
    with empty.client() as client:
        client.apply_schedule(schedule)
        [listed] = empty.call("GET", "/schedules").body["items"]
        assert (listed["name"], len(listed["next"])) == ("nightly", 1)
        assert len(empty.call("GET", "/schedules/nightly?count=3").body["next"]) == 3
        run = empty.call("POST", "/schedules/nightly:run")
        assert (run.status, client.get(run.body["id"]) is not None) == (201, True)
        assert empty.call("POST", "/schedules/other:run").status == 404
        spans = empty.call("GET", "/forecast?within=48h").body["spans"]
        assert sum(each["tasks"] for each in spans) >= 2
        client.delete_schedule("nightly")


def test_the_queue_is_suspended_and_resumed(empty: Served) -> None:
    assert empty.call("POST", "/queue:suspend", {"reason": "incident 7"}).body["suspendedBy"] == ["command"]
    with empty.client() as client:
        assert client.counts().suspension is not None
    assert empty.call("GET", "/queue").body["reason"] == "incident 7"
    assert empty.call("POST", "/queue:resume").body == {"suspended": False, "suspendedBy": []}


def nested(levels: int) -> object:
    """A list in a list in a list …"""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_payload_may_have_as_many_levels_as_its_body_without_the_outermost(empty: Served) -> None:
    assert empty.call("PUT", "/tasks/email/a", {"payload": nested(63)}).status == 201


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "kind"),
    [
        ("PUT", "/tasks/email/a", b"{", {}, "invalid-request"),
        ("PUT", "/tasks/email/a", b"[]", {}, "invalid-request"),
        ("PUT", "/tasks/email/a", b"\xff", {}, "invalid-request"),
        ("PUT", "/tasks/email/a", {"payload": 1, "payloadBase64": "AA=="}, {}, "invalid-request"),
        ("PUT", "/tasks/email/a", {"delay": "1m", "dueMs": 1}, {}, "invalid-request"),
        ("PUT", "/tasks/email/a", {"due": "2026-12-01T09:00:00"}, {}, "invalid-request"),
        ("PUT", "/tasks/email/a", {"delay": 30}, {}, "invalid-request"),
        ("PUT", "/tasks/email/a", {"delay": None}, {}, "invalid-request"),
        ("PUT", "/tasks/email/a", {"payload": nested(64)}, {}, "invalid-request"),
        ("POST", "/tasks:batch", {"tasks": [{"kind": None}]}, {}, "invalid-request"),
        ("POST", "/deadletters:purge", {"all": False}, {}, "invalid-request"),
        ("GET", "/schedules/%C3%84", None, {}, "not-found"),
        ("PUT", "/tasks/email/a", {"delay": "2d"}, {}, "invalid-request"),
        ("PUT", "/tasks/email/a%0A", {}, {}, "invalid-request"),
        ("PUT", "/tasks/email/a?ifExists=debounce", {}, {}, "invalid-request"),
        ("PUT", "/tasks/email/a?ifexists=keep", {}, {}, "invalid-request"),
        ("PUT", "/tasks/email/a", {"payload": "x" * 150_000}, {}, "too-large"),
        ("PUT", "/tasks/email/a", b"x" * 3_000_000, {}, "too-large"),
        ("PUT", "/tasks/email/a", {}, {"Content_Type": "text/plain"}, "unsupported-media-type"),
        ("PUT", "/tasks/email/a", {}, {"Host": "evil.example"}, "misdirected"),
        ("PUT", "/tasks/email/a", {}, {"Sec_Fetch_Site": "cross-site"}, "cross-site"),
        ("PUT", "/tasks/email/a", {}, {"Sec_Fetch_Site": "same-site"}, "cross-site"),
        ("PUT", "/tasks/email/a", {}, {"Origin": "http://localhost:1"}, "cross-site"),
        ("PUT", "/tasks/email/a", {}, {"Origin": "null"}, "cross-site"),
        ("PUT", "/tasks/email/a", {}, {"X_Big": "x" * 20_000}, "header-too-large"),
        ("POST", "/tasks/email/a", {}, {}, "method-not-allowed"),
        ("POST", "/tasks:cancel", {"dueBeforeMs": 1 << 47}, {}, "invalid-request"),
        ("GET", "/tasks?limit=0", None, {}, "invalid-request"),
        ("GET", "/tasks?limit=1&limit=2", None, {}, "invalid-request"),
        ("GET", "/forecast?within=400d", None, {}, "invalid-request"),
        ("GET", "/nothing", None, {}, "not-found"),
    ],
)
def test_errors_say_what_was_expected(  # noqa: PLR0917 -- a request and its answer
    empty: Served, method: str, path: str, body: object, headers: dict[str, str], kind: str
) -> None:
    reply = empty.call(method, path, body, **headers)
    assert (reply.kind, reply.status) == (kind, TYPES[kind])
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.body["detail"]
    assert reply.body["requestId"] == reply.headers["x-request-id"]
    if kind == "invalid-request":
        assert all(each["path"] and each["message"] for each in reply.body["errors"])
    if kind == "method-not-allowed":
        assert set(reply.headers["allow"].split(", ")) == {"GET", "HEAD", "PUT", "PATCH", "DELETE"}
    assert empty.call("GET", "/tasks/email/a").status == 404, "nothing was stored"


@pytest.mark.parametrize(
    ("method", "path", "body", "detail"),
    [
        (
            "PUT",
            "/v1alpha1/tasks/email/a",
            {},
            "no such path, it has /v1alpha1 twice: see /v1alpha1/openapi.json",
        ),
        ("POST", "/tasks/email/a", {}, "expected DELETE, GET, HEAD, PATCH, PUT, got POST"),
        ("PUT", "/tasks/email/a%20b", {}, "id: expected 1 to 200 bytes without spaces"),
        (
            "PUT",
            "/tasks/email/a",
            {"delay": 1800},
            "got a number; a field that ends with Ms takes milliseconds",
        ),
        (
            "PUT",
            "/tasks/email/a",
            {"dueMs": 1_800_000_000},
            "dueMs: expected milliseconds since 1970, got 18",
        ),
        ("PUT", "/tasks/email/a?ifExists=debounce", {}, "body: ifExists=debounce needs debounce"),
        ("PUT", "/tasks/email/a", {"debounce": "1h"}, "debounce: expected ifExists=debounce beside it"),
        (
            "PATCH",
            "/tasks/email/a",
            {},
            "body: expected exactly one of delay, delayMs, due, dueMs, got nothing",
        ),
        ("GET", "/tasks?dueFrom=2026-12-01T09:00:00+01:00", None, "; in a query, + must be %2B"),
    ],
)
def test_errors_say_how_to_correct_the_request_in_the_words_of_the_api(  # noqa: PLR0917 -- as above
    empty: Served, method: str, path: str, body: object, detail: str
) -> None:
    assert detail in empty.call(method, path, body).body["detail"]


def test_a_request_of_the_own_page_is_accepted(empty: Served) -> None:
    origin = {"Origin": f"http://127.0.0.1:{empty.port}", "Sec_Fetch_Site": "same-origin"}
    assert empty.call("PUT", "/tasks/email/a", {}, **origin).status == 201


def test_a_full_queue_is_429(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(flavour, tmp_path_factory.mktemp("full"), limits={"maxLength": 1}) as served:
        served.call("PUT", "/tasks/-/a")
        reply = served.call("PUT", "/tasks/-/b")
        assert (reply.status, reply.kind, reply.headers["retry-after"]) == (429, "queue-full", "5")
        served.server.kill()
        reply = served.call("PUT", "/tasks/-/c")
        assert (reply.status, reply.kind, reply.headers["retry-after"]) == (503, "redis-unavailable", "1")


def test_100_concurrent_equal_puts_are_one_task(empty: Served) -> None:
    with ThreadPoolExecutor(100) as pool:
        body = {"payload": 1, "delay": "1h"}
        replies = list(pool.map(lambda _: empty.call("PUT", "/tasks/email/one", body), range(100)))
    assert sorted(each.status for each in replies) == [200] * 99 + [201]
    assert empty.call("GET", "/queue").body["scheduled"] == 1


def test_openapi_is_served(api: Served) -> None:
    assert api.call("GET", "/openapi.json").body["openapi"] == "3.1.0"
