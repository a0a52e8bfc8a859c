"""What several documents of one command have to have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.unit.cli.runner import run
from tests.unit.cli.test_documents import RIGHT

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = {"cluster": {"nodes": [{"host": "127.0.0.1", "port": 7}]}}
STANDALONE = {"standalone": {"host": "127.0.0.1", "port": 7}}


def described(name: str, **spec: Any) -> str:  # noqa: ANN401  fields of the document
    found = yaml.safe_load(RIGHT)
    found["metadata"]["name"] = name
    found["spec"] |= spec
    return str(yaml.safe_dump(found))


@pytest.mark.parametrize(
    ("documents", "options", "said"),
    [
        (
            [described("orders"), described("orders")],
            [],
            ", document 2: DelayQueue orders is in {}, document 1 too; names must differ",
        ),
        (
            [described("orders"), "kind: Secret\n", described("mails", queueName="orders")],
            [],
            ", document 3: queue orders is in {}, document 1 too; names must differ",
        ),
        (
            ["kind: Secret\n", "kind: Service\n"],
            [],
            ": expected a document of kind DelayQueue or DelaySchedule, found Secret, Service",
        ),
        (
            [described("orders"), described("mails").replace("DelayQueue", "DelayQue")],
            [],
            ", document 2: kind: expected DelayQueue, got",
        ),
        (
            [described("orders"), described("mails", shards=0)],
            [],
            ", document 2: spec.shards: expected a whole number from 1 to 256, got 0",
        ),
        (
            [described("orders", redis=STANDALONE), described("mails"), described("x", redis=CLUSTER)],
            ["--redis", "spec"],
            ", document 3: spec.redis: 127.0.0.1:7 is cluster without TLS, and standalone without TLS in {}",
        ),
    ],
)
def test_documents_that_contradict_each_other_are_named(
    tmp_path: Path, documents: list[str], options: list[str], said: str
) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text("---\n".join(documents))
    result = run("run", str(path), *options)
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"{path}{said.format(path)}" in result.stderr
    assert not (tmp_path / ".delayq").exists()


def test_documents_in_two_directories_need_a_place_for_their_redis(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    first, second = tmp_path / "queue.yaml", tmp_path / "more/queue.yaml"
    first.write_text(described("orders"))
    second.write_text(described("mails"))
    result = run("run", str(first), str(second))
    assert result.exit_code == 2
    assert f"{first}, {second} are in different directories" in result.stderr
    assert "--data-dir DIR" in result.stderr


def test_a_worker_of_several_queues_refuses_code_that_could_end_it(tmp_path: Path) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text(f"{described('orders')}---\n{described('mails')}")
    result = run("worker", str(path))
    assert result.exit_code == 3
    said = "document 1: a worker of several queues needs http handlers only, and no guard, in each; "
    assert f"{said}choose one with --queue: orders, mails" in result.stderr


def test_a_queue_is_found_by_name_in_a_file_of_several_by_doctor_and_forecast_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    handler = {"python": {"callable": "json:dumps"}}
    names = ("orders", "mails")
    documents = [described(name, redis=STANDALONE, handler=handler) for name in names]
    (tmp_path / "queue.yaml").write_text("---\n".join(documents))
    found = run("doctor", "mails")
    assert (found.exit_code, "✓ handler     json:dumps" in found.stdout) == (4, True)
    assert run("forecast", "mails").exit_code == 4
