"""A report shows what the allow-list names. A secret is planted in every other place."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from delayq.cli.kubectl.allowed import LEFT_OUT, log, metrics, sentence, shown

SECRET = "S3CRET"  # noqa: S105 -- the plant
STARTED = json.dumps(
    {"time": "2026-01-01T00:00:00Z", "logger": "delayq.processes.runtime", "event": "started", "port": 8080}
)


def show(**body: Any) -> Any:  # noqa: ANN401  an object of the API
    return shown({"metadata": {"name": "x"}, **body})


@pytest.mark.parametrize(
    "body",
    [
        {"spec": {"containers": [{"env": [{"name": "A", "value": SECRET}]}]}},
        {"spec": {"containers": [{"command": ["proxy", SECRET], "args": [SECRET]}]}},
        {"spec": {"containers": [{"livenessProbe": {"httpGet": {"path": f"/x?token={SECRET}"}}}]}},
        {
            "spec": {
                "containers": [
                    {"livenessProbe": {"httpGet": {"httpHeaders": [{"name": "K", "value": SECRET}]}}}
                ]
            }
        },
        {"spec": {"volumes": [{"name": "v", "csi": {"volumeAttributes": {"key": SECRET, "pwd": SECRET}}}]}},
        {"spec": {"handler": {"exec": {"command": ["pay", SECRET], "env": {"key": SECRET, "name": SECRET}}}}},
        {"spec": {"handler": {"http": {"url": f"https://ada:{SECRET}@api/hooks/{SECRET}?k={SECRET}"}}}},
        {"spec": {"handler": {"http": {"headers": {"host": SECRET, "Cookie": SECRET}}}}},
        {"spec": {"anything": {"new": SECRET, "pwd": SECRET, "list": [SECRET]}}},
        {"metadata": {"name": "x", "annotations": {"vault/token": SECRET, "delayq.dev/document": SECRET}}},
        {"metadata": {"name": "x", "labels": {"key": SECRET}, "managedFields": [{"name": SECRET}]}},
        {"kind": "ConfigMap", "data": {"queue.yaml": SECRET, "name": SECRET}, "binaryData": {"key": SECRET}},
        {"kind": "Secret", "data": {"name": SECRET}},
        {"kind": "Event", "source": {"component": "shop"}, "message": f"charged {SECRET}"},
        {"status": {"conditions": [{"message": f"orders-worker-1: Error: charging {SECRET}"}]}},
        {"status": {"conditions": [{"message": f"Not reachable\n{SECRET}"}]}},
        {"status": {"containerStatuses": [{"lastState": {"terminated": {"message": f"charging {SECRET}"}}}]}},
    ],
    ids=str,
)
def test_nothing_else_is_shown(body: dict[str, Any]) -> None:
    assert SECRET not in yaml.safe_dump(show(**body))


def test_what_helps_is_shown() -> None:
    reference = {"name": "B", "valueFrom": {"secretKeyRef": {"name": "redis-auth", "key": "password"}}}
    spec: dict[str, Any] = {
        "redis": {
            "standalone": {"host": "redis.shop.svc", "port": 6379},
            "authSecretRef": {"name": "redis-auth"},
        },
        "handler": {"python": {"callable": "shop.orders:cancel"}, "http": {"url": "https://api:8443/x"}},
        "containers": [
            {"command": ["delayq", "worker", "--redis", "redis://u:p@host/0"], "env": [reference]}
        ],
    }
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Unreachable",
        "message": "Redis at redis:6379 is away",
    }
    found = show(spec=spec, status={"conditions": [condition], "replicas": 3})
    spec["handler"]["http"] = {"url": "https://api:8443"}
    spec["containers"][0]["command"][-1] = "redis://host"
    assert found == {
        "metadata": {"name": "x"},
        "spec": spec,
        "status": {"conditions": [condition], "replicas": 3},
    }


def test_an_event_of_the_operator_is_shown() -> None:
    event = {
        "kind": "Event",
        "reason": "Scaled",
        "reportingComponent": "delayq-operator",
        "message": "3 workers",
    }
    assert show(**event)["message"] == "3 workers"


def test_a_sentence_ends_where_it_quotes() -> None:
    assert sentence("Redis at redis:6379 does not answer: NOAUTH for ada") == (
        f"Redis at redis:6379 does not answer: {LEFT_OUT}"
    )
    assert sentence("GET http://ada:pw@pay/x/token failed") == "GET http://pay failed"


@pytest.mark.parametrize(
    ("place", "host"),
    [
        ("ada:secret@pay:80/secret?k=secret", "pay:80"),
        ("[::1]:6379/0", "[::1]:6379"),
        (":pay@secret@pay", LEFT_OUT),
        (":secret/pay@pay:6379/0", LEFT_OUT),
        (":secret?@pay", LEFT_OUT),
        (":secret", LEFT_OUT),
        ("pay/secret@pay", LEFT_OUT),
    ],
)
def test_of_a_url_no_part_of_a_password_is_shown(place: str, host: str) -> None:
    """Also where its @, / or ? is not escaped, which some clients take."""
    assert sentence(f"redis://{place} failed") == f"redis://{host} failed"


def test_a_log_has_delayqs_events_and_counts_other_lines() -> None:
    text = f'{STARTED}\npaying 4111\n{{"event": "paid", "logger": "shop"}}\n{{"broken\n{STARTED}\nbye'
    assert log(text).splitlines() == [STARTED, "<3 lines left out>", STARTED, "<1 lines left out>"]


@pytest.mark.parametrize("event", ["handler_failed", "exec_ended", "recovered", "some_event_of_tomorrow"])
def test_an_event_shows_names_and_numbers_and_quotes_nothing(event: str) -> None:
    fields = {
        "task_id": "order-7",
        "attempt": 2,
        "error": "ValueError: 4111",
        "output": "4111",
        "reason": "4111",
    }
    line = json.dumps(
        {"logger": "delayq.worker.executor", "event": event, **fields, "new": "4111", "deep": {"a": "4111"}}
    )
    found = json.loads(log(line))
    assert "4111" not in str(found)
    assert (found["task_id"], found["attempt"], found["error"]) == ("order-7", 2, f"ValueError: {LEFT_OUT}")


def test_of_a_traceback_the_places_are_shown() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/app/shop.py", line 7, in pay\n'
        '    charge(card="4111")\n'
        "shop.DeclinedError: card 4111\n"
    )
    assert log(trace).splitlines() == [
        "Traceback (most recent call last):",
        '  File "/app/shop.py", line 7, in pay',
        "<1 lines left out>",
        f"shop.DeclinedError: {LEFT_OUT}",
    ]
    raised = [{"error": "ValueError: 4111", "frames": ["shop:pay line 7: charge(4111)"]}]
    event = {"logger": "delayq.service.loop", "event": "loop_failed", "trace": trace, "traceback": raised}
    shown_event = json.loads(log(json.dumps(event)))
    assert "4111" not in str(shown_event)
    assert "shop.py" in shown_event["trace"]
    assert shown_event["traceback"] == [
        {"error": f"ValueError: {LEFT_OUT}", "frames": [f"shop:pay line 7: {LEFT_OUT}"]}
    ]


@pytest.mark.parametrize(
    "place", ['  File "/app/shop.py", line 7, in pay', "Traceback (most recent call last):"]
)
def test_what_follows_a_place_is_left_out(place: str) -> None:
    assert log(f"{place} card 4111") == place


def test_metrics_of_others_are_left_out() -> None:
    assert (
        metrics('# TYPE a gauge\ndelayq_due 1\nshop_card{number="4111"} 1') == "# TYPE a gauge\ndelayq_due 1"
    )


@pytest.mark.parametrize(
    "text", ["-" * 200_000, "a" * 200_000, 'File "' * 30_000, "x://" * 50_000, "A." * 100_000]
)
def test_long_lines_take_no_longer_than_their_length(text: str) -> None:
    """In processor time, which other work does not lengthen: quadratic matching takes minutes."""
    begin = time.process_time()
    log(text)
    sentence(text)
    assert time.process_time() - begin < 10
