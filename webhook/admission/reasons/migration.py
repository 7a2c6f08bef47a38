"""What the codes of the migration policy mean, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.admission.reasons.meaning import Meaning
from webhook.names import EVICTION, MIGRATION, Code

MEANINGS: Final[Mapping[str, Meaning]] = {
    Code.ELIGIBLE: Meaning((MIGRATION, EVICTION), "allowed", "At least one node can take the VM."),
    Code.NO_ELIGIBLE_NODE: Meaning(
        (MIGRATION, EVICTION),
        "denied",
        "No node meets all requirements of the VM and of the migration. The target pod would stay Pending until"
        " KubeVirt"
        " ends the migration.",
        "Change what the message names. `kubevirt-webhook explain migration NAMESPACE/VM` lists every node and the one"
        " change that helps most.",
    ),
    Code.SELECTOR_CONFLICT: Meaning(
        (MIGRATION,),
        "denied",
        "addedNodeSelector and the VM require different values of one label. KubeVirt silently drops such a key and"
        " migrates elsewhere.",
        "Remove the key from addedNodeSelector, or change the VM. The setting migration.collision makes this a"
        " warning.",
    ),
    Code.SELECTOR_INVALID: Meaning(
        (MIGRATION,),
        "denied",
        "addedNodeSelector has a key or a value that no label can have, or too many keys.",
        "Correct the keys that the message names.",
    ),
    Code.RESERVED_NAME: Meaning(
        (MIGRATION,),
        "denied",
        "The migration's name begins as those of KubeVirt's own migrations, which never have an addedNodeSelector.",
        "Choose another name.",
    ),
    Code.RESERVED_KEYS: Meaning(
        (MIGRATION,),
        "denied",
        "addedNodeSelector has keys with which KubeVirt itself selects nodes. They would disable one of its safety"
        " checks, remain for later migrations, or be dropped.",
        "Remove them. An administrator can allow them with the setting migration.reservedKeys.",
    ),
    Code.ON_SENDING_SIDE: Meaning(
        (MIGRATION,),
        "denied",
        "addedNodeSelector has no effect on the sending side of a decentralized migration.",
        "Set it in the migration on the receiving side.",
    ),
    Code.NODE_CHOICE_FORBIDDEN: Meaning(
        (MIGRATION,),
        "denied",
        "The setting migration.requireRight is on, and the user lacks the permission to choose nodes, or uses virtctl,"
        " which hides who the user is.",
        "Ask an administrator for the verb use on migrationtargets, or migrate without addedNodeSelector.",
    ),
    Code.TOO_MANY_MIGRATIONS: Meaning(
        (MIGRATION,),
        "denied",
        "The namespace has as many migrations in progress as the settings allow.",
        "Retry later.",
    ),
    Code.PINNED: Meaning(
        (MIGRATION,),
        "allowed",
        "What the VM requires can only be met by the node on which it runs, or by none, so every migration fails.",
        "Remove the requirement that the message names, for example a nodeSelector on kubernetes.io/hostname.",
    ),
    Code.CONSTRAINED: Meaning(
        (MIGRATION,), "changed", "The node affinity of the migration's target pod requires what addedNodeSelector says."
    ),
    Code.ALREADY_CONSTRAINED: Meaning(
        (MIGRATION,), "skipped", "The target pod already requires what addedNodeSelector says."
    ),
    Code.NO_ADDED_SELECTOR: Meaning((MIGRATION,), "skipped", "The migration has no addedNodeSelector."),
    Code.NOT_A_TARGET: Meaning((MIGRATION,), "skipped", "The launcher pod is not the target of a migration."),
    Code.MIGRATION_NOT_FOUND: Meaning((MIGRATION,), "skipped", "The migration that the pod names does not exist."),
}
