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
from webhook.k8s.client import adapter

if __name__ == "__main__":
    adapter.SERVICE_ACCOUNT = Path(os.environ["BENCH_SERVICE_ACCOUNT"])  # type: ignore[misc] # a pod has its own
    uvloop.new_event_loop = noting(uvloop.new_event_loop, Path(os.environ["BENCH_TURNS"]))  # type: ignore[assignment] # any maker of loops will do
    main(["serve", *sys.argv[1:]])
