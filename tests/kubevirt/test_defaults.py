from __future__ import annotations

from typing import Any

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


def test_disks_for_volumes_without_any() -> None:
    spec = decode(
        VMI_SPEC,
        {
            "volumes": [{"name": name} for name in ("a", "b", "fs", "b")],
            "domain": {"devices": {"disks": [{"name": "a"}], "filesystems": [{"name": "fs"}]}},
        },
    )
    defaults.disks(spec)

    assert [disk["name"] for disk in spec["domain"]["devices"]["disks"]] == ["a", "b", "b"]


@pytest.mark.parametrize(
    ("spec", "network", "interfaces"),
    [
        ({}, {}, [{"name": "default", "bridge": {}}]),
        ({}, {"defaultNetworkInterface": "masquerade"}, [{"name": "default", "masquerade": {}}]),
        ({}, {"defaultNetworkInterface": ""}, [{"name": "default", "bridge": {}}]),
        ({}, {"defaultNetworkInterface": "bogus"}, [{"name": "default", "bridge": {}}]),
        ({"domain": {"devices": {"autoattachPodInterface": True}}}, {}, [{"name": "default", "bridge": {}}]),
        ({"domain": {"devices": {"autoattachPodInterface": False}}}, {}, None),
        ({"networks": [{"name": "n"}]}, {"defaultNetworkInterface": "slirp"}, None),
        ({"domain": {"devices": {"interfaces": [{"name": "n"}]}}}, {}, [{"name": "n"}]),
    ],
)
def test_network_interface(spec: Json, network: Json, interfaces: list[Json] | None) -> None:
    result = filled(spec, ClusterConfig.of({"network": network}))

    assert result["domain"]["devices"].get("interfaces") == interfaces
    assert ("networks" in result) == (
        (interfaces is not None and "name" in interfaces[0] and interfaces[0]["name"] == "default")
        or "networks" in spec
    )


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


def test_a_forbidden_bridge_forbids_no_masquerade() -> None:
    network = {"permitBridgeInterfaceOnPodNetwork": False, "defaultNetworkInterface": "masquerade"}
    spec = filled({}, ClusterConfig.of({"network": network}))

    assert spec["domain"]["devices"]["interfaces"] == [{"name": "default", "masquerade": {}}]


@pytest.mark.parametrize(
    ("devices", "inputs"),
    [
        ({}, None),
        ({"autoattachInputDevice": False}, None),
        ({"autoattachInputDevice": True}, [{"name": "default-0"}]),
        ({"autoattachInputDevice": True, "inputs": [{"name": "mine"}]}, [{"name": "mine"}]),
    ],
)
def test_input_device(devices: Json, inputs: list[Json] | None) -> None:
    spec = {"domain": {"devices": devices}}
    defaults.input_device(spec)

    assert devices.get("inputs") == inputs


CPU = {"sockets": 1, "cores": 1, "threads": 1}


@pytest.mark.parametrize(
    ("domain", "resources", "cpu"),
    [
        ({}, {}, CPU),
        (
            {"resources": {"limits": {"cpu": "1500m"}}},
            {"requests": {"cpu": "1500m"}, "limits": {"cpu": "1500m"}},
            {**CPU, "sockets": 2},
        ),
        (
            {"resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "0"}}},
            {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}},
            {**CPU, "sockets": 3},
        ),
        (
            {"resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "2"}}},
            {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}},
            {**CPU, "sockets": 3},
        ),
        ({"resources": {"requests": {"cpu": "5"}}}, {"requests": {"cpu": "5"}}, {**CPU, "sockets": 5}),
        ({"resources": {"limits": {"cpu": "0"}}}, {"limits": {"cpu": "0"}}, {"cores": 1, "threads": 1}),
        ({"cpu": {"cores": 2}}, {}, {"cores": 2}),
        ({"cpu": {"model": "m"}}, {}, {**CPU, "model": "m"}),
    ],
)
def test_cpu(domain: Json, resources: Json, cpu: Json) -> None:
    result = filled({"domain": domain})["domain"]

    assert (result["resources"], result["cpu"]) == (resources, cpu)


@pytest.mark.parametrize(
    ("given", "domain", "requests"),
    [
        ("250m", {}, {"cpu": "250m"}),
        ("100m", {}, None),
        ("0.1", {}, None),
        ("250m", {"cpu": {"dedicatedCpuPlacement": True}}, None),
        ("250m", {"resources": {"requests": {"cpu": "1"}}}, {"cpu": "1"}),
    ],
)
def test_cpu_request_of_the_cluster(given: str, domain: Json, requests: Json | None) -> None:
    result = filled({"domain": domain}, ClusterConfig.of({"cpuRequest": given}))

    assert result["domain"]["resources"].get("requests") == requests


@pytest.mark.parametrize(
    ("domain", "memory"),
    [
        ({}, {}),
        ({"memory": {"guest": "1Gi"}, "resources": {"requests": {"memory": "2Gi"}}}, {"guest": "1Gi"}),
        ({"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "3Gi"}}}, {"guest": "2Gi"}),
        ({"resources": {"requests": {"memory": "0"}, "limits": {"memory": "3Gi"}}}, {"guest": "3Gi"}),
        ({"memory": {"hugepages": {"pageSize": "1024Mi"}}}, {"hugepages": {"pageSize": "1024Mi"}, "guest": "1Gi"}),
        ({"memory": {"hugepages": {"pageSize": "big"}}}, {"hugepages": {"pageSize": "big"}}),
    ],
)
def test_memory(domain: Json, memory: Json) -> None:
    assert filled({"domain": domain})["domain"]["memory"] == memory


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x@digest", "IfNotPresent"),
        ("x:1", "IfNotPresent"),
        ("x@sha256:1", "IfNotPresent"),
        ("registry:5000/x", "IfNotPresent"),
    ],
)
def test_pull_policies(image: str, policy: str) -> None:
    volumes = [
        {"name": "a", "containerDisk": {"image": image}},
        {"name": "b", "containerDisk": {"image": image, "imagePullPolicy": "Never"}},
    ]
    result = filled({"volumes": volumes})["volumes"]

    assert [volume["containerDisk"]["imagePullPolicy"] for volume in result] == [policy, "Never"]


@pytest.mark.parametrize(
    ("spec", "configuration", "result"),
    [
        ({}, DEFAULTS, ("amd64", "q35", "None")),
        ({"architecture": "arm64"}, DEFAULTS, ("arm64", "virt", "None")),
        ({"architecture": "s390x"}, DEFAULTS, ("s390x", "s390-ccw-virtio", "None")),
        ({"architecture": "ppc64le"}, DEFAULTS, ("ppc64le", "q35", "None")),
        (
            {"domain": {"machine": {"type": "mine"}}, "evictionStrategy": "External"},
            DEFAULTS,
            ("amd64", "mine", "External"),
        ),
        ({"domain": {"machine": {}}}, ClusterConfig.of({"machineType": "m"}, "arm64"), ("arm64", "m", "None")),
        (
            {},
            ClusterConfig.of(
                {"architectureConfiguration": {"amd64": {"machineType": "a"}}, "evictionStrategy": "LiveMigrate"}
            ),
            ("amd64", "a", "LiveMigrate"),
        ),
    ],
)
def test_architecture_machine_and_eviction(
    spec: Json, configuration: ClusterConfig, result: tuple[str, str, str]
) -> None:
    filled_spec: dict[str, Any] = filled(spec, configuration)

    assert (
        filled_spec["architecture"],
        filled_spec["domain"]["machine"]["type"],
        filled_spec["evictionStrategy"],
    ) == result
