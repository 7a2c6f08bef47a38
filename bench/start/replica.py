"""A server as in a pod, with a service account from another directory: ``python -m bench.start.replica``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from webhook.cli.main import main
from webhook.k8s.client import credentials

if __name__ == "__main__":
    credentials.SERVICE_ACCOUNT = Path(os.environ["BENCH_SERVICE_ACCOUNT"])  # type: ignore[misc] # a pod has its own
    main(["serve", *sys.argv[1:]])
