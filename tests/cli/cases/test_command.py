from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml

from tests.cli.review.samples import CLUSTER, vm
from tests.cli.review.test_formats import check
from tests.cli.runner import EXAMPLES, EXPECTED, run
from tests.golden_files import Golden
from tests.policies.decisions import always
from webhook.admission.decision import Change, Decision, Reason
from webhook.cli.cases import model
from webhook.cli.cases.command import run_cases
from webhook.cluster.files import FilesCluster
from webhook.k8s.yaml_documents import read_documents
from webhook.policies.meanings import MEANINGS
from webhook.policies.registry import ENDPOINTS
from webhook.settings.model import Settings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "ci.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def write_test(directory: Path, *cases: dict[str, Any], **fields: Any) -> Path:
    head = {"apiVersion": "kubevirt-webhook.github.io/v1", "kind": "ReviewTest"}
    head |= {"cluster": str(EXAMPLES / "cluster"), "settings": str(EXAMPLES / "settings.yaml")}
    path = directory / "test.yaml"
    path.write_text(yaml.safe_dump({**head, "cases": list(cases), **fields}, sort_keys=False))
    return path


def case(obj: Any, name: str = "a", **expect: Any) -> dict[str, Any]:
    return {"name": name, "object": obj, "expect": expect}


def test_every_example_is_a_case_that_passes() -> None:
    result = run("test", EXAMPLES, "-o", "json")
    objects = [each["object"] for each in yaml.safe_load((EXAMPLES / "reviews-test.yaml").read_text())["cases"]]
    files = [*(EXAMPLES / "reviews").iterdir(), *(EXAMPLES / "vms").iterdir()]
    assert result.exit_code == 0, result.output
    assert sorted(objects) == sorted(file.relative_to(EXAMPLES).as_posix() for file in files)


def test_what_the_demo_expects_is_what_the_cases_expect() -> None:
    cases = yaml.safe_load((EXAMPLES / "reviews-test.yaml").read_text())["cases"]
    expected = {Path(each["object"]).name: each["expect"] for each in cases if each["object"].startswith("reviews/")}
    decisions, other = ({name: each["decision"] for name, each in of.items()} for of in (EXPECTED, expected))
    assert decisions == other
    assert all(EXPECTED[name]["reason"] in each["reasons"] for name, each in expected.items())


def test_every_object_in_the_docs_is_a_case() -> None:
    """Manifests that pages show whole; the page on tests shows a test, which is run below."""
    shown = []
    for page in (ROOT / "docs").glob("*.md"):
        for block in re.findall(r"^ *```yaml\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
            shown += [(page.name, each) for each in yaml.safe_load_all(block) if isinstance(each, dict)]
    kinds = {(page, each["kind"]) for page, each in shown if "kubevirt.io/" in str(each.get("apiVersion"))}

    # The VM of the quick start is reviewed as it is by tests/test_docs.py; the migration shows a fault of KubeVirt.
    assert kinds == {("quick-start.md", "VirtualMachine"), ("upstream.md", "VirtualMachineInstanceMigration")}


def test_the_page_on_tests_shows_what_its_test_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cluster", "settings.yaml", "vms"):
        (tmp_path / name).symlink_to(EXAMPLES / name)
    (tmp_path / "owners-test.yaml").write_text(BLOCKS[0])
    monkeypatch.chdir(tmp_path)
    result = run("test", "owners-test.yaml")

    # How many codes there are changes with every policy.
    said, _, _ = result.output.partition("1 passed, 1 failed; ")
    assert (result.exit_code, f"```\n{said}1 passed, 1 failed; …\n```" in PAGE) == (1, True)
    assert f"of {len(MEANINGS)} reason codes" in result.output


def test_a_tests_inputs_are_read_before_the_loop_runs_so_that_sigint_ends_the_command(tmp_path: Path) -> None:
    def schemas_for(cluster: FilesCluster, settings: Settings, origin: Path | str) -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        raise KeyboardInterrupt

    (document,) = read_documents(write_test(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run_cases(model.read(document), schemas_for)


@pytest.mark.parametrize(
    "expect",
    [
        *({"decision": "allowed"}, {"reasons": ["owner-opted-out"]}, {"reasons": []}, {"warnings": ["take care"]}),
        *({"message": "no"}, {"patched": {}}, {"patched": {"spec.template.spec.schedulerName": "stork"}}),
        {"patched": {"spec.template.spec.schedulerName": None}},
        *({"patched": {"spec.template": {"spec": {}}}}, {"patched": {"spec.nothing[0].x": 1}}),
    ],
    ids=str,
)
def test_every_wrong_expectation_fails(tmp_path: Path, expect: Any, golden: Golden) -> None:
    result = run("test", write_test(tmp_path, case(vm(), **expect)))
    assert result.exit_code == 1
    golden(result.stdout)


def test_objects_are_checked_against_what_one_says(tmp_path: Path) -> None:
    crds = ROOT / "tests" / "data" / "kubevirt-crds.json.gz"
    path = write_test(tmp_path, case(vm() | {"spec": {"runStrategy": "Always"}}, decision="invalid"))
    checked, unchecked = run("test", path, "--crds", crds), run("test", path, "--no-validate", "-o", "json")

    where = f"checked against the CustomResourceDefinitions in {crds}"
    assert (checked.exit_code, where in checked.stderr, "checked against" in unchecked.stderr) == (0, True, False)
    assert json.loads(unchecked.stdout)[0]["decision"] != "invalid"


def test_right_expectations_pass(tmp_path: Path) -> None:
    annotation = "metadata.annotations[kubevirt-webhook.github.io/injected-scheduler]"
    patched = {"spec.template.spec.schedulerName": "kubevirt", annotation: "kubevirt", "spec.nothing": None}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    denied = yaml.safe_load((EXAMPLES / "reviews" / "20-vm-conflicts.yaml").read_text())
    path = write_test(
        tmp_path,
        case(vm(), decision="patched", reasons=["scheduler-injected"], patched=patched, warnings=[]),
        case(vm(scheduler="stork"), "b", decision="allowed", patched={}),
        case({**review, "request": denied["request"]}, "c", decision="denied", message="domain.cpu.cores"),
        case(str(EXAMPLES / "reviews" / "07-warn-mode.yaml"), "d", decision="would-patch", warnings=["schedulerName"]),
    )
    result = run("test", tmp_path, "--verbose", "--coverage")

    assert (result.exit_code, result.stdout.count("passed  ")) == (0, 4), result.output
    assert "not covered: scheduler-injected" not in result.stdout
    codes = {code for each in json.loads(run("test", path, "-o", "json").stdout) for code in each["reasons"]}
    assert result.stdout.count("not covered: ") == len(MEANINGS) - len(codes)


def test_objects_may_stand_in_the_test(tmp_path: Path) -> None:
    metadata = {"name": "own", "labels": {"kubevirt-webhook.github.io/scheduling": "enforce"}}
    settings = {"schedulers": {"mine": {"healthCheck": "off"}}, "scheduling": {"schedulerName": "mine"}}
    moved = vm()
    moved["metadata"]["namespace"] = "own"
    expected = case(moved, patched={"spec.template.spec.schedulerName": "mine"})
    cluster = [{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}]
    result = run("test", write_test(tmp_path, expected, cluster=cluster, settings=settings))

    assert result.exit_code == 0, result.output


def test_junit(tmp_path: Path) -> None:
    cases = [case(vm(), decision="patched"), case(vm(), "b", decision="denied")]
    cases.append(case("none.yaml", "c", decision="denied"))
    result = run("test", write_test(tmp_path, *cases), "-o", "junit")
    root = ET.fromstring(result.stdout)
    check(root)

    assert result.exit_code == 2
    assert root[0].attrib | {"name": ""} == {"name": "", "tests": "3", "failures": "1", "errors": "1", "skipped": "0"}
    assert [[child.tag for child in each] for each in root[0]] == [[], ["failure"], ["error"]]


@pytest.mark.parametrize(
    "change",
    [
        {"cases": [case({})]},
        {"cases": [case({}, decision="maybe")]},
        {"cases": [case({}, decision="denied"), case({}, decision="denied")]},
        {"cases": [{"name": "a", "expect": {"decision": "denied"}}]},
        {"cases": [case({}, decsion="denied")]},
        {"cases": [], "clster": 1},
        {"cases": [case({}, decision="denied")], "cluster": "none"},
        {"cases": [case({}, decision="denied")], "settings": {"schedulers": 1}},
        {"cases": [case({}, decision="denied")], "apiVersion": "v1"},
        {"cases": [case({"kind": "VirtualMachine"}, decision="denied")]},
        {"cases": [case("none.yaml", decision="denied")]},
        {"cases": [case(vm(), patched={"a[": 1})]},
    ],
    ids=lambda change: str(change)[:60],
)
def test_bad_tests_are_exit_2(tmp_path: Path, change: Any, golden: Golden) -> None:
    result = run("test", write_test(tmp_path, **{"cases": [], **change}))
    assert result.exit_code == 2
    golden(result.output.replace(str(tmp_path), "DIR").replace(f"of {len(MEANINGS)} reason", "of all reason"))


@pytest.mark.control("green-without-a-review")
def test_a_test_that_cannot_be_read_does_not_pass_for_none(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("kind: ReviewTest\na: [")
    (tmp_path / "values.yaml").write_text("a: [")
    write_test(tmp_path, case(vm(), decision="patched"))
    result = run("test", tmp_path)

    assert result.exit_code == 2
    assert [f"{name}.yaml" in result.stderr for name in ("broken", "values")] == [True, False]


def test_wrong_usage_is_exit_2(tmp_path: Path) -> None:
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump(vm()))
    assert run("test", tmp_path).exit_code == 2, "a directory without tests"
    path = write_test(tmp_path, case(vm(), decision="patched"))
    assert run("test", path, "--cluster-from", EXAMPLES / "cluster").exit_code == 2
    assert run("test", path, "--record", tmp_path / "new.yaml").exit_code == 2


def record(tmp_path: Path, *arguments: str | Path) -> Any:
    target = tmp_path / "new-test.yaml"
    result = run("test", "--record", target, *arguments, *CLUSTER)
    assert result.exit_code == 0, result.output
    return yaml.safe_load(target.read_text())


def test_what_is_recorded_passes_and_is_what_is_kept(tmp_path: Path) -> None:
    written = record(tmp_path, EXAMPLES / "reviews", EXAMPLES / "vms")
    kept = yaml.safe_load((EXAMPLES / "reviews-test.yaml").read_text())
    result = run("test", tmp_path / "new-test.yaml")
    assert result.exit_code == 0, result.output
    assert len(written["cases"]) == len(list((EXAMPLES / "reviews").iterdir())) + 3
    assert [each["expect"] for each in written["cases"]] == [each["expect"] for each in kept["cases"]]


def test_a_change_that_holds_secrets_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with a placeholder, nor as if nothing were changed."""
    secret = Change(("metadata", "annotations"), None, {"example.com/token": "hunter2"}, "r")
    endpoint = next(each for each in ENDPOINTS if each.path == "/mutate/scheduling/virtualmachines/enforce")
    changing = msgspec.structs.replace(endpoint, handler=always(Decision((Reason("r", "why"),), (secret,))))
    monkeypatch.setattr("webhook.forecast.requests.ENDPOINTS", (changing,))
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump(vm()))
    (written,) = record(tmp_path, tmp_path / "vm.yaml")["cases"]

    assert written["expect"] == {"decision": "patched", "reasons": ["r"]}
    assert run("test", tmp_path / "new-test.yaml").exit_code == 0


def test_what_changes_afterwards_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "vm.yaml"
    file.write_text(yaml.safe_dump(vm()))
    (case,) = record(tmp_path, file)["cases"]
    assert case["object"] == "vm.yaml"
    file.write_text(yaml.safe_dump(vm(scheduler="stork")))
    assert run("test", tmp_path / "new-test.yaml").exit_code == 1


def test_several_objects_of_a_file_stand_in_the_test(tmp_path: Path) -> None:
    machines = [vm(), vm(scheduler="stork")]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump_all([*machines, service]))
    written = record(tmp_path, tmp_path / "vm.yaml")
    assert [each["object"] for each in written["cases"]] == machines
    assert len({each["name"] for each in written["cases"]}) == 2


@pytest.mark.parametrize("present", [True, False])
def test_nothing_is_overwritten_and_nothing_empty_written(tmp_path: Path, present: bool) -> None:
    target = tmp_path / "new-test.yaml"
    (tmp_path / "s.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    if present:
        target.write_text("mine")
    result = run("test", "--record", target, tmp_path / "s.yaml", *CLUSTER)

    assert result.exit_code == 2
    assert (target.read_text() if target.exists() else None) == ("mine" if present else None)
