"""Fixtures of the tests that run beside a node, inside its namespaces; elsewhere they are not collected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .short_lived import ShortLived
from .support import NAMESPACE, PLACE, NodeInstallation, NodeReviews

collect_ignore_glob = [] if PLACE in os.environ else ["test_*.py"]
# Started before all other tests, and looked at after them: a token lives longer than most of the others take.
LAST = "test_tokens.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what waits for a token's end behind all others."""
    items.sort(key=lambda item: item.path.name == LAST)


@pytest.fixture(scope="session")
def node() -> NodeInstallation:
    return NodeInstallation(Path(os.environ[PLACE]), Path(os.environ["NODE_BINARIES"]))


@pytest.fixture(scope="session", autouse=True)
def short_lived(request: pytest.FixtureRequest, node: NodeInstallation) -> Iterator[ShortLived | None]:
    """A replica whose token expires during the tests, and reviews that it answers all the time."""
    if not any(item.path.name == LAST for item in request.session.items):
        yield None
        return
    with ShortLived(node) as running:
        yield running


@pytest.fixture
def installed(node: NodeInstallation) -> NodeInstallation:
    """A complete installation of the image, and a namespace whose VMs are given the scheduler kubevirt."""
    node.install()
    node.offer_namespace()
    return node


@pytest.fixture
def restricted(node: NodeInstallation) -> Iterator[NodeInstallation]:
    """No installation, but a namespace for one, as an admin makes it, which is gone afterwards."""
    node.run("uninstall")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    node.admin.create("v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    yield node
    node.run("uninstall")
    # It has not the label of an installation's own.
    node.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s", timeout=70)


@pytest.fixture
def load(installed: NodeInstallation) -> Iterator[NodeReviews]:
    with NodeReviews(installed) as running:
        yield running
