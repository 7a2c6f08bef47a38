from __future__ import annotations

import msgspec
import pytest

from webhook.k8s.types.meta import Object
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.kubevirt.types.views import KubeVirt

OWNER = {"apiVersion": "hco.kubevirt.io/v1beta1", "kind": "HyperConverged", "name": "hco", "uid": "u"}
HCO = HyperConverged("openshift-cnv", "hco", "v1beta1")


def kubevirt(**owner: object) -> Object:
    meta = {
        "name": "kubevirt",
        "namespace": "openshift-cnv",
        "ownerReferences": [{**OWNER, "controller": True, **owner}],
    }
    return msgspec.convert({"metadata": meta}, KubeVirt)


def test_who_owns_the_kubevirt_object() -> None:
    assert HyperConverged.owning(kubevirt()) == HCO
    for other in ({"controller": False}, {"kind": "Fleet"}, {"apiVersion": "example.com/v1"}):
        assert HyperConverged.owning(kubevirt(**other)) is None
    read = msgspec.convert(kubevirt(), KubeVirt, from_attributes=True)
    assert ClusterConfig.of_kubevirt(read).owner == HCO


@pytest.mark.parametrize(
    ("version", "path", "field"),
    [
        ("v1beta1", "evictionStrategy", "spec.evictionStrategy"),
        ("v1", "evictionStrategy", "spec.virtualization.evictionStrategy"),
        ("v1beta1", "migrations.parallelMigrationsPerCluster", "spec.liveMigrationConfig.parallelMigrationsPerCluster"),
        ("v1", "migrations", "spec.virtualization.liveMigrationConfig"),
        ("v1beta1", "virtualMachineInstancesPerNode", ""),
        # A version that is not known.
        ("v2", "evictionStrategy", ""),
    ],
)
def test_fields_in_its_own_words(version: str, path: str, field: str) -> None:
    owner = HCO._replace(version=version)
    assert owner.field(path) == field
    advice = owner.set(path, 110)
    if field:
        assert advice.startswith(f"set {field} to 110 in HyperConverged openshift-cnv/hco")
        return
    assert f'[{{"op": "add", "path": "/spec/configuration/{path}", "value": 110}}]' in advice
    assert "TaintedConfiguration" in advice
