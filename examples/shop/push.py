"""The service behind the kind `push`: one POST for each due task. It could be written in any language.

python push.py [PORT]
"""

from __future__ import annotations

import json
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Push(BaseHTTPRequestHandler):
    """Sends push messages; a 2xx answer means that the task is done."""

    def do_POST(self) -> None:
        """Read the payload, send, answer."""
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, attempt = self.headers["Delayq-Kind"], self.headers["Delayq-Attempt"]
        print(f"{kind} about order {task['order']}, attempt {attempt}", flush=True)
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name that http.server has
        """Stay silent: do_POST has printed it."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8088
    server = ThreadingHTTPServer(("127.0.0.1", port), Push)
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
