"""The program as the cluster's admin runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .access import Access
from .processes import environment


def command(access: Access, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs the program as the cluster's admin."""
    kubeconfig = access.kubeconfig_for("admin", ("system:masters",))
    program = [sys.executable, "-m", "webhook", *map(str, arguments), f"--kubeconfig={kubeconfig}"]
    done = subprocess.run(
        program, capture_output=True, text=True, env=environment(), stdin=subprocess.DEVNULL, timeout=120
    )
    assert "Traceback" not in done.stderr
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done
