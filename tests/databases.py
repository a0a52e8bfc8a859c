"""Real PostgreSQL and MariaDB servers for the tests, each with its own directory and port.

`make setup` finds or installs them; what is not there is an error, not a skip. Not here: a fake, a pool, SQLAlchemy.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import shutil
import subprocess
from abc import ABC, abstractmethod
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGTERM
from typing import TYPE_CHECKING, Any, ClassVar, Self

import psycopg
import pymysql

from tests.families import children, kill_all, signal_all, stop_all
from tests.processes import Gone, Process
from tests.servers import PORTS, ServerMissingError

if TYPE_CHECKING:
    from collections.abc import Callable

DATABASES = Path(__file__).parent.parent / ".cache" / "databases"
TEMPLATES = DATABASES / "templates"
LOCALHOST = "127.0.0.1"
USER, PASSWORD = (
    "delayq",
    "in-no-log-ever",
)  # may do everything; tests look for the password where it must not be

# PostgreSQL refuses to be root. The capability lets `nobody` reach directories that only root may enter, which those
# of pytest are; a change of user makes the kernel forget that a process shall die with its parent, so say it again.
NOBODY = (
    *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
    *("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override", "--pdeathsig", "KILL", "--"),
)


def binary(folder: str, name: str) -> str:
    """Not the link: where it leads to, next to which a server looks for what else it needs."""
    link = DATABASES / folder / name
    if not link.exists():
        raise ServerMissingError(f"no {name} in {link.parent}: run tools/setup-databases")
    return str(link.resolve())


def template(argv: list[str], make: Callable[[Path], None]) -> Path:
    """A data directory to copy, made once for each version, user and settings: that takes a second."""
    version = subprocess.run([argv[0], "--version"], capture_output=True, check=True).stdout
    content = b"\0".join([version, str(os.getuid()).encode(), *(word.encode() for word in argv)])
    made = TEMPLATES / hashlib.sha256(content).hexdigest()[:16]
    TEMPLATES.mkdir(parents=True, exist_ok=True)
    with (TEMPLATES / ".lock").open("w") as lock:  # of several pytest workers
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            new = made.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            make(new)
            new.rename(made)
    return made


@dataclass
class DatabaseServer(ABC):
    """One server. `dir` outlives it, so `restart()` finds its data again.

    A commit survives `kill()`, for the kernel has it; the disk is not waited for.
    """

    kind: ClassVar[str]
    driver: ClassVar[str]
    ready: ClassVar[str]
    quote: ClassVar[str]
    admin: ClassVar[str] = "test"
    force: ClassVar[str] = ""

    dir: Path
    port: int
    process: Process = field(init=False)

    @classmethod
    def start(cls, dir: Path) -> Self:  # noqa: A002  the word of tests/servers.py
        """Start, with a database `test`, on a port that turns out to be free."""
        dir.mkdir(parents=True, exist_ok=True)
        made = cls._template()
        subprocess.run(["cp", "-a", "--reflink=auto", str(made), str(dir / "data")], check=True)
        while True:
            server = cls(dir, random.choice(PORTS))
            try:
                server.launch()
            except Gone as gone:
                if "Address already in use" not in str(gone):
                    raise
            else:
                return server

    def launch(self) -> None:
        self.process = Process.start(*self._argv(), env={"TZ": "UTC", "LC_ALL": "C"}, cwd=self.dir)
        try:
            self.process.wait_line(self.ready, timeout_s=60)  # crash recovery is in it
        except Gone:
            self.kill()
            raise

    @classmethod
    @abstractmethod
    def _template(cls) -> Path:
        """Where a data directory lies that `test` can be found in after `launch`."""

    @abstractmethod
    def _argv(self) -> list[str]: ...

    @abstractmethod
    def sql(self, statement: str, *args: object, database: str = "test") -> list[tuple[Any, ...]]:
        """One statement on a connection of its own, committed: to prepare and to look. Placeholders are %s."""

    def create_database(self, name: str) -> None:
        self.sql(f"CREATE DATABASE {self.quote}{name}{self.quote}", database=self.admin)

    def drop_database(self, name: str) -> None:
        """The processes that are connected to it."""
        self.sql(f"DROP DATABASE IF EXISTS {self.quote}{name}{self.quote}{self.force}", database=self.admin)

    def url(self, driver: str | None = None, database: str = "test") -> str:
        """For SQLAlchemy."""
        return f"{self.kind}+{driver or self.driver}://{USER}:{PASSWORD}@{LOCALHOST}:{self.port}/{database}"

    def stop(self) -> None:
        """In good order, without waiting for clients."""
        self.resume()
        self._ask_to_stop()
        try:
            self.process.wait()
        except subprocess.TimeoutExpired:
            self.kill()

    @abstractmethod
    def _ask_to_stop(self) -> None: ...

    def kill(self) -> None:
        """SIGKILL to all of its processes at once, as when its machine went."""
        if self.process.alive:
            stop_all([self.process.pid])  # no process starts meanwhile
            kill_all(children(self.process.pid))
        self.process.kill()

    def restart(self) -> None:
        """The same port and data; in good order first when still running."""
        if self.process.alive:
            self.stop()
        self.launch()

    def pause(self) -> None:
        """SIGSTOP to all of its processes: connections stay open and nothing answers."""
        stop_all([self.process.pid])  # no process starts meanwhile
        stop_all(children(self.process.pid))

    def resume(self) -> None:
        signal_all([*children(self.process.pid), self.process.pid], SIGCONT)


class Postgres(DatabaseServer):
    """PostgreSQL: a process for each connection, in sessions of their own."""

    kind, driver, ready = "postgresql", "psycopg", "database system is ready to accept connections"
    quote, admin, force = '"', "postgres", " WITH (FORCE)"

    @classmethod
    def _template(cls) -> Path:
        initdb = [binary("postgres", "initdb"), "--no-sync", "--no-locale", "--encoding=UTF8"]
        initdb += ["--auth=scram-sha-256", f"--username={USER}"]

        def make(new: Path) -> None:
            (secret := new.with_suffix(".password")).write_text(PASSWORD)
            argv = [*cls._as_user(), *initdb, f"--pwfile={secret}", f"--pgdata={new}"]
            subprocess.run(argv, check=True, capture_output=True)
            secret.unlink()
            (new / "pg_hba.conf").write_text("host all all all scram-sha-256\n")

        return template(initdb, make)

    @staticmethod
    def _as_user() -> tuple[str, ...]:
        return NOBODY if os.getuid() == 0 else ()

    def _argv(self) -> list[str]:
        settings = {
            "listen_addresses": LOCALHOST,
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": 200,
            "shared_buffers": "32MB",
            "dynamic_shared_memory_type": "mmap",  # in its directory: nothing is left behind when it is killed
            "autovacuum": "off",
            "jit": "off",
            "wal_level": "minimal",
            "max_wal_senders": 0,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [*self._as_user(), binary("postgres", "postgres"), "-D", str(self.dir / "data"), *options]

    def launch(self) -> None:
        super().launch()
        if not self.sql("SELECT 1 FROM pg_database WHERE datname = 'test'", database="postgres"):
            self.create_database("test")

    def sql(self, statement: str, *args: object, database: str = "test") -> list[tuple[Any, ...]]:
        url = self.url(database=database).replace(f"+{self.driver}", "")
        with psycopg.connect(url, autocommit=True, connect_timeout=20) as connection:
            found = connection.execute(statement.encode(), args or None)
            return found.fetchall() if found.description else []

    def _ask_to_stop(self) -> None:
        """SIGINT: after SIGTERM it waits for clients. Even then, for a minute, for one that did not say who it is."""
        self.process.send(SIGINT)
        for _ in range(20):
            with suppress(subprocess.TimeoutExpired):
                self.process.popen.wait(1)
                return
            signal_all(children(self.process.pid), SIGTERM)  # what it does itself, but for those


class MariaDB(DatabaseServer):
    """MariaDB, which stands for MySQL, too: one process."""

    kind, driver, ready, quote = "mysql", "pymysql", "ready for connections", "`"

    # A template's log has the size that the server finds in its settings.
    SAME: ClassVar = ("--no-defaults", "--skip-name-resolve", "--innodb-log-file-size=8M")

    @classmethod
    def _template(cls) -> Path:
        install = [binary("mariadb", "mariadbd"), binary("mariadb", "mariadb-install-db"), *cls.SAME]
        install += ["--skip-test-db", "--auth-root-authentication-method=normal", *cls._as_user()]

        def make(new: Path) -> None:
            argv = [*install[1:], f"--datadir={new}"]
            subprocess.run(argv, check=True, capture_output=True)

        return template(install, make)

    @staticmethod
    def _as_user() -> tuple[str, ...]:
        return ("--user=root",) if os.getuid() == 0 else ()  # it requires this option for root

    def _argv(self) -> list[str]:
        start = self.dir / "start.sql"
        start.write_text(
            "CREATE DATABASE IF NOT EXISTS test;\n"
            f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\n"
        )
        settings = {
            "datadir": self.dir / "data",
            "init-file": start,
            "bind-address": LOCALHOST,
            "port": self.port,
            "socket": "socket",  # in its directory, whose path may be longer than one of a socket
            "innodb-flush-log-at-trx-commit": 2,  # gives it to the kernel
            "innodb-buffer-pool-size": "32M",
            "max-connections": 200,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [binary("mariadb", "mariadbd"), *self.SAME, *self._as_user(), *options]

    def sql(self, statement: str, *args: object, database: str = "test") -> list[tuple[Any, ...]]:
        login = {"host": LOCALHOST, "port": self.port, "user": USER, "password": PASSWORD}
        connection = pymysql.connect(**login, database=database, autocommit=True, connect_timeout=20)
        with closing(connection), connection.cursor() as cursor:
            cursor.execute(statement, args or None)
            return list(cursor.fetchall())

    def _ask_to_stop(self) -> None:
        self.process.stop()
