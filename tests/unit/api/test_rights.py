"""Rights: of each caller the union of its entries, of one without an entry none."""

from __future__ import annotations

import logging
from itertools import product

import pytest
from delayq.api.access import OPEN, VERBS, Caller, Denied, Grant, Rights
from delayq.api.access.audit import changed, refused
from delayq.api.access.bearer import LONGEST, Bearer
from delayq.api.access.rights import account, token
from hypothesis import given
from hypothesis import strategies as st

KINDS = ("email", "report", "invoice")
WHO = (account("shop", "web"), account("shop", "admin"), token("php"))
grants = st.builds(
    Grant,
    st.sampled_from(WHO),
    st.lists(st.sampled_from(VERBS), min_size=1, max_size=4, unique=True).map(tuple),
    st.none() | st.lists(st.sampled_from(KINDS), min_size=1, max_size=2, unique=True).map(tuple),
)


@given(st.lists(grants, max_size=6))
def test_a_caller_may_what_one_of_its_entries_allows_and_nothing_else(given_: list[Grant]) -> None:
    rights = Rights(given_)
    for who, verb, kind in product((*WHO, token("stranger")), VERBS, (*KINDS, "other", None)):
        mine = [each for each in given_ if each.who == who and verb in each.verbs]
        allowed = any(each.kinds is None or kind in each.kinds for each in mine)
        assert rights.of(who).may(verb, kind) is allowed
        everything = any(each.kinds is None for each in mine)
        named = frozenset(kind for each in mine for kind in each.kinds or ())
        assert rights.of(who).kinds(verb) == (None if everything else named)


def test_a_right_on_some_kinds_covers_neither_tasks_without_a_kind_nor_the_queue() -> None:
    caller = Rights([Grant("token:a", ("read",), ("email",))]).of("token:a")
    assert caller.may("read", "email")
    assert not caller.may("read", None)


def test_a_verb_that_does_not_exist_is_an_error_and_not_a_refusal() -> None:
    with pytest.raises(ValueError, match=r"expected a verb of schedule, cancel, .*; got redrive"):
        Caller("token:a").may("redrive", None)  # type: ignore[arg-type]


def test_open_access_lets_every_request_do_everything() -> None:
    for authorization in (None, "Bearer x", "nonsense"):
        caller = OPEN.caller(authorization)
        assert all(caller.may(verb, kind) for verb, kind in product(VERBS, (None, "email")))


class Named:
    """A source that knows one token."""

    def name(self, given: str) -> str:
        if given != "right":
            raise Denied(401, "the token is not known, or not any more")
        return token("php")


@pytest.mark.parametrize(
    ("authorization", "why", "challenge"),
    [
        (None, "expected the header Authorization: Bearer TOKEN, got none", "Bearer"),
        ("", "expected the header Authorization: Bearer TOKEN, got none", "Bearer"),
        ("Basic cGhwOnJpZ2h0", "got another scheme", 'Bearer error="invalid_token"'),
        ("right", "got another scheme", 'Bearer error="invalid_token"'),
        ("Bearer ", "got another scheme", 'Bearer error="invalid_token"'),
        ("Bearer wrong", "the token is not known", 'Bearer error="invalid_token"'),
        ("Bearer ri\u0261ht", "ASCII", 'Bearer error="invalid_token"'),
        (f"Bearer {'a' * (LONGEST + 1)}", "at most 8192", 'Bearer error="invalid_token"'),
        ("Bearer a.b.c", "accepts named tokens only", 'Bearer error="invalid_token"'),
    ],
)
def test_a_request_without_a_credential_is_denied(
    authorization: str | None, why: str, challenge: str
) -> None:
    access = Bearer(Rights([]), tokens=Named())  # type: ignore[arg-type]
    with pytest.raises(Denied) as denied:
        access.caller(authorization)
    assert why in denied.value.why
    assert (denied.value.status, denied.value.challenge) == (401, challenge)


@pytest.mark.parametrize("authorization", ["Bearer right", "bearer right", "BEARER  right "])
def test_a_known_token_is_its_caller_with_the_rights_of_its_entries(authorization: str) -> None:
    access = Bearer(Rights([Grant(token("php"), ("schedule",), None)]), tokens=Named())  # type: ignore[arg-type]
    caller = access.caller(authorization)
    assert caller.name == "token:php"
    assert [verb for verb in VERBS if caller.may(verb, "email")] == ["schedule"]


def test_each_change_and_each_refusal_is_one_event_with_who_and_what(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    caller = Caller(account("shop", "web"))
    what = {"operation": "cancel", "tag": "eu", "kind": None}
    changed(caller, "cancel", what=what, count=12, request="r-1")
    refused(caller, "cancel", what=what, request="r-2")
    common = {"caller": caller.name, "verb": "cancel", "operation": "cancel", "tag": "eu"}
    found = [(each.levelname, each.getMessage(), each.fields) for each in caplog.records]  # type: ignore[attr-defined]
    assert found == [
        ("INFO", "api_changed", {**common, "count": 12, "request": "r-1"}),
        ("WARNING", "api_refused", {**common, "request": "r-2"}),
    ]
