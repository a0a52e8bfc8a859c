"""A scanner of a tenant's making: it answers what a test wants it to, on an address of its own."""

from __future__ import annotations

import random
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

from delayq_operator.base.names import HORIZONS_PORT, METRICS_PORT

from tests.unit.operator.scrape.test_backlog import scanner_text

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Mood = Literal["tells", "refuses", "hangs", "breaks", "nan", "standby"]


class Liar:
    """Serves /metrics."""

    def __init__(self) -> None:
        self.address = ".".join(
            map(str, (127, random.randint(20, 200), random.randint(0, 255), random.randint(2, 250)))
        )
        self.mood: Mood = "tells"
        self.tasks: dict[str, Any] = {}
        self.asked = 0
        self._ending = threading.Event()
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                liar.answer(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._handler: type[BaseHTTPRequestHandler] = Handler
        self._servers: list[ThreadingHTTPServer] = []

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._hush()

    def becomes(self, mood: Mood, **tasks: Any) -> None:  # noqa: ANN401
        self.tasks, before, self.mood, self.asked = tasks, self.mood, mood, 0
        if mood == "refuses":
            self._hush()
        elif before == "refuses":
            self._listen()

    def _listen(self) -> None:
        for port in (METRICS_PORT, HORIZONS_PORT):
            server = ThreadingHTTPServer((self.address, port), self._handler)
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def _hush(self) -> None:
        while self._servers:
            server = self._servers.pop()
            server.shutdown()
            server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked += 1
        if self.mood == "hangs":
            self._ending.wait(10)
            return
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
        text = scanner_text({0: self.mood != "standby"}, (), **tasks)
        return re.sub(rb"(_tasks\{.*) \S+", rb"\1 NaN", text) if self.mood == "nan" else text
