"""A scanner of a tenant's making: it answers what a test wants it to, on an address of its own."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

from delayq_operator.base.names import HORIZONS_PORT, METRICS_PORT

from tests.unit.operator.scrape.test_backlog import scanner_text

if TYPE_CHECKING:
    from collections.abc import Iterator


class Liar:
    """Serves /metrics, see `lying`."""

    def __init__(self) -> None:
        self.address = f"127.{random.randint(20, 200)}.{random.randint(0, 255)}.{random.randint(2, 250)}"
        self.asked = 0
        self.becomes("tells")

    def becomes(self, mood: Literal["tells", "breaks"], **tasks: Any) -> None:  # noqa: ANN401
        self.mood, self.tasks, self.asked = mood, tasks, 0

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked += 1
        body = self._body(request.path)
        request.send_response(500 if self.mood == "breaks" else 200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _body(self, path: str) -> bytes:
        tasks, due_within = dict(self.tasks), self.tasks.get("due_within", {})
        if due_within:  # on the horizons that were asked for
            asked = [float(each) * 1000 for each in parse_qs(urlsplit(path).query).get("horizon", ())]
            tasks["due_within"] = {
                ms: max(number for at, number in due_within.items() if at <= max(ms, min(due_within)))
                for ms in asked
            }
        return scanner_text({0: True}, (), **tasks)


@contextmanager
def lying() -> Iterator[Liar]:
    """One that listens, until the end of the `with` block."""
    liar = Liar()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            liar.answer(self)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    servers = [ThreadingHTTPServer((liar.address, port), Handler) for port in (METRICS_PORT, HORIZONS_PORT)]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield liar
    for server in servers:
        server.shutdown()
        server.server_close()
