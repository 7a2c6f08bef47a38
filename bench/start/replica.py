"""A server as in a pod, with a service account from another directory: ``python -m bench.start.replica``.

Its event loop writes down its long turns.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import uvloop

from bench.start.turns import noting
from webhook.cli.main import main
from webhook.cli.serve import without_system_authorities
from webhook.k8s.client.identity import Kubeconfig

# As `serve` does; the system's CAs would be in memory else, and be measured.
with without_system_authorities():
    from webhook.k8s.client import transport

_connect = transport.connect


async def _connect_as_pod(target: Kubeconfig | str | None = None) -> transport.KubernetesTransport:
    # Where `serve` imports the client too: what is imported first is no less, but lies elsewhere in memory.
    from webhook.k8s.client import adapter  # noqa: PLC0415

    adapter.SERVICE_ACCOUNT = Path(os.environ["BENCH_SERVICE_ACCOUNT"])  # type: ignore[misc] # a pod has its own
    return await _connect(target)


if __name__ == "__main__":
    transport.connect = _connect_as_pod
    uvloop.new_event_loop = noting(uvloop.new_event_loop, Path(os.environ["BENCH_TURNS"]))  # type: ignore[assignment] # any maker of loops will do
    main(["serve", *sys.argv[1:]])
