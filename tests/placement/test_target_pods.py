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
EMULATED = kubevirt(useEmulation=True)
HYPERV = {
    "vpindex": {"enabled": True},
    "synic": {"enabled": False},
    "synictimer": {},
    "reset": None,
    "relaxed": {"enabled": True},
    "evmcs": {},
}
CPU_FEATURES = [
    {"name": "a"},
    {"name": "b", "policy": "require"},
    {"name": "c", "policy": ""},
    *({"name": policy, "policy": policy} for policy in ("forbid", "optional", "disable", "force")),
]
FEATURE_LABELS = [f"cpu-feature.node.kubevirt.io/{name}" for name in "abc"]
Q35 = {"machine": {"type": "q35"}}


def required(domain: dict[str, Any], spec: dict[str, Any] | None = None, **status: Any) -> list[str]:
    return list(generated_labels(vmi(spec, domain, **status), DEFAULTS, {}))


@pytest.mark.parametrize(
    ("domain", "more", "labels"),
    [
        ({}, {}, []),
        ({"cpu": {"model": "host-passthrough"}, "launchSecurity": {}}, {}, []),
        (
            {"cpu": {"model": "Westmere", "features": CPU_FEATURES}},
            {},
            ["cpu-model.node.kubevirt.io/Westmere", *FEATURE_LABELS],
        ),
        ({"cpu": {"model": "host-model", "features": CPU_FEATURES}}, {}, FEATURE_LABELS),
        # Without a model KubeVirt looks at no features.
        ({"cpu": {"features": CPU_FEATURES}}, {}, []),
        ({"cpu": {"realtime": {}}}, {}, ["kubevirt.io/realtime"]),
        ({"cpu": {"realtime": None}}, {}, []),
        (Q35, {}, ["machine-type.node.kubevirt.io/q35"]),
        (Q35, {"machine": {"type": "pc-q35-9.6"}}, ["machine-type.node.kubevirt.io/pc-q35-9.6"]),
        (Q35, {"machine": {"type": ""}}, ["machine-type.node.kubevirt.io/q35"]),
        ({"features": {"hyperv": HYPERV}}, {}, []),
        ({"launchSecurity": {"sev": {}}}, {}, ["kubevirt.io/sev"]),
        (
            {"launchSecurity": {"sev": {"policy": {"encryptedState": True}}}},
            {},
            ["kubevirt.io/sev", "kubevirt.io/sev-es"],
        ),
        ({"launchSecurity": {"sev": {"policy": {"encryptedState": False}}}}, {}, ["kubevirt.io/sev"]),
        ({"launchSecurity": {"snp": {}}}, {}, ["kubevirt.io/sev", "kubevirt.io/sev-snp"]),
        ({"launchSecurity": {"tdx": {}}}, {}, ["kubevirt.io/tdx"]),
        ({"launchSecurity": {}}, {"spec": {"architecture": "s390x"}}, ["kubevirt.io/s390-pv"]),
        ({}, {"spec": {"architecture": "s390x"}}, []),
    ],
)
def test_labels_that_follow_from_the_vm(domain: dict[str, Any], more: dict[str, Any], labels: list[str]) -> None:
    assert required(domain, **more) == labels


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ({}, "kubevirt.io/cpumanager"),
        ({"cpumanager": "true"}, "cpumanager"),
        ({"kubevirt.io/cpumanager": "true", "cpumanager": "true"}, "kubevirt.io/cpumanager"),
    ],
)
def test_dedicated_cpus(source: dict[str, str], label: str) -> None:
    assert generated_labels(vmi(None, {"cpu": {"dedicatedCpuPlacement": True}}), DEFAULTS, source) == [label]


@pytest.mark.parametrize(
    ("hyperv", "labels"),
    [
        (HYPERV, ["hyperv.node.kubevirt.io/vpindex", "cpu-vendor.node.kubevirt.io/Intel"]),
        ({"evmcs": {"enabled": False}}, []),
        ({}, []),
    ],
)
def test_hyperv_is_looked_at_if_strict(hyperv: dict[str, Any], labels: list[str]) -> None:
    assert generated_labels(vmi(None, {"features": {"hyperv": hyperv}}), STRICT, {}) == labels


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


def test_architecture() -> None:
    arm = vmi({"architecture": "ARM64"})

    assert (architecture_label(arm), architecture_label(vmi())) == ({"kubernetes.io/arch": "arm64"}, {})
    assert (is_emulated(arm, CROSS), is_emulated(arm, DEFAULTS)) == (True, False)
    assert generated_labels(arm, CROSS, {}) == ["kubevirt.io/vm-arch-ARM64"]
    # A VM without an architecture stays where its selectors tell it to be.
    assert (is_emulated(vmi(), CROSS), generated_labels(vmi(), CROSS, {})) == (False, [])


def test_what_nodes_must_not_have() -> None:
    forbidden = [{"name": "svm", "policy": "forbid"}]
    named = vmi(None, {"cpu": {"model": "Westmere", "features": forbidden}})

    assert forbidden_labels(vmi()) == forbidden_labels(vmi(None, HOST_MODEL)) == [OBSOLETE]
    assert forbidden_labels(named) == ["cpu-feature.node.kubevirt.io/svm"]


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
    explained = {"disk": "ssd", "zone": "a", "tier": "gold", "added": "1", "kata": "yes"}
    generated = {
        "kubernetes.io/arch": "amd64",
        "kubevirt.io/schedulable": "true",
        "cpu-model.node.kubevirt.io/X": "true",
    }
    present = pod(**explained, **generated, cpumanager="true", changed="then", unknown="x")
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


ARCH, WESTMERE = "kubernetes.io/arch", "cpu-model.node.kubevirt.io/Westmere"
POOL = kubevirt(nodeSelectors={"pool": "vms"})
RECEIVES = convert_to_view(Migration, {"spec": {"receive": {"migrationID": "x"}}}, "migration")
SKYLAKE = {"host-model-cpu.node.kubevirt.io/Skylake": "true"}
EPYC = {"host-model-cpu.node.kubevirt.io/EPYC": "true", f"{VENDOR}AMD": "true", f"{FEATURE}svm": "true", "zone": "far"}
BY_HAND = {"host-model-cpu.node.kubevirt.io/Mine": "yes", "host-model-required-features.node.kubevirt.io/a": "yes"}
UNNAMED = {"host-model-required-features.node.kubevirt.io/vmx": "true", f"{VENDOR}Intel": "true"}
OLD_POD = {f"{MODEL}Broadwell": "true", f"{FEATURE}a": "true", "zone": "a"}
# Labels of KubeVirt's that are unknown here, those of the owner, and those that KubeVirt computes again.
STRANGE_POD = {
    **dict.fromkeys(("kubevirt.io/cca", "new.node.kubevirt.io/x", "kubevirt.io/mine", "notkubevirt.io/x"), "true"),
    **dict.fromkeys(("machine-type.node.kubevirt.io/old", "kubevirt.io/schedulable", f"{VENDOR}Intel"), "true"),
    "kubevirt.io/pool": "was-the-owners",
    "zone": "a",
}


def coming(domain: dict[str, Any], **labels: str) -> Vmi:
    state = {"sourceState": {"node": "far-1", "nodeSelectors": labels}}
    return vmi(None, domain, nodeName="n1", migrationState=state)


PLAIN, MODELED = vmi(None, NAMED), vmi(None, HOST_MODEL)
INTELS, FROM_INTEL, IN_POOL = [f"{VENDOR}Intel=true"], {"source_node": INTEL}, {"configuration": POOL}
OWN_SELECTOR = {"pool": "mine", ARCH: "arm64", WESTMERE: "false", "kubevirt.io/schedulable": "false"}
CROSS_ARM = kubevirt(featureGates=["CrossArchitectureVirtualization"], nodeSelectors={ARCH: "arm64"})


@pytest.mark.parametrize(
    ("vm", "added", "options", "expected"),
    [
        # Every layer has its origin.
        (
            vmi({"architecture": "amd64", "nodeSelector": {"zone": "a"}}, NAMED),
            {"zone": "b", "disk": "ssd"},
            IN_POOL,
            {
                "added": ["zone=b", "disk=ssd"],
                "schedulable": ["kubevirt.io/schedulable=true"],
                "kubevirt": [f"{ARCH}=amd64", f"{WESTMERE}=true"],
                "cluster": ["pool=vms"],
                "vm": ["zone=a"],
            },
        ),
        # Later layers overwrite earlier ones but not what is added.
        (
            vmi({"architecture": "amd64", "nodeSelector": OWN_SELECTOR}, NAMED),
            {"pool": "other", WESTMERE: "false"},
            {"configuration": kubevirt(nodeSelectors={"pool": "vms", ARCH: "riscv64"})},
            {
                "added": ["pool=other", f"{WESTMERE}=false"],
                "vm": ["kubevirt.io/schedulable=false", f"{ARCH}=arm64", "pool=mine"],
                "kubevirt": [f"{WESTMERE}=true"],
                "cluster": None,
            },
        ),
        # An equal value keeps its first origin.
        (vmi({"nodeSelector": {"pool": "vms"}}, NAMED), {}, IN_POOL, {"vm": None, "cluster": ["pool=vms"]}),
        # No selector holds an emulated VM to an architecture.
        (
            vmi({"architecture": "arm64", "nodeSelector": {ARCH: "arm64", "zone": "a"}}, NAMED),
            {ARCH: "amd64"},
            {"configuration": CROSS_ARM},
            {
                "added": [f"{ARCH}=amd64"],
                "vm": ["zone=a"],
                "cluster": None,
                "kubevirt": [f"{WESTMERE}=true", "kubevirt.io/vm-arch-arm64=true"],
            },
        ),
        # Unknown labels of KubeVirt's are mirrored.
        (
            PLAIN,
            {},
            {"source_pod": pod(**STRANGE_POD), "source_pod_added": {"kubevirt.io/mine": "true"}},
            {"kubevirt": [f"{WESTMERE}=true", "kubevirt.io/cca=true", "new.node.kubevirt.io/x=true"]},
        ),
        # A received VM keeps away from the hostname that it comes from.
        (
            coming(HOST_MODEL, **SKYLAKE),
            None,
            {},
            {"source node": [f"{HOST}!=far-1"], "host-model": [f"{MODEL}Skylake=true"]},
        ),
        # A received VM from nowhere.
        (MODELED, None, {}, {"source node": None}),
        # A received VM keeps the CPU that its source tells.
        (
            coming(HOST_MODEL, **EPYC),
            None,
            {"source_pod": pod(**{f"{FEATURE}vmx": "true"}), **FROM_INTEL},
            {"host-model": [f"{MODEL}EPYC=true"], "vendor": [f"{VENDOR}AMD=true"], "vm": None},
        ),
        # What another source names counts for no migration of its own.
        (coming(HOST_MODEL, **EPYC), {f"{VENDOR}Intel": "true"}, FROM_INTEL, {"vendor": INTELS}),
        # A first migration takes the CPU of the node.
        (
            vmi(None, HOST_MODEL, nodeName="n1"),
            {},
            {"source_pod": pod(), **FROM_INTEL},
            {"host-model": [f"{MODEL}Skylake=true", f"{FEATURE}vmx=true"], "vendor": INTELS},
        ),
        # A later migration takes what its pod required.
        (
            MODELED,
            {},
            {"source_pod": pod(**OLD_POD), **FROM_INTEL},
            {"host-model": [f"{MODEL}Broadwell=true", f"{FEATURE}a=true"]},
        ),
        # Values are taken as they stand over the VM's own.
        (
            vmi({"nodeSelector": {f"{FEATURE}a": "no", "zone": "a"}}, HOST_MODEL),
            {},
            {"source_pod": pod(), "source_node": node("n1", BY_HAND)},
            {"host-model": [f"{MODEL}Mine=yes", f"{FEATURE}a=yes"], "vm": ["zone=a"]},
        ),
        # A node that names no model gives no features.
        (
            MODELED,
            {},
            {"source_pod": pod(), "source_node": node("n1", UNNAMED)},
            {"host-model": None, "vendor": INTELS},
        ),
        # Features of the owner's own are not asked for twice: that its pod has one already means to KubeVirt that the
        # VM has migrated before, so that it adds no model.
        (
            vmi(None, {"cpu": {"model": "host-model", "features": [{"name": "vmx"}]}}),
            {},
            {"source_pod": pod(**{f"{FEATURE}vmx": "true"}), **FROM_INTEL},
            {"host-model": None, "kubevirt": [f"{FEATURE}vmx=true", f"no {OBSOLETE}"]},
        ),
        # Other models carry nothing.
        (
            PLAIN,
            {},
            {"source_pod": pod(**OLD_POD), **FROM_INTEL},
            {"host-model": None, "kubevirt": [f"{WESTMERE}=true"]},
        ),
        # An added vendor does not switch the guard off.
        (PLAIN, {f"{VENDOR}AMD": "true"}, FROM_INTEL, {"added": [f"{VENDOR}AMD=true"], "vendor": INTELS}),
        # A vendor of the VM's own is enough.
        (vmi({"nodeSelector": {f"{VENDOR}AMD": "true"}}, NAMED), {}, FROM_INTEL, {"vendor": None}),
        # Without the node the pod tells the vendor.
        (PLAIN, {}, {"source_pod": pod(**{f"{VENDOR}Intel": "true"})}, {"vendor": INTELS}),
        # What a migration added says nothing of the vendor.
        (
            PLAIN,
            {},
            {"source_pod": pod(**{f"{VENDOR}Intel": "true"}), "source_pod_added": {f"{VENDOR}Intel": "true"}},
            {"vendor": None},
        ),
    ],
)
def test_labels_by_their_origin(
    vm: Vmi, added: dict[str, str] | None, options: dict[str, Any], expected: dict[str, list[str] | None]
) -> None:
    """A migration that adds a selector, or, without one, the receiving half of one from another cluster."""
    migration = RECEIVES if added is None else Migration.adding(added)
    requirements = target_pod_requirements(vm, migration, **options)
    found = asked(requirements)

    assert {origin: found.get(origin) for origin in expected} == expected
    assert added is not None or not any(isinstance(each, Elsewhere) for each in requirements)


def test_kvm_is_needed_unless_it_is_emulated() -> None:
    for configuration, needed in ((DEFAULTS, True), (EMULATED, False)):
        found = target_pod_requirements(vmi(), configuration=configuration)
        assert any(isinstance(each, Kvm) for each in found) is needed


def test_the_api_servers_own_tolerations_count() -> None:
    lost = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    (untainted,) = (each for each in target_pod_requirements(vmi()) if isinstance(each, Untainted))

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
    vm = vmi({"tolerations": tolerations})
    (untainted,) = (each for each in target_pod_requirements(vm) if isinstance(each, Untainted))
    lost = node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])

    assert (not untainted.reasons(lost)) is tolerated


# -- node affinity -----------------------------------------------------------------------------------------------------


def test_what_kubevirt_appends_to_every_term_stands_apart() -> None:
    vm = vmi({"affinity": affinity(expressions(expression("zone", "In", "a", "b")))}, HOST_MODEL)
    requirements = target_pod_requirements(vm)

    assert asked(requirements)["kubevirt"] == [f"no {OBSOLETE}"]
    assert [str(each.terms[0]) for each in requirements if isinstance(each, OneOf)] == ["zone in (a, b)"]


@pytest.mark.parametrize("empty", [{}, None, {"matchExpressions": []}])
def test_an_empty_term_matches_by_what_kubevirt_appends(empty: Any) -> None:
    spec = {"affinity": affinity(empty)}

    assert eligible(target_pod_requirements(vmi(spec, HOST_MODEL))) == ["n2"]
    assert eligible(target_pod_requirements(vmi(spec, NAMED))) == []


def test_no_terms_match_nothing() -> None:
    assert eligible(target_pod_requirements(vmi({"affinity": affinity()}, HOST_MODEL))) == []


def eligible(requirements: Requirements) -> list[str]:
    shared = {"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/Westmere": "true"}
    nodes = [node("n2", shared), node("n3", {**shared, OBSOLETE: "true"})]
    if requirements and any(OBSOLETE in str(each.expression) for each in requirements if isinstance(each, Label)):
        assert unmet_requirements(requirements, nodes[1])
    return [name for name, why in reasons_node_by_node(requirements, nodes[:1]).items() if not why]


# -- requirements that only the present pod shows ----------------------------------------------------------------------


def test_what_a_feature_gate_asked_for_goes_with_it() -> None:
    """KubeVirt even takes such labels off the nodes, so that mirroring one would leave none."""
    gates = ["CrossArchitectureVirtualization", "HypervStrictCheck"]
    vm = vmi({"architecture": "amd64"}, NAMED | {"features": {"hyperv": {"vpindex": {"enabled": True}}}})
    ours = ["kubevirt.io/vm-arch-amd64=true", "hyperv.node.kubevirt.io/vpindex=true"]
    source = pod(**{expression.partition("=")[0]: "true" for expression in ours}, **{"kubevirt.io/cca": "true"})

    settings = kubevirt(featureGates=gates)
    opened = asked(target_pod_requirements(vm, source_pod=source, configuration=settings))["kubevirt"]
    closed = asked(target_pod_requirements(vm, source_pod=source))["kubevirt"]

    named, mirrored = "cpu-model.node.kubevirt.io/Westmere=true", "kubevirt.io/cca=true"
    assert sorted(opened) == sorted([named, mirrored, *ours])
    assert sorted(closed) == sorted([named, mirrored, "kubernetes.io/arch=amd64"])


def test_a_recorded_target_pod_is_what_we_expect() -> None:
    """KubeVirt's own target pod: a host-model VM, which had cpu features in its selector, migrated to zone b."""
    target = json.loads((CAPTURES / "pod-create-migration-target.json").read_text())["request"]["object"]["spec"]
    vm = vmi({"architecture": "amd64"}, HOST_MODEL, nodeName="n1", machine={"type": "q35"})

    requirements = target_pod_requirements(vm, Migration.adding({"zone": "b"}), source_pod=pod(), source_node=INTEL)

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
    running = vmi(None, NAMED, nodeName="n1")

    assert Elsewhere("source node", "n1", "host-1") in target_pod_requirements(running, source_node=INTEL)
    assert Elsewhere("source node", "n1") in target_pod_requirements(running)
    assert Elsewhere("source node", "n1") in target_pod_requirements(running, source_node=node("n2"))
    assert not any(isinstance(each, Elsewhere) for each in target_pod_requirements(vmi(None, NAMED)))


def test_gaps() -> None:
    vm, source = vmi(None, NAMED), pod()
    coming = vmi(None, NAMED, migrationState={"sourceState": {"node": "far-1"}})

    assert requirement_gaps(vm, Migration(), source, INTEL) == ()
    no_pod, no_node = requirement_gaps(vm, Migration(), None, None)
    assert requirement_gaps(vm, Migration(), None, INTEL) == (no_pod,)
    assert requirement_gaps(vm, Migration(), source, None) == (no_node,)
    assert requirement_gaps(coming, RECEIVES, None, None) == ()
    (no_source,) = requirement_gaps(vm, RECEIVES, None, None)
    unnamed = vmi(None, HOST_MODEL, migrationState={"sourceState": {"node": "far-1"}})
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
