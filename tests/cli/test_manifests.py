"""`review` and `expand` over manifests as people write them: both say of a file what the API server says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from hypothesis import given, settings

from tests.cli.runner import EXAMPLES, run
from tests.mutated import files

MANIFESTS = Path(__file__).parents[1] / "data" / "manifests"
CLUSTER: list[str | Path] = ["--cluster-from", MANIFESTS / "cluster", "--config", MANIFESTS / "settings.yaml"]


def review(name: str, *options: str | Path) -> tuple[Result, list[Any]]:
    """The result, and the answers about objects of kinds that are reviewed or checked."""
    result = run("review", MANIFESTS / name, *(options or CLUSTER), "-o", "json")
    answers = json.loads(result.stdout)
    return result, answers if isinstance(answers, list) else [answers]


def expand(name: str, *options: str | Path) -> Result:
    return run("expand", "-f", MANIFESTS / name, *options)


def paths(answers: list[Any]) -> list[str]:
    return [each["path"] for answer in answers for each in answer["findings"]]


def codes(answer: Any) -> list[str]:
    return [reason["code"] for judgement in answer["judgements"] for reason in judgement["reasons"]]


def test_objects_of_one_file_count_for_each_other(tmp_path: Path) -> None:
    result, answers = review("conflict.yaml")
    assert (result.exit_code, [answer["decision"] for answer in answers][-1]) == (1, "denied")
    assert "domain.cpu.cores conflicts with selected instance type" in answers[-1]["message"]
    assert "domain.cpu.cores conflicts with selected instance type" in expand("conflict.yaml").stderr
    # In any order, and in other files.
    documents = list(yaml.safe_load_all((MANIFESTS / "conflict.yaml").read_text()))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(documents[1]))
    (tmp_path / "b.json").write_text(json.dumps(documents[0]))
    assert run("review", tmp_path, *CLUSTER).exit_code == 1


def test_a_namespace_of_the_same_files_counts_with_its_labels(tmp_path: Path) -> None:
    labels = {"kubevirt-webhook.github.io/scheduling": "enforce"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new", "labels": labels}}
    vm = yaml.safe_load((MANIFESTS / "conflict.yaml").read_text().split("---")[1])
    vm["metadata"]["namespace"], vm["spec"] = "new", {"runStrategy": "Always", "template": vm["spec"]["template"]}
    cluster: list[str | Path] = ["--cluster-from", EXAMPLES / "cluster", "--config", EXAMPLES / "settings.yaml"]

    def decision(*objects: Any) -> str:
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
        answers = json.loads(run("review", tmp_path / "all.yaml", *cluster, "-o", "json").stdout)
        return str((answers if isinstance(answers, list) else [answers])[0]["decision"])

    assert (decision(vm), decision(vm, namespace)) == ("error", "patched")
    # One that is applied to a namespace of the cluster adds its labels to those that are there.
    namespace["metadata"] = {"name": "legacy", "labels": labels}
    vm["metadata"]["namespace"] = "legacy"
    assert (decision(vm), decision(vm, namespace)) == ("skipped", "patched")


def test_what_stands_in_the_metadata_of_a_template_is_denied_in_the_words_of_virt_api() -> None:
    result, (answer,) = review("indented.yaml")
    assert result.exit_code == 1
    assert answer["message"].startswith("virt-api denies the object: spec.template.metadata.")
    assert "spec.template.metadata.spec in body is a forbidden property" in [e["text"] for e in answer["findings"]]
    expanded = expand("indented.yaml")
    assert (expanded.exit_code, expanded.stdout) == (1, "")
    assert "spec.template.metadata.spec in body is a forbidden property" in expanded.stderr


def test_a_vmi_without_memory_is_denied() -> None:
    vm = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"}}
    vm |= {"spec": {"running": False, "template": {"metadata": {}}}}
    result = run("expand", "-f", "-", stdin=json.dumps(vm))
    assert (result.exit_code, result.stdout, "no memory requested" in result.stderr) == (1, "", True)


def test_unknown_fields_are_found_in_every_kind_without_a_cluster() -> None:
    _, answers = review("misspelt.yaml")
    expected = ["spec.replica", "spec.scaleInStrategy.bogus", "spec.selector.matchlabels"]
    expected += ["spec.virtualMachineTemplate.spec.template.spec.domain.memry"]
    expected += ["spec.replica", "spec.template.spec.domain.memry", "spec.addedNodeselector", "spec.vmiNam"]
    assert paths(answers) == expected
    _, answers = review("pools.yaml")
    versions = ["apiVersion", "spec.template", "spec.updateStrategy.rollingUpdate", "spec.updateStrategy.type"]
    assert paths(answers) == [*versions, "spec.virtualMachineTemplate"]


def test_kinds_of_other_operators_in_kubevirts_groups_are_left_out() -> None:
    _, answers = review("other-operators.yaml")
    by_kind = {answer["kind"]: answer["decision"] for answer in answers}
    # Of KubeVirt's own kinds what it requires is still required.
    assert [kind for kind, decision in by_kind.items() if decision == "invalid"] == ["VirtualMachineBackup"]
    result, (clone,) = review("clone.yaml")
    assert (result.exit_code, paths([clone])) == (1, ["apiVersion"])
    assert 'did you mean "clone.kubevirt.io/v1beta1"?' in clone["findings"][0]["text"]


def test_what_a_vm_infers_counts_as_if_it_named_it(tmp_path: Path) -> None:
    """The VM of `virtctl create vm`, with the boot source that it clones; by itself nothing is known of its size."""
    result, (vm, *_) = review("inferred.yaml")
    assert (result.exit_code, vm["decision"], "instancetype-valid" in codes(vm)) == (0, "allowed", True)
    # The memory that virtctl writes is no conflict, and inference is no change of kubevirt-webhook's.
    assert (vm["patch"], vm["object"]["spec"]["instancetype"]["inferFromVolume"]) == ([], "imported-volume-mk4lj")
    vm_alone, *sources = yaml.safe_load_all((MANIFESTS / "inferred.yaml").read_text())
    vm_alone["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 4}
    (tmp_path / "conflict.yaml").write_text(yaml.safe_dump_all([*sources, vm_alone]))
    result, (*_, vm) = review(str(tmp_path / "conflict.yaml"))
    assert (result.exit_code, vm["decision"], vm["code"]) == (1, "denied", "instancetype-denied")
    assert "domain.cpu.cores conflicts with selected instance type" in vm["message"]
    (tmp_path / "alone.yaml").write_text(yaml.safe_dump(vm_alone))
    result, (vm,) = review(str(tmp_path / "alone.yaml"))
    assert (result.exit_code, vm["decision"], "not-inferred" in codes(vm)) == (0, "allowed", True)
    assert "instancetype-valid" not in codes(vm)
    missing = 'not checked: what is inferred from volume imported-volume-mk4lj: datasources.cdi.kubevirt.io "rhel9"'
    assert missing in result.stderr


def test_a_vm_whose_size_kubevirt_cannot_infer_is_denied(tmp_path: Path) -> None:
    """Labels are on the volume only once it was imported, and KubeVirt infers before that."""
    result, answers = review("imported.yaml")
    text = "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported"
    assert result.exit_code == 1
    decisions = {each["name"]: each["decision"] for each in answers}
    assert decisions == {"ignores": "allowed", "rejects": "invalid", "no-policy": "invalid"}
    assert [each["text"] for answer in answers for each in answer["findings"]] == [text, text]
    assert paths(answers) == ["spec.instancetype", "spec.preference"]
    assert expand("imported.yaml").stderr.count(text) == 2
    # Whatever the namespace has opted in to.
    (tmp_path / "namespace.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: vms}}")
    result, answers = review("imported.yaml", "--cluster-from", tmp_path)
    assert {each["name"]: each["decision"] for each in answers} == decisions | {"ignores": "skipped"}


def test_an_update_that_keeps_the_revision_of_another_instancetype_is_denied() -> None:
    result, (answer,) = review("stale-revision.yaml")
    assert (result.exit_code, paths([answer])) == (1, ["request.object.spec.instancetype.revisionName"])
    assert answer["findings"][0]["text"] == "the Matcher Name has been updated without updating the RevisionName"
    assert answer["operation"] == "UPDATE"


@pytest.mark.parametrize(
    "changed",
    [
        {"operation": "DELETE", "object": None, "oldObject": None},
        {"operation": "CREATE", "object": None, "oldObject": None},
        {"subResource": "status"},
        {"oldObject": None},
        {"oldObject": 7},
        {"oldObject": {"metadata": 7, "spec": 7}},
    ],
    ids=json.dumps,
)
def test_a_review_without_what_inference_looks_at_is_answered(changed: Any, tmp_path: Path) -> None:
    admission = yaml.safe_load((MANIFESTS / "stale-revision.yaml").read_text())
    admission["request"] = {key: each for key, each in (admission["request"] | changed).items() if each is not None}
    (tmp_path / "review.yaml").write_text(yaml.safe_dump(admission))
    result = run("review", tmp_path / "review.yaml", *CLUSTER)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "revisionName" not in result.output


def test_what_virt_api_denies_by_itself_is_denied() -> None:
    result, answers = review("denied-by-virt-api.yaml")
    assert (result.exit_code, {answer["decision"] for answer in answers[:-1]}) == (1, {"invalid"})
    assert all(answer["message"].startswith("virt-api denies the object: ") for answer in answers[:-1])
    found = [(each["path"], each["text"]) for answer in answers for each in answer["findings"]]
    running = [text for path, text in found if path == "spec.running"]
    assert [text.partition(". ")[0] for text in running] == [
        "Running and RunStrategy are mutually exclusive",
        "RunStrategy must be specified",
    ]
    assert found[2:] == [
        ("spec.selector", "selector does not match labels"),
        ("spec.virtualMachineTemplate.spec.runStrategy", "Invalid RunStrategy (always)"),
        ("spec.selector", "selector does not match labels"),
        ("spec.cpu.preferredCPUTopology", "unknown preferredCPUTopology sokets"),
        (
            "spec.memory.overcommitPercent",
            "spec.memory.overcommitPercent and spec.memory.hugepages should not be requested together",
        ),
    ]
    # What is denied counts for nothing else.
    assert "instancetype-missing" in codes(answers[-1])


def test_the_vm_of_a_template_is_checked_too() -> None:
    result, (lacking, misspelt, sound) = review("templates.yaml")
    assert (result.exit_code, sound["decision"]) == (1, "allowed")
    assert [each["text"] for each in lacking["findings"]] == ["its VMs are denied: spec.template is required"]
    assert paths([misspelt]) == ["spec.virtualMachine.spec.template.spec.domain.memry"]
    lines = (MANIFESTS / "templates.yaml").read_text().splitlines()
    assert "memry" in lines[misspelt["findings"][0]["line"] - 1]


def test_a_type_that_yaml_guessed_is_named() -> None:
    _, (vm, policy) = review("guessed-types.yaml")
    texts = {each["path"]: each["text"] for each in (*vm["findings"], *policy["findings"])}
    assert 'is the boolean true, but must be a string; write it in quotes: "true"' in texts["metadata.labels.gpu"]
    off = texts['metadata.labels["kubevirt-webhook.github.io/instancetypes"]']
    assert 'is the boolean false, but must be a string; write it in quotes: "false", or "off"' in off
    assert 'is the number 12, but must be a string; write it in quotes: "12"' in texts["metadata.annotations.rev"]
    assert texts["spec.template.spec.domain.cpu.cores"].endswith("; write it without quotes")
    assert texts["spec.template.spec.domain.devices.disks"].endswith("is an object, but must be a list")
    assert policy["namespace"] == "", "the kind is cluster-wide"


@pytest.mark.parametrize("name", ["stream.json", "lines.json"])
def test_json_objects_one_after_the_other(name: str) -> None:
    result, answers = review(name)
    assert (result.exit_code, [answer["name"] for answer in answers]) == (0, ["j1", "j2"])
    piped = run("review", "-", *CLUSTER, "-o", "json", stdin=(MANIFESTS / name).read_text())
    assert [answer["name"] for answer in json.loads(piped.stdout)] == ["j1", "j2"]
    assert expand(name).stdout.count("kind: VirtualMachineInstance\n") == 2


def test_kinds_that_are_not_needed_are_skipped_and_said_once(tmp_path: Path) -> None:
    (tmp_path / "namespaces.yaml").write_text((MANIFESTS / "cluster" / "namespaces.yaml").read_text())
    for name in ("a", "b"):
        hyperconverged = {"apiVersion": "hco.kubevirt.io/v1beta1", "kind": "HyperConverged", "metadata": {"name": name}}
        foreign = {"apiVersion": "virtualization.deckhouse.io/v1alpha2", "kind": "VirtualMachine", "metadata": {}}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all([hyperconverged, foreign]))
    for result in (
        review("stream.json", "--cluster-from", tmp_path)[0],
        expand("stream.json", "--cluster-from", tmp_path),
    ):
        assert result.exit_code == 0
        assert result.stderr.count("HyperConverged") == result.stderr.count("skipped kinds") == 1


def test_a_virtual_machine_of_another_group_is_told_from_kubevirts() -> None:
    foreign = {
        "apiVersion": "virtualization.deckhouse.io/v1alpha2",
        "kind": "VirtualMachine",
        "metadata": {"name": "a"},
    }
    result = run("expand", "-f", "-", stdin=json.dumps(foreign))
    assert result.exit_code == 2
    assert "found no VirtualMachine of kubevirt.io, only VirtualMachine of another API group" in result.stderr


def test_no_line_is_printed_twice(tmp_path: Path) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vms"}}
    (tmp_path / "namespace.yaml").write_text(yaml.safe_dump(namespace))
    lines = run("review", MANIFESTS / "stream.json", "--cluster-from", tmp_path).stdout.split("\n\n")
    assert lines[0].count("instancetypes (off): skipped") == 1
    assert all(len(set(part.splitlines())) == len(part.splitlines()) for part in lines)


@settings(max_examples=120, deadline=None)
@given(files)
def test_review_and_expand_say_the_same_of_random_files(objects: list[Any]) -> None:
    """What both check is the same: each finding of one is a finding of the other, in the same words."""
    stdin = yaml.safe_dump_all(objects)
    reviewed = run("review", "-", *CLUSTER, "-n", "default", "-o", "json", stdin=stdin)
    expanded = run("expand", "-f", "-", stdin=stdin)

    answers = json.loads(reviewed.stdout or "[]")
    answers = answers if isinstance(answers, list) else [answers]
    found = [f"  standard input:{each['line']}: {each['text']}" for one in answers for each in one["findings"]]
    said = [line for line in expanded.stderr.splitlines() if line.startswith("  standard input:")]
    assert said == found, (reviewed.output, expanded.output)
    assert expanded.exit_code == 1 or not found


@pytest.mark.parametrize("spec", [{"group": "kubevirt.io", "versions": 7}, {}, 7, None])
def test_a_definition_that_is_none_is_one_sentence(spec: Any, tmp_path: Path) -> None:
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    (tmp_path / "crds.yaml").write_text(yaml.safe_dump(definition | {"metadata": {"name": "a"}}))
    for result in (
        run("review", MANIFESTS / "stream.json", *CLUSTER, "--crds", tmp_path / "crds.yaml"),
        expand("stream.json", "-f", tmp_path / "crds.yaml"),
    ):
        assert (result.exit_code, result.stdout) == (2, "")
        assert "CustomResourceDefinition a: is not a CustomResourceDefinition" in result.stderr
