from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import InputError
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.origins import Origin
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import rules_of
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


UNKNOWN = st.dictionaries(
    st.sampled_from(["brandNew", "other"]), st.none() | st.integers() | st.just({"a": [1]}), max_size=2
)
CHANGED: st.SearchStrategy[Any] = (
    st.none() | st.integers() | st.just("150") | st.just("64Mi") | st.just([]) | st.just({"limit": 1})
)


@given(
    version=st.sampled_from(["1.10.0", "1.11.3", "2.0.0"]),
    unknown=UNKNOWN,
    gates=st.lists(st.text(max_size=5)),
    changed=CHANGED,
    interface=st.sampled_from(["bridge", "brandNew"]),
)
def test_a_newer_release_may_have_other_members_and_types(
    version: str, unknown: dict[str, Any], gates: list[str], changed: Any, interface: str
) -> None:
    """What is still as it was counts."""
    parsed = parse_version(version)
    assert parsed
    configuration = {
        **unknown,
        "cpuModel": "m",
        "vmRolloutStrategy": changed,
        "migrations": {"completionTimeoutPerGiB": changed, "parallelMigrationsPerCluster": 7, **unknown},
        "developerConfiguration": {"featureGates": gates, "memoryOvercommit": 150, **unknown},
        "network": {"defaultNetworkInterface": interface},
    }
    read = ClusterConfig.of(configuration, rules=rules_of(release_of(parsed)))

    assert (read.cpu_model, read.parallel_migrations, read.memory_overcommit) == ("m", 7, 150)
    assert read.feature_gates == set(gates)


def test_malformed() -> None:
    with pytest.raises(InputError, match=r"^spec\.configuration\.cpuModel: is a number"):
        ClusterConfig.of({"cpuModel": 1})
