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
LUA = sorted(path.name for path in (ROOT / "worker" / "delayq" / "protocol" / "lua").glob("*.lua"))


def run(*argv: str | Path, cwd: Path) -> str:
    """What a command says on stdout, in an environment that cannot lead it back to the source tree."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the locked hatchling, from the files that are here."""
    out = tmp_path_factory.mktemp("dist")
    run(Path(sys.executable).with_name("hatchling"), "build", "-t", "wheel", "-d", out, cwd=ROOT)
    return next(out.glob("delayq-*.whl"))


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty directory with a fresh virtual environment `venv` that holds delayq[worker] and nothing else.

    Its dependencies are held at what uv.lock pins: what an index published today is not the question here.
    """
    home = tmp_path_factory.mktemp("home")
    uv, python = ROOT / "tools" / "uv", home / "venv" / "bin" / "python"
    run(uv, "venv", "--python", sys.executable, home / "venv", cwd=home)
    locked = ROOT / ".cache" / "requirements.txt"
    run(
        uv, "pip", "install", "--python", python, "-c", locked, f"delayq[worker] @ {wheel.as_uri()}", cwd=home
    )
    return home


def test_the_wheel_holds_scripts_types_the_crd_and_no_stray_modules(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    crds = sorted(f"delayq/crds/{path.name}" for path in (ROOT / "crds").glob("*.yaml"))
    assert sorted(name for name in names if name.startswith("delayq/crds/")) == crds
    assert sorted(Path(name).name for name in names if name.endswith(".lua")) == LUA
    assert "delayq/py.typed" in names
    assert {name.split("/")[0] for name in names} <= {
        "delayq",
        "delayq_operator",
        f"{wheel.stem[:12]}.dist-info",
    }


def test_the_wheel_describes_the_project(wheel: Path) -> None:
    [name] = [name for name in ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")]
    described = message_from_bytes(ZipFile(wheel).read(name))
    assert described.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert described["Description-Content-Type"] == "text/markdown"
    assert described["Author"]
    assert {url.partition(",")[0] for url in described.get_all("Project-URL", [])} >= {
        "Homepage",
        "Documentation",
        "Issues",
    }


def test_the_import_comes_from_the_wheel(home: Path) -> None:
    found = run(home / "venv/bin/python", "-c", "import delayq; print(delayq.__file__)", cwd=home)
    assert Path(found.strip()).is_relative_to(home / "venv")
    listing = (
        "from importlib.resources import files; "
        "print(*[f.name for f in (files('delayq') / 'protocol' / 'lua').iterdir()])"
    )
    lua = run(home / "venv/bin/python", "-c", listing, cwd=home).split()
    assert sorted(name for name in lua if name.endswith(".lua")) == LUA


def test_the_command_is_installed(home: Path) -> None:
    assert "0.2.0" in run(home / "venv/bin/delayq", "--version", cwd=home)


def test_tasks_run_from_the_wheel(home: Path, aof_server: RedisServer) -> None:
    said = run(home / "venv/bin/python", SMOKE, aof_server.url, cwd=home)
    assert json.loads(said.splitlines()[-1]) == {"handled": 20, "early": 0}
