"""delayq acl prints one line that redis-cli takes as it is."""

from __future__ import annotations

from delayq.contract.acl import rule, sentinel_rule

from tests.unit.cli.runner import run


def test_sentinels_and_a_queue_get_users_of_their_own_and_the_rule_for_all_of_them_warns() -> None:
    old = run("acl", "--server", "7.0", "--key-prefix", "shop", "--user", "worker").stdout
    assert old == f"ACL SETUSER worker on >PASSWORD {rule('shop', redis=(7, 0))}\n"
    assert run("acl", "--sentinel").stdout == f"ACL SETUSER delayq on >PASSWORD {sentinel_rule()}\n"
    one, every = run("acl", "orders"), run("acl")
    assert one.stdout == f"ACL SETUSER delayq-orders on >PASSWORD {rule(queue='orders')}\n"
    assert one.stderr == ""
    assert "the tasks of every queue under delayq:" in every.stderr
    assert every.stdout == f"ACL SETUSER delayq on >PASSWORD {rule()}\n"
    config = run("acl", "eu.orders", "--config-get")
    assert config.stdout.endswith(f" {rule(queue='eu.orders', config_get=True)}\n")
    assert "reveals requirepass and masterauth" in config.stderr
    assert [run("acl", *option, "or ders").exit_code for option in ([], ["--key-prefix"])] == [2, 2]
