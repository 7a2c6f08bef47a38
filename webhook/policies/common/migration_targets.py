"""Where a VM could migrate to: what its target pod requires of nodes, put together from the cluster's facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.errors import Unavailable, quote
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NamespaceKey, NodesKey, ObjectKey, Unreadable
from webhook.k8s.rights import Right
from webhook.k8s.types.meta import Namespace
from webhook.k8s.types.scheduling import Toleration
from webhook.k8s.types.selectors import NOT_IN, Expression, value_problem
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.releases.capabilities import (
    FINDS_STATE_OF_LONG_NAMES,
    HOLDS_MIGRATIONS_BACK,
    SEPARATES_PERSISTENT_RESERVATIONS,
)
from webhook.kubevirt.releases.release import Release
from webhook.placement.additions import NO_ADDITIONS, Additions, PodAdditions
from webhook.placement.demand import KUBEVIRT_DEVICES, Demand, target_pod_demand
from webhook.placement.eligibility import Eligibility, Failure
from webhook.placement.groups import GroupPlacement, required_places
from webhook.placement.index import NodeIndex
from webhook.placement.machines import (
    JOB_NAME,
    JOB_UID,
    LAUNCHER_PODS,
    MIGRATIONS,
    MOST_RESERVATIONS,
    NO_MIGRATION,
    PLACED_VMIS,
    STATE_PREFIX,
    LauncherPod,
    Migration,
    Vmi,
)
from webhook.placement.nodes import HOST_MODEL_CPU, HOSTNAME, Node, is_extended_resource
from webhook.placement.quota import LIMIT_RANGES, QUOTAS, PodUsage, QuotaReview, review_quotas, usage_of
from webhook.placement.requirements import Label, Origin, Requirements, Staying
from webhook.placement.target_pods import (
    DEVICE_CLASSES,
    NODE_SELECTOR_ANNOTATION,
    RUNTIME_CLASSES,
    RuntimeClass,
    lacks_host_model,
    namespace_labels,
    requirement_gaps,
    target_pod_requirements,
    unexplained_labels,
    unexplained_labels_gap,
)
from webhook.policies.common import group_members
from webhook.policies.common.required_facts import read, read_configuration

# What `of` says of the VM's group.
_OF_GROUPS: Final = (Origin.GROUP, Origin.APART, Origin.TOGETHER)
# One of the terms for which KubeVirt holds migrations back.
DURING_BACKUP: Final = "while its backup runs"

_CREATED_BY: Final = "kubevirt.io/created-by"

# What it takes to know where a VM could migrate to.
RIGHTS: Final = (
    Right.on(PLACED_VMIS, verbs=("get",), why="the VM that is to move"),
    Right.on(LAUNCHER_PODS, verbs=("list",), why="the present pod of a VM that migrates"),
    Right.on(MIGRATIONS, verbs=("get",), why="what the last migration of a VM had added"),
    Right.on(
        RUNTIME_CLASSES,
        verbs=("get",),
        why="which nodes KubeVirt's default RuntimeClass chooses, where there is one",
    ),
    Right.on(DEVICE_CLASSES, verbs=("list",), why="which extended resources nodes may offer that they do not list"),
)
# What `review_quota` takes besides.
QUOTA_RIGHTS: Final = (
    Right.on(
        QUOTAS,
        LIMIT_RANGES,
        verbs=("list",),
        why="whether quotas allow the target pod of a migration, and what LimitRanges add to it",
    ),
)


class Target(msgspec.Struct, frozen=True):
    """The target of a migration of one VMI.

    Attributes:
        nodes: all nodes.
        requirements: what a node must have, each with its origin.
        gaps: what could not be taken into account, clauses.
        pod: the pod that the VM runs in; None: it is not known.
        requests: what the target pod requests at least, in kube-scheduler's unit.
        added_before: the labels that the migration had added which created that pod.
        additions: what policies add to the VM's pods.
    """

    vmi: Vmi
    nodes: NodeIndex
    requirements: Requirements
    gaps: tuple[str, ...]
    pod: LauncherPod | None = None
    requests: Mapping[str, int] = {}
    added_before: Mapping[str, str] = {}
    additions: Additions = NO_ADDITIONS

    def review(self) -> Eligibility:
        """Which nodes meet the target's requirements."""
        return self.nodes.review(self.requirements)

    def apart_from_group(self) -> Target:
        """The same without what the VM's group requires, which the policy groups judges.

        Nodes that are being emptied do not count, as they do not for the descheduler: the VM would have to leave again.
        """
        others = (each for each in self.requirements if each.origin not in _OF_GROUPS)
        return msgspec.structs.replace(self, requirements=(*others, Staying(Origin.DEPARTURE)))


def name_problem(name: str) -> str | None:
    """Why KubeVirt cannot create any migration of a VM of this name, a sentence; None where it can.

    It labels migrations with the name (the label ``kubevirt.io/vmi-name``), which may be longer than a label.
    """
    problem = value_problem(name)
    if problem is None:
        return None
    return f"KubeVirt cannot migrate this VM: it labels migrations with the VM's name, which {problem}"


def loses_state(release: Release) -> bool:
    """Whether a release does not find the persistent state of a VM where the name of its claim had to be cut off."""
    return not release.has(FINDS_STATE_OF_LONG_NAMES)


def state_problem(vmi: Vmi, release: Release) -> str | None:
    """Why KubeVirt cannot migrate a VM with persistent state under its name, a sentence; None where it can.

    Releases without the capability look for the volume whose name contains the VM's (backendstorage.CurrentPVCName).
    The API server cuts generated names off, and then virt-controller never begins the migration.
    """
    volumes = vmi.state_volumes
    if not volumes or not loses_state(release):
        return None
    looked_for = f"{STATE_PREFIX}-{vmi.meta.name}"
    if any(looked_for in volume for volume in volumes):
        return None
    return (
        f"KubeVirt {release} cannot migrate this VM: it does not find the persistent state (TPM, EFI) of a VM whose"
        " name has more than 37 characters"
    )


def cpu_problem(vmi: Vmi, pod: LauncherPod | None, node: Node | None) -> str | None:
    """Why KubeVirt creates no target pod for a VM with the CPU of its host, a clause; None: it does, or is not known.

    Its migration stays Pending, counts against no limit, and keeps all others of the VM from beginning.
    """
    if node is None or not lacks_host_model(vmi, pod, node):
        return None
    return (
        f"KubeVirt creates no target pod, because the VM has the CPU model host-model, and its node {node.name} has no"
        f" label {HOST_MODEL_CPU}…, by which virt-handler names that model"
    )


def holding_back(vmi: Vmi, configuration: ClusterConfig) -> tuple[str, ...]:
    """How long KubeVirt lets migrations of a VM wait that it has created, as clauses; empty: not at all."""
    if not configuration.release.has(HOLDS_MIGRATIONS_BACK):
        return ()
    volumes = vmi.spec.utility_volumes if vmi.spec else None
    terms = ((DURING_BACKUP, vmi.is_backed_up), ("until its utility volumes are detached", bool(volumes)))
    return tuple([term for term, counts in terms if counts])


def keys_by_name(namespace: str, name: str) -> tuple[Key[Any], ...]:
    """What `find` reads first of a VMI of this name."""
    return (ObjectKey(PLACED_VMIS, namespace, name), NodesKey(), KubeVirtKey())


def keys_by_vmi(vmi: Vmi, namespace: str) -> tuple[Key[Any], ...]:
    """What the target of a VMI's migration depends on in any case."""
    pods = _pods_key(vmi, namespace)
    return (NodesKey(), KubeVirtKey(), *((pods,) if pods else ()))


async def keys_by_pod(vmi: Vmi, namespace: str, facts: Facts) -> tuple[Key[Any], ...]:
    """What the target depends on besides, which KubeVirt's configuration and the VM's present pod show.

    Raises:
        Unreadable: they cannot be read.
    """
    source = await _source(vmi, namespace, facts)
    return _keys_by_pod(source, vmi, namespace)


class _Source(NamedTuple):
    """What is known of where a VM runs, from which all else follows that its target depends on."""

    nodes: NodeIndex
    configuration: ClusterConfig
    node: Node | None
    pod: LauncherPod | None
    demand: Demand


async def _source(vmi: Vmi, namespace: str, facts: Facts) -> _Source:
    """It as it is now; once its keys have been read, nothing is waited for."""
    await facts.prefetch(*keys_by_vmi(vmi, namespace))
    nodes = await read(facts, NodesKey(), "the nodes")
    configuration = await read_configuration(facts) or DEFAULTS
    assert nodes is not None
    node = nodes.get(vmi.node_name) if vmi.node_name else None
    pod = await _present_pod(vmi, namespace, facts)
    return _Source(nodes, configuration, node, pod, target_pod_demand(vmi, pod, node, configuration, nodes.reports))


def _keys_by_pod(source: _Source, vmi: Vmi, namespace: str) -> tuple[Key[Any], ...]:
    keys: list[Key[Any]] = []
    if name := source.configuration.default_runtime_class:
        keys.append(ObjectKey(RUNTIME_CLASSES, "", name))
    if source.pod and (migration := _previous_migration(source.pod, namespace)):
        keys.append(migration)
    if source.pod and _keeps_apart(vmi, source.configuration):
        keys += (_pods_with(reservation, namespace) for reservation in source.pod.reservations)
    if _driver_resources(source.demand.requests):
        keys.append(ListKey(DEVICE_CLASSES, ""))
    return tuple(keys)


async def find(namespace: str, name: str, facts: Facts, migration: Migration = NO_MIGRATION) -> Target | None:
    """The target of a migration of a VMI; None where there is no such VMI.

    Raises:
        Unreadable: something that it depends on cannot be read.
    """
    await facts.prefetch(*keys_by_name(namespace, name))
    vmi = await read(facts, ObjectKey(PLACED_VMIS, namespace, name), f"VirtualMachineInstance {namespace}/{name}")
    return None if vmi is None else await of(vmi, namespace, facts, migration)


async def of(vmi: Vmi, namespace: str, facts: Facts, migration: Migration = NO_MIGRATION) -> Target:
    """The target of a migration, with the labels that it adds, of a VMI that the caller has already read.

    It counts for the nodes of now (see `NodesKey`): its caller reviews it before awaiting anything else.

    Raises:
        Unreadable: a fact that the target depends on cannot be read.
    """
    source = await _source(vmi, namespace, facts)
    await facts.prefetch(*_keys_by_pod(source, vmi, namespace))
    configuration, pod = source.configuration, source.pod
    added_before = await _previously_added(pod, namespace, facts) if pod else {}
    additions = await facts.additions(vmi, pod, namespace, facts)
    plugins = await _plugins(vmi, pod, added_before, additions.present, namespace, configuration, facts)
    labels, tolerations, gaps = plugins
    avoided, apart_gaps = await _nodes_to_avoid(vmi, pod, namespace, configuration, facts)
    members, group_gaps = await _members(additions.next.group, vmi, namespace, facts)
    # Nodes may have changed while all that was read, and again while DeviceClasses are that are needed only now.
    nodes, _, node, _, demand = await _source(vmi, namespace, facts)
    if _driver_resources(demand.requests):
        await facts.prefetch(ListKey(DEVICE_CLASSES, ""))
        nodes, _, node, _, demand = await _source(vmi, namespace, facts)
    by_drivers = await provided_by_drivers(demand.requests, facts)
    apart = _keep_apart(avoided, nodes)
    group = additions.next.group
    places = required_places(group, namespace, members, nodes.get) if group else ()
    return Target(
        vmi,
        nodes,
        target_pod_requirements(
            vmi,
            migration,
            source_pod=pod,
            source_pod_added=added_before,
            source_node=node,
            configuration=configuration,
            requests={name: amount for name, amount in demand.requests.items() if name not in by_drivers},
            admitted=(*labels, *apart, *places),
            tolerations=tolerations,
            additions=additions,
        ),
        (
            *requirement_gaps(vmi, migration, pod, node),
            *(f"KubeVirt holds the VM's migrations back {term}" for term in holding_back(vmi, configuration)),
            *demand.gaps,
            *by_drivers.values(),
            *gaps,
            *apart_gaps,
            *group_gaps,
            *additions.gaps,
        ),
        pod,
        demand.requests,
        added_before,
        additions,
    )


async def of_start(vmi: Vmi, pod: LauncherPod | None, namespace: str, facts: Facts) -> Target:
    """The target of a start: what the pod requires by which a VM starts anew.

    It takes nothing over from where the VM has run: no CPU of a host, no vendor, nothing that a migration added.

    Args:
        vmi: the VMI as KubeVirt creates it; of its status only what virt-controller writes before it makes the pod.
        pod: the pod that the VM has run in, with the same spec, which shows what the next one requests, too; None: it
            is not known, or the next spec is another.
        namespace: the VMI's.
        facts: what is known of nodes, KubeVirt's configuration, RuntimeClasses and DeviceClasses.

    Raises:
        Unreadable: a fact that the target depends on cannot be read.
    """
    nodes = await read(facts, NodesKey(), "the nodes")
    assert nodes is not None
    configuration = await read_configuration(facts) or DEFAULTS
    demand = target_pod_demand(vmi, pod, None, configuration, nodes.reports)
    added_before = await _previously_added(pod, namespace, facts) if pod else {}
    additions = await facts.additions(vmi, pod, namespace, facts)
    plugins = await _plugins(vmi, pod, added_before, additions.present, namespace, configuration, facts)
    labels, tolerations, gaps = plugins
    avoided, apart_gaps = await _nodes_to_avoid(vmi, pod, namespace, configuration, facts)
    by_drivers = await provided_by_drivers(demand.requests, facts)
    shown = (pod.spec.tolerations if pod and pod.spec else None) or ()
    kept = tuple(each for each in shown if each and each not in additions.present.tolerations)
    required = target_pod_requirements(
        vmi,
        configuration=configuration,
        requests={name: amount for name, amount in demand.requests.items() if name not in by_drivers},
        admitted=(*labels, *_keep_apart(avoided, nodes)),
        tolerations=(*tolerations, *kept),
        additions=additions,
    )
    every_gap = (*demand.gaps, *by_drivers.values(), *gaps, *apart_gaps, *additions.gaps)
    return Target(vmi, nodes, required, every_gap, pod, demand.requests, added_before, additions)


def _driver_resources(requests: Iterable[str]) -> list[str]:
    """The requested resources that DRA may provide."""
    return [name for name in requests if is_extended_resource(name) and not name.startswith(KUBEVIRT_DEVICES)]


async def provided_by_drivers(requests: Iterable[str], facts: Facts) -> dict[str, str]:
    """The extended resources of which a node may have more than is allocatable, from DRA, each with why, a clause.

    DeviceClasses choose devices by CEL expressions, which are not evaluated here. KubeVirt's own devices are its device
    plugin's, so that most VMs cost no request.
    """
    extended = _driver_resources(requests)
    if not extended:
        return {}
    classes = await facts.get(ListKey(DEVICE_CLASSES, ""))
    if isinstance(classes, Unavailable):
        why = f"which nodes offer {{}} is not known, because DeviceClasses may provide it: {classes.why}"
        return {name: why.format(name) for name in extended}
    return {
        name: f"DeviceClass {quote(each.meta.name or '')} may provide {name} on any node, which is not evaluated here"
        for each in classes or ()
        for name in extended
        if name in each.provides
    }


async def usage(target: Target, namespace: str, facts: Facts) -> PodUsage:
    """What the target pod counts for in the quotas of its namespace; LimitRanges that cannot be read give nothing."""
    ranges = await facts.get(ListKey(LIMIT_RANGES, namespace))
    return usage_of(target.pod, target.requests, () if isinstance(ranges, Unavailable) else ranges or ())


async def keys_by_quotas(namespace: str, facts: Facts) -> tuple[Key[Any], ...]:
    """What `review_quota` reads beside the quotas of a namespace."""
    quotas = await facts.get(ListKey(QUOTAS, namespace))
    return (ListKey(LIMIT_RANGES, namespace),) if isinstance(quotas, tuple) and quotas else ()


async def review_quota(target: Target, namespace: str, facts: Facts) -> QuotaReview:
    """What the quotas of a namespace say to a target pod; not known where they cannot be read.

    LimitRanges are read only where there is a quota.
    """
    quotas = await facts.get(ListKey(QUOTAS, namespace))
    if isinstance(quotas, Unavailable):
        return QuotaReview(gaps=(f"whether ResourceQuotas allow the target pod is not known, because {quotas.why}",))
    return review_quotas(quotas, await usage(target, namespace, facts)) if quotas else QuotaReview()


async def runtime_class(
    configuration: ClusterConfig, facts: Facts
) -> tuple[tuple[Label, ...], tuple[Toleration, ...], list[str]]:
    """What KubeVirt's default RuntimeClass requires of nodes and tolerates, and what is not known of it, clauses."""
    name = configuration.default_runtime_class
    if not name:
        return (), (), []
    found = await facts.get(ObjectKey(RUNTIME_CLASSES, "", name))
    if isinstance(found, Unavailable):
        return (), (), [f"what RuntimeClass {quote(name)} requires of nodes is not known: {found.why}"]
    return (found.labels, found.tolerations, []) if isinstance(found, RuntimeClass) else ((), (), [])


async def _plugins(  # noqa: PLR0913 - all that their answer follows from
    vmi: Vmi,
    pod: LauncherPod | None,
    added_before: dict[str, str],
    added_by_policies: PodAdditions,
    namespace: str,
    configuration: ClusterConfig,
    facts: Facts,
) -> tuple[tuple[Label, ...], tuple[Toleration, ...], list[str]]:
    """What admission plugins add. What is not readable is a gap: an account without permissions evaluates the rest."""
    labels, tolerations, gaps = await runtime_class(configuration, facts)
    left = unexplained_labels(pod, vmi, configuration, added_before, labels, added_by_policies) if pod else {}
    if left:
        place = await facts.get(NamespaceKey(namespace))
        annotation = place.meta.annotation(NODE_SELECTOR_ANNOTATION) if isinstance(place, Namespace) else None
        of_namespace = namespace_labels(annotation, left)
        labels += of_namespace
        explained = {label.expression.key for label in of_namespace}
        if rest := {key: value for key, value in left.items() if key not in explained}:
            gaps.append(unexplained_labels_gap(rest))
    return labels, tolerations, gaps


def _pods_key(vmi: Vmi, namespace: str) -> ListKey[LauncherPod] | None:
    """The pods of a VMI; None where it runs nowhere."""
    if not vmi.node_name or not vmi.meta.uid:
        return None
    return ListKey(LAUNCHER_PODS, namespace, f"{_CREATED_BY}={vmi.meta.uid}")


async def _present_pod(vmi: Vmi, namespace: str, facts: Facts) -> LauncherPod | None:
    """The pod that the VM runs in: of its pods the last one made on its node, of those that have not ended.

    Any user can label a pod; the VM's own have it as their controller (KubeVirt, controller.CurrentVMIPod).
    """
    key = _pods_key(vmi, namespace)
    if key is None:
        return None
    pods = await read(facts, key, "the VM's pods") or ()
    own = [
        pod
        for pod in pods
        if pod.node_name == vmi.node_name
        and not pod.is_over
        and (owner := pod.meta.controller_owner())
        and owner.uid == vmi.meta.uid
    ]
    return max(own, key=lambda pod: pod.meta.creation_timestamp or "", default=None)


def _previous_migration(pod: LauncherPod, namespace: str) -> ObjectKey[Migration] | None:
    """The migration by which a pod was made; None where none did."""
    name = pod.meta.annotation(JOB_NAME)
    return ObjectKey(MIGRATIONS, namespace, name) if name else None


async def _previously_added(pod: LauncherPod, namespace: str, facts: Facts) -> dict[str, str]:
    """What the migration had added by which the present pod was made; all that it may have where it is gone."""
    key = _previous_migration(pod, namespace)
    if key is None:
        return {}
    migration = await read(facts, key, f"the migration {key.name}")
    if migration is None or migration.meta.uid != pod.meta.label(JOB_UID):
        # KubeVirt keeps five of a VM's. A wish that was for once must not be taken for a requirement of KubeVirt's.
        return pod.node_selector
    return migration.added_selector


def _keeps_apart(vmi: Vmi, configuration: ClusterConfig) -> bool:
    """Whether KubeVirt keeps a VM away from others with the same persistent reservations."""
    devices = vmi.domain.devices
    reserves = bool(devices and devices.reserves_persistently)
    return reserves and configuration.release.has(SEPARATES_PERSISTENT_RESERVATIONS)


def _pods_with(reservation: str, namespace: str) -> ListKey[LauncherPod]:
    """The pods of a namespace that share a reservation."""
    return ListKey(LAUNCHER_PODS, namespace, f"{reservation}=")


_APART: Final = "KubeVirt keeps VMs with the same persistent reservation on different nodes"


async def _nodes_to_avoid(
    vmi: Vmi, pod: LauncherPod | None, namespace: str, configuration: ClusterConfig, facts: Facts
) -> tuple[set[str], list[str]]:
    """The nodes of other VMs with the VM's reservations, which its pod shows, and what is not known of them.

    Pods of other namespaces do not count.
    """
    if not _keeps_apart(vmi, configuration):
        return set(), []
    reservations = pod.reservations if pod else ()
    if not reservations:
        return set(), [f"{_APART}, and the VM's current pod does not show which ones those are"]
    gaps: list[str] = []
    avoided: set[str] = set()
    if len(reservations) == MOST_RESERVATIONS:
        gaps.append(f"{_APART}, of which at most {MOST_RESERVATIONS} are evaluated here")
    for others in await facts.all(*(_pods_with(reservation, namespace) for reservation in reservations)):
        if isinstance(others, Unavailable):
            gaps.append(f"{_APART}, and the pods of these cannot be read: {others.why}")
            continue
        avoided |= {other.node_name for other in others or () if not other.is_over} - {"", vmi.node_name}
    return avoided, gaps


def _keep_apart(avoided: Iterable[str], nodes: NodeIndex) -> tuple[Label, ...]:
    """What keeps a target pod off some nodes."""
    hosts = {node.labels[HOSTNAME] for name in avoided if (node := nodes.get(name)) and HOSTNAME in node.labels}
    return (Label(Origin.RESERVATION, Expression(HOSTNAME, NOT_IN, tuple(sorted(hosts)))),) if hosts else ()


async def _members(
    group: GroupPlacement | None, vmi: Vmi, namespace: str, facts: Facts
) -> tuple[list[LauncherPod], list[str]]:
    """The pods of the other VMs of a VM's group, and what is not known of them."""
    if group is None:
        return [], []
    try:
        return await group_members.others(group, namespace, vmi.meta.uid or "", facts), []
    except Unreadable as error:
        return [], [f"where the other VMs of its group may be is not known: {error.why}"]


# Nodes are all in the audit record; the combinations of reasons could be as many as they.
_AUDITED_GROUPS: Final = 100
_AUDITED_FAILURES: Final = 50
_MAX_CLASSES: Final = 10


def no_node(eligibility: Eligibility) -> Reason:
    """Why no node is eligible, class by class as the scheduler words it, and the single change that would help most."""
    if not eligibility.total:
        return Reason(common.NO_ELIGIBLE_NODE, f"{availability(eligibility)}: the cluster has no nodes")
    failures: Sequence[Failure] = eligibility.failures
    if more := max(0, len(failures) - _MAX_CLASSES):
        # Every node may have a taint of its own.
        failures = sorted(failures, key=lambda failure: -failure.count)[:_MAX_CLASSES]
    text = f"{availability(eligibility)}: {', '.join(map(str, failures))}{f' and {more} more reasons' if more else ''}"
    # To give up what was just requested is not advice, nor is it that the VM came from elsewhere.
    for best in eligibility.openings():
        if best.failures[0].requirement.origin not in (Origin.ADDED, Origin.SOURCE_NODE):
            text += f"; for {best.count} node(s) the only reason is: {best.failures[0].lacking}"
            break
    return Reason(common.NO_ELIGIBLE_NODE, text)


def availability(eligibility: Eligibility) -> str:
    """``0/6 nodes are available``, as the scheduler words it."""
    return common.eligible(eligibility.count, eligibility.total).text


def details(eligibility: Eligibility) -> dict[str, Any]:
    """All nodes by what they fail, for the audit record; those of the rarest combinations of reasons together."""
    node_groups = eligibility.groups()
    lacking = Lacking(eligibility)
    groups = [
        (lacking.first(group.failures, _AUDITED_FAILURES), eligibility.names(group))
        for group in node_groups[:_AUDITED_GROUPS]
    ]
    if rest := node_groups[_AUDITED_GROUPS:]:
        names = sorted(name for group in rest for name in eligibility.names(group))
        groups.append(([f"other reasons, in {len(rest)} combinations"], names))
    return {"nodes": [{"fails": fails, "count": len(names), "nodes": names} for fails, names in groups]}


class Lacking(dict[int, str]):
    """What nodes lack that fail something, by the failure's identity: many groups share a failure, worded once.

    Args:
        eligibility: whose failures they are.
    """

    def __init__(self, eligibility: Eligibility) -> None:
        super().__init__()
        self._failures: Final = {id(failure): failure for failure in eligibility.failures}

    def __missing__(self, identity: int) -> str:
        text = self[identity] = self._failures[identity].lacking
        return text

    def first(self, failures: Sequence[Failure], most: int) -> list[str]:
        """The words for at most ``most`` of the failures of a group of nodes, and the number of the others."""
        texts = list(map(self.__getitem__, map(id, failures[:most])))
        return [*texts, f"{len(failures) - most} more"] if len(failures) > most else texts
