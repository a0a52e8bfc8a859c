"""The same document means the same: each kind of scalar, and of structure, as kubectl reads it and as delayq does.

kubectl reads a file and prints JSON, without an API server.
"""

from __future__ import annotations

import json
import random
import subprocess
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from delayq.client.kubernetes_yaml import load_all

from tests.cluster.harness.binaries import binary

if TYPE_CHECKING:
    from pathlib import Path

REFUSED: Final = "refused"

WORDS: Final = (
    "yes Yes YES yEs no No NO on On ON off Off OFF y Y n N true True TRUE tRue false False FALSE null Null NULL nUll ~ "
    "<< = inf nan Infinity NaN e5 - + . .. @x"
)
NUMBERS: Final = (
    "0 -0 00 -0.0 0.0 +5 -5 --5 +-5 1.0 1.5 5. 5.e2 .5 -.5 +.5 .5e3 .5_0 .5_ ._5 .5e999 .e5 1e3 1E3 1e+3 1e-3 1e 1e+ "
    "5e-6 25921e05 1e20 1e21 1e22 1e999 -1e999 1e-999 1e-6 1e-7 3.0e2 1.5e300 4.9e-324 1.7976931348623157e308 0.1 "
    "1_000 1__0 1_ +_1 0_7 0_x1f 0x1f 0X1F -0x1f +0x1f 0x 0xg 0b11 0B11 -0b11 0b 0b2 0o17 0O17 -0o17 0o 0o8 017 -017 "
    "08 09 018 08.5 0777 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 "
    "18446744073709551615 18446744073709551616 +9223372036854775808 +18446744073709551615 0x7fffffffffffffff "
    "0x8000000000000000 0xffffffffffffffff 0x10000000000000000 +0xffffffffffffffff -0x8000000000000001 "
    "01777777777777777777777 07777777777777777777777777 1.2345678901234567e18 123456789012345678.5 "
    ".inf -.Inf +.INF .nan 1.5.2 1.2.3.4 10Mi 500m 50% 0x1p-2 12:30:00 9:30 22:22 1:59:59.5 190:20:30 "
    "2026-01-01 2026-1-1 2026-01-01T00:00:00Z 2001-12-14t21:59:43.10-05:00"
)
OTHERS: Final = (
    *(
        "'5'",
        '"5"',
        '"0x1f"',
        "''",
        '""',
        "",
        "1,000",
        "a b:c d",
        "http://x:80/y",
        "a#b",
        "a #b",
        "'it''s'",
        "😀",
    ),
    *(
        "!!str 5",
        "!!int 5",
        '!!int "5"',
        "!!int x",
        "!!int 1e3",
        "!!float 5",
        "!!float 0x10",
        "!!bool yes",
        "!!bool 1",
    ),
    *(
        '!!bool "no"',
        "!!str yes",
        "!!str",
        "!!null ~",
        "!!null 1",
        "!!binary aGVsbG8=",
        "!!binary a",
        "!foo 12",
    ),
    *(
        "!!timestamp 2026-01-01",
        "!!timestamp x",
        "!<tag:x,2000:y> 5",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!foo {a: 1}",
    ),
    *(
        r'"\x41\u00e9\U0001F600\N\_\L\P\e\0"',
        r'"\ud83d\ude00"',
        "[1e3, 0o17, 9:30, y, -1]",
        "{a: , b: ~, ? c}",
    ),
    *(
        "{1: a, 0x10: d, on: e, -5: f, 2026-01-01: g, 12:30: h}",
        "{~: a}",
        "{18446744073709551615: a}",
        "{[1]: a}",
    ),
    *(
        "{a: 1, <<: {a: 2, b: 3}}",
        "{<<: {a: 2, b: 3}, a: 1}",
        "{<<: [{a: 1}, {a: 2, b: 2}]}",
        "{<<: 5}",
        '{"<<": 1}',
    ),
    *(
        "[&x {a: 1e3}, {<<: *x, b: 9:30}, *x]",
        "[a:b, c]",
        "{u: http://x/y}",
        '{"a":1,"b":1.0}',
        "[a, b,]",
        "*unknown",
    ),
    *(
        "|\n    12:30\n     a\n\n    b",
        ">-\n    a\n    b\n\n     c\n    d",
        "|+\n    a\n\n",
        "a\n    b\n\n    c # x",
    ),
    *('"a\n    b\\\n    c\n\n    d"', "'a\n\n    b'", "1" * 120),
)
JSON: Final = (
    *(
        '"\\ud83d\\ude00"',
        "1e3",
        "1.0",
        "-0",
        "-0.0",
        "12345678901234567890",
        "[1e-7, 1e21, 0.1]",
        '{"a": "a\\/b"}',
    ),
    *("017", "NaN", '"\\u0000"', "yes"),
)


def drawn(count: int) -> list[str]:
    """Scalars that look like numbers, and words of Kubernetes."""
    chance = random.Random(1)

    def one() -> str:
        rest = "".join(chance.choice("0123456789_.eExXoObB+-:aft") for _ in range(chance.randrange(8)))
        return chance.choice("+-.0123456789yntfo~") + rest

    found = [one() for _ in range(count)]
    # A number such as 0b-1 is a mistake of kubectl's; the colon would end a key.
    return [each for each in found if "0b-" not in each and "0b+" not in each and not each.endswith(":")]


def document(spec: str, number: int = 0) -> str:
    head = f"apiVersion: delayq.dev/v1alpha1\nkind: DelaySchedule\nmetadata: {{name: s{number}}}\n"
    return f"{head}spec: {spec}\n"


def json_document(spec: str, number: int = 0) -> str:
    head = (
        f'"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {{"name": "s{number}"}}'
    )
    return f'{{{head}, "spec": {spec}}}'


def kubectl(texts: list[str], directory: Path, suffix: str = "yaml") -> list[object]:
    """The spec of each document, numbered in its name, as kubectl reads it from a file of its own; REFUSED."""
    for number, text in enumerate(texts):
        (directory / f"{number}.{suffix}").write_text(text, encoding="utf-8")
    command = [binary("kubectl"), "label", "--local", f"--filename={directory}", "a=b", "--output=json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    bodies = json.loads(b"[%b]" % done.stdout.replace(b"\n}\n{", b"\n},\n{"))
    found = {body["metadata"]["name"]: body["spec"] for body in bodies}
    return [found.get(f"s{number}", REFUSED) for number in range(len(texts))]


def delayq(text: str) -> object:
    """The same as delayq reads it."""
    try:
        [document] = load_all(text.encode())
    except (yaml.YAMLError, ValueError):
        return REFUSED
    assert isinstance(document, dict)
    return document["spec"]


def shown(value: object) -> str:
    """The value, so that true, 1 and 1.0 differ."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize(
    "scalars",
    [WORDS.split(), NUMBERS.split(), list(OTHERS), drawn(1000)],
    ids=["words", "numbers", "others", "drawn"],
)
def test_a_scalar_has_the_value_that_kubectl_reads(scalars: list[str], tmp_path: Path) -> None:
    lists = [document(f"\n- {each}", number) for number, each in enumerate(scalars)]
    there, here = kubectl(lists, tmp_path), [delayq(each) for each in lists]
    differ = [
        (text, theirs, ours)
        for text, theirs, ours in zip(scalars, there, here, strict=True)
        if shown(theirs) != shown(ours)
    ]
    assert differ == []
    assert sum(each is not REFUSED for each in here) > len(scalars) / 2


def test_a_json_document_has_the_value_that_kubectl_reads(tmp_path: Path) -> None:
    texts = [json_document(each, number) for number, each in enumerate(JSON)]
    assert [*map(shown, map(delayq, texts))] == [*map(shown, kubectl(texts, tmp_path, "json"))]


@pytest.mark.parametrize(
    "spec",
    ["{1.5: a}", '"\\ud83d"', "{a: 1, a: 2}", "{1: a, '1': b}"],
    ids=["fraction", "half", "twice", "same"],
)
def test_what_kubectl_reads_by_chance_is_refused(spec: str) -> None:
    assert delayq(document(spec)) == REFUSED
