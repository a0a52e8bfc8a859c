"""What the installed kopf can watch and what it cannot, on which decision 0067 rests; a new kopf runs these again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kopf
import pytest
from delayq_operator.kube import kopf_engine

from tests.unit.operator.kopf_api import (
    GROUP,
    LAST,
    VERSION,
    ApiServer,
    error,
    event,
    eventually,
    listed,
    path,
    serving,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.operator.kopf_api import Operator

THINGS = path("things")
END = [event("ADDED", LAST, 10)]


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    async with serving(ApiServer("things")) as operator:
        operator.follow("things")
        yield operator


def script(operator: Operator, *lists: Any, watches: list[Any], where: str = THINGS) -> None:  # noqa: ANN401 -- JSON
    answers = operator.api.answers[where]
    answers.lists, answers.watches = list(lists), watches


async def test_a_closed_watch_goes_on_where_it_ended_and_tells_of_a_deletion(operator: Operator) -> None:
    """A bookmark moves that place."""
    watches = [[event("ADDED", "b", 8)], [event("DELETED", "a", 9), event("BOOKMARK", "", 30)], END]
    script(operator, listed(7, "a"), watches=watches)
    assert "DELETED a" in await operator.tell_all()
    assert operator.api.asked[:4] == ["list", "watch from 7", "watch from 8", "watch from 30"]


async def test_a_silent_watch_is_replaced(operator: Operator) -> None:
    operator.settings.watching.inactivity_timeout = 0.05
    script(operator, listed(7), watches=[None, END])
    await operator.tell_all()
    assert operator.api.asked[:3] == ["list", "watch from 7", "watch from 7"]


async def test_what_kopf_asks_for_and_that_on_event_and_an_index_write_nothing(operator: Operator) -> None:
    """Whole objects, never their metadata alone; one kind by label, another not; without rights to the cluster, the
    kinds once.
    """
    names_of(operator)
    operator.api.plurals.append("others")
    operator.follow("others")
    operator.settings.watching.label_selectors[GROUP, VERSION, "things"] = "made-by=us"
    script(operator, listed(7, "a"), watches=[END])
    await operator.until(eventually(lambda: len(operator.api.asked) >= 4 and operator.told_last.is_set()))
    kinds = (THINGS, path("others"))
    asked = [request for request in operator.api.requests if request.path in kinds]
    selectors = {(request.path, request.query.get("labelSelector")) for request in asked}
    assert selectors == {(THINGS, "made-by=us"), (path("others"), None)}
    assert {request.headers["Accept"] for request in asked} == {"*/*"}
    paths = [request.path for request in operator.api.requests]
    assert paths.count(f"/apis/{GROUP}/{VERSION}") == 1
    assert not any("customresourcedefinitions" in path for path in paths)
    assert operator.api.patches == []


# --- What lists, a thread and the Lease are for, one gap a test.


async def test_a_list_after_410_does_not_tell_what_was_deleted_meanwhile(operator: Operator) -> None:
    """An index keeps it, too."""
    names = names_of(operator)
    script(operator, listed(7, "a", "b"), listed(9, "b"), watches=[[error(410)], END])
    story = await operator.tell_all()
    assert operator.api.asked[:4] == ["list", "watch from 7", "list", "watch from 9"]
    assert story.count("None b") == 2
    assert [reported for reported in story if reported.endswith(" a")] == ["None a"]
    assert names[-1] == {"a", "b", LAST}


async def test_kopf_is_ready_before_it_has_listed_anything(operator: Operator) -> None:
    operator.settings.networking.error_backoffs = (0.01,) * 2000
    script(operator, *[503] * 2000, watches=[])
    await operator.until(eventually(lambda: operator.ready.is_set() and len(operator.api.asked) > 1))
    assert set(operator.api.asked) == {"list"}


async def test_an_error_in_a_watch_ends_kopf_and_leaves_the_watches_of_other_namespaces_running(
    operator: Operator,
) -> None:
    script(operator, listed(7), watches=[[error(500)]], where=path("things", "bad"))
    with pytest.raises(Exception, match="Error in the watch-stream"):
        await operator.run("good", "bad")
    assert operator.left_running == 1


@pytest.mark.parametrize("lists", [[listed(7, "a", further="more"), 410], [404]], ids=["expired", "unserved"])
async def test_a_list_that_expires_between_two_pages_or_a_kind_that_is_not_served_ends_kopf(
    operator: Operator, lists: list[Any]
) -> None:
    operator.settings.watching.chunk_size = 1
    script(operator, *lists, watches=[])
    with pytest.raises(Exception, match="scripted"):
        await operator.run()


@pytest.mark.parametrize("code", [403, 503])
async def test_an_answer_that_may_change_is_asked_for_as_long_as_the_back_offs_last(
    operator: Operator, code: int
) -> None:
    """The operator's last for about 20 s: an API server that just started denies everything."""
    operator.settings.networking.error_backoffs = [0.001] * 10
    script(operator, *[code] * 10, listed(7), watches=[END])
    await operator.tell_all()
    assert operator.api.asked.count("list") == 11
    script(operator, *[code] * 11, watches=[])
    with pytest.raises(Exception, match="scripted") as ended:
        await operator.run()
    assert kopf_engine.forbidden(ended.value) == (code == 403)
    assert 18 < sum(kopf_engine.BACKOFFS) < 22


async def test_a_server_without_an_answer_is_asked_without_end(operator: Operator) -> None:
    """Also after the back-offs, and from the version before."""
    watches: list[Any] = [[event("ADDED", "a", 8)], END]
    script(operator, listed(7), watches=watches)
    operator.settings.networking.error_backoffs = [0.001]
    operator.api.silent = 5
    await operator.tell_all()
    assert operator.api.silent == 0
    assert operator.api.asked[:3] == ["list", "watch from 7", "watch from 8"]


async def test_a_timer_puts_a_finalizer_on_each_object(operator: Operator) -> None:
    @kopf.on.timer(GROUP, VERSION, "things", interval=60, registry=operator.registry)
    async def timer(**_: Any) -> None:  # noqa: ANN401 -- kopf's
        """Do nothing."""

    script(operator, listed(7, "a"), watches=[None])
    await operator.until(eventually(lambda: bool(operator.api.patches)))
    assert "finalizers" in str(operator.api.patches[0])


async def test_a_peer_is_written_without_a_version(operator: Operator) -> None:
    """So two can write at once, and neither learns of it: no election."""
    operator.api.plurals.append("clusterkopfpeerings")
    operator.settings.peering.standalone, operator.settings.peering.name = False, "ours"
    await operator.until(eventually(lambda: bool(operator.api.patches)))
    where, patch = operator.api.patches[0]
    assert where.endswith("/clusterkopfpeerings/ours")
    assert patch["status"]["test"]["lifetime"] == operator.settings.peering.lifetime
    assert "resourceVersion" not in str(patch)


def names_of(operator: Operator) -> list[set[str]]:
    """Index the names of all objects; the index as it was with each event."""
    found: list[set[str]] = []

    @kopf.index(GROUP, VERSION, "things", id="names", registry=operator.registry)
    async def index(name: str, **_: Any) -> dict[str, None]:  # noqa: ANN401 -- kopf's
        return {name: None}

    @kopf.on.event(GROUP, VERSION, "things", registry=operator.registry)
    async def look(**given: Any) -> None:  # noqa: ANN401 -- kopf's
        found.append(set(given["names"]))

    return found
