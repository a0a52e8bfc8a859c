"""The options of delayq-operator become what it is set to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from delayq import logs
from delayq_operator import api, cli

if TYPE_CHECKING:
    from delayq_operator.desired.facts import Setting
    from delayq_operator.process import Options


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """What the operator was started with; nothing is."""
    found: list[Options] = []

    async def run(options: Options) -> int:
        found.append(options)
        return 0

    monkeypatch.setattr(cli, "run", run)
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    monkeypatch.setattr(api, "own_namespace", lambda: "of-the-pod")
    return found


def setting(started: list[Options], *args: str) -> Setting:
    done = invoked(*args)
    assert done.exit_code == 0, done.output
    return started[-1].setting


def invoked(*args: str) -> Any:  # noqa: ANN401  click's Result
    return CliRunner().invoke(cli.delayq_operator, ["--worker-image=a", *args])


def test_the_operators_own_namespace_is_that_of_its_pod_unless_it_is_given(started: list[Options]) -> None:
    assert setting(started).own_namespace == "of-the-pod"
    assert setting(started, "--own-namespace=elsewhere").own_namespace == "elsewhere"


def test_its_own_labels_are_taken_apart(started: list[Options]) -> None:
    assert setting(started).own_labels == {}
    given = "--own-labels=app.kubernetes.io/name=delayq,tier=,n=1"
    assert setting(started, given).own_labels == {"app.kubernetes.io/name": "delayq", "tier": "", "n": "1"}


@pytest.mark.parametrize("text", ["=x", "a b=c", "a=b c", "a=b=c", "-=x"])
@pytest.mark.usefixtures("started")
def test_what_is_no_label_is_refused_at_the_start(text: str) -> None:
    done = invoked(f"--own-labels={text}")
    assert done.exit_code == 2
    assert "is no label" in done.output
