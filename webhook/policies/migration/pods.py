"""Target pods: the AND where it cannot be lost, whichever way the migration was admitted.

Each added key becomes an expression in *every* required term of the pod's node affinity: terms are ORed, so that one
more term would widen what it should narrow. There no key can collide, nothing is copied to later migrations (KubeVirt
copies from the node selector only), and it holds also where the migration was created while no replica answered. A
target pod is never denied: one that fits nowhere stays Pending, and KubeVirt ends its migration cleanly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from webhook import names
from webhook.admission.decision import Change, Decision, Reason, allow
from webhook.admission.reasons import common
from webhook.admission.step_budget import spend
from webhook.admission.wire import Request
from webhook.facts import Facts, ObjectKey, Unreadable
from webhook.k8s.types.core import TargetPod
from webhook.k8s.types.scheduling import REQUIRED
from webhook.k8s.types.selectors import find_malformed
from webhook.kubevirt.launcher import vmi_owner
from webhook.placement.machines import JOB_NAME, JOB_UID, MIGRATIONS, Migration
from webhook.placement.nodes import CPU_VENDOR, HOSTNAME, reserved_keys
from webhook.placement.requirements import Label, Origin, Requirements
from webhook.placement.target_pods import is_sticky_label
from webhook.policies.common import migration_targets
from webhook.policies.common.migration_targets import Target
from webhook.policies.common.required_facts import is_kubevirts, read
from webhook.policies.migration import reasons
from webhook.policies.migration.inbound import Limit, Receiving, Unbound, limit, may_reach, receiving
from webhook.policies.migration.settings import MigrationSettings
from webhook.text import abbreviate

_TERMS: Final = (
    *("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
    "nodeSelectorTerms",
)
_APART: Final = ("spec", "affinity", "podAntiAffinity", REQUIRED)
_SELECTOR: Final = ("spec", "nodeSelector")

# A key is checked, compared and written; an expression of the pod is compared and copied.
_KEY_STEPS: Final = 4
_EXPRESSION_STEPS: Final = 2

Json = dict[str, Any]


async def constrain_pod(
    pod: TargetPod, request: Request[TargetPod], facts: Facts, settings: MigrationSettings
) -> Decision:
    """Constrain a migration's target pod to what the migration adds."""
    if request.operation != "CREATE":
        return allow(common.other_operation(request.operation))
    owner = vmi_owner(pod)
    if isinstance(owner, Reason):
        return allow(owner)
    uid, name = pod.meta.label(JOB_UID), pod.meta.annotation(JOB_NAME)
    if not uid or not name:
        return allow(reasons.not_a_target)
    namespace = request.namespace or ""
    try:
        if not await is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
            return allow(common.not_created_by_kubevirt(request.user_info.username))
        migration = await read(facts, ObjectKey(MIGRATIONS, namespace, name), f"the migration {name}")
        if migration is None or migration.meta.uid != uid:
            return allow(reasons.migration_not_found(name))
        if not migration.added_selector and not settings.max_inbound_per_node:
            return allow(reasons.nothing_to_constrain(name))
    except Unreadable as error:
        return allow(common.lookup_failed("the target pod was not constrained", error.why), warn=True)
    unsure: list[Reason] = []
    most = settings.max_inbound_per_node
    found = await _receiving(migration, facts, unsure) if most else Receiving()
    is_close = bool(most) and may_reach(found, most)
    target: Target | None = None
    if is_close or reserved_keys(migration.added_selector):
        # Last, since nodes may change while anything is read.
        try:
            target = await migration_targets.find(namespace, owner.name or "", facts, migration)
        except Unreadable as error:
            # What is added holds all the same.
            unsure += [reasons.inbound_unknown(error.why)] if is_close else []
            unsure += [reasons.requirements_unknown(error.why)] if migration.added_selector else []
    inbound = limit(found, target, most) if is_close and target else Limit()
    if inbound.exceeds:
        unsure.append(reasons.inbound_exceeded(most))
    return _constrain(pod, migration, target.requirements if target else (), settings, inbound, tuple(unsure))


async def _receiving(migration: Migration, facts: Facts, unsure: list[Reason]) -> Receiving:
    """The migrations that are under way; none where that is not known."""
    try:
        return await receiving(migration, facts)
    except Unreadable as error:
        unsure.append(reasons.inbound_unknown(error.why))
        return Receiving()


def _constrain(
    pod: TargetPod,
    migration: Migration,
    requirements: Requirements,
    settings: MigrationSettings,
    inbound: Limit,
    unsure: tuple[Reason, ...],
) -> Decision:
    spend(_KEY_STEPS * len(migration.added_selector), "keys that the migration adds")
    selector = (pod.spec.node_selector if pod.spec else None) or {}
    malformed = {key for key, value in migration.added_selector.items() if find_malformed({key: value}, "")}
    requested = {
        key: value
        for key, value in migration.added_selector.items()
        # The API server denies the pod for a malformed one in any case.
        if key not in malformed and (settings.collision != "ignore" or selector.get(key, value) == value)
    }
    expressions = [_equals(key, value) for key, value in requested.items()]
    if any(key.startswith(CPU_VENDOR) for key in migration.added_selector):
        # KubeVirt takes the user's key for its own rule, which keeps a VM on its CPU vendor.
        vendor_labels = (each for each in requirements if isinstance(each, Label) and each.origin == Origin.VENDOR)
        expressions += [_equals(each.expression.key, each.expression.values[0]) for each in vendor_labels]
    left_out = [{"key": HOSTNAME, "operator": "NotIn", "values": [*inbound.hostnames]}] if inbound.hostnames else []
    changes = [
        *_terms(pod, [*expressions, *left_out]),
        *_apart(pod, inbound.apart, migration.meta.namespace),
        *_remove_stuck_keys(selector, migration.added_selector, requirements),
    ]
    labels = ", ".join(f"{key}={value}" for key, value in requested.items())
    if not changes:
        done = (
            reasons.already_constrained(labels)
            if migration.added_selector
            else reasons.nothing_to_constrain(migration.meta.name or "")
        )
        return Decision((done, *unsure), warnings=unsure)
    made = [reasons.constrained(labels, migration.meta.name or "")] if migration.added_selector else []
    notes = {"added-node-selector": labels} if migration.added_selector else {}
    if inbound.hostnames or inbound.apart:
        made.append(reasons.inbound_limited(inbound.hostnames, len(inbound.apart), settings.max_inbound_per_node))
        notes |= {"left-out-nodes": abbreviate(inbound.hostnames)} if inbound.hostnames else {}
        changes = [replace(change, reason=made[0].code) for change in changes]
    return Decision((*made, *unsure), tuple(changes), warnings=unsure, notes=notes)


def _equals(key: str, value: str) -> Json:
    return {"key": key, "operator": "In", "values": [value]}


def _apart(pod: TargetPod, others: Sequence[Unbound], namespace: str | None) -> list[Change]:
    """The required pod anti-affinity with one more term: not on a node with the target pods of other migrations."""
    if not others:
        return []
    spaces = sorted({each.namespace for each in others})
    expression = {"key": JOB_UID, "operator": "In", "values": [each.uid for each in others]}
    term: Json = {"labelSelector": {"matchExpressions": [expression]}, "topologyKey": HOSTNAME}
    if spaces != [namespace]:
        # Without any, it is the pod's own; a quota may limit who names others (CrossNamespacePodAffinity).
        term["namespaces"] = spaces
    present = pod.apart or []
    return [] if term in present else [Change(_APART, pod.apart, [*present, term], reasons.INBOUND_LIMITED)]


def _terms(pod: TargetPod, expressions: list[Json]) -> list[Change]:
    """Every term with all expressions that it lacks; empty terms, which match nothing, stay empty."""
    terms = pod.terms
    if terms is None:
        return [Change(_TERMS, None, [{"matchExpressions": expressions}], reasons.CONSTRAINED)] if expressions else []
    spend(len(terms) * (1 + len(expressions)), "nodeSelectorTerms, each with all that the migration adds,")
    new = [_term(term, expressions) for term in terms]
    return [Change(_TERMS, terms, new, reasons.CONSTRAINED)] if new != terms else []


def _term(term: Json, expressions: list[Json]) -> Json:
    present = term.get("matchExpressions") or []
    if not isinstance(present, list) or not (present or term.get("matchFields")):
        return term
    spend(_EXPRESSION_STEPS * len(present), "expressions of the node affinity")
    there = {_canonical(expression) for expression in present}
    missing = [expression for expression in expressions if _canonical(expression) not in there]
    return {**term, "matchExpressions": [*present, *missing]} if missing else term


def _canonical(expression: Any) -> tuple[str, str, tuple[str, ...]] | None:
    """What an expression of this module requires; None of any other."""
    match expression:
        case {"key": str(key), "operator": "In", "values": [str(value)], **rest} if not rest:
            return key, "In", (value,)
        case {"key": str(key), "operator": "NotIn", "values": [*values], **rest} if not rest:
            return key, "NotIn", tuple(map(str, values))
    return None


def _remove_stuck_keys(selector: dict[str, str], added: dict[str, str], requirements: Requirements) -> list[Change]:
    """The node selector without the CPU keys that only this migration adds: its affinity has them this once."""
    required = {item.expression.key for item in requirements if isinstance(item, Label) and item.origin != Origin.ADDED}
    stuck = {key for key in added if key in selector and is_sticky_label(key) and key not in required}
    if not stuck or not requirements:
        return []
    kept = {key: value for key, value in selector.items() if key not in stuck}
    return [Change(_SELECTOR, selector, kept, reasons.CONSTRAINED)]
