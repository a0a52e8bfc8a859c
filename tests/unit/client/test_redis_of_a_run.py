"""The note of an error when a program asks spec.redis, and a `delayq run` beside its document has another Redis."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from delayq import App, Client, SyncClient, Unavailable
from delayq.client.document import read

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "127.0.0.1:1"
DOCUMENT = """
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec: {redis: {standalone: {host: 127.0.0.1, port: 1}}, handler: {python: {app: "shop_elsewhere:app"}}}
"""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.client.routing.PAUSES_SECONDS", (0.01,))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """Where `delayq run` once wrote the URL of its Redis."""
    (tmp_path / "my shop" / ".delayq").mkdir(parents=True)
    (tmp_path / "my shop" / ".delayq" / "redis.url").write_text("redis://127.0.0.1:2\n")
    path = tmp_path / "my shop" / "queue.yaml"
    path.write_text(DOCUMENT)
    return path


def notes_of(error: pytest.ExceptionInfo[Unavailable]) -> list[str]:
    assert error.value.where == NOWHERE
    return getattr(error.value, "__notes__", [])


def expected(document: Path) -> list[str]:
    file = document.parent / ".delayq" / "redis.url"
    export = f"`delayq run` has a Redis of its own: export DELAYQ_REDIS_URL=\"$(cat '{file}')\""
    return [f'{export}, and give the App or the client url=os.environ.get("DELAYQ_REDIS_URL")']


def test_an_error_of_a_blocking_program_names_the_redis_of_the_run(document: Path) -> None:
    with pytest.raises(Unavailable) as of_client, SyncClient.from_document(document) as client:
        client.counts()
    app = App(document)

    @app.task
    def report() -> None: ...

    with pytest.raises(Unavailable) as of_app, closing(app):
        report.schedule_sync()
    assert notes_of(of_client) == notes_of(of_app) == expected(document)


def test_concurrent_calls_of_an_asynchronous_program_get_one_note(document: Path) -> None:
    async def schedule(calls: int) -> None:
        async with Client.from_document(str(document)) as client:
            await asyncio.gather(*(client.schedule({}, kind="report") for _ in range(calls)))

    with pytest.raises(Unavailable) as error:
        asyncio.run(schedule(3))
    assert notes_of(error) == expected(document)


def test_there_is_no_note_without_a_run_or_for_a_redis_that_the_program_names(document: Path) -> None:
    for client in (
        SyncClient.from_document(document, url=f"redis://{NOWHERE}"),
        SyncClient.from_document(read(document)),
    ):
        with pytest.raises(Unavailable) as named, client:
            client.counts()
        assert notes_of(named) == []
    (document.parent / ".delayq" / "redis.url").unlink()
    with pytest.raises(Unavailable) as alone, SyncClient.from_document(document) as client:
        client.counts()
    assert notes_of(alone) == []
