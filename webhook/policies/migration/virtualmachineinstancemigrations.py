"""Migrations when they are created: what can't work is refused, with counts, reasons and where each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from webhook import names
from webhook.admission.decision import Decision, Denial, FieldCause, Reason, skip
from webhook.admission.wire import Request, UserInfo
from webhook.facts import Facts, ListKey
from webhook.names import Code
from webhook.placement import contradictions, syntax
from webhook.placement.contradictions import Contradiction
from webhook.placement.migrations import UNFINISHED, WORKLOAD_UPDATE, Migration
from webhook.placement.requirement import ADDED
from webhook.placement.verdict import Verdict
from webhook.policies.common import accounts, migration_targets
from webhook.policies.common.migration_targets import Target
from webhook.policies.common.no_eligible_node import Lacking, details, no_node
from webhook.policies.common.required_facts import Unreadable, read
from webhook.settings.snapshot import MigrationSettings

_FIELD: Final = "spec.addedNodeSelector"

# The virtual permission to choose a VM's node: RBAC needs no resource behind a name.
PIN_VERB: Final = "use"
PIN_RESOURCE: Final = "migrationtargets"

_TOLD_MISTAKES: Final = 20

# In a cluster of so many nodes a refusal may name them all.
_NAMED_NODES: Final = 10
# Of each of them, and of what the VM requires.
_TOLD_FAILURES: Final = 10
_TOLD_CONTRADICTIONS: Final = 10

# Longer selectors than any node could satisfy. Neither the API server nor KubeVirt limits it, so this is KubeVirt's
# limit for its own longest lists (disks, volumes, networks: `maxItems` of its CRDs); nodes carry some 100 labels.
MAX_ADDED: Final = 256


def validate(migration: Migration, request: Request[Migration], facts: Facts, settings: MigrationSettings) -> Decision:
    """Refuse a migration whose added selector is malformed, not allowed, or leaves no node."""
    if request.operation != "CREATE":
        return skip(Code.OTHER_OPERATION, f"a migration's spec can't change after CREATE ({request.operation})")
    if not migration.added_selector:
        return skip(Code.NOTHING_ADDED, "the migration adds no node selector")
    refusal = _selector(migration, settings)
    if refusal:
        return refusal
    namespace = request.namespace or ""
    try:
        return (
            _may_not_pin(request.user_info, namespace, facts, settings)
            or _too_many(namespace, facts, settings)
            or _evaluate_placement(migration, namespace, request.user_info, facts, settings)
        )
    except Unreadable as error:
        text = f"whether this migration can go where it is told is not known: {error.why}"
        if settings.failure_policy == "Ignore":
            return skip(Code.FACTS_UNREADABLE, text, f"kubevirt-webhook did not check the migration: {error.why}")
        return Decision((Reason(Code.FACTS_UNREADABLE, text),), denial=Denial(503, text))


def warn(migration: Migration, request: Request[Migration], facts: Facts, _: MigrationSettings) -> Decision:
    """Tell the sender of a migration without an added selector if no node is eligible; never more than that.

    A VM that asks for its present node's hostname is the usual case: KubeVirt calls it migratable, and every migration
    of it fails after minutes.
    """
    if request.operation != "CREATE":
        return skip(Code.OTHER_OPERATION, f"nothing is said at {request.operation}")
    if migration.added_selector:
        return skip(Code.OTHER_OPERATION, "a migration with an added selector is judged when it is validated")
    if migration.sends:
        return skip(Code.ON_SENDING_SIDE, "the target pod is made on the receiving side")
    if _kubevirts_own(migration):
        return skip(Code.BY_KUBEVIRT, "KubeVirt itself migrates the VM")
    namespace = request.namespace or ""
    try:
        target = migration_targets.find(namespace, _vmi_name(migration), facts, migration)
        if target is None:
            return _allow_missing_vmi(namespace, migration)
        verdict = target.review(facts)
    except Unreadable as error:
        return skip(Code.FACTS_UNREADABLE, error.why)
    found = contradictions.contradictions(target.requirements)
    if found:
        text = f"this migration can't succeed: {_describe_contradictions(found)}"
        return skip(Code.PINNED, text, f"kubevirt-webhook: {text}")
    if not verdict.count:
        text = no_node(verdict)
        return skip(Code.NO_ELIGIBLE_NODE, text, f"kubevirt-webhook: {text}")
    return _eligible(verdict)


def _vmi_name(migration: Migration) -> str:
    return migration.vmi_name


def _allow_missing_vmi(namespace: str, migration: Migration) -> Decision:
    name = f"{namespace}/{_vmi_name(migration)}"
    return skip(Code.VMI_GONE, f"there is no VirtualMachineInstance {name}; KubeVirt says so better")


def _selector(migration: Migration, settings: MigrationSettings) -> Decision | None:
    """What is wrong with the selector by itself, or with having one."""
    name = migration.meta.name or ""
    if name.startswith(names.OWN_MIGRATIONS):
        text = f"metadata.name: migrations named {name} are KubeVirt's own, which add no selector; name yours otherwise"
        cause = FieldCause("FieldValueInvalid", text, "metadata.name")
        return Decision((Reason(Code.RESERVED_NAME, text),), denial=Denial(422, text, (cause,)))
    if len(migration.added_selector) > MAX_ADDED:
        text = f"{_FIELD} has {len(migration.added_selector)} keys, of which {MAX_ADDED} are allowed; remove some"
        return _deny(Code.BAD_SELECTOR, 422, text, [text])
    malformed = syntax.find_malformed(migration.added_selector, _FIELD)
    if malformed:
        texts = [mistake.what for mistake in malformed[:_TOLD_MISTAKES]]
        if more := len(malformed) - len(texts):
            texts.append(f"{more} more mistakes")
        text = f"{_FIELD}: {'; '.join(texts)}; the migration would hang, and with it every drain of the VM"
        return _deny(Code.BAD_SELECTOR, 422, text, texts)
    reserved = syntax.reserved_keys(migration.added_selector) if settings.reserved_keys == "deny" else ()
    if reserved:
        text = (
            f"{_FIELD}: {', '.join(reserved)} {'is' if len(reserved) == 1 else 'are'} KubeVirt's own to require; it"
            " would switch a guard off, stay for later migrations, or be dropped"
        )
        return _deny(Code.RESERVED_KEYS, 403, text, [f"{key} is KubeVirt's own to require" for key in reserved])
    if migration.sends:
        text = f"{_FIELD}: the sending side of a migration ignores it; add it to the receiving one"
        return _deny(Code.ON_SENDING_SIDE, 422, text, ["the sending side ignores it"])
    return None


def _deny(code: str, status: int, text: str, causes: Sequence[str]) -> Decision:
    fields = tuple(FieldCause("FieldValueInvalid", cause, _FIELD) for cause in causes)
    return Decision((Reason(code, text),), denial=Denial(status, text, fields))


def _may_not_pin(user: UserInfo, namespace: str, facts: Facts, settings: MigrationSettings) -> Decision | None:
    if not settings.require_right:
        return None
    place = settings.kubevirt_namespace
    if accounts.is_kubevirts(user, names.API_ACCOUNT, facts, place):
        if settings.via_virtctl == "allow":
            return None
        text = (
            "choosing nodes through virtctl hides who asks, and only some may here; create a "
            "VirtualMachineInstanceMigration instead"
        )
        return Decision((Reason(Code.MAY_NOT_PIN, text),), denial=Denial(403, text))
    key = accounts.access(user, PIN_VERB, names.DOMAIN, PIN_RESOURCE, namespace)
    if read(facts, key, "the user's right to choose nodes"):
        return None
    text = (
        f"{user.username or 'nobody'} may not choose nodes for VMs of {namespace}: that takes the verb {PIN_VERB} on "
        f"{PIN_RESOURCE}.{names.DOMAIN} there"
    )
    return Decision((Reason(Code.MAY_NOT_PIN, text),), denial=Denial(403, text))


def _too_many(namespace: str, facts: Facts, settings: MigrationSettings) -> Decision | None:
    if not settings.max_unfinished:
        return None
    all_of_them = read(facts, ListKey(UNFINISHED, namespace), "the namespace's migrations") or ()
    unfinished = [one.meta.name or "" for one in all_of_them if one.is_unfinished and not _kubevirts_own(one)]
    if len(unfinished) < settings.max_unfinished:
        return None
    are = "migration is" if len(unfinished) == 1 else "migrations are"
    text = f"{len(unfinished)} {are} unfinished in {namespace}, and {settings.max_unfinished} may be"
    return Decision((Reason(Code.TOO_MANY_MIGRATIONS, text),), denial=Denial(429, f"{text}; try again later"))


def _kubevirts_own(migration: Migration) -> bool:
    """Whether KubeVirt made it. Anybody can write its marks, but it never adds a selector."""
    updates = migration.meta.annotation(WORKLOAD_UPDATE) is not None
    return not migration.added_selector and (migration.evacuates or updates)


def _evaluate_placement(
    migration: Migration, namespace: str, user: UserInfo, facts: Facts, settings: MigrationSettings
) -> Decision:
    target = migration_targets.find(namespace, _vmi_name(migration), facts, migration)
    if target is None:
        return _allow_missing_vmi(namespace, migration)
    colliding = _colliding(target) if settings.collision != "ignore" else []
    if settings.collision == "ignore":
        # KubeVirt drops it, and neither do we hold the target pod to it: what is left is what is asked.
        kept = contradictions.without_dropped(target.requirements)
        target = msgspec.structs.replace(target, requirements=kept)
    verdict = target.review(facts)
    if colliding:
        text = f"the added selector contradicts what the VM requires: {_describe_contradictions(colliding)}"
        if settings.collision == "deny":
            counted = f"{text}; {verdict.count} of {verdict.total} nodes fit"
            return _deny_by_nodes(Code.COLLISION, counted, verdict, user, facts)
        return _eligible(verdict, Reason(Code.COLLISION, text), "its target pod will stay Pending")
    if not verdict.count and settings.no_eligible_node != "ignore":
        text = no_node(verdict)
        if settings.no_eligible_node == "deny":
            return _deny_by_nodes(Code.NO_ELIGIBLE_NODE, text, verdict, user, facts)
        reason = Reason(Code.NO_ELIGIBLE_NODE, text)
        return _eligible(verdict, reason, "its target pod will stay Pending until there is one")
    return _eligible(verdict)


def _colliding(target: Target) -> list[Contradiction]:
    """The contradictions that the migration brings; what contradicts itself without it is not its fault."""
    found = contradictions.contradictions(target.requirements)
    return [one for one in found if any(requirement.origin == ADDED for requirement in one.requirements)]


def _describe_contradictions(found: Sequence[Contradiction]) -> str:
    told = [str(contradiction) for contradiction in found[:_TOLD_CONTRADICTIONS]]
    if more := len(found) - len(told):
        told.append(f"{more} more contradictions")
    return ", and ".join(told)


def _deny_by_nodes(code: str, text: str, verdict: Verdict, user: UserInfo, facts: Facts) -> Decision:
    message = text
    if 0 < verdict.total <= _NAMED_NODES and _may_list_nodes(user, facts):
        message += f" [{_describe_nodes(verdict)}]"
    cause = FieldCause("FieldValueInvalid", text, _FIELD)
    return Decision((Reason(code, text),), denial=Denial(403, message, (cause,)), details=details(verdict))


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


def _eligible(verdict: Verdict, doubt: Reason | None = None, outlook: str = "") -> Decision:
    """Admitted; with a doubt also warned of what it will come to."""
    text = f"{verdict.count} of {verdict.total} nodes are eligible"
    reason = Reason(Code.ELIGIBLE if verdict.count else Code.NO_ELIGIBLE_NODE, text)
    return Decision(
        (doubt, reason) if doubt else (reason,),
        warnings=(f"kubevirt-webhook: {doubt.text}; {outlook}",) if doubt else (),
        notes={"eligible-nodes": str(verdict.count)},
        details=details(verdict) if doubt else {},
    )
