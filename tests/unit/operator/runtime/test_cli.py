"""The options of delayq-operator become what it is set to."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from delayq.service import logs
from delayq_operator.kube import api
from delayq_operator.kube.kopf_engine import BACKOFFS
from delayq_operator.runtime import cli

if TYPE_CHECKING:
    from pathlib import Path

    from delayq_operator.desired.facts import Setting
    from delayq_operator.runtime.process import Options


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


@pytest.mark.parametrize("text", ["=x", "a b=c", "a=b c"])
@pytest.mark.usefixtures("started")
def test_what_is_no_label_is_refused_at_the_start(text: str) -> None:
    done = invoked(f"--own-labels={text}")
    assert done.exit_code == 2
    assert "is no label" in done.output


def test_a_refused_watch_is_not_taken_for_a_silent_one(started: list[Options]) -> None:
    """Otherwise its backoff would begin anew, again and again."""
    setting(started)
    assert sum(BACKOFFS) < started[-1].silence_seconds


def test_its_own_namespace_is_closed_unless_it_serves_no_other(started: list[Options]) -> None:
    for args, closed in (
        (("--namespace=shop", "--namespace=of-the-pod"), "of-the-pod"),
        (("--namespace=of-the-pod",), None),
        (("--own-namespace=elsewhere",), "elsewhere"),
        (("--serve-own-namespace",), None),
    ):
        assert setting(started, *args).policy.closed_namespace == closed


def test_its_own_account_is_that_of_its_token_unless_it_is_given(
    started: list[Options], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api, "ACCOUNT", tmp_path)
    assert setting(started).policy.own_service_account is None
    claims = b64encode(b'{"sub": "system:serviceaccount:delayq-system:delayq-operator"}').decode()
    (tmp_path / "token").write_text(f"e30.{claims.rstrip('=')}.x")
    assert setting(started).policy.own_service_account == "delayq-operator"
    assert setting(started, "--own-service-account=x").policy.own_service_account == "x"
    (tmp_path / "token").write_text("no token")
    assert setting(started).policy.own_service_account is None
