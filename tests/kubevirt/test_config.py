from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config_of
from webhook.errors import InputError, Unavailable
from webhook.kubevirt.config import DEFAULTS, ClusterConfig, InstallReader, KubeVirtInstall, find_in_use
from webhook.kubevirt.go_json.origins import Origin
from webhook.kubevirt.releases.capabilities import Version, parse_version
from webhook.kubevirt.releases.fields import FIELDS, MACHINE, DefinedFields, Definitions, unknown_fields
from webhook.kubevirt.releases.release import Release, release_of
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.types.views import KubeVirt

ARM: dict[str, Any] = {"architectureConfiguration": {"arm64": {"machineType": "new"}}}


def test_nothing_configured_and_a_malformed_configuration() -> None:
    assert ClusterConfig.of(None).machine_types == DEFAULTS.machine_types
    assert ClusterConfig.of({}).origin("cpu_model") is Origin.KUBEVIRT
    assert DEFAULTS.machine_type("ppc64le") == "q35"
    assert (DEFAULTS.node_selectors, DEFAULTS.cpu_allocation_ratio, DEFAULTS.parallel_migrations) == ({}, 10, 5)
    with pytest.raises(InputError, match=r"^spec\.configuration\.cpuModel: is a number"):
        ClusterConfig.of({"cpuModel": 1})


def test_machine_types() -> None:
    """An old machine type counts for all architectures, in place of their own."""
    for given_, types in ((ARM | {"machineType": "old"}, ["old"] * 3), (ARM, ["q35", "new", "s390-ccw-virtio"])):
        assert [ClusterConfig.of(given_).machine_type(name) for name in ("amd64", "arm64", "s390x")] == types


@pytest.mark.parametrize(("version", "machine"), [("1.6", "pseries-9"), ("1.7", "q35")])
def test_the_machine_type_of_ppc64le(version: str, machine: str) -> None:
    given = {"architectureConfiguration": {"ppc64le": {"machineType": "pseries-9"}}}
    assert config_of(version, given).machine_type("ppc64le") == machine
    # A legacy machine type counts for s390x too.
    assert config_of(version, {"machineType": "old"}).machine_type("s390x") == "old"


def test_configured_values_are_the_clusters() -> None:
    developer = {"nodeSelectors": {"pool": "vms"}, "cpuAllocationRatio": 3, "memoryOvercommit": 150}
    read = ClusterConfig.of(
        {"cpuModel": "m", "liveUpdateConfiguration": {"maxCpuSockets": 3}, "developerConfiguration": developer}
    )
    assert (read.cpu_model, read.max_cpu_sockets, read.max_hotplug_ratio) == ("m", 3, 4)
    assert (read.node_selectors, read.cpu_allocation_ratio, read.memory_overcommit) == ({"pool": "vms"}, 3, 150)
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
    for chosen in ({"cpuModel": "m"}, {"defaultRuntimeClass": "kata"}):
        assert ClusterConfig.of(chosen | invalid) == replace(DEFAULTS, set_by_admin=ClusterConfig.of({}).set_by_admin)
    assert ClusterConfig.of({"cpuModel": "m", "imagePullPolicy": "Always"}).cpu_model == "m"


UNKNOWN = st.dictionaries(
    st.sampled_from(["brandNew", "other"]), st.none() | st.integers() | st.just({"a": [1]}), max_size=2
)
CHANGED: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(), st.just("150"), st.just("64Mi"), st.just([]), st.just({"limit": 1})
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


def kubevirt(namespace: str = "kubevirt", status: Any = None, **configuration: Any) -> KubeVirt:
    plain = {
        "metadata": {"name": "kubevirt", "namespace": namespace},
        "spec": {"configuration": configuration},
        "status": {"phase": "Deployed", "observedKubeVirtVersion": "v1.8.1"} | (status or {}),
    }
    return msgspec.convert(plain, KubeVirt)


def test_a_kubevirt_object_counts_once_its_phase_is_set() -> None:
    for phase, model in (("Deployed", "m"), (None, "")):
        read = ClusterConfig.of_kubevirt(
            kubevirt(status={"phase": phase, "defaultArchitecture": "arm64"}, cpuModel="m")
        )
        assert (read.cpu_model, read.default_architecture, read.even_parity) == (model, "arm64", False)
    assert ClusterConfig.of_kubevirt(KubeVirt()).default_architecture == "amd64"


def configured(install: KubeVirtInstall | None) -> ClusterConfig:
    assert install
    assert isinstance(install.configuration, ClusterConfig)
    return install.configuration


def test_without_an_object_a_declared_version_counts() -> None:
    assert (KubeVirtInstall.of([]), find_in_use([]), InstallReader().read([])) == (None, None, None)
    install = InstallReader("1.7").read([])
    assert install
    assert (install.namespaces, str(configured(install).release)) == (frozenset(), "1.7.4")


def test_of_several_objects_the_one_in_use_counts_and_an_invalid_one_hides_no_namespace() -> None:
    install = KubeVirtInstall.of([kubevirt("other", {"phase": None}, cpuModel="a"), kubevirt("here", cpuModel="b")])
    assert install
    assert (install.namespaces, configured(install).cpu_model) == (frozenset({"other", "here"}), "b")
    install = KubeVirtInstall.of([kubevirt(cpuModel=7)])
    assert install
    assert install.namespaces == {"kubevirt"}
    assert isinstance(install.configuration, Unavailable)
    assert install.configuration.why.startswith("spec.configuration.cpuModel: ")


def test_it_is_read_once_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []
    real = ClusterConfig.of_kubevirt

    def counted(*given: Any) -> ClusterConfig:
        reads.append(given)
        return real(*given)

    monkeypatch.setattr(ClusterConfig, "of_kubevirt", counted)
    reader, first, second = InstallReader(), kubevirt(cpuModel="a"), kubevirt(cpuModel="b")

    assert reader.read([first]) is reader.read(iter([first]))
    assert len(reads) == 1
    assert reader.read([second]) is not reader.read([first])
    assert len(reads) == 3
    reader.use("1.7")
    assert len(reads) == 4


class TestDefinitions:
    """What the cluster's definitions say counts from when they were read for the version that the object names."""

    SAID = Definitions(((MACHINE, DefinedFields(frozenset(), frozenset({"utilityVolumes"}))),))

    @staticmethod
    def release(install: KubeVirtInstall | None) -> Release:
        return configured(install).release

    @staticmethod
    def at(version: str, target: str = "") -> KubeVirt:
        return kubevirt(status={"observedKubeVirtVersion": version, "targetKubeVirtVersion": target or version})

    def test_until_they_have_been_read_the_former_installation_counts(self) -> None:
        reader, former, new = InstallReader(learns=True), self.at("v1.8.4"), self.at("v1.9.0")
        assert self.release(reader.read([former])).definitions is None
        reader.learn(("v1.8.4", "v1.8.4", ""), self.SAID)
        before = reader.read([former])
        assert self.release(before).definitions == self.SAID
        assert reader.read([new]) is before
        reader.learn(("v1.9.0", "v1.9.0", ""), None)
        assert (str(self.release(reader.read([new]))), self.release(reader.read([new])).definitions) == ("1.9.0", None)

    def test_a_change_that_concerns_no_version_counts_at_once(self) -> None:
        reader = InstallReader(learns=True)
        reader.read([kubevirt()])
        reader.learn(("v1.8.1", "", ""), self.SAID)
        install = reader.read([kubevirt(cpuModel="a")])
        assert (self.release(install).definitions, configured(install).cpu_model) == (self.SAID, "a")

    @pytest.mark.parametrize(
        ("observed", "target", "declared", "is_settled"),
        [
            ("v1.8.4", "v1.8.4", "", True),
            ("v1.8.4", "v1.9.0", "", False),
            ("v1.9.0", "v1.8.4", "", False),
            ("v1.8.4", "v1.8.4", "1.8", True),
            ("v1.8.4", "v1.8.4", "1.7", False),
            ("v1.8.4", "v1.9.0", "1.8", False),
            ("devel", "devel", "1.7", True),
        ],
    )
    def test_whose_they_are(self, observed: str, target: str, declared: str, is_settled: bool) -> None:
        """Those of another release than the one whose rules count make no field known."""
        install = InstallReader(declared, self.SAID).read([self.at(observed, target)])
        assert self.release(install).definitions == replace(self.SAID, is_settled=is_settled)

    def test_where_nothing_names_a_version_they_show_the_release(self) -> None:
        table = unknown_fields(Version(1, 7, 4), MACHINE)
        all_of_them = frozenset(field.path for field in FIELDS if field.kind == MACHINE)
        said = Definitions(((MACHINE, DefinedFields(all_of_them - table, table)),))
        assert str(self.release(InstallReader("", said).read([self.at("devel")]))) == "1.7.4"
        assert str(self.release(InstallReader("", self.SAID).read([self.at("devel")]))) == "1.9.0"
        # Without an object they count for the declared version.
        assert self.release(InstallReader("1.8", self.SAID).read([])).definitions == self.SAID
