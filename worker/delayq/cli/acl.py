"""delayq acl: the ACL rule that delayq's user needs, as one command for redis-cli."""

from __future__ import annotations

import click

from delayq.cli.exits import errors_as_exits
from delayq.cli.inputs import examples
from delayq.cli.output import note
from delayq.cli.target import DEFAULT_PREFIX, QUEUE, check_text, resolve
from delayq.contract import acl as rights
from delayq.contract.words import KEY_PREFIX

NO_REDIS = "redis://localhost"  # the rule needs no Redis
VERSIONS = {"7.0": (7, 0), "7.2": rights.YOUNGER_SINCE}


@click.command(
    epilog=examples("delayq acl orders", "delayq acl queue.yaml --server 7.0", "delayq acl --sentinel")
)
@click.option(
    "--server",
    type=click.Choice(list(VERSIONS)),
    default="7.2",
    show_default=True,
    help="7.0 for Redis before 7.2; 7.2 for later versions and Valkey.",
)
@click.option("--sentinel", is_flag=True, help="Print the rule for the Sentinels' user instead.")
@click.argument("queue", type=QUEUE, required=False)
@click.option(
    "--key-prefix", metavar="PREFIX", help="spec.redis.keyPrefix.  [default: that of the document, or delayq]"
)
@click.option(
    "--config-get",
    is_flag=True,
    help="Allow CONFIG GET, which durability.confirm: Fsynced needs. It reveals Redis' own passwords.",
)
@click.option("--user", metavar="NAME", help="Name of the user.  [default: delayq, or delayq-QUEUE]")
def acl(
    *,
    server: str,
    sentinel: bool,
    queue: str | None,
    key_prefix: str | None,
    config_get: bool,
    user: str | None,
) -> None:
    """Print the ACL rule of a queue's Redis user, for redis-cli.

    Create one user for each QUEUE: without QUEUE, the user can read, run and delete the tasks of all queues.
    Replace PASSWORD, and run the command on every node, replicas included: Redis does not replicate users.
    Run the output of --sentinel on every Sentinel. To keep the user over a restart, run ACL SAVE (with an aclfile) or
    CONFIG REWRITE, on a Sentinel SENTINEL FLUSHCONFIG.
    """
    with errors_as_exits():
        key_prefix, queue = _keys(queue, key_prefix)
    if sentinel:
        rule = rights.sentinel_rule()
    else:
        _warn(queue, key_prefix, config_get=config_get)
        rule = rights.rule(key_prefix, queue=queue, config_get=config_get, redis=VERSIONS[server])
    name = user or ("delayq" if queue is None or sentinel else f"delayq-{queue}")
    click.echo(f"ACL SETUSER {name} on >PASSWORD {rule}")


def _keys(queue: str | None, key_prefix: str | None) -> tuple[str, str | None]:
    """Return the prefix of the keys, and the queue's name."""
    if queue is None:
        prefix = DEFAULT_PREFIX if key_prefix is None else key_prefix
        check_text(KEY_PREFIX, "--key-prefix", KEY_PREFIX.expected, prefix)
        return prefix, None
    target = resolve(queue, redis=NO_REDIS, key_prefix=key_prefix)
    return target.key_prefix, target.queue


def _warn(queue: str | None, key_prefix: str, *, config_get: bool) -> None:
    if queue is None:
        note(
            f"warning: this user can read, run and delete the tasks of every queue under {key_prefix}: "
            "delayq acl QUEUE prints the rule for one queue"
        )
    if config_get:
        note(
            "warning: CONFIG GET reveals requirepass and masterauth, so that this user can log in as any other with "
            "them: keep those passwords in an aclfile, as hashes"
        )
