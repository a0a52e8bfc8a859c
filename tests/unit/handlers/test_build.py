"""From the document to the handler that it names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq.handlers import HandlerSetupError, build
from delayq.handlers.exec import ExecHandler
from delayq.handlers.http import HttpHandler
from delayq.handlers.python import PythonHandler

from tests.unit.handlers.support import NO_SECRETS_DIR, document

if TYPE_CHECKING:
    from delayq.handlers import Handler

ROOT = Path(__file__).parents[3]
URL = {"url": "http://127.0.0.1:1/"}


def built(handler: dict[str, object], **more: object) -> Handler:
    return build(document(handler, **more), secrets_dir=Path(NO_SECRETS_DIR))


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        ({"python": {"callable": "delayq.protocol.envelope:decode"}}, PythonHandler),
        ({"http": URL}, HttpHandler),
        ({"exec": {"command": ["true"]}}, ExecHandler),
    ],
)
def test_each_kind_of_document_has_its_handler(handler: dict[str, object], kind: type) -> None:
    assert type(built(handler)) is kind


@pytest.mark.parametrize(("own", "seconds"), [(None, 30), (5, 5), (50, 30)])
def test_an_http_call_never_takes_longer_than_a_handler_may(own: int | None, seconds: int) -> None:
    spec: dict[str, object] = URL if own is None else URL | {"timeoutSeconds": own}  # type: ignore[assignment]
    handler = built({"http": spec}, delivery={"handlerTimeoutSeconds": 30})
    assert isinstance(handler, HttpHandler)
    assert handler._timeout_seconds == seconds


def test_a_port_that_is_none_is_refused() -> None:
    """What the pattern of URLs lets pass and no socket would."""
    with pytest.raises(HandlerSetupError, match=r"^spec.handler.http.url: "):
        built({"http": {"url": "http://127.0.0.1:99999/"}})


@pytest.mark.parametrize(
    "module", ["delayq.handlers.python", "delayq.handlers.exec", "delayq.handlers.signature"]
)
def test_only_http_handlers_need_aiohttp(module: str) -> None:
    """Workers of the other kinds start without it, and so do receivers that verify signatures."""
    program = f"import sys, {module}; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
