"""What `review` and `expand` say of an object before KubeVirt sees it is what KubeVirt's release says of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hack.definitions import encoded
from tests.cli.runner import EXAMPLES, run
from tests.e2e.support.kube import KubeError
from tests.e2e.support.objects import obj
from webhook.kubevirt.releases.schemas import file_of

from .conftest import NewPlace
from .place import Place

pytestmark = pytest.mark.kubevirt

TEMPLATE = {"spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}}


@pytest.fixture
def place(new_place: NewPlace) -> Place:
    return new_place({})


def test_the_package_holds_the_definitions_that_virt_operator_installs(place: Place) -> None:
    real = place.real
    held = file_of(real.release.version).read_bytes()
    assert gzip.decompress(encoded(real.definitions)) == gzip.decompress(held)


# Not ``annotations: null``: there kubevirt-webhook writes its own before virt-api looks.
@pytest.mark.parametrize(
    "metadata",
    [
        {"spec": {}},
        {"evictionStrategy": "LiveMigrate", "volumes": []},
        {"labels": {"gpu": True}},
        {"labels": []},
        *({field: None} for field in ("labels", "finalizers", "name", "ownerReferences", "generation")),
        *({field: None} for field in ("deletionTimestamp", "managedFields", "uid")),
        *(
            {"annotations": {"a": None}},
            {"annotations": {"a": 5}},
            {"annotations": {"a": []}},
            {"annotations": {"a": ""}},
        ),
        *({"finalizers": [None]}, {"finalizers": [5]}, {"finalizers": "a"}, {"finalizers": {}}),
        {"ownerReferences": [{"kind": None}]},
        {"ownerReferences": [{"kind": 5}]},
        {"ownerReferences": [{"king": "a"}]},
        {"generation": "5"},
        {"creationTimestamp": "2026-01-31T12:00:00Z"},
        {"creationTimestamp": "yesterday"},
        {"deletionTimestamp": "yesterday"},
        {"labels": {"app": None}},
        {"ownerReferences": [{"kind": "a"}]},
        {"creationTimestamp": None, "labels": {"app": "a"}},
        {"name": 5},
    ],
    ids=json.dumps,
)
def test_virt_api_denies_what_review_denies_in_the_metadata_of_a_template(
    metadata: Any, place: Place, tmp_path: Path
) -> None:
    vm = obj("VirtualMachine", "web", spec={"runStrategy": "Halted", "template": {**TEMPLATE, "metadata": metadata}})
    try:
        place.make(vm, dryRun="All", fieldValidation="Strict")
        denial = ""
    except KubeError as error:
        denial = error.message
    (tmp_path / "vm.json").write_text(json.dumps(vm))
    found = json.loads(run("review", tmp_path / "vm.json", "--cluster-from", EXAMPLES / "cluster", "-o", "json").stdout)
    texts = [each["text"] for each in found["findings"]]
    assert bool(denial) == bool(texts), (denial, texts)
    for text in texts:
        # For a wrong type the program has words of its own.
        assert " in body " not in text or text in denial, (denial, texts)


def vm(**spec: Any) -> Any:
    return obj("VirtualMachine", "web", spec={"template": TEMPLATE, **spec})


LABELED = {"metadata": {"labels": {"app": "a"}}, **TEMPLATE}
IMPORTED = {
    "runStrategy": "Halted",
    "dataVolumeTemplates": [
        {
            "metadata": {"name": "root"},
            "spec": {
                "source": {"registry": {"url": "docker://quay.io/containerdisks/fedora:latest"}},
                "storage": {"resources": {"requests": {"storage": "10Gi"}}},
            },
        }
    ],
    "template": {
        "spec": {
            "domain": {"devices": {}, "memory": {"guest": "64Mi"}},
            "volumes": [{"name": "root", "dataVolume": {"name": "root"}}],
        }
    },
}
GROUP = "instancetype.kubevirt.io/v1beta1"


@pytest.mark.parametrize(
    "manifest",
    [
        vm(),
        vm(running=False),
        vm(running=False, runStrategy="Halted"),
        vm(runStrategy="halted"),
        vm(runStrategy="Once"),
        vm(**IMPORTED, instancetype={"inferFromVolume": "root"}),
        vm(**IMPORTED, preference={"inferFromVolume": "root", "inferFromVolumeFailurePolicy": "Reject"}),
        vm(runStrategy="Halted", instancetype={"inferFromVolume": "other"}),
        vm(runStrategy="Halted", instancetype={"inferFromVolume": "root", "name": "u1.small"}),
        *(
            obj("VirtualMachineInstanceReplicaSet", "web", spec={"selector": selector, "template": LABELED})
            for selector in ({"matchLabels": {"app": "b"}}, {"matchLabels": {"app": "a"}}, {})
        ),
        *(
            obj("VirtualMachinePool", "web", spec={"selector": selector, "virtualMachineTemplate": template})
            | {"apiVersion": "pool.kubevirt.io/v1beta1"}
            for selector in ({"matchLabels": {"app": "b"}}, {"matchLabels": {"app": "a"}})
            for template in (
                {"metadata": {"labels": {"app": "a"}}, "spec": {"runStrategy": "Always", "template": LABELED}},
                {"metadata": {"labels": {"app": "a"}}, "spec": {"template": LABELED}},
            )
        ),
        *(
            {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "web"}, "spec": spec}
            for kind, spec in (
                ("VirtualMachineClusterPreference", {"cpu": {"preferredCPUTopology": "sokets"}}),
                ("VirtualMachineClusterPreference", {"cpu": {"preferredCPUTopology": "sockets"}}),
                (
                    "VirtualMachineClusterInstancetype",
                    {
                        "cpu": {"guest": 1},
                        "memory": {"guest": "1Gi", "overcommitPercent": 10, "hugepages": {"pageSize": "2Mi"}},
                    },
                ),
            )
        ),
    ],
    ids=lambda manifest: json.dumps(manifest["spec"])[:80],
)
def test_virt_api_denies_what_review_denies_by_itself(manifest: Any, place: Place, tmp_path: Path) -> None:
    namespace = "" if "Cluster" in manifest["kind"] else place.namespace
    try:
        place.admin.make(manifest, namespace, dryRun="All", fieldValidation="Strict")
        denial = ""
    except KubeError as error:
        denial = error.message
    (tmp_path / "object.json").write_text(json.dumps(manifest))
    source = ["--cluster-from", str(EXAMPLES / "cluster"), "-n", "shop"]
    reviewed = run("review", tmp_path / "object.json", *source, "-o", "json")
    texts = [each["text"] for each in json.loads(reviewed.stdout)["findings"]]
    assert bool(denial) == bool(texts), (denial, texts)
    assert all(text in denial for text in texts), (denial, texts)


def test_a_vmi_without_memory_is_denied(place: Place) -> None:
    with pytest.raises(KubeError, match="no memory requested"):
        place.make(obj("VirtualMachineInstance", "web", spec={"domain": {"devices": {}}}), dryRun="All")
