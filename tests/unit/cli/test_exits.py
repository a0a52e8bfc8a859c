"""What a command says when something is wrong: the sentence, and what to do next."""

from __future__ import annotations

import pytest
from delayq.cli.exits import errors_as_exits
from delayq.connection.round_trip import translated
from delayq.contract.problems import Problem, SpecError
from delayq.errors import InvalidTask
from redis.exceptions import ResponseError

DOCTOR = "delayq doctor orders checks each requirement"


@pytest.mark.parametrize(
    "why",
    [
        "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
        "ACL failure in script: User delayq has no permissions to run the 'zadd' command",
        "The user executing the script can't run this command or subcommand",
    ],
)
def test_a_right_that_lacks_names_the_rule_and_who_says_which(
    capsys: pytest.CaptureFixture[str], why: str
) -> None:
    for hint, reported in ((DOCTOR, DOCTOR), ("", "delayq doctor QUEUE names the missing ones")):
        with pytest.raises(SystemExit) as exited, errors_as_exits(hint):
            raise translated(ResponseError(why), "redis:6379", "claim")
        assert exited.value.code == 1
        said = capsys.readouterr().err.splitlines()
        assert said[1] == f"hint:  delayq acl prints the rights that the user needs; {reported}"


def test_a_schedule_with_an_invalid_field_exits_as_an_invalid_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exited, errors_as_exits(DOCTOR):
        raise SpecError((Problem("spec.cron", "expected 5 fields"),))
    assert (exited.value.code, capsys.readouterr().err) == (3, "spec.cron: expected 5 fields\n")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("task_id: expected 1 to 200 bytes", "ID: expected 1 to 200 bytes"),
        ("tags of task a-7: expected at most 8, got 9", "--tag: expected at most 8, got 9"),
        ("version of task a: expected a whole number", "--kind-version: expected a whole number"),
        ("task a: delay_ms: expected 0", "task a: delay_ms: expected 0"),
        ("payload of task a: expected JSON", "payload of task a: expected JSON"),
    ],
)
def test_an_error_of_the_client_names_what_the_user_typed(
    capsys: pytest.CaptureFixture[str], message: str, said: str
) -> None:
    with pytest.raises(SystemExit) as exited, errors_as_exits(DOCTOR):
        raise InvalidTask("a", message)
    assert (exited.value.code, capsys.readouterr().err) == (5, f"error: {said}\n")
