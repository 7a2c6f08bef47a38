"""The reasons of the migration policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import Meaning, about, about_two, define
from webhook.errors import quote
from webhook.text import abbreviate, pluralize

# By code.
REASONS: Final[dict[str, Meaning]] = {}
# Codes of several policies that this one gives, too.
SHARED_REASONS: Final = (
    common.ELIGIBLE,
    common.NO_ELIGIBLE_NODE,
    common.HOST_CPU_UNKNOWN,
    common.BY_KUBEVIRT,
    common.NOT_LAUNCHER,
    common.NO_VMI_OWNER,
    common.NOT_CREATED_BY_KUBEVIRT,
    common.VMI_NOT_FOUND,
)

_changed: Final = partial(define, REASONS, "changed")
_denied: Final = partial(define, REASONS, "denied")
_allowed: Final = partial(define, REASONS, "allowed")
_skipped: Final = partial(define, REASONS, "skipped")


FIELD = "spec.addedNodeSelector"
# What to do about a denial for which the added selector leaves no node, an imperative.
OTHER_NODES: Final = "choose other nodes, or leave out addedNodeSelector"

# Of what contradicts itself, and of mistakes in a selector, a sentence names so many.
_NAMED_CONTRADICTIONS = 10
_NAMED_MISTAKES = 20
_OWN = " and ".join(f"{prefix}*" for prefix in names.OWN_MIGRATIONS)
SELECTOR_CONFLICT: Final = _denied(
    "selector-conflict",
    "addedNodeSelector and the VM's own requirements exclude each other: another value of the label, a node affinity,"
    " or the hostname that the VM must leave. KubeVirt alone silently drops such a key and migrates elsewhere, or"
    " leaves the target pod Pending.",
    "Remove the key from addedNodeSelector, or change the VM. The setting migration.collision makes this a warning.",
)


def selector_conflict(conflicts: Sequence[object], added: Iterable[str], availability: str) -> Reason:
    """These added keys contradict what the VM requires; the availability is ``0/6 nodes are available``."""
    keys = ", ".join(sorted(set(added)))
    removable = f"{keys} from addedNodeSelector" if keys else "the conflicting keys from addedNodeSelector"
    text = f"{availability}: {describe(conflicts)}; remove {removable}, or change the VM"
    return Reason(SELECTOR_CONFLICT, text)


def conflict_warning(conflicts: Sequence[object]) -> Reason:
    """That a migration is not denied for its contradictions: a warning, which must be short.

    Where the target pod is constrained it stays Pending; in namespaces of mode ``warn`` it is not, and KubeVirt may
    drop the key.
    """
    return Reason(SELECTOR_CONFLICT, f"the migration will not succeed as requested: {describe(conflicts)}")


def pending(code: str, why: str) -> Reason:
    """That a migration is not denied for a code although no node is eligible: a warning, which must be short."""
    return Reason(code, f"the target pod will stay Pending: {why}")


def describe(conflicts: Sequence[object]) -> str:
    """Contradictions, of which each is a clause as a text, as one clause; of many the first."""
    named = [str(contradiction) for contradiction in conflicts[:_NAMED_CONTRADICTIONS]]
    if more := len(conflicts) - len(named):
        named.append(pluralize(more, "more contradiction"))
    return "; ".join(named)


SELECTOR_INVALID: Final = _denied(
    "selector-invalid",
    "addedNodeSelector has a key or a value that no label can have, or too many keys.",
    "Correct the keys that the message names.",
)


def too_many_keys(count: int, most: int) -> Reason:
    """The selector is longer than any list that KubeVirt takes."""
    return Reason(SELECTOR_INVALID, f"{FIELD} has {count} keys (limit {most}); remove some")


def selector_invalid(mistakes: Sequence[str]) -> tuple[Reason, tuple[str, ...]]:
    """No node can have such labels; also the causes, one for each mistake, of many the first."""
    named = list(mistakes[:_NAMED_MISTAKES])
    if more := len(mistakes) - len(named):
        named.append(pluralize(more, "more mistake"))
    text = f"{FIELD}: {'; '.join(named)}; the migration would hang, and block every drain of the VM's node"
    return Reason(SELECTOR_INVALID, text), tuple(named)


RESERVED_NAME: Final = _denied(
    "migration-name-reserved",
    "The migration's name begins as those of KubeVirt's own migrations, which never have an addedNodeSelector.",
    "Choose another name.",
)
reserved_name: Final = about(
    RESERVED_NAME,
    f"metadata.name %q is reserved: KubeVirt names its own migrations {_OWN}, and they have no addedNodeSelector;"
    " choose another name",
)
RESERVED_KEYS: Final = _denied(
    "selector-reserved",
    "addedNodeSelector has keys with which KubeVirt itself selects nodes. They would disable one of its safety checks,"
    " remain for later migrations, or be dropped.",
    "Remove them. An administrator can allow them with the setting migration.reservedKeys.",
)


def reserved_keys(keys: Sequence[str]) -> tuple[Reason, tuple[str, ...]]:
    """Only KubeVirt may require these labels; also the causes, one for each key."""
    are = "is reserved" if len(keys) == 1 else "are reserved"
    text = (
        f"{FIELD}: {', '.join(keys)} {are} for KubeVirt: the key would disable a safety check, remain for later"
        " migrations, or be dropped; remove it"
    )
    return Reason(RESERVED_KEYS, text), tuple(f"{key} is reserved for KubeVirt" for key in keys)


ON_SENDING_SIDE: Final = _denied(
    "selector-on-sending-side",
    "addedNodeSelector has no effect on the sending side of a decentralized migration.",
    "Set it in the migration on the receiving side.",
)
on_sending_side: Final = Reason(
    ON_SENDING_SIDE, "skipped: the target pod of this migration is created on the receiving side"
)
ignored_on_sending_side: Final = Reason(
    ON_SENDING_SIDE, f"{FIELD} has no effect on the sending side of a migration; set it on the receiving side"
)
NODE_CHOICE_FORBIDDEN: Final = _denied(
    "node-choice-forbidden",
    "The setting migration.requireRight is on, and the user lacks the permission to choose nodes, or uses virtctl,"
    " which hides who the user is.",
    "Ask an administrator for the verb use on migrationtargets, or migrate without addedNodeSelector.",
)
via_virtctl: Final = Reason(
    NODE_CHOICE_FORBIDDEN,
    "nodes cannot be chosen through virtctl here, because the request does not show who sent it; create a"
    " VirtualMachineInstanceMigration instead",
)


def node_choice_forbidden(username: str, namespace: str, verb: str, resource: str) -> Reason:
    """The user lacks the permission to choose a VM's node."""
    user = quote(username) if username else "the user"
    text = f"{user} cannot choose nodes for VMs of namespace {namespace}: this requires the verb {verb} on {resource}"
    return Reason(NODE_CHOICE_FORBIDDEN, text)


TOO_MANY_MIGRATIONS: Final = _denied(
    "too-many-migrations",
    "The namespace has as many migrations in progress as the settings allow.",
    "Wait for one to end, or migrate without addedNodeSelector.",
)


def too_many(count: int, cap: int, namespace: str) -> Reason:
    """The cap of unfinished migrations is reached."""
    text = f"{pluralize(count, 'migration')} in progress in namespace {namespace} (limit {cap}); retry later"
    return Reason(TOO_MANY_MIGRATIONS, text)


PINNED: Final = _allowed(
    "vm-pinned-to-its-node",
    "What the VM requires can only be met by the node on which it runs, or by none, so every migration fails.",
    "Remove the requirement that the message names, for example a nodeSelector on kubernetes.io/hostname.",
)


def pinned(conflicts: Sequence[object]) -> Reason:
    """What the VM requires contradicts itself, whatever the migration adds."""
    text = f"this migration cannot succeed: {describe(conflicts)}; remove one of the requirements from the VM"
    return Reason(PINNED, text)


CONSTRAINED: Final = _changed(
    "target-constrained", "The node affinity of the migration's target pod requires what addedNodeSelector says."
)
constrained: Final = about_two(CONSTRAINED, "the target pod requires %s, added by migration %q")
INBOUND_LIMITED: Final = _changed(
    "inbound-limited",
    "The migration's target pod leaves out nodes that are receiving as many migrations as the setting"
    " migration.maxInboundPerNode allows, and stays apart from target pods that could make it one too many.",
)


def inbound_limited(hostnames: Sequence[str], apart: int, most: int) -> Reason:
    """Nodes that receive enough migrations are left out, and those that may."""
    parts = [f"leaves out {abbreviate(hostnames)}"] if hostnames else []
    parts += [f"stays apart from {pluralize(apart, 'target pod')} without a node"] if apart else []
    limit = f"so that no node receives more than {pluralize(most, 'migration')}"
    return Reason(INBOUND_LIMITED, f"the target pod {' and '.join(parts)}, {limit}")


INBOUND_EXCEEDED: Final = _allowed(
    "inbound-limit-exceeded",
    "Every node that is eligible for the VM is receiving as many migrations as the setting migration.maxInboundPerNode"
    " allows, or will be once other target pods have a node, so the target pod may go where there is one too many: a"
    " pod's requirements cannot be changed later, and KubeVirt would end the migration after five minutes.",
    "Where that happens often, raise the limit, or lower KubeVirt's parallelMigrationsPerCluster.",
)


def inbound_exceeded(most: int) -> Reason:
    """No node would be left for certain."""
    each = pluralize(most, "migration")
    text = f"every eligible node receives {each} or more already, or may soon, so one may receive more than the limit"
    return Reason(INBOUND_EXCEEDED, text)


ALREADY_CONSTRAINED: Final = _skipped(
    "target-already-constrained", "The target pod already requires what addedNodeSelector says."
)


def already_constrained(labels: str) -> Reason:
    """There is nothing to change in the pod."""
    nothing = "addedNodeSelector has no key that can be required"
    return Reason(ALREADY_CONSTRAINED, f"the target pod already requires {labels}" if labels else nothing)


NO_ADDED_SELECTOR: Final = _skipped("no-added-selector", "The migration has no addedNodeSelector.")
no_added_selector: Final = Reason(NO_ADDED_SELECTOR, "skipped: the migration has no addedNodeSelector")
nothing_to_constrain: Final = about(NO_ADDED_SELECTOR, "skipped: migration %q has no addedNodeSelector")
NOT_A_TARGET: Final = _skipped("not-a-target-pod", "The launcher pod is not the target of a migration.")
not_a_target: Final = Reason(NOT_A_TARGET, "skipped: the pod is not the target of a migration")
MIGRATION_NOT_FOUND: Final = _skipped("migration-not-found", "The migration that the pod names does not exist.")
migration_not_found: Final = about(MIGRATION_NOT_FOUND, "skipped: the pod's migration %q does not exist")

# Reasons that other policies give too, in this policy's words.
validated_elsewhere: Final = Reason(
    common.OTHER_OPERATION, "skipped: a migration with addedNodeSelector is evaluated by the validating webhook"
)
left_to_groups: Final = Reason(
    common.OTHER_OPERATION, "skipped: only the rules of the VM's group leave no node, of which the policy groups speaks"
)
by_kubevirt: Final = Reason(common.BY_KUBEVIRT, "skipped: KubeVirt itself migrates the VM")
lookup_failed: Final = about(common.LOOKUP_FAILED, f"the migration was not evaluated: %s; retry, or remove {FIELD}")
inbound_unknown: Final = about(
    common.LOOKUP_FAILED, "the target pod may go to nodes that receive enough migrations already: %s"
)
requirements_unknown: Final = about(
    common.LOOKUP_FAILED,
    "the target pod is constrained to addedNodeSelector alone; what else KubeVirt requires is not known: %s",
)
