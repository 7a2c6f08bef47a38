"""The pods that are created anew once their nodes are lost: what each requires, takes and prefers, and in which order.

A VM that starts again is not a VM that migrates. KubeVirt creates a new VMI of the VM, and a pod of that: it takes over
no CPU of the host where the VM has run, it keeps away from no node, and no quota counts the pod that is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from webhook.admission.step_budget import spend
from webhook.facts import Facts, from_memory
from webhook.forecast import movers, report
from webhook.forecast.movers import EquivalenceClasses, add_amounts
from webhook.forecast.priorities import NEVER, Priority, priority_of
from webhook.forecast.snapshot import PlannedCluster, namespaced_name
from webhook.forecast.start import with_frequency
from webhook.k8s.resources import NamespacedName
from webhook.kubevirt.run_strategy import RunnableVm
from webhook.placement.demand import load_of_target
from webhook.placement.machines import JOB_UID, Vmi
from webhook.placement.nodes import MEMORY, POD_SLOTS, Node
from webhook.placement.quota import NO_USAGE, PodUsage, usage_of
from webhook.placement.requirements import Reachable, Requirements
from webhook.placement.running_pods import RunningPod, incoming
from webhook.placement.simulate import SimulatedPod
from webhook.placement.target_pods import needs_tsc_frequency, own_requirements
from webhook.policies.common import migration_targets

# What a new VMI does not have: labels that KubeVirt writes into one that runs, or that migrates.
_OF_THE_PAST: Final = ("kubevirt.io/nodeName", "kubevirt.io/migrationTargetNodeName", JOB_UID)
# Controllers whose pods end with their nodes.
_OF_NODES: Final = ("DaemonSet", "Node")
_REPLICA_SET: Final = "VirtualMachineInstanceReplicaSet"
VM: Final = "VirtualMachine"
POD: Final = "Pod"
Key: TypeAlias = tuple[str, str, str]  # `VM` or `POD`, namespace and name


class Start(msgspec.Struct, frozen=True):
    """A pod that is created anew, for a VM or by another controller.

    Attributes:
        key: the VM, or the pod that it stands for.
        pod: the new pod, with what the pod takes that attaches hotplugged volumes.
        usage: what it counts for in the namespace's quotas.
        vmi: the VMI as KubeVirt creates it; None: it is not a VM's.
        model: the pod that ran until now; None: it is not known.
        problem: why KubeVirt makes no VMI, a clause; empty: it does.
        scheduled: what kube-scheduler chooses a node by, where that is not all, as in `movers.Mover`.
    """

    key: Key
    requirements: Requirements
    pod: SimulatedPod
    usage: PodUsage
    priority: Priority
    vmi: Vmi | None = None
    model: RunningPod | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    scheduled: Start | None = None

    @property
    def is_vm(self) -> bool:
        """Whether a VM starts with it."""
        return self.key[0] == VM

    @property
    def turn(self) -> tuple[int, bool, Key]:
        """Sorts pods as the scheduler's queue does: by priority, then those that are created first.

        Other controllers create theirs at once; KubeVirt first has to delete the VMI that has failed.
        """
        return -self.priority.value, self.is_vm, self.key

    @property
    def turn_by_size(self) -> tuple[int, bool, int, Key]:
        """As `turn`, the smallest VMs first, which leaves least for large ones."""
        return -self.priority.value, self.is_vm, self.memory, self.key

    @property
    def memory(self) -> int:
        """What the launcher pod requests, in bytes; huge pages where its guest has them."""
        requests = (self.scheduled or self).pod.requests
        pages = sum(amount for name, amount in requests.items() if name.startswith("hugepages-"))
        return requests.get(MEMORY, 0) + pages


def vm_of(vmi: Vmi, cluster: PlannedCluster) -> RunnableVm | None:
    """The VM that a VMI is of; None: there is none, or it is not known."""
    return cluster.vms.get(namespaced_name(vmi)) if _is_of_vm(vmi) else None


def has_unknown_strategy(vmi: Vmi, cluster: PlannedCluster) -> bool:
    """Whether it is not known if KubeVirt starts a VM again."""
    return _is_of_vm(vmi) and vm_of(vmi, cluster) is None


def staying_down(vmi: Vmi, cluster: PlannedCluster, *, has_failed: bool) -> tuple[str, str] | None:
    """As `Starts.staying_down`."""
    owner = vmi.meta.controller_owner()
    if vmi.meta.deletion_timestamp:
        return report.BEING_DELETED, "its VirtualMachineInstance is being deleted already"
    if owner is None or owner.kind not in (VM, _REPLICA_SET):
        whose = f"its owner is {owner.kind or ''} {owner.name or ''}" if owner else "it has no VirtualMachine"
        return report.NO_VM, f"{whose}, so KubeVirt does not start it again"
    vm = vm_of(vmi, cluster)
    if vm is None:
        return None
    if vm.meta.deletion_timestamp:
        return report.BEING_DELETED, "its VirtualMachine is being deleted"
    if vm.restarts_after_failure if has_failed else vm.restarts_after_shutdown:
        return None
    what = "" if has_failed else ", and its guest has shut down as if by itself"
    return report.RUN_STRATEGY, f"its runStrategy is {vm.run_strategy}{what}"


class Starts:
    """What starts anew of a cluster, each made once.

    Args:
        cluster: its VMs, pods and nodes; nodes may be missing on which pods are.
        classes: the VMs that are alike, of the cluster.
    """

    def __init__(self, cluster: PlannedCluster, classes: EquivalenceClasses) -> None:
        self._cluster: Final = cluster
        self._classes: Final = classes
        self._of_vms: Final[dict[NamespacedName, Start]] = {}
        self._of_pods: Final[dict[NamespacedName, Start]] = {}
        self._pods: Final[dict[NamespacedName, SimulatedPod]] = {}

    def vm_of(self, vmi: Vmi) -> RunnableVm | None:
        """The VM that a VMI is of; None: there is none, or it is not known."""
        return vm_of(vmi, self._cluster)

    def staying_down(self, vmi: Vmi, *, has_failed: bool = True) -> tuple[str, str] | None:
        """Why nothing starts a VM again, a code and a clause; None: KubeVirt does, or that is not known.

        Args:
            vmi: the VMI that has ended.
            has_failed: whether it fails, as on a node that is lost; else its guest shuts down, because its pod is
                deleted.
        """
        return staying_down(vmi, self._cluster, has_failed=has_failed)

    def has_unknown_strategy(self, vmi: Vmi) -> bool:
        """Whether it is not known if KubeVirt starts a VM again."""
        return has_unknown_strategy(vmi, self._cluster)

    def pod_of_vm(self, vmi: Vmi) -> SimulatedPod:
        """The next pod of a VM, without what it takes: all that rules between pods depend on."""
        key = namespaced_name(vmi)
        if key not in self._pods:
            made, model = self._next(vmi)
            made = vmi if isinstance(made, str) else made
            pod = self._classes.launcher_pod(made, model)
            labels = {name: value for name, value in pod.info.labels.items() if name not in _OF_THE_PAST}
            self._pods[key] = replace(pod, info=replace(pod.info, labels=labels))
        return self._pods[key]

    def of_vm(self, vmi: Vmi, lost: frozenset[str] = frozenset()) -> Start:
        """The next pod of a VM that runs, or has run, on a node that is lost."""
        key = namespaced_name(vmi)
        if key not in self._of_vms:
            self._of_vms[key] = self._of_vm(vmi, lost)
        start = self._of_vms[key]
        if lost and start.vmi and needs_tsc_frequency(start.vmi):
            return self._of_vm(vmi, lost)
        return start

    def of_pod(self, pod: RunningPod) -> Start | None:
        """The pod that a controller creates in place of one that is gone; None: none does."""
        key, owner, cluster = namespaced_name(pod), pod.meta.controller_owner(), self._cluster
        if owner is None or owner.kind in _OF_NODES or key in cluster.carriers:
            return None
        if (key[0], pod.launcher) in cluster.attachments:
            return None
        if key not in self._of_pods:
            services = cluster.services.get(key[0], ())
            spend(len(services), "Services of pods")
            fresh = replace(pod, metadata=replace(pod.meta, deletion_timestamp=None))
            made = incoming(fresh, cluster.labels, cluster.objects.profiles, services)
            spec = pod.spec
            required: Requirements = tuple(own_requirements(spec)) if spec else ()
            required = (*required, *movers.reachable_claims(pod.claims, key[0], cluster))
            usage = usage_of(pod, made.requests, ()) if key[0] in cluster.quotas else NO_USAGE
            never = spec is not None and spec.preemption_policy == NEVER
            priority = Priority(priority_of(pod), not never, (spec.priority_class_name if spec else None) or "")
            gaps = tuple(movers.profile_gaps(made))
            self._of_pods[key] = Start((POD, *key), required, made, usage, priority, model=pod, gaps=gaps)
        return self._of_pods[key]

    def _next(self, vmi: Vmi) -> tuple[Vmi | str, RunningPod | None]:
        """The VMI that KubeVirt creates, or why it creates none, and the pod that shows what its pod requests."""
        made = self._cluster.objects.next_vmis.get(namespaced_name(vmi)) if _is_of_vm(vmi) else None
        if made is not None:
            return made, None
        vm = self.vm_of(vmi)
        spec = vmi.spec
        if vm and spec and spec.volumes:
            # What was plugged into the VMI alone is gone with it.
            volumes = [
                each for each in spec.volumes if each and not (each.is_hotplugged and each.name not in vm.volumes)
            ]
            spec = replace(spec, volumes=volumes)
        return replace(vmi, spec=spec), self._cluster.pod_of(vmi)

    def _of_vm(self, vmi: Vmi, lost: frozenset[str]) -> Start:
        cluster, key = self._cluster, namespaced_name(vmi)
        made, model = self._next(vmi)
        shape = self.pod_of_vm(vmi)
        if isinstance(made, str):
            return Start((VM, *key), (), shape, NO_USAGE, Priority(), None, None, made)
        fresh, notes = replace(made, status=None), tuple[str, ...]()
        if needs_tsc_frequency(fresh):
            nodes: Iterable[Node] = (node for node in cluster.index if node.name not in lost)
            fresh, notes = with_frequency(fresh, nodes, cluster.objects.kubevirt)
        target, requests = self._classes.start_of(fresh, model)
        has_quotas = key[0] in cluster.quotas
        usage = (
            from_memory(migration_targets.usage(target, key[0], Facts(peek=cluster.peek))) if has_quotas else NO_USAGE
        )
        required = (*target.requirements, *movers.reachable(fresh, cluster, hotplugged=False), *self._state(vmi))
        load = load_of_target(requests, self._classes.load_of(model) if model else None)
        pod = movers.with_additions(replace(shape, load=load), target.additions.next)
        if group := target.additions.next.group:
            pod = movers.in_group(pod, replace(group, vmi=vmi.meta.uid or ""), cluster)
        priority = cluster.priorities.of_target_pod(fresh, model)
        gaps = (*target.gaps, *movers.profile_gaps(pod), *([priority.gap] if priority.gap else []))
        start = Start((VM, *key), required, pod, usage, priority, fresh, model, "", notes, gaps)
        if not fresh.attached_volumes:
            return start
        attached = movers.ATTACHMENT
        if has_quotas:
            own = {name: amount for name, amount in attached.requests.items() if name != POD_SLOTS}
            more = usage_of(None, own, cluster.limit_ranges.get(key[0], ()))
            usage = replace(usage, amounts=add_amounts(usage.amounts, more.amounts))
        reached = (*required, *movers.reachable(fresh, cluster, hotplugged=True))
        return replace(
            start, requirements=reached, pod=replace(pod, load=load + attached), usage=usage, scheduled=start
        )

    def _state(self, vmi: Vmi) -> Iterator[Reachable]:
        """Where the VM's persistent state (TPM, EFI) can be used."""
        state = vmi.state_volume
        if state and state.claim and vmi.domain.has_state:
            yield from movers.reachable_claims({state.name or "": state.claim}, vmi.meta.namespace or "", self._cluster)


def _is_of_vm(vmi: Vmi) -> bool:
    owner = vmi.meta.controller_owner()
    return owner is not None and owner.kind == VM
