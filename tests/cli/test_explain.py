from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.runner import EXAMPLES, Ended, Refused, in_thread, run
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.forecast import clusters
from tests.golden_files import Golden
from tests.policies.groups import world as of_groups
from tests.policies.migration.world import OWNED, UID, node, vmi
from webhook import names
from webhook.cli.explain import IN_ROLES, LISTS, duration, reading, unreadable_fix
from webhook.cli.options import Source
from webhook.cluster import selection
from webhook.cluster.files import FilesCluster
from webhook.errors import Unavailable
from webhook.facts import Key, ListKey, NodesKey, ObjectKey, Unreadable, VmiKey
from webhook.forecast.placement import SCHEMA as PLACEMENT_SCHEMA
from webhook.forecast.report import SCHEMA, UPDATE_SCHEMA, DrainPlan, UpdatePlan
from webhook.forecast.requests import _WithVmi
from webhook.forecast.snapshot import BUDGETS, RUNNING_PODS
from webhook.forecast.start import condition_of
from webhook.forecast.vm import VM_SCHEMA, VmExplanation
from webhook.k8s.client.api import Forbidden
from webhook.k8s.resources import CONFIG_MAPS, LEASES, NAMESPACES, NODES, PODS
from webhook.kubevirt.definitions import DEFINITIONS
from webhook.kubevirt.resources import KUBEVIRTS, UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.machines import CLAIMS, LAUNCHER_PODS, MIGRATIONS, PLACED_VMIS, UNFINISHED, VOLUMES
from webhook.placement.target_pods import RUNTIME_CLASSES
from webhook.policies.defaults.virtualmachineinstances import PRIORITY_CLASSES
from webhook.policies.migration.explanation import SCHEMA as MIGRATION_SCHEMA
from webhook.policies.migration.explanation import MigrationExplanation
from webhook.policies.scheduling.spread import constraints
from webhook.settings_file import default_settings

CLUSTER, DRAIN = EXAMPLES / "cluster", EXAMPLES / "drain"


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text("scheduling: {spread: hostname}\n")
    return file


def explain(command: str, cluster: Path, *arguments: str | Path) -> Result:
    return run("explain", command, *arguments, "--cluster-from", cluster)


explain_spread, explain_migration = (partial(explain, command, CLUSTER) for command in ("spread", "migration"))
explain_drain, explain_update = (partial(explain, command, DRAIN) for command in ("drain", "update"))


def test_a_vm_whose_pods_get_constraints(settings_file: Path, ended: Ended) -> None:
    ended(explain_spread("shop/web", "--config", settings_file), 0)


def test_by_the_built_in_settings_there_are_none(ended: Ended) -> None:
    ended(explain_spread("web", "-n", "shop"), 1)


def test_other_modes(settings_file: Path, tmp_path: Path, ended: Ended) -> None:
    shutil.copytree(CLUSTER, tmp_path / "cluster")
    file = tmp_path / "cluster" / "namespaces.yaml"
    file.write_text(file.read_text().replace("/scheduling: enforce", "/scheduling: warn"))
    ended(explain("spread", tmp_path / "cluster", "shop/web", "--config", settings_file), 1)


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_for_programs(output: str, read: Callable[[str], Any], settings_file: Path) -> None:
    answer = read(explain_spread("shop/web", "--config", settings_file, "-o", output).stdout)

    assert answer.pop("reason")
    assert answer == {
        "schema": "kubevirt-webhook.github.io/explain-spread/v1alpha1",
        "namespace": "shop",
        "name": "web",
        "kind": "VirtualMachineInstance",
        "mode": "enforce",
        "code": "spread-injected",
        "injected": constraints("hostname"),
        "present": [],
        "atNextStart": None,
    }


def test_a_running_vm_whose_template_asks_for_something_else(
    settings_file: Path, tmp_path: Path, golden: Golden
) -> None:
    """Its migrations follow the VMI: before, the answer for these was told as if it were that of the next start."""
    changed = retemplated(tmp_path, annotations={names.SPREAD_ANNOTATION: "zone"})
    golden(explain("spread", changed, "shop/web", "--config", settings_file).output)


def test_a_migration_that_kubevirt_would_send_elsewhere(ended: Ended) -> None:
    result = explain_migration("db", "-n", "shop", "--to", "zone=b")
    ended(result, 1)
    contradictions = re.findall("Contradiction: .*(?:\n.*[^.])*", result.output)
    assert ["volume" in each for each in contradictions] == [True], "the first line has said the other"


def test_one_node(ended: Ended) -> None:
    ended(explain_migration("shop/web", "--to", "zone=a", "--node", "node-6"), 1)
    ended(explain_migration("shop/web", "--node", "node-2"), 0)


def test_for_tools() -> None:
    result = explain_migration("shop/db", "--to", "zone=b", "-o", "json")
    read = json.loads(result.stdout)

    assert (result.exit_code, read["schema"], read["addedNodeSelector"]) == (1, MIGRATION_SCHEMA, {"zone": "b"})
    assert read["kubevirt"]["drops"] == ["zone=b"]
    assert msgspec.convert(read, MigrationExplanation).eligible.names == []


def directory(tmp_path: Path, *objects: Any) -> Path:
    # JSON is YAML, and of hundreds of nodes it is written in no time.
    (tmp_path / "cluster.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    return tmp_path


def whole(kind: str, obj: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind} | obj


def instance(obj: dict[str, Any] | None = None) -> dict[str, Any]:
    return whole("VirtualMachineInstance", vmi() if obj is None else obj, "kubevirt.io/v1")


def test_everything_there_is_to_say(tmp_path: Path, ended: Ended) -> None:
    stuck = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
    near: Any = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    found = vmi({"zone": "a"}, affinity={"podAffinity": near})
    found["status"]["conditions"] = [stuck]
    nodes = [whole("Node", node(name, "a")) for name in ("node-a1", "node-a2")]
    cluster = directory(tmp_path, instance(found), *nodes)
    ended(explain("migration", cluster, "demo/web01"), 1)


def test_more_than_one_contradiction(tmp_path: Path, golden: Golden) -> None:
    cluster = directory(tmp_path, instance(vmi({"zone": "a", "disk": "ssd"})))
    output = explain("migration", cluster, "demo/web01", "--to", "zone=b", "--to", "disk=hdd").output
    assert output.count("\nContradiction: ") == 2
    assert "Not eligible" not in output
    golden(output)


def test_of_many_reasons_the_largest_are_told(tmp_path: Path) -> None:
    nodes = [whole("Node", node(f"n{number}", "a")) for number in range(30)]
    for each in nodes:
        each["spec"]["taints"] = [{"key": "only-for", "value": each["metadata"]["name"], "effect": "NoSchedule"}]
    cluster = directory(tmp_path, instance(), *nodes)

    result = explain("migration", cluster, "demo/web01", "--to", "zone=b")

    assert re.search(r"^  30  .*zone=b", result.output, re.MULTILINE)
    assert (result.exit_code, result.output.count(" only-for=")) == (1, 19)
    assert "\n  and 11 more reasons; -o json shows all.\n" in result.output


def test_a_ticket_is_a_hundred_columns_wide(tmp_path: Path) -> None:
    nodes = [whole("Node", node(f"worker-{number:04}.example.com", "a")) for number in range(200)]
    cluster = directory(tmp_path, instance(), *nodes)
    for to in ("zone=a", "zone=b"):
        output = explain("migration", cluster, "demo/web01", "--to", to).output
        assert len(output.splitlines()) < 20
        assert max(map(len, output.splitlines())) <= 100
        assert "\x1b" not in output


@contextmanager
def api_server() -> Iterator[FakeApiServer]:
    """One that has what `explain migration` asks for: nothing is watched."""
    server = FakeApiServer()
    for resource in (KUBEVIRTS, NODES, LAUNCHER_PODS, PLACED_VMIS, CLAIMS, VOLUMES):
        server.serve(resource)
    for one in (node("node-a1", "a"), node("node-a2", "a"), node("node-b1", "b")):
        server.put(NODES, one["metadata"]["name"], metadata=one["metadata"])
    found = vmi(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    server.put(PLACED_VMIS, "web01", "demo", metadata={"uid": UID}, spec=found["spec"], status=found["status"])
    owned: Any = {"labels": {"kubevirt.io/created-by": UID}, "ownerReferences": OWNED}
    server.put(LAUNCHER_PODS, "p", "demo", metadata=owned, spec={"nodeName": "node-a1"})
    server.put(CLAIMS, "data", "demo", spec={"volumeName": "pv-1"})
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    server.put(VOLUMES, "pv-1", spec={"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}})
    with in_thread(running(server)):
        yield server


def test_a_running_cluster(tmp_path: Path, golden: Golden) -> None:
    with api_server() as server:
        config = server.kubeconfig(tmp_path / "config")
        result = run("explain", "migration", "demo/web01", "--kubeconfig", config)
        verbs = {asked.verb for asked in server.asked}
        server.fail("/api/v1/nodes", 403)
        forbidden = run("explain", "migration", "demo/web01", "--kubeconfig", config)

    assert (result.exit_code, forbidden.exit_code, "Not evaluated" in result.output) == (0, 3, False)
    assert "kubevirt-webhook:explain-nodes" in forbidden.stderr
    golden(result.output)
    golden(forbidden.stderr)
    assert verbs == {"get"}, "nothing is watched"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        *(("drain node-1", 1), ("drain node-2", 0), ("drain node-1 node-2", 1), ("drain --rolling", 1)),
        *(("drain --rolling --parallel 2", 1), ("drain --node-selector zone=b", 0)),
        *(("update", 1), ("update --to-version 1.10", 1), ("update --outdated", 0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_drain_or_an_update_does(command: str, status: int, golden: Golden) -> None:
    name, *arguments = command.split()
    result = explain(name, DRAIN, *arguments)
    assert (result.exit_code, max(map(len, result.output.splitlines())) <= 100) == (status, True)
    golden(result.output)


def test_pods_that_copy_disks_are_cut_off(tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: datetime(2026, 11, 21, 13, tzinfo=UTC).timestamp())
    shutil.copytree(DRAIN, tmp_path / "drain")
    labels = {"app": "containerized-data-importer", "cdi.kubevirt.io": "importer"}
    importer = clusters.filler("importer-disk", "node-2", owner="PersistentVolumeClaim", **labels)
    importer["metadata"]["ownerReferences"][0] |= {"apiVersion": "v1", "name": "disk"}
    conversion = clusters.filler("plan-vm-1-abcde", "node-2", **{"forklift.app": "virt-v2v"})
    del conversion["metadata"]["ownerReferences"]
    conversion["status"]["startTime"] = "2026-11-21T10:00:00Z"
    pods = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in (importer, conversion)]
    (tmp_path / "drain" / "pods.yaml").write_text(yaml.safe_dump_all(pods))

    for arguments, heading in (["node-2"], "Cut off:"), (["--rolling"], "cuts off  pod"):
        result = explain("drain", tmp_path / "drain", *arguments)
        assert heading in result.output
        if arguments == ["node-2"]:
            assert result.exit_code == 0
            golden(result.output)


def test_a_plan_for_programs() -> None:
    result = explain_drain("node-1", "-o", "json")
    read = json.loads(result.stdout)
    found = msgspec.convert(read, DrainPlan)
    said = (result.exit_code, found.schema, found.moves, found.shuts_down, found.blocks)
    assert said == (1, SCHEMA, 3, 1, 2)
    assert read["limits"] | {"perCluster": 5, "perNode": 2} == read["limits"]
    slow, fast = (
        msgspec.convert(json.loads(explain_drain("node-1", "-o", "json", "--bandwidth", text).stdout), DrainPlan)
        for text in ("16Mi", "1Gi")
    )
    # Bandwidth changes the time only.
    assert (slow.seconds > fast.seconds, slow.at_most_seconds) == (True, fast.at_most_seconds)
    assert [step.vms for step in slow.steps] == [step.vms for step in fast.steps]


def test_evictions_of_an_update_are_shown(tmp_path: Path, ended: Ended) -> None:
    vms = [clusters.vm(name, "a", evictionStrategy="None") for name in ("web", "db", "old")]
    updates = {"workloadUpdateMethods": ["Evict"], "batchEvictionSize": 2}
    kubevirt = {"metadata": {"name": "kv", "namespace": "kv"}, "spec": {"workloadUpdateStrategy": updates}}
    objects = [whole("KubeVirt", kubevirt | {"status": {"phase": "Deployed"}}, "kubevirt.io/v1")]
    objects += [whole("Node", clusters.node("a"))]
    objects += [each for vmi, pod in vms for each in (instance(vmi), whole("Pod", pod))]
    ended(explain("update", directory(tmp_path, *objects), "--to-version", "1.9"), 0)


def test_an_update_to_an_older_version_is_called_a_downgrade() -> None:
    lines = [
        explain_update("--from-version", *versions).output.splitlines()[0]
        for versions in (("1.9", "--to-version", "1.8"), ("1.8", "--to-version", "1.9"), ("1.8", "--to-version", "1.8"))
    ]
    assert [line.split(" of ")[0].split(" from ")[0] for line in lines] == ["A downgrade", "An update", "An update"]


def test_an_update_for_programs() -> None:
    read = json.loads(explain_update("-o", "json", "--from-version", "1.8", "--to-version", "4.23").stdout)
    found = msgspec.convert(read, UpdatePlan)

    assert (found.schema, found.moves, found.stays, found.failing) == (UPDATE_SCHEMA, 6, 2, 1)
    assert (found.from_version, found.to_version, found.methods) == ("1.8.4", "1.9.0", ("LiveMigrate",))
    assert {each.name: each.code for each in found.vms if each.outcome == "stays-outdated"} == {
        "db": "no-eligible-node",
        "files": "not-migratable",
    }


LABEL = '--to "zone=not a label!"'


@pytest.mark.parametrize(
    ("cluster", "command"),
    [
        *((CLUSTER, f"spread {words}") for words in ("shop/none", "shop/web -n lab", "shop/UPPER")),
        *((CLUSTER, f"migration shop/web {words}") for words in ("--to zone", LABEL, "--node node-9")),
        *((CLUSTER, f"migration {vm}") for vm in ("shop/nope", "web", "shop/archive", "a/b/c", "shop/", "shop/Web")),
        *((CLUSTER, f"migration shop/web {words}") for words in ("-n lab", "--kubeconfig x")),
        *((DRAIN, f"drain {words}") for words in ("", "node-9", "node-1 node-1", "--node-selector zone=z")),
        *((DRAIN, f"drain node-1 {words}") for words in ("--bandwidth fast", "--bandwidth 0", "--kubeconfig x")),
        *((DRAIN, f"drain {words}") for words in ("node-1 --parallel 2", "node-1 --node-selector zone=a")),
        (DRAIN, "drain --rolling --node-selector zone"),
        *((DRAIN, f"update {words}") for words in ("--from-version new", "--to-version 1.5", "--kubeconfig x")),
        (DRAIN, "update --to-version 1.9 --bandwidth 0"),
        *((CLUSTER, f"vm {words}") for words in ("shop/nope", "a/b/c", "shop/web -n lab", "shop/web --kubeconfig x")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_one_sentence(cluster: Path, command: str, refused: Refused) -> None:
    name, *arguments = shlex.split(command)
    refused(explain(name, cluster, *arguments))


@settings(max_examples=25)
@given(st.text(max_size=10), st.text(max_size=20), st.text(max_size=10), st.booleans())
def test_whatever_is_asked_is_answered(name: str, selector: str, node: str, rolling: bool) -> None:
    migration = explain_migration(f"--to={selector}", f"--node={node}", "--", name)
    drain = explain_drain(f"--bandwidth={selector}", *(["--rolling"] if rolling else []), "--", name)
    for result in (migration, drain):
        assert result.exit_code in (0, 1, 2)
        assert not result.stderr or result.stderr.startswith(("Error: ", "Usage: "))


def test_what_tenants_wrote_is_shown_not_obeyed(tmp_path: Path) -> None:
    condition = {"type": "LiveMigratable", "status": "False", "reason": "No", "message": "\x1b[31mred\nblue"}
    vmi, pod = clusters.vm("web", "a", condition=condition, evictionStrategy="LiveMigrate")
    objects = [whole("Node", clusters.node("a")), whole("Pod", pod), instance(vmi)]
    output = explain("drain", directory(tmp_path, *objects), "a").output

    assert "\x1b" not in output
    assert r"\x1b[31mred blue" in " ".join(output.split()), "a line feed begins no line"
    assert "no KubeVirt object" in " ".join(output.split())


def test_a_value_of_a_wrong_type_in_a_file(tmp_path: Path) -> None:
    vmi, _ = clusters.vm("web", "a", volumes="none")
    kubevirt = {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}, "status": {"phase": "Deployed"}}
    specs = ({"configuration": {"migrations": 5}}, {"workloadUpdateStrategy": {"batchEvictionSize": 0.5}})
    broken, half = (whole("KubeVirt", kubevirt | {"spec": spec}, "kubevirt.io/v1") for spec in specs)
    for obj, text in (
        (instance(vmi), "VirtualMachineInstance shop/web: "),
        (whole("PersistentVolume", {"metadata": {"name": "pv"}, "spec": 5}), "PersistentVolume pv: "),
        (broken, "KubeVirt's configuration cannot be decoded: "),
        (half, r"\S+: spec.workloadUpdateStrategy.batchEvictionSize must be an integer, not a number"),
    ):
        result = explain("drain", directory(tmp_path, obj), "a")

        assert (result.exit_code, "kubeconfig" in result.stderr) == (2, False)
        assert re.match(f"Error: {text}", result.stderr)


def test_a_drain_of_a_running_cluster(tmp_path: Path) -> None:
    vmi, pod = clusters.vm("web", "a", evictionStrategy="LiveMigrate")
    with api_server() as server:
        for resource in (RUNNING_PODS, MIGRATIONS, NAMESPACES, BUDGETS, RUNTIME_CLASSES):
            server.serve(resource)
        for name in ("node-a1", "node-a2", "node-b1"):
            server.remove(NODES, name)
        for one in (clusters.node("a"), clusters.node("b")):
            server.put(NODES, one["metadata"]["name"], **one)
        server.put(PLACED_VMIS, "web", "shop", **vmi)
        server.put(RUNNING_PODS, "p", "shop", **pod)
        config = server.kubeconfig(tmp_path / "config")
        can = run("explain", "drain", "a", "--kubeconfig", config, "-o", "json")
        updated = run("explain", "update", "--kubeconfig", config, "-o", "json", "--to-version", "1.10")
        verbs = {asked.verb for asked in server.asked}
        server.fail(BUDGETS.path(), 403)
        partly = run("explain", "drain", "a", "--kubeconfig", config, "-o", "json")
        server.fail(NODES.path(), 403)
        cannot = run("explain", "drain", "a", "--kubeconfig", config)
        for resource, _ in LISTS.values():
            server.fail(resource.path(), 403)
        nothing = run("explain", "drain", "a", "--kubeconfig", config)

    assert can.exit_code == 0
    assert json.loads(can.stdout)["steps"][0]["vms"][0]["to"] == "b"
    found = msgspec.convert(json.loads(updated.stdout), UpdatePlan)
    assert (updated.exit_code, [each.code for each in found.vms]) == (1, ["live-migrate-not-configured"])
    assert found.to_version == "1.10.0"
    assert any("--from-version" in gap for gap in found.gaps)
    assert verbs == {"get"}, "nothing is watched or written"
    assert any("PodDisruptionBudgets" in gap for gap in json.loads(partly.stdout)["gaps"])
    assert (cannot.exit_code, cannot.stdout) == (3, "")
    assert "grant list on nodes" in cannot.stderr
    assert all(role in cannot.stderr for role in (" view ", "kubevirt-webhook:explain-nodes"))
    # All that the table names, for whoever grants permissions.
    assert (nothing.exit_code, nothing.stderr.count("\n")) == (3, 1)
    assert all(f"list on {resource.plural}" in nothing.stderr for resource, _ in LISTS.values())


@pytest.mark.parametrize(("status", "code"), [(200, "scheduler-down"), (403, "migrates")])
def test_a_drain_while_the_scheduler_that_a_vm_names_is_down(tmp_path: Path, status: int, code: str) -> None:
    vmi, pod = clusters.vm("web", "a", evictionStrategy="LiveMigrate", schedulerName="kubevirt")
    settings = tmp_path / "settings.yaml"
    settings.write_text("schedulers: {kubevirt: {healthCheck: lease a/b}}")
    server = FakeApiServer()
    for resource in (*(resource for resource, _ in LISTS.values()), LEASES):
        server.serve(resource)
    for name in "ab":
        server.put(NODES, name, **clusters.node(name))
    server.put(PLACED_VMIS, "web", "shop", **vmi)
    server.put(RUNNING_PODS, pod["metadata"]["name"], "shop", **pod)
    held = {"holderIdentity": "x", "leaseDurationSeconds": 2, "renewTime": "2026-01-01T00:00:00.000000Z"}
    server.put(LEASES, "b", "a", spec=held)
    if status != 200:
        server.fail(LEASES.path("a", "b"), status)
    with in_thread(running(server)):
        config = server.kubeconfig(tmp_path / "config")
        result = run("explain", "drain", "a", "--kubeconfig", config, "--config", settings, "-o", "json")

    plan = msgspec.convert(json.loads(result.stdout), DrainPlan)
    assert [vm.code for vm in plan.steps[0].vms] == [code]
    assert any("whether scheduler kubevirt is available" in gap for gap in plan.gaps) == (status != 200)


def test_what_a_plan_cannot_read_is_no_fault_of_the_files() -> None:
    """No such fact exists: it would be a bug, and is no reason to correct a file."""
    with pytest.raises(Unreadable, match="a bug"), reading(Source(DRAIN, None), None):
        raise Unreadable("a bug")


def test_nothing_answers(tmp_path: Path) -> None:
    with api_server() as server:
        config = server.kubeconfig(tmp_path / "config")
    result = run("explain", "drain", "a", "--kubeconfig", config)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (61, "2m"), (3600, "1h"), (5400, "1h 30m")]
)
def test_times_for_people(seconds: int, text: str) -> None:
    assert duration(seconds) == text


def test_a_vmi_that_has_not_started_cannot_migrate_but_one_of_another_cluster(tmp_path: Path) -> None:
    """An earlier answer was that all nodes are eligible, with the status of a migration that cannot succeed."""
    cluster = directory(tmp_path, instance(vmi() | {"status": {}}), whole("Node", node("node-a1", "a")))
    result = explain("migration", cluster, "demo/web01")
    assert (result.exit_code, result.stdout, "not on a node yet" in result.stderr) == (2, "", True)
    # One that comes from another cluster can, before it is on a node.
    waiting = {"phase": "WaitingForSync", "migrationState": {"sourceState": {"node": "far-away"}}}
    cluster = directory(tmp_path, instance(vmi() | {"status": waiting}), whole("Node", node("node-a1", "a")))
    result = explain("migration", cluster, "demo/web01", "-o", "json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["runningOn"], answer["eligible"]["names"]) == (0, "", ["node-a1"])


# -- one VM ------------------------------------------------------------------------------------------------------------

SECRET = "hunter2hunter2"
RESOURCES = "resource.k8s.io/v1"
MEMORY = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}


def explained(vm: str, cluster: Path) -> VmExplanation:
    return msgspec.convert(json.loads(explain("vm", cluster, vm, "-o", "json").stdout), VmExplanation)


def machine(name: str, namespace: str, template: Any = None, **spec: Any) -> dict[str, Any]:
    spec |= {"runStrategy": "Always", "template": {"spec": template or {"domain": {"devices": {}}}}}
    return whole("VirtualMachine", {"metadata": {"name": name, "namespace": namespace}, "spec": spec}, "kubevirt.io/v1")


def among_examples(tmp_path: Path, *objects: Any) -> Path:
    """The cluster of the examples with these objects."""
    return directory(Path(shutil.copytree(CLUSTER, tmp_path / "cluster")), *objects)


def retemplated(tmp_path: Path, **metadata: Any) -> Path:
    """The cluster of the examples, in which the owner of shop/web has written this into its template."""
    copied = among_examples(tmp_path)
    file = copied / "virtualmachines.yaml"
    web, *others = [each for each in yaml.safe_load_all(file.read_text()) if each]
    web["spec"]["template"]["metadata"] = metadata
    file.write_text(yaml.safe_dump_all([web, *others]))
    return copied


@pytest.mark.parametrize("name", ["shop/web", "shop/archive", "shop/legacy-db"])
def test_what_is_told_of_a_vm(name: str, golden: Golden) -> None:
    result = explain("vm", CLUSTER, name)
    assert (result.exit_code, max(map(len, result.stdout.splitlines())) <= 110) == (0, True)
    golden(result.output)


def test_roles_are_named_for_what_they_let_users_read_alone() -> None:
    """Who has them, and lacks what is in no role, was sent for them again."""
    roles = yaml.safe_load_all((Path(__file__).parents[2] / "manifests" / "roles" / "migrate.yaml").read_text())
    wanted = [each for each in roles if each["metadata"]["name"].startswith("kubevirt-webhook:explain")]
    assert {plural for role in wanted for rule in role["rules"] for plural in rule["resources"]} == IN_ROLES
    denied = "the API server denied the request (403): grant "
    everywhere = "list on pods in all namespaces"
    lacking = [f"{denied}list on leases.coordination.k8s.io in all namespaces, {everywhere}", f"{denied}{everywhere}"]
    assert [unreadable_fix(each, of_one_vm=True) for each in lacking] == ["ask your admin for the answer"] * 2
    assert "kubevirt-webhook:explain" in unreadable_fix(f"{lacking[0]}, list on nodes", of_one_vm=True)


def test_a_running_vm_whose_label_of_a_group_is_corrected(tmp_path: Path) -> None:
    corrected = retemplated(tmp_path, labels={GROUP_LABEL: "database"})
    said = 'Note: its group is none until it restarts, and "database" from then on.'
    assert said in explain("vm", corrected, "shop/web").output
    assert said not in explain("vm", CLUSTER, "shop/web").output


def test_a_vm_for_programs() -> None:
    result = explain("vm", CLUSTER, "web", "-n", "shop", "-o", "json")
    read = json.loads(result.stdout)
    found = msgspec.convert(read, VmExplanation)
    assert (result.exit_code, found.schema) == (0, VM_SCHEMA)
    assert (found.scheduler, found.running_on) == ("kubevirt", "node-1")
    assert read["migration"]["eligible"]["names"] == ["node-2", "node-3"]
    # Every request of its life, in order.
    assert [(request.kind, [each.policy for each in request.policies]) for request in found.requests] == [
        ("VirtualMachine", ["scheduling"]),
        ("VirtualMachineInstance", ["scheduling"]),
        ("Pod", ["scheduling", "migration"]),
        ("VirtualMachineInstanceMigration", ["migration", "migration"]),
        ("Eviction", ["eviction", "groups"]),
        ("Drain", ["eviction", "groups"]),
        ("Deletion", ["preemption"]),
    ]


@pytest.mark.parametrize(
    ("settings", "label", "code"),
    [
        ({"preemption": {"requestMigrations": True}}, "enforce", "migration-requested"),
        ({}, "enforce", "migration-not-requested"),
        ({"preemption": {"requestMigrations": True}}, "audit", "migration-requested"),
        ({"preemption": {"requestMigrations": True}}, None, "out-of-scope"),
    ],
)
def test_what_a_preemption_would_do_to_a_vm(tmp_path: Path, settings: Any, label: str | None, code: str) -> None:
    copied, file = preempted(tmp_path, settings, label)
    result = explain("vm", copied, "web", "-n", "shop", "--config", str(file), "-o", "json")
    *_, deletion = msgspec.convert(json.loads(result.stdout), VmExplanation).requests
    (policy,) = deletion.policies
    assert (result.exit_code, deletion.kind, policy.mode) == (0, "Deletion", label or "off")
    assert policy.reasons[0].code == code
    is_saved = (label, code) == ("enforce", "migration-requested")
    assert deletion.outcome == ("the VM stays until it has moved" if is_saved else "the VM is killed")


def test_an_owner_need_not_list_the_migrations_of_other_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, everywhere, denied = FilesCluster.peek, ListKey(UNFINISHED, ""), Forbidden("denied")
    monkeypatch.setattr(FilesCluster, "peek", lambda cluster, key: denied if key == everywhere else whole(cluster, key))
    copied, file = preempted(tmp_path, {"preemption": {"requestMigrations": True}}, "enforce")
    result = explain("vm", copied, "web", "-n", "shop", "--config", str(file), "-o", "json")
    *_, deletion = msgspec.convert(json.loads(result.stdout), VmExplanation).requests
    assert deletion.policies[0].reasons[0].code == "migration-requested"
    assert deletion.outcome == "the VM stays until it has moved, unless a limit of the whole cluster is reached"


def preempted(tmp_path: Path, settings: Any, label: str | None) -> tuple[Path, Path]:
    """The cluster of the examples, whose VMs can be migrated, with a label of the policy; and a file of settings."""
    copied, marked = among_examples(tmp_path), f"labels: {{kubevirt-webhook.github.io/preemption: {label}, "
    if label:
        namespaces = copied / "namespaces.yaml"
        namespaces.write_text(namespaces.read_text().replace("labels: {", marked, 1))
    for number, each in enumerate(yaml.safe_load_all((copied / "virtualmachines.yaml").read_text())):
        if each["kind"] == "VirtualMachineInstance":
            each.setdefault("status", {})["conditions"] = [{"type": "LiveMigratable", "status": "True"}]
        (copied / f"machine-{number}.yaml").write_text(yaml.safe_dump(each))
    (copied / "virtualmachines.yaml").unlink()
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps(settings))
    return copied, file


@pytest.mark.parametrize(("license_of", "status"), [("node-2", "allowed"), ("node-1", "denied")])
def test_what_a_drain_of_its_node_would_hear(license_of: str, status: str, tmp_path: Path) -> None:
    """Only the node that is drained has the label that the group requires."""
    copied, groups = among_examples(tmp_path), of_groups.section(of_groups.HOSTS)
    for file in sorted(copied.glob("*.yaml")):
        objects = [each for each in yaml.safe_load_all(file.read_text()) if each]
        for each in objects:
            meta, name = each["metadata"], each["metadata"]["name"]
            if each["kind"] == "Namespace":
                meta["labels"] = {**meta.get("labels", {}), "kubevirt-webhook.github.io/groups": "enforce"}
            if (each["kind"], name) == ("VirtualMachineInstance", "web") or "-web-" in name:
                meta["labels"] = {**meta.get("labels", {}), **of_groups.IN_GROUP}
                meta["annotations"] = {**meta.get("annotations", {}), **of_groups.recorded(groups)}
            if each["kind"] == "VirtualMachineInstance":
                each.setdefault("status", {})["conditions"] = [{"type": "LiveMigratable", "status": "True"}]
                each["spec"]["evictionStrategy"] = "LiveMigrate"
            if each["kind"] == "Node":
                meta["labels"] = {**meta["labels"], **({"license": "oracle"} if name == license_of else {})}
        file.write_text(yaml.safe_dump_all(objects))
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps({"groups": {"rules": {"db": of_groups.HOSTS}}}))
    result = explain("vm", copied, "shop/web", "--config", settings, "-o", "json")
    found = msgspec.convert(json.loads(result.stdout), VmExplanation)
    (drain,) = (each for each in found.requests if each.kind == "Drain")
    assert [each.decision for each in drain.policies if each.policy == "groups"] == [status]
    allowed = status == "allowed"
    assert drain.outcome == ("KubeVirt migrates the VM" if allowed else "the eviction is denied, and the drain waits")


@pytest.mark.parametrize("target", ["virt-launcher-web-aaaaa", "virt-launcher-web-zzzzz"])
def test_while_a_vm_migrates_it_is_asked_about_the_pod_that_it_runs_in(tmp_path: Path, target: str) -> None:
    """The migration's target pod has a node, too, and a name that comes before or after."""
    copied = among_examples(tmp_path)
    file = copied / "migrations.yaml"
    objects = [each for each in yaml.safe_load_all(file.read_text()) if each]
    current = next(each for each in objects if each["metadata"]["name"] == "virt-launcher-web-x7k2p")
    moving = copy.deepcopy(current)
    moving["metadata"] |= {"name": target, "uid": "target"}
    moving["spec"]["nodeName"] = "node-5"
    file.write_text(yaml.safe_dump_all([*objects, moving]))
    found = msgspec.convert(json.loads(explain("vm", copied, "shop/web", "-o", "json").stdout), VmExplanation)
    codes = {reason.code for each in found.requests for policy in each.policies for reason in policy.reasons}
    assert "Eviction" in {each.kind for each in found.requests}
    assert "not-the-current-pod" not in codes


def test_a_drain_waits_for_a_vm_that_no_other_node_can_take(tmp_path: Path) -> None:
    copied = among_examples(tmp_path)
    for file in sorted(copied.glob("*.yaml")):
        objects = [each for each in yaml.safe_load_all(file.read_text()) if each]
        for each in objects:
            if each["kind"] == "VirtualMachineInstance":
                each.setdefault("status", {})["conditions"] = [{"type": "LiveMigratable", "status": "True"}]
                each["spec"]["evictionStrategy"] = "LiveMigrate"
            if each["kind"] == "Node":
                each.setdefault("spec", {})["unschedulable"] = True
        file.write_text(yaml.safe_dump_all(objects))
    found = msgspec.convert(json.loads(explain("vm", copied, "shop/web", "-o", "json").stdout), VmExplanation)
    (drain,) = (each for each in found.requests if each.kind == "Drain")
    assert drain.outcome == "KubeVirt cannot migrate the VM: no node is eligible, and the drain waits"


def test_defaults_of_the_namespace(tmp_path: Path) -> None:
    found = explained("apps/new", among_examples(tmp_path, machine("new", "apps")))
    fields = {field.path: (field.origin, field.name) for field in found.fields}

    assert [(each.role, each.name, each.injected) for each in found.named] == [
        ("instancetype", "u1.medium", True),
        ("preference", "linux", True),
    ]
    assert fields["spec.domain.memory.guest"] == ("instancetype", "u1.medium")
    assert fields["spec.domain.features.smm.enabled"] == ("preference", "linux")
    assert fields["spec.evictionStrategy"] == ("cluster settings", "")
    assert fields["spec.domain.machine.type"] == ("KubeVirt default", "")
    assert found.scheduler == "default-scheduler"


def origins(found: VmExplanation, path: str) -> set[str]:
    return {field.origin for field in found.fields if field.path == path}


def test_what_an_owner_wrote_without_effect(tmp_path: Path) -> None:
    mistyped = machine("mistyped", "apps")
    mistyped["spec"]["template"]["metadata"] = {"labels": {"kubevirt-webhook.github.io/default": "off"}}
    cluster = among_examples(tmp_path, mistyped)
    (warning,) = explained("apps/mistyped", cluster).warnings
    assert "kubevirt-webhook.github.io/default (is it defaults?" in warning
    assert "is it defaults?" in explain("vm", cluster, "apps/mistyped").stdout


def test_an_owners_choice_is_not_called_ours(tmp_path: Path) -> None:
    own = machine("own", "apps", instancetype={"name": "u1.medium"})
    directory = among_examples(tmp_path, own, machine("scheduled", "shop", {**MEMORY, "schedulerName": "mine"}))
    found, theirs, ours = (explained(name, directory) for name in ("apps/own", "shop/scheduled", "shop/web"))
    assert [(each.role, each.injected) for each in found.named] == [("instancetype", False), ("preference", True)]
    assert (theirs.scheduler, origins(theirs, "spec.schedulerName")) == ("mine", {"vm"})
    assert origins(ours, "spec.schedulerName") == {"kubevirt-webhook"}


def test_a_vm_that_exists_is_told_as_it_is(tmp_path: Path) -> None:
    """The command reports what a policy would add to the VM if it were created now, but its VMI has none of it."""
    exists = machine("old", "apps", MEMORY)
    exists["metadata"]["uid"] = "6b0f3a52-0f4e-4b58-8a3c-000000000099"
    found = explained("apps/old", among_examples(tmp_path, exists))
    assert (found.named, origins(found, "spec.domain.memory.guest")) == ((), {"vm"})


def test_what_a_policy_denies(tmp_path: Path) -> None:
    bad = among_examples(tmp_path, machine("bad", "apps", instancetype={"name": "x9"}))
    found = explained("apps/bad", bad)
    codes = [reason.code for each in found.requests[0].policies for reason in each.reasons]
    assert (bool(found.denial), codes[-1]) == (True, "instancetype-not-allowed")
    assert explain("vm", bad, "apps/bad").exit_code == 1


def test_what_kubevirt_denies(tmp_path: Path, ended: Ended) -> None:
    conflicting = machine("bad", "legacy", MEMORY, instancetype={"name": "u1.medium"})
    ended(explain("vm", among_examples(tmp_path, conflicting), "legacy/bad"), 1)


def test_a_vm_without_a_size_does_not_start(tmp_path: Path, ended: Ended) -> None:
    """KubeVirt's webhook for VMIs denies it, which is asked only once virt-controller creates one."""
    ended(explain("vm", among_examples(tmp_path, machine("bad", "legacy")), "legacy/bad"), 1)


@pytest.mark.control("secrets-in-explain")
def test_secrets_are_not_printed(tmp_path: Path) -> None:
    seed = {"name": "seed", "cloudInitNoCloud": {"userData": f"#cloud-config\npassword: {SECRET}\n"}}
    secret = among_examples(tmp_path, machine("seeded", "shop", {**MEMORY, "volumes": [seed]}))
    for output in ("text", "json", "yaml"):
        printed = explain("vm", secret, "shop/seeded", "-o", output).output
        assert ("seed" in printed, SECRET in printed) == (True, False)


# -- situations from public reports ------------------------------------------------------------------------------------

REPORTS = Path(__file__).parents[1] / "data" / "reports"


@pytest.mark.parametrize("name", ["vms/db", "vms/nouid", "vms/run"])
def test_a_volume_ties_a_vm_to_the_node_on_which_it_starts(name: str, golden: Golden) -> None:
    """An earlier answer was that it could start on three nodes."""
    cluster = REPORTS / "volume-of-a-node"
    found = explained(name, cluster)
    assert found.nodes
    assert (found.nodes.names, found.gaps) == (["node-2"], ())
    assert [(each.origin, each.nodes.names) for each in found.reasons] == [("volumes", ["node-1", "node-3"])]
    golden(explain("vm", cluster, name).output.partition("\n\n")[0])


@pytest.mark.parametrize("sources", [["hotpluggable"], ["dataVolumeTemplates"], []])
def test_hotplugged_and_templated_volumes_tie_it_too(tmp_path: Path, sources: list[str], golden: Golden) -> None:
    cluster = Path(shutil.copytree(REPORTS / "volume-of-a-node", tmp_path / "cluster"))
    template = json.loads(json.dumps(MEMORY))
    template["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec: dict[str, Any] = {}
    if "hotpluggable" in sources:
        template["volumes"][0]["persistentVolumeClaim"]["hotpluggable"] = True
    if "dataVolumeTemplates" in sources:
        template["volumes"] = [{"name": "data", "dataVolume": {"name": "new"}}]
        made = {"storage": {"storageClassName": "zonal"}, "source": {"blank": {}}}
        spec["dataVolumeTemplates"] = [{"metadata": {"name": "new"}, "spec": made}]
    topology = [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["node-3"]}]}]
    zonal = {"metadata": {"name": "zonal"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
    storage = whole("StorageClass", zonal | {"allowedTopologies": topology}, "storage.k8s.io/v1")
    directory(cluster, machine("new", "vms", template, **spec), storage)
    found = explained("vms/new", cluster)
    assert found.nodes
    assert found.nodes.names == (["node-3"] if "dataVolumeTemplates" in sources else ["node-2"])
    assert any("hotpluggable" in note for note in found.notes) == ("hotpluggable" in sources)
    golden(explain("vm", cluster, "vms/new").output.partition("\n\n")[0])


def crowded(tmp_path: Path, memory: str, guest: str = "2Gi") -> Path:
    """Three nodes of 8Gi with two VMs each, and a VM that does not run."""
    labels: Any = {"machine-type.node.kubevirt.io/q35": "true"}
    nodes = [clusters.node(name, **labels) for name in "abc"]
    vms = [clusters.vm(f"{place}{number}", place, memory) for place in "abc" for number in range(2)]
    owners = [clusters.owned(each) for each in vms]
    template = {"domain": {"devices": {}, "memory": {"guest": guest}}}
    opted_in = {"metadata": {"name": "shop", "labels": {names.policy_label("headroom"): "enforce"}}}
    return directory(
        tmp_path,
        machine("late", "shop", template) | {"spec": {"runStrategy": "Halted", "template": {"spec": template}}},
        whole("Namespace", opted_in),
        *(whole("Node", each) for each in nodes),
        *(whole("VirtualMachine", each, "kubevirt.io/v1") for each in owners),
        *(whole("VirtualMachineInstance", vmi, "kubevirt.io/v1") for vmi, _ in vms),
        *(whole("Pod", pod) for _, pod in vms),
    )


@pytest.mark.parametrize(
    ("memory", "code"), [("1Gi", "headroom-kept"), ("2500Mi", "no-place-after-loss"), ("3900Mi", "no-room-for-start")]
)
def test_whether_a_vm_that_is_stopped_may_start(tmp_path: Path, memory: str, code: str, golden: Golden) -> None:
    """An earlier answer was that all is well, since the pod that was judged requested nothing."""
    (tmp_path / "cluster").mkdir()
    cluster, settings = crowded(tmp_path / "cluster", memory), tmp_path / "settings.yaml"
    settings.write_text("headroom: {enabled: true}")
    result = explain("vm", cluster, "shop/late", "--config", str(settings))
    assert f"[{code}]" in result.stdout
    said = result.stdout.partition("  headroom (enforce)")
    golden("\n".join((said[0].partition("\n\n")[0], said[1] + said[2].partition("\n\n")[0])))
    # One that runs has been admitted, and its next start is a restart.
    assert "[vm-restarts]" in explain("vm", cluster, "shop/a0", "--config", str(settings)).stdout


def said_of_late(place: Path, memory: str, guest: str = "2Gi") -> str:
    """What is said of the VM that does not run, as one line."""
    (place / "cluster").mkdir(parents=True)
    settings = place / "settings.yaml"
    settings.write_text("headroom: {enabled: true}")
    cluster = crowded(place / "cluster", memory, guest)
    return " ".join(explain("vm", cluster, "shop/late", "--config", str(settings)).stdout.split())


@pytest.mark.parametrize("memory", ["2500Mi", "3300Mi"])
def test_how_much_smaller_a_vm_may_start(tmp_path: Path, memory: str) -> None:
    """A VM that is as much smaller as is said starts, and a larger one does not."""

    def said_of(guest: int) -> str:
        return said_of_late(tmp_path / str(guest), memory, f"{guest}Mi")

    said = said_of(2048)
    (less,) = re.findall(r"if its pod requested \d+Mi of memory, (\d+)Mi less;", said)
    assert "[headroom-kept]" in said_of(2048 - int(less))
    assert "[headroom-kept]" not in said_of(2048 - int(less) + 256)


def test_where_no_smaller_vm_may_start(tmp_path: Path) -> None:
    said = said_of_late(tmp_path / "full", "3900Mi")
    assert "no smaller amount of memory or of CPU was found with which it would start now" in said


STARTS = REPORTS / "starts"


@pytest.mark.parametrize(
    ("situation", "nodes", "origins"),
    [
        # The pod requests all dedicated CPUs, and memory beside the guest's.
        ("pinned-cpus", ["n2"], ["resources"]),
        ("overhead", ["n2"], ["resources"]),
        # KubeVirt takes the lowest frequency, though it is that of a node on which the VM cannot start.
        ("lowest-tsc-frequency", [], ["kubevirt", "taints"]),
        ("network-device", ["n2"], ["resources"]),
        # A node without the label is in no topology domain.
        ("zone-labels", ["n2"], ["spread"]),
        ("zone-labels-of-affinity", ["n2"], ["pod affinity"]),
    ],
)
def test_what_ties_a_vm_to_nodes(situation: str, nodes: list[str], origins: list[str], golden: Golden) -> None:
    found = explained("shop/web", STARTS / situation)
    assert found.nodes
    assert (found.nodes.names, [each.origin for each in found.reasons]) == (nodes, origins)
    assert (found.obstacles, found.waiting, found.gaps) == ((), "", ())
    golden(explain("vm", STARTS / situation, "shop/web").output.partition("\n\n")[0])


@pytest.mark.parametrize(
    ("situation", "parts"),
    [
        ("limit-range", ["LimitRange limits", "2Gi"]),
        ("quota", ["exceeded quota: build-quota", "limited: requests.memory=2Gi"]),
        ("no-priority-class", ["no PriorityClass with name openshift-user-critical was found"]),
        ("device-not-permitted", ["GPU nvidia.com/GA102GL is not permitted in permittedHostDevices"]),
    ],
)
def test_why_the_pod_of_a_vm_is_not_created(situation: str, parts: list[str], golden: Golden) -> None:
    found = explained("shop/web", STARTS / situation)
    assert all(part in found.obstacles[0] for part in parts)
    assert found.gaps == ()
    golden(explain("vm", STARTS / situation, "shop/web").output.partition("\n\n")[0])


@pytest.mark.parametrize(
    ("situation", "part"),
    [
        ("unschedulable", "0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules"),
        ("no-pod", "must specify limits.cpu for: compute"),
        ("no-scheduler", 'the VMI names scheduler "scheduler-plugins-scheduler"'),
    ],
)
def test_why_a_vm_that_was_started_does_not_run_yet(situation: str, part: str, golden: Golden) -> None:
    found = explained("shop/web", STARTS / situation)
    assert part in found.waiting
    # It runs nowhere, so there is nothing to migrate.
    assert found.migration is None
    golden(explain("vm", STARTS / situation, "shop/web").output.partition("\n\n")[0])


def test_of_a_start_that_was_denied_the_first_attempt_is_known(tmp_path: Path) -> None:
    """virt-controller leaves the condition as it is at later attempts."""
    cluster = Path(shutil.copytree(STARTS / "no-pod", tmp_path / "cluster"))
    file = cluster / "all.yaml"
    text = file.read_text()
    assert "is forbidden: failed quota" in text
    file.write_text(
        text.replace("is forbidden: failed quota", 'admission webhook "pods" denied the request: failed quota')
    )
    found = explained("shop/web", cluster)
    assert found.waiting.startswith("virt-controller reports of its first attempt (Events of the VMI have the last): ")
    # What the template says since counts for the next VMI alone.
    assert "earlier template" not in found.waiting
    listed = yaml.safe_load(file.read_text())
    for each in listed["items"]:
        if each["kind"] == "VirtualMachine":
            each["status"] = {"conditions": [{"type": "RestartRequired", "status": "True", "message": "x"}]}
    file.write_text(yaml.safe_dump(listed))
    assert explained("shop/web", cluster).waiting.endswith("stop the VM and start it for the present one")


@pytest.mark.parametrize(("mode", "gaps"), [("ReadWriteOncePod", 1), ("ReadWriteOnce", 0), (None, 0)])
@pytest.mark.parametrize("bound", ["pv", None])
def test_a_volume_for_one_pod_that_another_may_use(
    tmp_path: Path, bound: str | None, mode: str | None, gaps: int
) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    domain = {"devices": {"disks": [{"name": "data", "disk": {"bus": "virtio"}}]}, "memory": {"guest": "1Gi"}}
    claim = {"accessModes": [mode] if mode else None, "volumeName": bound, "storageClassName": "fast"}
    provisions = {"provisioner": "x.example", "volumeBindingMode": "WaitForFirstConsumer"}
    cluster = directory(
        tmp_path,
        whole("Node", node("a", "x")),
        whole("PersistentVolumeClaim", {"metadata": {"name": "data", "namespace": "demo"}, "spec": claim}),
        whole("PersistentVolume", {"metadata": {"name": "pv"}, "spec": {}}),
        whole("StorageClass", {"metadata": {"name": "fast"}, **provisions}, "storage.k8s.io/v1"),
        machine("new", "demo", {"architecture": "amd64", "domain": domain, "volumes": volumes}),
    )
    found = explained("demo/new", cluster)
    assert found.nodes
    assert found.nodes.names == ["a"]
    assert ["ReadWriteOncePod" in gap for gap in found.gaps] == [True] * gaps


TWO_CPUS: dict[str, Any] = {"cpu": {"cores": 2}}
LIMITS_CPUS = {"hard": {"limits.cpu": "9", "pods": "9"}, "used": {"limits.cpu": "0", "pods": "0"}}
BY_LABEL = {"autoCPULimitNamespaceLabelSelector": {"matchLabels": {"a": "b"}}}


@pytest.mark.parametrize(
    ("item", "own", "quota", "configuration", "denial"),
    [
        # Two vCPUs request 200m by KubeVirt's allocation ratio.
        ({"min": {"cpu": "201m"}}, TWO_CPUS, {}, {}, "wants at least 201m cpu, and it requests 200m"),
        ({"min": {"cpu": "200m"}}, TWO_CPUS, {}, {}, ""),
        ({"min": {"cpu": "3"}}, {"resources": {"limits": {"cpu": "2"}}}, {}, {}, "wants at least 3 cpu"),
        ({"min": {"cpu": "3"}, "type": "Pod"}, TWO_CPUS, {}, {}, ""),
        ({"min": {"cpu": "3"}}, {"cpu": {}}, {}, {}, "and it requests 100m"),
        ({"default": {"cpu": "100m"}}, TWO_CPUS, {}, {}, "limits it to 100m cpu, and it requests 200m"),
        ({"default": {"cpu": "200m"}}, TWO_CPUS, {}, {}, ""),
        # KubeVirt itself limits them to one for each vCPU, or may.
        ({"default": {"cpu": "100m"}}, TWO_CPUS, LIMITS_CPUS, {}, ""),
        ({"default": {"cpu": "100m"}}, TWO_CPUS, {}, BY_LABEL, ""),
        ({"maxLimitRequestRatio": {"cpu": "4"}}, TWO_CPUS, LIMITS_CPUS, {}, "a limit of 2, and requests 200m"),
        ({"maxLimitRequestRatio": {"cpu": "10"}}, TWO_CPUS, LIMITS_CPUS, {}, ""),
        ({"maxLimitRequestRatio": {"cpu": "4"}}, TWO_CPUS, {}, {}, "at most 4 times the request, and it has no limit"),
        ({"maxLimitRequestRatio": {"cpu": "4"}}, TWO_CPUS, {}, BY_LABEL, ""),
        ({"maxLimitRequestRatio": {"cpu": "4"}, "default": {"cpu": "1"}}, TWO_CPUS, {}, {}, "a limit of 1, and"),
        ({"maxLimitRequestRatio": {"cpu": "4"}, "default": {"cpu": "800m"}}, TWO_CPUS, {}, {}, ""),
        ({"maxLimitRequestRatio": {"cpu": "4"}, "max": {"cpu": "1"}}, TWO_CPUS, {}, {}, "a limit of 1, and"),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}},
            {},
            {},
            "a limit of 3, and requests 1",
        ),
        ({"maxLimitRequestRatio": {"cpu": "1"}}, {"cpu": {"cores": 2, "dedicatedCpuPlacement": True}}, {}, {}, ""),
        # What an I/O pool adds depends on the release.
        ({"min": {"cpu": "201m"}}, TWO_CPUS | {"ioThreads": {"supplementalPoolThreadCount": 2}}, {}, {}, ""),
    ],
)
def test_limit_ranges_deny_pods_by_their_cpus(
    tmp_path: Path, item: Any, own: Any, quota: Any, configuration: Any, denial: str
) -> None:
    """As the admission plugin LimitRanger does."""
    ranges = {"metadata": {"name": "some", "namespace": "demo"}, "spec": {"limits": [{"type": "Container"} | item]}}
    kubevirt = {"metadata": {"name": "k", "namespace": "kubevirt"}, "spec": {"configuration": configuration}}
    spec = {"architecture": "amd64", "domain": {"devices": {}, "memory": {"guest": "1Gi"}} | own}
    cluster = directory(
        tmp_path,
        whole("Node", node("a", "x")),
        whole("LimitRange", ranges),
        *([whole("ResourceQuota", {"metadata": {"name": "q", "namespace": "demo"}, "status": quota})] if quota else ()),
        whole("KubeVirt", kubevirt | {"status": {"phase": "Deployed"}}, "kubevirt.io/v1"),
        machine("new", "demo", spec),
    )
    found = explained("demo/new", cluster)
    assert len(found.obstacles) == bool(denial)
    assert denial in "".join(found.obstacles)
    assert any("LimitRanges (some)" in gap for gap in found.gaps) == (not denial)


def test_what_is_not_known_of_a_pod_that_is_yet_to_be_created(tmp_path: Path) -> None:
    """LimitRanges that it may meet, a class that files may lack, and networks that they lack."""
    domain = {"devices": {"interfaces": [{"name": "a", "bridge": {}}]}, "memory": {"guest": "1Gi"}}
    networks = [{"name": "a", "multus": {"networkName": "b/c"}}]
    spec = {"domain": domain, "networks": networks, "priorityClassName": "vm-high"}
    items = [{"type": "PersistentVolumeClaim"}]
    limits = {"metadata": {"name": "some", "namespace": "shop"}, "spec": {"limits": items}}
    cluster = among_examples(tmp_path, machine("new", "shop", spec), whole("LimitRange", limits))
    found = explained("shop/new", cluster)
    assert (found.obstacles, len(found.gaps)) == ((), 3)
    for part in ("LimitRanges (some)", 'PriorityClass "vm-high"', "NetworkAttachmentDefinition b/c"):
        assert any(part in gap for gap in found.gaps)


@pytest.mark.parametrize(("model", "nodes"), [("virtio", ["a"]), ("e1000", ["a", "b"])])
def test_kubevirts_devices_tie_a_vm_to_nodes_that_have_them(tmp_path: Path, model: str, nodes: list[str]) -> None:
    """Where the module vhost_net is missing, its device plugin has none (kubevirt 4748)."""
    amounts = {f"devices.kubevirt.io/{name}": "1k" for name in ("kvm", "tun", "vhost-net")}
    offers = {"cpu": "8", "memory": "32Gi", "pods": "110", **amounts}
    without = offers | {"devices.kubevirt.io/vhost-net": "0"}
    found = [node(name, "x") | {"status": {"allocatable": each}} for name, each in (("a", offers), ("b", without))]
    interface = {"name": "default", "masquerade": {}, "model": model}
    domain = {"devices": {"interfaces": [interface]}, "memory": {"guest": "1Gi"}}
    spec = {"architecture": "amd64", "domain": domain, "networks": [{"name": "default", "pod": {}}]}
    cluster = directory(tmp_path, *(whole("Node", each) for each in found), machine("new", "demo", spec))
    answer = explained("demo/new", cluster)
    assert answer.nodes
    assert answer.nodes.names == nodes
    assert all("devices.kubevirt.io/vhost-net" in each.text for each in answer.reasons)


def test_what_else_counts_where_a_vm_starts_or_is_named(tmp_path: Path, golden: Golden) -> None:
    labels = {
        "kubevirt.io/schedulable": "true",
        "kubernetes.io/arch": "amd64",
        "machine-type.node.kubevirt.io/q35": "true",
    }
    nodes = [
        whole("Node", {"metadata": {"name": name, "labels": labels | {"sandbox": sandbox}}})
        for name, sandbox in (("a", "yes"), ("b", "no"))
    ]
    configuration = {"configuration": {"defaultRuntimeClass": "sandboxed"}}
    gpus = [{"name": "a", "deviceName": "x.example/gpu"}, {"name": "b", "claimName": "c", "requestName": "r"}]
    domain = {"devices": {"gpus": gpus}, "memory": {"guest": "1Gi"}}
    selector = {"scheduler.alpha.kubernetes.io/node-selector": "pool=vms"}
    cluster = directory(
        tmp_path,
        *nodes,
        whole("Namespace", {"metadata": {"name": "demo", "annotations": selector}}),
        whole("ResourceQuota", {"metadata": {"name": "q", "namespace": "demo"}, "status": {"hard": {"pods": "1"}}}),
        whole(
            "KubeVirt",
            {
                "metadata": {"name": "k", "namespace": "kubevirt"},
                "spec": configuration,
                "status": {"phase": "Deployed"},
            },
            "kubevirt.io/v1",
        ),
        whole(
            "RuntimeClass",
            {"metadata": {"name": "sandboxed"}, "handler": "x", "scheduling": {"nodeSelector": {"sandbox": "yes"}}},
            "node.k8s.io/v1",
        ),
        whole("DeviceClass", {"metadata": {"name": "c"}, "spec": {"extendedResourceName": "x.example/gpu"}}, RESOURCES),
        machine("new", "demo", MEMORY | {"architecture": "amd64", "priorityClassName": "vms", "domain": domain}),
    )
    found = explained("demo/new", cluster)
    assert found.nodes
    assert (found.nodes.names, len(found.gaps)) == (["a"], 5)
    golden(explain("vm", cluster, "demo/new").output.partition("\n\n")[0])


def test_a_quota_leaves_no_closing_sentence_that_contradicts_it(golden: Golden) -> None:
    """An earlier answer ended with the node to which KubeVirt would go."""
    result = explain("migration", REPORTS / "quota", "vms/a")
    assert (result.exit_code, "go to" in result.output) == (1, False)
    golden(result.output)


def test_an_evacuation_that_goes_on(golden: Golden) -> None:
    """An earlier answer was silent about it."""
    cluster = REPORTS / "evacuation"
    results = [explain(command, cluster, "vms/stuck") for command in ("migration", "vm")]
    assert [result.exit_code for result in results] == [1, 0]
    assert all("evacuate/cancel" in result.output for result in results)
    golden(results[0].output)
    golden(results[1].output.partition("\n\n")[0])


def test_a_hotplug_that_waits_is_told_of_the_vm_and_of_its_migration(tmp_path: Path) -> None:
    objects = list(yaml.safe_load_all((REPORTS / "evacuation" / "all.yaml").read_text()))
    for each in objects:
        if each["kind"] == "VirtualMachineInstance":
            each["status"]["conditions"].append({"type": "HotVCPUChange", "status": "True"})
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    for command in ("vm", "migration"):
        told = " ".join(explain(command, tmp_path, "vms/stuck").output.split())
        assert "a change of the VM (HotVCPUChange) takes effect only in a migration" in told
        assert "does not have LiveMigrate" in told


def test_a_label_that_is_none_keeps_a_vm_from_starting(tmp_path: Path) -> None:
    copied = among_examples(tmp_path)
    for file in sorted(copied.glob("*.yaml")):
        objects = [each for each in yaml.safe_load_all(file.read_text()) if each]
        for each in objects:
            if each["kind"] == "VirtualMachine" and each["metadata"]["name"] == "web":
                each["spec"]["template"].setdefault("metadata", {})["labels"] = {"example.com/a": "data base"}
        file.write_text(yaml.safe_dump_all(objects))
    done = explain("vm", copied, "shop/web")
    assert done.exit_code == 1
    assert 'KubeVirt would not create its VMI: label "example.com/a": "data base"' in " ".join(done.output.split())


@pytest.mark.parametrize(("status", "is_told"), [("True", True), ("False", False)])
def test_a_vm_of_which_kubevirt_could_create_no_vmi(tmp_path: Path, status: str, is_told: bool) -> None:
    said = 'metadata.labels: Invalid value: "data base"'
    failure = {"type": "Failure", "status": status, "reason": "FailedCreate", "message": said}
    copied = among_examples(tmp_path)
    for file in sorted(copied.glob("*.yaml")):
        objects = [each for each in yaml.safe_load_all(file.read_text()) if each]
        objects = [each for each in objects if each["kind"] != "VirtualMachineInstance"]
        for each in objects:
            if each["kind"] == "VirtualMachine":
                each["status"] = {"conditions": [failure]}
        file.write_text(yaml.safe_dump_all(objects))
    found = msgspec.convert(json.loads(explain("vm", copied, "shop/web", "-o", "json").stdout), VmExplanation)
    assert found.waiting == (f"virt-controller reports: {said}" if is_told else "")
    for written in (5, "x", {"type": "Failure"}, [None, 5, "Failure", {"type": ["Failure"]}]):
        assert condition_of({"status": {"conditions": written}}, "Failure") == ""


async def test_a_vmi_that_is_yet_to_come() -> None:
    files = FilesCluster.load(CLUSTER, default_settings())
    coming = {"metadata": {"name": "new", "namespace": "shop", "uid": "u"}, "spec": {"schedulerName": "x"}}
    cluster = _WithVmi(files, coming)

    assert cluster.peek(VmiKey("shop", "new", "u")).spec.scheduler_name == "x"  # type: ignore[attr-defined]
    assert cluster.peek(ObjectKey(PLACED_VMIS, "shop", "new")).meta.uid == "u"  # type: ignore[attr-defined]
    assert (await cluster.read(ObjectKey(PLACED_VMIS, "shop", "new"), 0)).meta.uid == "u"  # type: ignore[union-attr]
    assert cluster.peek(ObjectKey(PLACED_VMIS, "shop", "web")) == files.peek(ObjectKey(PLACED_VMIS, "shop", "web"))
    assert await cluster.read(NodesKey(), 0) is files.peek(NodesKey())
    assert (cluster.staleness(), cluster.ages([NodesKey()]), cluster.waiting_for()) == ({}, {}, ())


def live_examples(server: FakeApiServer, **lease: Any) -> None:
    """The examples, on an API server; VM shop/web was injected with the second scheduler, whose Lease is as given."""
    injected = {"annotations": {"kubevirt-webhook.github.io/injected-scheduler": "kubevirt"}}
    resources = {each.kind: each for each in (NAMESPACES, NODES, KUBEVIRTS, UNSTRUCTURED_VMS, UNSTRUCTURED_VMIS, PODS)}
    for resource in (*resources.values(), LEASES, CONFIG_MAPS, DEFINITIONS):
        server.serve(resource)
    for file in sorted(CLUSTER.glob("*.yaml")):
        for each in yaml.safe_load_all(file.read_text()):
            if each and each["kind"] in resources:
                meta = each.pop("metadata")
                if meta["name"] == "web" and "template" in each.get("spec", {}):
                    meta, template = meta | injected, each["spec"]["template"]
                    template["metadata"], template["spec"]["schedulerName"] = injected, "kubevirt"
                server.put(resources[each.pop("kind")], meta["name"], meta.get("namespace", ""), metadata=meta, **each)
    server.put(LEASES, "kubevirt-scheduler", "kubevirt-scheduler", spec={"holderIdentity": "node-1_1", **lease})


def test_without_the_installed_settings_that_is_said_first(tmp_path: Path) -> None:
    server = FakeApiServer()
    live_examples(server, leaseDurationSeconds=15, renewTime="2026-01-01T00:00:00.000000Z")
    server.fail(CONFIG_MAPS.path("kubevirt-webhook", "kubevirt-webhook"), 403, times=100)
    with in_thread(running(server)):
        printed = run("explain", "vm", "shop/web", "--kubeconfig", server.kubeconfig(tmp_path / "config"))
    assert "Not evaluated: the installed settings" in "".join(printed.stdout.splitlines(keepends=True)[1:2])
    # Policies of which the same is not known share a line.
    assert "  eviction (off), groups (off): not evaluated: the installed settings" in printed.stdout


@pytest.mark.parametrize(
    ("duration", "age", "expected", "is_known"),
    [
        # A server that has watched it says so, too: the pod falls back.
        (2, 63, "default-scheduler", True),
        # Its renewals are not waited for without end.
        (240, 250, "", False),
        (15, 1, "kubevirt", True),
    ],
)
def test_the_next_scheduler_of_a_vm_while_its_scheduler_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duration: int, age: int, expected: str, is_known: bool
) -> None:
    monkeypatch.setattr(selection, "_READY_SECONDS", 3.0)
    config = tmp_path / "settings.yaml"
    config.write_text("schedulers: {kubevirt: {healthCheck: lease kubevirt-scheduler/kubevirt-scheduler}}")
    renewed = datetime.fromtimestamp(time.time() - age, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    server = FakeApiServer()
    live_examples(server, leaseDurationSeconds=duration, renewTime=renewed)
    with in_thread(running(server)):
        where = ("--kubeconfig", server.kubeconfig(tmp_path / "config"), "--config", config)
        printed = run("explain", "vm", "shop/web", *where)
        result = run("explain", "vm", "shop/web", *where, "-o", "json")

    found = msgspec.convert(json.loads(result.stdout), VmExplanation)
    of_pod = next(each for each in found.requests if each.kind == "Pod")
    codes = [reason.code for policy in of_pod.policies for reason in policy.reasons if policy.policy == "scheduling"]
    assert (found.scheduler, bool(of_pod.unknown_schedulers)) == (expected, not is_known)
    assert ("scheduler-fell-back" in codes) == (expected == "default-scheduler")
    assert ("whether scheduler kubevirt" in printed.stdout) is not is_known


def test_a_cluster_that_does_not_answer_is_exit_3(tmp_path: Path) -> None:
    server = FakeApiServer()
    server.url = "http://127.0.0.1:1"

    result = run("explain", "vm", "shop/web", "--kubeconfig", server.kubeconfig(tmp_path / "config"))

    assert (result.exit_code, "no connection to the API server (connection refused)" in result.stderr) == (3, True)


@pytest.fixture
def with_defaults(tmp_path: Path) -> tuple[Path, Path]:
    """The examples, whose namespace shop has opted in to the defaults policy, and settings with some."""
    shutil.copytree(CLUSTER, tmp_path / "cluster")
    file = tmp_path / "cluster" / "namespaces.yaml"
    file.write_text(
        file.read_text().replace(
            "/scheduling: enforce", "/scheduling: enforce, kubevirt-webhook.github.io/defaults: enforce", 1
        )
    )
    rows = "{nodeSelector: {zone: b}, evictionStrategy: External, terminationGracePeriodSeconds: 7}"
    (tmp_path / "settings.yaml").write_text(f"defaults: {rows}\n")
    return tmp_path / "cluster", tmp_path / "settings.yaml"


def vmi_of_web(objects: list[Any]) -> Any:
    (found,) = (
        each
        for each in objects
        if each["kind"] == "VirtualMachineInstance"
        and (each["metadata"]["name"], each["metadata"].get("namespace")) == ("web", "shop")
    )
    return found


def launcher_of(vmi: Any, annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    """The pod of a VMI, on its node if it has one."""
    meta, node = vmi["metadata"], (vmi.get("status") or {}).get("nodeName")
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"virt-launcher-{meta['name']}-x",
            "namespace": meta["namespace"],
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": meta["uid"]},
            "annotations": annotations,
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {"containers": []} | ({"nodeName": node} if node else {}) | spec,
        "status": {"phase": "Running"} if node else {},
    }


class TestDefaults:
    def test_they_come_before_what_kubevirt_sets_by_itself(self, with_defaults: tuple[Path, Path]) -> None:
        """An earlier answer took KubeVirt's evictionStrategy for the owner's: kubevirt-webhook is called before it."""
        cluster, config = with_defaults
        found = json.loads(explain("vm", cluster, "shop/web", "--config", config, "-o", "json").stdout)
        by_path = {field["path"]: (field["value"], field["origin"]) for field in found["fields"]}
        assert by_path["spec.evictionStrategy"] == ("External", "kubevirt-webhook")
        assert by_path["spec.terminationGracePeriodSeconds"] == (7, "kubevirt-webhook")
        assert by_path["spec.domain.memory.guest"] == ("1Gi", "vm")

    def test_the_nodes_of_the_next_start_have_the_default_selector(self, with_defaults: tuple[Path, Path]) -> None:
        cluster, config = with_defaults
        given = json.loads(explain("vm", cluster, "shop/web", "--config", config, "-o", "json").stdout)
        without = json.loads(explain("vm", cluster, "shop/web", "-o", "json").stdout)
        assert given["nodes"]["names"] == ["node-3", "node-6"]
        assert set(without["nodes"]["names"]) > {"node-3", "node-6"}
        assert (without["defaults"], given["migration"]["eligible"]["names"]) == (
            [],
            without["migration"]["eligible"]["names"],
        )

    def test_what_it_has_would_get_and_the_owner_chose(self, with_defaults: tuple[Path, Path], golden: Golden) -> None:
        cluster, config = with_defaults
        for name in ("web", "db"):
            result = explain("vm", cluster, f"shop/{name}", "--config", config)
            golden(result.output.split("\n\n")[1])

    def test_what_the_reader_may_not_read_is_not_told_of_the_cluster(
        self, with_defaults: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster, config = with_defaults
        config.write_text("defaults: {priorityClassName: vms, evictionStrategy: External}\n")
        peek = FilesCluster.peek

        def forbid(self: FilesCluster, key: Key[Any]) -> object:
            forbidden = isinstance(key, ObjectKey) and key.resource is PRIORITY_CLASSES
            return Unavailable("403; grant get on priorityclasses") if forbidden else peek(self, key)

        monkeypatch.setattr(FilesCluster, "peek", forbid)
        result = explain("vm", cluster, "shop/web", "--config", config)
        said = " ".join(result.output.split())
        assert "priorityClassName: not evaluated at its next start (403; grant get on priorityclasses)" in said
        assert "defaults (enforce): not evaluated" not in said, "it sets the evictionStrategy"
        assert "not evaluated: 403; grant get on priorityclasses [lookup-failed]" in said
        assert "is not set" not in said

    def test_whoever_opted_out_needs_no_permission_to_know_that_there_is_none(
        self, with_defaults: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster, config = with_defaults
        config.write_text("defaults: {priorityClassName: vms}\n")
        file = cluster / "virtualmachines.yaml"
        listed = [each for each in yaml.safe_load_all(file.read_text()) if each]
        for each in listed:
            if each["kind"] == "VirtualMachine":
                metadata = each["spec"]["template"].setdefault("metadata", {})
                metadata.setdefault("labels", {})["kubevirt-webhook.github.io/defaults"] = "off"
        file.write_text(yaml.safe_dump_all(listed))
        peek = FilesCluster.peek

        def forbid(self: FilesCluster, key: Key[Any]) -> object:
            forbidden = isinstance(key, ObjectKey) and key.resource is PRIORITY_CLASSES
            return Unavailable("403; grant get on priorityclasses") if forbidden else peek(self, key)

        monkeypatch.setattr(FilesCluster, "peek", forbid)
        found = json.loads(explain("vm", cluster, "shop/web", "--config", config, "-o", "json").stdout)
        assert not [each for each in found["defaults"] if each.get("unread")]

    def test_a_pod_that_waits_for_a_node_was_given_its_defaults(self, with_defaults: tuple[Path, Path]) -> None:
        cluster, config = with_defaults
        file = cluster / "virtualmachines.yaml"
        listed = [each for each in yaml.safe_load_all(file.read_text()) if each]
        vmi = vmi_of_web(listed)
        vmi["metadata"]["uid"] = "uid-of-web"
        given = '[{"key":"vms","operator":"Exists"}]'
        waiting = launcher_of(vmi, {"kubevirt-webhook.github.io/injected-tolerations": given})
        file.write_text(yaml.safe_dump_all([*listed, waiting]))
        found = json.loads(explain("vm", cluster, "shop/web", "--config", config, "-o", "json").stdout)
        (tolerations,) = (each for each in found["defaults"] if each["field"] == "tolerations")
        assert tolerations["given"] == json.loads(given)

    def test_values_are_shown_to_their_end(self, with_defaults: tuple[Path, Path]) -> None:
        cluster, config = with_defaults
        tolerations = [
            {"key": f"example.com/dedicated-to-vms-{number}", "operator": "Exists", "effect": "NoSchedule"}
            for number in range(3)
        ]
        config.write_text(json.dumps({"defaults": {"tolerations": tolerations}}))
        said = " ".join(explain("vm", cluster, "shop/web", "--config", config).output.split())
        row = said.partition("tolerations: ")[2]
        assert json.JSONDecoder().raw_decode(row)[0] == tolerations

    def test_what_a_running_vm_no_longer_has(self, with_defaults: tuple[Path, Path]) -> None:
        """The VMI keeps the record of its start; the pod of a migration since has what was still the default then."""
        cluster, config = with_defaults
        file = cluster / "virtualmachines.yaml"
        listed = [each for each in yaml.safe_load_all(file.read_text()) if each]
        vmi = vmi_of_web(listed)
        term = [{"matchExpressions": [{"key": "disk", "operator": "Exists"}, {"key": "gone", "operator": "Exists"}]}]
        vmi["metadata"] |= {
            "uid": "uid-of-web",
            "annotations": {
                "kubevirt-webhook.github.io/injected-node-selector": '{"zone":"b","pool":"vms"}',
                "kubevirt-webhook.github.io/injected-required-node-affinity": json.dumps(term),
            },
        }

        def given(**spec: Any) -> dict[str, Any]:
            file.write_text(yaml.safe_dump_all([*listed, launcher_of(vmi, vmi["metadata"]["annotations"], **spec)]))
            found = json.loads(explain("vm", cluster, "shop/web", "--config", config, "-o", "json").stdout)
            return {each["field"]: each.get("given") for each in found["defaults"]}

        kept = [{"matchExpressions": term[0]["matchExpressions"][:1]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": kept}}
        present = given(nodeSelector={"zone": "b"}, affinity={"nodeAffinity": required})
        assert (present["nodeSelector"], present["required nodeAffinity"]) == ({"zone": "b"}, kept)

        ended = given()
        assert (ended.get("nodeSelector"), ended.get("required nodeAffinity")) == (None, None)

    def test_what_a_running_vm_was_given(self, with_defaults: tuple[Path, Path], golden: Golden) -> None:
        cluster, config = with_defaults
        file = cluster / "virtualmachines.yaml"
        listed = [each for each in yaml.safe_load_all(file.read_text()) if each]
        vmi = vmi_of_web(listed)
        vmi["metadata"] |= {
            "uid": "uid-of-web",
            "annotations": {
                "kubevirt-webhook.github.io/injected-node-selector": '{"zone":"b"}',
                "kubevirt-webhook.github.io/injected-termination-grace-period-seconds": "3",
                "kubevirt-webhook.github.io/injected-priority-class-name": "vms",
            },
        }
        pod = launcher_of(vmi, vmi["metadata"]["annotations"], nodeSelector={"zone": "b"})
        file.write_text(yaml.safe_dump_all([*listed, pod]))
        result = explain("vm", cluster, "shop/web", "--config", config)
        golden(result.output.split("\n\n")[1])
        moved = json.loads(explain("migration", cluster, "shop/web", "--config", config, "-o", "json").stdout)
        assert moved["eligible"]["names"] == ["node-3"]
        text = explain("migration", cluster, "shop/web", "--config", config).output
        golden(re.sub(r"\n\n(?!Not eligible).*", "", text, flags=re.DOTALL))


def test_a_placement_is_explained_node_by_node(golden: Golden) -> None:
    result = run("explain", "placement", "shop/web", "--cluster-from", EXAMPLES / "drain")
    there = run("explain", "placement", "shop/web", "--cluster-from", EXAMPLES / "cluster")
    read = json.loads(
        run("explain", "placement", "shop/web", "--cluster-from", EXAMPLES / "drain", "-o", "json").stdout
    )

    assert (result.exit_code, there.exit_code, read["schema"]) == (1, 0, PLACEMENT_SCHEMA)
    assert (read["node"], read["chosen"]) == ("node-1", ["node-2"])
    golden(result.stdout + there.stdout)
