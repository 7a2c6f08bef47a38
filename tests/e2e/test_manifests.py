"""`kubevirt-webhook manifests webhooks`: what an admin applies, and the API server takes."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from .support.access import Access
from .support.kube import Json, KubeError
from .support.processes import ROOT
from .support.webhook_server import CONFIGURATIONS

Renamed: TypeAlias = Callable[..., list[Json]]

by_service_or_url = pytest.mark.parametrize("options", [(), ("--url=https://localhost:8443",)], ids=["service", "url"])
both_ways = pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["client-side", "server-side"])


def printed(*options: str) -> str:
    """The output of the command."""
    command = [sys.executable, "-m", "webhook", "manifests", "webhooks", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def selecting(directory: Path, *values: str) -> str:
    """The option for settings by which only namespaces with one of these labels are matched."""
    selector = {"matchExpressions": [{"key": "e2e", "operator": "In", "values": values}]}
    settings = directory / "settings.json"
    settings.write_text(json.dumps({"webhooks": {"namespaceSelector": selector}}))
    return f"--config={settings}"


@pytest.fixture
def renamed(plane: Access, tmp_path: Path) -> Iterator[Renamed]:
    """Makes manifests that match no namespace, under names that no other test has; they are deleted at the end."""
    suffix = secrets.token_hex(4)
    config = selecting(tmp_path, "nothing")

    def make(*options: str) -> list[Json]:
        documents = list(yaml.safe_load_all(printed(config, *options)))
        for document in documents:
            document["metadata"]["name"] += f"-{suffix}"
        return documents

    yield make
    for resource in CONFIGURATIONS:
        for found in plane.admin.list(resource):
            if found["metadata"]["name"].endswith(suffix):
                plane.admin.delete(resource, found["metadata"]["name"])


@by_service_or_url
@both_ways
def test_the_api_server_takes_them_as_they_are(plane: Access, options: tuple[str, ...], way: tuple[str, ...]) -> None:
    done = plane.kubectl("apply", "--dry-run=server", *way, "-f-", stdin=printed(*options))

    assert done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "mutatingwebhookconfiguration.admissionregistration.k8s.io/kubevirt-webhook",
        "mutatingwebhookconfiguration.admissionregistration.k8s.io/zz-kubevirt-webhook",
        "validatingwebhookconfiguration.admissionregistration.k8s.io/kubevirt-webhook",
    ]


def test_values_that_look_like_something_else_stay_text(plane: Access, tmp_path: Path) -> None:
    values = ["y", "on", "1e5", "0o17", "12345"]

    manifests = printed(selecting(tmp_path, *values))
    done = plane.kubectl("apply", "--dry-run=server", "--output=json", "-f-", stdin=manifests)

    entries = [entry for item in json.loads(done.stdout)["items"] for entry in item.get("webhooks", ())]
    assert entries
    assert [entry["namespaceSelector"]["matchExpressions"][-1]["values"] for entry in entries] == [values] * len(
        entries
    )


@by_service_or_url
@both_ways
def test_applied_again_nothing_changes(
    plane: Access, renamed: Renamed, options: tuple[str, ...], way: tuple[str, ...]
) -> None:
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": renamed(*options)})
    first = plane.kubectl("apply", "--output=json", *way, "-f-", stdin=manifests).stdout

    assert plane.kubectl("diff", *way, "-f-", stdin=manifests).stdout == ""
    again = plane.kubectl("apply", "--output=json", *way, "-f-", stdin=manifests).stdout

    assert json.loads(again) == json.loads(first)


def test_the_api_server_compiles_the_conditions(plane: Access, renamed: Renamed) -> None:
    for document in renamed():
        for entry in document.get("webhooks", ()):
            for condition in entry["matchConditions"]:
                condition["expression"] += " && object.nonsense("
            with pytest.raises(KubeError, match="compilation failed") as refused:
                plane.admin.apply({**document, "webhooks": [entry]})
            assert refused.value.message.count("compilation failed") == len(entry["matchConditions"])
