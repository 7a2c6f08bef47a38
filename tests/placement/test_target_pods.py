"""What the target pod of a migration requires of nodes, by the VM, its CPU, its present pod and KubeVirt's release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config_of
from tests.placement.samples import HOST, affinity, clusters, node, pod, reasons_node_by_node, selectors, vmi, vmis
from tests.placement.samples import kubevirt as settings
from webhook.k8s.types.scheduling import Placed
from webhook.k8s.types.selectors import Expression
from webhook.kubevirt.config import DEFAULTS
from webhook.placement import target_pods as module
from webhook.placement.machines import LauncherPod, Migration, Vmi
from webhook.placement.requirements import Elsewhere, Kvm, Label, OneOf, Origin, Requirements, Uncordoned, Untainted
from webhook.placement.target_pods import generated_labels, requirement_gaps, target_pod_requirements

Json = dict[str, Any]
VENDOR, FEATURE = "cpu-vendor.node.kubevirt.io/", "cpu-feature.node.kubevirt.io/"
MODEL, MODEL_FEATURES = "cpu-model-migration.node.kubevirt.io/", "host-model-required-features.node.kubevirt.io/"
OBSOLETE = "node-labeller.kubevirt.io/obsolete-host-model"
ARCH, WESTMERE = "kubernetes.io/arch", "cpu-model.node.kubevirt.io/Westmere"
SKYLAKE = {"host-model-cpu.node.kubevirt.io/Skylake": "true"}
INTEL = node("n1", {HOST: "host-1", f"{VENDOR}Intel": "true", **SKYLAKE, f"{MODEL_FEATURES}vmx": "true"})
HOST_MODEL, NAMED = {"cpu": {"model": "host-model"}}, {"cpu": {"model": "Westmere"}}
CROSS = settings(featureGates=["CrossArchitectureVirtualization"])
ON = {"enabled": True}
HYPERV = {"vpindex": ON, "synic": {"enabled": False}, "synictimer": {}, "reset": None, "relaxed": ON, "evmcs": {}}
CPU_FEATURES = [
    *({"name": "a"}, {"name": "b", "policy": "require"}, {"name": "c", "policy": ""}),
    *({"name": policy, "policy": policy} for policy in ("forbid", "optional", "disable", "force")),
]
FEATURE_LABELS = [f"{FEATURE}{name}" for name in "abc"]
Q35 = {"machine": {"type": "q35"}}
ENCRYPTED, PLAIN_STATE = ({"sev": {"policy": {"encryptedState": each}}} for each in (True, False))
ON_S390 = {"spec": {"architecture": "s390x"}}


def asked(requirements: Requirements) -> dict[str, list[str]]:
    """The requirements on labels, by origin."""
    by_origin: dict[str, list[str]] = {}
    for each in requirements:
        if isinstance(each, Label):
            by_origin.setdefault(each.origin, []).append(str(each.expression))
    return by_origin


def required(domain: Json, spec: Json | None = None, **status: Any) -> list[str]:
    return list(generated_labels(vmi(spec, domain, **status), DEFAULTS, {}))


@pytest.mark.parametrize(
    ("domain", "more", "labels"),
    [
        ({}, {}, []),
        ({"cpu": {"model": "host-passthrough"}, "launchSecurity": {}}, {}, []),
        ({"cpu": {"model": "Westmere", "features": CPU_FEATURES}}, {}, [WESTMERE, *FEATURE_LABELS]),
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
        ({"launchSecurity": ENCRYPTED}, {}, ["kubevirt.io/sev", "kubevirt.io/sev-es"]),
        ({"launchSecurity": PLAIN_STATE}, {}, ["kubevirt.io/sev"]),
        ({"launchSecurity": {"snp": {}}}, {}, ["kubevirt.io/sev", "kubevirt.io/sev-snp"]),
        ({"launchSecurity": {"tdx": {}}}, {}, ["kubevirt.io/tdx"]),
        ({"launchSecurity": {}}, ON_S390, ["kubevirt.io/s390-pv"]),
        ({}, ON_S390, []),
    ],
)
def test_labels_that_follow_from_the_vm(domain: Json, more: Json, labels: list[str]) -> None:
    assert required(domain, **more) == labels


def test_dedicated_cpus_and_hyperv_if_strict() -> None:
    dedicated, new = vmi(None, {"cpu": {"dedicatedCpuPlacement": True}}), "kubevirt.io/cpumanager"
    for source, label in (([], new), (["cpumanager"], "cpumanager"), ([new, "cpumanager"], new)):
        assert generated_labels(dedicated, DEFAULTS, dict.fromkeys(source, "true")) == [label]
    strict = settings(featureGates=["HypervStrictCheck"])
    vpindex = ["hyperv.node.kubevirt.io/vpindex", f"{VENDOR}Intel"]
    for hyperv, labels in ((HYPERV, vpindex), ({"evmcs": {"enabled": False}}, []), ({}, [])):
        assert generated_labels(vmi(None, {"features": {"hyperv": hyperv}}), strict, {}) == labels


@pytest.mark.parametrize(
    ("domain", "needed"),
    [
        *(({"cpu": {"features": [{"name": "invtsc", "policy": each}]}}, True) for each in ("require", "force")),
        ({"cpu": {"features": [{"name": "invtsc"}]}}, False),
        ({"features": {"hyperv": {"reenlightenment": {"enabled": True}}}}, True),
        ({"features": {"hyperv": {"reenlightenment": {}}}}, False),
        ({}, False),
    ],
)
def test_tsc_frequency(domain: Json, needed: bool) -> None:
    labels = ["scheduling.node.kubevirt.io/tsc-frequency-2100000000"] if needed else []
    assert required(domain, topologyHints={"tscFrequency": 2100000000}) == labels
    assert required(domain, topologyHints={"tscFrequency": -1}) == required(domain, topologyHints={}) == []


def test_architecture() -> None:
    arm = vmi({"architecture": "ARM64"})
    assert Label(Origin.KUBEVIRT, Expression.equals(ARCH, "arm64")) in module.target_pod_requirements(arm)
    assert ARCH not in str(module.target_pod_requirements(vmi()))
    assert (module.is_emulated(arm, CROSS), module.is_emulated(arm, DEFAULTS)) == (True, False)
    assert generated_labels(arm, CROSS, {}) == ["kubevirt.io/vm-arch-ARM64"]
    # A VM without an architecture stays where its selectors tell it to be.
    assert (module.is_emulated(vmi(), CROSS), generated_labels(vmi(), CROSS, {})) == (False, [])
    # By releases.
    gate = "CrossArchitectureVirtualization"
    assert ARCH in keys_of_release("1.8", gate, architecture="arm64")
    assert "kubevirt.io/vm-arch-arm64" in keys_of_release("1.9", gate, architecture="arm64")
    assert "kubevirt.io/vm-arch-arm64" not in keys_of_release("1.9", architecture="arm64")


def test_what_nodes_must_not_have_and_what_a_hosts_own_cpu_asks() -> None:
    named = vmi(None, {"cpu": {"model": "Westmere", "features": [{"name": "svm", "policy": "forbid"}]}})
    assert module.forbidden_labels(vmi()) == module.forbidden_labels(vmi(None, HOST_MODEL)) == [OBSOLETE]
    assert module.forbidden_labels(named) == [f"{FEATURE}svm"]
    features = {f"{MODEL_FEATURES}vmx": "true", f"{MODEL_FEATURES}by-hand": "yes"}
    assert module.host_model_labels(features | SKYLAKE | {WESTMERE: "true"}) == {
        f"{MODEL}Skylake": "true",
        f"{FEATURE}by-hand": "yes",
        f"{FEATURE}vmx": "true",
    }
    # What later migrations inherit.
    assert all(map(module.is_sticky_label, (f"{FEATURE}vmx", f"{MODEL}Skylake", f"my.{FEATURE}x")))
    others = (f"{MODEL_FEATURES}vmx", "cpu-model.node.kubevirt.io/Skylake", "zone")
    assert not any(map(module.is_sticky_label, others))


def runtime_class(**scheduling: Any) -> module.RuntimeClass:
    return msgspec.convert({"handler": "kata", "scheduling": scheduling}, module.RuntimeClass)


def test_what_a_runtime_class_asks() -> None:
    found = runtime_class(nodeSelector={"kata": "yes"}, tolerations=[{"key": "kata", "operator": "Exists"}, None])
    assert [(label.origin, str(label.expression)) for label in found.labels] == [(Origin.RUNTIME_CLASS, "kata=yes")]
    assert [toleration.key for toleration in found.tolerations] == ["kata", None]
    for empty in (module.RuntimeClass(), runtime_class()):
        assert (empty.labels, empty.tolerations) == ((), ())


def test_what_the_present_pod_has_from_elsewhere() -> None:
    explained = {"disk": "ssd", "zone": "a", "tier": "gold", "added": "1", "kata": "yes"}
    generated = {ARCH: "amd64", "kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/X": "true"}
    present = pod(**explained, **generated, cpumanager="true", changed="then", unknown="x")
    vm = vmi({"nodeSelector": {"disk": "ssd", "changed": "now"}})
    selecting = settings(nodeSelectors={"tier": "gold", "zone": "a"})
    labels = runtime_class(nodeSelector={"kata": "yes"}).labels

    assert module.unexplained_labels(present, vm, selecting, {"added": "1"}, labels) == {
        "changed": "then",
        "unknown": "x",
    }
    assert module.unexplained_labels(pod(), vm, selecting, {}) == {}
    assert "a=1" in module.unexplained_labels_gap({"a": "1"})
    assert "e=1 and 2 more" in module.unexplained_labels_gap(dict.fromkeys("gfedcba", "1"))


@pytest.mark.parametrize(
    ("annotation", "shown", "expected"),
    [
        ("env=prod", {"env": "prod"}, ["env=prod"]),
        (" env = prod , team=a", {"env": "prod", "team": "a", "x": "y"}, ["env=prod", "team=a"]),
        # The plugin is not switched on, or the annotation is younger than the pod.
        ("env=prod", {}, []),
        ("env=prod", {"env": "test"}, []),
        *((annotation, {"env": "prod"}, []) for annotation in ("", None, ",=,env")),
    ],
)
def test_what_a_namespace_asks(annotation: str | None, shown: dict[str, str], expected: list[str]) -> None:
    found = module.namespace_labels(annotation, shown)
    assert [(label.origin, str(label.expression)) for label in found] == [(Origin.NAMESPACE, each) for each in expected]


RECEIVES = msgspec.convert({"spec": {"receive": {"migrationID": "x"}}}, Migration)
EPYC = {"host-model-cpu.node.kubevirt.io/EPYC": "true", f"{VENDOR}AMD": "true", f"{FEATURE}svm": "true", "zone": "far"}
BY_HAND = node("n1", {"host-model-cpu.node.kubevirt.io/Mine": "yes", f"{MODEL_FEATURES}a": "yes"})
UNNAMED = node("n1", {f"{MODEL_FEATURES}vmx": "true", f"{VENDOR}Intel": "true"})
OLD_POD = pod(**{f"{MODEL}Broadwell": "true", f"{FEATURE}a": "true", "zone": "a"})
# Labels of KubeVirt's that are unknown here, those of the owner, and those that KubeVirt computes again.
STRANGE_POD = pod(
    **dict.fromkeys(("kubevirt.io/cca", "new.node.kubevirt.io/x", "kubevirt.io/mine"), "true"),
    **dict.fromkeys(("notkubevirt.io/x", "kubevirt.io.example.com/x", "example.com/kubevirt.io"), "true"),
    **dict.fromkeys(("machine-type.node.kubevirt.io/old", "kubevirt.io/schedulable", f"{VENDOR}Intel"), "true"),
    **{"kubevirt.io/pool": "was-the-owners", "zone": "a"},
)


def coming(domain: Json, **labels: str) -> Vmi:
    state = {"sourceState": {"node": "far-1", "nodeSelectors": labels}}
    return vmi(None, domain, nodeName="n1", migrationState=state)


PLAIN, MODELED = vmi(None, NAMED), vmi(None, HOST_MODEL)
NO_POD: Json = {"source_pod": pod()}
INTEL_POD: Json = {"source_pod": pod(**{f"{VENDOR}Intel": "true"})}
VMX_POD: Json = {"source_pod": pod(**{f"{FEATURE}vmx": "true"})}
WAS_MINE: Json = {"source_pod": STRANGE_POD, "source_pod_added": {"kubevirt.io/mine": "true"}}
INTELS, FROM_INTEL = [f"{VENDOR}Intel=true"], {"source_node": INTEL}
IN_POOL = {"configuration": settings(nodeSelectors={"pool": "vms"})}
OWN_SELECTOR = {"pool": "mine", ARCH: "arm64", WESTMERE: "false", "kubevirt.io/schedulable": "false"}
RISCV = {"configuration": settings(nodeSelectors={"pool": "vms", ARCH: "riscv64"})}
CROSS_ARM = settings(featureGates=["CrossArchitectureVirtualization"], nodeSelectors={ARCH: "arm64"})
EMULATED = vmi({"architecture": "arm64", "nodeSelector": {ARCH: "arm64", "zone": "a"}}, NAMED)
ANYWHERE = [f"{WESTMERE}=true", "kubevirt.io/vm-arch-arm64=true"]
MIRRORED = [f"{WESTMERE}=true", "kubevirt.io/cca=true", "new.node.kubevirt.io/x=true"]
SKYLAKE_VMX = [f"{MODEL}Skylake=true", f"{FEATURE}vmx=true"]
OWN_FEATURE = vmi({"nodeSelector": {f"{FEATURE}a": "no", "zone": "a"}}, HOST_MODEL)
OWN_VMX = vmi(None, {"cpu": {"model": "host-model", "features": [{"name": "vmx"}]}})


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
            RISCV,
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
            EMULATED,
            {ARCH: "amd64"},
            {"configuration": CROSS_ARM},
            {"added": [f"{ARCH}=amd64"], "vm": ["zone=a"], "cluster": None, "kubevirt": ANYWHERE},
        ),
        # Unknown labels of KubeVirt's are mirrored.
        (PLAIN, {}, WAS_MINE, {"kubevirt": MIRRORED}),
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
            VMX_POD | FROM_INTEL,
            {"host-model": [f"{MODEL}EPYC=true"], "vendor": [f"{VENDOR}AMD=true"], "vm": None},
        ),
        # What another source names counts for no migration of its own.
        (coming(HOST_MODEL, **EPYC), {f"{VENDOR}Intel": "true"}, FROM_INTEL, {"vendor": INTELS}),
        # A first migration takes the CPU of the node.
        (vmi(None, HOST_MODEL, nodeName="n1"), {}, NO_POD | FROM_INTEL, {"host-model": SKYLAKE_VMX, "vendor": INTELS}),
        # A later migration takes what its pod required.
        (
            MODELED,
            {},
            {"source_pod": OLD_POD, **FROM_INTEL},
            {"host-model": [f"{MODEL}Broadwell=true", f"{FEATURE}a=true"]},
        ),
        # Values are taken as they stand over the VM's own.
        (
            OWN_FEATURE,
            {},
            NO_POD | {"source_node": BY_HAND},
            {"host-model": [f"{MODEL}Mine=yes", f"{FEATURE}a=yes"], "vm": ["zone=a"]},
        ),
        # A node that names no model gives no features.
        (MODELED, {}, NO_POD | {"source_node": UNNAMED}, {"host-model": None, "vendor": INTELS}),
        # Features of the owner's own are not asked for twice: that its pod has one already means to KubeVirt that the
        # VM has migrated before, so that it adds no model.
        (OWN_VMX, {}, VMX_POD | FROM_INTEL, {"host-model": None, "kubevirt": [f"{FEATURE}vmx=true", f"no {OBSOLETE}"]}),
        # Other models carry nothing.
        (PLAIN, {}, {"source_pod": OLD_POD, **FROM_INTEL}, {"host-model": None, "kubevirt": [f"{WESTMERE}=true"]}),
        # An added vendor does not switch the guard off.
        (PLAIN, {f"{VENDOR}AMD": "true"}, FROM_INTEL, {"added": [f"{VENDOR}AMD=true"], "vendor": INTELS}),
        # A vendor of the VM's own is enough.
        (vmi({"nodeSelector": {f"{VENDOR}AMD": "true"}}, NAMED), {}, FROM_INTEL, {"vendor": None}),
        # Without the node the pod tells the vendor.
        (PLAIN, {}, INTEL_POD, {"vendor": INTELS}),
        # What a migration added says nothing of the vendor.
        (PLAIN, {}, INTEL_POD | {"source_pod_added": {f"{VENDOR}Intel": "true"}}, {"vendor": None}),
    ],
)
def test_labels_by_their_origin(vm: Vmi, added: dict[str, str] | None, options: Json, expected: Json) -> None:
    """A migration that adds a selector, or, without one, the receiving half of one from another cluster."""
    migration = RECEIVES if added is None else Migration.adding(added)
    requirements = target_pod_requirements(vm, migration, **options)
    found = asked(requirements)
    assert {origin: found.get(origin) for origin in expected} == expected
    assert added is not None or not any(isinstance(each, Elsewhere) for each in requirements)


def test_kvm_is_needed_unless_it_is_emulated_and_defaults_are_none() -> None:
    for configuration, needed in ((DEFAULTS, True), (settings(useEmulation=True), False)):
        found = target_pod_requirements(vmi(), configuration=configuration)
        assert any(isinstance(each, Kvm) for each in found) is needed
    said = target_pod_requirements(Vmi(), Migration(), source_pod=None, configuration=DEFAULTS)
    assert target_pod_requirements(Vmi()) == said == target_pod_requirements(Vmi(), source_pod=LauncherPod())


UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"


@pytest.mark.parametrize(
    ("tolerations", "tolerated"),
    [
        (None, ["NoExecute"]),
        ([{"key": "dedicated", "operator": "Exists"}], ["NoExecute"]),
        ([{"key": UNREACHABLE, "effect": "NoSchedule"}], ["NoSchedule", "NoExecute"]),
        # If the owner sets any part of a condition, the API server adds nothing.
        ([{"key": UNREACHABLE, "value": "x"}], []),
        ([{"key": UNREACHABLE, "value": "x", "effect": "NoExecute"}], []),
        ([{"key": NOT_READY, "value": "x", "effect": "NoExecute"}], ["NoExecute"]),
        ([{"operator": "Equal", "value": "x"}], []),
    ],
)
def test_the_api_server_tolerates_only_what_nobody_spoke_of(tolerations: Any, tolerated: list[str]) -> None:
    found = target_pod_requirements(vmi({"tolerations": tolerations}))
    (untainted,) = (each for each in found if isinstance(each, Untainted))
    lost = node(taints=[{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")])
    left = [f"has the taint {UNREACHABLE}:{each}" for each in ("NoExecute", "NoSchedule") if each not in tolerated]
    assert [reason.has for reason in untainted.reasons(lost)] == left


@pytest.mark.parametrize("terms", [[{}], [None], [{"matchExpressions": []}], []])
def test_an_empty_term_matches_by_what_kubevirt_appends(terms: list[Any]) -> None:
    shared = {"kubevirt.io/schedulable": "true", WESTMERE: "true"}
    cluster = [node("n2", shared), node("n3", {**shared, OBSOLETE: "true"})]

    def eligible(domain: Json) -> list[str]:
        requirements = target_pod_requirements(vmi({"affinity": affinity(*terms)}, domain))
        return [name for name, why in reasons_node_by_node(requirements, cluster).items() if not why]

    assert (eligible(HOST_MODEL), eligible(NAMED)) == (["n2"] if terms else [], [])


def test_what_a_feature_gate_asked_for_goes_with_it() -> None:
    """KubeVirt even takes such labels off the nodes, so that mirroring one would leave none."""
    vm = vmi({"architecture": "amd64"}, NAMED | {"features": {"hyperv": {"vpindex": {"enabled": True}}}})
    ours = ["kubevirt.io/vm-arch-amd64", "hyperv.node.kubevirt.io/vpindex"]
    source = pod(**dict.fromkeys((*ours, "kubevirt.io/cca"), "true"))
    gated = settings(featureGates=["CrossArchitectureVirtualization", "HypervStrictCheck"])
    for configuration, more in ((gated, [f"{key}=true" for key in ours]), (DEFAULTS, [f"{ARCH}=amd64"])):
        found = asked(target_pod_requirements(vm, source_pod=source, configuration=configuration))["kubevirt"]
        assert sorted(found) == sorted([f"{WESTMERE}=true", "kubevirt.io/cca=true", *more])


def test_a_recorded_target_pod_is_what_we_expect() -> None:
    """KubeVirt's own target pod: a host-model VM, which had cpu features in its selector, migrated to zone b."""
    capture = Path(__file__).parents[1] / "data" / "captures" / "pod-create-migration-target.json"
    target = json.loads(capture.read_text())["request"]["object"]["spec"]
    vm = vmi({"architecture": "amd64"}, HOST_MODEL, nodeName="n1", machine={"type": "q35"})

    requirements = target_pod_requirements(vm, Migration.adding({"zone": "b"}), source_pod=pod(), source_node=INTEL)

    ours = {str(each.expression) for each in requirements if isinstance(each, Label)}
    model = {f"{MODEL}Skylake=true", f"{MODEL}Skylake-Client-IBRS=true"}
    theirs = {f"{key}={value}" for key, value in target["nodeSelector"].items()}
    assert ours - model == theirs - model | {f"no {OBSOLETE}"}
    (near,) = (each for each in module.own_requirements(msgspec.convert(target, Placed)) if isinstance(each, OneOf))
    assert [str(term) for term in near.terms] == [f"no {OBSOLETE}"]
    (untainted,) = (each for each in requirements if isinstance(each, Untainted))
    assert [(each.key, each.operator, each.effect) for each in untainted.tolerations] == [
        (each["key"], each["operator"], each["effect"]) for each in target["tolerations"]
    ]


def test_the_present_node_is_left_and_what_is_not_known_is_a_gap() -> None:
    running = vmi(None, NAMED, nodeName="n1")
    assert Elsewhere("source node", "n1", "host-1") in target_pod_requirements(running, source_node=INTEL)
    assert Elsewhere("source node", "n1") in target_pod_requirements(running)
    assert Elsewhere("source node", "n1") in target_pod_requirements(running, source_node=node("n2"))
    assert not any(isinstance(each, Elsewhere) for each in target_pod_requirements(PLAIN))
    source = pod()
    assert requirement_gaps(PLAIN, Migration(), source, INTEL) == ()
    no_pod, no_node = requirement_gaps(PLAIN, Migration(), None, None)
    assert requirement_gaps(PLAIN, Migration(), None, INTEL) == (no_pod,)
    assert requirement_gaps(PLAIN, Migration(), source, None) == (no_node,)
    assert requirement_gaps(coming(NAMED), RECEIVES, None, None) == ()
    (no_source,) = requirement_gaps(PLAIN, RECEIVES, None, None)
    (no_cpu,) = requirement_gaps(coming(HOST_MODEL), RECEIVES, None, None)
    assert len({no_pod, no_node, no_source, no_cpu}) == 4


def keys_of_release(version: str, *gates: str, domain: Json | None = None, **spec: Any) -> set[str]:
    configuration = config_of(version, {"developerConfiguration": {"featureGates": list(gates)}})
    machine = vmi(spec, domain, nodeName="n1")
    found = target_pod_requirements(machine, source_node=INTEL, configuration=configuration)
    return {each.expression.key for each in found if isinstance(each, Label)}


@pytest.mark.parametrize(
    ("version", "kept"), [("1.6.3", False), ("1.6.4", True), ("1.7.0", False), ("1.7.1", True), ("1.9", True)]
)
def test_the_vendor_of_the_cpu(version: str, kept: bool) -> None:
    assert (f"{VENDOR}Intel" in keys_of_release(version)) is kept


@pytest.mark.parametrize(
    ("security", "label"), [("snp", "kubevirt.io/sev-snp"), ("snp", "kubevirt.io/sev"), ("tdx", "kubevirt.io/tdx")]
)
def test_nodes_for_snp_and_tdx(security: str, label: str) -> None:
    for version, needed in (("1.6", False), ("1.7", True)):
        assert (label in keys_of_release(version, domain={"launchSecurity": {security: {}}})) is needed


@given(vm=vmis, added=selectors, more=selectors, cluster=clusters)
def test_adding_a_selector_never_adds_a_node(vm: Vmi, added: Any, more: Any, cluster: Any) -> None:
    def eligible_with(selector: dict[str, str]) -> set[str]:
        emulated = settings(useEmulation=True)
        answer = target_pod_requirements(vm, Migration.adding(selector), configuration=emulated)
        return {name for name, why in reasons_node_by_node(answer, cluster).items() if not why}

    assert eligible_with({**more, **added}) <= eligible_with(added) <= eligible_with({})


@given(vm=vmis, added=selectors, cluster=selectors, source=st.none() | selectors, on=st.sampled_from([None, INTEL]))
def test_no_requirement_is_lost(vm: Vmi, added: Any, cluster: Any, source: Any, on: Any) -> None:
    options: Json = {
        "source_pod": None if source is None else pod(**source),
        "source_node": on,
        "configuration": settings(nodeSelectors=cluster),
    }
    requirements = target_pod_requirements(vm, Migration.adding(added), **options)

    labels = [each for each in requirements if isinstance(each, Label)]
    added_ones = [each.expression for each in labels if each.origin == "added"]
    assert added_ones == [Expression.equals(key, value) for key, value in added.items()]
    # The VM's selector lies over the cluster's.
    selector = (vm.spec.node_selector if vm.spec else None) or {}
    wanted = {Expression.equals(key, value) for key, value in {**cluster, **selector}.items()}
    assert wanted <= {each.expression for each in labels}
    has_affinity = vm.spec is not None and vm.spec.affinity is not None
    for kind, number in ((Untainted, 1), (Uncordoned, 1), (OneOf, has_affinity)):
        assert sum(isinstance(each, kind) for each in requirements) == number
    assert set(target_pod_requirements(vm, **options)) <= set(requirements)


def foreign(terms: list[Json], own: list[Json] | None = None, added: dict[str, str] | None = None) -> str:
    of_vm = {"affinity": affinity(*own)} if own is not None else {}
    spec = {"domain": {"cpu": {"model": "host-model"}}, **of_vm}
    vmi_of = msgspec.convert({"spec": spec}, Vmi)
    found = module.foreign_affinity(
        msgspec.convert({"spec": {"affinity": affinity(*terms)}}, LauncherPod), vmi_of, added or {}
    )
    return " | ".join(map(str, found.terms)) if found else ""


def test_affinity_of_the_present_pod_that_others_put_there() -> None:
    """What remains of each term: KubeVirt appends to them, as webhooks do, and terms are alternatives."""
    of_kubevirt, gpu, zone = absent(OBSOLETE), one("gpu", "x"), one("zone", "a")
    assert foreign([{"matchExpressions": [of_kubevirt]}]) == ""
    assert foreign([{"matchExpressions": [of_kubevirt, gpu]}]) == "gpu=x"
    assert foreign([{"matchExpressions": [zone, of_kubevirt, gpu]}], [{"matchExpressions": [zone]}]) == "gpu=x"
    # What a migration had added, which this server writes into every term.
    assert foreign([{"matchExpressions": [zone, of_kubevirt, gpu]}], added={"zone": "a", "gpu": "x"}) == ""
    # One alternative is as the VM has it, so nothing more is required; or the VM's affinity has changed since.
    assert (
        foreign([{"matchExpressions": [zone]}, {"matchExpressions": [gpu]}], [{"matchExpressions": [zone]}, {}]) == ""
    )
    assert foreign([{"matchExpressions": [gpu]}], [{"matchExpressions": [zone]}]) == ""
    assert foreign([{"matchExpressions": [gpu]}], [{}, {}]) == ""


def one(key: str, value: str) -> Json:
    return {"key": key, "operator": "In", "values": [value]}


def absent(key: str) -> Json:
    return {"key": key, "operator": "DoesNotExist"}


def test_rules_about_other_pods_that_others_put_there() -> None:
    def rules(pod_spec: Json, spec: Json | None = None) -> str:
        return module.foreign_pod_rules(
            msgspec.convert({"spec": pod_spec}, LauncherPod), msgspec.convert({"spec": spec or {}}, Vmi)
        )

    def required(kind: str, *labels: str) -> Json:
        term = {"labelSelector": {"matchLabels": dict.fromkeys(labels, "x")}, "topologyKey": HOST}
        return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    hard = {"topologySpreadConstraints": [{"topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}]}
    soft = {"topologySpreadConstraints": [{"topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"}]}
    together, apart = required("podAffinity", "app"), required("podAntiAffinity", "app")
    assert all(rules(each) and not rules(each, each) for each in (together, apart, hard))
    assert not any(rules(each) for each in ({}, soft, required("podAntiAffinity", "kubevirt.io/created-by")))
    assert rules(required("podAntiAffinity", "kubevirt.io/created-by", "app"))
