from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml

from tests import builders
from tests.cli.examples import EXAMPLES, EXPECTED
from tests.cli.runner import run
from webhook import names
from webhook.admission.decision import Change, Decision, Denial, Reason
from webhook.cli.review.result import WEIGHT
from webhook.review import endpoints

CLUSTER: list[str | Path] = ["--cluster-from", EXAMPLES / "cluster", "--config", EXAMPLES / "settings.yaml"]


def test_every_example_has_an_expectation() -> None:
    assert {path.name for path in (EXAMPLES / "reviews").iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_examples(name: str) -> None:
    result = run("review", EXAMPLES / "reviews" / name, *CLUSTER, "-o", "json")
    answer = json.loads(result.stdout)

    assert result.exit_code == (1 if answer["decision"] == "denied" else 0)
    assert answer["decision"] == EXPECTED[name]["decision"]
    decisive = max(answer["judgements"], key=lambda evaluation: WEIGHT.index(evaluation["decision"]))
    assert decisive["reasons"][0]["code"] == EXPECTED[name]["reason"]


def manifest(tmp_path: Path, obj: Any, name: str = "object.yaml") -> Path:
    path = tmp_path / name
    path.write_text(yaml.safe_dump_all(obj) if isinstance(obj, list) else yaml.safe_dump(obj))
    return path


def vm(**spec: Any) -> dict[str, Any]:
    result = builders.vm(**spec)
    result["metadata"]["namespace"] = "shop"
    return result


def test_a_manifest_without_a_namespace_is_sent_where_one_says(tmp_path: Path) -> None:
    nowhere = vm()
    del nowhere["metadata"]["namespace"]
    file = manifest(tmp_path, nowhere)

    assert json.loads(run("review", file, *CLUSTER, "-o", "json").stdout)["namespace"] == "default"
    answer = json.loads(run("review", "-n", "shop", file, *CLUSTER, "-o", "json").stdout)
    assert (answer["namespace"], answer["decision"]) == ("shop", "patched")


def test_a_manifest_of_another_namespace_is_a_mistake(tmp_path: Path, golden: Callable[[str], None]) -> None:
    result = run("review", "--namespace=lab", manifest(tmp_path, vm()), *CLUSTER)

    assert result.exit_code == 2
    golden(result.stderr.replace(str(tmp_path), "DIR"))


def test_text_is_for_people(tmp_path: Path, golden: Callable[[str], None]) -> None:
    golden(run("review", manifest(tmp_path, vm()), *CLUSTER).stdout.replace(str(tmp_path), "DIR"))


@pytest.mark.parametrize("namespace", [None, ""])
def test_what_names_no_namespace_is_in_default(tmp_path: Path, namespace: str | None) -> None:
    obj = builders.vm()
    obj["metadata"]["namespace"] = namespace

    assert "CREATE VirtualMachine default/web01" in run("review", manifest(tmp_path, obj), *CLUSTER).stdout


def test_yaml_is_the_patched_object(tmp_path: Path) -> None:
    patched = yaml.safe_load(run("review", manifest(tmp_path, vm()), *CLUSTER, "-o", "yaml").stdout)

    assert patched["spec"]["template"]["spec"]["schedulerName"] == "kubevirt"
    assert patched["metadata"]["annotations"] == {names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt"}


def test_patch_is_a_json_patch(tmp_path: Path) -> None:
    operations = json.loads(run("review", manifest(tmp_path, vm()), *CLUSTER, "-o", "patch").stdout)

    assert operations[0] == {"op": "add", "path": "/spec/template/spec/schedulerName", "value": "kubevirt"}


def test_standard_input_lists_and_several_documents(tmp_path: Path) -> None:
    both = [{"apiVersion": "v1", "kind": "List", "items": [vm(), vm(scheduler="stork")]}, vm(scheduler="x")]
    answers = json.loads(run("review", "-", *CLUSTER, "-o", "json", stdin=yaml.safe_dump_all(both)).stdout)

    assert [answer["decision"] for answer in answers] == ["patched", "allowed", "allowed"]
    text = run("review", manifest(tmp_path, both), *CLUSTER).stdout
    assert text.count("CREATE VirtualMachine") == 3


def test_launcher_pod_manifest_is_sent_by_kubevirt_and_defaulted(tmp_path: Path) -> None:
    pod = builders.launcher_pod(schedulerName=None)
    pod["metadata"]["namespace"] = "shop"
    owner = pod["metadata"]["ownerReferences"][0]
    owner |= {"name": "web", "uid": "6b0f3a52-0f4e-4b58-8a3c-000000000001"}
    path = manifest(tmp_path, pod)

    assert json.loads(run("review", path, *CLUSTER, "-o", "json").stdout)["decision"] == "patched"
    asked = json.loads(run("review", path, *CLUSTER, "--as", "mallory", "-o", "json").stdout)
    assert (asked["decision"], asked["user"]) == ("allowed", "mallory")


def test_objects_that_nobody_asks_about(tmp_path: Path, golden: Callable[[str], None]) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "shop"}}

    answer = json.loads(run("review", manifest(tmp_path, service), *CLUSTER, "-o", "json").stdout)
    assert (answer["decision"], answer["judgements"]) == ("skipped", [])
    golden(answer["message"])


def test_namespace_that_has_not_opted_in(tmp_path: Path) -> None:
    obj = vm()
    obj["metadata"]["namespace"] = "legacy"

    assert run("review", manifest(tmp_path, obj), *CLUSTER).stdout.startswith("skipped")


def test_an_eviction_is_sent_to_the_subresource(tmp_path: Path) -> None:
    metadata = {"name": "virt-launcher-web-x", "namespace": "shop", "annotations": {"requested-by": "x"}}
    path = manifest(tmp_path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})

    answer = json.loads(run("review", path, *CLUSTER, "-o", "json").stdout)

    assert [one["endpoint"] for one in answer["judgements"]] == ["/mutate/eviction/pods/enforce"]


def test_denied_is_exit_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(*_: Any) -> Decision:
        return Decision((Reason("no", "it is refused"),), denial=Denial(403, "not here"))

    refusing = tuple(msgspec.structs.replace(endpoint, handler=reject) for endpoint in endpoints.ENDPOINTS)
    monkeypatch.setattr("webhook.cli.requests.ENDPOINTS", refusing)
    result = run("review", manifest(tmp_path, vm()), *CLUSTER)

    assert result.exit_code == 1
    assert "not here" in result.stdout
    assert result.stdout.startswith("denied")


SECRET = "hunter2"


def test_secrets_are_shown_only_on_request(tmp_path: Path) -> None:
    obj = vm()
    obj["spec"]["template"]["spec"]["volumes"] = [{"name": "c", "cloudInitNoCloud": {"userData": SECRET}}]
    path = manifest(tmp_path, obj)

    for output in ("text", "json", "yaml", "patch"):
        assert SECRET not in run("review", path, *CLUSTER, "-o", output).stdout
    assert SECRET in run("review", path, *CLUSTER, "-o", "yaml", "--show-secrets").stdout


@pytest.mark.parametrize(
    "content",
    [
        "",
        "- 1",
        "just text",
        "kind: Pod",
        "apiVersion: v1\nkind: Pod",
        "a: [",
        "a: 1\na: 2",
        json.dumps(builders.review(vm(), uid="", namespace="shop")),
    ],
    ids=["empty", "list", "text", "no version", "no metadata", "syntax", "duplicate", "no uid"],
)
def test_bad_input_is_one_sentence_and_exit_2(tmp_path: Path, content: str, golden: Callable[[str], None]) -> None:
    path = tmp_path / "object.yaml"
    path.write_text(content)
    result = run("review", path, *CLUSTER)

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert str(path) in result.stderr
    golden(result.stderr.replace(str(path), "FILE"))


def test_bad_sources(tmp_path: Path, golden: Callable[[str], None]) -> None:
    path = manifest(tmp_path, vm())
    both = run("review", path, "--cluster-from", tmp_path, "--kubeconfig", tmp_path)
    missing = run("review", path, "--cluster-from", tmp_path / "none")
    kubeconfig = run("review", path, "--kubeconfig", tmp_path / "none")
    review = run("review", tmp_path / "none.yaml", *CLUSTER)

    for result in (both, missing, kubeconfig, review):
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        golden(result.stderr.replace(str(tmp_path), "DIR"))


@pytest.mark.parametrize("command", [("review", "FILE"), ("explain", "migration", "VM")], ids=" ".join)
def test_without_a_cluster_files_are_suggested(
    command: tuple[str, ...], tmp_path: Path, golden: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = manifest(tmp_path, vm())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    result = run(*(str(path) if word == "FILE" else word.lower() for word in command))

    assert result.exit_code == 2
    assert "--cluster-from DIR" in result.stderr
    golden(result.stderr.replace(str(tmp_path), "DIRECTORY"))


@pytest.mark.parametrize(
    "request_", [None, [1], {"uid": "u", "userInfo": "x"}, {}], ids=["none", "list", "malformed user", "no uid"]
)
def test_reviews_that_ask_nothing(tmp_path: Path, request_: Any, golden: Callable[[str], None]) -> None:
    asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request_}
    result = run("review", manifest(tmp_path, asked), *CLUSTER)

    assert result.exit_code == 2
    golden(result.stderr.replace(str(tmp_path), "DIR"))


def test_redacted_output_says_so(tmp_path: Path) -> None:
    obj = vm()
    obj["spec"]["template"]["spec"]["volumes"] = [{"name": "c", "cloudInitNoCloud": {"userData": SECRET}}]

    assert "secrets are redacted" in run("review", manifest(tmp_path, obj), *CLUSTER, "-o", "yaml").stderr
    assert "redacted" not in run("review", manifest(tmp_path, vm()), *CLUSTER, "-o", "yaml").stderr


def test_control_characters_are_shown_not_obeyed(tmp_path: Path) -> None:
    obj = vm()
    obj["metadata"]["name"] = "a\x1b[31mb"

    output = run("review", manifest(tmp_path, obj), *CLUSTER).stdout
    assert "\x1b" not in output
    assert r"a\x1b[31mb" in output


HEADER = "Basic hunter2canary"


PRESIGNED = "https://b.s3.amazonaws.com/d.img?X-Amz-Signature=hunter2canary"


def with_secrets() -> dict[str, Any]:
    """A VM in which the probe logs in, as it would be patched: the whole template is new to it."""
    obj = vm()
    header = {"name": "Authorization", "value": HEADER}
    obj["spec"]["template"]["spec"]["readinessProbe"] = {"httpGet": {"port": 80, "httpHeaders": [header]}}
    obj["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "d"}, "spec": {"source": {"http": {"url": PRESIGNED}}}}]
    obj["metadata"]["annotations"] = {"example.com/token": "hunter2canary"}
    return obj


def patching(view: Any, request: Any, facts: Any, settings: Any) -> Decision:
    """A policy that changes all that holds a secret."""
    secrets = with_secrets()
    paths = ("spec", "template", "spec", "readinessProbe"), ("spec", "dataVolumeTemplates"), ("metadata", "annotations")
    values = []
    for path in paths:
        value: Any = secrets
        for segment in path:
            value = value[segment]
        values.append(value)
    changes = tuple(Change(path, None, value, "r") for path, value in zip(paths, values, strict=True))
    return Decision(
        (Reason("r", f"as {HEADER} and {PRESIGNED} say"),), changes, warnings=(Reason("r", f"see {PRESIGNED}"),)
    )


@pytest.mark.parametrize("output", ["text", "json", "yaml", "patch", "junit", "sarif", "github"])
@pytest.mark.parametrize("mode", ["patch", "deny"])
def test_no_output_shows_secrets_but_when_they_are_asked_for(
    output: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denying(view: Any, request: Any, facts: Any, settings: Any) -> Decision:
        made = patching(view, request, facts, settings)
        return Decision(made.reasons, made.changes, Denial(403, f"{PRESIGNED} is not allowed"))

    endpoint = next(e for e in endpoints.ENDPOINTS if e.path == "/mutate/instancetypes/virtualmachines/enforce")
    changed = msgspec.structs.replace(endpoint, handler=patching if mode == "patch" else denying)
    monkeypatch.setattr("webhook.cli.requests.ENDPOINTS", (changed,))
    obj = with_secrets() | {"spec": builders.vm()["spec"]}
    obj["metadata"]["namespace"] = "apps"
    given = manifest(tmp_path, obj)

    hidden = run("review", given, *CLUSTER, "-o", output)
    assert "hunter2canary" not in hidden.stdout + hidden.stderr
    assert "AAAA" not in hidden.stdout
    if mode == "patch" and output in ("text", "json", "yaml", "patch"):
        assert "<redacted" in hidden.stdout
        assert ("secrets are redacted" in hidden.stderr) is (output != "text")
        assert "hunter2canary" in run("review", given, *CLUSTER, "-o", output, "--show-secrets").stdout


def test_what_a_terminal_would_obey_is_shown(tmp_path: Path) -> None:
    obj = vm()
    obj["metadata"]["name"] = "web\u202e\x1b[31m01\nok"
    path = tmp_path / "a\x1b[2J.yaml"
    path.write_text(json.dumps(obj))

    text = run("review", path, *CLUSTER).stdout
    assert "shop/web\\u202e\\x1b[31m01\\nok" in text
    assert "a\\x1b[2J.yaml:1" in text
    broken = tmp_path / "b\x1b[2J\n.yaml"
    broken.write_text("a: [")
    refused = run("review", broken)
    assert refused.exit_code == 2
    assert "\x1b" not in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    for output in ("json", "yaml", "patch"):
        assert all(char.isprintable() or char == "\n" for char in run("review", path, *CLUSTER, "-o", output).stdout)


def test_the_kubevirt_version_decides(tmp_path: Path) -> None:
    """KubeVirt 1.6 finds a conflict in any memory beside an instancetype, later ones only in the same member."""
    named = vm(instancetype={"name": "u1.medium"})
    named["metadata"]["namespace"] = "apps"
    named["spec"]["template"]["spec"]["domain"] = {"memory": {"maxGuest": "16Gi"}}
    file = manifest(tmp_path, named)

    def decision(*options: str) -> Any:
        return json.loads(run("review", file, *CLUSTER, "-o", "json", *options).stdout)["decision"]

    assert decision("--kubevirt-version=1.6") == "denied"
    assert decision("--kubevirt-version=1.7") != "denied"
    assert run("review", file, *CLUSTER, "--kubevirt-version=new").exit_code == 2


POOL = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"replicas": 3, "virtualMachineTemplate": {"spec": builders.vm()["spec"]}},
}
REPLICA_SET = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "metadata": {"name": "batch", "namespace": "shop"},
    "spec": {"template": {"metadata": {"labels": {"app": "x"}}, "spec": {"domain": {"devices": {}}}}},
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
OTHER = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"


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

    assert reviewed.exit_code == 0
    assert (answer["kind"], answer["namespace"], answer["name"]) == (kind, "shop", name)
    # The settings of the examples leave VMIs alone.
    assert answer["decision"] == ("patched" if kind == "VirtualMachine" else "allowed")
    assert answer["user"] == user
    assert answer["origin"] == f"{given['kind']} shop/{given['metadata']['name']}"
    keys = [line.strip() for line in path.read_text().splitlines()]
    assert answer["source"] == f"{path}:{keys.index(f'{key}:') + 1}"
    # What kubevirt-webhook changes is the VM, so what makes it can be applied as it is.
    shown = run("review", path, *CLUSTER, "--param", "NAME=new", "-o", "yaml")
    assert list(yaml.safe_load_all(shown.stdout)) == [given]


def test_kinds_of_other_groups_make_no_vms(tmp_path: Path) -> None:
    other = POOL | {"apiVersion": "example.com/v1"}

    assert json.loads(run("review", manifest(tmp_path, other), *CLUSTER, "-o", "json").stdout)["decision"] == "skipped"


def test_a_template_without_its_parameters_is_not_evaluated(tmp_path: Path, golden: Callable[[str], None]) -> None:
    result = run("review", manifest(tmp_path, [TEMPLATE, vm()]), *CLUSTER)

    assert result.exit_code == 3
    golden(result.output.replace(str(tmp_path), "DIR"))
    assert run("review", manifest(tmp_path, TEMPLATE), *CLUSTER, "--param", "NAME").exit_code == 2


def test_what_cannot_be_evaluated_is_exit_3(tmp_path: Path) -> None:
    """The example cluster has no such namespace, so no mode is known."""
    unknown = vm()
    unknown["metadata"]["namespace"] = "unknown"
    result = run("review", manifest(tmp_path, unknown), *CLUSTER)

    assert result.exit_code == 3
    assert "[namespace-unreadable]" in result.stdout


def test_a_mistake_does_not_keep_others_from_being_reviewed(tmp_path: Path, golden: Callable[[str], None]) -> None:
    (tmp_path / "bad.yaml").write_text("a: 1\na: 2\n")
    manifest(tmp_path, [vm(), POOL | {"spec": {}}])
    result = run("review", tmp_path, *CLUSTER)

    assert result.exit_code == 2
    assert "patched  CREATE VirtualMachine shop/web01" in result.stdout
    golden(result.stderr.replace(str(tmp_path), "DIR"))
    # Nobody applies half of the objects.
    for output in ("yaml", "patch"):
        assert run("review", tmp_path, *CLUSTER, "-o", output).stdout == ""


def test_warnings_fail_where_one_says_so(tmp_path: Path) -> None:
    file = EXAMPLES / "reviews" / "07-warn-mode.yaml"

    assert run("review", file, *CLUSTER).exit_code == 0
    assert run("review", file, *CLUSTER, "--fail-on", "warn").exit_code == 1


@pytest.mark.parametrize("output", ["json", "yaml", "patch", "junit", "sarif", "github"])
def test_standard_output_is_pure(output: str) -> None:
    result = run("review", EXAMPLES / "reviews", EXAMPLES / "vms", *CLUSTER, "-o", output)
    parsers: dict[str, Callable[[str], Any]] = {
        "json": json.loads,
        "patch": json.loads,
        "sarif": json.loads,
        "yaml": lambda text: list(yaml.safe_load_all(text)),
        "junit": ET.fromstring,
        "github": lambda text: [line[: line.index(" ")] for line in text.splitlines()],
    }

    assert result.exit_code == 1
    assert parsers[output](result.stdout)
    assert result.stderr.splitlines()[-1].startswith(f"{len(EXPECTED) + 3} objects in {len(EXPECTED) + 3} files: ")


def test_many_files_are_reviewed_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 300 VMs once, in the order of their files."""
    monkeypatch.setattr("webhook.cli.review.inputs.PART_BYTES", 20_000)
    for number in range(300):
        machine = vm()
        machine["metadata"]["name"] = f"web{number:03}"
        (tmp_path / f"{number:03}.yaml").write_text(yaml.safe_dump(machine))
    result = run("review", tmp_path, *CLUSTER, "-o", "json", "--jobs", "2")

    assert result.exit_code == 0
    assert [each["name"] for each in json.loads(result.stdout)] == [f"web{number:03}" for number in range(300)]
    assert result.stderr == "300 objects in 300 files: 300 patched\n"


def test_rendered_charts_come_from_standard_input(tmp_path: Path) -> None:
    """As `helm template` and `kustomize build` write them: comments, empty documents, kinds of all sorts."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    chart = "---\n# Source: chart/templates/none.yaml\n---\n# Source: chart/templates/vm.yaml\n"
    text = chart + "---\n".join(
        yaml.safe_dump(each) for each in (vm(), service, {"kind": "Kustomization", "apiVersion": "x/v1"})
    )
    result = run("review", "-", *CLUSTER, stdin=text)

    assert result.exit_code == 0
    assert result.stdout.count("CREATE") == 1
    assert result.stderr == "1 object in 1 file: 1 patched; 2 of other kinds\n"
