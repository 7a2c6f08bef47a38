"""`review`: its decisions, its outputs, and its processes; secrets are in none of them unless an option requests it."""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import json
import os
import pty
import re
import signal
import sys
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml
from click.testing import Result

from tests import builders
from tests.cli.review.samples import CLUSTER, POOL, SECRET, manifest, result, vm
from tests.cli.runner import EXAMPLES, EXPECTED, Command, Refused, run
from tests.cli.test_expand import KUBEVIRT
from tests.definitions import definition
from tests.golden_files import Golden
from tests.kubevirt.samples import preference
from tests.policies.decisions import always
from webhook import names
from webhook.admission.decision import Change, Decision, Denial, Reason
from webhook.admission.reasons import common
from webhook.cli.inputs import Part
from webhook.cli.review import command as batch
from webhook.cli.review.command import BatchJob, Written, default_jobs, evaluate_in_processes, progress
from webhook.cli.review.evaluation import Evaluator
from webhook.cli.review.formats import Text
from webhook.cli.review.result import Summary
from webhook.cluster.files import FilesCluster
from webhook.errors import InputError, Unavailable
from webhook.facts import NamespaceKey
from webhook.forecast.requests import Sending
from webhook.forecast.validation import DryRun, DryRunAnswer, FieldError
from webhook.k8s.documents import Document
from webhook.policies import registry
from webhook.settings_file import load

VM = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: web{}, namespace: shop}}
spec: {{runStrategy: Always, template: {{spec: {{domain: {{devices: {{}}}}}}}}}}
"""


@pytest.fixture
def review(tmp_path: Path) -> Callable[..., Result]:
    """The result of a review of one object, or of several, with options."""

    def run_review(obj: Any, *options: str | Path) -> Result:
        return run("review", manifest(tmp_path, obj), *CLUSTER, *options)

    return run_review


def answer_of(result: Result) -> Any:
    return json.loads(result.stdout)


def in_namespace(namespace: str | None) -> Any:
    return vm() | {"metadata": {"name": "web01", "namespace": namespace}}


def launcher() -> Any:
    pod = builders.launcher_pod(schedulerName=None)
    pod["metadata"]["namespace"] = "shop"
    pod["metadata"]["ownerReferences"][0] |= {"name": "web", "uid": "6b0f3a52-0f4e-4b58-8a3c-000000000001"}
    return pod


@pytest.mark.parametrize(
    ("obj", "options", "expected"),
    [
        # As manifests on the web have it, such as KubeVirt's own first one.
        (in_namespace(None), (), {"namespace": "default", "name": "web01", "decision": "patched"}),
        (in_namespace(""), (), {"namespace": "default"}),
        (in_namespace(None), ("-n", "shop"), {"namespace": "shop", "decision": "patched"}),
        (in_namespace("legacy"), (), {"decision": "skipped"}),
        # A launcher pod is sent by KubeVirt, and defaulted.
        (launcher(), (), {"decision": "patched"}),
        (launcher(), ("--user", "mallory"), {"decision": "allowed", "user": "mallory"}),
        # A kind of another group makes no VMs.
        (POOL | {"apiVersion": "example.com/v1"}, (), {"decision": "skipped"}),
    ],
)
def test_decisions(review: Command, obj: Any, options: tuple[str, ...], expected: Any) -> None:
    answer = answer_of(review(obj, "-o", "json", *options))
    assert {key: answer[key] for key in expected} == expected


def test_an_eviction_is_sent_to_the_subresource(review: Command) -> None:
    metadata = {"name": "virt-launcher-web-x", "namespace": "shop", "annotations": {"requested-by": "x"}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    answer = answer_of(review(eviction, "-o", "json"))
    assert [one["endpoint"] for one in answer["judgements"]] == [
        "/mutate/eviction/pods/enforce",
        "/mutate/groups/evictions/enforce",
    ]


def test_objects_that_nobody_asks_about(review: Command, golden: Golden) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "shop"}}
    answer = answer_of(review(service, "-o", "json"))
    assert (answer["decision"], answer["judgements"]) == ("skipped", [])
    golden(answer["message"])


def test_a_manifest_of_another_namespace_is_a_mistake(review: Command, tmp_path: Path, refused: Refused) -> None:
    refused(review(vm(), "--namespace=lab"))


def test_text_is_for_people(review: Command, tmp_path: Path, golden: Golden) -> None:
    golden(review(vm()).stdout)


def test_yaml_is_the_patched_object_and_patch_a_json_patch(review: Command) -> None:
    patched = yaml.safe_load(review(vm(), "-o", "yaml").stdout)
    operations = answer_of(review(vm(), "-o", "patch"))
    assert patched["spec"]["template"]["spec"]["schedulerName"] == "kubevirt"
    assert patched["metadata"]["annotations"] == {names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt"}
    assert operations[0] == {"op": "add", "path": "/spec/template/spec/schedulerName", "value": "kubevirt"}


@pytest.mark.parametrize(
    "given", ["VirtualMachine", "VirtualMachinePool", "PersistentVolumeClaim", "PriorityClass", "Odd"]
)
def test_the_namespace_that_the_user_names_is_in_the_object_if_its_kind_has_one(review: Command, given: str) -> None:
    others = {"PersistentVolumeClaim": "v1", "PriorityClass": "scheduling.k8s.io/v1", "Odd": "example.com/v1"}
    plain = {"apiVersion": others.get(given), "kind": given, "metadata": {"name": "x"}}
    obj = {"VirtualMachine": in_namespace(None), "VirtualMachinePool": POOL}.get(given, plain)
    obj = obj | {"metadata": {"name": "x"}}
    named, unnamed = (yaml.safe_load(review(obj, "-o", "yaml", *each).stdout) for each in (("-n", "shop"), ()))
    is_placed = given in ("VirtualMachine", "VirtualMachinePool", "PersistentVolumeClaim")
    assert named["metadata"].get("namespace") == ("shop" if is_placed else None)
    # The context's own is no choice of the user: a manifest for any namespace stays one.
    assert "namespace" not in unnamed["metadata"]


def test_what_review_makes_of_a_manifest_expands_in_the_namespace_that_it_was_reviewed_in(review: Command) -> None:
    own: dict[str, Any] = {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype"}
    own |= {"metadata": {"name": "own"}, "spec": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}}
    machine = in_namespace(None)
    machine["spec"]["instancetype"] = {"name": "own", "kind": own["kind"]}
    made = review([own, machine], "-n", "shop", "-o", "yaml", "--show-secrets").stdout
    expanded = run("expand", "-f", "-", *CLUSTER[:2], stdin=made)
    vmi = yaml.safe_load(expanded.stdout)
    assert (expanded.exit_code, vmi["metadata"]["namespace"], vmi["spec"]["domain"]["cpu"]["sockets"]) == (0, "shop", 2)


def test_standard_input_lists_and_several_documents(review: Command) -> None:
    """As `helm template` and `kustomize build` write them, too: comments, empty documents, kinds of all sorts."""
    both = [{"apiVersion": "v1", "kind": "List", "items": [vm(), vm(scheduler="stork")]}, vm(scheduler="x")]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    chart = "---\n# Source: chart/templates/none.yaml\n---\n# Source: chart/templates/vm.yaml\n"
    text = chart + yaml.safe_dump_all([*both, service, {"kind": "Kustomization", "apiVersion": "x/v1"}])
    result = run("review", "-", *CLUSTER, "-o", "json", stdin=text)
    decisions = [answer["decision"] for answer in answer_of(result)]
    assert (result.exit_code, decisions) == (0, ["patched", "allowed", "allowed", "skipped", "skipped"])
    assert result.stderr.splitlines()[-1] == "3 objects in 1 file: 1 patched, 2 allowed; 2 of other kinds"
    assert review(both).stdout.count("CREATE VirtualMachine") == 3


@pytest.mark.parametrize(
    "content",
    [
        *("", "- 1", "just text", "kind: Pod", "apiVersion: v1\nkind: Pod", "a: [", "a: 1\na: 2"),
        json.dumps(builders.review(vm(), uid="", namespace="shop")),
    ],
    ids=["empty", "list", "text", "no version", "no metadata", "syntax", "duplicate", "no uid"],
)
def test_bad_input_is_one_sentence_and_exit_2(tmp_path: Path, content: str, refused: Refused) -> None:
    path = tmp_path / "object.yaml"
    path.write_text(content)
    refused(run("review", path, *CLUSTER))


def test_bad_sources(tmp_path: Path, refused: Refused) -> None:
    path, none = manifest(tmp_path, vm()), tmp_path / "none"
    both = (path, "--cluster-from", tmp_path, "--kubeconfig", tmp_path)
    for arguments in (both, (path, "--cluster-from", none), (path, "--kubeconfig", none), (f"{none}.yaml", *CLUSTER)):
        refused(run("review", *arguments))


@pytest.mark.parametrize("command", [("review", "FILE"), ("explain", "migration", "VM")], ids=" ".join)
def test_without_a_cluster_files_are_suggested(
    command: tuple[str, ...], tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = manifest(tmp_path, vm())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    refused(run(*(str(path) if word == "FILE" else word.lower() for word in command)))


@pytest.mark.parametrize(
    "request_", [None, [1], {"uid": "u", "userInfo": "x"}, {}], ids=["none", "list", "malformed user", "no uid"]
)
def test_reviews_that_ask_nothing(tmp_path: Path, request_: Any, refused: Refused) -> None:
    asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request_}
    refused(run("review", manifest(tmp_path, asked), *CLUSTER))


def test_the_kubevirt_version_decides(review: Command) -> None:
    """KubeVirt 1.6 finds a conflict in any memory beside an instancetype, later ones only in the same member."""
    named = vm(instancetype={"name": "u1.medium"})
    named["metadata"]["namespace"] = "apps"
    named["spec"]["template"]["spec"]["domain"] = {"memory": {"maxGuest": "16Gi"}, "devices": {}}
    older, newer = (review(named, "-o", "json", f"--kubevirt-version={version}") for version in ("1.6", "1.7"))
    assert answer_of(older)["decision"] == "denied" != answer_of(newer)["decision"]
    assert review(named, "--kubevirt-version=new").exit_code == 2


def test_a_mistake_does_not_keep_others_from_being_reviewed(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "bad.yaml").write_text("a: 1\na: 2\n")
    manifest(tmp_path, [vm(), POOL | {"spec": {}}])
    result = run("review", tmp_path, *CLUSTER)

    assert (result.exit_code, "patched  CREATE VirtualMachine shop/web01" in result.stdout) == (2, True)
    golden(result.stderr)
    # A user could apply half of the objects by mistake, so the command prints none.
    for output in ("yaml", "patch"):
        assert run("review", tmp_path, *CLUSTER, "-o", output).stdout == ""


@pytest.mark.parametrize("output", ["json", "yaml", "patch", "junit", "sarif", "github"])
def test_standard_output_is_pure(output: str) -> None:
    result = run("review", EXAMPLES / "reviews", EXAMPLES / "vms", *CLUSTER, "-o", output, "--show-secrets")
    parsers: dict[str, Callable[[str], Any]] = {
        "json": json.loads,
        "patch": json.loads,
        "sarif": json.loads,
        "yaml": lambda text: list(yaml.safe_load_all(text)),
        "junit": lambda text: len(ET.fromstring(text)),
        "github": lambda text: [line[: line.index(" ")] for line in text.splitlines()],
    }

    assert result.exit_code == 1
    assert parsers[output](result.stdout)
    assert result.stderr.splitlines()[-1].startswith(f"{len(EXPECTED) + 3} objects in {len(EXPECTED) + 3} files: ")


def test_definitions_in_the_clusters_files_say_what_is_known(tmp_path: Path) -> None:
    """A requirement that the API server drops is no reason to deny a VM."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    strict = preference(name="strict", requirements={"architecture": "arm64"})
    labels = {names.policy_label(names.INSTANCETYPES): "enforce"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}}
    status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.9.0", "targetKubeVirtVersion": "v1.9.0"}
    items = [strict, namespace, {**KUBEVIRT, "status": status}]
    (directory / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    named = vm()
    named["metadata"]["namespace"] = "strict"
    named["spec"]["preference"] = {"name": "strict"}
    named["spec"]["template"]["spec"] = {"domain": {"devices": {}}, "architecture": "amd64"}
    file = manifest(tmp_path, named)

    def decision() -> Any:
        return answer_of(run("review", file, "--cluster-from", directory, "-o", "json"))["decision"]

    assert decision() == "denied"
    lacking = definition("VirtualMachineClusterPreference", ["requirements.architecture"])
    (directory / "definition.json").write_text(json.dumps(lacking))
    assert decision() != "denied"


class WarningDryRun(DryRun):
    """Of a cluster that takes everything, and warns."""

    def __init__(self, *warnings: str) -> None:
        self._warnings = warnings

    async def ask(self, obj: Any, namespace: str) -> DryRunAnswer:
        return DryRunAnswer([], warnings=self._warnings)


async def test_the_warnings_of_a_dry_run_are_shown_once() -> None:
    key = f"{names.DOMAIN}/defaults"
    made = vm()
    made["metadata"] |= {"namespace": "apps", "labels": {key: "off"}}
    settings = load(EXAMPLES / "settings.yaml")
    cluster = FilesCluster.load(EXAMPLES / "cluster", settings)
    (own,) = (await Evaluator(cluster, settings, Sending()).evaluate(Document(made, "a.yaml", 1))).warnings
    policy = "Validation failed for ValidatingAdmissionPolicy 'a' with binding 'a': "
    others = ["kubevirt-webhook (groups): no rules [group-without-rule]", "spec.running is deprecated"]

    sent = WarningDryRun(f"{policy}{own}", f"{own[:60]}… [cut]", *others)
    evaluator = Evaluator(cluster, settings, Sending(), dry_run=sent)

    assert (await evaluator.evaluate(Document(made, "a.yaml", 1))).warnings == [own, *others]


async def test_what_could_not_be_read_here_says_nothing_of_what_the_cluster_has_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipeline's user may create VMs, and read nothing else."""
    peek = FilesCluster.peek
    denied = Unavailable("grant get on namespaces")
    monkeypatch.setattr(
        FilesCluster, "peek", lambda self, key: denied if isinstance(key, NamespaceKey) else peek(self, key)
    )
    settings = load(EXAMPLES / "settings.yaml")
    cluster = FilesCluster.load(EXAMPLES / "cluster", settings)
    made = vm()
    made["metadata"] |= {"namespace": "apps"}
    document = Document(made, "a.yaml", 1)
    alone = await Evaluator(cluster, settings, Sending()).evaluate(document)
    asking = await Evaluator(cluster, settings, Sending(), dry_run=WarningDryRun("it says this")).evaluate(document)

    assert (alone.severity, "grant get on namespaces" in "".join(alone.warnings)) == ("unevaluated", True)
    assert (asking.severity, asking.decision, asking.warnings) == ("warned", "allowed", ["it says this"])


async def test_what_the_cluster_denies_of_an_object_that_exists_is_an_update() -> None:
    class Denying(WarningDryRun):
        async def ask(self, obj: Any, namespace: str) -> DryRunAnswer:
            return DryRunAnswer([FieldError(("spec",), "too large", common.DRY_RUN_DENIED)], vm())

    settings = load(EXAMPLES / "settings.yaml")
    evaluator = Evaluator(FilesCluster.load(EXAMPLES / "cluster", settings), settings, Sending(), dry_run=Denying())
    found = await evaluator.evaluate(Document(vm(), "a.yaml", 1))
    assert (found.decision, found.operation) == ("denied", "UPDATE")


def test_a_warning_without_a_code_gets_none_and_no_remedy_of_another(review: Callable[..., Result]) -> None:
    """Of a misspelt annotation the API server itself warns, whatever else is said of the VM."""
    made = vm()
    made["metadata"] |= {"namespace": "apps", "annotations": {f"{names.DOMAIN}/sperad": "off"}}
    text = review(made, "-o", "github").output
    assert "sperad" in text
    assert "What to do" not in text
    found = json.loads(review(made, "-o", "sarif").stdout)["runs"][0]["results"]
    assert [each["ruleId"] for each in found] == ["warning"]


def test_a_warning_counts_beside_what_was_not_evaluated() -> None:
    summary = Summary()
    summary.add(result(decision="error", warnings=["correct the label"]))
    assert (summary.exit_status("deny"), summary.exit_status("warn")) == (3, 1)


@pytest.fixture
def job() -> BatchJob:
    settings = load(EXAMPLES / "settings.yaml")
    cluster = FilesCluster.load(EXAMPLES / "cluster", settings)
    return BatchJob(Evaluator(cluster, settings, Sending(), objects=False), Text(), show_secrets=False)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Forty files in some ten groups, one of them with mistakes."""
    monkeypatch.setattr("webhook.cli.inputs.PART_BYTES", 4096)
    found = []
    for number in range(40):
        file = tmp_path / f"{number:02}.yaml"
        file.write_text(VM.format(number) if number != 7 else "a: 1\na: 2\nb: 1\nb: 2\n")
        found.append(Part(str(file), file.stat().st_size, named=True))
    return found


def joined(results: Any) -> tuple[list[str], list[str], str, int]:
    whole, number = Written(), 0
    for number, each in enumerate(results, 1):  # noqa: B007
        whole.join(each)
    whole.summary.mistakes = len(whole.mistakes)
    return whole.fragments, [str(error) for error in whole.mistakes], whole.summary.line(), number


def test_processes_say_what_one_process_says_in_the_same_order(parts: list[Part], job: BatchJob) -> None:
    alone, together = (joined(evaluate_in_processes(parts, job, jobs)) for jobs in (1, 3))

    assert 1 <= default_jobs() <= (os.cpu_count() or 1)
    assert alone == together
    fragments, mistakes, line, groups = alone
    assert [line.split()[3] for line in fragments] == [f"shop/web{number}" for number in range(40) if number != 7]
    expected = (2, "39 objects in 40 files: 39 patched; 2 errors in the input", True)
    assert (len(mistakes), line, groups > 5) == expected


def test_a_killed_process_is_one_sentence(parts: list[Part], job: BatchJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "evaluate", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(InputError) as caught:
        list(evaluate_in_processes(parts, job, 2))
    assert caught.value.where == "--jobs"


async def test_over_a_cluster_reviews_do_not_wait_for_each_other(parts: list[Part], job: BatchJob) -> None:
    running = most = 0

    class SlowEvaluator:
        waits = True

        async def evaluate(self, document: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return result(name=document.value["metadata"]["name"])

    text = "---".join(VM.format(number) for number in range(40)).encode()
    slow = BatchJob(SlowEvaluator(), Text(), show_secrets=False)  # type: ignore[arg-type]
    written = await batch.evaluate([Part("f", len(text), named=True, text=text)], slow)

    assert most == 16
    assert [line.split()[3] for line in written.fragments] == [f"shop/web{number}" for number in range(40)]


def test_another_vm_costs_a_bounded_number_of_calls(job: BatchJob) -> None:
    """Ten thousand of them are a matter of seconds: parsing, evaluation and text together.

    Each policy takes some thirty of them, to look at its label on the namespace and to say that it has nothing to do.
    """

    def calls(number: int) -> int:
        text = "---".join(VM.format(each) for each in range(number)).encode()
        profile = cProfile.Profile()
        profile.enable()
        written = asyncio.run(batch.evaluate([Part("f", len(text), named=True, text=text)], job))
        profile.disable()
        assert len(written.fragments) == number
        return sum(entry.callcount for entry in profile.getstats())

    calls(1)
    assert (calls(60) - calls(20)) / 40 < 1500


def test_a_bar_on_a_terminal_goes_away(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1 << 30) as advance:
        advance(1)
    assert capsys.readouterr() == ("", ""), "nothing moves where nobody watches"
    leader, follower = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with os.fdopen(follower, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with progress(1 << 24) as advance:
            advance(1 << 23)
    shown = b""
    # What was written to a terminal can still be read after it was closed, in pieces, and then nothing any more.
    with contextlib.suppress(OSError):
        while piece := os.read(leader, 65536):
            shown += piece
    os.close(leader)

    assert "━" in shown.decode()
    assert "\x1b[2K" in shown.decode()


@pytest.mark.control("outputs-in-tickets")
def test_secrets_are_shown_only_on_request(review: Command) -> None:
    obj = vm()
    obj["spec"]["template"]["spec"]["volumes"] = [{"name": "c", "cloudInitNoCloud": {"userData": SECRET}}]
    results = {output: review(obj, "-o", output) for output in ("text", "json", "yaml", "patch")}

    assert not any(SECRET in result.stdout for result in results.values())
    assert SECRET in review(obj, "-o", "yaml", "--show-secrets").stdout
    assert "secrets are redacted" in results["json"].stderr
    assert "redacted" not in review(vm(), "-o", "json").stderr
    # `review -o yaml | kubectl apply -f -` has stored a placeholder in place of cloud-init data.
    assert (results["yaml"].exit_code, results["yaml"].stdout) == (2, "")
    assert "--show-secrets" in results["yaml"].stderr
    report = answer_of(results["json"])
    assert (report["object"], report["redacted"]) == (None, ["object"])
    assert report["patch"], "no operation of it holds a secret"


GARBAGE = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: fedora, namespace: demo}
spec:
  runing: true
  template:
    spec:
      domain:
        memory: {guest: 2Gb}
        devices: {}
"""


@pytest.mark.parametrize("output", ["text", "json", "junit", "sarif", "github"])
def test_what_the_api_server_refuses_is_an_error_in_every_format(output: str, tmp_path: Path) -> None:
    file = tmp_path / "vm.yaml"
    file.write_text(GARBAGE)
    result = run("review", file, *CLUSTER, "-o", output)

    assert result.exit_code == 1
    assert "invalid-object" in result.stdout or output == "json"
    assert "checked against KubeVirt 1.9.0's own CustomResourceDefinitions" in result.stderr
    assert result.stderr.splitlines()[-1] == "1 object in 1 file: 1 invalid"
    if output == "json":
        found = answer_of(result)
        places = [(each["line"], each["path"]) for each in found["findings"]]
        assert found["decision"] == "invalid"
        assert places == [(5, "spec.runing"), (9, "spec.template.spec.domain.memory.guest")]
    if output == "sarif":
        results = answer_of(result)["runs"][0]["results"]
        lines = [each["locations"][0]["physicalLocation"]["region"]["startLine"] for each in results]
        assert ([each["ruleId"] for each in results], lines) == (["invalid-object"] * 2, [5, 9])
    if output == "github":
        assert [re.findall(r",line=(\d+),", line) for line in result.stdout.splitlines()] == [["5"], ["9"]]
    if output == "junit":
        failure = next(ET.fromstring(result.stdout).iter("failure"))
        assert failure.get("type") == "invalid-object"
        # The sentence of the first finding once, with its line; then the other one.
        assert (failure.text or "").count("spec.runing") == 1
        assert "domain.memory.guest" in (failure.text or "")


def test_a_mistyped_kind_is_no_green_pipeline(review: Command) -> None:
    mistyped = yaml.safe_load(GARBAGE) | {"kind": "VirtualMachin"}
    assert review(mistyped).exit_code == 1
    assert review(mistyped, "--no-validate").exit_code == 0


def test_definitions_in_a_file_come_first(review: Command, tmp_path: Path) -> None:
    crds = Path(__file__).parents[2] / "data" / "kubevirt-crds.json.gz"
    obj = vm() | {"spec": {"runStrategy": "Always"}}
    result = review(obj, "--crds", crds, "-o", "json")
    assert [each["path"] for each in answer_of(result)["findings"]] == ["spec.template"]
    assert f"checked against the CustomResourceDefinitions in {crds}" in result.stderr
    assert review(obj, "--crds", tmp_path / "object.yaml").exit_code == 2


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


def patching() -> Decision:
    """A decision that changes all that holds a secret."""
    secrets = with_secrets()
    paths = ("spec", "template", "spec", "readinessProbe"), ("spec", "dataVolumeTemplates"), ("metadata", "annotations")
    values = (reduce(getitem, path, secrets) for path in paths)
    changes = tuple(Change(path, None, value, "r") for path, value in zip(paths, values, strict=True))
    return Decision(
        (Reason("r", f"as {HEADER} and {PRESIGNED} say"),), changes, warnings=(Reason("r", f"see {PRESIGNED}"),)
    )


@pytest.mark.control("secrets-in-outputs")
@pytest.mark.parametrize("output", ["text", "json", "yaml", "patch", "junit", "sarif", "github"])
@pytest.mark.parametrize("mode", ["patch", "deny"])
def test_no_output_shows_secrets_but_when_they_are_asked_for(
    output: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = patching()
    denial = Denial(403, f"{PRESIGNED} is not allowed") if mode == "deny" else None
    endpoint = next(e for e in registry.ENDPOINTS if e.path == "/mutate/instancetypes/virtualmachines/enforce")
    changed = msgspec.structs.replace(endpoint, handler=always(msgspec.structs.replace(made, denial=denial)))
    monkeypatch.setattr("webhook.forecast.requests.ENDPOINTS", (changed,))
    obj = with_secrets() | {"spec": builders.vm()["spec"]}
    obj["metadata"]["namespace"] = "apps"
    given = manifest(tmp_path, obj)

    hidden = run("review", given, *CLUSTER, "-o", output)
    assert "hunter2canary" not in hidden.stdout + hidden.stderr
    if mode == "patch" and output in ("yaml", "patch", "text", "json"):
        assert "hunter2canary" in run("review", given, *CLUSTER, "-o", output, "--show-secrets").stdout
        if output in ("yaml", "patch"):
            assert (hidden.exit_code, hidden.stdout) == (2, "")
        else:
            assert "<redacted" in hidden.stdout
            assert ("secrets are redacted" in hidden.stderr) is (output != "text")


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
    assert (refused.exit_code, "\x1b" in refused.stderr, len(refused.stderr.splitlines())) == (2, False, 1)
    for output in ("json", "yaml", "patch"):
        assert all(char.isprintable() or char == "\n" for char in run("review", path, *CLUSTER, "-o", output).stdout)


def test_the_reason_that_decided_is_the_class_of_a_failure(review: Command) -> None:
    """A VM whose instancetype is missing was `owner-chose-instancetype` in a pipeline."""
    obj = vm(instancetype={"name": "u1.none"})
    obj["metadata"]["namespace"] = "apps"
    obj["spec"]["template"]["spec"] = {"domain": {"devices": {}}}
    failed = review(obj, "-o", "junit", "--fail-on", "warn")
    sarif = answer_of(review(obj, "-o", "sarif", "--fail-on", "warn"))

    assert (failed.exit_code, review(obj).exit_code) == (1, 0)
    assert [each.get("type") for each in ET.fromstring(failed.stdout).iter("failure")] == ["instancetype-missing"]
    assert [each["ruleId"] for each in sarif["runs"][0]["results"]] == ["instancetype-missing"]
    assert answer_of(review(obj, "-o", "json"))["code"] == "instancetype-missing"
    for output, line in (("text", 1), ("github", 0)):
        said = review(obj, "-o", output).stdout.splitlines()[line]
        assert re.findall(r"\[([a-z-]+)\]", said)[0] == "instancetype-missing"
