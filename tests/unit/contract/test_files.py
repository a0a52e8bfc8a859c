"""A reference to a Secret names one file below the directory of secrets, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from delayq.contract.files import secret_path

DIRECTORY = Path("/etc/delayq/secrets")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("..", "password"), ("../x", "password"), ("/etc", "passwd"), ("", "password"), ("x\n", "a")),
        *(("x", ""), ("x", "."), ("x", ".."), ("x", "..data"), ("x", "a/b"), ("x", "a\n"), ("x", "a\0")),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused_and_not_repeated(name: str, key: str) -> None:
    with pytest.raises(ValueError, match=r"^expected (the name of a Secret|a key of the Secret)$"):
        secret_path(DIRECTORY, name, key)
    assert secret_path(DIRECTORY, "redis-auth", ".a_b-C.1") == DIRECTORY / "redis-auth" / ".a_b-C.1"
