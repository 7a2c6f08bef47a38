"""What the recorded answers do not show of KubeVirt's webhooks (tests/vectors): warnings, odd objects, defaults."""

from __future__ import annotations

import copy
import re
from typing import Any

import msgspec
import pytest

from tests.builders import config_of
from tests.kubevirt.plain import PlainAdmission, create, mutate_vm, validate_vm
from tests.kubevirt.samples import among, instancetype, preference, vm
from tests.vectors.cases import FILE, read
from tests.vectors.stages import uuids
from webhook.errors import InputError
from webhook.kubevirt import defaults
from webhook.kubevirt.config import DEFAULTS, EVEN_PARITY_ANNOTATION, ClusterConfig
from webhook.kubevirt.go_json.structs import Json, decode, encode
from webhook.kubevirt.rejection import Crash, Rejection
from webhook.kubevirt.rules import share_vm
from webhook.kubevirt.types.core import VMI_SPEC
from webhook.kubevirt.types.views import KubeVirt
from webhook.kubevirt.webhooks import admit_instancetype, admit_preference, find_denial, remember_specs

ARM = {"template.kubevirt.io/architecture": "arm64"}
PCI = "kubevirt.io/pci-topology-version"


def mutated(given: Json, *objects: Json, configuration: ClusterConfig = DEFAULTS) -> PlainAdmission:
    return mutate_vm(given, among(objects), uuids(), configuration)


def template(answer: PlainAdmission) -> Json:
    assert answer.vm is not None
    result: Json = answer.vm["spec"]["template"]
    return result


def test_a_vm_on_its_way_out_and_an_unknown_architecture_are_left_alone() -> None:
    given = vm(instancetype={})
    given["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    answer = mutated(given)
    assert answer.is_allowed
    assert "architecture" not in template(answer)["spec"]
    with pytest.raises(Rejection, match="the architecture riscv64 is none of amd64, arm64, s390x"):
        created({"architecture": "riscv64"})


def source(name: str, labels: Json | None = None, further: str = "") -> Json:
    spec = {"source": {"dataSource": {"name": further, "namespace": "demo"}}} if further else {}
    return {"kind": "DataSource", "metadata": {"name": name, "namespace": "demo", "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("names", "architecture"),
    [
        *((["arm"], "arm64"), (["alias"], "arm64"), (["dangling"], "amd64"), (["odd", "bare"], "amd64")),
        (["missing", "arm"], "arm64"),
    ],
)
def test_architecture_of_a_data_source(names: list[str], architecture: str) -> None:
    odd = {"template.kubevirt.io/architecture": "vax"}
    objects = [source("arm", ARM), source("alias", further="arm"), source("odd", odd), source("bare")]
    references = [{"kind": "DataSource", "name": name, "namespace": ""} for name in names]
    given = vm(dataVolumeTemplates=[{"spec": {"sourceRef": reference}} for reference in references])
    result = template(mutated(given, *objects, source("dangling", ARM, further="missing")))
    assert result["spec"]["architecture"] == architecture


def test_an_objection_is_what_the_two_webhooks_say_one_after_the_other() -> None:
    seen = {None: 0, Rejection: 0, Crash: 0}
    for case in (case for case in read(FILE) if "vm" in case.given):
        vm, get, configuration = copy.deepcopy(case.given["vm"]), case.get, case.configuration
        find = remember_specs(get, configuration.rules)
        try:
            changed = mutate_vm(vm, get, str, configuration)
            message = (changed if changed.vm is None else validate_vm(changed.vm, get, configuration)).message
        except Crash as crash:
            message = crash.what
        except InputError as error:
            with pytest.raises(InputError, match=f"^{re.escape(str(error))}$"):
                find_denial(share_vm(vm, configuration.rules), get, configuration, find)
            continue

        before = copy.deepcopy(vm)
        rejection = find_denial(share_vm(vm, configuration.rules), get, configuration, find)

        assert (vm, rejection.what if rejection else "") == (before, message)
        seen[type(rejection) if rejection else None] += 1
    assert min(seen.values()) > 5, seen


def created(spec: Json, configuration: ClusterConfig = DEFAULTS) -> Json:
    return create({"metadata": {"name": "v"}, "spec": spec}, configuration, lambda: "new")


def domain(given: Json, architecture: str = "amd64", configuration: ClusterConfig = DEFAULTS) -> Any:
    return created({"domain": given, "architecture": architecture}, configuration)["spec"]["domain"]


@pytest.mark.parametrize(
    ("hyperv", "result", "features"),
    [
        ({"evmcs": {}}, {"evmcs": True, "vapic": True}, [{"name": "aes"}, {"name": "vmx", "policy": "require"}]),
        ({"evmcs": {"enabled": False}}, {"evmcs": False}, [{"name": "aes"}, {"name": "vmx", "policy": "disable"}]),
        ({"ipi": {}}, {"ipi": True, "vpindex": True}, None),
        ({"evmcs": {}, "vapic": {"enabled": False}, "ipi": {}}, {"evmcs": True, "vapic": False, "ipi": True}, None),
    ],
)
def test_hyperv_dependencies(hyperv: Json, result: dict[str, bool], features: list[Json] | None) -> None:
    """A feature of the CPU that is named is required all the same."""
    cpu = {"features": [{"name": "aes"}, {"name": "vmx", "policy": "disable"}]} if features else {}
    made = domain({"cpu": cpu, "features": {"hyperv": hyperv}})
    assert {name: state["enabled"] for name, state in made["features"]["hyperv"].items()} == result
    assert made["cpu"].get("features") == features


@pytest.mark.parametrize(
    ("cpu", "update", "most"),
    [
        ({"sockets": 2, "cores": 1, "threads": 1}, {"maxHotplugRatio": 2}, 4),
        ({"sockets": 2, "maxSockets": 3}, {}, 3),
        ({"sockets": 9}, {"maxCpuSockets": 6}, 9),
        ({"sockets": 100, "cores": 2, "threads": 1}, {}, 256),
        ({"sockets": 100, "cores": 4, "threads": 2}, {}, 100),
    ],
)
def test_max_sockets(cpu: Json, update: Json, most: int) -> None:
    configuration = ClusterConfig.of({"liveUpdateConfiguration": update})
    assert domain({"cpu": cpu}, configuration=configuration)["cpu"]["maxSockets"] == most


@pytest.mark.parametrize(
    ("given", "update", "most"),
    [
        ({"memory": {"guest": "1Gi"}}, {}, "4Gi"),
        ({"memory": {"guest": "1Gi"}}, {"maxGuest": "3G"}, None),
        ({"memory": {"guest": "2Gi"}}, {"maxGuest": "1Gi"}, None),
        *(({"memory": {"guest": guest}}, {}, None) for guest in ("1022Mi", "1025Mi")),
        ({"memory": {"guest": "1026Mi"}}, {}, "4104Mi"),
        ({"memory": {"guest": "1026Mi", "hugepages": {"pageSize": "1Gi"}}}, {}, None),
        ({"memory": {"guest": "1Gi"}, "cpu": {"realtime": {}}}, {}, None),
        ({"memory": {"guest": "1Gi"}, "launchSecurity": {}}, {}, None),
        ({"memory": {"guest": "1Gi"}, "cpu": {"numa": {"guestMappingPassthrough": {}}}}, {}, None),
        ({}, {"maxGuest": "64Gi"}, None),
    ],
)
def test_max_guest(given: Json, update: Json, most: str | None) -> None:
    configuration = ClusterConfig.of({"liveUpdateConfiguration": update})
    assert domain(given, configuration=configuration)["memory"].get("maxGuest") == most
    assert "maxGuest" not in domain(given, "s390x", configuration)["memory"]


@pytest.mark.parametrize("gates", [[], ["AlignCPUs"]])
def test_annotations_that_depend_on_the_cluster(gates: list[str]) -> None:
    kubevirt = {
        "metadata": {"annotations": {EVEN_PARITY_ANNOTATION: ""}},
        "spec": {"configuration": {"developerConfiguration": {"featureGates": gates}}},
        "status": {"phase": "Deployed"},
    }
    spec = {"domain": {"cpu": {"isolateEmulatorThread": True}, "launchSecurity": {"tdx": {}}}}
    made = created(spec, ClusterConfig.of_kubevirt(msgspec.convert(kubevirt, KubeVirt)))
    annotations = made["metadata"]["annotations"]
    without = ClusterConfig.of({"confidentialCompute": {"tdx": {"attestation": {"qgsSocketPath": ""}}}})

    assert annotations.get(EVEN_PARITY_ANNOTATION) == ("" if gates else None)
    assert annotations["kubevirt.io/qgs-socket-path"] == "/var/run/tdx-qgs/qgs.socket"
    assert set(created(spec, without)["metadata"]["annotations"]) == {PCI}


OVERCOMMIT = "spec.memory.overcommitPercent"


@pytest.mark.parametrize(
    ("memory", "messages"),
    [
        ({"overcommitPercent": 0, "hugepages": {}}, []),
        ({"overcommitPercent": 100}, []),
        (
            {"overcommitPercent": 150, "hugepages": {}},
            [
                f"{OVERCOMMIT} '150': must be in range between 0 and 100.",
                f"{OVERCOMMIT} and spec.memory.hugepages should not be requested together.",
            ],
        ),
    ],
)
def test_instancetypes(memory: Json, messages: list[str]) -> None:
    answer = admit_instancetype(instancetype(memory={"guest": "1Gi", **memory}, launchSecurity={}))
    deprecated = "launchSecurity is deprecated and will be removed in a future release. Use preference instead."
    assert [(cause.what, cause.field) for cause in answer.causes] == [(message, OVERCOMMIT) for message in messages]
    # What is denied is not warned of.
    assert (answer.is_allowed, [*answer.warnings]) == (not messages, [] if messages else [deprecated])


@pytest.mark.parametrize(("topology", "better"), [("cores", ""), ("preferCores", "cores")])
def test_preferences(topology: str, better: str) -> None:
    answer = admit_preference(preference(cpu={"preferredCPUTopology": topology}))
    name, use = f"PreferredCPUTopology {topology}", f"please use {better} instead"
    warning = f"{name} is deprecated for removal in a future release, {use}"
    assert (answer.is_allowed, [*answer.warnings]) == (True, [warning] if better else [])


NEW = {"metadata": {"name": "vm", "namespace": "demo"}}


@pytest.mark.parametrize(
    ("version", "annotated"),
    [
        *((version, ()) for version in ("1.6.3", "1.7.1")),
        *((version, ("amd64 q35", "amd64 pc", "s390x")) for version in ("1.6.4", "1.7.2", "1.8.1")),
        *((version, ("amd64 q35", "amd64 pc")) for version in ("1.6.5", "1.7.3", "1.8.2")),
        *((version, ("amd64 q35",)) for version in ("1.6.6", "1.8.3", "1.9.0")),
    ],
)
def test_the_pci_topology_by_patch_release(version: str, annotated: tuple[str, ...]) -> None:
    machines = [
        *(("amd64 q35", "pc-q35-rhel9", "amd64"), ("amd64 q35", "virt-rhel9", "arm64")),
        *(("amd64 pc", "pc-i440fx-2.10", "amd64"), ("s390x", "s390-ccw-virtio", "s390x")),
    ]
    for name, machine, architecture in machines:
        spec: Json = {"domain": {"machine": {"type": machine}}, "architecture": architecture}
        of_vm = template(mutated(vm(spec) | NEW, configuration=config_of(version))).get("metadata", {})
        of_vmi = created(spec, config_of(version))["metadata"]
        for metadata in (of_vm, of_vmi):
            assert (PCI in metadata.get("annotations", {})) is (name in annotated), name


@pytest.mark.parametrize(
    ("version", "has_serial", "architecture"),
    [("1.6.0", False, "amd64"), ("1.6.1", True, "amd64"), ("1.6.3", True, "amd64"), ("1.6.4", True, "arm64")],
)
def test_a_new_vm_by_patch_release(version: str, has_serial: bool, architecture: str) -> None:
    disk = {"metadata": {"name": "dv"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "ds"}}}
    made = mutated(vm(dataVolumeTemplates=[disk]) | NEW, source("ds", ARM), configuration=config_of(version))
    spec = template(made)["spec"]
    assert ("serial" in spec["domain"]["firmware"], spec["architecture"]) == (has_serial, architecture)


@pytest.mark.parametrize(("version", "warned"), [("1.8", False), ("1.9", True)])
def test_the_warning_of_launch_security(version: str, warned: bool) -> None:
    spec = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "launchSecurity": {"sev": {}}}
    answer = admit_instancetype({"spec": spec}, config_of(version).rules)
    assert (bool(answer.warnings), answer.is_allowed) == (warned, True)


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
