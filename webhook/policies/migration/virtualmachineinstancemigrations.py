"""Migrations when they are created: what cannot work is denied, with counts, reasons and their origins."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.decision import Decision, Denial, FieldCause, Reason, allow, deny
from webhook.admission.reasons import common
from webhook.admission.wire import Request, UserInfo
from webhook.facts import AccessKey, Facts, Key, ListKey, Unreadable
from webhook.k8s.types.selectors import find_malformed
from webhook.placement.eligibility import Eligibility
from webhook.placement.machines import UNFINISHED, WORKLOAD_UPDATE, Migration
from webhook.placement.nodes import reserved_keys
from webhook.placement.requirements import Contradiction, Origin, contradictions, without_dropped
from webhook.policies.common import migration_targets
from webhook.policies.common.migration_targets import Lacking, Target, availability, cpu_problem, details, no_node
from webhook.policies.common.required_facts import is_kubevirts, read
from webhook.policies.migration import reasons
from webhook.policies.migration.settings import MigrationSettings

# The virtual permission to choose a VM's node: RBAC needs no resource behind a name.
PIN_VERB: Final = "use"
PIN_RESOURCE: Final = "migrationtargets"

# In a cluster of so many nodes a denial may name them all.
_NAMED_NODES: Final = 10
# A denial names so many failures of each group of nodes.
_NAMED_FAILURES: Final = 10

# Longer selectors than any node could satisfy. Neither the API server nor KubeVirt limits it, so this is KubeVirt's
# limit for its own longest lists (disks, volumes, networks: `maxItems` of its CRDs); nodes carry some 100 labels.
MAX_ADDED: Final = 256


async def validate_migration(
    migration: Migration, request: Request[Migration], facts: Facts, settings: MigrationSettings
) -> Decision:
    """Deny a migration whose added selector is malformed, not allowed, or leaves no node."""
    if request.operation != "CREATE":
        return allow(common.immutable_after_create("a migration's spec", request.operation))
    added = migration.added_selector
    if not added:
        return allow(reasons.no_added_selector)
    rejection = _selector(migration, added, settings)
    if rejection:
        return rejection
    namespace = request.namespace or ""
    try:
        await facts.prefetch(*await _keys(migration, namespace, request.user_info, facts, settings))
        return (
            await _evaluate_permission(request.user_info, namespace, facts, settings)
            or await _evaluate_limit(namespace, facts, settings)
            or await _evaluate_placement(migration, namespace, request.user_info, facts, settings)
        )
    except Unreadable as error:
        reason = reasons.lookup_failed(error.why)
        if settings.failure_policy == "Ignore":
            return allow(reason, warn=True)
        return deny(reason, 503)


async def warn_of_migration(
    migration: Migration, request: Request[Migration], facts: Facts, _: MigrationSettings
) -> Decision:
    """Warn the sender of a migration without an added selector if no node is eligible; never more than that.

    A VM that requires its present node's hostname is the usual case: KubeVirt calls it migratable, and every migration
    of it fails after minutes.
    """
    if request.operation != "CREATE":
        return allow(common.other_operation(request.operation))
    if migration.added_selector:
        return allow(reasons.validated_elsewhere)
    if migration.sends:
        return allow(reasons.on_sending_side)
    if _is_kubevirts_own(migration):
        return allow(reasons.by_kubevirt)
    namespace = request.namespace or ""
    try:
        target = await migration_targets.find(namespace, migration.vmi_name, facts, migration)
        if target is None:
            return allow(common.vmi_not_found(namespace, migration.vmi_name))
        eligibility = target.review()
    except Unreadable as error:
        return allow(reasons.lookup_failed(error.why))
    if problem := _cpu_problem(target):
        return allow(common.host_cpu_unknown(problem), warn=True)
    conflicts = contradictions(target.requirements)
    if conflicts:
        return allow(reasons.pinned(conflicts), warn=True)
    if not eligibility.count:
        group = target.additions.next.group
        if group and group.is_required and not migration.receives and target.apart_from_group().review().count:
            return allow(reasons.left_to_groups)
        return allow(no_node(eligibility), warn=True)
    return _eligible(eligibility)


def _selector(migration: Migration, added: dict[str, str], settings: MigrationSettings) -> Decision | None:
    """What is wrong with the selector by itself, or with having one."""
    name = migration.meta.name or ""
    if name.startswith(names.OWN_MIGRATIONS):
        return deny(reasons.reserved_name(name), 422, "metadata.name")
    if len(added) > MAX_ADDED:
        return deny(reasons.too_many_keys(len(added), MAX_ADDED), 422, reasons.FIELD)
    malformed = find_malformed(added, reasons.FIELD)
    if malformed:
        reason, causes = reasons.selector_invalid([mistake.what for mistake in malformed])
        return deny(reason, 422, reasons.FIELD, causes)
    reserved = reserved_keys(added) if settings.reserved_keys == "deny" else ()
    if reserved:
        reason, causes = reasons.reserved_keys(reserved)
        return deny(reason, 403, reasons.FIELD, causes)
    if migration.sends:
        return deny(reasons.ignored_on_sending_side, 422, reasons.FIELD)
    return None


async def _keys(
    migration: Migration, namespace: str, user: UserInfo, facts: Facts, settings: MigrationSettings
) -> list[Key[Any]]:
    """What an answer that allows a migration depends on in any case."""
    keys: list[Key[Any]] = []
    if settings.require_right and not await is_kubevirts(user, names.API_ACCOUNT, facts, settings.kubevirt_namespace):
        keys.append(_right(user, namespace))
    if settings.max_unfinished:
        keys.append(ListKey(UNFINISHED, namespace))
    return [*keys, *migration_targets.keys_by_name(namespace, migration.vmi_name)]


def _right(user: UserInfo, namespace: str) -> AccessKey:
    """Whether a user may choose the nodes of a namespace's VMs."""
    return AccessKey.of(user, PIN_VERB, names.DOMAIN, PIN_RESOURCE, namespace)


async def _evaluate_permission(
    user: UserInfo, namespace: str, facts: Facts, settings: MigrationSettings
) -> Decision | None:
    if not settings.require_right:
        return None
    place = settings.kubevirt_namespace
    if await is_kubevirts(user, names.API_ACCOUNT, facts, place):
        if settings.via_virtctl == "allow":
            return None
        return deny(reasons.via_virtctl, 403)
    if await read(facts, _right(user, namespace), "the user's permission to choose nodes"):
        return None
    return deny(
        reasons.node_choice_forbidden(user.username, namespace, PIN_VERB, f"{PIN_RESOURCE}.{names.DOMAIN}"), 403
    )


async def _evaluate_limit(namespace: str, facts: Facts, settings: MigrationSettings) -> Decision | None:
    if not settings.max_unfinished:
        return None
    all_of_them = await read(facts, ListKey(UNFINISHED, namespace), "the namespace's migrations") or ()
    unfinished = [each for each in all_of_them if each.is_unfinished and not _is_kubevirts_own(each)]
    if len(unfinished) < settings.max_unfinished:
        return None
    return deny(reasons.too_many(len(unfinished), settings.max_unfinished, namespace), 429)


def _is_kubevirts_own(migration: Migration) -> bool:
    """Whether virt-controller made it.

    Any user can write its annotations, but virt-controller never adds a selector. virt-api does, for `virtctl migrate`:
    that is a user's migration.
    """
    updates = migration.meta.annotation(WORKLOAD_UPDATE) is not None
    return not migration.adds_selector and (migration.evacuates or updates)


async def _evaluate_placement(
    migration: Migration, namespace: str, user: UserInfo, facts: Facts, settings: MigrationSettings
) -> Decision:
    target = await migration_targets.find(namespace, migration.vmi_name, facts, migration)
    if target is None:
        return allow(common.vmi_not_found(namespace, migration.vmi_name))
    decision = _decide(target, settings)
    # A caller that has not proved to be the API server could claim any user, so it learns no names of nodes.
    if not (decision.denial and decision.details and facts.verified and 0 < len(target.nodes) <= _NAMED_NODES):
        return decision
    # Who may not list nodes shall not learn their names and labels by trial.
    may_list = await facts.get(AccessKey.of(user, "list", "", "nodes")) is True
    # Nodes may have changed while that was read.
    target = await migration_targets.find(namespace, migration.vmi_name, facts, migration)
    assert target is not None, "a fact stays as it was read"
    return _decide(target, settings, may_list=may_list)


def _decide(target: Target, settings: MigrationSettings, *, may_list: bool = False) -> Decision:
    """The decision by the nodes of now. A denial names them, if they are few, to a user who may list them."""
    if problem := _cpu_problem(target):
        # Whatever the selector says, so that no setting about it counts, nor is its field the cause.
        return deny(common.host_cpu_unknown(problem), 403)
    colliding: list[Contradiction] = []
    if settings.collision == "ignore":
        # KubeVirt drops it, and the target pod is not held to it either: the rest is what is evaluated.
        target = msgspec.structs.replace(target, requirements=without_dropped(target.requirements))
    else:
        # What contradicts itself without the migration is not its fault.
        conflicts = contradictions(target.requirements)
        colliding = [each for each in conflicts if any(one.origin == Origin.ADDED for one in each.requirements)]
    eligibility = target.review()
    if colliding:
        added = (key for each in colliding for key in each.keys)
        reason = reasons.selector_conflict(colliding, added, availability(eligibility))
        if settings.collision == "deny":
            return _deny_by_nodes(reason, eligibility, may_list=may_list)
        return _eligible(eligibility, reason, reasons.conflict_warning(colliding))
    if not eligibility.count and settings.no_eligible_node != "ignore":
        reason = no_node(eligibility)
        if settings.no_eligible_node == "deny":
            return _deny_by_nodes(reason, eligibility, may_list=may_list, todo=reasons.OTHER_NODES)
        return _eligible(eligibility, reason, reasons.pending(reason.code, reason.text))
    return _eligible(eligibility)


def _cpu_problem(target: Target) -> str | None:
    return cpu_problem(target.vmi, target.pod, target.nodes.get(target.vmi.node_name))


def _deny_by_nodes(reason: Reason, eligibility: Eligibility, *, may_list: bool, todo: str = "") -> Decision:
    text = f"{reason.text}; {todo}" if todo else reason.text
    message = text
    if may_list and 0 < eligibility.total <= _NAMED_NODES:
        lacking = Lacking(eligibility)
        groups = ((group, lacking.first(group.failures, _NAMED_FAILURES)) for group in eligibility.groups())
        listed = (f"{', '.join(eligibility.names(group))}: {', '.join(fails) or 'eligible'}" for group, fails in groups)
        message += f" ({'; '.join(listed)})"
    cause = FieldCause("FieldValueInvalid", text, reasons.FIELD)
    return Decision((reason,), denial=Denial(403, message, (cause,)), details=details(eligibility))


def _eligible(eligibility: Eligibility, doubt: Reason | None = None, warning: Reason | None = None) -> Decision:
    """Allowed; with a doubt also a warning of what becomes of the migration."""
    count = eligibility.count
    reason = common.eligible(count, eligibility.total)
    return Decision(
        (doubt, reason) if doubt else (reason,),
        warnings=(warning,) if warning else (),
        notes={"eligible-nodes": str(count)},
        details=details(eligibility) if doubt else {},
    )
