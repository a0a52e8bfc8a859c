"""What is read from a DelayQueue, whether or not its spec fits the model."""

from __future__ import annotations

from delayq.contract import parse
from delayq_operator.base.names import Key

from tests.unit.operator.queues import UID
from tests.unit.operator.views import resource


def test_a_plain_one() -> None:
    found = resource()
    assert (found.key, found.uid, found.generation, found.version) == (Key("shop", "orders"), UID, 3, "100")
    assert (found.deleting, found.paused, found.erases, found.finalizers, found.status) == (
        False,
        False,
        False,
        [],
        {},
    )


def test_only_the_word_true_pauses() -> None:
    assert resource(annotations={"delayq.dev/paused": "true"}).paused
    for other in ("false", "", "True", "yes"):
        found = resource(annotations={"delayq.dev/paused": other})
        assert (found.paused, found.pausing) == (False, other)
    assert resource().pausing == "false"


def test_a_deleted_one_waits_for_its_finalizers() -> None:
    found = resource(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["delayq.dev/erase", "other/one"])
    assert found.deleting
    assert found.finalizers == ["delayq.dev/erase", "other/one"]


def test_the_list_of_finalizers_is_a_copy() -> None:
    found = resource(finalizers=["other/one"])
    found.finalizers.append("mine")
    assert found.finalizers == ["other/one"]


def test_deletion_policy_is_read_from_an_invalid_spec_too() -> None:
    found = resource()
    found.body["spec"] = {"deletionPolicy": "Delete", "no": "such field"}
    assert found.erases
    found.body.pop("spec")
    assert not found.erases


def test_the_document_parses_without_the_metadata_of_the_api() -> None:
    found = resource(managedFields=[{"manager": "kubectl"}], labels={"team": "checkout"})
    assert set(found.document["metadata"]) == {"name", "namespace"}
    assert parse(found.document).metadata.name == "orders"
