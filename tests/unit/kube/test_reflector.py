"""A reflector's copy is exact, also after deletions between two watches, and without permissions there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from delayq.kube import reflector
from delayq.kube.errors import Denied, Gone, Unavailable
from delayq.kube.reflector import Reflector
from delayq.kube.watching import Event
from delayq_operator.base import names

from tests.unit.operator.fakes import Clock, Finished, Script

if TYPE_CHECKING:
    from delayq.kube.objects import Kind, Name, Object

GONE = Gone(410, "Expired", "too old")
DENIED = Denied(403, "Forbidden", "no")
AWAY = Unavailable("connection refused")


def secret(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "resourceVersion": str(version)}}


def page(version: int, *items: str) -> dict[str, Any]:
    return {"items": [secret(name) for name in items], "metadata": {"resourceVersion": str(version)}}


def event(what: str, name: str, version: int) -> Event:
    return Event(type=what, object=secret(name, version))


class Copy:
    """A listener that keeps names."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def seen(self, _kind: Kind, body: Object) -> None:
        self.names.add(body["metadata"]["name"])

    def gone(self, _kind: Kind, name: Name) -> None:
        self.names.remove(name[1])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sleeping takes no time but moves the clock."""
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(reflector, "time", clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return clock


async def play(*answers: Any) -> tuple[Copy, Script, Reflector]:  # noqa: ANN401 -- see Script
    copy, script = Copy(), Script(*answers)
    followed = Reflector(script, names.CONFIG_MAP, copy)  # type: ignore[arg-type]
    with pytest.raises(Finished):
        await followed.run()
    return copy, script, followed


@pytest.mark.usefixtures("clock")
async def test_a_watch_that_ended_goes_on_where_it_ended() -> None:
    _, script, _ = await play([page(7)], [event("BOOKMARK", "", 12)], [], AWAY, [event("ADDED", "c", 20)])
    assert script.asked == [
        "list",
        *["watch from 7", "watch from 12", "watch from 12", "watch from 12"],
        "watch from 20",
    ]


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("error", [AWAY, GONE])
async def test_half_a_list_is_no_list(error: Exception) -> None:
    """The second page fails: nothing is taken for gone, and nothing is watched before all was listed.

    What vanished while no watch was open is noticed by the next whole list.
    """
    copy, script, followed = await play(
        *([page(7, "a"), page(7, "b")], GONE, [page(9, "a", "c"), error], [page(9, "a")])
    )
    assert script.asked == ["list", "watch from 7", "list", "list", "watch from 9"]
    assert copy.names == {"a"}, "b, and c, of which the list had only a half, are gone"
    assert followed.synced.is_set()


async def test_an_outage_in_between_is_not_a_lack_of_rights(clock: Clock) -> None:
    answers = [*[DENIED] * 8, AWAY] * 5
    began = clock.now
    _, script, _ = await play(*answers)
    assert len(script.asked) == len(answers) + 1
    assert clock.now - began > reflector.DENIED_SECONDS


async def test_without_rights_for_long_the_copy_is_none_and_is_asked_for_rarely(clock: Clock) -> None:
    began = clock.now
    _, _, followed = await play([page(7)], GONE, *[DENIED] * 8)
    assert followed.synced.is_set(), "an API server that just started denies until it has read its own roles"
    _, _, followed = await play([page(7)], GONE, *[DENIED] * 40)
    assert not followed.synced.is_set()
    assert clock.now - began > 20 * reflector.DENIED_SECONDS
    copy, _, followed = await play([page(7)], GONE, *[DENIED] * 40, [page(9, "a")])
    assert (followed.synced.is_set(), copy.names) == (True, {"a"})


async def test_an_api_server_that_is_away_is_asked_every_two_seconds(clock: Clock) -> None:
    began = clock.now
    await play([page(7)], *[AWAY] * 300)
    assert 300 - 5 <= clock.now - began <= 600
