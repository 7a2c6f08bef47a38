from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml

from tests.cli.runner import EXAMPLES, Refused, run
from tests.e2e.support.manifests import parse as documents
from tests.golden_files import Golden
from tests.install.schedulers.configurations import configuration, profile
from webhook.install import plan
from webhook.install.schedulers.render import VARIANTS
from webhook.settings_file import MAX_BYTES, parse


def test_webhooks_by_url() -> None:
    """Those by Service are held to what the repository has, below."""
    _, mutating, _ = documents(run("manifests", "webhooks", "--url", "https://localhost:8443").stdout)
    assert mutating["webhooks"][0]["clientConfig"]["url"].startswith("https://localhost:8443/mutate/")


def test_an_installation_as_a_tool_applies_it_from_a_repository(tmp_path: Path) -> None:
    """It is what `install` plans, which `tests/e2e` applies."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("events: off\n")
    options = ("--config", settings, "--image", "registry.example/webhook:1")
    made = documents(run("manifests", "install", "-n", "infra-vms", *options).output)

    text = "events: off\nwebhooks: {service: {namespace: infra-vms}}\n"
    planned = plan.of(EXAMPLES.parent / "manifests", "kubernetes", text, "settings", "registry.example/webhook:1")
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
    settings.write_bytes(b"{}\n" + b"#" * MAX_BYTES)
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


CLEAN = (0, "0 errors, 0 warnings\n")


REPORTS = Path(__file__).parents[1] / "data" / "reports" / "scheduler-lint"


def written(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "scheduler.yaml"
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value, sort_keys=False))
    return path


def lint(path: str | Path, *options: str, stdin: str | None = None) -> tuple[int, str]:
    result = run("scheduler", "lint", path, *options, stdin=stdin)
    return result.exit_code, result.output


@pytest.mark.parametrize("whose", [(), ("--cluster-scheduler",)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_printed_has_no_mistakes(variant: str, whose: tuple[str, ...], tmp_path: Path) -> None:
    assert lint(written(tmp_path, run("scheduler", "render", variant, *whose).output), *whose) == CLEAN


@pytest.mark.control("scheduling-waits")
@pytest.mark.parametrize("url", ["http://127.0.0.1:8446", "https://layers.example:8446/", "http://[::1]:1/v1/layers"])
@pytest.mark.parametrize("variant", ["spread", "pack"])
def test_the_extender_for_layers_has_no_mistakes(variant: str, url: str, tmp_path: Path) -> None:
    path = written(tmp_path, run("scheduler", "render", variant, "--layers", url).output)
    (extender,) = yaml.safe_load(path.read_text())["extenders"]

    assert lint(path) == CLEAN
    assert extender["urlPrefix"] == url.partition("/v1")[0].rstrip("/") + "/v1/layers"
    assert extender["prioritizeVerb"] == "prioritize"
    assert (extender["ignorable"], extender["nodeCacheCapable"]) == (True, True)
    # A plugin that does more than score could keep pods from being placed.
    assert not {"filterVerb", "bindVerb", "preemptVerb", "managedResources"} & extender.keys()
    assert ("tlsConfig" in extender) is url.startswith("https")


@pytest.mark.parametrize(
    "url",
    ["", "x", "127.0.0.1:8446", "http://a", "ftp://a:1", "http://a:b", "http://a:1/x", "http://a:1?x", "http://["],
)
def test_what_is_no_url_of_an_extender_is_bad_input(url: str) -> None:
    assert run("scheduler", "render", "spread", "--layers", url).exit_code == (2 if url else 0)


def test_problems_have_a_line_and_end_in_status_1(tmp_path: Path) -> None:
    path = written(tmp_path, configuration(profile(), profile()))

    result = run("scheduler", "lint", path, "-o", "json")

    (problem,) = json.loads(result.stdout)
    line = path.read_text().splitlines().index("- schedulerName: kubevirt", 8) + 1
    assert (result.exit_code, problem["code"], problem["where"]) == (1, "duplicate-profile", f"{path}:{line}")


def test_the_lease_can_be_named_by_flags_of_the_scheduler(refused: Refused) -> None:
    """As of OpenShift's operator, whose configuration in the manifests names none."""
    shipped = Path(__file__).parents[2] / "manifests" / "scheduler" / "openshift" / "configuration.yaml"
    assert "[lease-clash]" in lint(shipped)[1]
    assert lint(shipped, "--lease", "openshift-secondary-scheduler-operator/secondary-scheduler") == CLEAN
    refused(run("scheduler", "lint", shipped, "--lease", "secondary-scheduler"))


def test_a_warning_alone_is_status_0(tmp_path: Path) -> None:
    status, output = lint(written(tmp_path, configuration(profile(plugins={}))))
    assert status == 0
    assert "[image-locality-on]" in output
    assert output.endswith("0 errors, 1 warning\n")


def test_a_configuration_in_a_config_map_is_read_too(tmp_path: Path) -> None:
    inner = yaml.safe_dump(configuration(profile("vms")))
    path = written(tmp_path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": inner}})
    assert lint(path, "--profile", "vms") == CLEAN
    assert lint(path)[0] == 1
    assert lint("-", stdin=yaml.safe_dump(configuration())) == CLEAN


@pytest.mark.parametrize("field", ["data", "stringData"])
def test_a_configuration_in_a_secret_is_read_too(field: str, tmp_path: Path) -> None:
    inner = yaml.safe_dump(configuration())
    held = base64.b64encode(inner.encode()).decode() if field == "data" else inner
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    assert lint(written(tmp_path, secret | {field: {"k": held}})) == CLEAN
    # What is no text holds no configuration.
    for bad in ("%", base64.b64encode(b"\xff").decode(), 5, None):
        assert lint(written(tmp_path, secret | {"data": {"k": bad}}))[0] == 2
    assert lint(written(tmp_path, secret | {"data": ["k"]}))[0] == 2


# Configurations from public reports, with the plugins and fields of kube-scheduler's earlier versions that they have.
REPORTED = {
    "a-trimaran-secret": ["unknown-plugin", "no-leader-election"],
    "a2-trimaran-configmap": ["unknown-plugin", "no-leader-election"],
    "a3-trimaran": ["unknown-plugin", "no-leader-election"],
    # A number of a plugin of scheduler-plugins in quotes.
    "b-v1beta1": ["stale-api-version", "invalid-field", "unknown-plugin", "unknown-plugin"],
    "c-deckhouse": ["stale-api-version", "lease-clash"],
}


@pytest.mark.parametrize("name", REPORTED)
def test_configurations_from_public_reports(name: str) -> None:
    path = REPORTS / f"{name}.yaml"
    profile = "default-scheduler" if name[0] in "bc" else "trimaran-scheduler"

    result = run("scheduler", "lint", path, "--profile", profile, "-o", "json")

    problems = [
        one for one in json.loads(result.stdout) if one["code"] not in ("image-locality-on", "default-profile-twice")
    ]
    assert [one["code"] for one in problems] == REPORTED[name]
    for one in problems:
        assert "NodeResourcesAllocatable" not in one["text"] + one["remedy"]
    if name[0] in "ab":
        (least,) = [one for one in problems if "NodeResourcesLeastAllocated" in one["text"]]
        assert "NodeResourcesFit" in least["remedy"]
        assert "scoringStrategy.type: LeastAllocated" in least["remedy"]


@pytest.mark.parametrize("value", [{}, {"kind": "Pod"}, [1], "text", None])
def test_a_file_without_a_configuration_is_bad_input(value: object, tmp_path: Path) -> None:
    assert lint(written(tmp_path, value) if value is not None else tmp_path / "none.yaml")[0] == 2


def test_a_prometheus_is_asked_where_one_is_given() -> None:
    rendered = run("scheduler", "render", "load-aware", "--prometheus", "http://p:9090")
    assert 'address: "http://p:9090"' in rendered.output
    assert run("scheduler", "render", "spread", "--prometheus", "http://p:9090").exit_code == 2
