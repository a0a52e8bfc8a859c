"""delayq acl: the rights that delayq's user needs, as one line to paste into redis-cli."""

from __future__ import annotations

import click

from delayq.cli.target import check_text
from delayq.contract import acl as rights
from delayq.contract.words import KEY_PREFIX

VERSIONS = {"7.0": (7, 0), "7.2": rights.YOUNGER_SINCE}


@click.command()
@click.option(
    "--server",
    type=click.Choice(list(VERSIONS)),
    default="7.2",
    show_default=True,
    help="7.0 for Redis before 7.2; 7.2 for younger ones and Valkey.",
)
@click.option("--sentinel", is_flag=True, help="For the user of the Sentinels instead.")
@click.option(
    "--key-prefix",
    metavar="TEXT",
    default="delayq",
    show_default=True,
    help="spec.redis.keyPrefix.",
)
@click.option("--user", metavar="NAME", default="delayq", show_default=True, help="Name of the user.")
def acl(*, server: str, sentinel: bool, key_prefix: str, user: str) -> None:
    """Print what delayq's user may do, and nothing more, as one command for redis-cli.

    Put a password in the place of PASSWORD, and run it on every node, replicas included: servers do not pass users on.
    Sentinels take that of --sentinel instead, each of them. ACL SAVE (with an aclfile) or CONFIG REWRITE, on a
    Sentinel SENTINEL FLUSHCONFIG, keeps it over a restart.
    """
    check_text(KEY_PREFIX, "--key-prefix", KEY_PREFIX.expected, key_prefix)
    rule = rights.sentinel_rule() if sentinel else rights.rule(key_prefix, redis=VERSIONS[server])
    click.echo(f"ACL SETUSER {user} on >PASSWORD {rule}")
