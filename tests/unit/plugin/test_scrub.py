"""Secrets are taken out of texts: known ones in every form, unknown ones by what they look like."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from delayq.plugin.scrub import Scrubber

VALUE = 'pa/ss"w@rd\\ä'


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        json.dumps(VALUE),
        quote(VALUE, safe=""),
        base64.b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_known_secret_is_found_in_every_form(form: str) -> None:
    assert form.strip('"') not in Scrubber([VALUE])(f"it is {form}, said the log")
    assert "said the log" in Scrubber([VALUE])(f"it is {form}, said the log")


def test_of_a_known_url_the_password_alone_is_found_too() -> None:
    assert Scrubber(["postgres://shop:hunter%402x@db/shop"])("login with hunter@2x failed") == (
        "login with <redacted> failed"
    )


def test_of_a_known_key_each_line_is_found() -> None:
    key = "-----BEGIN X-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END X-----\n"
    assert "kqhkiG9w0BAQEF" not in Scrubber([key])("line: kqhkiG9w0BAQEF")


def test_a_short_value_is_left_alone() -> None:
    """It is in every text: to take it out would leave nothing to read."""
    assert Scrubber(["1"])("1 of 11") == "1 of 11"


@pytest.mark.parametrize(
    "text",
    [
        "redis://shop:S3CRET@redis:6379/0",
        "redis://:S3CRET@redis",
        "postgresql+asyncpg://u:S3CRET@db/x",
        "GET http://api/pay?token=S3CRET&x=1",
        "Authorization: Bearer S3CRET-S3CRET",
        '"authorization": "Basic S3CRETS3CRET"',
        "authorization=S3CRET",
        "sent bearer S3CRETS3CRET",
        "PASSWORD=S3CRET",
        "REDIS_PASSWORD=S3CRET",
        'password: "S3CRET with blanks"',
        '{"db_password": "S3CRET"}',
        "{'api_key': 'S3CRET'}",
        "client --redis-password S3CRET --x",
        "--token=S3CRET",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJTM0NSRVQifQ.S3CRET_S3CRET",
        "-----BEGIN RSA PRIVATE KEY-----\nS3CRET\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nS3CRET",
        "ghp_S3CRETS3CRETS3CRETS3CRET",
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str) -> None:
    assert "S3CRET" not in Scrubber()(text)


@pytest.mark.parametrize(
    "text",
    [
        "passwordKey: password",
        "- secret:\n    name: redis-auth",
        "authSecretRef:\n  name: redis-auth\n  passwordKey: password",
        "http://10.0.0.1:8080/metrics",
        "Secret redis-auth changed",
        "4 worker pods would be replaced: Secret shop-db changed; spec.handler changed",
        "redis.shop.svc:6379, database 0",
    ],
)
def test_names_and_references_stay(text: str) -> None:
    assert Scrubber()(text) == text


def test_last_words_of_workers_are_not_quoted() -> None:
    """A condition quotes what a crashed worker said last, which may be its handler's words."""
    scrub = Scrubber(worker="orders-worker")
    said = "orders-worker-6d4f9c7b5-x2x9z: Error: card 4111 of Ada\nnext line"
    assert scrub(said) == "orders-worker-6d4f9c7b5-x2x9z: Error: <last words left out>\nnext line"
    assert scrub("orders-scanner-6d4f9c7b5-x2x9z: Error: no Redis") == (
        "orders-scanner-6d4f9c7b5-x2x9z: Error: no Redis"
    )


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("card 4111 of Ada", "<last words left out>"),
        ("4111: declined", "<last words left out>"),
        ("DeclinedError: card 4111", "<last words left out>"),
        ("Errors of Ada", "<last words left out>"),
        ("ImagePullBackOff", "ImagePullBackOff"),
        ("CrashLoopBackOff: DeclinedError: card 4111", "CrashLoopBackOff: <last words left out>"),
        ("killed by SIGKILL", "killed by SIGKILL"),
        ("killed by Ada", "<last words left out>"),
        ("Error: killed by SIGSEGV", "Error: killed by SIGSEGV"),
    ],
)
def test_last_words_are_not_quoted_with_or_without_a_reason(said: str, left: str) -> None:
    """What stands before them is left only when it is one of Kubernetes' own reasons."""
    pod = "orders-worker-6d4f9c7b5-x2x9z"
    assert Scrubber(worker="orders-worker")(f"not ready; {pod}: {said}") == f"not ready; {pod}: {left}"
