"""Checks: verdicts from answers of functions and services, and errors before anything runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from delayq import Verdict
from delayq.connection import Address
from delayq.contract.check import Check as Spec
from delayq.contract.check import PythonCheck as PythonSpec
from delayq.errors import GuardBusy, GuardUnavailable, InvalidDocument
from delayq.handlers.http_post import BODY_BYTES
from delayq.handlers.http_response import Answer as Response
from delayq.recovery import checks
from delayq.recovery.checks.http import read
from delayq.recovery.checks.ledger import LedgerCheck
from delayq.recovery.checks.runner import CheckRunner

from tests.unit.handlers.receivers import Receiver, hostile
from tests.unit.handlers.support import a_task, document

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Mapping
    from pathlib import Path

    from delayq.protocol.envelope import Task
    from delayq.recovery.checks import Check
    from delayq.recovery.checks.runner import Judgement


def build(check: Mapping[str, object], secrets_dir: Path) -> Check:
    queue = document({"exec": {"command": ["true"]}}, recovery={"check": dict(check)})
    found = checks.build(queue, Address.from_url("redis://unused"), secrets_dir=secrets_dir)
    assert found is not None
    return found


def state(_task: Task) -> str:
    return "wait"


def state_on(_task: Task, connection: object) -> str:
    return str(connection)


class UnreadableError(Exception):
    """Even its message is broken."""

    def __str__(self) -> str:
        raise SystemExit(1)


def breaks(_task: Task) -> str:
    raise UnreadableError


def python(callable_: str) -> dict[str, object]:
    return {"python": {"callable": callable_}}


def http(**spec: object) -> dict[str, object]:
    return {"http": {"url": "http://127.0.0.1:1/"} | spec}


CALLABLE, SERVICE = "spec.recovery.check.python.callable: ", "spec.recovery.check.http."
SECRET = {"name": "keys", "key": "key"}


@pytest.mark.parametrize(
    ("check", "field", "why"),
    [
        (python("nowhere_at_all:state"), CALLABLE, 'no module "nowhere_at_all"'),
        (python(f"{__name__}:state_on"), CALLABLE, "takes a connection: a check is given the task alone"),
    ],
)
async def test_a_check_that_cannot_be_asked_is_reported_with_the_field(
    tmp_path: Path, check: dict[str, object], field: str, why: str
) -> None:
    with pytest.raises(InvalidDocument) as raised:
        await build(check, tmp_path).start()
    assert str(raised.value).startswith(field)
    assert why in str(raised.value)


def answered(body: bytes, status: int = 200) -> Response:
    return Response(status=status, body=body, retry_after=None, date=None, location=None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"verdict": "complete"}', (Verdict.COMPLETE, "")),
        (b'{"verdict": "bury", "reason": "twice", "more": 1}', (Verdict.BURY, "twice")),
        (b'{"verdict": "wait", "reason": null}', (Verdict.WAIT, "")),
        (b'{"verdict": "requeue", "reason": 7}', (Verdict.REQUEUE, "7")),
    ],
)
def test_what_a_service_answers_is_read(body: bytes, expected: tuple[Verdict, str]) -> None:
    assert read(answered(body)) == expected


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (answered(b'{"verdict": "complete"}', 201), "expected status 200, got 201"),
        (answered(b"<h1>Bad\x1b[2J Gateway</h1>", 502), "got 502: <h1>Bad\ufffd[2J Gateway</h1>"),
        (answered(b""), "expected JSON"),
        (answered(b'"complete"'), "expected JSON"),
        (answered(b"[" * 60_000), "expected JSON"),
        (answered(b'{"state": "complete"}'), 'got {"state": "complete"}'),
        (answered(b'{"verdict": "done"}'), "expected one of requeue, complete, bury, wait as the verdict, got 'done'"),
        (answered(b'{"verdict": ["complete"]}'), "got ['complete']"),
        (answered(b'{"verdict": "complete", "x": "' + b"x" * BODY_BYTES), "less than 65,536 bytes"),
    ],
)  # fmt: skip
def test_anything_else_that_a_service_answers_is_no_verdict(response: Response, why: str) -> None:
    with pytest.raises(checks.CheckFailed) as raised:
        read(response)
    assert why in str(raised.value)


def test_a_secret_that_a_service_repeats_is_in_no_reason_and_changes_no_verdict() -> None:
    """Not even one that is the name of a verdict, or the beginning of one."""
    secrets = ("Key complete", "Bearer s3cret/key", "w")

    def said(body: str, status: int = 200) -> Response:
        kept = {"retry_after": None, "date": None, "location": None, "secrets": secrets}
        return Response(status=status, body=body.encode(), **kept)  # type: ignore[arg-type]

    reason = r'"reason": "for s3cret\/key: w"'
    assert read(said(f'{{"verdict": "complete", {reason}}}')) == (Verdict.COMPLETE, "for [redacted]: w")
    assert read(said(f'{{"verdict": "wait", {reason}}}')) == (Verdict.WAIT, "for [redacted]: w")
    for response in (said('{"verdict": "s3cret/key"}'), said(f"{{{reason}}}"), said(reason, 500)):
        with pytest.raises(checks.CheckFailed, match=r"\[redacted\]") as raised:
            read(response)
        assert "s3cret" not in str(raised.value)


def spec(seconds: int = 30, on_failure: Any = "Requeue") -> Spec:  # noqa: ANN401  a word of the contract
    return Spec(python=PythonSpec(callable="unused:unused"), timeout_seconds=seconds, on_failure=on_failure)


async def ask(check: Check, seconds: int = 30) -> Judgement:
    await check.start()
    try:
        judged = await CheckRunner(check, spec(seconds)).judge(a_task())
    finally:
        await check.close()
    assert judged is not None
    return judged


class Books:
    """A guard that can be asked and nothing else."""

    def __init__(self, known: bool | Exception | None) -> None:  # noqa: FBT001  what seen() answers
        self.known, self.closed = known, False

    async def seen(self, _task: Task) -> bool | None:
        if isinstance(self.known, Exception):
            raise self.known
        return self.known

    async def close(self) -> None:
        self.closed = True


async def test_a_check_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    """The service, or its key, is not there, it answers without end, or elsewhere; a function raises nonsense."""
    verdict, reason, cause = await ask(build(http(), tmp_path))
    assert (verdict, cause) == (Verdict.REQUEUE, "failed")
    assert reason.startswith("the check failed: ClientConnectorError: Cannot connect to host 127.0.0.1:1")

    async def drip(_reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\n\r\n{"verdict":')
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with hostile(drip) as url:
        judged = await ask(build(http(url=url) | {"timeoutSeconds": 1}, tmp_path), seconds=1)
    assert judged == (Verdict.REQUEUE, "the check failed: no verdict within 1 s", "timeout")
    async with Receiver.listening() as receiver:
        receiver.answers = [web.Response(status=307, headers={"Location": receiver.url})]
        judged = await ask(build(http(url=receiver.url), tmp_path))
        assert len(receiver.bodies) == 1, "a redirect is not followed"
    assert judged.reason.startswith("the check failed: expected status 200, got 307")
    judged = await ask(build(http(signingSecretRef=SECRET), tmp_path))
    assert judged.reason.startswith(
        f"the check failed: {SERVICE}signingSecretRef: cannot read {tmp_path}/keys/key"
    )
    judged = await ask(build(python(f"{__name__}:breaks"), tmp_path))
    assert judged.reason == "the check failed: it raised an exception that cannot be read"


@pytest.mark.parametrize(
    ("known", "begun", "verdict", "reason"),
    [
        (True, "", Verdict.COMPLETE, "the guard has seen it take effect"),
        (False, "", Verdict.REQUEUE, "the guard has not seen it take effect"),
        (False, "(token 3) began at noon", Verdict.REQUEUE, "an incomplete run (token 3) began at noon"),
        (None, "", Verdict.WAIT, "the guard cannot tell"),
        (
            GuardUnavailable("db:5432", "refused"),
            "",
            Verdict.REQUEUE,
            "the check failed: guard at db:5432 is not available (refused)",
        ),
        (GuardBusy("no connection is free"), "", None, ""),
    ],
)
async def test_what_the_guard_has_seen_is_the_verdict(
    *, known: bool | Exception | None, begun: str, verdict: Verdict | None, reason: str
) -> None:
    """A busy guard is asked again."""

    class Remembering(Books):
        async def incomplete_run(self, _task: Task) -> str:
            return begun

    books: Any = Remembering(known)
    check = LedgerCheck(books)
    judged = await CheckRunner(check, spec()).judge(a_task())
    await check.close()
    assert books.closed
    assert (judged and judged[:2]) == (verdict and (verdict, reason))
