"""What the recorded answers do not show of KubeVirt's defaults (tests/vectors)."""

from __future__ import annotations

import pytest

from webhook.kubevirt import defaults
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.structs import Json, decode, encode
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.types.core import VMI_SPEC


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
        (
            {},
            {"permitBridgeInterfaceOnPodNetwork": False, "defaultNetworkInterface": "masquerade"},
            [{"name": "default", "masquerade": {}}],
        ),
    ],
)
def test_network_interface(spec: Json, network: Json, interfaces: list[Json] | None) -> None:
    result = filled(spec, ClusterConfig.of({"network": network}))
    assert result["domain"]["devices"].get("interfaces") == interfaces


@pytest.mark.parametrize(
    ("network", "text"),
    [
        ({"defaultNetworkInterface": "slirp"}, "slirp interface is deprecated as of v1.3"),
        ({"permitBridgeInterfaceOnPodNetwork": False}, "bridge interface is not enabled in kubevirt-config"),
    ],
)
def test_forbidden_interfaces(network: Json, text: str) -> None:
    with pytest.raises(Rejection, match=text):
        filled({}, ClusterConfig.of({"network": network}))


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
