"""A reference to a Secret names one file below the directory of secrets, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from delayq.contract.files import secret_path

DIRECTORY = Path("/etc/delayq/secrets")


@pytest.mark.parametrize("key", ["password", "tls.crt", ".hidden", "a_b-C.1"])
def test_a_secret_is_a_directory_and_its_key_a_file(key: str) -> None:
    assert secret_path(DIRECTORY, "redis-auth", key) == DIRECTORY / "redis-auth" / key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("..", "password"),
        ("../x", "password"),
        ("/etc", "passwd"),
        ("", "password"),
        ("x", ""),
        ("x", "."),
        ("x", ".."),
        ("x", "..data"),
        ("x", "../y"),
        ("x", "/etc/passwd"),
        ("x", "a/b"),
        ("x", "a\n"),
        ("x\n", "a"),
        ("x", "a\0"),
        ("x", "a" * 254),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused_and_not_repeated(name: str, key: str) -> None:
    with pytest.raises(ValueError, match=r"^expected (the name of a Secret|a key of the Secret)$"):
        secret_path(DIRECTORY, name, key)
