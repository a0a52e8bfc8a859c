"""Documents that keep and break the rules of several fields, for the model and for the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Fields = dict[str, Any]
HOST = {"host": "redis"}
PYTHON = {"callable": "shop.orders:cancel"}
HTTP = {"url": "https://shop/"}
DATABASE = {"databaseSecretRef": {"name": "orders-database"}}
REF = {"name": "redis"}
STANDALONE = {"standalone": HOST}
TOKEN = {"name": "shop", "key": "token", "scheme": "Bearer"}
ONE_HEADER = "headers and secretHeaders must not name the same header"
OWN_HEADERS = (
    "headers and secretHeaders must not name what delayq sets itself: Content-Length, Content-Type, "
)
OWN_HEADERS += "Idempotency-Key, Transfer-Encoding and Delayq-*"
LABELS = "expected names such as release or example.com/team"
RESERVED = "annotations must not begin with delayq.dev/, kubectl.kubernetes.io/ or deployment.kubernetes.io/"
NO_CODE = (
    "schedules and recovery.check.python exclude each other, for no code of users runs in scanners that "
)
NO_CODE += "may change DelaySchedules: use recovery.check.http or recovery.check.guard"
GUARDS = "expected exactly one of redisLock, redlock, sqlUnique, sqlPessimistic, sqlOptimistic"
LEDGER = "recovery.check.guard needs guard.sqlUnique, guard.sqlPessimistic or guard.sqlOptimistic, "
LEDGER += "the last with select where it has update"
CHECKS = "expected exactly one of python, http, guard"
PARTS = "limits.maxInFlight and limits.burst, or ratePerSecond without it, must be no less than shards, "
PARTS += "for each shard has its part"
LARGEST = (
    "limits.maxBytes divided by shards must hold a task of maxPayloadBytes, maxHeaderBytes and 1024 bytes "
)
LARGEST += "for all else"
GUARDED_KINDS = "guard.kinds must name kinds of handler.kinds: "
GUARDED_KINDS += "handler.python.callable takes tasks without a kind only"
VARIABLES = "expected names of variables: letters, digits and underscores"
TASK_KINDS = "expected names of kinds: at most 64 letters, digits, dots, dashes and underscores, "
TASK_KINDS += "no dot or dash at the start"
HEADERS = "expected header names of letters, digits and !#$%&'*+.^_`|~-"


@dataclass(frozen=True)
class Case:
    """Fields of a spec that keep a rule, and fields that break it."""

    kept: Fields
    broken: Fields


ONE_TOKEN = {"token": "php", "verbs": ["read"]}
ONE_ACCOUNT = {"serviceAccount": {"namespace": "web", "name": "shop"}, "verbs": ["read"]}
API_TLS = {"certSecretRef": {"name": "tls"}, "keySecretRef": {"name": "tls"}}
PLAIN_HTTP = (
    "write either tls, or allowPlainHttp: true, with which anyone on the way reads tokens and payloads"
)

CASES: dict[tuple[str, str], Case] = {
    ("spec.api", "access with a token needs tokensSecretRef"): Case(
        {"api": {"allowPlainHttp": True, "access": [ONE_TOKEN], "tokensSecretRef": {"name": "tokens"}}},
        {"api": {"allowPlainHttp": True, "access": [ONE_TOKEN, ONE_ACCOUNT]}},
    ),
    ("spec.api", PLAIN_HTTP): Case(
        {"api": {"tls": API_TLS, "access": [ONE_ACCOUNT]}},
        {"api": {"access": [ONE_ACCOUNT]}},
    ),
    ("spec.api.access[]", "expected exactly one of serviceAccount, token"): Case(
        {"api": {"allowPlainHttp": True, "access": [ONE_ACCOUNT]}},
        {"api": {"allowPlainHttp": True, "access": [{"verbs": ["read"]}]}},
    ),
    ("spec", PARTS): Case(
        {"shards": 4, "limits": {"maxInFlight": 4, "ratePerSecond": 1, "burst": 4}},
        {"shards": 4, "limits": {"ratePerSecond": 3}},
    ),
    ("spec", LARGEST): Case(
        {"shards": 2, "limits": {"maxBytes": 1_048_576, "maxPayloadBytes": 523_264, "maxHeaderBytes": 0}},
        {"shards": 2, "limits": {"maxBytes": 1_048_576, "maxPayloadBytes": 523_265, "maxHeaderBytes": 0}},
    ),
    ("spec.limits", "burst needs ratePerSecond"): Case(
        {"limits": {"ratePerSecond": 1, "burst": 9}}, {"limits": {"burst": 9}}
    ),
    ("spec", LEDGER): Case(
        {"guard": {"sqlOptimistic": DATABASE}, "recovery": {"check": {"guard": {}}}},
        {
            "guard": {"sqlOptimistic": DATABASE | {"update": "UPDATE orders SET done = true"}},
            "recovery": {"check": {"guard": {}}},
        },
    ),
    ("spec", NO_CODE): Case(
        {"schedules": {}, "recovery": {"check": {"http": HTTP}}},
        {"schedules": {}, "recovery": {"check": {"python": PYTHON}}},
    ),
    ("spec", GUARDED_KINDS): Case(
        {
            "handler": {"python": PYTHON, "kinds": {"push": {"http": HTTP}}},
            "guard": {"redisLock": {}, "appliesTo": "NamedKinds", "kinds": ["push"]},
        },
        {
            "handler": {"python": PYTHON, "kinds": {"push": {"http": HTTP}}},
            "guard": {"redisLock": {}, "appliesTo": "NamedKinds", "kinds": ["push", "refund"]},
        },
    ),
    ("spec.guard", "kinds needs appliesTo: NamedKinds"): Case(
        {"guard": {"redisLock": {}, "appliesTo": "NamedKinds"}},
        {
            "handler": {"python": PYTHON, "kinds": {"push": {"http": HTTP}}},
            "guard": {"redisLock": {}, "kinds": ["push"]},
        },
    ),
    ("spec.redis", "expected exactly one of standalone, sentinel, cluster"): Case(
        {"redis": {"sentinel": {"masterName": "main", "nodes": [HOST]}}},
        {"redis": {"standalone": HOST, "cluster": {"nodes": [HOST]}}},
    ),
    ("spec.redis", "database must be 0 with cluster"): Case(
        {"redis": {"cluster": {"nodes": [HOST]}, "database": 0}},
        {"redis": {"cluster": {"nodes": [HOST]}, "database": 1}},
    ),
    ("spec.delivery.backoff", "expected exactly one of delaysSeconds, exponential"): Case(
        {"delivery": {"backoff": {"delaysSeconds": [1, 2]}}},
        {"delivery": {"backoff": {"delaysSeconds": [1], "exponential": {}}}},
    ),
    ("spec.delivery.backoff.exponential", "initialSeconds must not exceed maxSeconds"): Case(
        {"delivery": {"backoff": {"exponential": {"initialSeconds": 60, "maxSeconds": 60}}}},
        {"delivery": {"backoff": {"exponential": {"initialSeconds": 61, "maxSeconds": 60}}}},
    ),
    ("spec.handler.python", "expected exactly one of callable, app"): Case(
        {"handler": {"python": {"app": "shop.tasks:app"}}},
        {"handler": {"python": {"app": "shop.tasks:app", "callable": "shop.orders:cancel"}}},
    ),
    ("spec.handler", "expected exactly one of python, http, exec"): Case(
        {"handler": {"exec": {"command": ["true"]}}},
        {"handler": {"python": PYTHON, "exec": {"command": ["true"]}}},
    ),
    ("spec.handler.http.headers", HEADERS): Case(
        {"handler": {"http": HTTP | {"headers": {"X-Shop": "1", "!#$%&'*+.^_`|~-": "2"}}}},
        {"handler": {"http": HTTP | {"headers": {"X Shop": "1"}}}},
    ),
    ("spec.handler.http", ONE_HEADER): Case(
        {"handler": {"http": HTTP | {"headers": {"X-Shop": "1"}, "secretHeaders": {"Authorization": TOKEN}}}},
        {"handler": {"http": HTTP | {"headers": {"X-Shop": "1"}, "secretHeaders": {"x-shop": TOKEN}}}},
    ),
    ("spec.handler.http", OWN_HEADERS): Case(
        {"handler": {"http": HTTP | {"headers": {"X-Delayq-Token": "1", "Content-Type-2": "1"}}}},
        {"handler": {"http": HTTP | {"secretHeaders": {"dELAYQ-tOKEN": TOKEN}}}},
    ),
    ("spec.handler.exec.env", VARIABLES): Case(
        {"handler": {"exec": {"command": ["true"], "env": {"_SHOP_1": "a"}}}},
        {"handler": {"exec": {"command": ["true"], "env": {"1SHOP": "a"}}}},
    ),
    ("spec.handler.kinds", TASK_KINDS): Case(
        {"handler": {"python": PYTHON, "kinds": {"push.1-a": {"http": HTTP}, "9" * 64: {"python": PYTHON}}}},
        {"handler": {"python": PYTHON, "kinds": {"-push": {"http": HTTP}}}},
    ),
    ("spec.worker", "terminationGracePeriodSeconds must exceed drainTimeoutSeconds"): Case(
        {"worker": {"drainTimeoutSeconds": 59, "terminationGracePeriodSeconds": 60}},
        {"worker": {"drainTimeoutSeconds": 60, "terminationGracePeriodSeconds": 60}},
    ),
    ("spec.autoscaling", "minReplicas must not exceed maxReplicas"): Case(
        {"autoscaling": {"minReplicas": 4, "maxReplicas": 4}},
        {"autoscaling": {"minReplicas": 5, "maxReplicas": 4}},
    ),
    ("spec.recovery.check", CHECKS): Case(
        {"recovery": {"check": {"http": HTTP}}},
        {"recovery": {"check": {"http": HTTP, "python": PYTHON}}},
    ),
    ("spec.guard.sqlOptimistic", "select needs update"): Case(
        {
            "guard": {
                "sqlOptimistic": DATABASE | {"select": "SELECT 1", "update": "UPDATE orders SET done = true"}
            }
        },
        {"guard": {"sqlOptimistic": DATABASE | {"select": "SELECT 1"}}},
    ),
    ("spec.redis.tls", "caSecretRef and caConfigMapRef exclude each other"): Case(
        {"redis": STANDALONE | {"tls": {"caConfigMapRef": REF}}},
        {"redis": STANDALONE | {"tls": {"caSecretRef": REF, "caConfigMapRef": REF}}},
    ),
    ("spec.redis.tls", "certSecretRef and keySecretRef need each other"): Case(
        {"redis": STANDALONE | {"tls": {"certSecretRef": REF, "keySecretRef": REF}}},
        {"redis": STANDALONE | {"tls": {"keySecretRef": REF}}},
    ),
    ("spec.podDisruptionBudget", "maxUnavailable and minAvailable exclude each other"): Case(
        {"podDisruptionBudget": {"minAvailable": "50%"}},
        {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}},
    ),
    ("spec.guard", GUARDS): Case(
        {"guard": {"redisLock": {}}}, {"guard": {"redisLock": {}, "sqlUnique": DATABASE}}
    ),
    ("spec.monitoring.podMonitor.labels", LABELS): Case(
        {"monitoring": {"podMonitor": {"labels": {"example.com/team": "a", "release": "b"}}}},
        {"monitoring": {"podMonitor": {"labels": {"-release": "b"}}}},
    ),
    **{
        (f"spec.{process}", RESERVED): Case(
            {process: {"annotations": {"reloader.example/auto": "true", "delayq.dev": "§"}}},
            {process: {"annotations": {f"{group}/restartedAt": "now"}}},
        )
        for process, group in (
            ("scanner", "delayq.dev"),
            ("worker", "kubectl.kubernetes.io"),
            ("reaper", "deployment.kubernetes.io"),
        )
    },
}
