"""Runs commands in this process, with what a terminal would give them and nothing from our own environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner
from delayq.cli.root import delayq

if TYPE_CHECKING:
    from click.testing import Result

EMPTY: dict[str, str | None] = {"DELAYQ_REDIS_URL": None, "DELAYQ_CONFIG": None, "DELAYQ_SECRETS_DIR": None}


def run(*args: str, stdin: bytes | str = b"", **env: str) -> Result:
    """What a command says and how it exits; an exception that no user should see fails the test."""
    return CliRunner().invoke(
        delayq, args, input=stdin, env={**EMPTY, **env}, catch_exceptions=False, prog_name="delayq"
    )
