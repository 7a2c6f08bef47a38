"""What `review` says of an object of KubeVirt is what a real API server says of it with strict field validation."""

from __future__ import annotations

import copy
import gzip
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.forecast.validation import Schemas

from .support.access import Access
from .support.kube import Json, KubeError
from .support.objects import ensure_namespace, install_crds, obj
from .support.pki import ADMIN, Identity
from .support.processes import ROOT
from .support.program import command
from .support.rbac import user_with

# A group of its own, so that the other tests of this API server keep their definitions.
GROUP = "validation.kubevirt.io"
VM: Json = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "VirtualMachine",
    "metadata": {"name": "fedora", "labels": {"app": "shop"}, "annotations": {"example.com/a": "b"}},
    "spec": {
        "runStrategy": "Always",
        "dataVolumeTemplates": [
            {"metadata": {"name": "root"}, "spec": {"source": {"blank": {}}, "storage": {"resources": {}}}}
        ],
        "template": {
            "metadata": {"labels": {"app": "shop"}},
            "spec": {
                "domain": {
                    "cpu": {"cores": 2, "numa": {"guestMappingPassthrough": {}}},
                    "memory": {"guest": "2Gi", "hugepages": {"pageSize": "2Mi"}},
                    "devices": {
                        "disks": [{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1}],
                        "interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": 80}]}],
                        "rng": {},
                    },
                    "resources": {"requests": {"memory": 1024, "cpu": "500m"}},
                },
                "evictionStrategy": "LiveMigrate",
                "nodeSelector": {"zone": "a"},
                "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}],
                "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5},
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "dataVolume": {"name": "root"}}],
            },
        },
    },
}
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 7, 2**40, "", "x", "2Gi", "2Gb", "500m", "Always", "a b", "80", [], ["x"], [{}], {}, {"x": 1}]
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all parts that can be changed."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        # Another version or kind is another URL.
        if path or key in ("spec", "metadata"):
            yield (*path, key)
            yield from places(item, (*path, key))


PLACES = list(places(VM))


@st.composite
def mutated(draw: st.DrawFn) -> Json:
    """The valid VM with one or two changes."""
    result = copy.deepcopy(VM)
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from(PLACES))
        holder: Any = result
        try:
            for step in path[:-1]:
                holder = holder[step]
            item = holder[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # the change before has removed it
        match draw(st.sampled_from(["value", "delete", "rename", "add", "double"])):
            case "value":
                holder[path[-1]] = draw(VALUES)
            case "delete":
                del holder[path[-1]]
            case "rename" if isinstance(holder, dict):
                holder[f"{path[-1]}x"] = holder.pop(path[-1])
            case "add" if isinstance(item, dict):
                item[draw(st.sampled_from(["name", "unknown", "key", "cores", "metadata"]))] = draw(VALUES)
            case "double" if isinstance(item, list) and item:
                item.append(copy.deepcopy(item[0]))
    return result


@pytest.fixture(scope="module")
def schemas(plane: Access) -> Schemas:
    """Those of KubeVirt's own definition, which is installed in another group, and stays there."""
    bundle = json.loads(gzip.decompress((ROOT / "tests" / "data" / "kubevirt-crds.json.gz").read_bytes()))
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
    @given(mutated())
    def both(obj: Json) -> None:
        try:
            plane.admin.request("POST", url, obj, query=query)
            answer = ""
        except KubeError as error:
            assert error.status in (400, 422), error
            answer = error.message
        found = schemas.findings(obj)
        assert found is not None
        assert bool(answer) == bool(found), (answer or "the API server takes it", found, obj)
        denied.append(bool(answer))

    both()
    assert denied.count(True) > 100
    assert denied.count(False) > 30


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
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    reader = Identity(f"reader-{secrets.token_hex(4)}")
    user_with(plane, reader.user, [rule])
    reading = run_review(*options, user=reader)
    assert (reading.exit_code, reading.stdout) == (2, "")
    assert f'User "{reader.user}" cannot' in reading.stderr
    file.write_text(json.dumps(vm | {"metadata": {"name": "Fedora_1", "namespace": namespace}}))
    (found,) = json.loads(run_review(*options).stdout)["findings"]
    assert (found["path"], found["code"]) == ("metadata.name", "invalid-object")

    file.write_text(json.dumps(vm | {"kind": "VirtualMachin"}))
    done = run_review()
    assert done.exit_code == 1, done.stderr
    assert [each["path"] for each in json.loads(done.stdout)["findings"]] == ["kind"]
    assert "checked against the cluster's CustomResourceDefinitions" in done.stderr
