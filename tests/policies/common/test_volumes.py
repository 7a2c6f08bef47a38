"""What claims, PersistentVolumes and StorageClasses require of the nodes of a VM that starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.builders import Json
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, ListKey, ObjectKey, from_memory
from webhook.k8s.resources import Resource
from webhook.placement.machines import CLAIMS, STORAGE_CLASSES, VOLUMES, Claim, PersistentVolume, StorageClass, Vmi
from webhook.placement.nodes import Node
from webhook.policies.common.volumes import NewClaim, VolumeRequirements, review_volumes_of_starting

ZONE = "topology.kubernetes.io/zone"
# Two nodes with a zone, and one that has no such label.
NODES = [Node("a", {ZONE: "a", "host": "a"}), Node("b", {ZONE: "b", "host": "b"}), Node("c", {"host": "c"})]
PVC: Json = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def claim(volume: str = "", storage_class: str | None = None, **annotations: str) -> Claim:
    spec = {"volumeName": volume or None, "storageClassName": storage_class}
    metadata = {
        "name": "data",
        "annotations": {f"volume.kubernetes.io/{key}": text for key, text in annotations.items()},
    }
    return msgspec.convert({"metadata": metadata, "spec": spec}, Claim)


def volume(host: str = "", labels: Mapping[str, str] | None = None) -> PersistentVolume:
    terms = [{"matchExpressions": [{"key": "host", "operator": "In", "values": [host]}]}]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if host else {}
    return msgspec.convert({"metadata": {"name": "pv", "labels": labels}, "spec": affinity}, PersistentVolume)


def storage(name: str, mode: str = "WaitForFirstConsumer", zone: str = "", **fields: Any) -> StorageClass:
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}] if zone else None
    made = {"metadata": {"name": name}, "provisioner": "csi.example", "volumeBindingMode": mode}
    return msgspec.convert(made | {"allowedTopologies": topology} | fields, StorageClass)


def default(name: str, zone: str, key: str, created: str = "2026-01-01T00:00:00Z") -> StorageClass:
    metadata = {"name": name, "annotations": {key: "true"}, "creationTimestamp": created}
    return storage(name, zone=zone, metadata=metadata)


BY_DEFAULT, FOR_VMS = "storageclass.kubernetes.io/is-default-class", "storageclass.kubevirt.io/is-default-virt-class"


def review(
    *volumes: Json,
    given: Any = None,
    pv: Any = None,
    classes: Any = (),
    made: Mapping[str, NewClaim] | None = None,
    domain: Json | None = None,
    states: Any = (),
) -> VolumeRequirements:
    vmi = msgspec.convert({"metadata": {"name": "web"}, "spec": {"volumes": volumes, "domain": domain}}, Vmi)
    facts: dict[Key[Any], object] = {
        ObjectKey(CLAIMS, "shop", "data"): given,
        ObjectKey(CLAIMS, "shop", "persistent-state-for-web"): None,
        ListKey(CLAIMS, "shop", "persistent-state-for=web"): states,
        ObjectKey(VOLUMES, "", "pv"): pv,
        ListKey(STORAGE_CLASSES, ""): classes,
    }
    return from_memory(review_volumes_of_starting(vmi, "shop", Facts.of(facts), made or {}))


def nodes_of(found: VolumeRequirements) -> str:
    return "".join(node.name for node in NODES if not any(each.reasons(node) for each in (*found.own, *found.attached)))


@pytest.mark.parametrize(
    ("known", "nodes", "gaps"),
    [
        ({"given": claim("pv"), "pv": volume("b")}, "b", 0),
        ({"given": claim("pv"), "pv": volume()}, "abc", 0),
        # kube-scheduler's VolumeZone: nodes without any label of a zone are not compared.
        ({"given": claim("pv"), "pv": volume(labels={ZONE: "b"})}, "bc", 0),
        ({"given": claim("pv"), "pv": volume(labels={"failure-domain.beta.kubernetes.io/zone": "a__b"})}, "abc", 0),
        ({"given": claim("pv"), "pv": volume("a", {ZONE: "b"})}, "", 0),
        ({"given": claim("pv"), "pv": None}, "abc", 1),
        ({"given": claim("pv"), "pv": Unavailable("403")}, "abc", 1),
        ({"given": Unavailable("403")}, "abc", 1),
        ({"given": None}, "abc", 1),
        # Claims that wait for their first consumer.
        ({"given": claim("", "x"), "classes": (storage("x", zone="b"),)}, "b", 0),
        ({"given": claim("", "x"), "classes": (storage("x"),)}, "abc", 0),
        ({"given": claim("", "x"), "classes": (storage("y", zone="b"),)}, "abc", 1),
        ({"given": claim("", "x"), "classes": Unavailable("403")}, "abc", 1),
        ({"given": claim(), "classes": (default("x", "b", BY_DEFAULT),)}, "abc", 1),
        ({"given": claim("", "x", **{"selected-node": "c"}), "classes": (storage("x"),)}, "c", 0),
        ({"given": claim("", "x"), "classes": (storage("x", provisioner="kubernetes.io/no-provisioner"),)}, "abc", 1),
        ({"given": claim("", "x"), "classes": (storage("x", "Immediate", "a"),)}, "a", 1),
        ({"given": claim("", "x"), "classes": (storage("x", allowedTopologies=[{}]),)}, "", 0),
        # Claims that a dataVolumeTemplate makes.
        ({"made": {"data": NewClaim("x")}, "classes": (storage("x", zone="b"),)}, "b", 0),
        ({"made": {"data": NewClaim("")}, "classes": (default("x", "b", BY_DEFAULT),)}, "b", 0),
        (
            {
                "made": {"data": NewClaim("")},
                "classes": (default("x", "b", BY_DEFAULT), default("v", "a", FOR_VMS)),
            },
            "a",
            0,
        ),
        (
            {
                "made": {"data": NewClaim("")},
                "classes": (default("x", "b", BY_DEFAULT), default("y", "a", BY_DEFAULT, "2026-02-01T00:00:00Z")),
            },
            "a",
            0,
        ),
        ({"made": {"data": NewClaim("")}}, "abc", 1),
    ],
)
def test_where_a_volume_can_be_used(known: dict[str, Any], nodes: str, gaps: int) -> None:
    found = review(PVC, **known)
    assert (nodes_of(found), len(found.gaps)) == (nodes, gaps)


@pytest.mark.parametrize("what", [CLAIMS, VOLUMES], ids=["claim", "volume"])
def test_one_that_can_not_be_read_takes_nothing_from_the_others(what: Resource[Any]) -> None:
    """What is known of the first volume, and of the third, counts though the second is a gap."""
    names = ("first", "second", "third")
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    vmi = msgspec.convert({"metadata": {"name": "web"}, "spec": {"volumes": volumes}}, Vmi)
    facts: dict[Key[Any], object] = {
        **{ObjectKey(CLAIMS, "shop", name): claim(f"pv-{name}") for name in names},
        **{ObjectKey(VOLUMES, "", f"pv-{name}"): volume("b") for name in names},
    }
    unread: Key[Any] = ObjectKey(CLAIMS, "shop", "second") if what is CLAIMS else ObjectKey(VOLUMES, "", "pv-second")
    facts[unread] = Unavailable("403")
    found = from_memory(review_volumes_of_starting(vmi, "shop", Facts.of(facts), {}))
    assert [each.volume for each in found.own] == ["first", "third"]
    assert [gap for gap in found.gaps if "second" in gap and "403" in gap] == list(found.gaps)


@pytest.mark.parametrize(
    ("source", "is_attached"),
    [
        ({"persistentVolumeClaim": {"claimName": "data"}}, False),
        ({"dataVolume": {"name": "data"}}, False),
        ({"ephemeral": {"persistentVolumeClaim": {"claimName": "data"}}}, False),
        ({"persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}, True),
        ({"dataVolume": {"name": "data", "hotpluggable": True}}, True),
        ({"memoryDump": {"claimName": "data", "hotpluggable": True}}, True),
    ],
)
def test_every_source_that_has_a_claim_counts(source: Json, is_attached: bool) -> None:
    found = review({"name": "data"} | source, given=claim("pv"), pv=volume("b"))
    assert (len(found.own), len(found.attached), nodes_of(found)) == (not is_attached, is_attached, "b")


@pytest.mark.parametrize("domain", [{"devices": {"tpm": {"persistent": True}}}, {"firmware": {"bootloader": {}}}])
def test_the_volume_of_the_persistent_state(domain: Json) -> None:
    is_kept = "devices" in domain
    stored = msgspec.convert({"metadata": {"name": "data"}}, Claim)
    found = review(domain=domain, given=claim("pv"), pv=volume("b"), states=(stored,))
    assert nodes_of(found) == ("b" if is_kept else "abc")
    # Where there is none yet, KubeVirt makes one.
    found = review(domain=domain, classes=(default("x", "a", BY_DEFAULT),))
    assert nodes_of(found) == ("a" if is_kept else "abc")
    assert len(review(domain=domain, states=Unavailable("403")).gaps) == is_kept


def test_nothing_is_read_for_a_vm_without_claims() -> None:
    vmi = msgspec.convert({"metadata": {"name": "web"}, "spec": {"volumes": [{"name": "cloud-init"}]}}, Vmi)
    assert from_memory(review_volumes_of_starting(vmi, "shop", Facts.of({}), {})) == VolumeRequirements()
