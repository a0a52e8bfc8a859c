"""One operator leads: by its own clock, never by comparing clocks, and an API server that is away deposes no leader."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from delayq.kube.errors import Conflict, Denied, Unavailable
from delayq_operator.base.errors import LeadershipLost
from delayq_operator.kube import lease
from delayq_operator.kube.lease import LEASE, LEASE_SECONDS, MARGIN_SECONDS, Leadership

from tests.unit.operator.fakes import Clock, Objects

AWAY = Unavailable("connection refused")
DENIED = Denied(403, "Forbidden", "no")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    return clock


@pytest.fixture
def api() -> Objects:
    return Objects()


@pytest.fixture
def a(api: Objects) -> Leadership:
    return candidate(api, "a")


@pytest.fixture
def b(api: Objects) -> Leadership:
    return candidate(api, "b")


def candidate(api: Objects, identity: str) -> Leadership:
    return Leadership(api, namespace="delayq", name="delayq-operator", identity=identity)  # type: ignore[arg-type]


async def attempt(candidate: Leadership) -> bool:
    assert candidate._api is not None
    with suppress(Conflict, Unavailable):
        await candidate._try(candidate._api)
    return candidate.leads


async def spec(api: Objects) -> dict[str, object]:
    found: dict[str, object] = (await api.get(LEASE, "delayq", "delayq-operator"))["spec"]
    return found


async def test_a_lease_that_is_renewed_is_never_taken(a: Leadership, b: Leadership, clock: Clock) -> None:
    for _ in range(50):
        assert await attempt(a)
        assert not await attempt(b)
        clock.now += 5


async def test_a_lease_is_taken_after_its_full_length_of_silence(
    a: Leadership, b: Leadership, clock: Clock, api: Objects
) -> None:
    """The clock of the holder does not matter: it is new to b, and gets its full length from now."""
    await attempt(a)
    clock.now += 1000
    assert not await attempt(b)
    assert await attempt(a)
    assert not await attempt(b)
    await b.resign()  # a standby that stops leaves it to the leader
    clock.now += LEASE_SECONDS - MARGIN_SECONDS
    assert not a.leads  # a write that it has begun ends before b leads
    clock.now += MARGIN_SECONDS
    assert not await attempt(b)
    clock.now += 0.1
    assert await attempt(b)
    found = await spec(api)
    assert (found["holderIdentity"], found["leaseTransitions"]) == ("b", 1)


async def test_leadership_counts_from_before_the_question(
    a: Leadership, clock: Clock, api: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow answer must not make us believe for longer than others do that we lead."""
    replace = api.create

    async def slow(*args: object) -> dict[str, object]:
        clock.now += 10
        return await replace(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "create", slow)
    assert await attempt(a)
    clock.now += LEASE_SECONDS - MARGIN_SECONDS - 10
    assert not a.leads


async def test_an_outage_longer_than_the_lease_deposes_no_leader(
    a: Leadership, b: Leadership, clock: Clock, api: Objects
) -> None:
    """It does not lead meanwhile, so it writes nothing; then it goes on, without starting anew."""
    await attempt(a)
    clock.now += 5
    await attempt(b)
    assert (a.unanswered_seconds, b.unanswered_seconds) == (5, 0)
    api.broken = AWAY
    clock.now += 90
    assert not await attempt(a)
    assert (a.unanswered_seconds, b.unanswered_seconds) == (95, 90)
    api.broken = None
    assert await attempt(a)
    api._objects.clear()
    assert await attempt(a), "it makes a deleted Lease again"


async def test_a_leader_that_missed_an_answer_reads_the_lease_again(
    a: Leadership, api: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server may have stored the renewal: the version that the leader has is then an old one."""
    replace = api.replace
    await attempt(a)

    async def lost(*args: object) -> None:
        await replace(*args)  # type: ignore[arg-type]
        raise AWAY

    with monkeypatch.context() as patch:
        patch.setattr(api, "replace", lost)
        await attempt(a)
    before = api.writes
    assert await attempt(a)
    assert api.writes == before + 1


# --- The loop.


@pytest.fixture
def sleepless(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Clock:
    """Sleeping takes no time but moves the clock."""
    turn = asyncio.sleep

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        await turn(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return clock


async def test_rights_may_be_missing_for_a_while_and_then_end_it(
    a: Leadership, api: Objects, sleepless: Clock
) -> None:
    began, api.broken = sleepless.now, DENIED
    with pytest.raises(Denied):
        await a.run()
    assert lease.DENIED_SECONDS < sleepless.now - began < lease.DENIED_SECONDS + 2


async def test_work_waits_until_leadership_is_sure_again_and_who_was_overtaken_ends(
    a: Leadership, b: Leadership, api: Objects, sleepless: Clock
) -> None:
    task = asyncio.create_task(a.run())
    await a.confirmed()
    api.broken = AWAY
    sleepless.now += 20
    waiting = asyncio.create_task(a.confirmed())
    done, _ = await asyncio.wait({waiting}, timeout=0.02)
    assert not done
    api.broken = None
    await asyncio.wait_for(waiting, 5)
    there = await api.get(LEASE, "delayq", "delayq-operator")
    await api.replace(LEASE, b._lease(there))
    with pytest.raises(LeadershipLost):
        await task
