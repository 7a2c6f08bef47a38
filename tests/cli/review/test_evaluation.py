from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests import builders
from tests.cli.review.samples import CLUSTER, POOL, manifest, vm
from tests.cli.runner import EXAMPLES, Ended, in_thread, run
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.golden_files import Golden
from webhook import names
from webhook.cli import inputs
from webhook.cli.review import command
from webhook.k8s.resources import CONFIG_MAPS, LEASES, NAMESPACES, NODES
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.definitions import DEFINITIONS
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.policies.sizes.settings import SIZE_LIMITS_ANNOTATION

WHOLE_DEFINITIONS = DEFINITIONS.decoded_as(Unstructured)

REPLICA_SET = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "metadata": {"name": "batch", "namespace": "shop"},
    "spec": {
        "selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"domain": {"devices": {}}}},
    },
}
TEMPLATE = {
    "apiVersion": "template.kubevirt.io/v1beta1",
    "kind": "VirtualMachineTemplate",
    "metadata": {"name": "fedora", "namespace": "shop"},
    "spec": {
        "parameters": [{"name": "NAME", "required": True}],
        "virtualMachine": {"metadata": {"name": "${NAME}"}, "spec": builders.vm()["spec"]},
    },
}
CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"


@pytest.mark.parametrize("place", [("metadata",), ("spec", "template", "metadata")])
def test_an_opt_out_that_has_no_effect_is_warned_of(place: tuple[str, ...], tmp_path: Path) -> None:
    """As the API server does, in whatever namespace."""
    given = vm()
    metadata: Any = given
    for part in place:
        metadata = metadata.setdefault(part, {})
    metadata["labels"] = {f"{names.DOMAIN}/spread": "off"}
    answer = run("review", manifest(tmp_path, given), *CLUSTER)
    assert (answer.exit_code, "use spec.template.metadata.annotations" in answer.output) == (0, True)


def test_a_mistyped_key_is_warned_of_in_what_makes_vmis_too(tmp_path: Path) -> None:
    """The API server says nothing to who creates a replica set."""
    given = json.loads(json.dumps(REPLICA_SET))
    given["spec"]["template"]["metadata"]["annotations"] = {f"{names.DOMAIN}/spred": "off"}
    answer = run("review", manifest(tmp_path, given), *CLUSTER)
    assert (answer.exit_code, "is it spread? use metadata.annotations" in answer.output) == (0, True)


@pytest.mark.parametrize(
    ("given", "kind", "name", "user", "key"),
    [
        (POOL, "VirtualMachine", "web-0", CONTROLLER, "virtualMachineTemplate"),
        (REPLICA_SET, "VirtualMachineInstance", "batch", CONTROLLER, "template"),
        (TEMPLATE, "VirtualMachine", "new", "kubernetes-admin", "virtualMachine"),
    ],
)
def test_what_makes_vms_is_reviewed_as_them(
    given: Any, kind: str, name: str, user: str, key: str, tmp_path: Path
) -> None:
    path = tmp_path / "object.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [given]}, sort_keys=False))
    reviewed = run("review", path, *CLUSTER, "--param", "NAME=new", "-o", "json")
    answer = json.loads(reviewed.stdout)

    keys = [line.strip() for line in path.read_text().splitlines()]
    expected = {"kind": kind, "namespace": "shop", "name": name, "user": user}
    # The settings of the examples leave VMIs alone.
    expected["decision"] = "patched" if kind == "VirtualMachine" else "allowed"
    expected["origin"] = f"{given['kind']} shop/{given['metadata']['name']}"
    expected["source"] = f"{path}:{keys.index(f'{key}:') + 1}"
    assert (reviewed.exit_code, answer | expected) == (0, answer)
    # kubevirt-webhook changes the VM, so the patch that makes the change applies to it directly.
    shown = run("review", path, *CLUSTER, "--param", "NAME=new", "-o", "yaml")
    assert list(yaml.safe_load_all(shown.stdout)) == [given]


@pytest.mark.control("green-without-a-review")
def test_a_template_without_its_parameters_is_not_evaluated(tmp_path: Path, ended: Ended) -> None:
    ended(run("review", manifest(tmp_path, [TEMPLATE, vm()]), *CLUSTER), 3)
    assert run("review", manifest(tmp_path, TEMPLATE), *CLUSTER, "--param", "NAME").exit_code == 2


@pytest.mark.control("green-without-a-review")
def test_what_cannot_be_evaluated_is_exit_3(tmp_path: Path) -> None:
    """No mode is known of a namespace that is missing; once, without the advice to read a log that no command has."""
    nowhere = vm()
    del nowhere["metadata"]["namespace"]
    (tmp_path / "cluster").mkdir()
    manifest(tmp_path / "cluster", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    path, cluster = manifest(tmp_path, nowhere), ("--cluster-from", tmp_path / "cluster")
    missing = run("review", path, *cluster)

    said = ("namespace default does not exist", "[namespace-unreadable]", "--namespace", "log")
    assert (missing.exit_code, [missing.stdout.count(words) for words in said]) == (3, [1, 1, 1, 0])
    assert run("review", path, *cluster, "-n", "shop").exit_code == 0


def test_a_review_of_a_missing_namespace_is_named_by_its_request(tmp_path: Path) -> None:
    """It was reported as "CREATE AdmissionReview default/", with advice that does not help."""
    asked = builders.review(builders.vm(), "jane", operation="UPDATE", namespace="elsewhere", name="web")
    asked["request"]["object"] = {}

    result = run("review", manifest(tmp_path, asked), *CLUSTER, "-o", "json")

    assert result.exit_code == 3
    found = json.loads(result.stdout)
    named = [found[key] for key in ("operation", "kind", "namespace", "name", "user", "code")]
    assert named == ["UPDATE", "VirtualMachine", "elsewhere", "web", "jane", "namespace-unreadable"]
    assert "--namespace" not in found["message"]
    assert [each["path"] for each in found["findings"]] == ["request.namespace"]


@pytest.mark.parametrize(("kind", "status"), [("VirtualMachine", 3), ("ConfigMap", 0)])
def test_a_template_of_openshift_is_not_taken_for_evaluated(tmp_path: Path, kind: str, status: int) -> None:
    version = "kubevirt.io/v1" if kind == "VirtualMachine" else "v1"
    template = {
        "apiVersion": "template.openshift.io/v1",
        "kind": "Template",
        "metadata": {"name": "fedora", "namespace": "shop"},
        "objects": [{"apiVersion": version, "kind": kind, "metadata": {"name": "${NAME}"}}],
    }
    result = run("review", manifest(tmp_path, template), *CLUSTER)

    assert result.exit_code == status
    assert ("oc process -f FILE" in result.stdout) is bool(status)


@contextmanager
def api_server() -> Iterator[FakeApiServer]:
    server = FakeApiServer()
    for resource in (KUBEVIRTS, NODES):
        server.serve(resource)
    server.put(NAMESPACES, "shop")
    spec = {"group": "kubevirt.io", "names": {"kind": "VirtualMachine"}, "scope": "Namespaced"}
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": {"type": "object", "properties": {}}}}
    server.put(WHOLE_DEFINITIONS, "virtualmachines.kubevirt.io", spec={**spec, "versions": [version]})
    with in_thread(running(server)):
        yield server


def test_the_definitions_of_a_large_cluster_are_read_page_by_page(tmp_path: Path) -> None:
    """Those of OpenShift have more bytes than one answer may have."""
    with api_server() as server:
        for number in range(18):
            spec = {"group": "example.com", "names": {"kind": "A"}, "description": "x" * 1024 * 1024}
            server.put(WHOLE_DEFINITIONS, f"a{number}.example.com", spec=spec)
        done = run("review", manifest(tmp_path, vm()), "--kubeconfig", server.kubeconfig(tmp_path / "config"))

    assert "the cluster's CustomResourceDefinitions" in done.stderr
    assert done.exit_code == 1, "no field is known"


@pytest.mark.parametrize(("status", "exit_status"), [(403, 0), (500, 2), (0, 2)])
def test_definitions_that_cannot_be_read(tmp_path: Path, status: int, exit_status: int, golden: Golden) -> None:
    with api_server() as server:
        if status:
            server.fail(WHOLE_DEFINITIONS.path(), status, times=100)
        else:
            server.answer(WHOLE_DEFINITIONS.path(), lambda _: web.Response(body=b"{"), times=100)
        done = run("review", manifest(tmp_path, vm()), "--kubeconfig", server.kubeconfig(tmp_path / "config"))

    assert done.exit_code == exit_status, done.output
    golden(done.stderr)


def test_without_the_installed_settings_nothing_is_called_allowed_for_sure(tmp_path: Path) -> None:
    with api_server() as server:
        server.fail(CONFIG_MAPS.path("kubevirt-webhook", "kubevirt-webhook"), 403, times=100)
        where = ("--no-validate", "--kubeconfig", server.kubeconfig(tmp_path / "config"))
        done = run("review", manifest(tmp_path, vm()), *where)
        (tmp_path / "settings.yaml").write_text("{}")
        named = run("review", manifest(tmp_path, vm()), *where, "--config", tmp_path / "settings.yaml")

    assert (done.exit_code, named.exit_code) == (3, 0)
    assert "not evaluated: the installed settings" in done.stderr


def test_a_review_over_a_cluster_passes_on_each_group_as_soon_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its progress bar stands still until the end."""
    events: list[str] = []

    @contextmanager
    def progress(_: int) -> Iterator[Callable[[int], None]]:
        yield lambda _: events.append("shown")

    async def evaluate(*arguments: Any) -> Any:
        events.append("evaluated")
        return await original(*arguments)

    original = command.evaluate
    monkeypatch.setattr(command, "progress", progress)
    monkeypatch.setattr(command, "evaluate", evaluate)
    monkeypatch.setattr(inputs, "PART_BYTES", 1)
    for name in "abc":
        manifest(tmp_path, vm(), f"{name}.yaml")
    with api_server() as server:
        run("review", tmp_path, "--kubeconfig", server.kubeconfig(tmp_path / ".config"))
    assert events == ["evaluated", "shown"] * 3


@pytest.mark.parametrize(
    ("instancetype", "question"),
    [
        ({"name": "u1.smal"}, 'Did you mean "u1.small"?'),
        ({"name": "u1.small", "kind": "VirtualMachineInstancetyp"}, 'Did you mean "VirtualMachineInstancetype"?'),
        ({"name": "u1.absolutely-enormous"}, "if both are right, create the object first"),
    ],
)
def test_a_missing_instancetype_leads_and_what_may_be_meant_is_asked(
    instancetype: Any, question: str, tmp_path: Path
) -> None:
    obj = vm(instancetype=instancetype)
    obj["metadata"]["namespace"] = "apps"
    obj["spec"]["template"]["spec"]["domain"] = {"devices": {}}
    text = run("review", manifest(tmp_path, obj), *CLUSTER)
    warnings = [line for line in text.stdout.splitlines() if line.startswith("  warning: ")]
    assert [line.rpartition("[")[2] for line in warnings] == ["instancetype-missing]"]
    assert question in text.stdout
    assert all("Memory" not in line for line in text.stdout.splitlines() if "[default-conflicts]" in line)
    github = run("review", manifest(tmp_path, obj), *CLUSTER, "-o", "github").stdout
    assert (github.count("[instancetype-missing]"), question in github) == (1, True)
    expanded = run("expand", "-f", manifest(tmp_path, obj), "--cluster-from", EXAMPLES / "cluster")
    assert ("Did you mean" in expanded.stderr) == question.startswith("Did")


def test_a_default_that_is_written_out_is_no_size_of_the_owners(tmp_path: Path) -> None:
    """The API server's record says so in a cluster; a manifest has none."""
    prefix = "kubevirt-webhook.github.io"
    labels = {f"{prefix}/instancetypes": "enforce", f"{prefix}/sizes": "enforce"}
    annotations = {f"{prefix}/default-instancetype": "small", f"{prefix}/expand-instancetypes": "true"}
    annotations[f"{prefix}/require-instancetype"] = "true"
    size = {"cpu": {"guest": 2}, "memory": {"guest": "2Gi"}}
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "shop", "labels": labels, "annotations": annotations},
        },
        {
            "apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachineClusterInstancetype",
            "metadata": {"name": "small"},
            "spec": size,
        },
    ]
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(yaml.safe_dump_all(objects))
    plain, inline = builders.vm(), builders.vm()
    inline["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "2Gi"}
    for obj, code in ((plain, "no-inline-size"), (inline, "instancetype-required")):
        obj["metadata"]["namespace"] = "shop"
        ended = run("review", manifest(tmp_path, obj), "--cluster-from", cluster, "-o", "json")
        result = json.loads(ended.stdout)
        assert [each["reasons"][0]["code"] for each in result["judgements"]][-1] == code


def test_a_namespace_is_reviewed_by_its_own_labels(tmp_path: Path) -> None:
    written: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    written["metadata"]["labels"] = {names.policy_label("sizes"): "enforce"}
    written["metadata"]["annotations"] = {SIZE_LIMITS_ANNOTATION: "{"}
    done = run("review", manifest(tmp_path, written), *CLUSTER, "-o", "json")
    result = json.loads(done.stdout)
    assert (done.exit_code, result["decision"], result["namespace"], result["name"]) == (1, "denied", "", "shop")
    assert [each["endpoint"] for each in result["judgements"]] == ["/validate/sizes/namespaces/enforce"]


def test_all_that_is_denied_is_shown_at_once(tmp_path: Path) -> None:
    obj = vm()
    obj["spec"]["template"]["spec"]["domain"] |= {"cpu": {"cores": 9}, "memory": {"guest": "1Gi"}}
    place = {"name": "many", "labels": {names.policy_label(each): "enforce" for each in ("naming", "sizes")}}
    place["annotations"] = {SIZE_LIMITS_ANNOTATION: '{"cpu": {"max": 4}}'}
    (tmp_path / "cluster").mkdir()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": place}
    (tmp_path / "cluster" / "namespace.yaml").write_text(yaml.safe_dump(namespace))
    obj["metadata"] |= {"name": "a" * 64, "namespace": "many"}
    options = ("review", manifest(tmp_path, obj), "--cluster-from", tmp_path / "cluster")
    done = run(*options, "-o", "json")
    denied = [each["policy"] for each in json.loads(done.stdout)["judgements"] if each["decision"] == "denied"]
    assert (done.exit_code, sorted(denied)) == (1, ["naming", "sizes"])
    shown = run(*options).stdout
    assert all(f"[{code}]" in shown for code in ("name-unmigratable", "size-out-of-limits"))


@pytest.mark.parametrize("is_forbidden", [True, False])
def test_the_health_of_a_scheduler_that_a_user_may_not_read_is_no_warning(tmp_path: Path, is_forbidden: bool) -> None:
    """The server knows it: a warning would come with every VM of an owner, and be wrong."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("schedulers: {kubevirt: {healthCheck: lease kubevirt-scheduler/kubevirt-scheduler}}")
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    with api_server() as server:
        server.put(NAMESPACES, "shop", metadata={"labels": {"kubevirt-webhook.github.io/scheduling": "enforce"}})
        server.serve(LEASES)
        held = {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": now}
        server.put(LEASES, "kubevirt-scheduler", "kubevirt-scheduler", spec=held)
        if is_forbidden:
            server.fail(LEASES.path("kubevirt-scheduler", "kubevirt-scheduler"), 403, times=100)
        where = ("--kubeconfig", server.kubeconfig(tmp_path / "config"), "--config", settings, "--no-validate")
        done = run("review", manifest(tmp_path, vm()), *where, "-o", "json", "--fail-on", "warn")

    answer = json.loads(done.stdout)
    (judgement,) = (each for each in answer["judgements"] if each["policy"] == "scheduling")
    assert (done.exit_code, answer["warnings"]) == (0, [])
    (reason,) = judgement["reasons"]
    assert reason["code"] == ("scheduler-health-unknown" if is_forbidden else "scheduler-injected")
    assert reason["text"].startswith("not evaluated: ") == is_forbidden
    assert "VM uses" not in reason["text"]
