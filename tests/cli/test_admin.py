from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from tests.cli.runner import run
from webhook.install import plan

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_webhooks_by_service_and_by_url() -> None:
    service = list(yaml.safe_load_all(run("manifests", "webhooks").output))
    url = list(yaml.safe_load_all(run("manifests", "webhooks", "--url", "https://localhost:8443").output))

    names = [document["metadata"]["name"] for document in service]
    assert names == ["kubevirt-webhook", "zz-kubevirt-webhook", "kubevirt-webhook"]
    assert service[1]["webhooks"][0]["clientConfig"]["service"]["namespace"] == "kubevirt-webhook"
    assert url[1]["webhooks"][0]["clientConfig"]["url"].startswith("https://localhost:8443/mutate/")


def test_an_installation_as_a_tool_applies_it_from_a_repository(tmp_path: Path) -> None:
    """It is what `install` plans, which `tests/e2e` applies."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("events: off\n")
    options = ("--config", settings, "--image", "registry.example/webhook:1")
    made = [*yaml.safe_load_all(run("manifests", "install", "-n", "infra-vms", *options).output)]

    text = "events: off\nwebhooks: {service: {namespace: infra-vms}}\n"
    planned = plan.of(ROOT / "manifests", "kubernetes", text, "settings", "registry.example/webhook:1")
    assert made == [*planned.manifests]
    by_default = [*yaml.safe_load_all(run("manifests", "install", "--image", "i", "--overlay", "openshift").output)]
    assert {one["metadata"].get("namespace", "kubevirt-webhook") for one in by_default} == {"kubevirt-webhook"}


def test_an_installation_is_in_one_namespace(tmp_path: Path, refused: Callable[[Result], None]) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("webhooks: {service: {namespace: other}}\n")
    refused(run("manifests", "install", "-n", "infra-vms", "--image", "i", "--config", settings))


def test_url_must_be_https(refused: Callable[[Result], None]) -> None:
    refused(run("manifests", "webhooks", "--url", "http://localhost"))


def test_show_is_valid_settings(tmp_path: Path, golden: Callable[[str], None]) -> None:
    shown = run("config", "show", "--config", EXAMPLES / "settings.yaml").output
    again = tmp_path / "settings.yaml"
    again.write_text(shown)

    assert yaml.safe_load(shown)["scheduling"]["schedulerName"] == "kubevirt"
    checked = run("config", "check", again)
    assert checked.exit_code == 0
    golden(checked.output.replace(f"{again}", "FILE"))
    assert run("config", "show", "--config", again).output == shown


def test_schemas() -> None:
    audit, config = (json.loads(run(group, "schema").output) for group in ("audit", "config"))

    assert set(audit["$defs"]) >= {"Record", "FidelityRecord", "DriftRecord"}
    assert set(config["properties"]) >= {"server", "tls", "schedulers", "scheduling", "webhooks", "kubevirt"}


def test_check_tells_every_mistake(tmp_path: Path, golden: Callable[[str], None]) -> None:
    wrong = tmp_path / "settings.yaml"
    wrong.write_text("scheduling:\n  schedulrName: kubevirt\n  clusterWide: perhaps\nwebhook: {}\n")
    result = run("config", "check", wrong)

    assert result.exit_code == 2
    lines = result.stderr.replace(f"{wrong}", "FILE").splitlines()
    assert [line.partition(": ")[0].removeprefix("Error: ") for line in lines] == ["Error", "FILE:3", "FILE:4"]
    assert "FILE:2: " in lines[0]
    golden("\n".join(lines))


@pytest.mark.parametrize("command", ["show", "check"])
def test_missing_file(command: str, tmp_path: Path) -> None:
    arguments = ["--config"] if command == "show" else []
    result = run("config", command, *arguments, tmp_path / "none.yaml")

    assert result.exit_code == 2
    assert "none.yaml" in result.stderr


@pytest.mark.parametrize("overlay", ["kubernetes", "openshift"])
def test_the_manifests_in_the_repository_are_those_that_we_print(overlay: str) -> None:
    directory = EXAMPLES.parent / "manifests" / "overlays" / overlay
    kept = (directory / "webhooks.yaml").read_text()

    assert kept.partition("\n")[2] == run("manifests", "webhooks", "--config", directory / "settings.yaml").output, (
        "print them anew"
    )
