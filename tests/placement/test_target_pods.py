"""The host's own CPU and its vendor, which a migrating VM takes with it.

Requirements on nodes of some releases of KubeVirt and not of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement.hosts import FEATURE, HOST_MODEL, INTEL, MODEL, NAMED, OBSOLETE, VENDOR, asked
from tests.placement.node_by_node import reasons_node_by_node
from tests.placement.samples import (
    HOST,
    affinity,
    clusters,
    expression,
    expressions,
    kubevirt,
    node,
    pod,
    selectors,
    untimed,
    vmi,
    vmis,
)
from tests.placement.samples import vmi as a_vmi
from webhook.k8s.types.scheduling import Placed
from webhook.k8s.types.selectors import Expression
from webhook.kubevirt.config import DEFAULTS
from webhook.placement.eligibility import unmet_requirements
from webhook.placement.machines import LauncherPod, Migration, Vmi
from webhook.placement.nodes import convert_to_view
from webhook.placement.requirements import Elsewhere, Kvm, Label, OneOf, Origin, Requirements, Uncordoned, Untainted
from webhook.placement.target_pods import (
    RuntimeClass,
    architecture_label,
    forbidden_labels,
    generated_labels,
    host_model_labels,
    is_emulated,
    is_sticky_label,
    namespace_labels,
    own_requirements,
    requirement_gaps,
    target_pod_requirements,
    unexplained_labels,
    unexplained_labels_gap,
)

CROSS = kubevirt(featureGates=["CrossArchitectureVirtualization"])
STRICT = kubevirt(featureGates=["HypervStrictCheck"])
HYPERV = {
    "vpindex": {"enabled": True},
    "synic": {"enabled": False},
    "synictimer": {},
    "reset": None,
    "relaxed": {"enabled": True},
    "evmcs": {},
}


def required(domain: dict[str, Any], spec: dict[str, Any] | None = None, **status: Any) -> list[str]:
    return list(generated_labels(vmi(spec, domain, **status), DEFAULTS, {}))


def test_a_plain_vm_needs_nothing() -> None:
    assert required({}) == []
    assert required({"cpu": {"model": "host-passthrough"}, "launchSecurity": {}}) == []


def test_cpu_models_and_features() -> None:
    features = [
        {"name": "a"},
        {"name": "b", "policy": "require"},
        {"name": "c", "policy": ""},
        *({"name": policy, "policy": policy} for policy in ("forbid", "optional", "disable", "force")),
    ]
    labels = [f"cpu-feature.node.kubevirt.io/{name}" for name in "abc"]

    assert required({"cpu": {"model": "Westmere", "features": features}}) == [
        "cpu-model.node.kubevirt.io/Westmere",
        *labels,
    ]
    assert required({"cpu": {"model": "host-model", "features": features}}) == labels
    # Without a model KubeVirt looks at no features.
    assert required({"cpu": {"features": features}}) == []


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ({}, "kubevirt.io/cpumanager"),
        ({"cpumanager": "true"}, "cpumanager"),
        ({"kubevirt.io/cpumanager": "true", "cpumanager": "true"}, "kubevirt.io/cpumanager"),
    ],
)
def test_dedicated_cpus(source: dict[str, str], label: str) -> None:
    assert list(generated_labels(vmi(None, {"cpu": {"dedicatedCpuPlacement": True}}), DEFAULTS, source)) == [label]


def test_realtime() -> None:
    assert required({"cpu": {"realtime": {}}}) == ["kubevirt.io/realtime"]
    assert required({"cpu": {"realtime": None}}) == []


def test_the_machine_that_runs_counts() -> None:
    domain = {"machine": {"type": "q35"}}

    assert required(domain) == ["machine-type.node.kubevirt.io/q35"]
    assert required(domain, machine={"type": "pc-q35-9.6"}) == ["machine-type.node.kubevirt.io/pc-q35-9.6"]
    assert required(domain, machine={"type": ""}) == ["machine-type.node.kubevirt.io/q35"]


def test_hyperv_is_looked_at_only_if_strict() -> None:
    windows = vmi(None, {"features": {"hyperv": HYPERV}})

    assert list(generated_labels(windows, DEFAULTS, {})) == []
    assert list(generated_labels(windows, STRICT, {})) == [
        "hyperv.node.kubevirt.io/vpindex",
        "cpu-vendor.node.kubevirt.io/Intel",
    ]
    off = vmi(None, {"features": {"hyperv": {"evmcs": {"enabled": False}}}})
    assert list(generated_labels(off, STRICT, {})) == list(generated_labels(vmi(), STRICT, {})) == []


@pytest.mark.parametrize(
    ("domain", "needed"),
    [
        ({"cpu": {"features": [{"name": "invtsc", "policy": "require"}]}}, True),
        ({"cpu": {"features": [{"name": "invtsc", "policy": "force"}]}}, True),
        ({"cpu": {"features": [{"name": "invtsc"}]}}, False),
        ({"features": {"hyperv": {"reenlightenment": {"enabled": True}}}}, True),
        ({"features": {"hyperv": {"reenlightenment": {}}}}, False),
        ({}, False),
    ],
)
def test_tsc_frequency(domain: dict[str, Any], needed: bool) -> None:
    labels = ["scheduling.node.kubevirt.io/tsc-frequency-2100000000"] if needed else []

    assert required(domain, topologyHints={"tscFrequency": 2100000000}) == labels
    assert required(domain, topologyHints={"tscFrequency": -1}) == required(domain, topologyHints={}) == []


@pytest.mark.parametrize(
    ("security", "labels"),
    [
        ({"sev": {}}, ["sev"]),
        ({"sev": {"policy": {"encryptedState": True}}}, ["sev", "sev-es"]),
        ({"sev": {"policy": {"encryptedState": False}}}, ["sev"]),
        ({"snp": {}}, ["sev", "sev-snp"]),
        ({"tdx": {}}, ["tdx"]),
        ({}, []),
    ],
)
def test_launch_security(security: dict[str, Any], labels: list[str]) -> None:
    assert required({"launchSecurity": security}) == [f"kubevirt.io/{label}" for label in labels]


def test_secure_execution() -> None:
    assert required({"launchSecurity": {}}, {"architecture": "s390x"}) == ["kubevirt.io/s390-pv"]
    assert required({}, {"architecture": "s390x"}) == []


def test_architecture() -> None:
    arm = vmi({"architecture": "ARM64"})

    assert architecture_label(arm) == {"kubernetes.io/arch": "arm64"}
    assert architecture_label(vmi()) == {}
    assert is_emulated(arm, CROSS)
    assert not is_emulated(arm, DEFAULTS)
    assert list(generated_labels(arm, CROSS, {})) == ["kubevirt.io/vm-arch-ARM64"]
    # A VM without an architecture stays where its selectors tell it to be.
    assert not is_emulated(vmi(), CROSS)
    assert list(generated_labels(vmi(), CROSS, {})) == []


def test_what_nodes_must_not_have() -> None:
    obsolete = "node-labeller.kubevirt.io/obsolete-host-model"
    forbidden = [{"name": "svm", "policy": "forbid"}]

    assert (
        list(forbidden_labels(vmi()))
        == list(forbidden_labels(vmi(None, {"cpu": {"model": "host-model"}})))
        == [obsolete]
    )
    assert list(forbidden_labels(vmi(None, {"cpu": {"model": "Westmere", "features": forbidden}}))) == [
        "cpu-feature.node.kubevirt.io/svm"
    ]


def test_a_hosts_own_cpu() -> None:
    labels = {
        "host-model-required-features.node.kubevirt.io/vmx": "true",
        "host-model-required-features.node.kubevirt.io/by-hand": "yes",
        "host-model-cpu.node.kubevirt.io/Skylake": "true",
        "cpu-model.node.kubevirt.io/Westmere": "true",
    }

    assert host_model_labels(labels) == {
        "cpu-model-migration.node.kubevirt.io/Skylake": "true",
        "cpu-feature.node.kubevirt.io/by-hand": "yes",
        "cpu-feature.node.kubevirt.io/vmx": "true",
    }


def test_without_its_model_a_host_has_no_features_either() -> None:
    assert host_model_labels({"host-model-required-features.node.kubevirt.io/vmx": "true"}) == {}


@pytest.mark.parametrize(
    ("key", "copied"),
    [
        ("cpu-feature.node.kubevirt.io/vmx", True),
        ("cpu-model-migration.node.kubevirt.io/Skylake", True),
        ("my.cpu-feature.node.kubevirt.io/x", True),
        ("host-model-required-features.node.kubevirt.io/vmx", False),
        ("cpu-model.node.kubevirt.io/Skylake", False),
        ("zone", False),
    ],
)
def test_what_later_migrations_inherit(key: str, copied: bool) -> None:
    assert is_sticky_label(key) is copied


def runtime_class(**scheduling: Any) -> RuntimeClass:
    return convert_to_view(RuntimeClass, {"handler": "kata", "scheduling": scheduling}, "runtimeclass")


def test_what_a_runtime_class_asks() -> None:
    found = runtime_class(nodeSelector={"kata": "yes"}, tolerations=[{"key": "kata", "operator": "Exists"}, None])

    assert [(label.origin, str(label.expression)) for label in found.labels] == [(Origin.RUNTIME_CLASS, "kata=yes")]
    assert [toleration.key for toleration in found.tolerations] == ["kata", None]
    for empty in (RuntimeClass(), runtime_class()):
        assert (empty.labels, empty.tolerations) == ((), ())


def test_what_the_present_pod_has_from_elsewhere() -> None:
    present = pod(
        **{
            "disk": "ssd",
            "zone": "a",
            "tier": "gold",
            "added": "1",
            "kata": "yes",
            "changed": "then",
            "unknown": "x",
            "kubernetes.io/arch": "amd64",
            "kubevirt.io/schedulable": "true",
            "cpu-model.node.kubevirt.io/X": "true",
            "cpumanager": "true",
        }
    )
    vm = vmi({"nodeSelector": {"disk": "ssd", "changed": "now"}})
    settings = kubevirt(nodeSelectors={"tier": "gold", "zone": "a"})
    labels = runtime_class(nodeSelector={"kata": "yes"}).labels

    assert unexplained_labels(present, vm, settings, {"added": "1"}, labels) == {"changed": "then", "unknown": "x"}
    assert unexplained_labels(pod(), vm, settings, {}) == {}


@pytest.mark.parametrize(
    ("annotation", "shown", "expected"),
    [
        ("env=prod", {"env": "prod"}, ["env=prod"]),
        (" env = prod , team=a", {"env": "prod", "team": "a", "x": "y"}, ["env=prod", "team=a"]),
        # The plugin is not switched on, or the annotation is younger than the pod.
        ("env=prod", {}, []),
        ("env=prod", {"env": "test"}, []),
        ("", {"env": "prod"}, []),
        (None, {"env": "prod"}, []),
        (",=,env", {"env": "prod"}, []),
    ],
)
def test_what_a_namespace_asks(annotation: str | None, shown: dict[str, str], expected: list[str]) -> None:
    found = namespace_labels(annotation, shown)

    assert [str(label.expression) for label in found] == expected
    assert {label.origin for label in found} <= {Origin.NAMESPACE}


def test_what_is_left_is_named() -> None:
    assert "a=1" in unexplained_labels_gap({"a": "1"})
    assert "e=1 and 2 more" in unexplained_labels_gap(dict.fromkeys("gfedcba", "1"))


CAPTURES = Path(__file__).parents[1] / "data" / "captures"


def adding(**selector: str) -> Migration:
    return Migration.adding(selector)


# -- layers ------------------------------------------------------------------------------------------------------------


def test_every_layer_has_its_origin() -> None:
    vm = a_vmi({"architecture": "amd64", "nodeSelector": {"zone": "a"}}, NAMED)

    assert asked(
        target_pod_requirements(vm, adding(zone="b", disk="ssd"), configuration=kubevirt(nodeSelectors={"pool": "vms"}))
    ) == {
        "added": ["zone=b", "disk=ssd"],
        "schedulable": ["kubevirt.io/schedulable=true"],
        "kubevirt": ["kubernetes.io/arch=amd64", "cpu-model.node.kubevirt.io/Westmere=true"],
        "cluster": ["pool=vms"],
        "vm": ["zone=a"],
    }


def test_later_layers_overwrite_earlier_ones_but_not_what_is_added() -> None:
    model = "cpu-model.node.kubevirt.io/Westmere"
    own_selector = {"pool": "mine", "kubernetes.io/arch": "arm64", model: "false", "kubevirt.io/schedulable": "false"}
    vm = a_vmi({"architecture": "amd64", "nodeSelector": own_selector}, NAMED)
    cluster = kubevirt(nodeSelectors={"pool": "vms", "kubernetes.io/arch": "riscv64"})

    found = asked(
        target_pod_requirements(vm, Migration.adding({"pool": "other", model: "false"}), configuration=cluster)
    )

    assert found == {
        "added": ["pool=other", f"{model}=false"],
        "vm": ["kubevirt.io/schedulable=false", "kubernetes.io/arch=arm64", "pool=mine"],
        "kubevirt": [f"{model}=true"],
    }


def test_an_equal_value_keeps_its_first_origin() -> None:
    vm = a_vmi({"nodeSelector": {"pool": "vms"}}, NAMED)

    assert "vm" not in asked(target_pod_requirements(vm, configuration=kubevirt(nodeSelectors={"pool": "vms"})))


def test_no_selector_holds_an_emulated_vm_to_an_architecture() -> None:
    arch = "kubernetes.io/arch"
    vm = a_vmi({"architecture": "arm64", "nodeSelector": {arch: "arm64", "zone": "a"}}, NAMED)
    cluster = kubevirt(featureGates=["CrossArchitectureVirtualization"], nodeSelectors={arch: "arm64"})

    found = asked(target_pod_requirements(vm, Migration.adding({arch: "amd64"}), configuration=cluster))

    assert found["added"] == [f"{arch}=amd64"]
    assert found["vm"] == ["zone=a"]
    assert "cluster" not in found
    assert found["kubevirt"] == ["cpu-model.node.kubevirt.io/Westmere=true", "kubevirt.io/vm-arch-arm64=true"]


def test_kvm_is_needed_unless_it_is_emulated() -> None:
    assert any(isinstance(each, Kvm) for each in target_pod_requirements(a_vmi()))
    assert not any(
        isinstance(each, Kvm) for each in target_pod_requirements(a_vmi(), configuration=kubevirt(useEmulation=True))
    )


def test_the_api_servers_own_tolerations_count() -> None:
    lost = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    (untainted,) = (each for each in target_pod_requirements(a_vmi()) if isinstance(each, Untainted))

    assert [reason.has for reason in untainted.reasons(node(taints=lost))] == [
        "has the taint node.kubernetes.io/unreachable:NoSchedule"
    ]


@pytest.mark.parametrize(
    ("tolerations", "tolerated"),
    [
        ([{"key": "dedicated", "operator": "Exists"}], True),
        ([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}], True),
        # If the owner sets any part of a condition, the API server adds nothing.
        ([{"key": "node.kubernetes.io/unreachable", "value": "x"}], False),
        ([{"key": "node.kubernetes.io/unreachable", "value": "x", "effect": "NoExecute"}], False),
        ([{"key": "node.kubernetes.io/not-ready", "value": "x", "effect": "NoExecute"}], True),
        ([{"operator": "Equal", "value": "x"}], False),
    ],
)
def test_the_api_server_tolerates_only_what_nobody_spoke_of(tolerations: Any, tolerated: bool) -> None:
    vm = a_vmi({"tolerations": tolerations})
    (untainted,) = (each for each in target_pod_requirements(vm) if isinstance(each, Untainted))
    lost = node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])

    assert (not untainted.reasons(lost)) is tolerated


# -- node affinity -----------------------------------------------------------------------------------------------------


def test_what_kubevirt_appends_to_every_term_stands_apart() -> None:
    vm = a_vmi({"affinity": affinity(expressions(expression("zone", "In", "a", "b")))}, HOST_MODEL)
    requirements = target_pod_requirements(vm)

    assert asked(requirements)["kubevirt"] == [f"no {OBSOLETE}"]
    assert [str(each.terms[0]) for each in requirements if isinstance(each, OneOf)] == ["zone in (a, b)"]


@pytest.mark.parametrize("empty", [{}, None, {"matchExpressions": []}])
def test_an_empty_term_matches_by_what_kubevirt_appends(empty: Any) -> None:
    spec = {"affinity": affinity(empty)}

    assert eligible(target_pod_requirements(a_vmi(spec, HOST_MODEL))) == ["n2"]
    assert eligible(target_pod_requirements(a_vmi(spec, NAMED))) == []


def test_no_terms_match_nothing() -> None:
    assert eligible(target_pod_requirements(a_vmi({"affinity": affinity()}, HOST_MODEL))) == []


def eligible(requirements: Requirements) -> list[str]:
    shared = {"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/Westmere": "true"}
    nodes = [node("n2", shared), node("n3", {**shared, OBSOLETE: "true"})]
    if requirements and any(OBSOLETE in str(each.expression) for each in requirements if isinstance(each, Label)):
        assert unmet_requirements(requirements, nodes[1])
    return [name for name, why in reasons_node_by_node(requirements, nodes[:1]).items() if not why]


# -- requirements that only the present pod shows ----------------------------------------------------------------------


def test_unknown_labels_of_kubevirts_are_mirrored() -> None:
    source = pod(
        **{
            "kubevirt.io/cca": "true",
            "new.node.kubevirt.io/x": "true",
            "kubevirt.io/mine": "true",
            "kubevirt.io/pool": "was-the-owners",
            "machine-type.node.kubevirt.io/old": "true",
            "kubevirt.io/schedulable": "true",
            f"{VENDOR}Intel": "true",
            "zone": "a",
            "notkubevirt.io/x": "true",
        }
    )

    found = asked(
        target_pod_requirements(a_vmi(None, NAMED), source_pod=source, source_pod_added={"kubevirt.io/mine": "true"})
    )

    assert found["kubevirt"] == [
        "cpu-model.node.kubevirt.io/Westmere=true",
        "kubevirt.io/cca=true",
        "new.node.kubevirt.io/x=true",
    ]


def test_what_a_feature_gate_asked_for_goes_with_it() -> None:
    """KubeVirt even takes such labels off the nodes, so that mirroring one would leave none."""
    gates = ["CrossArchitectureVirtualization", "HypervStrictCheck"]
    vm = a_vmi({"architecture": "amd64"}, NAMED | {"features": {"hyperv": {"vpindex": {"enabled": True}}}})
    ours = ["kubevirt.io/vm-arch-amd64=true", "hyperv.node.kubevirt.io/vpindex=true"]
    source = pod(**{expression.partition("=")[0]: "true" for expression in ours}, **{"kubevirt.io/cca": "true"})

    opened = asked(target_pod_requirements(vm, source_pod=source, configuration=kubevirt(featureGates=gates)))[
        "kubevirt"
    ]
    closed = asked(target_pod_requirements(vm, source_pod=source))["kubevirt"]

    named, mirrored = "cpu-model.node.kubevirt.io/Westmere=true", "kubevirt.io/cca=true"
    assert sorted(opened) == sorted([named, mirrored, *ours])
    assert sorted(closed) == sorted([named, mirrored, "kubernetes.io/arch=amd64"])


def test_a_recorded_target_pod_is_what_we_expect() -> None:
    """KubeVirt's own target pod: a host-model VM, which had cpu features in its selector, migrated to zone b."""
    target = json.loads((CAPTURES / "pod-create-migration-target.json").read_text())["request"]["object"]["spec"]
    vm = a_vmi({"architecture": "amd64"}, HOST_MODEL, nodeName="n1", machine={"type": "q35"})

    requirements = target_pod_requirements(vm, adding(zone="b"), source_pod=pod(), source_node=INTEL)

    ours = {str(each.expression) for each in requirements if isinstance(each, Label)}
    model = {f"{MODEL}Skylake=true", f"{MODEL}Skylake-Client-IBRS=true"}
    assert ours - model == {f"{key}={value}" for key, value in target["nodeSelector"].items()} - model | {
        f"no {OBSOLETE}"
    }
    (theirs,) = (each for each in own_requirements(convert_to_view(Placed, target, "pod")) if isinstance(each, OneOf))
    assert [str(term) for term in theirs.terms] == [f"no {OBSOLETE}"]
    (untainted,) = (each for each in requirements if isinstance(each, Untainted))
    assert [(each.key, each.operator, each.effect) for each in untainted.tolerations] == [
        (each["key"], each["operator"], each["effect"]) for each in target["tolerations"]
    ]


# -- origins of requirements -------------------------------------------------------------------------------------------


def test_the_present_node_is_left() -> None:
    running = a_vmi(None, NAMED, nodeName="n1")

    assert Elsewhere("source node", "n1", "host-1") in target_pod_requirements(running, source_node=INTEL)
    assert Elsewhere("source node", "n1") in target_pod_requirements(running)
    assert Elsewhere("source node", "n1") in target_pod_requirements(running, source_node=node("n2"))
    assert not any(isinstance(each, Elsewhere) for each in target_pod_requirements(a_vmi(None, NAMED)))


RECEIVES = convert_to_view(Migration, {"spec": {"receive": {"migrationID": "x"}}}, "migration")


def test_a_received_vm_keeps_away_from_the_hostname_that_it_comes_from() -> None:
    selectors = {"host-model-cpu.node.kubevirt.io/Skylake": "true"}
    state = {"sourceState": {"node": "far-1", "nodeSelectors": selectors}}
    coming = a_vmi(None, HOST_MODEL, nodeName="n1", migrationState=state)

    found = asked(target_pod_requirements(coming, RECEIVES))

    assert found["source node"] == [f"{HOST}!=far-1"]
    assert found["host-model"] == [f"{MODEL}Skylake=true"]
    assert not any(isinstance(each, Elsewhere) for each in target_pod_requirements(coming, RECEIVES))
    assert "source node" not in asked(target_pod_requirements(a_vmi(None, HOST_MODEL), RECEIVES))


def test_a_received_vm_keeps_the_cpu_that_its_source_tells() -> None:
    selectors = {
        "host-model-cpu.node.kubevirt.io/EPYC": "true",
        f"{VENDOR}AMD": "true",
        f"{FEATURE}svm": "true",
        "zone": "far",
    }
    coming = a_vmi(None, HOST_MODEL, migrationState={"sourceState": {"node": "far-1", "nodeSelectors": selectors}})

    found = asked(
        target_pod_requirements(coming, RECEIVES, source_pod=pod(**{f"{FEATURE}vmx": "true"}), source_node=INTEL)
    )

    assert found["host-model"] == [f"{MODEL}EPYC=true"]
    assert found["vendor"] == [f"{VENDOR}AMD=true"]
    assert "vm" not in found
    assert asked(target_pod_requirements(coming, Migration.adding({f"{VENDOR}Intel": "true"}), source_node=INTEL))[
        "vendor"
    ] == [f"{VENDOR}Intel=true"]


def test_gaps() -> None:
    vm, source = a_vmi(None, NAMED), pod()
    coming = a_vmi(None, NAMED, migrationState={"sourceState": {"node": "far-1"}})

    assert requirement_gaps(vm, Migration(), source, INTEL) == ()
    no_pod, no_node = requirement_gaps(vm, Migration(), None, None)
    assert requirement_gaps(vm, Migration(), None, INTEL) == (no_pod,)
    assert requirement_gaps(vm, Migration(), source, None) == (no_node,)
    assert requirement_gaps(coming, RECEIVES, None, None) == ()
    (no_source,) = requirement_gaps(vm, RECEIVES, None, None)
    unnamed = a_vmi(None, HOST_MODEL, migrationState={"sourceState": {"node": "far-1"}})
    (no_cpu,) = requirement_gaps(unnamed, RECEIVES, None, None)
    assert len({no_pod, no_node, no_source, no_cpu}) == 4


# -- properties --------------------------------------------------------------------------------------------------------


@untimed
@given(vm=vmis, added=selectors, more=selectors, cluster=clusters)
def test_adding_a_selector_never_adds_a_node(vm: Vmi, added: Any, more: Any, cluster: Any) -> None:
    def eligible_with(selector: dict[str, str]) -> set[str]:
        answer = reasons_node_by_node(
            target_pod_requirements(vm, Migration.adding(selector), configuration=EMULATED), cluster
        )
        return {name for name, why in answer.items() if not why}

    assert eligible_with({**more, **added}) <= eligible_with(added) <= eligible_with({})


EMULATED = kubevirt(useEmulation=True)


@untimed
@given(
    vm=vmis, added=selectors, cluster=selectors, source=st.none() | selectors, labelled=st.sampled_from([None, INTEL])
)
def test_no_requirement_is_lost(vm: Vmi, added: Any, cluster: Any, source: Any, labelled: Any) -> None:
    configuration = kubevirt(nodeSelectors=cluster)
    source_pod = None if source is None else pod(**source)

    requirements = target_pod_requirements(
        vm, Migration.adding(added), source_pod=source_pod, source_node=labelled, configuration=configuration
    )

    labels = [each.expression for each in requirements if isinstance(each, Label)]
    asked_added = [each.expression for each in requirements if isinstance(each, Label) and each.origin == "added"]
    assert asked_added == [Expression.equals(key, value) for key, value in added.items()]
    selector = vm.spec.node_selector if vm.spec and vm.spec.node_selector else {}
    # The VM's selector lies over the cluster's.
    assert all(Expression.equals(key, value) in labels for key, value in {**cluster, **selector}.items())
    assert sum(isinstance(each, Untainted) for each in requirements) == 1
    assert sum(isinstance(each, Uncordoned) for each in requirements) == 1
    assert sum(isinstance(each, OneOf) for each in requirements) == (
        vm.spec is not None and vm.spec.affinity is not None
    )
    assert set(
        target_pod_requirements(vm, source_pod=source_pod, source_node=labelled, configuration=configuration)
    ) <= set(requirements)


def test_defaults() -> None:
    assert target_pod_requirements(Vmi()) == target_pod_requirements(
        Vmi(), Migration(), source_pod=None, configuration=DEFAULTS
    )
    assert target_pod_requirements(Vmi(), source_pod=LauncherPod()) == target_pod_requirements(Vmi())


# -- the host's own CPU, and the vendor --------------------------------------------------------------------------------


def test_a_first_migration_takes_the_cpu_of_the_node() -> None:
    found = asked(target_pod_requirements(a_vmi(None, HOST_MODEL, nodeName="n1"), source_pod=pod(), source_node=INTEL))

    assert found["host-model"] == [f"{MODEL}Skylake=true", f"{FEATURE}vmx=true"]
    assert found["vendor"] == [f"{VENDOR}Intel=true"]


def test_a_later_migration_takes_what_its_pod_required() -> None:
    source = pod(**{f"{MODEL}Broadwell": "true", f"{FEATURE}a": "true", "zone": "a"})

    found = asked(target_pod_requirements(a_vmi(None, HOST_MODEL), source_pod=source, source_node=INTEL))

    assert found["host-model"] == [f"{MODEL}Broadwell=true", f"{FEATURE}a=true"]


def test_values_are_taken_as_they_stand_over_the_vms_own() -> None:
    by_hand = {"host-model-cpu.node.kubevirt.io/Mine": "yes", "host-model-required-features.node.kubevirt.io/a": "yes"}
    vm = a_vmi({"nodeSelector": {f"{FEATURE}a": "no", "zone": "a"}}, HOST_MODEL)

    found = asked(target_pod_requirements(vm, source_pod=pod(), source_node=node("n1", by_hand)))

    assert found["host-model"] == [f"{MODEL}Mine=yes", f"{FEATURE}a=yes"]
    assert found["vm"] == ["zone=a"]


def test_a_node_that_names_no_model_gives_no_features() -> None:
    unnamed = node("n1", {"host-model-required-features.node.kubevirt.io/vmx": "true", f"{VENDOR}Intel": "true"})

    found = asked(target_pod_requirements(a_vmi(None, HOST_MODEL), source_pod=pod(), source_node=unnamed))

    assert "host-model" not in found
    assert found["vendor"] == [f"{VENDOR}Intel=true"]


def test_features_of_the_owners_own_are_not_asked_for_twice() -> None:
    domain = {"cpu": {"model": "host-model", "features": [{"name": "vmx"}]}}
    source = pod(**{f"{FEATURE}vmx": "true"})

    found = asked(target_pod_requirements(a_vmi(None, domain), source_pod=source, source_node=INTEL))

    # That its pod has one already means to KubeVirt that the VM has migrated before: it adds no model.
    assert "host-model" not in found
    assert found["kubevirt"] == [f"{FEATURE}vmx=true", f"no {OBSOLETE}"]


def test_other_models_carry_nothing() -> None:
    source = pod(**{f"{MODEL}Broadwell": "true", f"{FEATURE}a": "true"})

    found = asked(target_pod_requirements(a_vmi(None, NAMED), source_pod=source, source_node=INTEL))

    assert "host-model" not in found
    assert found["kubevirt"] == ["cpu-model.node.kubevirt.io/Westmere=true"]


def test_an_added_vendor_does_not_switch_the_guard_off() -> None:
    found = asked(
        target_pod_requirements(a_vmi(None, NAMED), Migration.adding({f"{VENDOR}AMD": "true"}), source_node=INTEL)
    )

    assert found["added"] == [f"{VENDOR}AMD=true"]
    assert found["vendor"] == [f"{VENDOR}Intel=true"]


def test_a_vendor_of_the_vms_own_is_enough() -> None:
    vm = a_vmi({"nodeSelector": {f"{VENDOR}AMD": "true"}}, NAMED)

    assert "vendor" not in asked(target_pod_requirements(vm, source_node=INTEL))


def test_without_the_node_the_pod_tells_the_vendor() -> None:
    source = pod(**{f"{VENDOR}Intel": "true"})

    assert asked(target_pod_requirements(a_vmi(None, NAMED), source_pod=source))["vendor"] == [f"{VENDOR}Intel=true"]
    assert "vendor" not in asked(
        target_pod_requirements(a_vmi(None, NAMED), source_pod=source, source_pod_added={f"{VENDOR}Intel": "true"})
    )
