"""The objects of a cluster at one moment, and the cluster that a plan makes of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

from webhook import names
from webhook.admission.step_budget import spend
from webhook.errors import quote
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NamespaceKey, NodesKey, ObjectKey, find_none, from_memory
from webhook.forecast.additions import additions_by
from webhook.forecast.priorities import Priorities, PriorityClass
from webhook.forecast.usage import NodeMetrics, PodMetrics
from webhook.k8s.resources import PODS, NamespacedName, Resource
from webhook.k8s.types.core import NodeWithoutImages
from webhook.k8s.types.meta import Condition, Namespace, Object, View
from webhook.k8s.types.selectors import LabelSelector
from webhook.kubevirt.config import DEFAULTS, ClusterConfig, KubeVirtInstall
from webhook.kubevirt.migrationpolicy import MigrationPolicy, MigrationRules
from webhook.kubevirt.run_strategy import RunnableVm
from webhook.kubevirt.types.views import WorkloadUpdateStrategy
from webhook.placement import machines
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.placement.pod_rules import PodSelector, expressions_of
from webhook.placement.profiles import SHIPPED_PROFILES, Profiles
from webhook.placement.quota import LIMIT_RANGES, LimitRange, ResourceQuota
from webhook.placement.running_pods import RunningPod, Service
from webhook.placement.scores import NEWEST, KubernetesVersion
from webhook.placement.target_pods import DEVICE_CLASSES, RUNTIME_CLASSES, DeviceClass, RuntimeClass
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.review.scope import enforces
from webhook.settings.model import Settings

CREATED_BY: Final = "kubevirt.io/created-by"

K = TypeVar("K")
V = TypeVar("V")


class _BudgetSpec(View, frozen=True):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class _BudgetStatus(View, frozen=True):
    disruptions_allowed: int | None = None
    current_healthy: int | None = None
    desired_healthy: int | None = None
    conditions: list[Condition | None] | None = None
    disrupted_pods: dict[str, Any] | None = None


class PodDisruptionBudget(Object, frozen=True):
    """A PodDisruptionBudget (policy/v1)."""

    spec: _BudgetSpec | None = None
    status: _BudgetStatus | None = None

    @property
    def allowed(self) -> int:
        """How many of its pods may be evicted now; none until its controller has written a number."""
        return (self.status.disruptions_allowed if self.status else None) or 0

    @property
    def releases_unready(self) -> bool:
        """Whether pods that are not ready may be evicted without being counted (kube-apiserver, EvictionREST)."""
        if self.spec and self.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return True
        status = self.status or _BudgetStatus()
        desired = status.desired_healthy or 0
        return 0 < desired <= (status.current_healthy or 0)

    @property
    def sync_problem(self) -> str | None:
        """Why its controller cannot compute what it allows, in its words, so that it allows nothing; None: it can."""
        conditions = (self.status.conditions if self.status else None) or ()
        failed = (each for each in conditions if each and each.type == "DisruptionAllowed" and each.status == "False")
        return next((each.message or "" for each in failed if each.reason == "SyncFailed"), None)

    @property
    def selects_everything(self) -> bool:
        """Whether its selector is empty: it counts for evictions of every pod, and for no preemption."""
        return expressions_of(self.spec.selector if self.spec else None) == ()

    @property
    def disrupted(self) -> Collection[str]:
        """The names of pods whose eviction the API server has allowed already, so that they no longer count."""
        return (self.status.disrupted_pods if self.status else None) or {}


# Of all pods, also those of which reviews keep nothing: what runs on a node, and what it requires of pods beside it.
RUNNING_PODS: Final = PODS.decoded_as(RunningPod)
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, PodDisruptionBudget)


class ClusterObjects(msgspec.Struct, frozen=True):
    """A snapshot of a cluster: everything that decides over a drain, as it was read.

    Attributes:
        nodes: with their images, which ImageLocality scores.
        profiles: those of schedulers that are known, by their schedulerName.
        kubernetes: the version of kube-scheduler.
        settings: those of kubevirt-webhook in the cluster; None: without its policies.
        schedulers_down: why declared schedulers are unavailable, a clause each, by name.
        vms: read for losses, drains and updates.
        node_metrics: read for balances by usage alone, and so are ``pod_metrics``.
        next_vmis: the VMIs that KubeVirt makes next of VMs whose template has changed, by namespace and name; a text:
            it makes none, and why.
        gaps: what could not be read, clauses.
        now: when that was, Unix time in seconds.
    """

    nodes: tuple[NodeWithoutImages, ...] = ()
    pods: tuple[RunningPod, ...] = ()
    vmis: tuple[machines.Vmi, ...] = ()
    migrations: tuple[machines.Migration, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    claims: tuple[machines.Claim, ...] = ()
    volumes: tuple[machines.PersistentVolume, ...] = ()
    runtime_classes: tuple[RuntimeClass, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    quotas: tuple[ResourceQuota, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    policies: tuple[MigrationPolicy, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    services: tuple[Service, ...] = ()
    vms: tuple[RunnableVm, ...] = ()
    node_metrics: tuple[NodeMetrics, ...] = ()
    pod_metrics: tuple[PodMetrics, ...] = ()
    next_vmis: Mapping[NamespacedName, machines.Vmi | str] = {}
    kubevirt: ClusterConfig = DEFAULTS
    workload_updates: WorkloadUpdateStrategy = WorkloadUpdateStrategy()
    profiles: Profiles = SHIPPED_PROFILES
    kubernetes: KubernetesVersion = NEWEST
    settings: Settings | None = None
    schedulers_down: Mapping[str, str] = {}
    gaps: tuple[str, ...] = ()
    now: float = 0.0


class Arrival(msgspec.Struct, frozen=True):
    """A VM that a migration in flight moves, by the names of that and of the nodes."""

    migration: str
    source: str
    target: str


class PlannedCluster:
    """A cluster with the changes that a plan has made to it so far: cordoned nodes, VMs that have moved.

    Args:
        objects: the objects; they stay as they are.

    Attributes:
        index: the nodes. The position of a node follows from the names alone, so equal clusters give equal plans.
        launchers: the launcher pods that have not ended, by the UID of their VM.
        carriers: the launcher pods of the beginning.
        attachments: the pods beside them that attach hotplugged volumes, by the launcher pod. KubeVirt denies their
            eviction as long as that runs (virt-api, ``admitHotplugPod``); they go with it.
        arrivals: the VMs that a migration in flight moves; `vmis` has them where they arrive.
        priorities: the PriorityClasses.
        services: the selectors of Services, by namespace.
        vms: the VirtualMachines, as far as they were read.
        additions: finds what policies add to the pods of VMs.
        rules: what decides over the time of migrations, by the name of the MigrationPolicy that applies, None without
            one, as far as it was asked for.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        self.objects: Final = objects
        views = sorted((view for view in objects.nodes if view.meta.name), key=lambda view: view.meta.name or "")
        self.views: Final = {view.meta.name or "": view for view in views}
        self.index: Final = NodeIndex(map(Node.of, self.views.values()))
        self.vmis: Final = {namespaced_name(vmi): vmi for vmi in objects.vmis}
        self.namespaces: Final = {each.meta.name or "": each for each in objects.namespaces}
        self.labels: Final = {name: each.meta.labels or {} for name, each in self.namespaces.items()}
        self.migrations: Final = {namespaced_name(each): each for each in objects.migrations}
        unfinished = (each for each in objects.migrations if each.is_unfinished)
        self.unfinished: Final = group(((each.meta.namespace or "", each.vmi_name), each) for each in unfinished)
        selectors = ((expressions_of(each.spec.selector if each.spec else None), each) for each in objects.budgets)
        self._budgets: Final = group(
            (each.meta.namespace or "", (PodSelector(None, expressions), each)) for expressions, each in selectors
        )
        self.quotas: Final = group((each.meta.namespace or "", each) for each in objects.quotas)
        self.services: Final = group(
            (each.meta.namespace or "", each.selector) for each in objects.services if each.selector
        )
        self.vms: Final = {namespaced_name(each): each for each in objects.vms}
        self.limit_ranges: Final = group((each.meta.namespace or "", each) for each in objects.limit_ranges)
        self.claims: Final = {namespaced_name(each): each for each in objects.claims}
        self.volumes: Final = {each.meta.name or "": each for each in objects.volumes}
        # Users can write the label into any pod, with the UID of any VM.
        owners = {(vmi.meta.namespace, vmi.meta.uid) for vmi in objects.vmis}
        pods = [(pod.meta.label(CREATED_BY), pod) for pod in objects.pods if not pod.is_over]
        self.launchers: Final = group((uid, pod) for uid, pod in pods if uid and (pod.meta.namespace, uid) in owners)
        self.carriers: Final = frozenset(namespaced_name(pod) for pods in self.launchers.values() for pod in pods)
        carried = (((pod.meta.namespace or "", pod.launcher), pod) for _, pod in pods)
        self.attachments: Final = group((key, pod) for key, pod in carried if key in self.carriers)
        self.rules: Final[dict[str | None, MigrationRules]] = {}
        self.arrivals: Final[dict[NamespacedName, Arrival]] = {}
        self.priorities: Final = Priorities(objects.priority_classes)
        self._classes: Final = {each.meta.name or "": each for each in objects.runtime_classes}
        self.additions: Final = additions_by(objects.settings) if objects.settings else find_none

    def peek(self, key: Key[Any]) -> object:
        """What `webhook.policies.common.migration_targets` needs to know of this moment."""
        match key:
            case NodesKey():
                return self.index
            case KubeVirtKey():
                return KubeVirtInstall(frozenset(), self.objects.kubevirt)  # where it runs is no matter here
            case NamespaceKey():
                return self.namespaces.get(key.name)
            case ListKey() if key.resource is machines.LAUNCHER_PODS and key.label.startswith(f"{GROUP_LABEL}="):
                # VMs of a group move, too: what a pod requires of others is the simulation's.
                return ()
            case ListKey() if key.resource is machines.LAUNCHER_PODS:
                name, _, uid = key.label.partition("=")
                pods = self.launchers.get(uid, ()) if name == CREATED_BY else chain(*self.launchers.values())
                return tuple(pod for pod in pods if (pod.meta.namespace, pod.meta.label(name)) == (key.namespace, uid))
            case ListKey() if key.resource is DEVICE_CLASSES:
                return self.objects.device_classes
            case ListKey() if key.resource is LIMIT_RANGES:
                return tuple(self.limit_ranges.get(key.namespace, ()))
            case ObjectKey() if key.resource is machines.MIGRATIONS:
                return self.migrations.get((key.namespace, key.name))
            case ObjectKey() if key.resource is RUNTIME_CLASSES:
                return self._classes.get(key.name)
        raise TypeError(f"a planned cluster does not answer {type(key).__name__}")

    def pod_of(self, vmi: machines.Vmi) -> RunningPod | None:
        """The pod that a VM runs in; None: there is none to be seen."""
        pods, node = self.launchers.get(vmi.meta.uid or "", ()), vmi.node_name
        if len(pods) == 1:
            return pods[0] if pods[0].node_name == node else None
        matches = (pod for pod in pods if pod.node_name == node)
        return max(matches, key=lambda pod: pod.meta.creation_timestamp or "", default=None)

    def scheduler_of(self, vmi: machines.Vmi, pod: RunningPod | None) -> str:
        """The scheduler of the next pod of a VM, by the pod that it runs in, to which webhooks may have added one.

        What kubevirt-webhook injected gives way to the default one while it is down.
        """
        own = pod.spec.scheduler_name if pod and pod.spec else None
        name = (vmi.spec.scheduler_name if vmi.spec else None) or own or names.DEFAULT_SCHEDULER
        falls_back = name in self.objects.schedulers_down and self._sets_back(name, vmi, pod)
        return names.DEFAULT_SCHEDULER if falls_back else name

    def scheduler_problem(self, vmi: machines.Vmi, pod: RunningPod | None) -> str:
        """Why no scheduler looks at the next pod of a VM, a clause; empty: one does."""
        scheduler = self.scheduler_of(vmi, pod)
        why = self.objects.schedulers_down.get(scheduler)
        return f"scheduler {quote(scheduler)}, which the VM names, is unavailable ({why})" if why else ""

    def _sets_back(self, scheduler: str, vmi: machines.Vmi, pod: RunningPod | None) -> bool:
        """Whether kubevirt-webhook sets a pod back that names an unavailable scheduler."""
        settings = self.objects.settings
        if settings is None:
            return False
        section = settings.of(SchedulingSettings)
        declared = section.schedulers.get(scheduler)
        said = {each.meta.annotation(names.INJECTED_SCHEDULER_ANNOTATION) for each in (vmi, pod) if each}
        if scheduler not in said and not (declared and declared.only_by_webhook):
            return False
        namespace, facts = self.namespaces.get(vmi.meta.namespace or ""), Facts(peek=self.peek)
        excluded = settings.every_excluded_namespace
        return from_memory(enforces(names.SCHEDULING, namespace, facts, section.cluster_wide, excluded))

    def budgets_of_eviction(self, pod: machines.LauncherPod) -> list[PodDisruptionBudget]:
        """Those that count for an eviction of a pod; a preemption regards all that select it."""
        if pod.ignores_budgets:
            return []
        budgets = self.budgets_of(pod)
        is_released = len(budgets) == 1 and not pod.is_ready and budgets[0].releases_unready
        return [] if is_released else budgets

    def budgets_of(self, pod: machines.LauncherPod) -> list[PodDisruptionBudget]:
        """Those of the PodDisruptionBudgets of its namespace that select a pod."""
        namespace, labels = pod.meta.namespace or "", pod.meta.labels or {}
        budgets = self._budgets.get(namespace, ())
        spend(len(budgets), "PodDisruptionBudgets of pods")
        return [budget for selector, budget in budgets if selector.matches(namespace, labels)]


def group(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, in their order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def namespaced_name(obj: Object) -> NamespacedName:
    """Namespace and name of an object."""
    meta = obj.metadata
    return (meta.namespace or "", meta.name or "") if meta else ("", "")
