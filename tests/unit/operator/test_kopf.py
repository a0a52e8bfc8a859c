"""What the operator relies on in the installed kopf, and the gaps that it fills (decision 0049).

A new kopf runs these again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator.kube import kopf_engine

from tests.unit.operator.kopf_api import LAST, ApiServer, error, event, eventually, listed, path, serving

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


async def test_a_closed_watch_goes_on_from_its_last_event_or_bookmark_and_tells_of_deletions(
    operator: Operator,
) -> None:
    """It writes nothing, and asks for whole objects: a Secret would come with its contents."""
    first = [event("ADDED", "b", 8), event("BOOKMARK", "", 30)]
    script(operator, listed(7, "a"), watches=[first, [event("DELETED", "a", 31), *END]])
    assert "DELETED a" in await operator.tell_all()
    assert operator.api.asked[:3] == ["list", "watch from 7", "watch from 30"]
    assert {request.method for request in operator.api.requests} == {"GET"}
    assert {each.headers["Accept"] for each in operator.api.requests if each.path == THINGS} == {"*/*"}


async def test_a_list_after_410_does_not_tell_what_was_deleted_meanwhile(operator: Operator) -> None:
    script(operator, listed(7, "a", "b"), listed(9, "b"), watches=[[error(410)], END])
    story = await operator.tell_all()
    assert operator.api.asked[:4] == ["list", "watch from 7", "list", "watch from 9"]
    assert story.count("None b") == 2
    assert [told for told in story if told.endswith(" a")] == ["None a"]


async def test_kopf_is_ready_before_it_has_listed_anything(operator: Operator) -> None:
    operator.settings.networking.error_backoffs = (0.01,) * 2000
    script(operator, *[503] * 2000, watches=[])
    await operator.until(eventually(lambda: operator.ready.is_set() and len(operator.api.asked) > 1))
    assert set(operator.api.asked) == {"list"}


async def test_an_error_in_a_watch_ends_kopf_but_not_the_watches_of_other_namespaces(
    operator: Operator,
) -> None:
    script(operator, listed(7), watches=[[error(500)]], where=path("things", "bad"))
    with pytest.raises(Exception, match="Error in the watch-stream"):
        await operator.run("good", "bad")
    assert operator.left_running == 1


async def test_a_withdrawn_right_is_asked_for_without_end(operator: Operator) -> None:
    """As long as the back-offs last; the operator's never run out, or an API server that starts would end kopf."""
    operator.settings.networking.error_backoffs = [0.001] * 100
    script(operator, *[403] * 99, listed(7), watches=[END])
    await operator.tell_all()
    assert operator.api.asked.count("list") == 100
    assert not hasattr(kopf_engine.Backoffs(), "__len__")
