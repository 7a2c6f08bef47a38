"""What a reader of the benchmark can do something about."""

from __future__ import annotations

from typing import Final

from bench.reviews.errors import BenchError
from hack.controlplane import build, bundles
from tests.e2e.support.kube import KubeError
from tests.e2e.support.processes import StartError

FAILURES: Final = (
    *(build.UnavailableError, bundles.BuildError, StartError, KubeError, BenchError, OSError, AssertionError),
)
