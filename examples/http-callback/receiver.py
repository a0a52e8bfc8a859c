"""The service that is called back: one POST per due task, answered with its outcome.

    python receiver.py [PORT]

Python's own HTTP server, so that nothing has to be installed. Receivers in other languages check the signature as
docs/how-to/handlers.md says.
"""

from __future__ import annotations

import json
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from delayq.handlers import InvalidSignatureError, verify

SECRET = (Path(__file__).parent / "secrets" / "callback" / "key").read_bytes()
CANCELLED: set[str] = set()  # a real service keeps this in its database


class Receiver(BaseHTTPRequestHandler):
    """Cancels orders: 5 needs a second try, 13 does not exist."""

    def do_POST(self) -> None:
        """Check who asks, cancel once, answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            # The headers are a mapping in all but name.
            verify(self.headers, body, target=self.path, secrets=[SECRET])  # type: ignore[arg-type]
        except InvalidSignatureError as error:
            self.answer(HTTPStatus.UNAUTHORIZED, str(error))
            return
        self.cancel(json.loads(body)["order"])

    def cancel(self, order: int) -> None:
        """Answer 2xx: done; 5xx: try again; 4xx: never."""
        delivery = self.headers["Idempotency-Key"]
        if order == 13:  # noqa: PLR2004 -- the example itself -- the example's example
            self.answer(HTTPStatus.NOT_FOUND, f"there is no order {order}")
        elif order == 5 and self.headers["Delayq-Attempt"] == "1":  # noqa: PLR2004
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, "the gateway restarts", retry_after="1")
        elif delivery in CANCELLED:  # at least once means: sometimes twice
            self.answer(HTTPStatus.OK, f"order {order} was cancelled already")
        else:
            CANCELLED.add(delivery)
            self.answer(HTTPStatus.OK, f"order {order} cancelled")

    def answer(self, status: HTTPStatus, text: str, *, retry_after: str = "") -> None:
        """Send the answer, and show it."""
        task = f"{self.headers['Delayq-Task-Id']} {self.headers['Delayq-Attempt']}"
        print(f"{task} {int(status)} {text}\n", end="", flush=True)  # in one piece: other threads print, too
        self.send_response(status)
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name that http.server has
        """Stay silent: answer() has said it."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8087
    print(f"listening on 127.0.0.1:{port}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
