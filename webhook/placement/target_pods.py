"""What the target pod of a migration requires of nodes, as a list of requirements.

KubeVirt merges these into one mapping, in which a key that the migration adds loses against the VM's own silently (and
a ``cpu-vendor`` key wins against KubeVirt's own rule). Here each one is kept, with its origin: a node must have them
all. Only what KubeVirt lays over each other for every pod of a VM is one layer here too (pkg/virt-controller,
createTargetPod), with the labels that it requires by itself (services/nodeselectorrenderer.go).

Kubernetes' own admission plugins add to the node selector and the tolerations of every pod. RuntimeClass merges the
class's ``scheduling`` into pods that name it, as launcher pods do where KubeVirt's configuration has a
``defaultRuntimeClass``. PodNodeSelector, where the API server has it enabled, merges an annotation of the namespace.
Both reject a pod whose own node selector has another value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.admission.step_budget import spend
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, View
from webhook.k8s.types.scheduling import Affinity, Placed, PodAffinity, Toleration
from webhook.k8s.types.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN, Expression, Term
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.kubevirt.releases.capabilities import REQUIRES_CPU_VENDOR, SELECTS_SNP_AND_TDX_NODES
from webhook.kubevirt.releases.release import Release
from webhook.placement import machines, nodes
from webhook.placement.additions import NO_ADDITIONS, NO_POD_ADDITIONS, Additions, PodAdditions
from webhook.placement.groups import GroupPlacement
from webhook.placement.nodes import HOSTNAME, TRUE, Node, labels_starting_with
from webhook.placement.requirements import (
    Allocatable,
    Elsewhere,
    Kvm,
    Label,
    OneOf,
    Origin,
    Requirement,
    Requirements,
    Uncordoned,
    Untainted,
)

_HYPERV_LABELS: Final = (
    *("vpindex", "runtime", "reset", "synic", "synictimer"),
    *("frequencies", "reenlightenment", "tlbflush", "ipi"),
)


def is_emulated(vmi: machines.Vmi, configuration: ClusterConfig) -> bool:
    """Whether nodes of any architecture will do; then KubeVirt drops that label, even if the VM's owner requires it."""
    named = vmi.spec is not None and bool(vmi.spec.architecture)
    return named and configuration.is_gate_open("CrossArchitectureVirtualization")


def generated_labels(vmi: machines.Vmi, configuration: ClusterConfig, source: Mapping[str, str]) -> list[str]:
    """The labels that must be ``true``; they overwrite the VM's own.

    ``source`` is the node selector of the VM's present pod, which distinguishes older and newer releases of KubeVirt.
    """
    domain = vmi.domain
    cpu, security, machine = domain.cpu or machines.NO_CPU, domain.launch_security, vmi.machine_type
    hyperv = (domain.features.hyperv if domain.features else None) or {}
    labels = []
    if cpu.dedicated_cpu_placement:
        older = nodes.CPU_MANAGER_BEFORE in source and nodes.CPU_MANAGER not in source
        labels.append(nodes.CPU_MANAGER_BEFORE if older else nodes.CPU_MANAGER)
    if hyperv and configuration.is_gate_open("HypervStrictCheck"):
        labels += _hyperv(hyperv)
    if cpu.model:
        if cpu.model not in {machines.HOST_MODEL, "host-passthrough"}:
            labels.append(nodes.CPU_MODEL + cpu.model)
        if cpu.features:
            labels += [nodes.CPU_FEATURE + name for name in cpu.features_with("", "require")]
    if machine:
        labels.append(nodes.MACHINE_TYPE + machine)
    hints = vmi.status.topology_hints if vmi.status else None
    if hints and (frequency := _tsc_frequency(cpu, hyperv, hints.tsc_frequency)):
        labels.append(f"{nodes.TSC_FREQUENCY}{frequency}")
    if cpu.realtime is not None:
        labels.append("kubevirt.io/realtime")
    if security:
        labels += _launch_security(security, _guest(vmi), configuration.release)
    if is_emulated(vmi, configuration):
        labels.append(nodes.VM_ARCHITECTURE + _guest(vmi))
    return labels


def forbidden_labels(vmi: machines.Vmi) -> list[str]:
    """The labels that a node must not have; KubeVirt appends them to every term of the node affinity."""
    cpu = vmi.cpu
    labels = [nodes.OBSOLETE_HOST_MODEL] if cpu.model in {None, "", machines.HOST_MODEL} else []
    if cpu.features:
        labels += [nodes.CPU_FEATURE + name for name in cpu.features_with("forbid")]
    return labels


def host_model_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that other nodes need to run the CPU model of a node, sorted.

    Empty where the node's labels do not name its model: KubeVirt then loses the features too.
    """
    models = labels_starting_with(labels, nodes.HOST_MODEL_CPU, nodes.CPU_MODEL_MIGRATION)
    return models | labels_starting_with(labels, nodes.HOST_MODEL_FEATURES, nodes.CPU_FEATURE) if models else {}


def lacks_host_model(vmi: machines.Vmi, source_pod: machines.LauncherPod | None, source_node: Node | None) -> bool:
    """Whether nothing says which CPU a host-model VM has; virt-controller then creates no target pod.

    It looks at the present pod, and for one that no migration has created at the labels of its node
    (``prepareNodeSelectorForHostCpuModel``). Where either is not known, neither is this.
    """
    if source_pod is None or source_node is None or vmi.cpu.model != machines.HOST_MODEL:
        return False
    return not inherited_cpu(vmi, source_pod.node_selector, source_node.labels)


def is_sticky_label(key: str) -> bool:
    """Whether KubeVirt copies this key of a host-model VM's pod into the pods of all later migrations."""
    return nodes.CPU_FEATURE in key or nodes.CPU_MODEL_MIGRATION in key


def _guest(vmi: machines.Vmi) -> str:
    return (vmi.spec.architecture if vmi.spec else None) or ""


def _hyperv(features: Mapping[str, machines.FeatureState | None]) -> Iterator[str]:
    for name in _HYPERV_LABELS:
        state = features.get(name)
        if state and state.enabled:
            yield nodes.HYPERV + name
    evmcs = features.get("evmcs")
    if evmcs and evmcs.enabled is not False:
        yield f"{nodes.CPU_VENDOR}Intel"


def _tsc_frequency(cpu: machines.Cpu, hyperv: Mapping[str, machines.FeatureState | None], frequency: int | None) -> int:
    """In Hz; 0: no node must have a certain one."""
    return max(frequency or 0, 0) if _is_timed(cpu, hyperv) else 0


def needs_tsc_frequency(vmi: machines.Vmi) -> bool:
    """Whether KubeVirt chooses a TSC frequency for the VM, which all its nodes must then have."""
    features = vmi.domain.features
    return _is_timed(vmi.cpu, (features.hyperv if features else None) or {})


def _is_timed(cpu: machines.Cpu, hyperv: Mapping[str, machines.FeatureState | None]) -> bool:
    reenlightenment = hyperv.get("reenlightenment")
    required = "invtsc" in cpu.features_with("require", "force")
    return required or bool(reenlightenment and reenlightenment.enabled)


def _launch_security(security: machines.LaunchSecurity, guest: str, release: Release) -> Iterator[str]:
    newer = release.has(SELECTS_SNP_AND_TDX_NODES)
    has_snp, has_tdx = newer and security.snp is not None, newer and security.tdx is not None
    if security.sev or has_snp:
        yield "kubevirt.io/sev"
    if security.sev and security.sev.policy and security.sev.policy.encrypted_state:
        yield "kubevirt.io/sev-es"
    if has_snp:
        yield "kubevirt.io/sev-snp"
    if guest == "s390x":
        yield "kubevirt.io/s390-pv"
    if has_tdx:
        yield "kubevirt.io/tdx"


NODE_SELECTOR_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/node-selector"

_is_kubevirts: Final = re.compile(r"(?:[^/]*\.)?kubevirt\.io(?:/|\Z)").match
# In a message; a pod can have thousands.
_MAX_LISTED: Final = 5


class _RuntimeClassScheduling(View, frozen=True):
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration | None] | None = None


class RuntimeClass(Object, frozen=True):
    """A RuntimeClass (node.k8s.io/v1), whose admission plugin merges its ``scheduling`` into pods."""

    scheduling: _RuntimeClassScheduling | None = None

    @property
    def labels(self) -> tuple[Label, ...]:
        """What it requires of nodes."""
        selector = (self.scheduling.node_selector if self.scheduling else None) or {}
        return tuple(_equals(Origin.RUNTIME_CLASS, selector))

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        """What it tolerates of nodes."""
        return _read_tolerations(self.scheduling.tolerations if self.scheduling else None)


class _DeviceClassSpec(View, frozen=True):
    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True):
    """A DeviceClass (resource.k8s.io): a node may serve its extended resource that has none of it allocatable."""

    spec: _DeviceClassSpec | None = None

    @property
    def provides(self) -> frozenset[str]:
        """The extended resources that its devices are requested by: its own one, and the one of every class."""
        named = (self.spec.extended_resource_name if self.spec else None) or ""
        return frozenset({named, f"deviceclass.resource.kubernetes.io/{self.meta.name}"} - {""})


DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, DeviceClass)
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, RuntimeClass)


def unexplained_labels(
    pod: machines.LauncherPod,
    vmi: machines.Vmi,
    configuration: ClusterConfig,
    added: Mapping[str, str],
    labels: tuple[Label, ...] = (),
    additions: PodAdditions = NO_POD_ADDITIONS,
) -> dict[str, str]:
    """What the present pod's node selector has from elsewhere than KubeVirt, its settings, the VM and a migration.

    ``added`` is what the migration added that created the pod, ``labels`` is what the pod's RuntimeClass requires, and
    ``additions`` is what policies can have added.
    """
    spec = vmi.spec or machines.PlacedVmiSpec()
    expected: dict[str, str | None] = {**added, **configuration.node_selectors, **(spec.node_selector or {})}
    expected |= {label.expression.key: label.expression.values[0] for label in labels}
    for label in additions.selector:
        expected.setdefault(label.expression.key, label.expression.values[0])
    expected |= {key: pod.node_selector.get(key) for key in (nodes.ARCHITECTURE, nodes.CPU_MANAGER_BEFORE)}
    left = [(key, value) for key, value in pod.node_selector.items() if expected.get(key) != value]
    return {key: value for key, value in left if not _is_kubevirts(key)}


def foreign_affinity(
    pod: machines.LauncherPod, vmi: machines.Vmi, added: Mapping[str, str], additions: PodAdditions = NO_POD_ADDITIONS
) -> OneOf | None:
    """The required node affinity that the present pod has from elsewhere than the VM, KubeVirt and a migration.

    Mutating webhooks add it (kubevirt-aie-webhook, for example), to every term, since terms are alternatives.

    Args:
        pod: the present pod.
        vmi: the VM.
        added: what the migration added that created the pod: `webhook.policies.migration.pods` holds the pod to it.
        additions: what policies can have added to the pod.

    Returns:
        What remains of each term; None where a term has nothing more, so that nothing more is required, or where the
        VM's own affinity has changed since, so that it is not known what was added.
    """
    required = pod.spec.required_affinity if pod.spec else None
    if required is None:
        return None
    own = (vmi.spec or _NO_SPEC).required_affinity
    spend(_EXPRESSION_STEPS * (required.size + (own.size if own else 0)), "expressions of the node affinity")
    explained = {Expression(key, DOES_NOT_EXIST) for key in forbidden_labels(vmi)}
    explained |= {Expression.equals(key, value) for key, value in added.items()}
    explained |= {label.expression for label in additions.required}
    was_target = pod.meta.label(machines.JOB_UID) is not None
    shown = required.terms()
    # Whoever adds to the terms keeps their order.
    mine = own.terms() if own else (Term(),) * len(shown)
    if len(mine) != len(shown):
        return None
    terms: list[Term] = []
    for term, base in zip(shown, mine, strict=True):
        known = explained.union(base.expressions)
        more = tuple(
            each
            for each in term.expressions
            # A limit of migrations to a node left nodes out for this one migration (`webhook.policies.migration.pods`).
            if each not in known and not (was_target and (each.key, each.operator) == (HOSTNAME, NOT_IN))
        )
        fields = tuple(each for each in term.fields if each not in base.fields)
        if not (more or fields) or not set(base.expressions) <= set(term.expressions):
            return None
        terms.append(Term.of(more, fields, "the current pod's node affinity"))
    return OneOf(Origin.AFFINITY, tuple(dict.fromkeys(terms))) if terms else None


def foreign_pod_rules(pod: machines.LauncherPod, vmi: machines.Vmi, group: GroupPlacement | None = None) -> str:
    """The rules about other pods that the present pod has and the VM has not, a noun phrase; empty: none.

    Those of its ``group`` are known. KubeVirt itself keeps a target pod apart from the pod that the VM leaves, and VMs
    with the same reservation.
    """
    spec, own = pod.spec or machines.LauncherPodSpec(), vmi.spec or _NO_SPEC
    affinity, mine = spec.affinity or Affinity(), own.affinity or Affinity()
    rules = []
    near = any(not _is_groups_rule(each, group) for each in _required(affinity.pod_affinity))
    if near and not _required(mine.pod_affinity):
        rules.append("a required pod affinity")
    apart = any(
        not (_is_kubevirts_rule(each) or _is_groups_rule(each, group)) for each in _required(affinity.pod_anti_affinity)
    )
    if apart and not _required(mine.pod_anti_affinity):
        rules.append("a required pod anti-affinity")
    constraints = (each for each in spec.topology_spread_constraints or () if each)
    if any(each.when_unsatisfiable != "ScheduleAnyway" for each in constraints) and not own.topology_spread_constraints:
        rules.append("hard topology spread constraints")
    return " and ".join(rules)


def _required(affinity: PodAffinity | None) -> Sequence[Any]:
    return (affinity.required if affinity else None) or ()


def _is_kubevirts_rule(term: Any) -> bool:
    """Whether a term of pod anti-affinity selects by labels of KubeVirt's alone."""
    selector = term.get("labelSelector") if isinstance(term, dict) else None
    if not isinstance(selector, dict):
        return False
    labels, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    keys = [*labels, *(each.get("key", "") for each in expressions if isinstance(each, dict))]
    return bool(keys) and all(isinstance(key, str) and _is_kubevirts(key) for key in keys)


def _is_groups_rule(term: Any, group: GroupPlacement | None) -> bool:
    """Whether a term of affinity between pods selects the pods of a group."""
    match term:
        case {"labelSelector": {"matchLabels": dict(labels)}}:
            return group is not None and labels == group.selector
    return False


def namespace_labels(annotation: str | None, shown: Mapping[str, str]) -> tuple[Label, ...]:
    """What a namespace's annotation ``scheduler.alpha.kubernetes.io/node-selector`` requires.

    ``shown`` are labels that only this plugin can have put into the present pod: proof that it is switched on.
    """
    pairs = (pair.partition("=") for pair in (annotation or "").split(","))
    selector = {key.strip(): value.strip() for key, _, value in pairs}
    return tuple(_equals(Origin.NAMESPACE, {key: value for key, value in selector.items() if shown.get(key) == value}))


def unexplained_labels_gap(left: Mapping[str, str]) -> str:
    """That a node selector is not taken into account, a clause."""
    listed = ", ".join(f"{key}={value}" for key, value in sorted(left.items())[:_MAX_LISTED])
    more = f" and {len(left) - _MAX_LISTED} more" if len(left) > _MAX_LISTED else ""
    return (
        f"the current pod's node selector requires {listed}{more}, which neither the VM, KubeVirt, a RuntimeClass, nor"
        " the namespace requires now"
    )


def _equals(origin: str, selector: Mapping[str, str]) -> Iterator[Label]:
    return (Label(origin, Expression.equals(key, value)) for key, value in selector.items())


# The API server's own admission tolerates them for pods that say nothing of them (DefaultTolerationSeconds).
_TOLERATED_BY_DEFAULT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_BY_DEFAULT = {key: Toleration(key, "Exists", None, nodes.NO_EXECUTE) for key in _TOLERATED_BY_DEFAULT}
_NO_SPEC = machines.PlacedVmiSpec()
# What each takes on the way from an object to the answer, beside its evaluation.
_LABEL_STEPS = 3
_EXPRESSION_STEPS = 2
# What KubeVirt computes again for every pod, so the present pod's say nothing: a feature gate may have been closed.
_RECOMPUTED = (
    *(nodes.CPU_FEATURE, nodes.CPU_MODEL, nodes.CPU_MODEL_MIGRATION, nodes.CPU_VENDOR),
    *(nodes.HYPERV, nodes.MACHINE_TYPE, nodes.TSC_FREQUENCY, nodes.VM_ARCHITECTURE, SCHEDULABLE),
)


def own_requirements(placed: Placed) -> Iterator[Requirement]:
    """What the spec of any pod requires of nodes, as kube-scheduler reads it; for a VMI, what its owner requires."""
    yield from _equals(Origin.VM, placed.node_selector or {})
    yield from _affinity_requirements(placed)
    yield from _taint_requirements(placed)


def target_pod_requirements(  # noqa: PLR0913 - what a target pod is made from, each with a default
    vmi: machines.Vmi,
    migration: machines.Migration = machines.NO_MIGRATION,
    *,
    source_pod: machines.LauncherPod | None = None,
    source_pod_added: Mapping[str, str] | None = None,
    source_node: Node | None = None,
    configuration: ClusterConfig = DEFAULTS,
    requests: Mapping[str, int] | None = None,
    admitted: Iterable[Requirement] = (),
    tolerations: tuple[Toleration, ...] = (),
    additions: Additions = NO_ADDITIONS,
) -> Requirements:
    """All that the target pod of a migration requires of a node, what the migration adds first.

    Args:
        vmi: the VMI that migrates.
        migration: the migration. One to another cluster creates no pod here, so nothing is required.
        source_pod: the launcher pod that the VM runs in; None: what follows from the rest, see `requirement_gaps`.
        source_pod_added: what the migration had added by which that pod was made, if it was and is still known.
        source_node: where the VM runs.
        configuration: the cluster's configuration of KubeVirt.
        requests: what the target pod requests (`demand`), by resource.
        admitted: what admission plugins add to the node selector of every pod.
        tolerations: what they add to its tolerations, beside those that the present pod shows.
        additions: what policies of this server add to the pods of the VM.
    """
    receives = migration.receives
    pod = source_pod.node_selector if source_pod and not receives else {}
    made = {key: value for key, value in pod.items() if key not in source_pod_added} if source_pod_added else pod
    spec, added = vmi.spec or _NO_SPEC, migration.added_selector
    # Of the node that the VM comes from; from another cluster only those that say what its CPU is.
    source = (vmi.source_state.node_selectors or {}) if receives else {}
    labels: Mapping[str, str] = source if receives else source_node.labels if source_node else {}
    label_count = len(pod) + len(added) + len(spec.node_selector or ()) + len(vmi.cpu.features or ()) + len(source)
    # An upper bound: each one is built, compared and looked up.
    spend(_LABEL_STEPS * label_count, "labels that are required of nodes")
    carried = inherited_cpu(vmi, pod, labels)
    layer = _layer(vmi, spec, configuration, pod)
    if carried:
        # Else KubeVirt overwrites it.
        layer = {key: each for key, each in layer.items() if carried.get(key, each[0]) == each[0]}
    selector = {**layer, **carried}
    required: list[Requirement] = [Label(Origin.ADDED, Expression(key, IN, (value,))) for key, value in added.items()]
    required += [Label(origin, Expression(key, IN, (value,))) for key, (value, origin) in layer.items()]
    # A feature that is named again forbids nothing more.
    absent = tuple([Expression(key, DOES_NOT_EXIST) for key in dict.fromkeys(forbidden_labels(vmi))])
    required += [Label(Origin.KUBEVIRT, expression) for expression in absent]
    if carried:
        left = [(key, value) for key, value in carried.items() if key not in layer]
        required += [Label(Origin.HOST_MODEL, Expression(key, IN, (value,))) for key, value in left]
    if configuration.release.has(REQUIRES_CPU_VENDOR):
        required += _vendor(selector, labels or made)
    if made:
        required += _mirrored_labels(selector, made)
    required += _affinity_requirements(spec, absent)
    required += _topology_labels(spec)
    required += _exclude_source(vmi, source_node, labels, receives=receives)
    # The present pod's tolerations are the VM's and those that admission plugins add: a RuntimeClass's, a namespace's.
    shown = _read_tolerations(source_pod.spec.tolerations) if source_pod and source_pod.spec else ()
    shown = tuple([each for each in shown if each not in additions.present.tolerations])
    admitted_tolerations = (*shown, *tolerations, *additions.next.tolerations)
    required += _taint_requirements(spec, tolerated=_TOLERATED_BY_DEFAULT, admitted=admitted_tolerations)
    required += admitted
    required += _resource_requirements(requests or {}, configuration)
    return _with_additions(required, additions.next)


def _with_additions(required: Sequence[Requirement], additions: PodAdditions) -> Requirements:
    """The requirements with what policies add; a label in the pod's node selector gives way to any other of its key."""
    labels = (each for each in required if isinstance(each, Label))
    selected = {each.expression.key for each in labels if each.expression.operator == IN}
    added = [each for each in additions.selector if each.expression.key not in selected]
    named = [_name_source(each, additions.sources) for each in required] if additions.sources else required
    return (*named, *added, *additions.required)


def _name_source(required: Requirement, sources: Mapping[str, str]) -> Requirement:
    """The requirement, by a policy's value where that is why KubeVirt requires it."""
    if not isinstance(required, Label) or required.origin != Origin.KUBEVIRT:
        return required
    source = sources.get(required.expression.key)
    return Label(Origin.DEFAULT, required.expression, source) if source else required


def requirement_gaps(
    vmi: machines.Vmi, migration: machines.Migration, source_pod: machines.LauncherPod | None, source_node: Node | None
) -> tuple[str, ...]:
    """What `target_pod_requirements` could not take into account, clauses: more nodes may look eligible than are."""
    if migration.receives:
        if not vmi.source_state.node:
            return ("the VM's source node is not known yet",)
        if vmi.cpu.model == machines.HOST_MODEL and not host_model_labels(vmi.source_state.node_selectors or {}):
            return ("the VM's current CPU is not known, and KubeVirt creates no target pod without it",)
        return ()
    unknown = []
    if source_pod is None:
        unknown.append("the VM's current pod is not known, and neither are the requirements that only the pod shows")
    if source_node is None:
        unknown.append("the VM's current node is not known, and neither are its hostname and CPU vendor")
    return tuple(unknown)


def _layer(
    vmi: machines.Vmi, spec: machines.PlacedVmiSpec, configuration: ClusterConfig, pod: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """What is one mapping in every pod of the VM, later entries over earlier ones: value and origin by key."""
    layer = {SCHEDULABLE: (TRUE, Origin.SCHEDULABLE)}
    keys = generated_labels(vmi, configuration, pod)
    guest = _guest(vmi).lower()
    for selector, origin in (
        # The guest's architecture, which the cluster's and the VM's own selectors may overwrite.
        ({nodes.ARCHITECTURE: guest} if guest else {}, Origin.KUBEVIRT),
        (configuration.node_selectors, Origin.CLUSTER),
        (spec.node_selector, Origin.VM),
        (dict.fromkeys(keys, TRUE), Origin.KUBEVIRT),
    ):
        for key, value in selector.items() if selector else ():
            # An equal value stays the earlier one's, whose wish it was first.
            if key not in layer or layer[key][0] != value:
                layer[key] = (value, origin)
    if is_emulated(vmi, configuration):
        layer.pop(nodes.ARCHITECTURE, None)
    return layer


def _affinity_requirements(placed: Placed, absent: tuple[Expression, ...] = ()) -> Iterator[Requirement]:
    """Required node affinity, with what KubeVirt appends to every term as being absent.

    A term that was empty, and so matched nothing, then matches by that.
    """
    required = placed.required_affinity
    if required is None:
        return
    spend(_EXPRESSION_STEPS * required.size, "expressions of the node affinity")
    empty = Term(absent)
    terms = (term if term.expressions or term.fields else empty for term in required.terms())
    # Equal alternatives are one; malformed ones differ by their place, which messages name.
    yield OneOf(Origin.AFFINITY, tuple(dict.fromkeys(terms)))


def _topology_labels(spec: machines.PlacedVmiSpec) -> Iterator[Label]:
    """The labels without which a node is in no topology domain, so that kube-scheduler takes it for no such pod.

    Which domain fits depends on other pods (plugins PodTopologySpread and InterPodAffinity), but not that there has to
    be one. Pod anti-affinity is met where there is none.
    """
    constraints = (each for each in spec.topology_spread_constraints or () if isinstance(each, dict))
    hard = (each.get("topologyKey") for each in constraints if each.get("whenUnsatisfiable") == "DoNotSchedule")
    together = _required(spec.affinity.pod_affinity if spec.affinity else None)
    affine = (each.get("topologyKey") for each in together if isinstance(each, dict))
    for origin, keys in ((Origin.SPREAD, [*hard]), (Origin.POD_AFFINITY, [*affine])):
        spend(len(keys), "topology keys")
        for key in dict.fromkeys(key for key in keys if isinstance(key, str) and key):
            yield Label(origin, Expression(key, EXISTS))


def _resource_requirements(requests: Mapping[str, int], configuration: ClusterConfig) -> list[Requirement]:
    """What the target pod requests. Whether it requests the device of KVM, KubeVirt's settings of now decide."""
    requirements: list[Requirement] = [
        Allocatable(Origin.RESOURCES, name, amount) for name, amount in requests.items() if name != nodes.KVM_DEVICE
    ]
    if configuration.needs_kvm:
        kvm = requests.get(nodes.KVM_DEVICE)
        requirements.append(Allocatable(Origin.KVM, nodes.KVM_DEVICE, kvm) if kvm else Kvm(Origin.KVM))
    return requirements


def _read_tolerations(tolerations: Iterable[Toleration | None] | None) -> tuple[Toleration, ...]:
    return tuple([toleration or Toleration() for toleration in tolerations]) if tolerations else ()


def _taint_requirements(
    placed: Placed, *, tolerated: tuple[str, ...] = (), admitted: tuple[Toleration, ...] = ()
) -> tuple[Requirement, ...]:
    """The requirements on taints and cordoned nodes; Kubernetes tolerates NoExecute of the ``tolerated`` keys."""
    tolerations = tuple(dict.fromkeys((*_read_tolerations(placed.tolerations), *admitted)))
    if tolerated and not tolerations:
        tolerations = tuple(map(_BY_DEFAULT.__getitem__, tolerated))
    elif tolerated:
        keys = {each.key or "" for each in tolerations if each.effect in {None, "", nodes.NO_EXECUTE}}
        tolerations += tuple([_BY_DEFAULT[key] for key in tolerated if "" not in keys and key not in keys])
    return (Untainted(Origin.TAINTS, tolerations), Uncordoned(Origin.CORDONED, tolerations))


def inherited_cpu(vmi: machines.Vmi, pod: Mapping[str, str], labels: Mapping[str, str]) -> Mapping[str, str]:
    """The CPU that a host-model VM took over from where it started.

    If its present pod requires any CPU feature or model, KubeVirt takes those: it has migrated before. (The features
    that its owner requires count as such too: a quirk of KubeVirt's, kept.) Else, and from another cluster, it is the
    CPU of the node that it comes from.
    """
    if vmi.cpu.model != machines.HOST_MODEL:
        return {}
    return {key: value for key, value in pod.items() if is_sticky_label(key)} or host_model_labels(labels)


def _vendor(selector: Mapping[str, object], labels: Mapping[str, str]) -> list[Requirement]:
    """The CPU's vendor stays. A key that the migration adds does not switch this off, as it does in KubeVirt."""
    vendors = labels_starting_with(labels, nodes.CPU_VENDOR, nodes.CPU_VENDOR)
    if not vendors or [key for key in selector if key.startswith(nodes.CPU_VENDOR)]:
        return []
    return [Label(Origin.VENDOR, Expression(key, IN, (TRUE,))) for key in vendors]


def _mirrored_labels(selector: Mapping[str, object], made: Mapping[str, str]) -> Iterator[Label]:
    """The labels of the present pod that KubeVirt required by rules which are unknown here: those of future versions.

    KubeVirt's own labels are all ``true``. Another value came from a selector of the VM or the cluster, which may have
    changed since.
    """
    for key, value in sorted(made.items()):
        if value == TRUE and key not in selector and _is_kubevirts(key) and not key.startswith(_RECOMPUTED):
            yield Label(Origin.KUBEVIRT, Expression.equals(key, value))


def _exclude_source(
    vmi: machines.Vmi, node: Node | None, labels: Mapping[str, str], *, receives: bool
) -> tuple[Requirement, ...]:
    if receives:
        source = vmi.source_state.node
        # KubeVirt excludes it in the first term of the node affinity only.
        return (Label(Origin.SOURCE_NODE, Expression(HOSTNAME, NOT_IN, (source,))),) if source else ()
    if not (name := vmi.node_name):
        return ()
    hostname = labels.get(HOSTNAME, "") if node and node.name == name else ""
    return (Elsewhere(Origin.SOURCE_NODE, name, hostname),)
