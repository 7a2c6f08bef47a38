"""What an eviction of a VM's pod leads to, before any node is looked for.

The rules are those of virt-api (pod-eviction-admitter.go) and of the API server, which obeys PodDisruptionBudgets only
where virt-api lets an eviction through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from webhook.errors import quote
from webhook.forecast.drain import report
from webhook.forecast.drain.selectors import PodSelector, expressions_of
from webhook.forecast.drain.snapshot import World, place_of
from webhook.forecast.drain.views import ConstrainedPod, PodDisruptionBudget
from webhook.placement import syntax
from webhook.placement.migrations import Migration
from webhook.placement.vmis import Vmi
from webhook.policies.common import migration_targets

_NONE: Final = "None"
_MIGRATE: Final = "LiveMigrate"
_MIGRATE_IF_POSSIBLE: Final = "LiveMigrateIfPossible"
_EXTERNAL: Final = "External"
_MIGRATABLE: Final = "LiveMigratable"


class Fate(msgspec.Struct, frozen=True):
    """What becomes of a VM whose pod is evicted.

    Attributes:
        outcome: one of the outcomes of `webhook.forecast.drain.report`; ``moves`` means: if there is a node.
        code: why, for programs.
        reason: why, a clause.
        notes: what may come in between, clauses.
    """

    outcome: str
    code: str
    reason: str = ""
    notes: tuple[str, ...] = ()


def fate_of(vmi: Vmi, world: World) -> Fate:
    """What becomes of a running VM when the pod that it runs in is evicted."""
    own = vmi.spec.eviction_strategy if vmi.spec else None
    strategy = own or world.snapshot.kubevirt.eviction_strategy
    origin = "its evictionStrategy" if own else "KubeVirt's evictionStrategy for VMs that have none"
    if strategy == _NONE:
        return _shut_down(vmi, world, report.STRATEGY_NONE, f"{origin} is None")
    if strategy == _EXTERNAL:
        reason = f"{origin} is External: KubeVirt only marks it, and waits for another controller to move it"
        return Fate(report.BLOCKS, report.EXTERNAL_STRATEGY, reason)
    if strategy not in (_MIGRATE, _MIGRATE_IF_POSSIBLE):
        return Fate(report.BLOCKS, report.UNKNOWN_STRATEGY, f"{origin} is {quote(strategy)}, which is not known here")
    if not vmi.migratable:
        why = f"it cannot be live-migrated{_because(vmi)}"
        if strategy == _MIGRATE_IF_POSSIBLE:
            return _shut_down(vmi, world, report.NOT_MIGRATABLE_IF_POSSIBLE, f"{why}, and {origin} is {strategy}")
        return Fate(report.BLOCKS, report.NOT_MIGRATABLE, f"{why}, and {origin} is {strategy}")
    return _migrate(vmi, world)


def budget_problem(pod: ConstrainedPod, budgets: Iterable[PodDisruptionBudget]) -> str:
    """Why PodDisruptionBudgets do not allow the eviction of a pod now, a clause; empty where they do."""
    labels = pod.meta.labels or {}
    found = [each for each in budgets if _covers(each, pod.meta.namespace or "", labels)]
    names = ", ".join(each.meta.name or "" for each in found)
    if len(found) > 1:
        return f"{len(found)} PodDisruptionBudgets select its pod ({names}), which the API server does not support"
    if found and found[0].allowed < 1:
        return f"PodDisruptionBudget {names} allows no disruption now"
    return ""


def _covers(budget: PodDisruptionBudget, namespace: str, labels: dict[str, str]) -> bool:
    if (budget.meta.namespace or "") != namespace:
        return False
    expressions = expressions_of(budget.spec.selector if budget.spec else None)
    return PodSelector(None, expressions).matches(namespace, labels)


def _because(vmi: Vmi) -> str:
    """Why KubeVirt calls a VM not migratable, to follow a clause."""
    condition = vmi.condition(_MIGRATABLE)
    if condition is None:
        return " (KubeVirt has not written whether it can)"
    parts = ": ".join(part for part in (condition.reason, condition.message) if part)
    return f" ({parts})" if parts else ""


def _shut_down(vmi: Vmi, world: World, code: str, reason: str) -> Fate:
    pod = world.pod_of(vmi)
    problem = budget_problem(pod, world.budgets.get(vmi.meta.namespace or "", ())) if pod else ""
    if problem:
        return Fate(report.BLOCKS, report.DISRUPTION_BUDGET, f"{reason}, but {problem}")
    return Fate(report.SHUTS_DOWN, code, reason)


def _migrate(vmi: Vmi, world: World) -> Fate:
    if problem := migration_targets.name_problem(vmi.meta.name or ""):
        return Fate(report.BLOCKS, report.NAME_TOO_LONG, problem)
    kubevirt = world.snapshot.kubevirt
    for limit, field in (
        (kubevirt.parallel_migrations, "parallelMigrationsPerCluster"),
        (kubevirt.outbound_migrations, "parallelOutboundMigrationsPerNode"),
    ):
        if limit < 1:
            return Fate(report.BLOCKS, report.NO_MIGRATIONS, f"KubeVirt's {field} is {limit}, so no migration begins")
    if kubevirt.migration_timeout_seconds_per_gib < 0:
        reason = "KubeVirt's completionTimeoutPerGiB is negative, so it aborts every migration"
        return Fate(report.BLOCKS, report.NO_MIGRATIONS, reason)
    unfinished = [each for each in world.unfinished.get(place_of(vmi), ()) if not each.sends]
    for each in unfinished:
        for key, value in each.added_selector.items():
            if problem := _label_problem(key, value):
                name = each.meta.name or ""
                reason = f"migration {name} never ends ({problem}), and KubeVirt begins no other; delete it"
                return Fate(report.BLOCKS, report.MIGRATION_STUCK, reason)
    terms = migration_targets.holding_back(vmi, kubevirt)
    return Fate(report.MOVES, report.MIGRATES, notes=tuple(_notes(terms, unfinished)))


def _label_problem(key: str, value: str) -> str:
    """Why no pod can have a node selector with this label."""
    if problem := syntax.key_problem(key):
        return f"its addedNodeSelector has the key {quote(key)}, which {problem}"
    if problem := syntax.value_problem(value):
        return f"its addedNodeSelector has the value {quote(value)}, which {problem}"
    return ""


def _notes(terms: Sequence[str], unfinished: list[Migration]) -> Iterator[str]:
    for each in unfinished:
        yield f"migration {each.meta.name or ''} of it has not ended; it is evacuated afterwards"
    if migration_targets.DURING_BACKUP in terms:
        yield "its backup runs, which holds migrations back, or which the evacuation ends"
