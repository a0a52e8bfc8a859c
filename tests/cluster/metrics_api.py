"""external.metrics.k8s.io as a small server of our own: what prometheus-adapter, or KEDA, is in a cluster of users.

The API server finds it through an APIService, and passes on what the HPA controller asks.
"""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

from delayq.contract import metrics as table
from delayq_operator.base import names

from tests.cluster.harness.container import stamp
from tests.cluster.harness.waiting import eventually
from tests.exposition import samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.control_plane import ControlPlane
    from tests.cluster.harness.rest import Object

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = f"{GROUP}/v1beta1"
SERVICES: Final = "/apis/apiregistration.k8s.io/v1/apiservices"
HORIZON_SECONDS: Final = "30"


class MetricsApi:
    """Serves one number for every metric that is asked for, while it is entered.

    `read` is given the namespace and the labels that were asked for; when it raises, the metric is not there.
    """

    def __init__(
        self, plane: ControlPlane, namespace: str, read: Callable[[str, dict[str, str]], int]
    ) -> None:
        self._plane, self._namespace, self._read = plane, namespace, read
        self.asked: list[str] = []
        """Metrics that were asked for."""
        self.error = ""
        """Why the last one was not there."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The API server's own: whoever asks does not verify it, and so there is no certificate to make.
        context.load_cert_chain(plane.authority, plane.authority.with_suffix(".key"))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._register()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A group whose server is away would hold up the end of every namespace."""
        self._plane.rest.delete(f"{SERVICES}/v1beta1.{GROUP}")
        self._server.shutdown()
        self._server.server_close()

    def _register(self) -> None:
        """Have the API server pass on the group, to an external name: a Service of its own has no way out of here."""
        services = f"/api/v1/namespaces/{self._namespace}/services"
        port = self._server.server_port
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        self._plane.rest.create(services, {"metadata": {"name": "metrics"}, "spec": spec})
        where = {"name": "metrics", "namespace": self._namespace, "port": port}
        body = {
            "metadata": {"name": f"v1beta1.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": "v1beta1",
                "service": where,
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        }
        self._plane.rest.create(SERVICES, body)
        eventually(self._available, what="the metrics are served")

    def _available(self) -> bool:
        status = self._plane.rest.get(f"{SERVICES}/v1beta1.{GROUP}").get("status", {})
        found = [each for each in status.get("conditions", ()) if each["type"] == "Available"]
        assert [each["status"] for each in found] == ["True"], found
        return True

    def answer(self, url: str) -> tuple[int, Object]:
        """The list of what is served; or the metric that a path names: …/namespaces/<namespace>/<metric>."""
        parts = urlsplit(url)
        steps = parts.path.strip("/").split("/")
        if len(steps) != 6:
            return 200, {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": VERSION,
                "resources": [],
            }
        selector = parse_qs(parts.query).get("labelSelector", [""])[0]
        labels = dict(each.split("=") for each in selector.split(",") if each)
        self.asked.append(steps[5])
        try:
            number = self._read(steps[4], labels)
        except Exception as error:  # noqa: BLE001  whatever it is, the metric is not there
            self.error = repr(error)
            return 503, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503}
        item = {"metricName": steps[5], "metricLabels": labels, "timestamp": stamp(), "value": str(number)}
        return 200, {
            "kind": "ExternalMetricValueList",
            "apiVersion": VERSION,
            "metadata": {},
            "items": [item],
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                code, body = api.answer(self.path)
                text = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401  the library's signature
                """Stay quiet."""

        return Handler


def work(cluster: Cluster, namespace: str, labels: dict[str, str]) -> int:
    """Tasks that run, are overdue, or fall due soon: the sum of the rule in docs/how-to/hpa-keda.md."""
    selector = f"{names.QUEUE_LABEL}={labels['queue']},{names.COMPONENT_LABEL}=scanner"
    pods = cluster.rest.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
    return int(sum(_work_of(pod["status"]["podIP"]) for pod in pods))


def _work_of(address: str) -> float:
    with urlopen(f"http://{address}:{names.METRICS_PORT}/metrics", timeout=5) as answer:
        exported = samples(answer.read().decode())
    wanted = (
        (table.TASKS.name, ("state", "in_flight")),
        (table.TASKS.name, ("state", "due")),
        (table.DUE_WITHIN_TASKS.name, ("horizon_seconds", HORIZON_SECONDS)),
    )
    return sum(
        value
        for name, has, value in exported
        if any(name == one and label in has.items() for one, label in wanted)
    )
