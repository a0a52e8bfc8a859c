"""delayq api-token prints a token and what a Secret has for it."""

from __future__ import annotations

import hashlib

import yaml

from tests.unit.cli.runner import run


def test_a_new_token_is_printed_with_its_hash() -> None:
    first, second = (yaml.safe_load(run("api-token").stdout) for _ in range(2))
    assert first["token"] != second["token"]
    assert first["sha256"] == hashlib.sha256(first["token"].encode()).hexdigest()
