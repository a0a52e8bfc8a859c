"""The contract is light: the operator imports it, and nothing with it."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_contract_imports_the_standard_library_only() -> None:
    script = """
import sys
before = set(sys.modules)
import delayq.contract, delayq.contract.metrics, delayq.contract.files
tops = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(tops - sys.stdlib_module_names - {"delayq"}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
