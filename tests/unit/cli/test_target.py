"""QUEUE: a path or a name, and which Redis that means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from delayq.cli import target
from delayq.cli.exits import CommandError
from delayq.cli.target import resolve
from delayq.errors import InvalidDocument

from tests.unit.cli.runner import run
from tests.unit.cli.test_documents import RIGHT

URL = "redis://127.0.0.1:1"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("DELAYQ_CONFIG", "DELAYQ_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_document_says_everything(here: Path) -> None:
    (here / "queue.yaml").write_text(RIGHT + "  shards: 4\n")
    target = resolve("queue.yaml")
    assert (target.queue, target.shards, target.key_prefix) == ("orders", 4, "delayq")
    assert (target.address.where, target.source) == ("redis.shop.svc:6379", "spec.redis")
    assert resolve("queue.yaml", redis=URL).address.where == "127.0.0.1:1"
    assert resolve("orders").path == Path("queue.yaml"), "a name finds the document beside it"
    assert target.hint == "delayq doctor queue.yaml checks each requirement"
    (here / "here").write_text(RIGHT)
    assert resolve("here").path == Path("here"), "a file needs no suffix"
    for option in (("--shards", "2"), ("--key-prefix", "x")):
        assert "the document sets both" in run("status", "queue.yaml", *option).stderr


def test_in_a_pod_the_hint_names_the_plugin(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "queue.yaml").write_text(RIGHT)
    args = ("status", "queue.yaml", "--redis", URL)
    monkeypatch.setattr(target, "CONFIG_FILE", "queue.yaml")
    assert "hint:  delayq doctor queue.yaml " in run(*args).stderr
    assert "hint:  kubectl dq doctor orders checks" in run(*args, KUBERNETES_SERVICE_HOST="10.0.0.1").stderr


def test_a_name_finds_the_document_in_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "other.yaml").write_text(RIGHT)
    monkeypatch.setenv("DELAYQ_CONFIG", str(here / "other.yaml"))
    assert resolve("orders").path == here / "other.yaml"
    with pytest.raises(CommandError, match="is the document of queue orders, not of mails"):
        resolve("mails")


def test_a_name_finds_the_mounted_document_in_a_pod(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mounted := here / "mounted.yaml").write_text(RIGHT)
    monkeypatch.setattr(target, "CONFIG_FILE", str(mounted))
    assert resolve("orders").path == mounted
    with pytest.raises(CommandError, match="found no document of that queue"):
        resolve("mails")
    (here / "queue.yaml").write_text(RIGHT)
    assert resolve("orders").path == Path("queue.yaml")


def test_a_name_finds_its_document_among_several_of_a_file(here: Path) -> None:
    (here / "queue.yaml").write_text(f"{RIGHT}  shards: 4\n---\n{RIGHT.replace('orders', 'mails')}")
    assert (resolve("orders").shards, resolve("mails").shards) == (4, 1)
    with pytest.raises(InvalidDocument, match="expected one document of kind DelayQueue, found 2"):
        resolve("queue.yaml")


def test_a_name_and_a_url_keep_the_shards_of_the_document_beside_it(here: Path) -> None:
    """A broken document stops only who needs it."""
    (here / "queue.yaml").write_text(RIGHT + "  shards: 4\n")
    assert resolve("orders", redis=URL).shards == 4
    assert resolve("orders", redis=URL, shards=2).shards == 2
    assert resolve("mails", redis=URL).shards == 1
    (here / "queue.yaml").write_text("[")
    assert resolve("orders", redis=URL).shards == 1
    with pytest.raises(InvalidDocument):
        resolve("orders")


def test_the_error_of_a_name_alone_has_the_alternatives(here: Path) -> None:  # noqa: ARG001  an empty directory
    result = run("status", "orders")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "error: queue orders: found no document of that queue, so its Redis is unknown"
    )
    for way in ("$DELAYQ_CONFIG", "./queue.yaml", "--redis URL", "$DELAYQ_REDIS_URL"):
        assert way in result.stderr


def test_what_is_no_name_is_refused() -> None:
    for queue in ("", "or ders", "Orders", "a{b}", "x" * 99, "\udcff", "*"):
        result = run("status", queue, "--redis", URL)
        assert result.exit_code == 2
        assert "expected the path of a document, or a name" in result.stderr


@pytest.mark.parametrize(
    "url",
    [
        "redis://:se/cret@h:6379",
        "redis://u:secret@h:1x",
        "http://u:secret@h",
        "redis://u:secret@[::1",
        "secret",
    ],
)
def test_no_password_is_ever_shown(url: str) -> None:
    result = run("status", "orders", "--redis", url)
    assert result.exit_code == 2
    assert not any(part in result.output for part in ("secret", "cret", "'se'"))


def test_a_file_of_a_run_is_passed_over_if_it_leads_nowhere_or_came_with_a_checkout(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with --redis may name any host, in a file that only its user can read."""
    (here / "queue.yaml").write_text(RIGHT)
    (here / ".delayq").mkdir()
    file = here / ".delayq/redis.url"
    for text in ("", "nonsense", "\x00", "redis://:secret@127.0.0.1:1/0"):
        file.write_text(text)
        assert resolve("queue.yaml").address.where == "redis.shop.svc:6379"
    monkeypatch.setattr(target, "_answers", lambda _address: True)
    file.write_text("redis://evil.example:6379")
    for mode, where in ((0o644, "redis.shop.svc:6379"), (0o600, "evil.example:6379")):
        file.chmod(mode)
        assert resolve("queue.yaml").address.where == where


def test_a_missing_secret_is_named(here: Path) -> None:
    (here / "queue.yaml").write_text(
        RIGHT.replace("shop.svc}", "shop.svc}, auth: {passwordSecretRef: {name: redis-auth}}")
    )
    result = run("status", "queue.yaml", DELAYQ_SECRETS_DIR=os.fspath(here))
    assert result.exit_code == 3
    assert "Secret redis-auth: expected its key password as the file" in result.stderr


@pytest.mark.parametrize(
    ("host", "beside", "says"),
    [
        ("redis.invalid", False, True),
        ("127.0.0.1, port: 1", True, True),
        ("127.0.0.1, port: 1", False, False),
    ],
)
def test_without_its_redis_a_document_of_delayq_run_gets_a_hint(
    tmp_path: Path, *, host: str, beside: bool, says: bool
) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text(
        "apiVersion: delayq.dev/v1alpha1\nkind: DelayQueue\nmetadata: {name: orders}\n"
        f"spec: {{redis: {{standalone: {{host: {host}}}}}, handler: {{http: {{url: 'http://127.0.0.1:1/'}}}}}}\n"
    )
    if beside:
        (tmp_path / ".delayq").mkdir()
    hint = f"start delayq run {path}, whose Redis is then used, or set $DELAYQ_REDIS_URL; "
    for words in (("status",), ("schedule", "{}"), ("doctor",)):
        command, *rest = words
        found = run(command, str(path), *rest)
        assert (found.exit_code, hint in found.output) == (4, says), found.output
