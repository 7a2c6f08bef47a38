from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.runner import Refused, run
from tests.e2e.support.manifests import parse as documents
from tests.golden_files import Golden
from webhook.install import plan
from webhook.settings.file import MAX_BYTES, parse

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_webhooks_by_url() -> None:
    """Those by Service are held to what the repository has, below."""
    _, mutating, _ = documents(run("manifests", "webhooks", "--url", "https://localhost:8443").output)
    assert mutating["webhooks"][0]["clientConfig"]["url"].startswith("https://localhost:8443/mutate/")


def test_an_installation_as_a_tool_applies_it_from_a_repository(tmp_path: Path) -> None:
    """It is what `install` plans, which `tests/e2e` applies."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("events: off\n")
    options = ("--config", settings, "--image", "registry.example/webhook:1")
    made = documents(run("manifests", "install", "-n", "infra-vms", *options).output)

    text = "events: off\nwebhooks: {service: {namespace: infra-vms}}\n"
    planned = plan.of(ROOT / "manifests", "kubernetes", text, "settings", "registry.example/webhook:1")
    assert made == [*planned.manifests]
    by_default = documents(run("manifests", "install", "--image", "i", "--overlay", "openshift").output)
    assert {one["metadata"].get("namespace", "kubevirt-webhook") for one in by_default} == {"kubevirt-webhook"}


def test_an_installation_is_in_one_namespace(tmp_path: Path, refused: Refused) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("webhooks: {service: {namespace: other}}\n")
    refused(run("manifests", "install", "-n", "infra-vms", "--image", "i", "--config", settings))


@pytest.mark.parametrize("name", ["true", "123", "1e3"])
def test_a_namespace_may_have_a_name_that_yaml_reads_as_something_else(name: str) -> None:
    made = documents(run("manifests", "install", "-n", name, "--image", "i").output)
    (settings,) = (one["data"][plan.SETTINGS_KEY] for one in made if one["kind"] == "ConfigMap")
    assert parse(settings.encode(), "settings").webhooks.service.namespace == name
    assert {one["metadata"].get("namespace", name) for one in made} == {name}


NO_NAMESPACES = ["", "Foo_Bar", "a/b", "a.b", "a}, x: {b", "a\nb", "a" * 64, "-a"]
NO_IMAGES = ["", " ", "a b", "a\nb", "registry.example/Webhook:1", "here:", "here@sha256:1"]


@pytest.mark.parametrize(
    ("namespace", "image", "option"),
    [
        *((name, "i", "'-n' / '--namespace'") for name in NO_NAMESPACES),
        *(("infra-vms", image, "'--image'") for image in NO_IMAGES),
    ],
)
def test_what_no_namespace_is_called_and_no_node_could_pull_is_refused_where_it_is_given(
    namespace: str, image: str, option: str
) -> None:
    """Applied by kubectl, the API server would deny it after half of the objects, or its pods would never start."""
    result = run("manifests", "install", "-n", namespace, "--image", image)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Invalid value for {option}" in result.stderr
    assert "webhooks.service.namespace" not in result.stderr


def test_images_that_nodes_pull_are_taken() -> None:
    for image in ("i", "localhost:5000/a/b", "registry.example/a@sha512:" + "0" * 128, "a:1@sha256:" + "0" * 64):
        assert f"image: {image}" in run("manifests", "install", "--image", image).output


def test_a_settings_file_is_not_to_be_split(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_bytes(b"#" * (MAX_BYTES + 1))
    said = run("config", "check", settings).stderr
    assert said
    assert run("manifests", "install", "--image", "i", "--config", settings).stderr == said


def test_url_must_be_https(refused: Refused) -> None:
    refused(run("manifests", "webhooks", "--url", "http://localhost"))


def test_show_is_valid_settings(tmp_path: Path, golden: Golden) -> None:
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


def test_check_tells_every_mistake(tmp_path: Path, golden: Golden) -> None:
    wrong = tmp_path / "settings.yaml"
    wrong.write_text("scheduling:\n  schedulrName: kubevirt\n  clusterWide: perhaps\nwebhook: {}\n")
    result = run("config", "check", wrong)

    lines = result.stderr.replace(f"{wrong}", "FILE").splitlines()
    assert (result.exit_code, [line.removeprefix("Error: ")[:7] for line in lines]) == (
        2,
        ["FILE:2:", "FILE:3:", "FILE:4:"],
    )
    golden("\n".join(lines))


@pytest.mark.parametrize("command", ["show", "check"])
def test_missing_file(command: str, tmp_path: Path) -> None:
    result = run("config", command, *(["--config"] if command == "show" else []), tmp_path / "none.yaml")
    assert (result.exit_code, "none.yaml" in result.stderr) == (2, True)


@pytest.mark.parametrize("overlay", ["kubernetes", "openshift"])
def test_the_manifests_in_the_repository_are_those_that_we_print(overlay: str) -> None:
    directory = EXAMPLES.parent / "manifests" / "overlays" / overlay
    kept = (directory / "webhooks.yaml").read_text()
    assert kept.partition("\n")[2] == run("manifests", "webhooks", "--config", directory / "settings.yaml").output, (
        "print them anew"
    )
