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
from webhook.forecast.validation import DryRun, DryRunAnswer
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


LABEL, GROUP = names.policy_label, f"{names.DOMAIN}/group"
UNKNOWN = "settings-unreadable"


def answers(
    server: FakeApiServer, ask: Any, tmp_path: Path, *, labels: dict[str, str], annotations: dict[str, str], vm: Any
) -> tuple[Result, dict[str, Any], Result, dict[str, Any]]:
    """What ``review`` and ``explain vm`` say of a VM whose owner may not read the installed settings, as JSON, too."""
    forbid(server, CONFIG_MAPS.path(NAME, NAME))
    modes = {LABEL(policy): mode for policy, mode in labels.items()}
    server.put(NAMESPACES, SHOP, metadata={"labels": modes, "annotations": annotations})
    server.put(UNSTRUCTURED_VMS, "web", SHOP, metadata=vm["metadata"], spec=vm["spec"])
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump(vm))
    reviewed, explained = ask("review VM --fail-on warn -o json"), ask("explain vm web -o json")
    return reviewed, json.loads(reviewed.stdout), explained, json.loads(explained.stdout)


def vm_with(template: dict[str, Any], spec: dict[str, Any] | None = None) -> dict[str, Any]:
    template = {"spec": VM["spec"]["template"]["spec"]} | template
    return {**VM, "metadata": {"name": "web"}, "spec": {**VM["spec"], **(spec or {}), "template": template}}


def codes_of(policies: Any, policy: str) -> set[tuple[str, str]]:
    return {
        (each["decision"], reason["code"])
        for each in policies
        if each["policy"] == policy
        for reason in each["reasons"]
    }


GROUPED = vm_with({"metadata": {"labels": {GROUP: "database"}}})
LIMITS = f"{names.DOMAIN}/size-limits"


@pytest.mark.parametrize(
    ("labels", "annotations", "vm", "policy", "said"),
    [
        ({"groups": "enforce"}, {}, GROUPED, "groups", ("error", UNKNOWN)),
        ({"groups": "enforce"}, {}, VM, "groups", ("allowed", "no-group")),
        ({"groups": "off"}, {}, GROUPED, "groups", ("skipped", "out-of-scope")),
        ({}, {}, GROUPED, "groups", ("error", UNKNOWN)),
        ({"sizes": "enforce"}, {}, VM, "sizes", ("error", UNKNOWN)),
        ({"sizes": "enforce"}, {LIMITS: '{"memory": {"max": "2Gi"}}'}, VM, "sizes", ("error", UNKNOWN)),
        ({"sizes": "enforce"}, {LIMITS: '{"memory": {"max": "512Mi"}}'}, VM, "sizes", ("denied", "size-out-of-limits")),
        (
            {"sizes": "warn"},
            {LIMITS: '{"memory": {"max": "512Mi"}}'},
            VM,
            "sizes",
            ("would-deny", "size-out-of-limits"),
        ),
        ({"scheduling": "enforce"}, {}, VM, "scheduling", ("error", UNKNOWN)),
        ({"naming": "enforce"}, {}, VM, "naming", ("allowed", "name-migratable")),
    ],
)
def test_without_the_installed_settings(
    server: FakeApiServer,
    ask: Any,
    tmp_path: Path,
    labels: dict[str, str],
    annotations: dict[str, str],
    vm: dict[str, Any],
    policy: str,
    said: tuple[str, str],
) -> None:
    """What depends on them is neither allowed nor denied nor warned of; what does not depend on them is said."""
    reviewed, result, explained, explanation = answers(
        server, ask, tmp_path, labels=labels, annotations=annotations, vm=vm
    )

    assert codes_of(result["judgements"], policy) == {said}
    assert said in codes_of(explanation["requests"][0]["policies"], policy)
    is_counted = said[0] in ("denied", "would-deny")
    assert (bool(result["warnings"]), reviewed.exit_code) == (said[0] == "would-deny", 1 if is_counted else 3)
    assert explained.exit_code == (1 if said[0] == "denied" else 0)


def test_defaults_without_the_installed_settings(server: FakeApiServer, ask: Any, tmp_path: Path) -> None:
    """What the namespace gives is known; of all other defaults it is not, and the VM keeps what it was given."""
    given = {f"{names.DOMAIN}/injected-priority-class-name": "vms", names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt"}
    status = {"phase": "Running", "nodeName": "node-1"}
    server.put(VMIS, "web", SHOP, metadata={"annotations": given}, spec=VM["spec"]["template"]["spec"], status=status)
    own = {f"{names.DOMAIN}/default-eviction-strategy": "LiveMigrate", names.SPREAD_ANNOTATION: "hostname"}
    labels = {"defaults": "enforce", "scheduling": "enforce", "headroom": "enforce"}
    _, result, _, explanation = answers(server, ask, tmp_path, labels=labels, annotations=own, vm=VM)
    defaults = {each["field"]: each for each in explanation["defaults"]}
    by_kind = {each["kind"]: each for each in explanation["requests"]}
    unknown = "the installed settings"

    assert [defaults[field]["unread"] for field in ("priorityClassName", "tolerations")] == [unknown, unknown]
    assert defaults["priorityClassName"]["given"] == "vms"
    assert (defaults["evictionStrategy"]["next"], defaults["evictionStrategy"]["unread"]) == ("LiveMigrate", "")
    (of_vmi,) = (each for each in by_kind["VirtualMachineInstance"]["policies"] if each["policy"] == "defaults")
    assert (of_vmi["decision"], [each["code"] for each in of_vmi["reasons"]]) == (
        "patched",
        ["default-injected", UNKNOWN],
    )
    # The namespace has its pods spread; which scheduler they get, the settings say.
    (of_pod,) = (each for each in by_kind["Pod"]["policies"] if each["policy"] == "scheduling")
    assert {each["path"][1] for each in of_pod["changes"] if each["path"][0] == "spec"} == {"topologySpreadConstraints"}
    assert (explanation["scheduler"], explanation["settingsGap"] != "") == ("", True)
    assert codes_of(by_kind["Pod"]["policies"], "headroom") == {("error", UNKNOWN)}
    assert (result["decision"], result["patch"]) == ("error", [])


def test_what_kubevirt_denies_is_denied_without_the_installed_settings(
    server: FakeApiServer, ask: Any, tmp_path: Path
) -> None:
    for resource in (INSTANCETYPES, CLUSTER_INSTANCETYPES):
        server.serve(resource)
    server.put(INSTANCETYPES, "small", SHOP, spec={"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}})
    named = {"instancetype": {"name": "small", "kind": "VirtualMachineInstancetype"}}
    labels = {"instancetypes": "enforce"}
    vm = vm_with({}, named)
    reviewed, result, *_ = answers(server, ask, tmp_path, labels=labels, annotations={}, vm=vm)

    assert (reviewed.exit_code, result["decision"], result["code"]) == (1, "denied", "instancetype-denied")


def test_a_dry_run_decides_without_the_installed_settings(
    server: FakeApiServer, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster, which knows its settings, has said what becomes of the VM."""

    async def accepted(*_: object) -> DryRunAnswer:
        return DryRunAnswer([])

    monkeypatch.setattr(DryRun, "ask", accepted)
    forbid(server, CONFIG_MAPS.path(NAME, NAME))
    result = ask("review VM --server-dry-run -o json")

    assert (result.exit_code, json.loads(result.stdout)["decision"]) == (0, "allowed"), result.output
    assert codes_of(json.loads(result.stdout)["judgements"], "scheduling") == {("error", UNKNOWN)}
    # What was not evaluated here does not look as if nobody had.
    assert "the installed settings; the cluster itself has evaluated it in the dry run" in result.stdout


@pytest.mark.parametrize(
    ("labels", "annotations", "status"),
    [
        ({"scheduling": "enforce"}, {}, 3),
        ({}, {names.SPREAD_ANNOTATION: "hostname"}, 3),
        ({"scheduling": "enforce"}, {names.SPREAD_ANNOTATION: "hostname"}, 0),
        ({"scheduling": "enforce"}, {names.SPREAD_ANNOTATION: "off"}, 1),
        ({"scheduling": "off"}, {}, 1),
    ],
)
def test_spread_without_the_installed_settings(
    server: FakeApiServer, ask: Any, labels: dict[str, str], annotations: dict[str, str], status: int
) -> None:
    forbid(server, CONFIG_MAPS.path(NAME, NAME))
    modes = {LABEL(policy): mode for policy, mode in labels.items()}
    server.put(NAMESPACES, SHOP, metadata={"labels": modes, "annotations": annotations})
    result, text = ask("explain spread web -o json"), ask("explain spread web")

    assert (result.exit_code, text.exit_code) == (status, status)
    assert (json.loads(result.stdout)["code"] == UNKNOWN, UNKNOWN in text.stdout) == (status == 3, status == 3)


def test_a_default_of_the_namespace_is_given_without_the_installed_settings(
    server: FakeApiServer, ask: Any, tmp_path: Path
) -> None:
    for resource in (INSTANCETYPES, CLUSTER_INSTANCETYPES):
        server.serve(resource)
    server.put(INSTANCETYPES, "small", SHOP, spec={"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}})
    own = {names.DEFAULT_INSTANCETYPE_ANNOTATION: "VirtualMachineInstancetype/small"}
    vm = vm_with({"spec": {"domain": {"devices": {}}}})
    _, result, *_ = answers(server, ask, tmp_path, labels={"instancetypes": "enforce"}, annotations=own, vm=vm)
    made, validated = result["judgements"]

    assert result["object"]["spec"]["instancetype"]["name"] == "small"
    assert [each["code"] for each in made["reasons"]] == ["defaults-injected", UNKNOWN]
    assert (made["decision"], validated["decision"], result["decision"]) == ("patched", "error", "error")
