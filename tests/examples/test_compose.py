"""examples/compose: Compose's own schema accepts the file, and what it starts works together, with a real Redis.

Not here: Compose itself, Prometheus and Grafana, which no test runs; and a build of the image, since tests/images
builds one by the same steps.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner
from delayq.cli.root import delayq
from delayq.client.document import read

from tests.examples.running import ROOT, copied
from tests.processes import DELAYQ, Process, running
from tests.servers import binary, free_port

pytestmark = pytest.mark.xdist_group("compose")  # of one process, which makes the passwords once
PAGE: Final = (ROOT / "docs/how-to/compose.md").read_text()
EXAMPLE: Final = ROOT / "examples" / "compose"
SERVICES: Final[dict[str, dict[str, Any]]] = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())[
    "services"
]
OURS: Final = ("scanner", "worker", "reaper", "api", "web")
UVICORN: Final = str(Path(sys.executable).with_name("uvicorn"))


def test_composes_schema_accepts_the_file() -> None:
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    subprocess.run([*argv, str(EXAMPLE / "compose.yaml")], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with its passwords."""
    folder = copied("compose", tmp_path_factory.mktemp("compose"))
    env = os.environ | {"DELAYQ": DELAYQ}
    subprocess.run([folder / "make-secrets"], env=env, check=True, stderr=subprocess.DEVNULL)
    return folder


def mounts(name: str) -> dict[str, str]:
    """Path in a container → path in the folder of the example."""
    sources = (mount.split(":") for mount in SERVICES[name]["volumes"])
    return {parts[1]: parts[0] for parts in sources if parts[0].startswith(".")}


def places(name: str) -> dict[str, str]:
    """The same, with the document that names the test's own Redis."""
    return {inside: outside.replace("queue.yaml", "local.yaml") for inside, outside in mounts(name).items()}


def argv_of(name: str, example: Path, ports: dict[str, int]) -> list[str]:
    """The command of a service, with the paths and addresses that it has outside a container."""
    service = SERVICES[name]
    program = {"redis": str(binary("valkey9")), "web": UVICORN}.get(name, DELAYQ)  # 7.0 has no waitaof
    words = service["command"][1:] if name == "redis" else service["command"]
    here = {"8080": str(ports[name]), "8090": str(ports["requests"])}
    here |= {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1"}  # noqa: S104 -- of a container
    for inside, outside in places(name).items():
        here |= {
            word: word.replace(inside, str(example / outside)) for word in words if word.startswith(inside)
        }
    return [program, *(here.get(word, word) for word in words)]


def environment(name: str, example: Path) -> dict[str, str]:
    """The variables of a service. Its Secrets are below the default directory, which is elsewhere here."""
    secrets = {"DELAYQ_SECRETS_DIR": str(example / "secrets")} if name in OURS else {}
    outside = places(name)
    given = SERVICES[name].get("environment", {})
    return secrets | {
        key: str(example / outside.get(value, value)) if value in outside else value
        for key, value in given.items()
    }


def call(url: str) -> dict[str, str]:
    request = urllib.request.Request(url, method="POST")  # noqa: S310 -- our own server
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 -- the same
        found: dict[str, str] = json.load(answer)
        return found


def healthy(name: str, example: Path, port: int) -> bool:
    """What the health check of a service says outside its container."""
    kind, *words = SERVICES[name]["healthcheck"]["test"]
    here = {"python": sys.executable, "/etc/delayq/secrets": str(example / "secrets"), "8080": str(port)}
    here |= {"redis-cli ": f"redis-cli -p {port} ", "$$": "$"}
    for old, new in here.items():
        words = [word.replace(old, new) for word in words]
    argv = ["sh", "-c", *words] if kind == "CMD-SHELL" else words
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def test_the_commands_of_the_file_work_together(example: Path) -> None:
    """The ACL file lets the queue's processes and the producer in, all checks are green, and a task runs."""
    ports = {name: free_port() for name in ("redis", "requests", *OURS)}
    document = example / "local.yaml"
    address = f"standalone: {{host: 127.0.0.1, port: {ports['redis']}}}"
    document.write_text((example / "queue.yaml").read_text().replace("standalone: {host: redis}", address))
    redis = [*argv_of("redis", example, ports), "--port", str(ports["redis"]), "--dir", str(example)]
    with ExitStack() as stack:
        server = stack.enter_context(running(*redis))
        server.wait_line("Ready to accept connections")
        assert healthy("redis", example, ports["redis"])
        started: dict[str, Process] = {}
        for name in OURS:
            env = environment(name, example)
            if "SHOP_PAY_WITHIN" in env:
                env |= {"SHOP_PAY_WITHIN": "100ms" if name == "web" else "30m"}
            process = running(*argv_of(name, example, ports), cwd=example, env=env)
            started[name] = stack.enter_context(process)
        started["web"].wait_line("Uvicorn running on")
        web = f"http://127.0.0.1:{ports['web']}"
        assert call(f"{web}/orders/7") == {"task": "cancel_unpaid:order-7"}
        started["worker"].wait_line("^order 7 cancelled$")
        for name in OURS:
            started[name].wait_http(f"http://127.0.0.1:{ports[name]}/readyz")
            assert healthy(name, example, ports[name]), name
        assert call(f"{web}/orders/7/payment") == {"cancellation": "not_found"}
        [curl] = re.findall(r"^curl --fail(?:.*\\\n)+.*$", PAGE, re.MULTILINE)
        here = curl.replace("http://127.0.0.1:8090", f"http://127.0.0.1:{ports['requests']}")
        subprocess.run(["sh", "-ec", here], cwd=example, check=True, capture_output=True)
        started["worker"].wait_line("^order 8 cancelled$")
        doctor = Process.quick(
            DELAYQ, "doctor", str(document), cwd=example, env=environment("worker", example)
        )
        doctor.wait()
        for line in (
            "✓ persistence append-only file on, appendfsync everysec",
            "✓ eviction    maxmemory-policy noeviction",
        ):
            assert line in doctor.output, doctor.output


def test_a_health_check_can_fail(example: Path) -> None:
    assert not healthy("redis", example, free_port())
    assert not healthy("worker", example, free_port())


def test_every_service_restarts_and_has_time_to_stop() -> None:
    drain = read(EXAMPLE / "queue.yaml").spec.worker.drain_timeout_seconds
    for name, service in SERVICES.items():
        assert service["restart"] == "unless-stopped", name
        assert "healthcheck" in service or name == "grafana", name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
    assert int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) > drain


def test_every_file_that_is_mounted_is_there(example: Path) -> None:
    for name in SERVICES:
        for outside in mounts(name).values():
            at = EXAMPLE if outside.startswith("../..") else example
            assert (at / outside).exists(), (name, outside)


def test_prometheus_asks_the_services_and_has_the_alerts_of_the_queue() -> None:
    [job] = yaml.safe_load((EXAMPLE / "prometheus.yaml").read_text())["scrape_configs"]
    [found] = job["dns_sd_configs"]
    assert {*found["names"]} == {*OURS} - {"web"}
    assert found["port"] == 8080
    done = CliRunner().invoke(delayq, ["alerts", str(EXAMPLE / "queue.yaml")])
    assert (EXAMPLE / "delayq.rules.yaml").read_text() == done.stdout


def test_the_image_is_made_by_the_steps_of_one_that_tests_build() -> None:
    def steps(folder: str) -> str:
        text = (ROOT / "examples" / folder / "Dockerfile").read_text()
        return re.sub(r"^#.*\n|\\\n *", "", text, flags=re.MULTILINE)

    assert steps("compose") == re.sub(r"\bmail\b", "shop", steps("shop-image"))


def test_secrets_are_made_once(example: Path) -> None:
    """A second run keeps the passwords that Redis and Grafana already have."""
    before = (example / "secrets/redis-login/password").read_text()
    again = subprocess.run([example / "make-secrets"], capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (1, "secrets exists already: nothing is changed\n")
    assert (example / "secrets/redis-login/password").read_text() == before
    assert before not in (example / "secrets/redis/users.acl").read_text()
    assert oct((example / "secrets").stat().st_mode)[-3:] == "700"
