"""Schedules of an App in a queue: stored as those of YAML are, owned by the App, and gone with their code."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq import App, Client, ScheduleRefused, SyncClient
from delayq.contract.document import parse_schedule

from tests.redis.commands import NIGHTLY, document, on
from tests.unit.handlers.support import document as with_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.contract import DelayQueue

    from tests.redis.state import Shard

    Release = Callable[..., App]

IN_LISBON = NIGHTLY + "  timeZone: Europe/Lisbon\n"
MODULE = "shop_with_schedules"


@pytest.fixture
def queue(shard: Shard) -> DelayQueue:
    """The document of the queue, whose App is `app` of MODULE."""
    found = with_handler({"python": {"app": f"{MODULE}:app"}})
    named = replace(found, metadata=replace(found.metadata, name="orders"))
    return replace(named, spec=replace(named.spec, queue_name=shard.commands.queue))


@pytest.fixture
def client(shard: Shard) -> Iterator[SyncClient]:
    with SyncClient(shard.server.url, queue=shard.commands.queue) as client:
        yield client


@pytest.fixture
def release(shard: Shard, queue: DelayQueue, monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    """Makes the App of a release: `release(nightly="0 3 * * *")` has these schedules, each with its expression."""
    made = list[App]()

    def new(**schedules: str) -> App:
        app = App(queue, url=shard.server.url)

        @app.task
        def report(region: str) -> None: ...

        for name, cron in schedules.items():
            options: Any = {"concurrency_policy": "Forbid", "tags": ["eu"], "time_zone": "Europe/Lisbon"}
            app.schedule(cron=cron, name=name, payload={"region": "eu"}, **options)(report)
        module = ModuleType(MODULE)
        module.app = app  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, MODULE, module)
        made.append(app)
        return app

    yield new
    for each in made:
        each.close()


def stored(shard: Shard) -> Any:  # noqa: ANN401 -- bytes
    """What Redis has of the schedule `nightly`."""
    return shard.redis.hget(shard.keys.tasks, "@nightly")


def test_an_app_stores_what_the_yaml_document_stores(
    shard: Shard, client: SyncClient, release: Release
) -> None:
    client.apply_schedule(parse_schedule(yaml.safe_load(IN_LISBON)))
    written = stored(shard)
    client.delete_schedule("nightly")
    done = release(nightly="0 3 * * *").apply_schedules_sync()
    assert {name: each.outcome for name, each in done.items()} == {"nightly": "created"}
    assert stored(shard) == written
    [found] = client.schedules()
    assert (found.kind, found.payload, found.owner) == ("report", {"region": "eu"}, f"app/{MODULE}:app")


def test_a_release_replaces_the_schedules_of_the_one_before(client: SyncClient, release: Release) -> None:
    release(a="@daily", b="@daily").apply_schedules_sync()
    done = release(b="@hourly", c="@daily").apply_schedules_sync()
    assert {name: each.outcome for name, each in done.items()} == {
        "a": "deleted",
        "b": "updated",
        "c": "created",
    }
    assert {each.name: each.cron for each in client.schedules()} == {"b": "@hourly", "c": "@daily"}
    release().apply_schedules_sync()
    assert client.schedules() == []


def test_schedules_of_another_owner_stay_and_the_error_names_it(
    shard: Shard, queue: DelayQueue, client: SyncClient, release: Release
) -> None:
    nightly = parse_schedule(yaml.safe_load(IN_LISBON))
    other = App(queue, url=shard.server.url, name="billing")
    other.schedule(every="1h", name="invoices")(other.task(_nothing))
    other.apply_schedules_sync()
    for owner, words in (
        ("kubernetes", "schedule nightly belongs to Kubernetes: change the DelaySchedule there"),
        ("file", "schedule nightly belongs to the file of `delayq run`"),
        ("client", "schedule nightly belongs to a client"),
    ):
        client.apply_schedule(nightly, owner=owner)
        with pytest.raises(ScheduleRefused, match=words) as refused:
            release(nightly="@hourly", invoices="@hourly", fine="@daily").apply_schedules_sync()
        assert "schedule invoices belongs to the App billing" in str(refused.value)
        assert refused.value.reason == "NameConflict"
        assert [(each.name, each.owner) for each in client.schedules()] == [
            ("fine", f"app/{MODULE}:app"),
            ("invoices", "app/billing"),
            ("nightly", owner),
        ]
        client.delete_schedule("nightly", owner=owner)
    with pytest.raises(ScheduleRefused, match=rf"schedule fine belongs to the App {MODULE}:app"):
        client.apply_schedule(replace(nightly, metadata=replace(nightly.metadata, name="fine")))


async def test_an_app_with_a_bound_client_needs_a_name(shard: Shard, client: SyncClient) -> None:
    unnamed, named = App(), App(name="billing")
    async with Client(shard.server.url, queue=shard.commands.queue) as opened:
        for each in (unnamed, named):
            each.schedule(every="1h", name="invoices")(each.task(_nothing))
            each.bind(opened)
        with pytest.raises(RuntimeError, match=r"need an owner: no document names this App .*App\(name=…\)"):
            await unnamed.apply_schedules()
        assert client.schedules() == []
        await named.apply_schedules()
    [found] = client.schedules()
    assert (found.name, found.owner) == ("invoices", "app/billing")


def test_an_app_that_is_not_the_one_of_the_document_needs_a_name(
    shard: Shard, queue: DelayQueue, release: Release
) -> None:
    release(nightly="@daily")
    other = App(queue, url=shard.server.url)
    other.schedule(every="1h")(other.task(_nothing))
    with pytest.raises(RuntimeError, match=rf"the App of its document is {MODULE}:app, .*App\(name=…\)"):
        other.apply_schedules_sync()


def test_an_occurrence_is_a_task_of_the_kind(client: SyncClient, release: Release) -> None:
    release(nightly="0 3 * * *").apply_schedules_sync()
    view = client.get(client.run_schedule("nightly"))
    assert view is not None
    assert (view.kind, view.body, view.tags) == ("report", b'{"region":"eu"}', ("eu",))


APP_FILE = """
from delayq import App

app = App()


@app.schedule(cron="0 3 * * *", time_zone="Europe/Lisbon", payload={"region": "eu"})
@app.task
def report(region: str) -> None: ...
"""


def test_the_command_stores_the_schedules_of_the_app_and_doctor_compares_them(
    shard: Shard, client: SyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "recurring_shop.py").write_text(APP_FILE)
    queue = document(tmp_path, "1", handler='{python: {app: "recurring_shop:app"}}')
    name = f"  queueName: {shard.commands.queue}\n"
    Path(queue).write_text(Path(queue).read_text().replace("spec:\n", f"spec:\n{name}"))

    def examined() -> list[str]:
        found = json.loads(on(shard, "doctor", queue, "-o", "json").stdout)
        return [each["message"] for each in found if each["check"] == "schedules"]

    def applied() -> str:
        return on(shard, "cron", "apply", queue).stdout

    try:
        [said] = examined()
        assert said == "report: defined in recurring_shop:app, is not stored, so its task does not recur"
        assert [applied(), applied()] == ["report: created\n", "report: unchanged\n"]
        assert examined() == ["1 schedule of recurring_shop:app is stored"]
        [stored] = client.schedules()
        assert (stored.owner, stored.when) == ("app/recurring_shop:app", "0 3 * * * Europe/Lisbon")
        assert stored.definition is not None
        other = stored.definition
        changed = replace(other, spec=replace(other.spec, cron="@daily"))
        renamed = replace(other, metadata=replace(other.metadata, name="old"))
        client.sync_schedules([changed, renamed], owner=stored.owner)
        assert examined() == [
            "report: defined in recurring_shop:app, is stored as another version of the App has it",
            "old: stored, and not in the code of recurring_shop:app any more",
        ]
        assert applied() == "old: deleted\nreport: updated\n"
        client.delete_schedule("report", owner=stored.owner)
        client.apply_schedule(other)
        [said] = examined()
        assert said.endswith("is not stored: client owns a schedule of this name")
        refused = on(shard, "cron", "apply", queue)
        assert (refused.exit_code, "belongs to a client" in refused.stderr) == (5, True)
    finally:
        sys.modules.pop("recurring_shop", None)


def test_without_a_file_the_command_needs_an_app(shard: Shard, tmp_path: Path) -> None:
    refused = on(shard, "cron", "apply", document(tmp_path, "1"))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "without FILE, expected the document of a queue whose handler is an App" in refused.stderr


def _nothing() -> None:
    """Do nothing."""
