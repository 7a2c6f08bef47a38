"""The objects of virt-controller for pools and replica sets, beside those that a real one sent to the API server."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from webhook.errors import InputError
from webhook.kubevirt.templates import vm_of_pool, vmi_of_replica_set

CAPTURES = Path(__file__).parents[3] / "shared" / "captures"


def captured(name: str) -> Any:
    return json.loads((CAPTURES / f"{name}.json").read_text())["request"]["object"]


def pool(**spec: Any) -> dict[str, Any]:
    machine = {
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {}}],
        "template": {
            "spec": {
                "domain": {"devices": {}},
                "volumes": [
                    {"name": "root", "dataVolume": {"name": "root"}},
                    {"name": "claim", "persistentVolumeClaim": {"claimName": "root"}},
                    {"name": "other", "persistentVolumeClaim": {"claimName": "shared"}},
                    {"name": "settings", "configMap": {"name": "settings"}},
                    {"name": "key", "secret": {"secretName": "key"}},
                    {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": "user"}, "userData": "x"}},
                    {"name": "sysprep", "sysprep": {"configMap": {"name": "answers"}}},
                ],
            }
        },
    }
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": machine}
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": "web", "namespace": "shop", "generation": 3},
        "spec": {"replicas": 5, "virtualMachineTemplate": template, **spec},
    }


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the recorded reviews are beside the repository")
def test_a_vmi_of_a_replica_set_is_the_recorded_one() -> None:
    replica_set, real = captured("vmirs-create"), captured("vmi-create-replicaset")
    made = vmi_of_replica_set(replica_set)
    # The cluster gave the replica set its UID.
    made["metadata"]["ownerReferences"][0]["uid"] = real["metadata"]["ownerReferences"][0]["uid"]

    assert made["kind"] == real["kind"]
    for key in ("generateName", "labels", "namespace", "ownerReferences"):
        assert made["metadata"][key] == real["metadata"][key], key
    # The rest is what virt-api defaults before other webhooks are called.
    assert made["spec"]["domain"]["resources"] == real["spec"]["domain"]["resources"]
    assert [volume["name"] for volume in made["spec"]["volumes"]] == [
        volume["name"] for volume in real["spec"]["volumes"]
    ]


def test_a_replica_set_is_not_changed() -> None:
    replica_set = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "rs"},
        "spec": {"template": {"metadata": {"name": "base"}, "spec": {"domain": {}}}},
    }
    before = copy.deepcopy(replica_set)
    made = vmi_of_replica_set(replica_set)
    made["spec"]["domain"]["changed"] = True

    assert replica_set == before
    assert made["metadata"]["generateName"] == "base"
    assert "name" not in made["metadata"]


def test_the_vm_of_a_pool() -> None:
    made = vm_of_pool(pool())
    template = made["spec"]["template"]

    assert (made["apiVersion"], made["kind"]) == ("kubevirt.io/v1", "VirtualMachine")
    assert made["metadata"]["name"] == "web-0"
    assert made["metadata"]["namespace"] == "shop"
    assert made["metadata"]["labels"] == {"app": "web", "kubevirt.io/vm-pool-revision-name": "web-3"}
    assert made["metadata"]["annotations"] == {"a": "b"}
    assert made["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachinePool"
    assert template["metadata"]["labels"] == {"kubevirt.io/vm-pool-revision-name": "web-3"}
    assert made["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] == "root-0"


def names_of(made: dict[str, Any]) -> list[Any]:
    volumes = {volume["name"]: volume for volume in made["spec"]["template"]["spec"]["volumes"]}
    return [
        volumes["root"]["dataVolume"]["name"],
        volumes["claim"]["persistentVolumeClaim"]["claimName"],
        volumes["other"]["persistentVolumeClaim"]["claimName"],
        volumes["settings"]["configMap"]["name"],
        volumes["key"]["secret"]["secretName"],
        volumes["init"]["cloudInitNoCloud"]["secretRef"]["name"],
        volumes["sysprep"]["sysprep"]["configMap"]["name"],
    ]


def test_names_are_numbered_as_the_pool_says() -> None:
    plain, both = pool(), pool(nameGeneration={"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True})
    before = copy.deepcopy(both)

    assert names_of(vm_of_pool(plain, 2)) == ["root-2", "root-2", "shared", "settings", "key", "user", "answers"]
    assert names_of(vm_of_pool(both, 7)) == ["root-7", "root-7", "shared", "settings-7", "key-7", "user-7", "answers-7"]
    assert both == before


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"virtualMachineTemplate": None}, "spec.virtualMachineTemplate"),
        ({"virtualMachineTemplate": []}, "spec.virtualMachineTemplate"),
        ({"virtualMachineTemplate": {}}, "spec.virtualMachineTemplate.spec"),
        ({"virtualMachineTemplate": {"spec": {"template": 1}}}, "spec.virtualMachineTemplate.spec.template"),
        ({"virtualMachineTemplate": {"metadata": [], "spec": {}}}, "spec.virtualMachineTemplate.metadata"),
    ],
)
def test_a_pool_that_makes_no_vm(spec: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        vm_of_pool(pool(**spec))
    assert caught.value.where == where


def test_a_pool_without_a_name() -> None:
    nameless = pool()
    nameless["metadata"] = {}

    with pytest.raises(InputError) as caught:
        vm_of_pool(nameless)
    assert caught.value.where == "metadata.name"


def test_a_vm_without_a_template_is_left_to_the_reviewer() -> None:
    assert "template" not in vm_of_pool(pool(virtualMachineTemplate={"spec": {"runStrategy": "Always"}}))["spec"]
