"""Names that other programs rely on: labels, annotations and configurations.

They are public: a change of one breaks the namespace labels, dashboards or scripts of users.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

DOMAIN: Final = "kubevirt-webhook.github.io"
# The pages of docs/, each without its ".md"; the anchors are those of the headings. mike publishes each version in a
# directory of its own, and at the root only a page that leads to this alias.
SITE: Final = f"https://{DOMAIN}/latest"

# A policy's name, one lower-case word, is its namespace label, its directory, its settings section and its page in
# docs/.
PolicyName: TypeAlias = str
# Those that other modules name, too; `webhook.policies.registry` has all.
SCHEDULING: Final = "scheduling"
INSTANCETYPES: Final = "instancetypes"
MIGRATION: Final = "migration"
EVICTION: Final = "eviction"

# The values of a policy's namespace label, in PodSecurity's manner.
Mode = Literal["enforce", "warn", "audit", "off"]
ENFORCE: Final = "enforce"
WARN: Final = "warn"
AUDIT: Final = "audit"
OFF: Final = "off"

# The last segment of a path: a webhook entry each, because a namespaceSelector can't OR two labels.
Stage = Literal["enforce", "observe"]
OBSERVE: Final = "observe"


def policy_label(policy: str) -> str:
    """The namespace label that opts a namespace in to ``policy``; its value is a `Mode`."""
    return f"{DOMAIN}/{policy}"


# Parameters of a namespace, as annotations: those that other modules than their policy's name, too. The others are in
# the settings of their policy, `webhook.policies.*.settings`.
SCHEDULER_NAME_ANNOTATION: Final = f"{DOMAIN}/scheduler-name"
# Of a namespace, and of a VM's template or a VMI, where its owner's value counts before the namespace's.
SPREAD_ANNOTATION: Final = f"{DOMAIN}/spread"
# Its values, and the setting's.
Spread = Literal["off", "hostname", "zone", "both"]
SPREADS: Final[tuple[Spread, ...]] = ("off", "hostname", "zone", "both")

DEFAULT_INSTANCETYPE_ANNOTATION: Final = f"{DOMAIN}/default-instancetype"
DEFAULT_PREFERENCE_ANNOTATION: Final = f"{DOMAIN}/default-preference"
ALLOWED_INSTANCETYPES_ANNOTATION: Final = f"{DOMAIN}/allowed-instancetypes"
EXPAND_INSTANCETYPES_ANNOTATION: Final = f"{DOMAIN}/expand-instancetypes"

# What the owner of a VMI that no VM stands behind asks for, as annotations: its API has no field for it.
INSTANCETYPE_ANNOTATION: Final = f"{DOMAIN}/instancetype"
PREFERENCE_ANNOTATION: Final = f"{DOMAIN}/preference"

# Records the scheduler name that kubevirt-webhook set. It is on the VM and on its template, so that it reaches the VMI
# and its pods; a schedulerName was injected only while this annotation has the same value.
INJECTED_SCHEDULER_ANNOTATION: Final = f"{DOMAIN}/injected-scheduler"
# The same for topology spread constraints: the value of the setting that they were made from.
INJECTED_SPREAD_ANNOTATION: Final = f"{DOMAIN}/injected-spread"
# The same for instancetypes and preferences, ``KIND/NAME``; they are on VMs, and on the VMIs that kubevirt-webhook
# fills.
INJECTED_INSTANCETYPE_ANNOTATION: Final = f"{DOMAIN}/injected-instancetype"
INJECTED_PREFERENCE_ANNOTATION: Final = f"{DOMAIN}/injected-preference"

# The same for the default tolerations, on launcher pods.
INJECTED_TOLERATIONS_ANNOTATION: Final = f"{DOMAIN}/injected-tolerations"
# And for the default preferences of nodes.
INJECTED_PREFERENCES_ANNOTATION: Final = f"{DOMAIN}/injected-preferred-node-affinity"
# Of the rules of the VM's group: those that a VMI is held to, or that stand in a pod.
INJECTED_GROUP_ANNOTATION: Final = f"{DOMAIN}/injected-group"

# What KubeVirt calls things (staging/src/kubevirt.io/api/core/v1/types.go).
KUBEVIRT_GROUP: Final = "kubevirt.io"
INSTANCETYPE_GROUP: Final = "instancetype.kubevirt.io"
SNAPSHOT_GROUP: Final = "snapshot.kubevirt.io"
POOL_GROUP: Final = "pool.kubevirt.io"
APP_LABEL: Final = "kubevirt.io"
LAUNCHER_APP: Final = "virt-launcher"
CONTROLLER_ACCOUNT: Final = "kubevirt-controller"
API_ACCOUNT: Final = "kubevirt-apiserver"
# How KubeVirt names the migrations of drains and of its own updates; they never add a selector.
OWN_MIGRATIONS: Final = ("kubevirt-evacuation-", "kubevirt-workload-update-")
# Of a migration; KubeVirt writes it into each that is created.
VMI_NAME_LABEL: Final = "kubevirt.io/vmi-name"
REVISION_OBJECT_NAME_LABEL: Final = "instancetype.kubevirt.io/object-name"
REVISION_OBJECT_KIND_LABEL: Final = "instancetype.kubevirt.io/object-kind"

# The API server writes this name into every pod that has none, before any webhook runs.
DEFAULT_SCHEDULER: Final = "default-scheduler"
# The second scheduler, as `install` runs it: its namespace, its ConfigMap and its Lease.
SECOND_SCHEDULER: Final = "kubevirt-scheduler"

# Mutating configurations run in the order of their names: the first sorts before `virt-api-mutator`, the second after
# it and after the webhooks of other schedulers, which so get the first say.
FIRST_CONFIGURATION: Final = "kubevirt-webhook"
LAST_CONFIGURATION: Final = "zz-kubevirt-webhook"
