"""delayq erase: what has to confirm it. tests/process/test_erase.py has what it erases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.cli import erase

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
