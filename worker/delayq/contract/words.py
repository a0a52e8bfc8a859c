"""The texts a document holds, by name, with the pattern each one follows.

Patterns are read by Python and by the API server's RE2 alike: ASCII classes only, no look-ahead.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Final

from delayq.contract.cron_hints import hint
from delayq.contract.kinds import Text

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_CRON_WORD: Final = "@(annually|yearly|monthly|weekly|daily|midnight|hourly)"
_CRON_FIELD: Final = "[0-9A-Za-z*,/?-]+"

OBJECT_NAME: Final = Text(
    expected="at most 63 lower-case letters, digits, dots and dashes",
    max_length=63,
    pattern=rf"^{_LABEL}(\.{_LABEL})*$",
)
QUEUE_NAME: Final = Text(
    expected="at most 63 lower-case letters, digits and dashes",
    max_length=63,
    pattern=f"^{_LABEL}$",
)
NAMESPACE: Final = replace(QUEUE_NAME, expected="the name of a namespace")
ACCOUNT_NAME: Final = Text(
    expected="the name of a ServiceAccount", max_length=253, pattern=rf"^{_LABEL}(\.{_LABEL})*$"
)
UID: Final = Text(expected="at most 64 letters, digits and dashes", max_length=64, pattern="^[A-Za-z0-9-]+$")
KEY_PREFIX: Final = Text(
    # No colon, which ends it in a key: the rule `~shop:*` for a user must not open the keys of `shop:eu`.
    expected="at most 64 letters, digits, dots, dashes and underscores",
    max_length=64,
    pattern="^[A-Za-z0-9._-]+$",
)
_NO_COLON: Final = "[A-Za-z0-9._-]"
HOST: Final = Text(
    # No colon, or the two and more of an IPv6 address: one would begin a port, which no resolver takes.
    expected="a host name or address without a port",
    max_length=253,
    pattern=f"^({_NO_COLON}+|{_NO_COLON}*:{_NO_COLON}*:[A-Za-z0-9._:-]*)$",
    hint=lambda value: (
        "leave out the port: it belongs into the field port" if re.fullmatch(r"[^:@]+:[0-9]+", value) else ""
    ),
)
MASTER_NAME: Final = Text(
    expected="the name of the master in Sentinel", max_length=253, pattern="^[A-Za-z0-9._-]+$"
)
SECRET_NAME: Final = Text(
    expected="the name of a Secret", max_length=253, pattern=rf"^{_LABEL}(\.{_LABEL})*$", quiet=True
)
CONFIG_MAP_NAME: Final = replace(SECRET_NAME, expected="the name of a ConfigMap")
SECRET_KEY: Final = Text(
    expected="a key of the Secret", max_length=253, pattern=r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$", quiet=True
)
CONFIG_MAP_KEY: Final = replace(SECRET_KEY, expected="a key of the ConfigMap")
PERCENTILE: Final = Text(
    expected='a decimal number from "1" to "99.999"', max_length=6, pattern=r"^[1-9][0-9]?(\.[0-9]{1,3})?$"
)
CALLABLE: Final = Text(
    expected='a callable such as "shop.orders:cancel"',
    max_length=512,
    pattern=rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}(\.{_IDENTIFIER})*$",
)
TASK_KIND: Final = Text(
    expected="names of kinds: at most 64 letters, digits, dots, dashes and underscores, no dot or dash at the start",
    max_length=64,
    pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
)
KIND_NAME: Final = replace(
    TASK_KIND,
    expected="the name of a kind, of letters, digits, dots, dashes and underscores, no dot or dash at the start",
)
URL: Final = Text(
    expected="an http or https URL without user name and password",
    max_length=2048,
    pattern=r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?([/?#][!-~]*)?$",
    quiet=True,
)
HEADER_NAME: Final = Text(
    expected="header names of letters, digits and !#$%&'*+.^_`|~-",
    max_length=256,
    pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
)
HEADER_VALUE: Final = Text(
    expected="one line of at most 4096 printable ASCII characters",
    max_length=4096,
    min_length=0,
    pattern="^[ -~]*$",
    quiet=True,
)
HEADER_SCHEME: Final = Text(
    expected="a word of letters, digits and dashes, such as Bearer",
    max_length=64,
    pattern="^[A-Za-z0-9-]+$",
    quiet=True,
)
VARIABLE_NAME: Final = Text(
    expected="names of variables: letters, digits and underscores", max_length=256, pattern=f"^{_IDENTIFIER}$"
)
ARGUMENT: Final = Text(
    expected="text of at most 32768 characters without NUL",
    max_length=32_768,
    min_length=0,
    pattern=r"^[^\x00]*$",
    quiet=True,
)
STATEMENT: Final = Text(
    expected="one SQL statement of at most 8192 characters without NUL",
    max_length=8192,
    pattern=r"^[^\x00]*$",
    quiet=True,
)
LABEL_NAME: Final = Text(
    expected="names such as release or example.com/team",
    max_length=317,
    # [.] and not \.: this one stands in a CEL string, too.
    pattern=f"^({_LABEL}([.]{_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$",
)
LABEL_VALUE: Final = Text(
    expected="at most 63 letters, digits, dashes, dots and underscores",
    max_length=63,
    min_length=0,
    pattern="^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
)
ANNOTATION_VALUE: Final = Text(
    expected="text of at most 1024 characters without NUL",
    max_length=1024,
    min_length=0,
    pattern=r"^[^\x00]*$",
)
IMAGE: Final = Text(expected="the name of a container image", max_length=1024, pattern="^[!-~]+$")
SCHEDULE: Final = Text(
    expected='a cron schedule of five fields, such as "* * * * *"',
    max_length=128,
    pattern=rf"^({_CRON_WORD}|{_CRON_FIELD}( +{_CRON_FIELD}){{4}})$",
    hint=partial(hint, interval="write */5 * * * *, as a CronJob counts in minutes", question=True),
)
TIME_ZONE: Final = Text(
    expected='the name of a time zone, such as "Europe/Paris"',
    max_length=64,
    pattern="^[A-Za-z][A-Za-z0-9_+/-]*$",
)
CRON: Final = Text(
    expected='a cron expression of five fields, such as "0 2 * * *"',
    max_length=128,
    pattern=rf"^({_CRON_WORD}|[0-9A-Za-z*,/#-]+( +[0-9A-Za-z*,/#-]+){{4}})$",
    hint=partial(hint, interval="set everySeconds instead of cron"),
)
INSTANT: Final = Text(
    expected='an instant with its zone, such as "2026-12-01T09:00:00Z"',
    max_length=35,
    pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$",
)
TAG: Final = Text(
    expected="tags of at most 64 printable ASCII characters without spaces, not beginning with @",
    max_length=64,
    pattern="^[!-?A-~][!-~]*$",
)
