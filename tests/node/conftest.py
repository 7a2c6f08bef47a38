"""Fixtures of the tests that run beside a node, inside its namespaces; elsewhere they are not collected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import PLACE, NodeInstallation, NodeReviews

collect_ignore_glob = [] if PLACE in os.environ else ["test_*.py"]
# Eleven minutes: only where it is named, with `make e2e-node PART=tokens`.
collect_ignore = ["test_tokens.py"]


@pytest.fixture(scope="session")
def node() -> NodeInstallation:
    """The cluster, and the program as its admin runs it."""
    return NodeInstallation(Path(os.environ[PLACE]), Path(os.environ["NODE_BINARIES"]))


@pytest.fixture
def installed(node: NodeInstallation) -> NodeInstallation:
    """A complete installation of the image, and a namespace whose VMs are given the scheduler kubevirt."""
    node.install()
    node.offer_namespace()
    return node


@pytest.fixture
def load(installed: NodeInstallation) -> Iterator[NodeReviews]:
    """VMs that are created all the time."""
    with NodeReviews(installed) as running:
        yield running
