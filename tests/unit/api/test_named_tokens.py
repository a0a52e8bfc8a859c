"""Named tokens: known by their hash, rotated and revoked without a restart."""

from __future__ import annotations

import re
import resource
from typing import TYPE_CHECKING

import pytest
from delayq.api.access.bearer import Denied
from delayq.api.access.named_tokens import LOOK_SECONDS, PREFIX, NamedTokens, hash_of, new_token
from delayq.contract.files import Reference

from tests.unit.api.issuer import Volume

if TYPE_CHECKING:
    from pathlib import Path

PHP, NODE = Reference("Secret", "shop-tokens", "php"), Reference("Secret", "shop-tokens", "node")


class Clock:
    """A time that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def made_clock() -> Clock:
    return Clock()


@pytest.fixture(name="php")
def mounted_key(tmp_path: Path) -> Volume:
    return Volume(tmp_path / "shop-tokens", "php")


@pytest.fixture(name="tokens")
def named_tokens(tmp_path: Path, clock: Clock) -> NamedTokens:
    return NamedTokens([PHP, NODE], tmp_path, now=clock)


def known(tokens: NamedTokens, *given: str) -> list[str | None]:
    """The caller of each token, None if it is denied."""
    return [_known(tokens, each) for each in given]


def _known(tokens: NamedTokens, given: str) -> str | None:
    try:
        return tokens.name(given)
    except Denied as denied:
        return None if str(denied) == "the token is not known, or not any more" else str(denied)


def test_a_new_token_has_256_random_bits_and_no_dot() -> None:
    """A dot would have it taken for the token of a ServiceAccount."""
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(f"{PREFIX}[A-Za-z0-9_-]{{43}}", each) for each in made)


def test_a_token_is_replaced_while_both_are_valid(php: Volume, tokens: NamedTokens, clock: Clock) -> None:
    old, new = new_token(), new_token()
    for content, expected in (
        (hash_of(old), ["token:php", None]),
        (f"{hash_of(old)}\n{hash_of(new)}\n", ["token:php", "token:php"]),
        (hash_of(new), [None, "token:php"]),
    ):
        php.write(content)
        clock.now += LOOK_SECONDS
        assert known(tokens, old, new) == expected


def test_a_token_ends_with_its_key(php: Volume, tokens: NamedTokens, clock: Clock) -> None:
    token = new_token()
    php.write(hash_of(token))
    assert known(tokens, token) == ["token:php"]
    php.path.unlink()
    assert known(tokens, token) == ["token:php"]
    clock.now += LOOK_SECONDS
    assert known(tokens, token) == [None]


def test_a_process_without_a_descriptor_keeps_its_tokens(
    php: Volume, tokens: NamedTokens, clock: Clock
) -> None:
    """Else each caller would get 401 while many connections are open."""
    token = new_token()
    php.write(hash_of(token))
    assert known(tokens, token) == ["token:php"]
    clock.now += LOOK_SECONDS
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert known(tokens, token) == ["token:php"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_neither_the_hash_nor_an_empty_token_is_a_token(php: Volume, tokens: NamedTokens) -> None:
    token = new_token()
    php.write(hash_of(token))
    assert known(tokens, hash_of(token), "", token.lower(), token[:-1], f"{token} ") == [None] * 5


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n",
        new_token(),
        hash_of("x").upper(),
        hash_of("x")[:-1],
        "\n".join([hash_of("x")] * 9),
        "\x00" * 64,
    ],
    ids=["empty", "blank", "a token", "upper case", "too short", "nine", "NUL"],
)
def test_a_key_that_is_not_valid_denies_its_token_and_is_reported_without_its_content(
    php: Volume, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    clock = Clock()
    tokens = NamedTokens([PHP, NODE], tmp_path, now=clock)
    node = new_token()
    (php.folder).mkdir()
    (php.folder / "node").write_text(hash_of(node))
    php.write(content)
    for _ in range(3):
        assert known(tokens, node, content or "x") == ["token:node", None]
        clock.now += LOOK_SECONDS
    assert tokens.missing == [PHP]
    found = [(each.getMessage(), each.fields) for each in caplog.records]  # type: ignore[attr-defined]
    assert [(event, fields["token"], fields["secret"]) for event, fields in found] == [
        ("api_token_unusable", "php", "shop-tokens")
    ]
    assert not content.strip() or content not in str(found)


def test_keys_that_are_not_mounted_are_missing_until_they_are(
    php: Volume, tokens: NamedTokens, clock: Clock
) -> None:
    assert tokens.missing == [PHP, NODE]
    php.write(hash_of(new_token()))
    clock.now += LOOK_SECONDS
    assert tokens.missing == [NODE]
