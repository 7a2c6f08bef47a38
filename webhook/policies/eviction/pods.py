"""Evictions of virt-launcher pods by the descheduler; those of anybody else are none of our business."""

from __future__ import annotations

from typing import Final

import msgspec

from webhook import names
from webhook.admission.decision import Decision, Denial, Reason, skip
from webhook.admission.wire import Request
from webhook.errors import Unavailable
from webhook.facts import ConfigurationKey, Facts, ListKey, ObjectKey
from webhook.k8s.pods import Eviction
from webhook.kubevirt.launcher import NotLauncher, vmi_owner
from webhook.names import Code
from webhook.placement.launcher_pods import LAUNCHER_PODS, LauncherPod
from webhook.placement.migrations import MIGRATIONS, UNFINISHED, Migration
from webhook.placement.vmis import VMIS, Vmi
from webhook.policies.common import accounts, migration_targets
from webhook.policies.common.no_eligible_node import details, no_node
from webhook.policies.common.required_facts import Unreadable, read
from webhook.policies.eviction import evacuations, pace
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
    """Veto an eviction that could only fail or comes too soon; what virt-api answers better is left to it.

    The rules about strategies and pods are those of virt-api's own admitter (pod-eviction-admitter.go). Nothing comes
    of a veto but the answer, so dry runs need no care.
    """
    if request.operation != "CREATE":
        return skip(Code.OTHER_OPERATION, f"an eviction is judged when it is created, not at {request.operation}")
    requester = eviction.meta.annotation(REQUESTED_BY)
    if requester not in settings.requesters:
        return skip(Code.OTHER_REQUESTER, f"the eviction is not requested by {' or '.join(settings.requesters)}")
    namespace = request.namespace or ""
    try:
        if accounts.is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
            return skip(Code.BY_KUBEVIRT, "KubeVirt itself evicts the pod")
        found = _present_vm(request.name or "", namespace, facts)
        if isinstance(found, Decision):
            return found
        decision = _by_strategy(found, namespace, facts) or _evaluate(found, namespace, facts, settings)
    except Unreadable as error:
        return skip(Code.FACTS_UNREADABLE, error.why, f"kubevirt-webhook did not judge this eviction: {error.why}")
    about = {"vmi": found.meta.name or "", "requester": requester, "why": eviction.meta.annotation(_WHY) or ""}
    return msgspec.structs.replace(decision, details={**about, **decision.details})


def _present_vm(name: str, namespace: str, facts: Facts) -> Vmi | Decision:
    """The VMI that runs in a pod, or why the pod carries none that an eviction could move."""
    pod = read(facts, ObjectKey(LAUNCHER_PODS, namespace, name), f"the pod {name}")
    if pod is None:
        return skip(Code.POD_GONE, f"there is no pod {name}")
    if pod.phase in _OVER:
        return skip(Code.POD_OVER, f"the pod has {pod.phase.lower()}; nothing runs in it")
    owner = vmi_owner(pod)
    if isinstance(owner, NotLauncher):
        return skip(owner.code, owner.text)
    vmi_name = owner.name or ""
    vmi = read(facts, ObjectKey(VMIS, namespace, vmi_name), f"VirtualMachineInstance {namespace}/{vmi_name}")
    if vmi is None:
        return skip(
            Code.VMI_GONE, f"there is no VirtualMachineInstance {namespace}/{vmi_name}; KubeVirt says so better"
        )
    if vmi.meta.uid != owner.uid:
        return skip(Code.VMI_REPLACED, f"the VirtualMachineInstance {namespace}/{vmi_name} is another than the pod's")
    if pod.meta.deletion_timestamp or vmi.meta.deletion_timestamp:
        return skip(Code.BEING_DELETED, "the pod, or what runs in it, is being deleted already")
    return vmi if _runs_in(vmi, pod) else skip(Code.NOT_ITS_POD, "the VM does not run in this pod, but migrates")


def _runs_in(vmi: Vmi, pod: LauncherPod) -> bool:
    node = vmi.status.node_name if vmi.status else None
    return bool(node) and node == pod.node_name


def _by_strategy(vmi: Vmi, namespace: str, facts: Facts) -> Decision | None:
    """The answer where the eviction leads to no migration by KubeVirt, or to one that is under way."""
    strategy = vmi.spec.eviction_strategy if vmi.spec else None
    if strategy is None:
        configuration = read(facts, ConfigurationKey(), "KubeVirt's configuration")
        if configuration is None:
            return skip(Code.KUBEVIRT_ABSENT, "the cluster has no KubeVirt object, so nothing says what evictions do")
        strategy = configuration.eviction_strategy
    place = f"{namespace}/{vmi.meta.name}"
    if strategy == _EXTERNAL:
        return skip(Code.EXTERNAL, f"somebody else than KubeVirt moves VM {place} (eviction strategy {_EXTERNAL})")
    if strategy == _NONE:
        return _goes_down(place, f"its eviction strategy is {_NONE}")
    if strategy not in (_MIGRATE, _MIGRATE_IF_POSSIBLE):
        return skip(Code.UNKNOWN_STRATEGY, f"the eviction strategy {strategy} of VM {place} is not known here")
    if not vmi.migratable:
        if strategy == _MIGRATE_IF_POSSIBLE:
            return _goes_down(place, f"it can't be live-migrated (eviction strategy {_MIGRATE_IF_POSSIBLE})")
        return skip(Code.NOT_MIGRATABLE, f"VM {place} can't be live-migrated; KubeVirt refuses its eviction")
    if vmi.status and vmi.status.evacuation_node_name:
        return skip(Code.EVACUATING, f"VM {place} is being evacuated already")
    return None


def _goes_down(place: str, why: str) -> Decision:
    text = f"this eviction shuts VM {place} down: {why}"
    return skip(Code.GOES_DOWN, text, f"kubevirt-webhook: {text}")


def _evaluate(vmi: Vmi, namespace: str, facts: Facts, settings: EvictionSettings) -> Decision:
    """The answer where KubeVirt would migrate the VM."""
    name = vmi.meta.name or ""
    if hopeless := _veto(Code.NAME_TOO_LONG, migration_targets.unnameable(name)):
        return hopeless
    key = ListKey(MIGRATIONS, namespace, f"{names.VMI_NAME_LABEL}={name}")
    migrations = read(facts, key, "the VM's migrations") or ()
    own = [one for one in migrations if one.meta.namespace == namespace and one.vmi_name == name]
    if any(one.is_unfinished for one in own):
        return skip(Code.EVACUATING, f"VM {namespace}/{name} is being migrated already")
    veto = _veto(Code.BLACKOUT, pace.blackout(settings.blackouts, facts.now)) or _veto(
        Code.COOLING_DOWN, pace.cool_down(own, facts.now, settings)
    )
    if veto:
        return veto
    capped, doubt = _too_many(namespace, facts, settings)
    return _veto(Code.TOO_MANY_EVACUATIONS, capped) or _with_doubt(_evaluate_placement(vmi, namespace, facts), doubt)


def _evaluate_placement(vmi: Vmi, namespace: str, facts: Facts) -> Decision:
    """The answer by the nodes that could take the VM."""
    verdict = migration_targets.of(vmi, namespace, facts).review(facts)
    if not verdict.count:
        refusal = _veto(Code.NO_ELIGIBLE_NODE, no_node(verdict))
        assert refusal
        return msgspec.structs.replace(refusal, details=details(verdict))
    text = f"{verdict.count} of {verdict.total} nodes are eligible"
    return Decision((Reason(Code.ELIGIBLE, text),), notes={"eligible-nodes": str(verdict.count)})


def _too_many(namespace: str, facts: Facts, settings: EvictionSettings) -> tuple[str | None, str | None]:
    """Which cap is reached, None where none is, and why the cluster's could not be looked at.

    No VMI is read where no more evacuations are claimed than the caps allow.
    """
    caps = [cap for cap in (settings.max_per_namespace, settings.max_per_cluster) if cap]
    if not caps:
        return None, None
    unfinished: tuple[Migration, ...] | Unavailable | None = None
    doubt = None
    if settings.max_per_cluster:
        unfinished = facts.get(ListKey(UNFINISHED, ""))
        if isinstance(unfinished, Unavailable):
            # Any tenant's migrations may be too large for a list. What can still be judged is.
            doubt = f"maxPerCluster was not applied: the cluster's migrations can't be read: {unfinished.why}"
            settings = msgspec.structs.replace(settings, max_per_cluster=0)
    if not settings.max_per_cluster and settings.max_per_namespace:
        unfinished = read(facts, ListKey(UNFINISHED, namespace), "the namespace's migrations")
    claimed = () if isinstance(unfinished, Unavailable) else evacuations.claimed_evacuations(unfinished or ())
    if len(claimed) < min(caps):
        return None, doubt
    return pace.too_many(evacuations.count_evacuations(claimed, max(caps), facts), namespace, settings), doubt


def _with_doubt(decision: Decision, doubt: str | None) -> Decision:
    """The decision with what it could not take into account."""
    if doubt is None:
        return decision
    reasons = (*decision.reasons, Reason(Code.FACTS_UNREADABLE, doubt))
    warnings = (*decision.warnings, f"kubevirt-webhook: {doubt}")
    return msgspec.structs.replace(decision, reasons=reasons, warnings=warnings)


def _veto(code: str, why: str | None) -> Decision | None:
    """A refusal that asks to try later. KubeVirt's own texts, for which the descheduler looks, are never used."""
    return Decision((Reason(code, why),), denial=Denial(429, why)) if why else None
