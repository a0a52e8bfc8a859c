"""Documents of all kinds: the API server and the model accept the same ones, and mean the same by them.

Three differences are left, and are none to the operator, which reads what is stored. The API server takes 2.0 for the
whole number 2 and stores it so (but not for worker.replicas, which its scale subresource reads), a file that says 2.0
is refused. It keeps a number beyond 64 bits, which only a template may hold, as a float. And the model leaves alone
what it does not know in metadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from delayq.contract import SpecError, parse
from hypothesis import given

from tests.cluster.harness.resources import delayqueues
from tests.cluster.harness.rest import Refused
from tests.unit.contract.documents import GARBAGE, Json, disturbed_specs, document, specs

if TYPE_CHECKING:
    from tests.cluster.harness.cluster import Cluster

pytestmark = pytest.mark.usefixtures("crd")

ROOT = Path(__file__).parents[2]
REFUSALS = {400, 422}
"""Bad Request for what is no DelayQueue at all, or has unknown fields; Unprocessable for the rest."""


def stored(cluster: Cluster, whole: Json) -> Json | None:
    """What the API server would store, or nothing when it refuses."""
    try:
        return cluster.rest.create(delayqueues("default"), whole, dryRun="All", fieldValidation="Strict")
    except Refused as error:
        if error.code not in REFUSALS:
            raise
        return None


def accepted(whole: Json) -> bool:
    try:
        parse(whole)
    except SpecError:
        return False
    return True


def as_stored(value: Json) -> Json:
    """The document with its numbers as the API server keeps them: 2.0 is 2, and 2**63 a float."""
    if isinstance(value, dict):
        return {key: as_stored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_stored(item) for item in value]
    if isinstance(value, int | float) and not -(2**63) <= value < 2**63:
        return float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


EXAMPLES = {
    path: document
    for path in sorted(ROOT.glob("examples/**/*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document.get("kind") == "DelayQueue"
}


def test_every_example_is_one(cluster: Cluster) -> None:
    for path, example in EXAMPLES.items():
        metadata = {"name": example["metadata"]["name"], "namespace": "default"}
        assert accepted({**example, "metadata": metadata}), path
        assert_same_verdict(cluster, {**example, "metadata": metadata})


def assert_same_verdict(cluster: Cluster, whole: Json) -> None:
    found = stored(cluster, whole)
    if found is None:
        assert not accepted(whole), whole
    else:
        assert parse(as_stored(found)).spec == parse(as_stored(whole)).spec


@given(specs | disturbed_specs())
def test_a_spec_is_accepted_by_both_and_means_the_same_or_is_refused_by_both(
    cluster: Cluster, spec: Json
) -> None:
    assert_same_verdict(cluster, document(spec))


@pytest.mark.parametrize("place", ["apiVersion", "kind", "metadata", "spec"])
def test_garbage_at_the_top_is_refused_by_both(cluster: Cluster, place: str) -> None:
    for value in GARBAGE:
        whole = document() | {place: value}
        assert stored(cluster, whole) is None or (place, value) == ("metadata", {"name": "a"}), value
        unknown_metadata = place == "metadata" and isinstance(value, dict) and set(value) - {"name"}
        assert unknown_metadata or not accepted(whole) or value == {"name": "a"}, value


def test_a_name_is_accepted_by_both_or_refused_by_both(cluster: Cluster) -> None:
    for name in ("a", "a.b", "a" * 63, "a" * 64, "", "A", "a_b", "-a", "a-", "a..b", "é"):
        assert_same_verdict(cluster, document() | {"metadata": {"name": name}})


def test_a_whole_number_written_as_a_fraction_is_stored_as_the_number(cluster: Cluster) -> None:
    found = stored(cluster, document(shards=2.0))
    assert found is not None
    assert repr(found["spec"]["shards"]) == "2"
    assert not accepted(document(shards=2.0))
