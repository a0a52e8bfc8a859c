"""Any input gives a document or its problems; never another exception, never a secret."""

from __future__ import annotations

import datetime as dt
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import SpecError, parse, to_document
from delayq.contract.kinds import Choice, Flag, Listing, Text, Whole
from delayq.contract.queue import DelayQueue
from delayq.contract.record import Section, declared
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.contract.documents import Json, disturbed_specs, document, specs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract.kinds import Kind

RedisAccess = tuple[Any, ...]

KNOWN_NAMES = [
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    "redis",
    "handler",
    "delivery",
    "worker",
    "name",
    "nodes",
]

scalars = st.one_of(
    *(st.none(), st.booleans(), st.floats(), st.text(max_size=8), st.binary(max_size=3)),
    st.integers(),
    st.sampled_from((10**400, dt.date(2026, 1, 1), {1, 2}, "\ud800")),
)


keys = st.sampled_from(KNOWN_NAMES) | scalars.filter(lambda key: not isinstance(key, set))
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4)
)


def messages(value: Json) -> list[str]:
    try:
        parse(value)
    except SpecError as error:
        found = [str(problem) for problem in error.problems]
        assert all(map(str.isprintable, found))
        return found
    return []


@given(anything)
def test_garbage_is_refused_in_words(value: Json) -> None:
    assert messages(value)


@given(
    st.lists(st.sampled_from(["spec", "redis", "worker", "limits", "guard", "handler"]), max_size=3), anything
)
def test_garbage_anywhere_in_a_document_is_refused_in_words_or_left_out(way: list[str], value: Json) -> None:
    whole = place = document()
    for step in way[:-1]:
        place = place.setdefault(step, {}) if isinstance(place.get(step, {}), dict) else place
    place[way[-1] if way else "spec"] = value
    messages(whole)


@given(disturbed_specs())
def test_a_problem_fits_on_one_line_and_quotes_little(spec: Json) -> None:
    for message in messages(document(spec)):
        for quotation in re.findall(r'got (".*")$', message):
            assert len(quotation) <= 60


SECRET = "hunter2 hunter2"  # noqa: S105 - not a password, but a user's could stand there


def spots(kind: Kind, path: RedisAccess = ()) -> Iterator[tuple[RedisAccess, Kind]]:
    """Every field below a kind, as the way to it."""
    if isinstance(kind, Section):
        for field in declared(kind.record):
            yield (*path, field.name), field.kind
            yield from spots(field.kind, (*path, field.name))
    if isinstance(kind, Listing):
        yield from spots(kind.item, (*path, 0))


def put(tree: Json, way: RedisAccess, value: object) -> None:
    for step, following in pairwise(way):
        tree = tree[0] if step == 0 else tree.setdefault(step, [{}] if following == 0 else {})
    tree[way[-1]] = value


REFERENCES = [
    way
    for way, kind in spots(Section(DelayQueue))
    if not isinstance(kind, Whole | Choice | Flag)
    and any("Ref" in str(step) or step in {"http", "exec"} for step in way)
]


@pytest.mark.parametrize("secret", [SECRET, [SECRET], {SECRET: 1}, 424242424242, {"a": 424242424242}])
def test_a_secret_put_where_a_reference_belongs_is_not_repeated(secret: Json) -> None:
    for way in REFERENCES:
        whole = document()
        put(whole, way, secret)
        for message in messages(whole):
            assert "424242424242" not in message
            # A name is not a secret: the key of a mapping is quoted, so that its author finds it.
            assert "hunter2" not in message or isinstance(secret, dict), way


def test_a_url_with_a_password_is_refused_without_repeating_it() -> None:
    http, host = {"url": "https://user:hunter2@shop/"}, {"host": "redis://:hunter2@shop"}
    assert messages(document(redis={"standalone": host}, handler={"http": http})) == [
        "spec.redis.standalone.host: expected a host name or address without a port, got text",
        "spec.handler.http.url: expected an http or https URL without user name and password, got text",
    ]


@pytest.mark.parametrize("host", ["redis.shop.svc:6379", "10.0.0.1:6379", "redis:", ":6379"])
def test_a_host_with_a_port_is_refused(host: str) -> None:
    (message,) = messages(document(redis={"standalone": {"host": host}}))
    assert message.startswith(
        "spec.redis.standalone.host: expected a host name or address without a port, got "
    )
    port = "leave out the port: it belongs into the field port"
    assert (port in message) == (host in ("redis.shop.svc:6379", "10.0.0.1:6379"))


@pytest.mark.parametrize("host", ["::", "::1", "fe80::1", "2001:db8::7:6379", "::ffff:10.0.0.1"])
def test_an_ipv6_address_is_a_host(host: str) -> None:
    parse(document(redis={"standalone": {"host": host}}))


@given(specs)
def test_a_document_written_back_in_full_means_the_same(spec: Json) -> None:
    try:
        queue = parse(document(spec))
    except SpecError:
        return  # valid fields that break a rule together
    written = to_document(queue)
    assert parse(written) == queue
    assert to_document(parse(written)) == written


def test_texts_are_ascii_where_their_pattern_says_so() -> None:
    texts = [kind for _, kind in spots(Section(DelayQueue)) if isinstance(kind, Text)]
    assert len(texts) > 20
    assert all(kind.pattern and kind.pattern[0] == "^" and kind.pattern[-1] == "$" for kind in texts)
