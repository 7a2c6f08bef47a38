from __future__ import annotations

from typing import Any

import msgspec
import pytest

from webhook.errors import InputError
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.origins import Origin
from webhook.kubevirt.types.views import KubeVirt


def test_nothing_configured() -> None:
    assert ClusterConfig.of(None).machine_types == DEFAULTS.machine_types
    assert ClusterConfig.of({}).origin("cpu_model") is Origin.KUBEVIRT
    assert DEFAULTS.machine_type("ppc64le") == "q35"


def test_the_old_machine_type_counts_for_all_architectures() -> None:
    read = ClusterConfig.of({"machineType": "old", "architectureConfiguration": {"arm64": {"machineType": "new"}}})

    assert [read.machine_type(name) for name in ("amd64", "arm64", "s390x")] == ["old"] * 3
    own = ClusterConfig.of({"architectureConfiguration": {"arm64": {"machineType": "new"}}})
    assert [own.machine_type(name) for name in ("amd64", "arm64", "s390x")] == ["q35", "new", "s390-ccw-virtio"]


def test_configured_values_are_the_clusters() -> None:
    read = ClusterConfig.of({"cpuModel": "m", "liveUpdateConfiguration": {"maxCpuSockets": 3}})

    assert (read.cpu_model, read.max_cpu_sockets, read.max_hotplug_ratio) == ("m", 3, 4)
    assert read.origin("cpu_model") is Origin.CLUSTER


@pytest.mark.parametrize(
    "invalid",
    [
        {"imagePullPolicy": "Sometimes"},
        {"network": {"defaultNetworkInterface": "bogus"}},
        {"developerConfiguration": {"memoryOvercommit": -1}},
        {"developerConfiguration": {"cpuAllocationRatio": -1}},
        {"developerConfiguration": {"pvcTolerateLessSpaceUpToPercent": 101}},
        {"developerConfiguration": {"pvcTolerateLessSpaceUpToPercent": -1}},
    ],
)
def test_an_invalid_configuration_is_ignored_as_a_whole(invalid: dict[str, Any]) -> None:
    assert ClusterConfig.of({"cpuModel": "m", **invalid}).cpu_model == ""
    assert ClusterConfig.of({"cpuModel": "m", "imagePullPolicy": "Always"}).cpu_model == "m"


def test_a_kubevirt_object_counts_once_its_phase_is_set() -> None:
    kubevirt: dict[str, Any] = {
        "spec": {"configuration": {"cpuModel": "m"}},
        "status": {"phase": "Deployed", "defaultArchitecture": "arm64"},
    }
    read = ClusterConfig.of_kubevirt(msgspec.convert(kubevirt, KubeVirt))

    assert (read.cpu_model, read.default_architecture, read.even_parity) == ("m", "arm64", False)
    del kubevirt["status"]["phase"]
    assert ClusterConfig.of_kubevirt(msgspec.convert(kubevirt, KubeVirt)).cpu_model == ""
    assert ClusterConfig.of_kubevirt(KubeVirt()).default_architecture == "amd64"


def test_malformed() -> None:
    with pytest.raises(InputError, match=r"^spec\.configuration\.cpuModel: is a number"):
        ClusterConfig.of({"cpuModel": 1})
