"""The rights that delayq asks of Redis are those that it uses: what scripts call, and what connections send."""

from __future__ import annotations

import re

from delayq.contract import acl
from delayq.contract.words import KEY_PREFIX
from delayq.protocol import scripts

SAID = re.compile(r"""(?:redis\.p?call|each_slice)\(\s*'(\w+)'""")
NAMED = {"hscan", "zscan"}  # by an argument of reconcile.lua


def called() -> set[str]:
    sources = [scripts.load(verb).source for verb in scripts.names()]
    return {name.lower() for source in sources for name in SAID.findall(source)} | NAMED


def test_the_rule_allows_what_scripts_call_and_nothing_else() -> None:
    assert sorted(acl.SCRIPTS) == sorted(called())


def test_the_keys_are_those_of_the_prefix_and_no_channel_is_open() -> None:
    assert acl.rule("shop").startswith("resetkeys ~shop:* resetchannels -@all +")
    assert acl.rule("shop", queue="orders").startswith("resetkeys ~shop:{orders:* resetchannels -@all +")
    assert acl.sentinel_rule().startswith("resetkeys resetchannels -@all +")
    # `~shop:*` is the rule of prefix shop; a prefix shop:eu would be one of its keys.
    assert not re.fullmatch(str(KEY_PREFIX.pattern), "shop:eu")


def test_a_rule_reveals_no_password_unless_asked_to_and_names_no_command_that_its_redis_does_not_know() -> (
    None
):
    assert "+config" not in acl.rule()
    assert set(acl.rule(config_get=True).split()) == {*acl.rule().split(), "+config|get"}
    allowed = ["+waitaof" in acl.rule(redis=redis) for redis in ((6, 2), (7, 0), (7, 2), (8, 0))]
    assert allowed == [False, False, True, True]
