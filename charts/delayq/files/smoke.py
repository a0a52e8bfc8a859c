"""What `helm test` runs: a DelayQueue of one task, two seconds ahead, handled on time; then nothing is left of it.

Needs Python and delayq only, which the worker image has. When something is wrong, the DelayQueue stays for people to
look at; the next run replaces it.
"""
# ruff: noqa: INP001, T201 -- a script in a ConfigMap, which answers on stdout

from __future__ import annotations

import argparse
import json
import os
import secrets
import ssl
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from delayq import DelayQError, SyncClient
from delayq.contract import parse
from delayq.contract.files import SECRETS_DIR

if TYPE_CHECKING:
    from collections.abc import Callable

Document = dict[str, Any]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REDIS = Path("/etc/delayq/redis.json")
DELAY_MS = 2000
LOOK_SECONDS = 0.02  # how exactly the time of handling is seen
CALL_SECONDS = 10
NO_REDIS = """there is no Redis to test with. Name one, as in spec.redis of a DelayQueue:
  helm upgrade … --reset-then-reuse-values --set test.redis.standalone.host=redis.shop.svc
or let the chart bring one that is good enough to try: --set redis.enabled=true"""


class Failed(Exception):
    """Why the test did not pass."""


class Api:
    """DelayQueues of a namespace; a token is read again for every call, because it is replaced in time."""

    def __init__(self, account: Path, namespace: str | None) -> None:
        """`account` is the directory where a pod finds its ServiceAccount; without `namespace`, the pod's own."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self.own_namespace = (account / "namespace").read_text(encoding="utf-8").strip()
        self.namespace = namespace or self.own_namespace
        self._token = account / "token"
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        bracketed = f"[{host}]" if ":" in host else host
        self._url = f"https://{bracketed}:{port}"
        self._queues = f"/apis/delayq.dev/v1alpha1/namespaces/{self.namespace}/delayqueues"

    def create(self, document: Document) -> Document | None:
        """None: the API server does not serve this kind."""
        return self._call("POST", self._queues, document)

    def get(self, name: str) -> Document | None:
        """None: there is none."""
        return self._call("GET", f"{self._queues}/{name}")

    def delete(self, name: str) -> Document | None:
        """None: there was none."""
        return self._call("DELETE", f"{self._queues}/{name}")

    def create_secret(self, document: Document) -> None:
        """Create a Secret in the namespace of the DelayQueue."""
        self._call("POST", f"/api/v1/namespaces/{self.namespace}/secrets", document)

    def _call(self, verb: str, path: str, body: Document | None = None) -> Document | None:
        headers = {
            "Authorization": f"Bearer {self._token.read_text(encoding='utf-8').strip()}",
            "Content-Type": "application/json",
        }
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, headers, method=verb)  # noqa: S310 -- https, from above
        try:
            with urlopen(request, timeout=CALL_SECONDS, context=self._tls) as answer:  # noqa: S310 -- the same
                found: Document = json.load(answer)
                return found
        except HTTPError as error:
            if error.code == 404:  # noqa: PLR2004 -- the status of a missing object
                return None
            raise Failed(f"{verb} {self._url}{path}: {error.code} {error.read().decode()[:1000]}") from error
        except URLError as error:
            raise Failed(f"the API server at {self._url} cannot be reached: {error.reason}") from error


def main() -> int:
    """Run the test; return the exit code."""
    options = arguments()
    wanted = document(options.name, redis_in(options.redis))
    api = Api(options.account, options.namespace)
    try:
        check_served(api.namespace, options.served)
        run(api, wanted, time.monotonic() + options.timeout_seconds)
    except (Failed, DelayQError) as error:
        print(f"FAILED: {error}\n{blocking_reads(api, options.name)}")
        return 1
    print("passed")
    return 0


def arguments() -> argparse.Namespace:
    """Where things are, in a pod unless said otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--name", required=True, help="name of the DelayQueue")
    parser.add_argument("--namespace", help="where to create it; absent: the pod's own")
    parser.add_argument("--redis", type=Path, default=REDIS, help="a spec.redis, as JSON")
    parser.add_argument("--served", action="append", help="a namespace the operator serves; none: all")
    parser.add_argument("--timeout-seconds", type=float, default=180, help="how long all of it may take")
    parser.add_argument("--account", type=Path, default=ACCOUNT, help="where token, ca.crt and namespace are")
    return parser.parse_args()


def redis_in(file: Path) -> Document:
    """Read the spec.redis; empty if the chart has none."""
    redis: Document = json.loads(file.read_text(encoding="utf-8"))
    return redis or sys.exit(f"FAILED: {NO_REDIS}")


def document(name: str, redis: Document) -> Document:
    """Build a queue whose name in Redis is new each time, so that nothing of an earlier run can be in it."""
    return {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": name},
        "spec": {
            "queueName": f"{name}-{secrets.token_hex(4)}",
            "redis": redis,
            "deletionPolicy": "Delete",
            "handler": {"exec": {"command": [sys.executable, "-c", "pass"]}},
            "scanner": {"replicas": 1},
            "worker": {"replicas": 1, "concurrency": 1},
        },
    }


def check_served(namespace: str, served: list[str] | None) -> None:
    """Say at once what would otherwise look like an operator that is not there."""
    if served and namespace not in served:
        raise Failed(
            f"the test makes its DelayQueue in {namespace}, and the operator serves only {', '.join(served)}:"
            " name one of these as test.namespace, or make a DelayQueue there yourself"
        )


def run(api: Api, wanted: Document, deadline: float) -> None:
    """All of the test."""
    name = wanted["metadata"]["name"]
    remove(api, name, deadline)  # what a run before this one may have left
    copies = {} if api.namespace == api.own_namespace else renamed(wanted["spec"]["redis"])
    created = api.create(with_secrets(wanted, copies))
    if created is None:
        raise Failed(
            "the API server does not serve DelayQueues. Is its CRD there? kubectl get crd delayqueues.delayq.dev"
        )
    for name_here, name_there in copies.items():
        api.create_secret(copied(name_here, name_there, created))
    print(f"created DelayQueue {api.namespace}/{name}")
    await_ready(api, name, deadline)
    with SyncClient.from_document(parse(wanted)) as client:
        handle_one(client, deadline)
        remove(api, name, deadline)
        if client.counts().stats.get("acked"):
            raise Failed("it was deleted, but its keys are still in Redis")
    print("deleted it; nothing of it is left")


def renamed(redis: Document) -> dict[str, str]:
    """Choose names for copies of the Secrets that a spec.redis names: new ones, for others may have the old ones."""
    suffix = secrets.token_hex(4)
    return {name: f"{name}-{suffix}" for name in secret_names(redis)}


def secret_names(value: object) -> set[str]:
    """Name the Secrets in a part of a document."""
    if isinstance(value, list):
        return set().union(*map(secret_names, value))
    if not isinstance(value, dict):
        return set()
    found = {field["name"] for key, field in value.items() if key.endswith("SecretRef")}
    return found.union(*map(secret_names, value.values()))


def with_secrets(value: Any, copies: dict[str, str]) -> Any:  # noqa: ANN401 -- JSON
    """Replace the names of Secrets in a document."""
    if isinstance(value, list):
        return [with_secrets(item, copies) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: with_secrets(item, copies) for key, item in value.items()}
    for key, field in made.items():
        if key.endswith("SecretRef") and field["name"] in copies:
            made[key] = {**field, "name": copies[field["name"]]}
    return made


def copied(name: str, new_name: str, owner: Document) -> Document:
    """Copy a Secret that this pod has mounted; the copy goes with the DelayQueue."""
    files = sorted((Path(os.environ.get("DELAYQ_SECRETS_DIR", SECRETS_DIR)) / name).iterdir())
    data = {file.name: b64encode(file.read_bytes()).decode() for file in files if file.is_file()}
    reference = {field: owner[field] for field in ("apiVersion", "kind")}
    reference |= {field: owner["metadata"][field] for field in ("name", "uid")}
    metadata = {"name": new_name, "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def await_ready(api: Api, name: str, deadline: float) -> None:
    """Wait for the operator and for pods that work."""
    began = time.monotonic()
    conditions: dict[str, Document] = {}

    def ready() -> bool:
        conditions.update(conditions_of(api.get(name)))
        accepted = conditions.get("Accepted", {})
        if accepted.get("status") == "False":
            raise Failed(f"the operator refused it: {accepted.get('message')}")
        return conditions.get("Ready", {}).get("status") == "True"

    if not until(ready, deadline, every_seconds=0.5):
        raise Failed(f"it did not become Ready. {described(conditions)}")
    print(f"Ready after {time.monotonic() - began:.1f} s")


def conditions_of(queue: Document | None) -> dict[str, Document]:
    """Return them by type; none before the operator has looked."""
    found = ((queue or {}).get("status") or {}).get("conditions") or []
    return {condition["type"]: condition for condition in found}


def described(conditions: dict[str, Document]) -> str:
    """Say what the operator says."""
    if not conditions:
        return "No operator has looked at it."
    lines = (f"  {each['type']}={each['status']} {each.get('reason', '')}: {each.get('message', '')}"
             for each in conditions.values())  # fmt: skip
    return "\n".join(["Its conditions:", *lines])


def handle_one(client: SyncClient, deadline: float) -> None:
    """Schedule a task, and see that it is handled once and not early. All times are by Redis' clock."""
    task = client.schedule({"from": "helm test"}, delay_ms=DELAY_MS)
    print(f"scheduled a task, due in {DELAY_MS} ms")
    seen_ms = 0

    def handled() -> bool:
        nonlocal seen_ms
        counts = client.counts()
        if counts.dead or counts.retrying:
            raise Failed("its handler failed")
        seen_ms = counts.now_ms
        return counts.stats.get("acked", 0) > 0

    if not until(handled, deadline, every_seconds=LOOK_SECONDS):
        raise Failed(f"the task was not handled: {client.counts()}")
    late_ms = seen_ms - task.due_ms
    if late_ms < 0:
        raise Failed(f"the task was handled {-late_ms} ms before its time")
    counts = client.counts()
    if (counts.stats.get("acked"), counts.waiting + counts.retrying + counts.in_flight + counts.dead) != (
        1,
        0,
    ):
        raise Failed(f"one task became more than one: {counts}")
    print(f"handled, at most {late_ms} ms after its time")


def remove(api: Api, name: str, deadline: float) -> None:
    """Delete the DelayQueue, if there is one, and wait until it is gone, which takes an erase Job."""
    if api.delete(name) is not None and not until(lambda: api.get(name) is None, deadline, every_seconds=0.5):
        raise Failed(
            f"DelayQueue {name} was deleted, but is still there. {described(conditions_of(api.get(name)))}"
        )


def until(done: Callable[[], bool], deadline: float, *, every_seconds: float) -> bool:
    """Look at least once; False when time is up."""
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_seconds)
    return True


def blocking_reads(api: Api, name: str) -> str:
    """Say where to look."""
    namespace = api.namespace
    return f"""Look at:
  kubectl -n {namespace} describe delayqueue {name}
  kubectl -n {namespace} get pods -l delayq.dev/queue={name}
  kubectl -n {namespace} logs -l delayq.dev/queue={name} --tail=20
  kubectl -n {api.own_namespace} logs -l app.kubernetes.io/component=operator --tail=50
The DelayQueue is left as it is; the next `helm test` replaces it, and this removes it:
  kubectl -n {namespace} delete delayqueue {name}"""


if __name__ == "__main__":
    sys.exit(main())
