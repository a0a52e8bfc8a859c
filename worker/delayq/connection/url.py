"""Parsing a Redis URL. Errors do not quote it: with a / or @ in the password, any part may belong to the password.

Only an option's name is quoted, if it is, or resembles, a supported one.

    redis://user:password@host:6379/0                                        one server
    unix:///path?db=0                                                        one server on this machine
    redis+sentinel://user:password@host:26379,host2:26379/mymaster/0         a master that Sentinels watch
    redis+cluster://user:password@host:6379,host2:6379                       a Cluster, by some of its nodes

rediss:// and rediss+…:// mean TLS; `OPTIONS` after a question mark correspond to fields of the document.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from delayq.connection.login import Given, Login, Mounted
from delayq.connection.place import PORT, SENTINEL_PORT, SOCKET, Place
from delayq.connection.tls import Tls
from delayq.contract.words import HOST, MASTER_NAME
from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Kind = Literal["standalone", "sentinel", "cluster"]

EXPECTED: Final = (
    "Redis URL: expected redis://user:password@host:6379/0, rediss://… or unix:///path, "
    "redis+sentinel://host:26379,host2:26379/mymaster/0 or redis+cluster://host:6379,host2:6379, "
    "got something else; "
    "write / @ : # ? and % in a password as %2F %40 %3A %23 %3F and %25"
)
EMPTY: Final = (
    "Redis URL: expected one, such as redis://user:password@host:6379/0, got an empty text; "
    "is the variable or file empty from which it comes?"
)
NAMELESS: Final = (
    "Redis URL: expected the name of the master behind the Sentinels, got none; "
    "as in redis+sentinel://host:26379,host2:26379/mymaster"
)
LABEL: Final = 63  # maximum length of a label of a host name
PLAIN: Final = frozenset({"db", "username", "password"})
SENTINELS: Final = frozenset({"sentinel_username", "sentinel_password"})
TLS: Final = frozenset(
    {
        "ssl_ca_certs",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_cert_reqs",
        "ssl_check_hostname",
        "ssl_server_name",
    }
)
NEAR: Final = 0.8  # minimum similarity to a supported option, for a name to be quoted
_SCHEME = re.compile(r"(?P<tls>rediss?)(?:\+(?P<kind>sentinel|cluster))?")
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)?(?::(?P<port>\d{1,5}))?")
_YES_NO: Final[Mapping[str, bool]] = {
    "true": True,
    "yes": True,
    "1": True,
    "false": False,
    "no": False,
    "0": False,
}
_VERIFIED: Final[Mapping[str, bool]] = {"required": True, "optional": True, "none": False}


class Parsed(NamedTuple):
    """The content of a URL: the first fields of an Address."""

    places: tuple[Place, ...]
    kind: Kind
    master_name: str
    database: int
    login: Login
    sentinel_login: Login
    tls: Tls | None


def parse(url: str) -> Parsed:
    """Parse a URL; InvalidDocument otherwise."""
    if not url:
        raise InvalidDocument(EMPTY)
    try:
        return _parsed(url)
    except (ValueError, KeyError):
        raise InvalidDocument(EXPECTED) from None


def _parsed(url: str) -> Parsed:
    split = urlsplit(url)
    options = dict(parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
    _check(not split.fragment)
    if split.scheme in ("redis+sentinel", "rediss+sentinel") and not split.path.strip("/"):
        raise _refused(split.query, NAMELESS)
    userinfo, _, hosts = split.netloc.rpartition("@")
    kind, secure, words = _kind(split.scheme, split.path)
    known = _known(kind, secure=secure)
    if not options.keys() <= known:
        raise _refused(split.query, _no_option(split.scheme, options.keys() - known, known))
    default = SENTINEL_PORT if kind == "sentinel" else PORT
    if split.scheme == "unix":
        _check(not hosts)
        places: tuple[Place, ...] = (Place(unquote(split.path), SOCKET),)
    else:
        _check(kind == "standalone" or bool(hosts))
        places = tuple(_place(each, default) for each in hosts.split(","))
        _check(kind != "standalone" or len(places) == 1)
    return Parsed(
        places,
        kind,
        words[0] if kind == "sentinel" else "",
        _database(kind, options.get("db", words[-1])),
        _login(userinfo, options),
        _given(options.get("sentinel_username"), options.get("sentinel_password")),
        _tls(options) if secure else None,
    )


def _kind(scheme: str, path: str) -> tuple[Kind, bool, list[str]]:
    """Return the topology, whether TLS is requested, and the segments of the path: the database last."""
    if scheme == "unix":
        _check(bool(path))
        return "standalone", False, ["0"]
    found = _SCHEME.fullmatch(scheme)
    if found is None:
        raise ValueError
    kind = cast("Kind", found["kind"] or "standalone")
    words = unquote(path).removeprefix("/").removesuffix("/").split("/")
    if kind == "sentinel":
        _check(re.fullmatch(MASTER_NAME.pattern or "", words[0]) is not None and len(words) in (1, 2))
        return kind, found["tls"] == "rediss", [words[0], words[1] if words[1:] else "0"]
    _check(len(words) == 1)
    return kind, found["tls"] == "rediss", [words[0] or "0"]


def _known(kind: Kind, *, secure: bool) -> frozenset[str]:
    return PLAIN | (SENTINELS if kind == "sentinel" else frozenset()) | (TLS if secure else frozenset())


def _refused(query: str, message: str) -> Exception:
    """Return the error. With an @ in the query, the question mark may belong to a password, so no option is quoted."""
    return ValueError() if "@" in query else InvalidDocument(message)


def _no_option(scheme: str, unknown: Collection[str], known: Collection[str]) -> str:
    ours = PLAIN | SENTINELS | TLS
    near = [name for name in sorted(unknown) if difflib.get_close_matches(name, ours, cutoff=NEAR)]
    got = " and ".join(near) or "another"
    return f"Redis URL: expected an option of {scheme}://, got {got}; it takes {', '.join(sorted(known))}"


def _place(text: str, default: int) -> Place:
    found = _SERVER.fullmatch(text)
    if found is None:
        raise ValueError
    host = unquote(found["host"] or "localhost").strip("[]")
    port = int(found["port"] or default)
    _check(re.fullmatch(HOST.pattern or "", host) is not None and 0 < port < 1 << 16)
    _check(":" in host or all(0 < len(label) <= LABEL for label in host.removesuffix(".").split(".")))
    return Place(host, port)


def _database(kind: Kind, text: str) -> int:
    _check(text.isascii() and text.isdigit())
    _check(kind != "cluster" or int(text) == 0)
    return int(text)


def _login(userinfo: str, options: Mapping[str, str]) -> Login:
    user, colon, password = userinfo.partition(":")
    return _given(
        unquote(user) or options.get("username"), unquote(password) if colon else options.get("password")
    )


def _given(user: str | None, password: str | None) -> Login:
    return Login(Given(user) if user else None, Given(password) if password else None)


def _tls(options: Mapping[str, str]) -> Tls:
    files = {
        name: Mounted(Path(options[name]), f"{name}: expected the file")
        for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
        if options.get(name)
    }
    _check("ssl_certfile" in files or "ssl_keyfile" not in files)
    return Tls(
        files.get("ssl_ca_certs"),
        files.get("ssl_certfile"),
        files.get("ssl_keyfile"),
        options.get("ssl_server_name"),
        _VERIFIED[options.get("ssl_cert_reqs", "required")],
        _YES_NO[options.get("ssl_check_hostname", "true").lower()],
    )


def _check(right: bool) -> None:  # noqa: FBT001 -- like assert
    if not right:
        raise ValueError
