"""Objects in a report: what may be secret is gone by where it stands, the rest is as it was."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from delayq.plugin.redact import redacted
from delayq.plugin.scrub import Scrubber

REDACTED = "<redacted>"


def redact(**body: Any) -> Any:  # noqa: ANN401  an object of the API
    return redacted({"metadata": {"name": "x"}, **body}, Scrubber())


def test_a_variable_keeps_its_reference_and_loses_its_value() -> None:
    reference = {"name": "B", "valueFrom": {"secretKeyRef": {"name": "redis-auth", "key": "password"}}}
    found = redact(spec={"containers": [{"env": [{"name": "A", "value": "S3CRET"}, reference]}]})
    assert found["spec"]["containers"][0]["env"] == [{"name": "A", "value": REDACTED}, reference]


def test_variables_and_headers_of_handlers_lose_their_values() -> None:
    found = redact(
        spec={"handler": {"exec": {"command": ["pay", "--card", "S3CRET"], "env": {"A": "S3CRET"}}}}
    )
    assert found["spec"]["handler"]["exec"] == {
        "command": ["pay", REDACTED, REDACTED],
        "env": {"A": REDACTED},
    }
    found = redact(
        spec={"handler": {"http": {"url": "http://api?key=S3CRET", "headers": {"X-Key": "S3CRET"}}}}
    )
    assert "S3CRET" not in str(found)
    assert "X-Key" in found["spec"]["handler"]["http"]["headers"]


def test_arguments_are_kept_of_our_own_commands_only() -> None:
    ours = ["delayq", "worker", "--host", "::"]
    containers = [{"command": ours}, {"command": ["proxy", "S3CRET"], "args": ["S3CRET"]}]
    found = redact(spec={"containers": containers})["spec"]["containers"]
    assert found == [{"command": ours}, {"command": ["proxy", REDACTED], "args": [REDACTED]}]


def test_probes_lose_their_headers() -> None:
    headers = [{"name": "Authorization", "value": "S3CRET"}]
    assert "S3CRET" not in str(redact(livenessProbe={"httpGet": {"path": "/x", "httpHeaders": headers}}))


def test_annotations_of_others_lose_their_values() -> None:
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": '{"value": "S3CRET"}',
        "vault.example/token": "S3CRET",
        "delayq.dev/checksum": "abc",
    }
    found = redact(metadata={"name": "x", "annotations": annotations})
    assert found["metadata"]["annotations"]["delayq.dev/checksum"] == "abc"
    assert "S3CRET" not in str(found)


def test_our_document_is_redacted_within_its_configmap() -> None:
    document = {
        "kind": "DelayQueue",
        "metadata": {"name": "x"},
        "spec": {"handler": {"exec": {"env": {"A": "S3CRET"}}}},
    }
    found = redact(kind="ConfigMap", data={"queue.yaml": yaml.safe_dump(document), "other": "S3CRET"})
    assert "S3CRET" not in str(found)
    assert yaml.safe_load(found["data"]["queue.yaml"])["kind"] == "DelayQueue"


def test_a_secret_is_its_name() -> None:
    assert redact(kind="Secret", data={"a": "UzNDUkVU"}) == {"kind": "Secret", "metadata": {"name": "x"}}


@pytest.mark.parametrize("field", ["password", "redisPassword", "token", "clientSecret", "apiKey"])
def test_a_field_with_the_name_of_a_secret_is_one(field: str) -> None:
    assert redact(spec={field: "S3CRET"})["spec"] == {field: REDACTED}


def test_references_stay() -> None:
    spec = {"authSecretRef": {"name": "redis-auth", "passwordKey": "password", "usernameKey": "user"}}
    assert redact(spec=spec)["spec"] == spec


def test_last_words_of_a_container_are_filtered_as_its_log_is() -> None:
    ended = {"exitCode": 1, "message": "paying 4111\nValueError: card 4111\n"}
    found = redact(status={"containerStatuses": [{"lastState": {"terminated": ended}}]})
    assert "4111" not in str(found)
    assert "ValueError" in str(found)
