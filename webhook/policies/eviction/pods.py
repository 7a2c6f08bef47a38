"""Evictions of virt-launcher pods by the descheduler; those of other clients are skipped."""

from __future__ import annotations

from typing import Final

import msgspec

from webhook import names
from webhook.admission.decision import Decision, Denial, Reason, skip
from webhook.admission.wire import Request
from webhook.errors import Unavailable
from webhook.facts import Facts, ListKey, ObjectKey
from webhook.k8s.pods import Eviction
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.launcher import NotLauncher, vmi_owner
from webhook.kubevirt.releases.release import MIGRATION_QUEUE
from webhook.placement.machines import LAUNCHER_PODS, MIGRATIONS, UNFINISHED, VMIS, LauncherPod, Migration, Vmi
from webhook.policies.common import accounts, migration_targets
from webhook.policies.common import messages as common
from webhook.policies.common.no_eligible_node import details, no_node
from webhook.policies.common.required_facts import Unreadable, read, read_configuration
from webhook.policies.eviction import evacuations, messages, pace
from webhook.settings.snapshot import EvictionSettings

# What the descheduler writes into the Evictions that it sends.
REQUESTED_BY: Final = "requested-by"
_WHY: Final = "reason"

_OVER: Final = ("Succeeded", "Failed")

_NONE: Final = "None"
_MIGRATE: Final = "LiveMigrate"
_MIGRATE_IF_POSSIBLE: Final = "LiveMigrateIfPossible"
_EXTERNAL: Final = "External"


def pods(eviction: Eviction, request: Request[Eviction], facts: Facts, settings: EvictionSettings) -> Decision:
    """Deny an eviction that could only fail or comes too soon; what virt-api answers better is left to it.

    The rules about strategies and pods are those of virt-api's own admitter (pod-eviction-admitter.go). Nothing comes
    of a denial but the answer, so dry runs need no care.
    """
    if request.operation != "CREATE":
        return skip(common.other_operation(request.operation))
    requester = eviction.meta.annotation(REQUESTED_BY)
    if requester not in settings.requesters:
        return skip(messages.other_requester(settings.requesters))
    namespace = request.namespace or ""
    try:
        if accounts.is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
            return skip(messages.by_kubevirt())
        vmi = _present_vm(request.name or "", namespace, facts)
        if isinstance(vmi, Decision):
            return vmi
        decision = _by_strategy(vmi, namespace, facts) or _evaluate(vmi, namespace, facts, settings)
    except Unreadable as error:
        return skip(common.lookup_failed("the eviction was not evaluated", error.why), warn=True)
    about = {"vmi": vmi.meta.name or "", "requester": requester, "why": eviction.meta.annotation(_WHY) or ""}
    return msgspec.structs.replace(decision, details={**about, **decision.details})


def _present_vm(name: str, namespace: str, facts: Facts) -> Vmi | Decision:
    """The VMI that runs in a pod, or why the pod carries none that an eviction could move."""
    pod = read(facts, ObjectKey(LAUNCHER_PODS, namespace, name), f"the pod {name}")
    if pod is None:
        return skip(messages.pod_not_found(name))
    if pod.phase in _OVER:
        return skip(messages.pod_completed(pod.phase))
    owner = vmi_owner(pod)
    if isinstance(owner, NotLauncher):
        return skip(common.not_a_launcher_pod(owner))
    vmi_name = owner.name or ""
    vmi = read(facts, ObjectKey(VMIS, namespace, vmi_name), f"VirtualMachineInstance {namespace}/{vmi_name}")
    if vmi is None:
        return skip(common.vmi_not_found(namespace, vmi_name))
    if vmi.meta.uid != owner.uid:
        return skip(common.vmi_replaced(namespace, vmi_name))
    if pod.meta.deletion_timestamp or vmi.meta.deletion_timestamp:
        return skip(messages.being_deleted())
    return vmi if _runs_in(vmi, pod) else skip(messages.not_the_current_pod())


def _runs_in(vmi: Vmi, pod: LauncherPod) -> bool:
    node = vmi.status.node_name if vmi.status else None
    return bool(node) and node == pod.node_name


def _by_strategy(vmi: Vmi, namespace: str, facts: Facts) -> Decision | None:
    """The answer where the eviction leads to no migration by KubeVirt, or to one that is under way."""
    strategy = vmi.spec.eviction_strategy if vmi.spec else None
    if strategy is None:
        configuration = read_configuration(facts)
        if configuration is None:
            return skip(messages.no_configuration())
        strategy = configuration.eviction_strategy
    place = f"{namespace}/{vmi.meta.name}"
    if strategy == _EXTERNAL:
        return skip(messages.external_strategy(place))
    if strategy == _NONE:
        return skip(messages.will_stop(place, messages.strategy_none()), warn=True)
    if strategy not in (_MIGRATE, _MIGRATE_IF_POSSIBLE):
        return skip(messages.unknown_strategy(place, strategy))
    if not vmi.migratable:
        if strategy == _MIGRATE_IF_POSSIBLE:
            return skip(messages.will_stop(place, messages.strategy_if_possible()), warn=True)
        return skip(messages.not_migratable(place))
    if vmi.status and vmi.status.evacuation_node_name:
        return skip(messages.already_evacuating(place))
    return None


def _evaluate(vmi: Vmi, namespace: str, facts: Facts, settings: EvictionSettings) -> Decision:
    """The answer where KubeVirt would migrate the VM."""
    name = vmi.meta.name or ""
    if problem := migration_targets.name_problem(name):
        return _deny(messages.name_too_long(problem))
    key = ListKey(MIGRATIONS, namespace, f"{names.VMI_NAME_LABEL}={name}")
    migrations = read(facts, key, "the VM's migrations") or ()
    own = [
        migration for migration in migrations if migration.meta.namespace == namespace and migration.vmi_name == name
    ]
    if any(migration.is_unfinished for migration in own):
        return skip(messages.already_evacuating(f"{namespace}/{name}"))
    too_soon = pace.blackout(settings.blackouts, facts.now) or pace.cool_down(own, facts.now, settings)
    if too_soon:
        return _deny(too_soon)
    if terms := migration_targets.holding_back(vmi, read_configuration(facts) or DEFAULTS):
        return _deny(messages.held_back(terms))
    capped, doubt = _reached_cap(namespace, facts, settings)
    return _deny(capped) if capped else _add_doubt(_evaluate_placement(vmi, namespace, facts), doubt)


def _evaluate_placement(vmi: Vmi, namespace: str, facts: Facts) -> Decision:
    """The answer by the nodes that could take the VM."""
    eligibility = migration_targets.of(vmi, namespace, facts).review(facts)
    if not eligibility.count:
        return msgspec.structs.replace(_deny(no_node(eligibility)), details=details(eligibility))
    return Decision(
        (common.eligible(eligibility.count, eligibility.total),), notes={"eligible-nodes": str(eligibility.count)}
    )


def _reached_cap(namespace: str, facts: Facts, settings: EvictionSettings) -> tuple[Reason | None, Reason | None]:
    """Which cap is reached, None where none is, and why the cluster's could not be looked at.

    No VMI is read where no more evacuations are claimed than the caps allow.
    """
    if not settings.max_per_namespace and not settings.max_per_cluster:
        return None, None
    settings = _visible_caps(settings, facts)
    caps = [cap for cap in (settings.max_per_namespace, settings.max_per_cluster) if cap]
    unfinished: tuple[Migration, ...] | Unavailable | None = None
    doubt = None
    if settings.max_per_cluster:
        unfinished = facts.get(ListKey(UNFINISHED, ""))
        if isinstance(unfinished, Unavailable):
            # Any tenant's migrations may be too large for a list. What can still be evaluated is.
            doubt = messages.cap_not_applied(unfinished.why)
            settings = msgspec.structs.replace(settings, max_per_cluster=0)
    if not settings.max_per_cluster and settings.max_per_namespace:
        unfinished = read(facts, ListKey(UNFINISHED, namespace), "the namespace's migrations")
    claimed = () if isinstance(unfinished, Unavailable) else evacuations.claimed_evacuations(unfinished or ())
    if len(claimed) < min(caps):
        return None, doubt
    return pace.too_many(evacuations.count_evacuations(claimed, max(caps), facts), namespace, settings), doubt


def _visible_caps(settings: EvictionSettings, facts: Facts) -> EvictionSettings:
    """The caps as far as migrations show how many VMs are being evacuated.

    Without a queue of migrations, up to 1.8, KubeVirt creates no more of them than run at the same time. A VM that it
    is to evacuate beyond that has none yet, so a larger cap would never be reached.
    """
    configuration = read_configuration(facts) or DEFAULTS
    if configuration.is_gate_open(MIGRATION_QUEUE):
        return settings
    visible = max(1, configuration.parallel_migrations)
    return msgspec.structs.replace(
        settings,
        max_per_namespace=min(settings.max_per_namespace, visible),
        max_per_cluster=min(settings.max_per_cluster, visible),
    )


def _add_doubt(decision: Decision, doubt: Reason | None) -> Decision:
    """The decision with what it could not take into account."""
    if doubt is None:
        return decision
    reasons, warnings = (*decision.reasons, doubt), (*decision.warnings, doubt)
    return msgspec.structs.replace(decision, reasons=reasons, warnings=warnings)


def _deny(reason: Reason) -> Decision:
    """A denial after which clients may retry. KubeVirt's own texts, for which the descheduler looks, are not used."""
    return Decision((reason,), denial=Denial(429, reason.text))
