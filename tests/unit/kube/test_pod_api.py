"""The client of scanners, on a server of HTTPS: what it sends, and which error stands for what comes back."""

from __future__ import annotations

import json
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from aiohttp import web
from delayq.kube.api import PodApi
from delayq.kube.errors import Conflict, Denied, NoCluster, Unavailable
from delayq.kube.objects import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

SCHEDULES = Kind("delayq.dev/v1alpha1", "DelaySchedule", "delayschedules")
LIST = "/apis/delayq.dev/v1alpha1/namespaces/shop/delayschedules"
Handler = "Callable[[web.Request], Any]"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as the kubelet makes it, and beside it the certificate of a server."""
    folder = tmp_path_factory.mktemp("account")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    (folder / "token").write_text("first\n")
    (folder / "namespace").write_text("shop")
    return folder


@asynccontextmanager
async def served(
    account: Path, monkeypatch: pytest.MonkeyPatch, handle: Callable[[web.Request], Any]
) -> AsyncIterator[PodApi]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(account / "server.pem")
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
    await site.start()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(runner.addresses[0][1]))
    api = PodApi.open(account)
    try:
        yield api
    finally:
        await api.close()
        await runner.cleanup()


async def test_pages_are_followed_with_the_token_of_the_moment(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None, str]] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append((request.path, request.query.get("continue"), request.headers["Authorization"]))
        (account / "token").write_text("second")  # the kubelet renews it
        more = "" if "continue" in request.query else "next"
        return web.json_response({"items": [], "metadata": {"resourceVersion": "7", "continue": more}})

    async with served(account, monkeypatch, handle) as api:
        assert api.namespace == "shop"
        found = [page async for page in api.pages(SCHEDULES, "shop")]
    assert len(found) == 2
    assert asked == [(LIST, None, "Bearer first"), (LIST, "next", "Bearer second")]


async def test_a_watch_yields_events_and_a_status_is_applied(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str, dict[str, str], Any]] = []

    async def handle(request: web.Request) -> web.Response:
        body = await request.text()
        seen.append((request.method, request.path, dict(request.query), body and json.loads(body)))
        lines = [json.dumps({"type": kind, "object": {"metadata": {}}}) for kind in ("ADDED", "BOOKMARK")]
        return (
            web.Response(text="\n".join(lines) + "\n") if "watch" in request.query else web.json_response({})
        )

    async with served(account, monkeypatch, handle) as api:
        options: dict[str, Any] = {"resource_version": "7"}
        stream = api.watch(SCHEDULES, "shop", **options, timeout_seconds=9, silence_seconds=5)
        assert [event.type async for event in stream] == ["ADDED", "BOOKMARK"]
        body = {"metadata": {"namespace": "shop", "name": "poll"}, "status": {}}
        await api.apply_status(SCHEDULES, body, manager="delayq-scanner")
    watch, patch = seen
    assert watch[2]["resourceVersion"] == "7"
    assert patch == (
        "PATCH",
        f"{LIST}/poll/status",
        {"fieldManager": "delayq-scanner", "force": "true"},
        body,
    )


@pytest.mark.parametrize(
    ("status", "error"), [(403, Denied), (409, Conflict), (503, Unavailable), (502, Unavailable)]
)
async def test_an_answer_that_refuses_is_an_error_with_its_words(
    account: Path, monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception]
) -> None:
    async def handle(_request: web.Request) -> web.Response:
        body = {"kind": "Status", "reason": "Why", "message": "no, because"} if status != 502 else "<html>"
        return web.json_response(body, status=status)

    async with served(account, monkeypatch, handle) as api:
        with pytest.raises(error, match="no, because" if status != 502 else "502"):
            await api.create(SCHEDULES, {"metadata": {"namespace": "shop"}})


async def test_a_server_that_is_away_or_is_not_the_one_is_unavailable(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(_request: web.Request) -> web.Response:
        return web.json_response({})

    async with served(account, monkeypatch, handle) as api:
        api._server = api._server.replace("127.0.0.1", "localhost")  # which its certificate does not name
        with pytest.raises(Unavailable):
            await api.create(SCHEDULES, {"metadata": {"namespace": "shop"}})


def test_without_a_pod_or_its_token_there_is_no_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NoCluster, match="KUBERNETES_SERVICE_HOST"):
        PodApi.open(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(NoCluster, match="no token of a ServiceAccount"):
        PodApi.open(tmp_path)
