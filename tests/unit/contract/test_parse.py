"""A document is read once, at the door, and everything wrong with it is said at once."""

from __future__ import annotations

from typing import cast

import pytest
from delayq.contract import SpecError, parse, to_document
from delayq.contract.words import TASK_KIND
from delayq.protocol.envelope import KIND_NAME

from tests.unit.contract.documents import Json, document


def problems(value: Json) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse(value)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return [str(problem) for problem in caught.value.problems]


def test_the_queue_is_named_after_the_object_unless_the_spec_names_it() -> None:
    assert parse(document()).queue == "orders"
    assert parse(document(queueName="orders-2")).queue == "orders-2"


URL = {"url": "https://shop"}
HTTP = {"http": URL}


def test_handlers_of_single_kinds_are_absent_or_read_with_their_defaults() -> None:
    assert parse(document()).spec.handler.kinds is None
    written = cast("dict[str, Json]", to_document(parse(document())))
    assert "kinds" not in written["spec"]["handler"]  # older workers refuse the field
    found = parse(document(handler=HTTP | {"kinds": {"push": HTTP}}))
    assert found.spec.handler.kinds is not None
    push = found.spec.handler.kinds["push"]
    assert (push.http, push.python) == (found.spec.handler.http, None)
    assert list(found.spec.handler.each) == [found.spec.handler, push]
    assert parse(to_document(found)) == found


def test_a_route_can_have_the_name_of_every_kind_and_no_other() -> None:
    """The API server matches without `fullmatch`, so the document has anchors and a bound."""
    assert (TASK_KIND.pattern, TASK_KIND.max_length) == (f"^{KIND_NAME.replace('{0,63}', '*')}$", 64)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"delivery": {"maxAtempts": 3}}, "delivery.maxAtempts: unknown field, did you mean maxAttempts?"),
        (
            {"delivery": {"max_attempts": 3}},
            "delivery.max_attempts: unknown field, did you mean maxAttempts?",
        ),
        (
            {"objective": {"xyz": 1}},
            "objective.xyz: unknown field, expected latenessMilliseconds or percentile",
        ),
        (
            {"recovery": {"check": {"guard": {"xyz": 1}}}},
            "recovery.check.guard.xyz: unknown field, expected none here",
        ),
        ({"limits": {4: 5}}, "limits: expected field names to be text, got 4"),
        (
            {"worker": {"concurrency": "many"}},
            'worker.concurrency: expected a whole number from 1 to 10000, got "many"',
        ),
        (
            {"delivery": {"backoff": {"delaysSeconds": ["x"] * 1_000_000}}},
            "delivery.backoff.delaysSeconds: expected a list of 1 to 100 items, got 1000000",
        ),
        (
            {"handler": HTTP | {"kinds": {"push": {"http": {"url": "ftp://push"}}}}},
            'handler.kinds["push"].http.url: expected an http or https URL without user name and password, got text',
        ),
        (
            {"handler": HTTP | {"kinds": {"push": HTTP | {"kinds": {}}}}},
            'handler.kinds["push"].kinds: unknown field, expected python or http or exec',
        ),
        (
            {"handler": HTTP | {"kinds": {f"push-{at}": HTTP for at in range(33)}}},
            "handler.kinds: expected a mapping of at most 32 entries, got 33",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_field_is_refused_with_what_was_expected_and_what_came(fields: Json, problem: str) -> None:
    assert problems(document(**fields)) == [f"spec.{problem}"]


@pytest.mark.parametrize("percentile", [99.9, "100"])
def test_a_percentile_is_a_decimal_number_as_text(percentile: object) -> None:
    assert parse(document(objective={"percentile": "99.9"})).spec.objective.percent == 99.9
    expected = 'spec.objective.percentile: expected a decimal number from "1" to "99.999", got '
    assert problems(document(objective={"percentile": percentile}))[0].startswith(expected)


def test_all_problems_are_reported_together_in_the_order_of_the_fields() -> None:
    spec = {
        "handler": {"http": {"url": "ftp://x", "headers": {"X": "a\nb"}}},
        "worker": {"concurrency": 0, "terminationGracePeriodSeconds": 5},
        "redis": {"standalone": {}},
        "guards": {},
    }
    assert problems({"kind": "DelayQueue", "spec": spec, "metadata": {"name": "Orders"}}) == [
        "apiVersion: required, but missing",
        'metadata.name: expected at most 63 lower-case letters, digits, dots and dashes, got "Orders"',
        "spec.guards: unknown field, did you mean guard?",
        "spec.redis.standalone.host: required, but missing",
        "spec.handler.http.url: expected an http or https URL without user name and password, got text",
        'spec.handler.http.headers["X"]: expected one line of at most 4096 printable ASCII characters, got text',
        "spec.worker.concurrency: expected a whole number from 1 to 10000, got 0",
        "spec.worker: terminationGracePeriodSeconds must exceed drainTimeoutSeconds",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (1.0, "1.0"),
        (float("nan"), "nan"),
        pytest.param(10**5000, "a huge number", id="huge"),
        (0, "0"),
        ([1], "a list"),
        ({}, "a mapping"),
        ("x" * 1000, '"' + "x" * 55 + '..."'),
        ("a\x1b[2J\ud800", r'"a\u001b[2J\ud800"'),
    ],
)
def test_what_is_not_a_whole_number_is_shown_briefly_and_safely(value: object, shown: str) -> None:
    assert problems(document(shards=value)) == [
        f"spec.shards: expected a whole number from 1 to 256, got {shown}"
    ]


def test_null_is_as_good_as_absent_as_on_kubernetes() -> None:
    assert parse(document(worker=None, delivery={"backoff": None})) == parse(document())
    assert problems(document(redis=None)) == ["spec.redis: required, but missing"]
    assert problems(document(guard={"redisLock": None, "redlock": None}))[0].endswith("got nothing")


def test_fields_that_kubernetes_adds_are_left_alone() -> None:
    stored = document()
    stored["metadata"] |= {"namespace": "shop", "labels": {"a": "b"}, "uid": "1", "managedFields": [{}]}
    stored["status"] = {"conditions": ["anything", 1]}
    assert parse(stored).metadata.namespace == "shop"


def test_a_thousand_unknown_fields_are_counted_and_not_listed() -> None:
    found = problems(document(limits={f"x{i}": i for i in range(1000)}))
    assert len(found) == 21
    assert found[-1] == "spec.limits: 980 more unknown fields"


def test_a_template_is_copied_and_null_deletes_only_where_the_operator_has_a_value() -> None:
    terms = [{"topologyKey": "zone", "namespaces": None}]
    spec: Json = {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "securityContext": None,
        "containers": [
            {"name": "worker", "resources": {"limits": {"$patch": "delete"}, "requests": {"cpu": None}}}
        ],
        "nodeSelector": {"disk": None, "zone": "a"},
    }
    read: Json = parse(document(worker={"template": {"spec": spec, "metadata": None}})).spec.worker.template
    del terms[0]["namespaces"], spec["nodeSelector"]["disk"]
    assert read == {"spec": spec}
    spec["affinity"].clear()
    assert read != {"spec": spec}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"tolerations": [{}] * 33}, "tolerations: expected a list of at most 32 items, got 33"),
        (
            {"nodeSelector": {str(n): "" for n in range(65)}},
            "nodeSelector: expected a mapping of at most 64 entries, got 65",
        ),
        ({"nodeName": "a" * 32_769}, "nodeName: expected at most 32768 characters, got 32769"),
        ({"affinity": {"$patch": "replace"}}, "affinity.$patch: expected delete, got text"),
        ({"tolerations": [{"$patch": "delete"}]}, 'tolerations[0]."$patch": unknown field'),
        ({"ephemeralContainers": []}, "ephemeralContainers: unknown field"),
    ],
)
def test_a_template_is_bounded_and_deletes_only_what_merges(spec: Json, problem: str) -> None:
    found = problems(document(worker={"template": {"spec": spec}}))
    assert len(found) == 1
    assert found[0].startswith(f"spec.worker.template.spec.{problem}")


PROBE = ".startupProbe"


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        ({"imagePulPolicy": "Always"}, ".imagePulPolicy: unknown field, did you mean imagePullPolicy?"),
        ({"zzz": 1}, ".zzz: unknown field"),
        ({"name": None}, ".name: required, but missing"),
        ({"name": 1}, ".name: expected text, got a number"),
        ({"tty": "yes"}, ".tty: expected true or false, got text"),
        ({"args": "a"}, ".args: expected a list, got text"),
        ({"env": [{"name": "A", "value": 1}]}, ".env[0].value: expected text, got a number"),
        *[
            (
                {"resources": {"limits": {"memory": amount}}},
                f'.resources.limits["memory"]: expected a quantity, such as 500m, 1Gi or "0.5", got {what}',
            )
            for amount, what in (
                ("banana", "text"),
                ("1 Gi", "text"),
                ("", "text"),
                (True, "true or false"),
                ({}, "a mapping"),
                (0.5, "a number"),
            )
        ],
        (
            {"startupProbe": {"httpGet": {"port": 1.5}}},
            f"{PROBE}.httpGet.port: expected a whole number or text, got a number",
        ),
        (
            {"startupProbe": {"periodSeconds": 2**63}},
            f"{PROBE}.periodSeconds: expected a whole number, got a number",
        ),
    ],
)
def test_a_template_is_refused_with_the_path_of_its_mistake(container: Json, problem: str) -> None:
    template = {"spec": {"initContainers": [{"name": "a", **container}]}}
    for process in ("scanner", "worker", "reaper"):
        path = f"spec.{process}.template.spec.initContainers[0]"
        assert problems(document(**{process: {"template": template}})) == [path + problem]


def endless() -> dict[str, object]:
    knot: dict[str, object] = {}
    knot["again"] = knot
    return knot


def laughs() -> dict[str, object]:
    level: list[object] = ["ha"]
    for _ in range(30):
        level = [level] * 10
    return {"laughs": level}


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        (endless(), "expected at most 50 levels of nesting"),
        (laughs(), "expected at most 20000 values"),
        ({"spec": {"a": "x" * 65_536}}, "expected at most 65,536 characters in all keys and texts"),
        ({"at": float("inf")}, "expected JSON values and text keys all the way down, got a number"),
        ({"at": {1: 2}}, "expected JSON values and text keys all the way down, got a mapping"),
        ({"at": b"x"}, "expected JSON values and text keys all the way down, got bytes"),
        ([], "expected a mapping, got a list"),
    ],
)
def test_a_template_that_is_no_finite_json_is_refused(template: object, complaint: str) -> None:
    assert problems(document(worker={"template": template})) == [f"spec.worker.template: {complaint}"]


def test_portions_labels_and_lists_are_checked() -> None:
    labels = {"release": "prometheus", "example.com/team": "shop", "empty": ""}
    spec = parse(document(monitoring={"podMonitor": {"labels": labels}})).spec
    assert spec.monitoring.pod_monitor.labels == labels
    assert problems(
        document(
            networkPolicy={"metricsFrom": []},
            monitoring={"prometheusRule": {"labels": {"-a": "b", "a": "b c"}}},
            podDisruptionBudget={"maxUnavailable": "101%"},
        )
    ) == [
        (
            "spec.podDisruptionBudget.maxUnavailable: expected a whole number from 1 to 10000, or a percentage such "
            'as "50%", got "101%"'
        ),
        "spec.networkPolicy.metricsFrom: expected a list of 1 to 32 items, got 0",
        (
            "spec.monitoring.prometheusRule.labels: expected names such as release or example.com/team, "
            'got "-a"'
        ),
        (
            'spec.monitoring.prometheusRule.labels["a"]: expected at most 63 letters, digits, dashes, dots and '
            'underscores, got "b c"'
        ),
    ]
