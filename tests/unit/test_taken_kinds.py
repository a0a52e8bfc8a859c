"""A client that has read the document refuses tasks that no handler of it takes."""

from __future__ import annotations

from typing import Any

import pytest
from delayq import App, NewTask, SyncClient
from delayq.contract import parse
from delayq.errors import InvalidTask

from tests.unit.contract.documents import document

app = App()


@app.task
def remind(order: int) -> None:
    """One kind."""


PUSH = {"kinds": {"push": {"http": {"url": "http://127.0.0.1:1/"}}}}
HERE = {"python": {"app": f"{__name__}:app"}} | PUSH
ELSEWHERE = {"python": {"app": "no.such.module:app"}} | PUSH
CALLABLE = {"python": {"callable": f"{__name__}:remind"}} | PUSH
HTTP = {"http": {"url": "http://127.0.0.1:1/"}} | PUSH


def refusal(handler: dict[str, Any], kind: str | None, *, version: int = 1, **options: Any) -> str:  # noqa: ANN401
    """Why a task is refused; empty if it is not."""
    queue = parse(document(handler=handler))
    with SyncClient.from_document(queue, url="redis://127.0.0.1:1", **options) as client:
        try:
            client._operations.writer.chunk(NewTask({}, delay_ms=0, kind=kind, version=version), "reject")
        except InvalidTask as error:
            return str(error)
    return ""


@pytest.mark.parametrize(
    ("handler", "taken", "refused"),
    [
        (HERE, ["remind", "push"], [None, "remnd"]),
        (ELSEWHERE, ["remind", "push", "remnd"], [None]),
        (CALLABLE, [None, "push"], ["remind", "remnd"]),
        (HTTP, [None, "push", "remnd"], []),
    ],
    ids=["app", "app-elsewhere", "callable", "http"],
)
def test_a_task_that_no_handler_takes_is_refused(
    handler: dict[str, Any], taken: list[str | None], refused: list[str | None]
) -> None:
    assert [kind for kind in taken if refusal(handler, kind)] == []
    assert [kind for kind in refused if not refusal(handler, kind)] == []
    assert [kind for kind in refused if refusal(handler, kind, unknown_kinds=True)] == []


@pytest.mark.parametrize("handler", [HERE, CALLABLE])
def test_what_is_no_kind_is_refused_by_name(handler: dict[str, Any]) -> None:
    for kind in (["remind"], 5):
        assert "expected 1 to 64 letters" in refusal(handler, kind)  # type: ignore[arg-type]
    assert "expected a whole number from 1" in refusal(handler, "remind", version=[1])  # type: ignore[arg-type]


def test_the_refusal_names_the_kinds_and_the_way_round_it() -> None:
    assert refusal(HERE, "remnd").endswith(
        "no handler takes 'remnd' version 1; did you mean remind?; if newer workers will know it, store it with "
        "unknown_kinds=True in from_document"
    )
    assert "no handler takes 'remind' version 2" in refusal(HERE, "remind", version=2)
    missing = f"required, but missing: each task of the App {__name__}:app has a kind; it has push, remind"
    assert refusal(HERE, None).endswith(missing)
    assert "no handler takes 'x' version 1; it has push; " in refusal(CALLABLE, "x")
