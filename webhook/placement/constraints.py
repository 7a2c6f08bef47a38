"""All that the target pod of a migration requires of nodes, as a list.

KubeVirt merges these into one mapping, in which a key that the migration adds loses against the VM's own silently (and
a ``cpu-vendor`` key wins against KubeVirt's own rule). Here each one is kept, with its origin: a node must have them
all. Only what KubeVirt lays over each other for every pod of a VM, its defaults, the cluster's settings, the VM's
selector and the labels that it generates, is one layer here too (pkg/virt-controller, createTargetPod).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from webhook.admission.work import spend
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.releases.capabilities import REQUIRES_CPU_VENDOR
from webhook.placement import generated, requirement, resources
from webhook.placement.affinity import Placed, Toleration
from webhook.placement.allocation import Allocatable
from webhook.placement.expression import DOES_NOT_EXIST, IN, NOT_IN, Expression, Term
from webhook.placement.labels import starting_with
from webhook.placement.launcher_pods import LauncherPod
from webhook.placement.migrations import NO_MIGRATION, Migration
from webhook.placement.node import HOSTNAME, NO_EXECUTE, Node
from webhook.placement.requirement import Elsewhere, Kvm, Label, OneOf, Requirement, Requirements, Uncordoned, Untainted
from webhook.placement.syntax import SCHEDULABLE
from webhook.placement.vmis import HOST_MODEL, PlacedVmiSpec, Vmi

# The API server's own admission tolerates them for pods that say nothing of them (DefaultTolerationSeconds).
_TOLERATED_BY_DEFAULT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_BY_DEFAULT = {key: Toleration(key, "Exists", None, NO_EXECUTE) for key in _TOLERATED_BY_DEFAULT}
_NO_SPEC = PlacedVmiSpec()
# What each takes on the way from an object to the answer, beside its evaluation.
_LABEL_STEPS = 3
_EXPRESSION_STEPS = 2
# What KubeVirt computes anew for every pod, so that the present pod's say nothing: a feature gate may have been closed.
_RECOMPUTED = (
    *(generated.CPU_FEATURE, generated.CPU_MODEL, generated.CPU_MODEL_MIGRATION, generated.CPU_VENDOR),
    *(generated.HYPERV, generated.MACHINE_TYPE, generated.TSC_FREQUENCY, generated.VM_ARCHITECTURE, SCHEDULABLE),
)


def own(placed: Placed) -> Iterator[Requirement]:
    """What the spec of any pod requires of nodes, as kube-scheduler reads it; for a VMI, what its owner requires."""
    selector = placed.node_selector or {}
    yield from (Label(requirement.VM, Expression.equals(key, value)) for key, value in selector.items())
    yield from _affinity(placed)
    yield from _taint_requirements(placed)


def of(  # noqa: PLR0913 - what a target pod is made from, each with a default
    vmi: Vmi,
    migration: Migration = NO_MIGRATION,
    *,
    source_pod: LauncherPod | None = None,
    source_pod_added: Mapping[str, str] | None = None,
    source_node: Node | None = None,
    configuration: ClusterConfig = DEFAULTS,
    requests: Mapping[str, int] | None = None,
    admitted: Iterable[Requirement] = (),
    tolerations: tuple[Toleration, ...] = (),
) -> Requirements:
    """All that the target pod of a migration requires of a node, what the migration adds first.

    Args:
        vmi: the VMI that migrates.
        migration: the migration. One to another cluster creates no pod here, so nothing is required.
        source_pod: the launcher pod that the VM runs in; None: what follows from the rest alone, see `gaps`.
        source_pod_added: what the migration had added by which that pod was made, if it was and is still known.
        source_node: where the VM runs.
        configuration: the cluster's configuration of KubeVirt.
        requests: what the target pod requests (`demand`), by resource.
        admitted: what admission plugins add to the node selector of every pod.
        tolerations: what they add to its tolerations, beside those that the present pod shows.
    """
    receives = migration.receives
    pod = source_pod.node_selector if source_pod and not receives else {}
    made = {key: value for key, value in pod.items() if key not in source_pod_added} if source_pod_added else pod
    spec, added = vmi.spec or _NO_SPEC, migration.added_selector
    # Of the node that the VM comes from; from another cluster only those that say what its CPU is.
    source = (vmi.source_state.node_selectors or {}) if receives else {}
    labels: Mapping[str, str] = source if receives else source_node.labels if source_node else {}
    asked = len(pod) + len(added) + len(spec.node_selector or ()) + len(vmi.cpu.features or ()) + len(source)
    # An upper bound: each one is built, compared and looked up.
    spend(_LABEL_STEPS * asked, "labels that are required of nodes")
    carried = _host_model(vmi, pod, labels)
    layer = _layer(vmi, spec, configuration, pod)
    if carried:
        # Else KubeVirt overwrites it.
        layer = {key: each for key, each in layer.items() if carried.get(key, each[0]) == each[0]}
    known = {**layer, **carried}
    required: list[Requirement] = [
        Label(requirement.ADDED, Expression(key, IN, (value,))) for key, value in added.items()
    ]
    required += [Label(origin, Expression(key, IN, (value,))) for key, (value, origin) in layer.items()]
    # A feature that is named again forbids nothing more.
    absent = tuple([Expression(key, DOES_NOT_EXIST) for key in dict.fromkeys(generated.forbidden_labels(vmi))])
    required += [Label(requirement.KUBEVIRT, expression) for expression in absent]
    if carried:
        left = [(key, value) for key, value in carried.items() if key not in layer]
        required += [Label(requirement.HOST_MODEL, Expression(key, IN, (value,))) for key, value in left]
    if configuration.release.has(REQUIRES_CPU_VENDOR):
        required += _vendor(known, labels or made)
    if made:
        required += _mirrored_labels(known, made)
    required += _affinity(spec, absent)
    required += _exclude_source(vmi, source_node, labels, receives=receives)
    required += _taint_requirements(
        spec, tolerated=_TOLERATED_BY_DEFAULT, admitted=(*_tolerations(source_pod), *tolerations)
    )
    required += admitted
    required += _resources(requests or {}, configuration)
    return tuple(required)


def gaps(vmi: Vmi, migration: Migration, source_pod: LauncherPod | None, source_node: Node | None) -> tuple[str, ...]:
    """What `of` could not take into account, clauses: more nodes may look eligible than are."""
    if migration.receives:
        if not vmi.source_state.node:
            return ("the VM's source node is not known yet",)
        if vmi.cpu.model == HOST_MODEL and not generated.host_model(vmi.source_state.node_selectors or {}):
            return ("the VM's current CPU is not known, and KubeVirt creates no target pod without it",)
        return ()
    unknown = []
    if source_pod is None:
        unknown.append("the VM's current pod is not known, and neither are the requirements that only the pod shows")
    if source_node is None:
        unknown.append("the VM's current node is not known, and neither are its hostname and CPU vendor")
    return tuple(unknown)


def _layer(
    vmi: Vmi, spec: PlacedVmiSpec, configuration: ClusterConfig, pod: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """What is one mapping in every pod of the VM, later entries over earlier ones: value and origin by key."""
    layer = {SCHEDULABLE: (generated.TRUE, requirement.SCHEDULABLE)}
    keys = generated.keys(vmi, configuration, pod)
    for selector, origin in (
        (generated.architecture(vmi), requirement.KUBEVIRT),
        (configuration.node_selectors, requirement.CLUSTER),
        (spec.node_selector, requirement.VM),
        (dict.fromkeys(keys, generated.TRUE), requirement.KUBEVIRT),
    ):
        for key, value in selector.items() if selector else ():
            # An equal value stays the earlier one's, whose wish it was first.
            if key not in layer or layer[key][0] != value:
                layer[key] = (value, origin)
    if generated.is_emulated(vmi, configuration):
        layer.pop(generated.ARCHITECTURE, None)
    return layer


def _affinity(placed: Placed, absent: tuple[Expression, ...] = ()) -> Iterator[Requirement]:
    """Required node affinity.

    Args:
        placed: the ``spec`` of a VMI or a pod.
        absent: what KubeVirt appends to every term. One that was empty, and so matched nothing, then matches by it.
    """
    required = placed.required_affinity
    if required is None:
        return
    spend(_EXPRESSION_STEPS * required.size, "expressions of the node affinity")
    empty = Term(absent)
    terms = (term if term.expressions or term.fields else empty for term in required.terms())
    # Equal alternatives are one; malformed ones differ by their place, which messages name.
    yield OneOf(requirement.AFFINITY, tuple(dict.fromkeys(terms)))


def _resources(requests: Mapping[str, int], configuration: ClusterConfig) -> list[Requirement]:
    """What the target pod requests. Whether it requests the device of KVM, KubeVirt's settings of now decide."""
    requested: list[Requirement] = [
        Allocatable(requirement.RESOURCES, resource, amount)
        for resource, amount in requests.items()
        if resource != resources.KVM_DEVICE
    ]
    if configuration.needs_kvm:
        kvm = requests.get(resources.KVM_DEVICE)
        requested.append(Allocatable(requirement.KVM, resources.KVM_DEVICE, kvm) if kvm else Kvm(requirement.KVM))
    return requested


def _tolerations(pod: LauncherPod | None) -> tuple[Toleration, ...]:
    """The present pod's, which has the VM's and those that admission plugins add: a RuntimeClass's, a namespace's."""
    return _given(pod.spec.tolerations) if pod and pod.spec else ()


def _given(tolerations: Iterable[Toleration | None] | None) -> tuple[Toleration, ...]:
    return tuple([toleration or Toleration() for toleration in tolerations]) if tolerations else ()


def _taint_requirements(
    placed: Placed, *, tolerated: tuple[str, ...] = (), admitted: tuple[Toleration, ...] = ()
) -> tuple[Requirement, ...]:
    """The requirements on taints and on cordoned nodes.

    Args:
        placed: the ``spec`` of a VMI or a pod, with its tolerations.
        tolerated: the keys whose NoExecute taints Kubernetes tolerates by default.
        admitted: further tolerations, which admission plugins add.
    """
    tolerations = tuple(dict.fromkeys((*_given(placed.tolerations), *admitted)))
    if tolerated and not tolerations:
        tolerations = tuple(map(_BY_DEFAULT.__getitem__, tolerated))
    elif tolerated:
        said = {each.key or "" for each in tolerations if each.effect in {None, "", NO_EXECUTE}}
        tolerations += tuple([_BY_DEFAULT[key] for key in tolerated if "" not in said and key not in said])
    return (Untainted(requirement.TAINTS, tolerations), Uncordoned(requirement.CORDONED, tolerations))


def _host_model(vmi: Vmi, pod: Mapping[str, str], labels: Mapping[str, str]) -> Mapping[str, str]:
    """The CPU that a host-model VM took over from where it started.

    If its present pod requires any CPU feature or model, KubeVirt takes those: it has migrated before. (The features
    that its owner requires count as such too: a quirk of KubeVirt's, kept.) Else, and from another cluster, it is the
    CPU of the node that it comes from.
    """
    if vmi.cpu.model != HOST_MODEL:
        return {}
    return {key: value for key, value in pod.items() if generated.is_sticky(key)} or generated.host_model(labels)


def _vendor(known: Mapping[str, object], labels: Mapping[str, str]) -> list[Requirement]:
    """The CPU's vendor stays. A key that the migration adds does not switch this off, as it does in KubeVirt.

    Args:
        known: the keys that KubeVirt, its settings, the VM or the migration already set.
        labels: the labels of the node that the VM comes from.
    """
    vendors = starting_with(labels, generated.CPU_VENDOR, generated.CPU_VENDOR)
    if not vendors or [key for key in known if key.startswith(generated.CPU_VENDOR)]:
        return []
    return [Label(requirement.VENDOR, Expression(key, IN, (generated.TRUE,))) for key in vendors]


def _mirrored_labels(known: Mapping[str, object], made: Mapping[str, str]) -> Iterator[Label]:
    """The labels of the present pod that KubeVirt required by rules which are unknown here: those of future versions.

    KubeVirt's own labels are all ``true``. Another value came from a selector of the VM or the cluster, which may have
    changed since.
    """
    for key, value in sorted(made.items()):
        domain = key.partition("/")[0]
        if not (domain == "kubevirt.io" or domain.endswith(".kubevirt.io")) or key in known:
            continue
        if value == generated.TRUE and not key.startswith(_RECOMPUTED):
            yield Label(requirement.KUBEVIRT, Expression.equals(key, value))


def _exclude_source(
    vmi: Vmi, node: Node | None, labels: Mapping[str, str], *, receives: bool
) -> tuple[Requirement, ...]:
    if receives:
        source = vmi.source_state.node
        # KubeVirt excludes it in the first term of the node affinity only.
        return (Label(requirement.SOURCE_NODE, Expression(HOSTNAME, NOT_IN, (source,))),) if source else ()
    name = vmi.node_name
    if not name:
        return ()
    hostname = labels.get(HOSTNAME, "") if node and node.name == name else ""
    return (Elsewhere(requirement.SOURCE_NODE, name, hostname),)
