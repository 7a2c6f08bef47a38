"""Target pods: the AND where it can't be lost, whoever admitted the migration.

Each added key becomes an expression in *every* required term of the pod's node affinity: terms are ORed, so that one
more term would widen what it should narrow. There no key can collide, nothing is carried over to later migrations
(KubeVirt copies from the node selector only), and it holds also where the migration was created while we were away.
A target pod is never refused: one that fits nowhere stays Pending, and KubeVirt ends its migration cleanly.
"""

from __future__ import annotations

from typing import Any, Final

from webhook import names
from webhook.admission.decision import Change, Decision, Reason, skip
from webhook.admission.wire import Request
from webhook.facts import Facts, ObjectKey
from webhook.k8s.pods import TargetPod
from webhook.kubevirt.launcher import NotLauncher, vmi_owner
from webhook.names import Code
from webhook.placement import generated, syntax
from webhook.placement.migrations import MIGRATIONS, Migration
from webhook.placement.requirement import ADDED, VENDOR, Label, Requirements
from webhook.policies.common import accounts, migration_targets
from webhook.policies.common.migration_targets import JOB_NAME, JOB_UID
from webhook.policies.common.required_facts import Unreadable, read
from webhook.settings.snapshot import MigrationSettings
from webhook.work import spend

_TERMS: Final = (
    *("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
    "nodeSelectorTerms",
)
_SELECTOR: Final = ("spec", "nodeSelector")

# A key is checked, compared and written; an expression of the pod is compared and copied.
_KEY_STEPS: Final = 4
_EXPRESSION_STEPS: Final = 2

Json = dict[str, Any]


def pods(pod: TargetPod, request: Request[TargetPod], facts: Facts, settings: MigrationSettings) -> Decision:
    """Constrain a migration's target pod to what the migration adds."""
    if request.operation != "CREATE":
        return skip(Code.OTHER_OPERATION, f"a pod's affinity can't change after CREATE ({request.operation})")
    owner = vmi_owner(pod)
    if isinstance(owner, NotLauncher):
        return skip(owner.code, owner.text)
    uid, name = pod.meta.label(JOB_UID), pod.meta.annotation(JOB_NAME)
    if not uid or not name:
        return skip(Code.NOT_A_TARGET, "the pod is no target of a migration")
    namespace = request.namespace or ""
    try:
        if not accounts.is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
            return skip(Code.NOT_CONTROLLER, f"{request.user_info.username} made the pod, not KubeVirt")
        migration = read(facts, ObjectKey(MIGRATIONS, namespace, name), f"the migration {name}")
        if migration is None or migration.meta.uid != uid:
            return skip(Code.MIGRATION_GONE, f"the migration {name} of this pod is gone")
        if not migration.added_selector:
            return skip(Code.NOTHING_ADDED, f"the migration {name} adds no node selector")
    except Unreadable as error:
        return skip(
            Code.FACTS_UNREADABLE, error.why, f"kubevirt-webhook did not constrain this target pod: {error.why}"
        )
    requirements: Requirements = ()
    unsure: tuple[str, ...] = ()
    if syntax.reserved_keys(migration.added_selector):
        try:
            target = migration_targets.find(namespace, owner.name or "", facts, migration)
            requirements = target.requirements if target else ()
        except Unreadable as error:
            # What is added holds all the same.
            unsure = (f"what KubeVirt's guards would require of this target pod is not known: {error.why}",)
    return _constrain(pod, migration, requirements, settings, unsure)


def _constrain(
    pod: TargetPod,
    migration: Migration,
    requirements: Requirements,
    settings: MigrationSettings,
    unsure: tuple[str, ...],
) -> Decision:
    spend(_KEY_STEPS * len(migration.added_selector), "keys that the migration adds")
    selector = (pod.spec.node_selector if pod.spec else None) or {}
    malformed = {key for key, value in migration.added_selector.items() if syntax.find_malformed({key: value}, "")}
    wanted = {
        key: value
        for key, value in migration.added_selector.items()
        # The API server refuses the pod for a malformed one in any case.
        if key not in malformed and (settings.collision != "ignore" or selector.get(key, value) == value)
    }
    expressions = [_equals(key, value) for key, value in wanted.items()]
    if any(key.startswith(generated.CPU_VENDOR) for key in migration.added_selector):
        # KubeVirt takes the user's key for its guard, which keeps a VM on its CPU vendor.
        guards = [item.expression for item in requirements if isinstance(item, Label) and item.origin == VENDOR]
        expressions += [_equals(guard.key, guard.values[0]) for guard in guards]
    changes = [*_terms(pod, expressions), *_unstuck(selector, migration.added_selector, requirements)]
    said = ", ".join(f"{key}={value}" for key, value in wanted.items())
    doubts = [Reason(Code.FACTS_UNREADABLE, why) for why in unsure]
    warnings = tuple(f"kubevirt-webhook: {why}" for why in unsure)
    if not changes:
        text = f"the pod requires {said} already" if said else "nothing is left of what the migration adds"
        already = Reason(Code.ALREADY_CONSTRAINED, text)
        return Decision((already, *doubts), warnings=warnings)
    text = f"the pod is held to what the migration {migration.meta.name} adds: {said}"
    constrained = Reason(Code.CONSTRAINED, text)
    return Decision((constrained, *doubts), tuple(changes), warnings=warnings, notes={"added-node-selector": said})


def _equals(key: str, value: str) -> Json:
    return {"key": key, "operator": "In", "values": [value]}


def _terms(pod: TargetPod, expressions: list[Json]) -> list[Change]:
    """Every term with all expressions that it lacks; empty terms, which match nothing, stay empty."""
    terms = pod.terms
    if terms is None:
        return [Change(_TERMS, None, [{"matchExpressions": expressions}], Code.CONSTRAINED)] if expressions else []
    spend(len(terms) * (1 + len(expressions)), "nodeSelectorTerms, each with all that the migration adds,")
    new = [_term(term, expressions) for term in terms]
    return [Change(_TERMS, terms, new, Code.CONSTRAINED)] if new != terms else []


def _term(term: Json, expressions: list[Json]) -> Json:
    present = term.get("matchExpressions") or []
    if not isinstance(present, list) or not (present or term.get("matchFields")):
        return term
    spend(_EXPRESSION_STEPS * len(present), "expressions of the node affinity")
    there = {_label(expression) for expression in present}
    missing = [expression for expression in expressions if _label(expression) not in there]
    return {**term, "matchExpressions": [*present, *missing]} if missing else term


def _label(expression: Any) -> tuple[str, str] | None:
    """The label that an expression of `_equals` requires; None of any other."""
    match expression:
        case {"key": str(key), "operator": "In", "values": [str(value)], **rest} if not rest:
            return key, value
    return None


def _unstuck(selector: dict[str, str], added: dict[str, str], requirements: Requirements) -> list[Change]:
    """The node selector without CPU keys that only this migration asks for: its affinity holds them this once."""
    required = {item.expression.key for item in requirements if isinstance(item, Label) and item.origin != ADDED}
    stuck = {key for key in added if key in selector and generated.sticky(key) and key not in required}
    if not stuck or not requirements:
        return []
    kept = {key: value for key, value in selector.items() if key not in stuck}
    return [Change(_SELECTOR, selector, kept, Code.CONSTRAINED)]
