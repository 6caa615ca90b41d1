"""The real services, for whoever has credentials."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_NEEDED = {
    "TestE2B": ("E2B_API_KEY",),
    "TestOpenSandbox": ("OPEN_SANDBOX_DOMAIN", "OPEN_SANDBOX_API_KEY"),
    "TestCube": ("CUBE_API_URL", "CUBE_TEMPLATE_ID"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _NEEDED)
def test_the_contract_live(name: str) -> None:
    for variable in _NEEDED[name]:
        if not os.environ.get(variable):
            pytest.skip(f"no credentials: {variable} is not set")
    # Our own conftest refuses every connection that leaves this machine.
    file = Path(__file__).with_name("live_contract.py")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "--noconftest", f"{file}::{name}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
