"""The objects that pools and replica sets make, beside those that a real KubeVirt has made."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from webhook.errors import InputError
from webhook.kubevirt.go_json.origins import leaves
from webhook.kubevirt.pools import vm_of_pool, vmi_of_replica_set

CAPTURES = Path(__file__).parents[1] / "data" / "captures"


def captured(name: str) -> Any:
    return json.loads((CAPTURES / f"{name}.json").read_text())["request"]["object"]


def pool(**spec: Any) -> dict[str, Any]:
    volumes = [
        {"name": "root", "dataVolume": {"name": "root"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "root"}},
        {"name": "other", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "key", "secret": {"secretName": "key"}},
        {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "user"}, "userData": "x"}},
        {"name": "sysprep", "sysprep": {"configMap": {"name": "answers"}}},
    ]
    machine = {
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {}}],
        "template": {"spec": {"domain": {"devices": {}}, "volumes": volumes}},
    }
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": machine}
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": "web", "namespace": "shop", "generation": 3},
        "spec": {"replicas": 5, "virtualMachineTemplate": template, **spec},
    }


def test_a_vmi_of_a_replica_set_is_the_recorded_one_and_the_replica_set_is_not_changed() -> None:
    replica_set, real = captured("vmirs-create"), captured("vmi-create-replicaset")
    made = vmi_of_replica_set(replica_set)
    # The cluster gave the replica set its UID.
    made["metadata"]["ownerReferences"][0]["uid"] = real["metadata"]["ownerReferences"][0]["uid"]
    assert made["kind"] == real["kind"]
    for key in ("generateName", "labels", "namespace", "ownerReferences"):
        assert made["metadata"][key] == real["metadata"][key], key
    # The rest is what virt-api defaults before other webhooks are called.
    assert made["spec"]["domain"]["resources"] == real["spec"]["domain"]["resources"]
    names = [[volume["name"] for volume in each["spec"]["volumes"]] for each in (made, real)]
    assert names[0] == names[1]
    spec = {"template": {"metadata": {"name": "base"}, "spec": {"domain": {}}}}
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet"}
    replica_set = {**kind, "metadata": {"name": "rs"}, "spec": spec}
    before = copy.deepcopy(replica_set)
    made = vmi_of_replica_set(replica_set)
    made["spec"]["domain"]["changed"] = True
    assert replica_set == before
    assert (made["metadata"]["generateName"], "name" in made["metadata"]) == ("base", False)


def test_the_vm_of_a_pool_and_names_that_are_numbered_as_the_pool_says() -> None:
    made, revision = vm_of_pool(pool()), {"kubevirt.io/vm-pool-revision-name": "web-3"}
    (owner,) = made["metadata"].pop("ownerReferences")

    assert (made["apiVersion"], made["kind"], owner["kind"]) == (
        "kubevirt.io/v1",
        "VirtualMachine",
        "VirtualMachinePool",
    )
    assert made["metadata"] == {
        "name": "web-0",
        "namespace": "shop",
        "labels": {"app": "web", **revision},
        "annotations": {"a": "b"},
        "finalizers": ["pool.kubevirt.io/finalizer"],
    }
    assert made["spec"]["template"]["metadata"]["labels"] == revision
    assert made["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] == "root-0"
    plain, both = pool(), pool(nameGeneration={"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True})
    before = copy.deepcopy(both)
    assert names_of(vm_of_pool(plain, 2)) == ["root-2", "root-2", "shared", "settings", "key", "user", "answers"]
    assert names_of(vm_of_pool(both, 7)) == ["root-7", "root-7", "shared", "settings-7", "key-7", "user-7", "answers-7"]
    assert both == before


def names_of(made: dict[str, Any]) -> list[Any]:
    """What the VM's volumes refer to."""
    sources = ({**volume, "name": ""} for volume in made["spec"]["template"]["spec"]["volumes"])
    return [name for source in sources for path, name in leaves(source) if name and path.lower().endswith("name")]


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"virtualMachineTemplate": None}, "spec.virtualMachineTemplate"),
        ({"virtualMachineTemplate": []}, "spec.virtualMachineTemplate"),
        ({"virtualMachineTemplate": {}}, "spec.virtualMachineTemplate.spec"),
        ({"virtualMachineTemplate": {"spec": {"template": 1}}}, "spec.virtualMachineTemplate.spec.template"),
        ({"virtualMachineTemplate": {"metadata": [], "spec": {}}}, "spec.virtualMachineTemplate.metadata"),
        (None, "metadata.name"),
    ],
)
def test_a_pool_that_makes_no_vm(spec: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        vm_of_pool(pool() | {"metadata": {}} if spec is None else pool(**spec))
    assert caught.value.where == where
    # A VM without a template is left to the reviewer.
    assert "template" not in vm_of_pool(pool(virtualMachineTemplate={"spec": {"runStrategy": "Always"}}))["spec"]
