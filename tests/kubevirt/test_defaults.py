"""What the recorded answers do not show of KubeVirt's defaults (tests/vectors)."""

from __future__ import annotations

import pytest

from tests.builders import config_of
from webhook.kubevirt import defaults
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.structs import Json, decode, encode
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.types.core import VMI_SPEC

NO_BRIDGE = {"permitBridgeInterfaceOnPodNetwork": False}


def filled(spec: Json, configuration: ClusterConfig = DEFAULTS) -> Json:
    decoded = decode(VMI_SPEC, spec)
    defaults.spec_defaults(decoded, configuration)
    return encode(VMI_SPEC, decoded)


@pytest.mark.parametrize(
    ("spec", "network", "interfaces"),
    [
        ({}, {"defaultNetworkInterface": "bogus"}, [{"name": "default", "bridge": {}}]),
        ({"domain": {"devices": {"autoattachPodInterface": False}}}, {}, None),
        ({"networks": [{"name": "n"}]}, {"defaultNetworkInterface": "slirp"}, None),
        ({"domain": {"devices": {"interfaces": [{"name": "n"}]}}}, {}, [{"name": "n"}]),
        ({}, NO_BRIDGE | {"defaultNetworkInterface": "masquerade"}, [{"name": "default", "masquerade": {}}]),
    ],
)
def test_network_interface(spec: Json, network: Json, interfaces: list[Json] | None) -> None:
    result = filled(spec, ClusterConfig.of({"network": network}))
    assert result["domain"]["devices"].get("interfaces") == interfaces


def test_forbidden_interfaces() -> None:
    with pytest.raises(Rejection, match=r"slirp interface is deprecated as of v1\.3"):
        filled({}, ClusterConfig.of({"network": {"defaultNetworkInterface": "slirp"}}))
    with pytest.raises(Rejection, match="bridge interface is not enabled in kubevirt-config"):
        filled({}, ClusterConfig.of({"network": {"permitBridgeInterfaceOnPodNetwork": False}}))


@pytest.mark.parametrize(
    ("given", "domain", "requests"),
    [
        ("250m", {}, {"cpu": "250m"}),
        ("0.1", {}, None),
        ("250m", {"cpu": {"dedicatedCpuPlacement": True}}, None),
        ("250m", {"resources": {"requests": {"cpu": "1"}}}, {"cpu": "1"}),
        ("250m", {"resources": {"requests": {"cpu": "0"}, "limits": {"cpu": "1500m"}}}, {"cpu": "1500m"}),
    ],
)
def test_cpu_request_of_the_cluster(given: str, domain: Json, requests: Json | None) -> None:
    result = filled({"domain": domain}, ClusterConfig.of({"cpuRequest": given}))
    assert result["domain"]["resources"].get("requests") == requests


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        *((image, "Always") for image in ("x", "x:latest")),
        *((image, "IfNotPresent") for image in ("x@digest", "x:1", "registry:5000/x")),
    ],
)
def test_pull_policies(image: str, policy: str) -> None:
    disks = ({"image": image}, {"image": image, "imagePullPolicy": "Never"})
    result = filled({"volumes": [{"name": disk["image"], "containerDisk": disk} for disk in disks]})["volumes"]
    assert [volume["containerDisk"]["imagePullPolicy"] for volume in result] == [policy, "Never"]


@pytest.mark.parametrize(
    ("version", "domain", "given", "requested"),
    [
        ("1.6.0", {"memory": {"guest": "1Gi"}}, {}, "1Gi"),
        ("1.6.1", {"memory": {"guest": "1Gi"}}, {"memoryOvercommit": 200}, "512Mi"),
        ("1.6.3", {"memory": {"guest": "1000M"}}, {"memoryOvercommit": 150}, "666666666"),
        ("1.6.3", {"memory": {"guest": "9223372036854775807"}}, {"memoryOvercommit": 150}, "0"),
        ("1.6.3", {"memory": {"guest": "1Ei"}}, {"memoryOvercommit": 150}, "30744573456182586"),
        ("1.6.3", {"memory": {"guest": "100000000G"}}, {"memoryOvercommit": 150}, "-56311627158063677"),
        ("1.6.3", {"memory": {"hugepages": {"pageSize": "2Mi"}}}, {}, "2Mi"),
        ("1.6.3", {"memory": {"hugepages": {"pageSize": "two"}}}, {}, None),
        ("1.6.3", {"resources": {"limits": {"memory": "2Gi"}}}, {}, "2Gi"),
        ("1.6.3", {"resources": {"limits": {"memory": "2Gi"}, "requests": {"memory": "1Gi"}}}, {}, "1Gi"),
        ("1.6.3", {}, {}, None),
        ("1.6.2", {"memory": {"guest": "1Gi"}}, {}, None),
        ("1.6.4", {"memory": {"guest": "1Gi"}}, {}, None),
    ],
)
def test_requested_memory(version: str, domain: Json, given: Json, requested: str | None) -> None:
    configuration = config_of(version, {"developerConfiguration": given})
    shape = configuration.rules.vmi
    spec = decode(shape, {"spec": {"domain": domain}})["spec"]
    defaults.spec_defaults(spec, configuration)
    resources = encode(shape, {"spec": spec})["spec"]["domain"]["resources"]
    assert resources.get("requests", {}).get("memory") == requested
