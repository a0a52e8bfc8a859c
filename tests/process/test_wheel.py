"""The wheel, not the source tree, is what users get: it is built, installed alone and put to work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

if TYPE_CHECKING:
    from tests.servers import RedisServer

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")


def run(*argv: str | Path, cwd: Path) -> str:
    """What a command says on stdout, in an environment that cannot lead it back to the source tree."""
    ours = ("PYTHON", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the locked hatchling, from the files that are here."""
    out = tmp_path_factory.mktemp("dist")
    run(Path(sys.executable).with_name("hatchling"), "build", "-t", "wheel", "-d", out, cwd=ROOT)
    return next(out.glob("delayq-*.whl"))


def test_the_wheel_describes_the_project_and_holds_scripts_types_the_crd_and_no_stray_modules(
    wheel: Path,
) -> None:
    names = ZipFile(wheel).namelist()
    found = {name for name in names if name.endswith((".lua", "py.typed")) or name.startswith("delayq/crds/")}
    assert found == {
        *(
            f"delayq/{path.relative_to(ROOT / 'worker/delayq')}"
            for path in (ROOT / "worker/delayq/protocol/lua").rglob("*.lua")
        ),
        *(f"delayq/crds/{path.name}" for path in (ROOT / "crds").glob("*.yaml")),
        *("delayq/py.typed", "delayq/testing/advance.lua"),
    }
    assert {name.split("/")[0] for name in names} <= {
        "delayq",
        "delayq_operator",
        f"{wheel.stem[:12]}.dist-info",
    }
    [name] = [name for name in names if name.endswith(".dist-info/METADATA")]
    described = message_from_bytes(ZipFile(wheel).read(name))
    assert described.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert described["Description-Content-Type"] == "text/markdown"
    assert described["Author"]
    urls = {url.partition(",")[0] for url in described.get_all("Project-URL", [])}
    assert urls >= {"Homepage", "Documentation", "Issues"}


def test_tasks_run_from_the_wheel_alone(wheel: Path, tmp_path: Path, aof_server: RedisServer) -> None:
    """Its dependencies are held at what uv.lock pins: what an index published today is not the question here."""
    uv, bin_ = ROOT / "tools" / "uv", tmp_path / "venv" / "bin"
    run(uv, "venv", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
    locked, named = ROOT / ".cache" / "requirements.txt", f"delayq[worker] @ {wheel.as_uri()}"
    run(uv, "pip", "install", "--python", bin_ / "python", "-c", locked, named, cwd=tmp_path)
    assert wheel.stem.split("-")[1] in run(bin_ / "delayq", "--version", cwd=tmp_path)
    imported = run(bin_ / "python", "-c", "import delayq; print(delayq.__file__)", cwd=tmp_path)
    assert Path(imported.strip()).is_relative_to(tmp_path / "venv")
    said = run(bin_ / "python", SMOKE, aof_server.url, cwd=tmp_path)
    assert json.loads(said.splitlines()[-1]) == {"handled": 20, "early": 0}
