"""Checks: what they make of what people and services say, and what is told before anything runs."""

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
from delayq.recovery.checks.asking import Asking
from delayq.recovery.checks.http import read
from delayq.recovery.checks.ledger import LedgerCheck

from tests.unit.handlers.receivers import Receiver, hostile
from tests.unit.handlers.support import a_task, document

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Mapping
    from pathlib import Path

    from delayq.protocol.envelope import Task
    from delayq.recovery.checks import Answer, Check
    from delayq.recovery.checks.asking import Judgement


def build(check: Mapping[str, object], secrets_dir: Path, **spec: object) -> Check | None:
    queue = document({"exec": {"command": ["true"]}}, recovery={"check": dict(check)}, **spec)
    return checks.build(queue, Address.from_url("redis://unused"), secrets_dir=secrets_dir)


def state(_task: Task) -> str:
    return "wait"


def state_on(_task: Task, connection: object) -> str:
    return str(connection)


def every(_task: Task) -> object:
    yield "wait"


def test_without_a_check_there_is_none(tmp_path: Path) -> None:
    queue = document({"exec": {"command": ["true"]}})
    assert checks.build(queue, Address.from_url("redis://unused"), secrets_dir=tmp_path) is None


@pytest.mark.parametrize(
    ("callable_", "why"),
    [
        ("nowhere_at_all:state", 'no module "nowhere_at_all"'),
        (f"{__name__}:stat", 'has no attribute "stat", did you mean "state"?'),
        (f"{__name__}:state_on", "takes a connection: a check is given the task alone"),
        (f"{__name__}:every", "is a generator function"),
        ("builtins:len.__doc__", "is not callable"),
    ],
)
def test_a_function_that_is_not_there_is_told_with_the_field_that_names_it(
    tmp_path: Path, callable_: str, why: str
) -> None:
    with pytest.raises(InvalidDocument) as told:
        build({"python": {"callable": callable_}}, tmp_path)
    assert str(told.value).startswith("spec.recovery.check.python.callable: ")
    assert why in str(told.value)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"headers": {"Delayq-Check": "0"}},
            'spec.recovery.check.http.headers: "Delayq-Check" is set by delayq',
        ),
        (
            {"signingSecretRef": {"name": "keys", "key": "key"}},
            "spec.recovery.check.http.signingSecretRef: cannot read",
        ),
    ],
)
async def test_a_service_that_cannot_be_asked_is_told_with_the_field(
    tmp_path: Path, spec: dict[str, object], why: str
) -> None:
    with pytest.raises(InvalidDocument) as told:
        await started({"http": {"url": "http://127.0.0.1:1/"} | spec}, tmp_path)
    assert str(told.value).startswith(why)


async def started(check: Mapping[str, object], secrets_dir: Path) -> None:
    found = build(check, secrets_dir)
    assert found is not None
    await found.start()


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
        (answered(b"complete"), "expected JSON"),
        (answered(b'"complete"'), "expected JSON"),
        (answered(b"[" * 60_000), "expected JSON"),
        (answered(b"\xff"), "expected JSON"),
        (answered(b'{"state": "complete"}'), 'got {"state": "complete"}'),
        (answered(b'{"verdict": "done"}'), "expected one of requeue, complete, bury, wait as the verdict, got 'done'"),
        (answered(b'{"verdict": ["complete"]}'), "got ['complete']"),
        (answered(b'{"verdict": "complete", "x": "' + b"x" * BODY_BYTES), "less than 65,536 bytes"),
    ],
)  # fmt: skip
def test_anything_else_that_a_service_answers_is_no_verdict(response: Response, why: str) -> None:
    with pytest.raises(checks.CheckFailed) as told:
        read(response)
    assert why in str(told.value)


def spec(seconds: int = 30, on_failure: Any = "Requeue") -> Spec:  # noqa: ANN401  a word of the contract
    return Spec(python=PythonSpec(callable="unused:unused"), timeout_seconds=seconds, on_failure=on_failure)


async def ask(check: Check, seconds: int = 30) -> Judgement:
    await check.start()
    try:
        judged = await Asking(check, spec(seconds)).judge(a_task())
    finally:
        await check.close()
    assert judged is not None
    return judged


async def test_a_service_that_is_not_there_gives_no_verdict(tmp_path: Path) -> None:
    found = build({"http": {"url": "http://127.0.0.1:1/"}}, tmp_path)
    assert found is not None
    verdict, reason, cause = await ask(found)
    assert (verdict, cause) == (Verdict.REQUEUE, "failed")
    assert reason.startswith("the check failed: ClientConnectorError: Cannot connect to host 127.0.0.1:1")


async def test_a_service_whose_answer_never_ends_is_left_at_the_time_limit(tmp_path: Path) -> None:
    async def drip(_reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\n\r\n{"verdict":')
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with hostile(drip) as url:
        found = build({"http": {"url": url}, "timeoutSeconds": 1}, tmp_path)
        assert found is not None
        judged = await ask(found, seconds=1)
    assert judged == (Verdict.REQUEUE, "the check failed: no verdict within 1 s", "timeout")


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    async with Receiver.listening() as receiver:
        receiver.answers = [web.Response(status=307, headers={"Location": receiver.url})]
        found = build({"http": {"url": receiver.url}}, tmp_path)
        assert found is not None
        judged = await ask(found)
        assert len(receiver.bodies) == 1
    assert judged.reason.startswith("the check failed: expected status 200, got 307")


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


@pytest.mark.parametrize(
    ("known", "verdict"), [(True, Verdict.COMPLETE), (False, Verdict.REQUEUE), (None, Verdict.WAIT)]
)
async def test_what_the_guard_has_seen_is_the_verdict(known: bool | None, verdict: Verdict) -> None:  # noqa: FBT001
    books: Any = Books(known)
    judged = await ask(LedgerCheck(books))
    assert (judged.verdict, judged.cause) == (verdict, "check")
    assert books.closed


@pytest.mark.parametrize(
    ("begun", "reason"),
    [
        ("(token 3) began at noon and never said how it ended", "an incomplete run (token 3) began at noon "),
        ("", "the guard has not seen it take effect"),
    ],
)
async def test_a_run_that_never_ended_is_to_run_again_and_said_to_be_one(begun: str, reason: str) -> None:
    class Remembering(Books):
        async def incomplete_run(self, _task: Task) -> str:
            return begun

    books: Any = Remembering(known=False)
    judged = await ask(LedgerCheck(books))
    assert (judged.verdict, judged.reason[: len(reason)]) == (Verdict.REQUEUE, reason)


async def test_a_guard_that_is_away_gives_no_verdict() -> None:
    books: Any = Books(GuardUnavailable("db:5432", "refused"))
    verdict, reason, cause = await ask(LedgerCheck(books))
    assert (verdict, cause) == (Verdict.REQUEUE, "failed")
    assert reason == "the check failed: guard at db:5432 is not available (refused)"


async def test_a_guard_that_is_busy_is_to_be_asked_again() -> None:
    books: Any = Books(GuardBusy("no connection is free"))
    assert await Asking(LedgerCheck(books), spec()).judge(a_task()) is None


class Deaf:
    """A check that ignores its cancellation until it is let go."""

    stuck = 0

    def __init__(self) -> None:
        self.enough = asyncio.Event()

    async def start(self) -> None:
        pass

    async def ask(self, _task: Task) -> Answer:
        while not self.enough.is_set():
            try:
                await self.enough.wait()
            except asyncio.CancelledError:
                continue
        return checks.Answer(Verdict.COMPLETE)

    async def close(self) -> None:
        pass


async def test_questions_that_ignore_their_cancellation_are_counted_until_they_end() -> None:
    deaf = Deaf()
    asking = Asking(deaf, spec(1))
    judged = await asyncio.gather(*(asking.judge(a_task()) for _ in range(5)))
    assert {each and each.cause for each in judged} == {"timeout"}
    assert (asking.given_up, asking.hangs) == (5, True)
    deaf.enough.set()
    async with asyncio.timeout(20):
        while asking.given_up:  # noqa: ASYNC110 -- nobody announces the end of what was given up
            await asyncio.sleep(0.01)
    assert not asking.hangs
    assert await asking.judge(a_task()) == (Verdict.COMPLETE, "", "check")


class UnreadableError(Exception):
    """Even its message is broken."""

    def __str__(self) -> str:
        raise SystemExit(1)


def breaks(_task: Task) -> str:
    raise UnreadableError


async def test_an_exception_that_cannot_be_read_is_a_failure_like_others(tmp_path: Path) -> None:
    found = build({"python": {"callable": f"{__name__}:breaks"}}, tmp_path)
    assert found is not None
    assert (await ask(found)).reason == "the check failed: it raised an exception that cannot be read"
