"""Migrations when they are created: what cannot work is denied, with counts, reasons and their origins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from webhook import names
from webhook.admission.decision import Decision, Denial, FieldCause, Reason, skip
from webhook.admission.wire import Request, UserInfo
from webhook.facts import Facts, ListKey
from webhook.placement import contradictions, syntax
from webhook.placement.contradictions import Contradiction
from webhook.placement.migrations import UNFINISHED, WORKLOAD_UPDATE, Migration
from webhook.placement.requirement import ADDED
from webhook.placement.verdict import Verdict
from webhook.policies.common import accounts, migration_targets
from webhook.policies.common import messages as common
from webhook.policies.common.migration_targets import Target
from webhook.policies.common.no_eligible_node import Lacking, availability, details, no_node
from webhook.policies.common.required_facts import Unreadable, read
from webhook.policies.migration import messages
from webhook.settings.snapshot import MigrationSettings

# The virtual permission to choose a VM's node: RBAC needs no resource behind a name.
PIN_VERB: Final = "use"
PIN_RESOURCE: Final = "migrationtargets"

# In a cluster of so many nodes a denial may name them all.
_NAMED_NODES: Final = 10
# Of each of them.
_TOLD_FAILURES: Final = 10

# Longer selectors than any node could satisfy. Neither the API server nor KubeVirt limits it, so this is KubeVirt's
# limit for its own longest lists (disks, volumes, networks: `maxItems` of its CRDs); nodes carry some 100 labels.
MAX_ADDED: Final = 256


def validate(migration: Migration, request: Request[Migration], facts: Facts, settings: MigrationSettings) -> Decision:
    """Deny a migration whose added selector is malformed, not allowed, or leaves no node."""
    if request.operation != "CREATE":
        return skip(common.immutable_after_create("a migration's spec", request.operation))
    added = migration.added_selector
    if not added:
        return skip(messages.no_added_selector())
    rejection = _selector(migration, added, settings)
    if rejection:
        return rejection
    namespace = request.namespace or ""
    try:
        return (
            _may_not_pin(request.user_info, namespace, facts, settings)
            or _too_many(namespace, facts, settings)
            or _evaluate_placement(migration, namespace, request.user_info, facts, settings)
        )
    except Unreadable as error:
        reason = messages.lookup_failed(error.why)
        if settings.failure_policy == "Ignore":
            return skip(reason, warn=True)
        return Decision((reason,), denial=Denial(503, reason.text))


def warn(migration: Migration, request: Request[Migration], facts: Facts, _: MigrationSettings) -> Decision:
    """Warn the sender of a migration without an added selector if no node is eligible; never more than that.

    A VM that requires its present node's hostname is the usual case: KubeVirt calls it migratable, and every migration
    of it fails after minutes.
    """
    if request.operation != "CREATE":
        return skip(common.other_operation(request.operation))
    if migration.added_selector:
        return skip(messages.validated_elsewhere())
    if migration.sends:
        return skip(messages.on_sending_side())
    if _kubevirts_own(migration):
        return skip(messages.by_kubevirt())
    namespace = request.namespace or ""
    try:
        target = migration_targets.find(namespace, migration.vmi_name, facts, migration)
        if target is None:
            return _allow_missing_vmi(namespace, migration)
        verdict = target.review(facts)
    except Unreadable as error:
        return skip(messages.lookup_failed(error.why))
    found = contradictions.contradictions(target.requirements)
    if found:
        return skip(messages.pinned(found), warn=True)
    if not verdict.count:
        return skip(no_node(verdict), warn=True)
    return _eligible(verdict)


def _allow_missing_vmi(namespace: str, migration: Migration) -> Decision:
    return skip(common.vmi_not_found(namespace, migration.vmi_name))


def _selector(migration: Migration, added: dict[str, str], settings: MigrationSettings) -> Decision | None:
    """What is wrong with the selector by itself, or with having one."""
    name = migration.meta.name or ""
    if name.startswith(names.OWN_MIGRATIONS):
        reason = messages.reserved_name(name)
        cause = FieldCause("FieldValueInvalid", reason.text, "metadata.name")
        return Decision((reason,), denial=Denial(422, reason.text, (cause,)))
    if len(added) > MAX_ADDED:
        return _deny(messages.too_many_keys(len(added), MAX_ADDED), 422)
    malformed = syntax.find_malformed(added, messages.FIELD)
    if malformed:
        reason, causes = messages.selector_invalid([mistake.what for mistake in malformed])
        return _deny(reason, 422, causes)
    reserved = syntax.reserved_keys(added) if settings.reserved_keys == "deny" else ()
    if reserved:
        reason, causes = messages.reserved_keys(reserved)
        return _deny(reason, 403, causes)
    if migration.sends:
        return _deny(messages.ignored_on_sending_side(), 422)
    return None


def _deny(reason: Reason, status: int, causes: Sequence[str] = ()) -> Decision:
    """The denial of a selector; the causes are the reason itself where there are no others."""
    fields = tuple(FieldCause("FieldValueInvalid", cause, messages.FIELD) for cause in causes or (reason.text,))
    return Decision((reason,), denial=Denial(status, reason.text, fields))


def _may_not_pin(user: UserInfo, namespace: str, facts: Facts, settings: MigrationSettings) -> Decision | None:
    if not settings.require_right:
        return None
    place = settings.kubevirt_namespace
    if accounts.is_kubevirts(user, names.API_ACCOUNT, facts, place):
        if settings.via_virtctl == "allow":
            return None
        reason = messages.via_virtctl()
        return Decision((reason,), denial=Denial(403, reason.text))
    key = accounts.access(user, PIN_VERB, names.DOMAIN, PIN_RESOURCE, namespace)
    if read(facts, key, "the user's permission to choose nodes"):
        return None
    reason = messages.node_choice_forbidden(user.username, namespace, PIN_VERB, f"{PIN_RESOURCE}.{names.DOMAIN}")
    return Decision((reason,), denial=Denial(403, reason.text))


def _too_many(namespace: str, facts: Facts, settings: MigrationSettings) -> Decision | None:
    if not settings.max_unfinished:
        return None
    all_of_them = read(facts, ListKey(UNFINISHED, namespace), "the namespace's migrations") or ()
    unfinished = [one.meta.name or "" for one in all_of_them if one.is_unfinished and not _kubevirts_own(one)]
    if len(unfinished) < settings.max_unfinished:
        return None
    reason = messages.too_many(len(unfinished), settings.max_unfinished, namespace)
    return Decision((reason,), denial=Denial(429, reason.text))


def _kubevirts_own(migration: Migration) -> bool:
    """Whether KubeVirt made it. Any user can write its annotations, but KubeVirt never adds a selector."""
    updates = migration.meta.annotation(WORKLOAD_UPDATE) is not None
    return not migration.added_selector and (migration.evacuates or updates)


def _evaluate_placement(
    migration: Migration, namespace: str, user: UserInfo, facts: Facts, settings: MigrationSettings
) -> Decision:
    target = migration_targets.find(namespace, migration.vmi_name, facts, migration)
    if target is None:
        return _allow_missing_vmi(namespace, migration)
    colliding = _colliding(target) if settings.collision != "ignore" else []
    if settings.collision == "ignore":
        # KubeVirt drops it, and the target pod is not held to it either: the rest is what is evaluated.
        kept = contradictions.without_dropped(target.requirements)
        target = msgspec.structs.replace(target, requirements=kept)
    verdict = target.review(facts)
    if colliding:
        reason = messages.selector_conflict(colliding, availability(verdict))
        if settings.collision == "deny":
            return _deny_by_nodes(reason, verdict, user, facts)
        return _eligible(verdict, reason, messages.describe(colliding))
    if not verdict.count and settings.no_eligible_node != "ignore":
        reason = no_node(verdict)
        if settings.no_eligible_node == "deny":
            return _deny_by_nodes(reason, verdict, user, facts)
        return _eligible(verdict, reason, reason.text)
    return _eligible(verdict)


def _colliding(target: Target) -> list[Contradiction]:
    """The contradictions that the migration brings; what contradicts itself without it is not its fault."""
    found = contradictions.contradictions(target.requirements)
    if not found:
        return []
    return [one for one in found if any(requirement.origin == ADDED for requirement in one.requirements)]


def _deny_by_nodes(reason: Reason, verdict: Verdict, user: UserInfo, facts: Facts) -> Decision:
    message = reason.text
    if 0 < verdict.total <= _NAMED_NODES and _may_list_nodes(user, facts):
        message += f" ({_describe_nodes(verdict)})"
    cause = FieldCause("FieldValueInvalid", reason.text, messages.FIELD)
    return Decision((reason,), denial=Denial(403, message, (cause,)), details=details(verdict))


def _may_list_nodes(user: UserInfo, facts: Facts) -> bool:
    """Whether an answer may name nodes: who may not list them shall not learn their names and labels by trial.

    A caller that has not proved to be the API server could claim any user, so it learns no names either.
    """
    return facts.verified and facts.get(accounts.access(user, "list", "", "nodes")) is True


def _describe_nodes(verdict: Verdict) -> str:
    lacking = Lacking(verdict)
    return "; ".join(
        f"{', '.join(verdict.names(group))}: {', '.join(lacking.first(group.failures, _TOLD_FAILURES)) or 'eligible'}"
        for group in verdict.groups()
    )


def _eligible(verdict: Verdict, doubt: Reason | None = None, why: str = "") -> Decision:
    """Allowed; with a doubt also a warning of what becomes of the migration, and why."""
    count = verdict.count
    reason = common.eligible(count, verdict.total)
    return Decision(
        (doubt, reason) if doubt else (reason,),
        warnings=(messages.pending(doubt.code, why),) if doubt else (),
        notes={"eligible-nodes": str(count)},
        details=details(verdict) if doubt else {},
    )
