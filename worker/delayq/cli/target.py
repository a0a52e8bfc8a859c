"""Resolve QUEUE, a document's path or a queue's name, to its Redis."""

from __future__ import annotations

import os
import re
import socket
import stat
from contextlib import closing
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click
from click.shell_completion import CompletionItem

from delayq.cli.exits import INVALID, CommandError
from delayq.cli.formats import clean
from delayq.cli.output import note
from delayq.client.blocking import SyncClient
from delayq.client.document import read, read_all
from delayq.client.taken_kinds import TakenKinds
from delayq.connection import Address, SyncConnection
from delayq.connection.address import secrets_dir
from delayq.contract import DelayQueue, Limits
from delayq.contract.durability import DurabilitySpec
from delayq.contract.files import CONFIG_FILE, RUN_DIR, RUN_URL
from delayq.contract.problems import quote
from delayq.contract.words import KEY_PREFIX, OBJECT_NAME
from delayq.errors import DelayQError, InvalidDocument
from delayq.local.datadir import LOOPBACK, NOTED_FILE
from delayq.protocol.write_durability import durability_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.connection.place import Place
    from delayq.contract.kinds import Text

ANSWER_SECONDS = 1.0
UNKNOWN_KIND: Final = "; if newer workers will know it, --unknown-kind stores it"


def of_url(url: str) -> Address:
    """Parse --redis."""
    try:
        return Address.from_url(url)
    except InvalidDocument as error:
        what, _, hint = str(error).partition("; ")
        raise CommandError(what.replace("Redis URL", "--redis"), hint) from None


def url_of_run(document: Path) -> str | None:
    """Return the URL of the Redis of a running `delayq run` of this document.

    It is not spec.redis: the first command after each start of the run prints a note.
    """
    file = document.parent / RUN_DIR / RUN_URL
    try:
        url = file.read_text(encoding="utf-8").strip()
        running = Address.from_url(url)
    except (OSError, UnicodeDecodeError, InvalidDocument):
        return None
    if running.places[0].host != LOOPBACK and not _ours(file):
        return None
    if not _answers(running):
        note(
            f"note: no Redis answers at the address in {file}, written by a past delayq run; using spec.redis"
        )
        return None
    if _is_first(file):
        note(f"note: using the Redis of the running delayq run ({file}), as all later commands on {document}")
    return url


def _is_first(file: Path) -> bool:
    """Whether this is the first command since the run wrote its URL; a mark beside that file tells the next one."""
    mark = file.with_name(NOTED_FILE)
    try:
        if mark.exists() and mark.stat().st_mtime_ns >= file.stat().st_mtime_ns:
            return False
        mark.touch()
    except OSError:  # a directory of another user: each command is the first
        pass
    return True


def _ours(file: Path) -> bool:
    """Whether only this user can read the file. Another file, such as one of a checkout, may name a foreign host."""
    found = file.stat()
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _answers(address: Address) -> bool:
    with closing(SyncConnection(replace(address, timeout_seconds=ANSWER_SECONDS))) as connection:
        try:
            return connection.send([("PING",)]) == [b"PONG"]
        except DelayQError:
            return False


def _has_address(place: Place) -> bool:
    try:
        return place.is_socket or bool(socket.getaddrinfo(place.host, place.port))
    except (OSError, UnicodeError):
        return False


CONFIG_VARIABLE, URL_VARIABLE, HERE = "DELAYQ_CONFIG", "DELAYQ_REDIS_URL", Path("queue.yaml")
DEFAULT_PREFIX: Final = "delayq"
Source = Literal["--redis", "delayq run", "spec.redis"]


class TargetClient(SyncClient):
    """A client with the document's number of shards, which can differ from the queue's."""

    documented: int | None = None
    target: Target

    def used(self) -> bool:
        """Whether a client or a scanner has ever used this queue."""
        self._do(self._operations.homes.fetch_shard_map())
        return self.shard_map.epoch > 0

    def unused(self) -> str:
        """Return a warning if the queue was never used: a misspelt name creates keys that no process reads."""
        if self.documented is not None or self.used():
            return ""
        where = self.address.where
        return clean(
            f"queue {self.queue} was never used before in Redis at {where}, and no document names it"
        )


@dataclass(frozen=True, kw_only=True)
class Target:
    """A queue and its Redis."""

    queue: str
    address: Address
    shards: int = 1
    key_prefix: str = DEFAULT_PREFIX
    path: Path | None = None  # of the document
    document: DelayQueue | None = None
    source: Source = "--redis"

    @property
    def limits(self) -> Limits:
        """The document's limits, or the defaults."""
        return Limits() if self.document is None else self.document.spec.limits

    @property
    def durability(self) -> DurabilitySpec:
        """The document's spec.durability, or the defaults."""
        return DurabilitySpec() if self.document is None else self.document.spec.durability

    @property
    def suspension(self) -> str:
        """What suspends the queue, by the document; empty if nothing does."""
        return "" if self.document is None else self.document.spec.suspension

    @property
    def delay_queue(self) -> str:
        """The name of the DelayQueue in a pod of it; elsewhere empty."""
        pod = self.path == Path(CONFIG_FILE) and "KUBERNETES_SERVICE_HOST" in os.environ
        return self.document.metadata.name if pod and self.document is not None else ""

    @property
    def hint(self) -> str:
        """Hint for an unreachable Redis, without the URL, which may contain a password."""
        return f"{self.command('doctor')} checks each requirement"

    def command(self, verb: str) -> str:
        """Return a command on this queue for a hint."""
        if self.delay_queue:
            return f"kubectl dq {verb} {self.delay_queue}"
        option = " --redis URL" if self.source == "--redis" and URL_VARIABLE not in os.environ else ""
        return f"delayq {verb} {self.path or self.queue}{option}"

    def away(self) -> str:
        """Hint at `delayq run` where its data is beside the document, or spec.redis names a host that is not here."""
        if self.source != "spec.redis" or self.path is None or self.delay_queue:
            return ""
        beside = (self.path.parent / RUN_DIR).is_dir()
        if not beside and any(map(_has_address, self.address.places)):
            return ""
        return f"start delayq run {self.path}, whose Redis is then used, or set ${URL_VARIABLE}"

    def client(self) -> TargetClient:
        """Return a client that connects on its first call."""
        client = TargetClient(
            self.address,
            queue=self.queue,
            key_prefix=self.key_prefix,
            shards=self.shards,
            limits=self.limits,
            deadline_ms=None if self.document is None else self.document.spec.delivery.deadline_ms,
            durability=durability_of(self.durability),
        )
        client.documented = None if self.document is None else self.shards
        client.target = self
        if self.document is not None:
            client.take_only(TakenKinds.of(self.document.spec.handler, UNKNOWN_KIND))
        return client


def resolve(
    queue: str, *, redis: str | None = None, shards: int | None = None, key_prefix: str | None = None
) -> Target:
    """Find a queue by its document, or by its name and a URL."""
    by_options = shards is not None or key_prefix is not None
    if is_path(queue):
        if by_options:
            raise CommandError(
                "--shards and --key-prefix: the document sets both",
                "leave them out, or give the queue's name",
            )
        return of_document(Path(queue), read(queue), redis)
    check_text(OBJECT_NAME, "QUEUE", f"the path of a document, or a name of {OBJECT_NAME.expected}", queue)
    found = None if by_options else _named_document(queue, redis)
    if found is not None:
        return of_document(*found, redis)
    if redis is None:
        raise CommandError(
            f"queue {queue}: found no document of that queue, so its Redis is unknown",
            f"{_near(queue)}name its document instead of {queue} (or in ${CONFIG_VARIABLE}, or as ./{HERE}), "
            f"or give --redis URL (or ${URL_VARIABLE})",
        )
    prefix = DEFAULT_PREFIX if key_prefix is None else key_prefix
    check_text(KEY_PREFIX, "--key-prefix", KEY_PREFIX.expected, prefix)
    return Target(queue=queue, address=of_url(redis), shards=shards or 1, key_prefix=prefix)


def document_of(queue: str, purpose: str) -> tuple[Path, DelayQueue]:
    """Return path and document of QUEUE; `purpose` completes the error message."""
    if is_path(queue):
        return Path(queue), read(queue)
    path = _document_path()
    if not path.is_file():
        raise CommandError(f"queue {queue}: expected its document, {purpose}, found no {path}")
    there = queues_of(path)
    if queue not in there:
        raise _document_of_others(path, there, queue)
    return path, there[queue]


def _document_path() -> Path:
    """Return $DELAYQ_CONFIG, else ./queue.yaml, else in a pod the mounted document."""
    named = os.environ.get(CONFIG_VARIABLE)
    mounted = not named and not HERE.is_file() and Path(CONFIG_FILE).is_file()
    return Path(CONFIG_FILE) if mounted else Path(named or HERE)


def _near(queue: str) -> str:
    """Return the beginning of a hint at the queue whose name is the nearest, if the document has one."""
    path = _document_path()
    near = get_close_matches(queue, queues_of(path), 1) if path.is_file() else []
    return "".join(f"did you mean {each}, of {path}? Or " for each in near)


def _document_of_others(path: Path, there: Iterable[str], queue: str) -> CommandError:
    return CommandError(f"{path} is the document of queue {', '.join(there)}, not of {queue}", "", INVALID)


def queues_of(path: Path) -> dict[str, DelayQueue]:
    """Return the documents of a file by queue."""
    return {each.queue.queue: each.queue for each in read_all([path])}


class QueueType(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """QUEUE, which a shell completes by files, and by the names of the queues that have a document."""

    name = "queue"

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 -- click's signature
        param: click.Parameter,  # noqa: ARG002 -- as above
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the queues that a name finds, and ask the shell for files."""
        try:
            names = list(queues_of(_document_path()))
        except DelayQError:
            names = []
        found = [CompletionItem(each) for each in names if each.startswith(incomplete)]
        return [*found, CompletionItem(incomplete, type="file")]


QUEUE: Final = QueueType()


def is_path(queue: str) -> bool:
    """Whether QUEUE is the path of a document, not a queue's name."""
    return "/" in queue or queue.endswith((".yaml", ".yml")) or Path(queue).is_file()


def of_document(path: Path, document: DelayQueue, redis: str | None) -> Target:
    """Return the target of a document; its Redis is that of --redis, of a running `delayq run`, or of spec.redis."""
    spec = document.spec
    source: Source = "--redis"
    url = redis or url_of_run(path)
    if not redis:
        source = "delayq run" if url else "spec.redis"
    return Target(
        queue=document.queue,
        address=of_url(url) if url else Address.from_spec(spec.redis, secrets_dir()),
        source=source,
        shards=spec.shards,
        key_prefix=spec.redis.key_prefix,
        path=path,
        document=document,
    )


def _named_document(queue: str, redis: str | None) -> tuple[Path, DelayQueue] | None:
    """Return the document at _document_path() if it is that of the queue of this name."""
    named, path = os.environ.get(CONFIG_VARIABLE), _document_path()
    if not named and not path.is_file():
        return None
    try:
        there = queues_of(path)
    except InvalidDocument as error:
        if redis is None:
            raise
        note(f"note: ignoring {path}, which is invalid: {str(error).splitlines()[0]}")
        return None
    if queue in there:
        return path, there[queue]
    if named and redis is None:
        raise _document_of_others(path, there, queue)
    return None


def check_text(kind: Text, name: str, expected: str, got: str) -> None:
    """Raise CommandError if a document would not accept this text."""
    if kind.pattern is None or len(got) > kind.max_length or not re.fullmatch(kind.pattern, got):
        raise CommandError(f"{name}: expected {expected}, got {quote(got)}")
