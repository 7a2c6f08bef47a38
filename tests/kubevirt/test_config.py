"""The KubeVirt object: its configuration and release, who owns it, and the MigrationPolicies beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config_of
from tests.kubevirt.releases.test_schemas import has
from webhook.errors import InputError, Unavailable
from webhook.k8s.types.meta import Object
from webhook.kubevirt import config
from webhook.kubevirt.config import DEFAULTS, ClusterConfig, InstallReader, KubeVirtInstall, find_in_use
from webhook.kubevirt.go_json.origins import FieldOrigin
from webhook.kubevirt.go_json.structs import List, Shape, Struct
from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.kubevirt.migrationpolicy import MigrationPolicy, MigrationRules, match_policy, migration_rules
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, Version
from webhook.kubevirt.releases.fields import FIELDS, VMI, DefinedFields, Definitions, unknown_fields
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.releases.schemas import kinds_of
from webhook.kubevirt.types.views import KubeVirt

ARM, PPC = (
    {"architectureConfiguration": {name: {"machineType": machine}}}
    for name, machine in (("arm64", "new"), ("ppc64le", "pseries-9"))
)


def test_nothing_configured_and_a_malformed_configuration() -> None:
    assert ClusterConfig.of(None).machine_types == DEFAULTS.machine_types
    assert ClusterConfig.of({}).origin("cpu_model") is FieldOrigin.KUBEVIRT
    assert DEFAULTS.machine_type("ppc64le") == "q35"
    assert (DEFAULTS.node_selectors, DEFAULTS.cpu_allocation_ratio, DEFAULTS.parallel_migrations) == ({}, 10, 5)
    with pytest.raises(InputError, match=r"^spec\.configuration\.cpuModel: is a number"):
        ClusterConfig.of({"cpuModel": 1})


@pytest.mark.parametrize(
    ("version", "given", "machines"),
    [
        # An old machine type counts for all architectures, in place of their own.
        ("1.9", ARM | {"machineType": "old"}, {"amd64": "old", "arm64": "old", "s390x": "old"}),
        ("1.9", ARM, {"amd64": "q35", "arm64": "new", "s390x": "s390-ccw-virtio"}),
        ("1.6", {"machineType": "old"}, {"s390x": "old"}),
        ("1.6", PPC, {"ppc64le": "pseries-9"}),
        ("1.7", PPC, {"ppc64le": "q35"}),
    ],
)
def test_machine_types(version: str, given: Any, machines: dict[str, str]) -> None:
    configuration = config_of(version, given)
    assert {architecture: configuration.machine_type(architecture) for architecture in machines} == machines


def test_configured_values_are_the_clusters() -> None:
    developer = {"nodeSelectors": {"pool": "vms"}, "cpuAllocationRatio": 3, "memoryOvercommit": 150}
    read = ClusterConfig.of(
        {"cpuModel": "m", "liveUpdateConfiguration": {"maxCpuSockets": 3}, "developerConfiguration": developer}
    )
    assert (read.cpu_model, read.max_cpu_sockets, read.max_hotplug_ratio) == ("m", 3, 4)
    assert (read.node_selectors, read.cpu_allocation_ratio, read.memory_overcommit) == ({"pool": "vms"}, 3, 150)
    assert read.origin("cpu_model") is FieldOrigin.CLUSTER


def test_the_frequency_that_the_cluster_has_at_least() -> None:
    for hertz, read in ((2_000_000_000, 2_000_000_000), (0, None), ("2", None)):
        given = {"developerConfiguration": {"minimumClusterTSCFrequency": hertz}}
        assert ClusterConfig.of(given).minimum_tsc_frequency == read


def paths_of(shape: Shape, path: str = "") -> Iterator[str]:
    if path:
        yield path
    if isinstance(shape, List):
        yield from paths_of(shape.item, path)
    for name, field in shape.fields.items() if isinstance(shape, Struct) else ():
        yield from paths_of(field, f"{path}.{name}".removeprefix("."))


# Of KubeVirt's main branch.
UNRELEASED = {"migrations.experimental.stallDetector"}


def test_what_is_read_of_a_configuration_is_there_in_a_release() -> None:
    read = {*paths_of(config._CONFIGURATION), *config._MEMBERS.values(), *(path for path, _ in config._PLAIN.values())}
    kinds = [kind for version in SUPPORTED_VERSIONS for kind in kinds_of(version) if kind.kind == "KubeVirt"]
    schemas = [kind.schema["properties"]["spec"]["properties"]["configuration"] for kind in kinds]

    assert len(read) > 50
    assert {path for path in read if not any(has(schema, path) for schema in schemas)} == UNRELEASED


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
    stalls: dict[str, Any] = {"migrations": {"experimental": {"stallDetector": {}}}}
    for chosen in ({"cpuModel": "m"}, {"defaultRuntimeClass": "kata"}, stalls):
        assert ClusterConfig.of(chosen | invalid) == replace(DEFAULTS, set_by_admin=ClusterConfig.of({}).set_by_admin)
    assert ClusterConfig.of({"cpuModel": "m", "imagePullPolicy": "Always"}).cpu_model == "m"


UNKNOWN = st.dictionaries(st.sampled_from(["new", "old"]), st.none() | st.integers() | st.just({"a": [1]}), max_size=2)
CHANGED: st.SearchStrategy[Any] = st.sampled_from([None, 0, -1, 7, 2**40, "150", "64Mi", [], {"limit": 1}])


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
    configuration = {
        **unknown,
        "cpuModel": "m",
        "vmRolloutStrategy": changed,
        "migrations": {"completionTimeoutPerGiB": changed, "parallelMigrationsPerCluster": 7, **unknown},
        "developerConfiguration": {"featureGates": gates, "memoryOvercommit": 150, **unknown},
        "network": {"defaultNetworkInterface": interface},
    }
    read = config_of(version, configuration)

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
        status = {"phase": phase, "defaultArchitecture": "arm64"}
        read = ClusterConfig.of_kubevirt(kubevirt(status=status, cpuModel="m"))
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
    assert install and install.namespaces == {"kubevirt"}
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

    SAID = Definitions(((VMI, DefinedFields(frozenset(), frozenset({"utilityVolumes"}))),))

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
        table = unknown_fields(Version(1, 7, 4), VMI)
        all_of_them = frozenset(field.path for field in FIELDS if field.kind == VMI)
        said = Definitions(((VMI, DefinedFields(all_of_them - table, table)),))
        assert str(self.release(InstallReader("", said).read([self.at("devel")]))) == "1.7.4"
        assert str(self.release(InstallReader("", self.SAID).read([self.at("devel")]))) == "1.9.0"
        # Without an object they count for the declared version.
        assert self.release(InstallReader("1.8", self.SAID).read([])).definitions == self.SAID


OWNER = {"apiVersion": "hco.kubevirt.io/v1beta1", "kind": "HyperConverged", "name": "hco", "uid": "u"}
HCO = HyperConverged("openshift-cnv", "hco", "v1beta1")


def owned(**owner: object) -> Object:
    references = [{**OWNER, "controller": True, **owner}]
    meta = {"name": "kubevirt", "namespace": "openshift-cnv", "ownerReferences": references}
    return msgspec.convert({"metadata": meta}, KubeVirt)


def test_who_owns_the_kubevirt_object() -> None:
    assert HyperConverged.owning(owned()) == HCO
    for other in ({"controller": False}, {"kind": "Fleet"}, {"apiVersion": "example.com/v1"}):
        assert HyperConverged.owning(owned(**other)) is None
    read = msgspec.convert(owned(), KubeVirt, from_attributes=True)
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


# -- which MigrationPolicy applies, as migrationpolicy_test.go of KubeVirt 1.9 has it, and what it sets ----------------

LABELS, SPACE = {"app": "web", "size": "l"}, {"team": "shop", "stage": "live"}


def policy(name: str, vmi: dict[str, str] | None = None, space: dict[str, str] | None = None, **spec: Any) -> Any:
    selectors = {"virtualMachineInstanceSelector": vmi, "namespaceSelector": space}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}, MigrationPolicy)


@pytest.mark.parametrize(
    ("policies", "wanted"),
    [
        ([], None),
        ([policy("a", {"app": "db"})], None),
        ([policy("a", {"app": "web"}, {"team": "lab"})], None),
        ([policy("a", {"app": "web"}), policy("b", {"app": "web"}, {"team": "shop"})], "b"),
        ([policy("a", space={"team": "shop"}), policy("b", {"app": "web"})], "b"),
        ([policy("b", {"app": "web"}), policy("a", {"size": "l"})], "a"),
        ([policy("a", {"app": "web"}), policy("b", space=SPACE)], "b"),
        ([msgspec.convert({"metadata": {"name": "a"}, "spec": {}}, MigrationPolicy)], None),
        ([policy("a")], "a"),
    ],
)
def test_the_most_detailed_policy_applies(policies: list[MigrationPolicy], wanted: str | None) -> None:
    found = match_policy(policies, LABELS, SPACE)
    assert (found.meta.name if found else None) == wanted


def test_no_selector_counts_for_a_vmi_without_labels() -> None:
    """KubeVirt looks at selectors only where the VMI has labels, at those of namespaces as well."""
    assert match_policy([policy("a", {"app": "db"}, {"team": "lab"})], None, SPACE)


@pytest.mark.parametrize(
    ("cluster", "spec", "post_copy", "disruption"),
    [
        ({}, {}, False, False),
        ({"allowPostCopy": True}, {}, True, True),
        ({"allowPostCopy": True, "allowWorkloadDisruption": False}, {}, True, False),
        ({}, {"allowPostCopy": True}, True, True),
        ({"allowWorkloadDisruption": True}, {"allowPostCopy": False}, False, False),
        ({"allowPostCopy": True}, {"allowWorkloadDisruption": False}, True, False),
    ],
)
def test_disruption_follows_post_copy(cluster: Any, spec: Any, post_copy: bool, disruption: bool) -> None:
    found = migration_rules(ClusterConfig.of({"migrations": cluster}), policy("a", **spec))
    assert (found.allows_post_copy, found.allows_disruption) == (post_copy, disruption)


def test_a_policy_sets_what_it_names() -> None:
    cluster = ClusterConfig.of({"migrations": {"bandwidthPerMigration": "64Mi", "experimental": {"stallDetector": {}}}})
    assert migration_rules(cluster) == MigrationRules(64 * 2**20, 150, detects_stalls=True)
    found = migration_rules(ClusterConfig(), policy("a", bandwidthPerMigration="1Mi", completionTimeoutPerGiB=9))
    assert found == MigrationRules(2**20, 9, policy="a")
