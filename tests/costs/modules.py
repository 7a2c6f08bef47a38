"""Which modules a server in a cluster imports: each costs memory and time before it is ready."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

# With what `serve` imports later on, as soon as it knows that it serves a cluster.
_SERVE: Final = (
    *("webhook.cli.main", "webhook.cli.serve", "uvloop", "webhook.server.runtime.serve", "webhook.cluster.live"),
    *("webhook.k8s.client.transport", "webhook.server.background.drift"),
    *("webhook.server.background.events", "webhook.server.background.fidelity"),
)
_PROGRAM: Final = f"""
import json, sys
before = set(sys.modules)
import {", ".join(_SERVE)}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported() -> dict[str, int]:
    """How many modules beside Python's own, by the package that they belong to."""
    said = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True, timeout=120)
    counts: dict[str, int] = {}
    for name in json.loads(said.stdout):
        package = name.partition(".")[0]
        if package not in sys.stdlib_module_names:
            counts[package] = counts.get(package, 0) + 1
    return dict(sorted(counts.items()))
