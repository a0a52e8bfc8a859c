"""delayq acl prints one line that redis-cli takes as it is."""

from __future__ import annotations

import pytest
from delayq.contract.acl import rule, sentinel_rule

from tests.unit.cli.runner import run


def test_an_old_server_gets_no_right_that_it_does_not_know() -> None:
    line = run("acl", "--server", "7.0", "--key-prefix", "shop", "--user", "worker").stdout
    assert line.startswith("ACL SETUSER worker on >PASSWORD resetkeys ~shop:* ")
    assert "waitaof" not in line


@pytest.mark.parametrize("server", ["7.0", "7.2"])
def test_sentinels_have_a_user_of_their_own(server: str) -> None:
    line = run("acl", "--sentinel", "--server", server).stdout
    assert line == f"ACL SETUSER delayq on >PASSWORD {sentinel_rule()}\n"


def test_a_queue_gets_a_user_of_its_own_and_the_rule_for_all_of_them_warns() -> None:
    one, every = run("acl", "--queue", "orders"), run("acl")
    assert one.stdout == f"ACL SETUSER delayq-orders on >PASSWORD {rule(queue='orders')}\n"
    assert one.stderr == ""
    assert "the tasks of every queue under delayq:" in every.stderr
    assert every.stdout == f"ACL SETUSER delayq on >PASSWORD {rule()}\n"
    config = run("acl", "--queue", "eu.orders", "--config-get")
    assert config.stdout.endswith(f" {rule(queue='eu.orders', config_get=True)}\n")
    assert "reveals requirepass and masterauth" in config.stderr
    assert [run("acl", option, "or ders").exit_code for option in ("--queue", "--key-prefix")] == [2, 2]
