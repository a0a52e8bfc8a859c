"""document.read: what is wrong with a file is said with its name, before anything else happens."""

from __future__ import annotations

import pytest
from delayq.client.document import parse_all, parse_text
from delayq.errors import InvalidDocument

GOOD = b"""
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec: {redis: {standalone: {host: redis}}, handler: {exec: {command: ["true"]}}}
"""


def refusal(text: bytes) -> str:
    with pytest.raises(InvalidDocument) as error:
        parse_text(text, "queue.yaml")
    return str(error.value)


def test_other_kinds_beside_the_queue_are_passed_over() -> None:
    assert parse_text(b"kind: Secret\n---" + GOOD, "queue.yaml").queue == "orders"


def test_a_key_given_twice_is_refused_with_its_line() -> None:
    text = GOOD.replace(b"{name: orders}", b"{name: orders, name: others}")
    assert "queue.yaml: not YAML: name is given twice" in refusal(text)
    assert "line 4" in refusal(text)


def test_anchors_and_merges_are_still_yaml() -> None:
    text = GOOD + b"status: {a: &a {x: 1}, b: {<<: *a, y: 2}, c: {<<: *a}}\n"
    assert parse_text(text, "queue.yaml").queue == "orders"


def test_a_wrong_kind_does_not_hide_what_else_is_wrong() -> None:
    text = GOOD.replace(b"kind: DelayQueue", b"kind: DelayQue").replace(b"host: redis", b"hots: redis")
    assert "kind:" in refusal(text)
    assert "spec.redis.standalone.hots: unknown field, did you mean host?" in refusal(text)


@pytest.mark.parametrize(
    "text", [b"", b"- 1", b"a: [", b"\xff\xfe\x00", b"kind: Secret\n---\nkind: ConfigMap"]
)
def test_what_is_no_document_is_refused_in_words(text: bytes) -> None:
    assert refusal(text).startswith("queue.yaml: ")


def levels(template: str, count: int) -> bytes:
    """A document in which each level stands for the one before nine times."""
    rows = (template.format(nth=nth, all=", ".join([f"*a{nth - 1}"] * 9)) for nth in range(1, count))
    return "".join(f"{row}\n" for row in ("a0: &a0 {k: v}", *rows)).encode()


@pytest.mark.parametrize(
    "template",
    ["a{nth}: &a{nth} {{<<: [{all}]}}", "a{nth}: &a{nth} [{all}]"],
    ids=["merge_keys", "aliases"],
)
def test_a_few_bytes_cannot_stand_for_a_million_values(template: str) -> None:
    """Twenty levels would take the age of the universe: the test ends because they are not written out."""
    text = levels(template, 20) + GOOD
    assert "its aliases stand for more than 10,000 values" in refusal(text)
    assert "more than" not in refusal(levels(template, 4))


def test_an_alias_that_stands_for_itself_is_refused() -> None:
    assert "an alias refers to itself" in refusal(GOOD + b"status: &a {again: *a}\n")


@pytest.mark.parametrize("value", [b"!!bool a", b"!!timestamp a", b"!!int ''"])
def test_a_value_that_its_tag_does_not_fit_is_refused_in_words(value: bytes) -> None:
    assert "not YAML: not a value of tag:yaml.org,2002:" in refusal(GOOD + b"status: " + value)


def test_of_several_documents_each_is_named_by_its_number() -> None:
    """Counted as a reader does: other kinds and empty documents count too."""
    text = b"kind: Secret\n---\n---" + GOOD + b"---" + GOOD.replace(b"orders", b"mails")
    found = [(name, queue.queue) for _, name, queue in parse_all(text, "all.yaml").queues]
    assert found == [("all.yaml, document 3", "orders"), ("all.yaml, document 4", "mails")]
    with pytest.raises(InvalidDocument, match=r"^all.yaml, document 4: spec.shards: expected"):
        parse_all(text.replace(b"spec: {", b"spec: {shards: 0, ").replace(b"shards: 0, ", b"", 1), "all.yaml")


def test_a_single_queue_has_the_name_of_its_file() -> None:
    found = parse_all(b"kind: Secret\n---" + GOOD, "queue.yaml").queues
    assert [each.name for each in found] == ["queue.yaml"]


@pytest.mark.parametrize("value", ["2026-01-01", "63:79"])
def test_a_time_is_text_as_for_kubernetes(value: str) -> None:
    assert f'got "{value}"' in refusal(GOOD.replace(b"host: redis", f"host: redis, port: {value}".encode()))


def test_a_number_with_an_exponent_is_one_as_for_kubernetes() -> None:
    text = GOOD.replace(b"host: redis", b"host: redis, port: 0o14247")
    assert parse_text(text, "queue.yaml") == parse_text(text.replace(b"0o14247", b"63.11e2"), "queue.yaml")
