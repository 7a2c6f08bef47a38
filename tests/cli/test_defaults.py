"""What applies without options: the settings that are installed in the cluster, and the namespace of the context."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from tests.cli.runner import Refused, in_thread, run
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.golden_files import Golden
from webhook import names
from webhook.cluster import selection
from webhook.install.registration import configurations
from webhook.install.stored_settings import NAME
from webhook.install.webhooks import CONFIGURATIONS
from webhook.k8s.resources import CONFIG_MAPS, NAMESPACES, NODES
from webhook.kubevirt.definitions import DEFINITIONS
from webhook.kubevirt.definitions import NAMES as DEFINITION_NAMES
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES, KUBEVIRTS, UNSTRUCTURED_VMS, VMIS
from webhook.settings_file import parse

SETTINGS = """\
schedulers: {special: {healthCheck: "off"}}
scheduling: {schedulerName: special, spread: hostname}
kubevirt: {version: v1.8.4}
"""
# The namespace of the context; its VM names none.
SHOP = "shop"
VM: dict[str, Any] = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {"name": "web"},
    "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}}},
}


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    one = FakeApiServer()
    for resource in (KUBEVIRTS, NODES, VMIS):
        one.serve(resource)
    one.put(KUBEVIRTS, "kubevirt", "kubevirt", status={"phase": "Deployed", "observedKubeVirtVersion": "v1.8.4"})
    one.put(NAMESPACES, SHOP, metadata={"labels": {names.policy_label(names.SCHEDULING): names.ENFORCE}})
    one.put(UNSTRUCTURED_VMS, "web", SHOP, spec=VM["spec"])
    with in_thread(running(one)):
        yield one


def install(server: FakeApiServer, settings: str, namespace: str = NAME) -> None:
    server.put(CONFIG_MAPS, NAME, namespace, data={"settings.yaml": settings})
    (own,) = (
        one
        for one in configurations(parse(f"webhooks: {{service: {{namespace: {namespace}}}}}".encode(), ""))
        if one["kind"] == "MutatingWebhookConfiguration" and one["metadata"]["name"] == names.FIRST_CONFIGURATION
    )
    server.put(CONFIGURATIONS[own["kind"]], names.FIRST_CONFIGURATION, webhooks=own["webhooks"])


@pytest.fixture
def ask(server: FakeApiServer, tmp_path: Path) -> Any:
    return asking(server, tmp_path)


@pytest.fixture
def dead(tmp_path: Path) -> Any:
    """As `ask`, of a server that is not there."""
    server = FakeApiServer()
    server.url = "http://127.0.0.1:1"
    return asking(server, tmp_path)


def asking(server: FakeApiServer, tmp_path: Path) -> Any:
    """Runs a command with a context whose namespace is ``shop``, and with a VM that names none where it says VM."""
    config, manifest = tmp_path / "config", tmp_path / "vm.yaml"
    document = json.loads(Path(server.kubeconfig(config)).read_text())
    document["contexts"][0]["context"]["namespace"] = SHOP
    config.write_text(json.dumps(document))
    manifest.write_text(yaml.safe_dump(VM))

    def asked(command: str, *more: str | Path) -> Result:
        words = [str(manifest) if word == "VM" else word for word in command.split()]
        return run(*words, *more, "--kubeconfig", config)

    return asked


COMMANDS = ["review VM -o patch", "explain vm web -o json", "explain spread web -o json", "expand -f VM -o json"]
# What an answer shows of the settings that are installed.
SHOWN = ["special", '"special"', '"kubernetes.io/hostname"', '"namespace": "shop"']


@pytest.mark.parametrize("place", [NAME, "elsewhere"])
@pytest.mark.parametrize(("command", "shown"), [*zip(COMMANDS, SHOWN, strict=True)])
def test_the_installed_settings_apply(server: FakeApiServer, ask: Any, command: str, shown: str, place: str) -> None:
    install(server, SETTINGS, place)
    result = ask(command)

    assert (result.exit_code, shown in result.stdout) == (0, True), result.output
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("settings: "))
    assert line.startswith(f"settings: ConfigMap {place}/{NAME}; namespace")
    assert line.endswith(": shop")


@pytest.mark.parametrize("command", COMMANDS[:3])
def test_a_file_takes_precedence(server: FakeApiServer, ask: Any, command: str, tmp_path: Path) -> None:
    install(server, SETTINGS)
    (tmp_path / "settings.yaml").write_text("scheduling: {spread: 'off'}")
    result = ask(command, "--config", tmp_path / "settings.yaml")

    assert "special" not in result.output
    assert f"settings: {tmp_path}/settings.yaml; " in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_by_the_defaults_says_why(server: FakeApiServer, ask: Any, command: str, golden: Golden) -> None:
    golden(ask(command).stderr)
    server.fail(CONFIG_MAPS.path(NAME, NAME), 403)
    golden(ask(command).stderr)


@pytest.mark.parametrize("command", COMMANDS)
def test_installed_settings_that_are_not_valid(server: FakeApiServer, ask: Any, command: str, refused: Refused) -> None:
    install(server, "schedulerz: {}")
    refused(ask(command))


@pytest.mark.parametrize("command", ["review VM --fail-on warn", "expand -f VM"])
def test_objects_of_the_same_file_count_in_the_namespace_of_the_context(
    server: FakeApiServer, ask: Any, command: str, tmp_path: Path
) -> None:
    server.put(NAMESPACES, SHOP, metadata={"labels": {names.policy_label(names.INSTANCETYPES): names.ENFORCE}})
    for resource in (INSTANCETYPES, CLUSTER_INSTANCETYPES):
        server.serve(resource)
    size = {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineInstancetype",
        "metadata": {"name": "small"},
        "spec": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}},
    }
    named = {"instancetype": {"name": "small", "kind": size["kind"]}}
    vm = {**VM, "spec": {**VM["spec"], **named, "template": {"spec": {"domain": {"devices": {}}}}}}
    manifest = tmp_path / "vm.yaml"

    manifest.write_text(yaml.safe_dump(vm))
    alone = ask(command)
    manifest.write_text(yaml.safe_dump_all([vm, size]))
    together = ask(command)

    assert "small" in alone.output
    assert (alone.exit_code, together.exit_code) == (1, 0), alone.output + together.output


def test_a_version_in_the_settings_leaves_the_definitions_of_the_cluster_in_force(
    server: FakeApiServer, ask: Any, tmp_path: Path
) -> None:
    """What the API server would deny is in its definitions, whatever rules the settings name."""
    install(server, SETTINGS)
    properties = {"spec": {"type": "object", "properties": {"runStrategy": {"type": "string", "enum": ["Always"]}}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    spec = {
        "group": names.KUBEVIRT_GROUP,
        "names": {"kind": "VirtualMachine", "plural": "virtualmachines"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "schema": schema}],
    }
    server.put(DEFINITIONS, DEFINITION_NAMES["VirtualMachine"], spec=spec)
    results = [ask(command) for command in ("review VM", "expand -f VM")]

    assert [result.exit_code for result in results] == [1, 1], results[0].output + results[1].output
    assert all('runStrategy has the invalid value "Halted"; use Always' in result.output for result in results)


def forbid(server: FakeApiServer, *paths: str) -> None:
    for path in paths:
        server.fail(path, 403, times=100)


# What a user with permissions in one namespace may not read: all that is not in it, but for the namespace itself.
OUTSIDE = (
    *(NAMESPACES.path(), NODES.path(), KUBEVIRTS.path(), CONFIG_MAPS.path(NAME, NAME)),
    *(CONFIGURATIONS["MutatingWebhookConfiguration"].path("", NAME), DEFINITIONS.path()),
    *(DEFINITIONS.path("", name) for name in DEFINITION_NAMES.values()),
)


@pytest.mark.parametrize(
    ("command", "status"), [("review VM", 3), ("explain vm web", 0), ("explain vm web -o json", 0)]
)
def test_an_owner_of_one_namespace_gets_an_answer_with_its_gaps(
    server: FakeApiServer, ask: Any, command: str, status: int, golden: Golden
) -> None:
    """Without the installed settings a review cannot say for sure that an object is allowed."""
    forbid(server, *OUTSIDE)
    result = ask(command)

    assert result.exit_code == status, result.output
    assert "grant list on nodes" in result.output
    assert "did not answer" not in result.output
    if "json" not in command:
        golden(result.output)


@pytest.mark.parametrize(
    "command",
    [
        *("review VM --config FILE", "explain vm web --config FILE", "explain spread web", "explain migration web"),
        *("expand -f VM", "doctor", "cleanup", "uninstall", "explain drain --rolling", "explain update"),
    ],
)
def test_a_refused_connection_is_final(
    dead: Any, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.yaml").write_text("{}")
    # Whoever waits ends with another sentence.
    monkeypatch.setattr(selection, "_READY_SECONDS", 0.2)
    result = dead(command.replace("FILE", str(tmp_path / "settings.yaml")))

    assert (result.exit_code, result.stdout) in ((2, ""), (3, ""))
    assert (result.stderr.count("\n"), result.stderr.count("connection refused")) == (1, 1)
