"""delayq erase: what has to confirm it. tests/process/test_erase.py has what it erases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.cli import erase, target

from tests.unit.cli.runner import run
from tests.unit.cli.test_documents import RIGHT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def erased(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queues that the command would erase."""
    queues: list[str] = []
    monkeypatch.setattr(erase, "run_eraser", lambda setting, _: queues.append(setting.queue.queue))
    return queues


@pytest.fixture
def document(tmp_path: Path) -> str:
    path = tmp_path / "queue.yaml"
    path.write_text(RIGHT)
    return str(path)


def test_without_a_terminal_a_queue_is_erased_only_with_yes(erased: list[str], document: str) -> None:
    refused = run("erase", document)
    assert (refused.exit_code, erased) == (2, [])
    assert (
        "delete every task of queue orders in Redis at redis.shop.svc:6379? stdin is not a terminal; pass --yes"
        in (refused.stderr)
    )
    assert run("erase", document, "--yes").exit_code == 0
    assert erased == ["orders"]


def test_on_a_terminal_the_command_asks(
    erased: list[str], document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    assert run("erase", document, stdin="n\n").exit_code == 1
    assert erased == []
    assert run("erase", document, stdin="y\n").exit_code == 0
    assert erased == ["orders"]


def test_it_erases_in_the_redis_that_other_commands_use(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a running `delayq run`, before spec.redis."""
    urls: list[str | None] = []
    monkeypatch.setattr(erase, "run_eraser", lambda setting, _: urls.append(setting.url))
    monkeypatch.setattr(target, "_answers", lambda _: True)
    (tmp_path / ".delayq").mkdir()
    (tmp_path / ".delayq/redis.url").write_text("redis://127.0.0.1:7/0\n")
    assert run("erase", document, "--yes").exit_code == 0
    assert run("erase", document, "--yes", "--redis", "redis://127.0.0.1:8").exit_code == 0
    assert urls == ["redis://127.0.0.1:7/0", "redis://127.0.0.1:8"]
