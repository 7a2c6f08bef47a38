"""Fixtures of the tests that run beside guests, inside the namespaces; elsewhere they are not collected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import IMAGES, Guests

collect_ignore_glob = [] if IMAGES in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster() -> Guests:
    """KubeVirt, and the webhook with its scheduler, installed as an admin does."""
    guests = Guests(Path(os.environ["NODE_DIRECTORY"]), Path(os.environ["NODE_BINARIES"]))
    guests.install_all()
    return guests


@pytest.fixture
def guests(cluster: Guests) -> Iterator[Guests]:
    cluster.offer()
    yield cluster
    cluster.end_all()
