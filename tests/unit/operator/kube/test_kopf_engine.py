"""kopf ends at the first odd answer, and is begun anew without a trace of the one before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import kopf
from delayq_operator import handlers
from delayq_operator.base import names
from delayq_operator.kube import kopf_engine

from tests.unit.operator.kopf_api import ApiServer, error, eventually, listed, serving, watches_running

if TYPE_CHECKING:
    import pytest

QUEUE = names.DELAY_QUEUE


async def test_no_watch_of_a_kopf_that_ended_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each error in one namespace would add a watch of every other one, for as long as the process lives."""
    monkeypatch.setattr(kopf_engine, "BEGIN_ANEW_SECONDS", 0.01)
    monkeypatch.setattr(kopf_engine.Pace, "keep", lambda _: asyncio.sleep(0))
    api = ApiServer(QUEUE.plural, group=QUEUE.group, version=QUEUE.version)
    bad = f"/apis/{QUEUE.api_version}/namespaces/bad/{QUEUE.plural}"
    api.answers[bad].lists, api.answers[bad].watches = [listed(5), listed(6), listed(7)], [[error(500)]] * 2
    memo: Any = handlers.Memo(queues=None, watch_verifier=None)  # type: ignore[arg-type]
    async with serving(api) as server:
        login = kopf.ConnectionInfo(server=server.url)
        monkeypatch.setattr(kopf, "login_with_kubeconfig", lambda **_: login)
        following = asyncio.create_task(kopf_engine.run(memo, ["bad", "good"], started=lambda: None))
        async with asyncio.timeout(20):
            await eventually(lambda: "watch from 7" in api.asked)
        assert len(watches_running()) == 2
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert watches_running() == []
