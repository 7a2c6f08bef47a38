"""What `review` says of an object of KubeVirt is what a real API server says of it with strict field validation."""

from __future__ import annotations

import gzip
import json
import secrets
from collections import Counter
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from hypothesis import given, settings

from tests import mutated as mutations
from tests.cli.runner import run
from tests.cli.test_manifests import CLUSTER
from webhook.forecast.validation import Schemas

from .conftest import OwnPlane
from .support.access import Access
from .support.kube import Json, KubeError
from .support.objects import crds, ensure_namespace, install_crds, obj
from .support.pki import ADMIN, Identity, service_account
from .support.processes import ROOT
from .support.program import command
from .support.rbac import user_with

# A group of its own, so that the other tests of this API server keep their definitions.
GROUP = "validation.kubevirt.io"
VM: Json = mutations.VM | {"apiVersion": f"{GROUP}/v1"}
CRDS = ROOT / "tests" / "data" / "kubevirt-crds.json.gz"


@pytest.fixture(scope="module")
def schemas(plane: Access) -> Schemas:
    """Those of KubeVirt's own definition, which is installed in another group, and stays there."""
    bundle = json.loads(gzip.decompress(CRDS.read_bytes()))
    (definition,) = (each for each in bundle["items"] if each["spec"]["names"]["kind"] == "VirtualMachine")
    names = {
        key: value for key, value in definition["spec"]["names"].items() if key not in ("shortNames", "categories")
    }
    spec = definition["spec"] | {"group": GROUP, "names": names}
    renamed = obj("CustomResourceDefinition", f"virtualmachines.{GROUP}", spec=spec)
    install_crds(plane.admin, [renamed])
    found = Schemas.of_definitions([renamed], "a file")
    assert found
    return found


def test_random_changes_are_denied_by_both_or_by_none(schemas: Schemas, plane: Access) -> None:
    url = f"/apis/{GROUP}/v1/namespaces/default/virtualmachines"
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    denied = []

    @settings(max_examples=400, derandomize=True, database=None)
    @given(mutations.mutated(VM))
    def both(obj: Json) -> None:
        try:
            plane.admin.request("POST", url, obj, query=query)
            answer = ""
        except KubeError as error:
            assert error.status in (400, 422), error
            answer = error.message
        # This API server has the definitions, but no virt-api beside it.
        found = [each for each in schemas.errors(obj) or () if each.by != "virt-api"]
        assert bool(answer) == bool(found), (answer or "the API server takes it", found, obj)
        denied.append(bool(answer))

    both()
    assert denied.count(True) > 100
    assert denied.count(False) > 30


def test_random_files_get_one_verdict_of_review_expand_and_the_api_server(own_plane: OwnPlane, tmp_path: Path) -> None:
    """With KubeVirt's own definitions, an API server and both commands deny the same objects of the same file."""
    plane = own_plane(definitions=crds(json.loads(gzip.decompress(CRDS.read_bytes()))["items"]))
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    file = tmp_path / "all.yaml"
    verdicts = Counter[bool]()

    def is_denied(each: Json) -> bool:
        version, _, plural = plane.admin.resource_of(each).rpartition("/")
        inside = "namespaces/default/" if is_namespaced(each) else ""
        try:
            plane.admin.request("POST", f"/apis/{version}/{inside}{plural}", each, query=query)
        except KubeError as error:
            assert error.status in (400, 422), error
            return True
        return False

    @settings(max_examples=150, derandomize=True, database=None, deadline=None)
    @given(mutations.files)
    def judge(objects: list[Json]) -> None:
        file.write_text(yaml.safe_dump_all(objects))
        answers = json.loads(run("review", file, *CLUSTER, "--crds", CRDS, "-o", "json").stdout)
        answers = answers if isinstance(answers, list) else [answers]
        # Behind this API server there is no virt-api.
        by_api_server = [
            each["decision"] == "invalid" and each["message"].startswith("the API server") for each in answers
        ]
        expected = [is_denied(each) for each in objects]
        assert by_api_server == expected, (objects, answers)
        said = run("expand", "-f", file, "--crds", CRDS).stderr
        lines = [line for line in said.splitlines() if ": the API server would deny " in line]
        assert [any(f" {each['kind']} " in line for line in lines) for each in objects] == expected, said
        verdicts.update(expected)

    judge()
    assert min(verdicts[True], verdicts[False]) > 50


def is_namespaced(obj: Json) -> bool:
    return obj["kind"] != "MigrationPolicy" and "Cluster" not in obj["kind"]


def test_a_cluster_is_asked_for_its_definitions_and_by_a_dry_run_as_the_user_may(plane: Access, tmp_path: Path) -> None:
    def run_review(*options: str, user: Identity = ADMIN) -> Result:
        return command(plane, "review", file, "-o", "json", *options, user=user, check=False)

    namespace, vms = "dry-run", "kubevirt.io/v1/virtualmachines"
    ensure_namespace(plane.admin, namespace)
    vm = VM | {"apiVersion": "kubevirt.io/v1", "metadata": {"name": "fedora", "namespace": namespace}}
    file = tmp_path / "vm.yaml"
    file.write_text(json.dumps(vm))
    options = ("--no-validate", "--server-dry-run")
    new = run_review(*options)

    assert json.loads(new.stdout)["operation"] == "CREATE", new.stderr
    assert plane.admin.list(vms, namespace=namespace) == []
    plane.admin.create(vms, vm, namespace=namespace)
    assert json.loads(run_review(*options).stdout)["operation"] == "UPDATE"
    # As kubectl applies it: what the last manifest had is taken out.
    named = vm["metadata"]
    # kubectl always records annotations, and takes none of others out for that.
    last = vm | {"metadata": named | {"labels": {"gone": "yes"}, "annotations": {}}}
    record = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(last), "of-another": "kept"}
    labels = {"gone": "yes", "mine": "yes"}
    plane.admin.patch(vms, "fedora", {"metadata": {"annotations": record, "labels": labels}}, namespace=namespace)
    file.write_text(json.dumps(vm | {"metadata": named | {"labels": {}}}))
    made = run_review(*options, "--show-secrets")
    metadata = json.loads(made.stdout)["object"]["metadata"]
    assert metadata["labels"] == {"mine": "yes"}, made.stdout
    assert metadata["annotations"]["of-another"] == "kept"
    file.write_text(json.dumps(vm))
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    reader = Identity(f"reader-{secrets.token_hex(4)}")
    user_with(plane, reader.user, [rule])
    reading = run_review(*options, user=reader)
    assert (reading.exit_code, reading.stdout) == (2, "")
    assert f'User "{reader.user}" cannot' in reading.stderr
    for name in ("Fedora_1", "web?x=", "web#", "fedora/status", "..", "fedora?dryRun=", "fedora%3Fx"):
        file.write_text(json.dumps(vm | {"metadata": {"name": name, "namespace": namespace}}))
        (found,) = json.loads(run_review(*options).stdout)["findings"]
        assert (found["path"], found["code"]) == ("metadata.name", "invalid-object")
    # None of these became another name, or lost the dry run behind it.
    file.write_text(json.dumps(vm | {"metadata": {"name": "fedora?x=", "namespace": namespace, "labels": {"a": "b"}}}))
    run_review(*options)
    (kept,) = plane.admin.list(vms, namespace=namespace)
    assert "a" not in kept["metadata"].get("labels", {})

    file.write_text(json.dumps(vm | {"kind": "VirtualMachin"}))
    done = run_review()
    assert done.exit_code == 1, done.stderr
    assert [each["path"] for each in json.loads(done.stdout)["findings"]] == ["kind"]
    assert "checked against the kinds of the cluster's CustomResourceDefinitions" in done.stderr


def test_a_pipelines_account_needs_no_more_than_the_example_gives_it(plane: Access, tmp_path: Path) -> None:
    ensure_namespace(plane.admin, "shop")
    every = ["create", "get", "list", "watch", "update", "patch", "delete"]
    # Of the roles `admin` and `kubevirt.io:admin`: nobody gives away what he does not have.
    rules = [
        {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": every},
        {"apiGroups": ["pool.kubevirt.io"], "resources": ["virtualmachinepools"], "verbs": every},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": every},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": every},
    ]
    owner = user_with(plane, "shop-admin", rules, "shop")
    account, role, binding, job = yaml.safe_load_all((ROOT / "examples/pipelines/owner.yaml").read_text())
    for made, path in (
        (account, "v1/serviceaccounts"),
        (role, "rbac.authorization.k8s.io/v1/roles"),
        (binding, "rbac.authorization.k8s.io/v1/rolebindings"),
    ):
        owner.create(path, made, namespace="shop")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (place,) = (each["mountPath"] for each in container["volumeMounts"])
    (tmp_path / "vms.yaml").write_text(
        json.dumps(VM | {"apiVersion": "kubevirt.io/v1", "metadata": {"name": "fedora"}})
    )
    options = [str(tmp_path) if each == place else each for each in container["args"][1:]]
    ci = service_account("shop", account["metadata"]["name"])

    def run_review() -> Result:
        return command(plane, "review", *options, "-o", "json", user=ci, check=False)

    new = run_review()
    assert (json.loads(new.stdout)["operation"], new.exit_code) == ("CREATE", 0), new.stderr
    vm = VM | {"apiVersion": "kubevirt.io/v1", "metadata": {"name": "fedora", "namespace": "shop"}}
    plane.admin.create("kubevirt.io/v1/virtualmachines", vm, namespace="shop")
    held = run_review()
    assert (json.loads(held.stdout)["operation"], held.exit_code) == ("UPDATE", 0), held.stderr
