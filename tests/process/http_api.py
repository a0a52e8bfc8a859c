"""`delayq api` on a Redis of its own, and a client of it that knows nothing but HTTP."""

from __future__ import annotations

import http.client
import json
import re
import socket
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import jsonschema
import yaml
from delayq import SyncClient
from delayq.api.openapi import document
from delayq.protocol.keys import Keys

from tests.processes import Process, delayq
from tests.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

JSON = {"Content-Type": "application/json"}
PREFIX = "/v1alpha1"
QUEUE = "orders"


class Reply(NamedTuple):
    """An answer; `body` is parsed."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def kind(self) -> str:
        """The last word of an error's type."""
        return str(self.body["type"]).rpartition(":")[2]


@dataclass
class Served:
    """A running API."""

    server: RedisServer
    dir: Path
    spec: dict[str, Any] = field(default_factory=dict)
    process: Process = field(init=False)
    port: int = field(init=False)

    def __post_init__(self) -> None:
        spec = {
            "redis": {"standalone": {"host": "127.0.0.1"}},
            "handler": {"http": {"url": "http://127.0.0.1/"}},
        }
        document = {
            "apiVersion": "delayq.dev/v1alpha1",
            "kind": "DelayQueue",
            "metadata": {"name": QUEUE},
            "spec": spec | self.spec,
        }
        self.config = self.dir / "queue.yaml"
        self.config.write_text(yaml.safe_dump(document))
        self.keys = Keys("delayq", QUEUE, 0)
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        where = (str(self.config), "--redis", self.server.url)
        secrets = {"DELAYQ_SECRETS_DIR": str(self.dir / "secrets")}
        self.process = delayq("api", *where, "--port", "0", "--api-port", "0", env=secrets)
        found = re.search(r'"api_port": (\d+)', self.process.wait_line('"api_serving"'))
        assert found
        self.port = int(found[1])

    def client(self) -> SyncClient:
        """The queue without the API."""
        return SyncClient.from_document(self.config, url=self.server.url)

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        """Send one request; `body` is JSON, or bytes as they are."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = (JSON if content is not None else {}) | named
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, PREFIX + path, content, sent)
            reply = connection.getresponse()
            found = Reply(reply.status, json.loads(reply.read()), dict(reply.headers))
        check(method, path, found)
        return found

    def socket(self) -> socket.socket:
        """A plain connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


def resident_mb(pid: int) -> float:
    """Return the memory that a process has."""
    with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
        found = re.search(r"VmRSS:\s+(\d+)", file.read())
    assert found
    return int(found[1]) / 1024


@contextmanager
def serving(
    flavour: str,
    path: Path,
    *,
    server: RedisServer | None = None,
    **spec: Any,  # noqa: ANN401 -- of the document
) -> Iterator[Served]:
    """Serve a queue on a server of its own, or on a given one; stop both."""
    server = server or RedisServer.start(flavour, dir=path / "redis")
    served = None
    try:
        served = Served(server, path, spec)
        yield served
    finally:
        if served is not None:
            served.process.stop()
        server.stop()


def check(method: str, path: str, reply: Reply) -> None:
    """An answer is one that openapi.json describes, with no field besides."""
    plain, operation = path.partition("?")[0], None
    for template, operations in DOCUMENT["paths"].items():
        pattern = re.sub(r"{id}$", ".+", re.escape(template).replace(r"\{", "{").replace(r"\}", "}"))
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), PREFIX + plain):
            operation = operations.get(method.lower())
            break
    if operation is None:
        assert reply.status in (200, 404, 405), "openapi.json itself, or no such operation"
        return
    answers = operation["responses"]
    described = answers.get(str(reply.status), answers["default"])
    if described is answers["default"]:
        assert f"{reply.status} {reply.kind}" in described["description"].split(", ")
    [content] = described["content"].items()
    assert reply.headers["content-type"] == content[0]
    jsonschema.Draft202012Validator({**strict(content[1]["schema"]), "components": STRICT}).validate(
        reply.body
    )


def strict(schema: Any) -> Any:  # noqa: ANN401 -- a part of a schema
    """The same schema, without further fields."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema else {}
    return {name: strict(each) for name, each in schema.items()} | closed


DOCUMENT = document()
STRICT = strict(DOCUMENT["components"])


def received(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    found = b""
    try:
        while part := connection.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found
