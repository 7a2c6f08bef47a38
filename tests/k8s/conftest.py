"""Fixtures of the tests that read YAML."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from tests.k8s.yaml_case import Refused, rejection
from webhook.k8s import yaml_documents


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def both_loaders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_documents, "_LOADER", getattr(yaml, request.param))


@pytest.fixture
def refused(golden_catalogue: Callable[[str, str], None]) -> Refused:
    """The mistakes in a text, of which each has a line, held to the golden file."""

    def check(text: str | bytes, *lines: int) -> str:
        told = rejection(text)
        assert [line.partition(": ")[0] for line in told.split("\n")] == [f"f.yaml:{line}" for line in lines]
        for line in told.split("\n"):
            golden_catalogue("k8s/yaml_documents.txt", line.partition(": ")[2])
        return told

    return check


@pytest.fixture
def told(golden_catalogue: Callable[[str, str], None]) -> Callable[[str], None]:
    """Compares the errors in a file with the golden file, whatever reads the file."""
    return lambda text: golden_catalogue("k8s/yaml_files.txt", text)
