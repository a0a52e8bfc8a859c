"""What `delayq run --reload` checks of changed documents: the App of before the change does not decide."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from delayq.cli import run
from delayq.cli.exits import CommandError
from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.local.plan import Plan

OPTIONS: dict[str, Any] = {
    "redis_url": None,
    "workers": None,
    "status_interval": None,
    "data_dir": None,
    "scanners": 1,
    "reaper": False,
    "log_format": "json",
    "log_level": "info",
}
QUEUE = """
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: shop}
spec: {redis: {standalone: {host: redis}}, handler: {python: HANDLER}, schedules: {}}
---
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {name: nightly}
spec: {queueRef: {name: shop}, cron: "0 3 * * *", task: {kind: KIND}}
"""
APP = "from delayq import App\napp = App()\n@app.task\ndef report() -> None: ...\n"


def planned(path: Path, handler: str, kind: str, *, again: bool) -> Plan:
    file = path / "queue.yaml"
    file.write_text(QUEUE.replace("HANDLER", handler).replace("KIND", kind))
    return run._plan_again((file,), **OPTIONS) if again else run._plan((file,), imports=True, **OPTIONS)


def test_a_new_kind_of_a_changed_app_is_not_refused_by_the_app_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "app_of_before.py").write_text(APP)
    app = '{app: "app_of_before:app"}'
    assert [each.metadata.name for each in planned(tmp_path, app, "report", again=False).queues[0].schedules]
    with pytest.raises(CommandError, match="no handler takes 'audit'"):
        planned(tmp_path, app, "audit", again=False)
    assert planned(tmp_path, app, "audit", again=True).queues[0].schedules[0].spec.task.kind == "audit"
    del sys.modules["app_of_before"]


def test_without_an_app_the_document_decides_on_kinds_after_a_change_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument, match="no handler takes 'audit'"):
        planned(tmp_path, '{callable: "json:dumps"}', "audit", again=True)
