"""Admission policies that the API server evaluates itself: what needs no look-up, for clusters without webhooks.

Parameters of a namespace are its labels and annotations, as for the webhooks. They are read from the namespace rather
than from a ConfigMap in it, which the namespace's tenants could write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from webhook import names
from webhook.errors import InputError
from webhook.install.registration import API_VERSION, Manifest, namespace_selector
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.kubevirt.launcher import account
from webhook.names import Mode, PolicyName
from webhook.placement.nodes import RESERVED_PREFIXES
from webhook.policies.common.match_conditions import unset
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.migration.virtualmachineinstancemigrations import MAX_ADDED, PIN_RESOURCE, PIN_VERB
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.settings.model import Settings

SCHEDULER_POLICY: Final = "kubevirt-webhook-scheduler"
MIGRATION_POLICY: Final = "kubevirt-webhook-migrations"
_LABELS: Final = {"app.kubernetes.io/name": "kubevirt-webhook", "app.kubernetes.io/part-of": "kubevirt-webhook"}
# A denial names no more of what a user wrote.
_QUOTED: Final = 60
_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PREFIX: Final = rf"{_DNS_LABEL}(\\.{_DNS_LABEL})*"
_NAME_LENGTH: Final = 63
_PREFIX_LENGTH: Final = 253


def policies(settings: Settings) -> list[Manifest]:
    """The policies with their bindings, in an order in which they can be applied.

    Raises:
        InputError: a rule needs a setting that is missing.
    """
    made = {names.SCHEDULING: _scheduler, names.MIGRATION: _migrations}
    return [manifest for policy in settings.policies if policy in made for manifest in made[policy](settings)]


def _scheduler(settings: Settings) -> list[Manifest]:
    """Write the namespace's scheduler into VMIs without one; where a namespace only warns, say so."""
    scheduling = settings.of(SchedulingSettings)
    if not scheduling.schedulers:
        return []
    declared = ", ".join(f'"{name}"' for name in sorted(scheduling.schedulers))
    # The namespace's own value, else the settings'.
    own = f"namespaceObject.metadata.?annotations[?'{names.SCHEDULER_NAME_ANNOTATION}'].orValue('')"
    variables = [
        {"name": "chosen", "expression": f"{own} != '' ? {own} : '{scheduling.scheduler_name}'"},
        # Of a misspelled name, VMs would wait indefinitely.
        {"name": "declared", "expression": f"variables.chosen in [{declared}]"},
    ]
    free = {"name": "no-scheduler", "expression": f"has(object.spec) && ({unset('object.spec', 'schedulerName')})"}
    key = names.INJECTED_SCHEDULER_ANNOTATION.replace("/", "~1")
    patch = (
        'variables.declared ? [JSONPatch{op: "add", path: "/spec/schedulerName", value: variables.chosen}]'
        " + (has(object.metadata.annotations) ? [] :"
        ' [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}])'
        f' + [JSONPatch{{op: "add", path: "/metadata/annotations/{key}", value: variables.chosen}}] : []'
    )
    # VMs are never denied for want of a scheduler.
    ignore, constraints = {"failurePolicy": "Ignore"}, _constraints("virtualmachineinstances")
    common = {"matchConstraints": constraints, "matchConditions": [free], "variables": variables}
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]
    kind, name = "MutatingAdmissionPolicy", SCHEDULER_POLICY
    mutating = _manifest(kind, name, **ignore, reinvocationPolicy="Never", **common, mutations=mutations)
    would = {
        "expression": "!variables.declared",
        "message": "kubevirt-webhook: schedulerName would be set",
        "messageExpression": '"kubevirt-webhook: schedulerName would be \'" + variables.chosen + "\'"',
    }
    validating = _manifest("ValidatingAdmissionPolicy", name, **ignore, **common, validations=[would])
    selector = {"matchExpressions": namespace_selector(names.SCHEDULING, settings, [names.ENFORCE])}
    binding = _manifest(f"{kind}Binding", name, policyName=name, matchResources={"namespaceSelector": selector})
    return [mutating, binding, validating, *_bindings(name, names.SCHEDULING, settings, (names.WARN, names.AUDIT))]


def _migrations(settings: Settings) -> list[Manifest]:
    """Deny migrations whose added selector is wrong whatever the VM and the nodes are."""
    adds = "has(object.spec.addedNodeSelector) && size(object.spec.addedNodeSelector) > 0"
    policy = _manifest(
        "ValidatingAdmissionPolicy",
        MIGRATION_POLICY,
        # There is no server that could be away; what cannot be evaluated is not a valid selector.
        failurePolicy="Fail",
        matchConstraints=_constraints("virtualmachineinstancemigrations"),
        matchConditions=[{"name": "adds-a-selector", "expression": adds}],
        variables=_SELECTOR,
        validations=[*_VALIDATIONS, *_by_settings(settings)],
    )
    return [policy, *_bindings(MIGRATION_POLICY, names.MIGRATION, settings, (names.ENFORCE, names.WARN, names.AUDIT))]


def _cel_quote(text: str) -> str:
    """CEL: a user's text in quotes, cut."""
    return f"strings.quote({text}.size() > {_QUOTED} ? {text}.substring(0, {_QUOTED - 3}) + '...' : {text})"


def _starts(text: str, prefixes: Iterable[str]) -> str:
    return " || ".join(f"{text}.startsWith('{prefix}')" for prefix in prefixes)


_FIELD: Final = "spec.addedNodeSelector"
_SHORT_KEY: Final = f"key.size() <= {_PREFIX_LENGTH + 1 + _NAME_LENGTH}"
# Without a prefix, or with one that is not too long; the part after it is the name.
_VALID_KEY: Final = (
    f"{_SHORT_KEY} && key.matches('^({_PREFIX}/)?{_NAME}$') && key.indexOf('/') <= {_PREFIX_LENGTH}"
    f" && key.size() - key.indexOf('/') - 1 <= {_NAME_LENGTH}"
)
_VALUE: Final = "variables.added[key]"
_VALID_VALUE: Final = f"{_VALUE}.size() <= {_NAME_LENGTH} && {_VALUE}.matches('^({_NAME})?$')"
# The rules look at no selector that is longer, so that a tenant's has no price.
_FEW: Final = f"variables.added.size() <= {MAX_ADDED}"
_SELECTOR: Final = [
    {"name": "added", "expression": "object.spec.addedNodeSelector"},
    {"name": "badKeys", "expression": f"{_FEW} ? variables.added.filter(key, !({_VALID_KEY})) : []"},
    {"name": "badValues", "expression": f"{_FEW} ? variables.added.filter(key, !({_VALID_VALUE})) : []"},
    {
        "name": "reserved",
        "expression": f"{_FEW} ? variables.added.filter(key, key == '{SCHEDULABLE}' ||"
        f" {_starts('key', RESERVED_PREFIXES)}) : []",
    },
]
_HANGS: Final = '"no node can have such a label; the migration would hang, and block every drain of the VM\'s node"'


def _rule(expression: str, message: str, detailed: str = "", reason: str = "Invalid") -> dict[str, str]:
    """A validation; the detailed message is the inside of CEL that begins and may end with a text."""
    rule = {"expression": expression, "reason": reason, "message": f"kubevirt-webhook: {message}"}
    return {**rule, "messageExpression": f"'kubevirt-webhook: {detailed}"} if detailed else rule


_OWN_NAME: Final = "object.metadata.?name.orValue('')"
_VALIDATIONS: Final = [
    _rule(
        f"!({_starts(_OWN_NAME, names.OWN_MIGRATIONS)})",
        "metadata.name is reserved for KubeVirt's own migrations, which have no addedNodeSelector; choose another name",
    ),
    _rule(_FEW, f"{_FIELD} has more than {MAX_ADDED} keys; remove some"),
    _rule(
        "variables.badKeys.size() == 0",
        f"{_FIELD}: a key is not valid",
        f"{_FIELD}: key ' + {_cel_quote('variables.badKeys[0]')} + ' is not valid: ' + {_HANGS}",
    ),
    _rule(
        "variables.badValues.size() == 0",
        f"{_FIELD}: a value is not valid",
        f"{_FIELD}: the value of key ' + {_cel_quote('variables.badValues[0]')} + ' is not valid: ' + {_HANGS}",
    ),
    _rule(
        "!has(object.spec.sendTo) || has(object.spec.receive)",
        f"{_FIELD} has no effect on the sending side of a migration; set it on the receiving side",
    ),
]
_RESERVED: Final = _rule(
    "variables.reserved.size() == 0",
    f"{_FIELD}: a key is reserved for KubeVirt; remove it",
    f"{_FIELD}: ' + {_cel_quote('variables.reserved[0]')} + ' is reserved for KubeVirt: the key would disable a safety"
    " check, remain for later migrations, or be dropped; remove it'",
    "Forbidden",
)


def _by_settings(settings: Settings) -> list[dict[str, str]]:
    migration = settings.of(MigrationSettings)
    rules = [_RESERVED] if migration.reserved_keys == "deny" else []
    if migration.require_right:
        # The API server asks its own authorizer, as kubectl auth can-i does.
        allowed = (
            f"authorizer.group('{names.DOMAIN}').resource('{PIN_RESOURCE}').namespace(request.namespace)"
            f".check('{PIN_VERB}').allowed()"
        )
        if migration.via_virtctl == "allow":
            if not migration.kubevirt_namespace:
                # Any tenant can have a service account of that name, and a policy cannot look up where KubeVirt runs.
                fix = "set kubevirt.namespace, or migration.viaVirtctl: deny"
                what = "needs the namespace of KubeVirt here, to know who sends virtctl's requests"
                raise InputError(f"migration.requireRight {what}", "settings", fix)
            virt_api = account(migration.kubevirt_namespace, names.API_ACCOUNT)
            allowed += f" || request.userInfo.username == '{virt_api}'"
        text = f"this requires the verb {PIN_VERB} on {PIN_RESOURCE}.{names.DOMAIN}"
        rules.append(_rule(allowed, f"you cannot choose nodes for VMs of this namespace: {text}", reason="Forbidden"))
    return rules


def _bindings(name: str, policy: PolicyName, settings: Settings, modes: Iterable[Mode]) -> Iterator[Manifest]:
    """A binding of a ValidatingAdmissionPolicy for each mode of namespaces."""
    actions = {names.ENFORCE: ["Deny"], names.WARN: ["Warn", "Audit"], names.AUDIT: ["Audit"]}
    for mode in modes:
        kind, selector = "ValidatingAdmissionPolicyBinding", namespace_selector(policy, settings, [mode])
        within = {"namespaceSelector": {"matchExpressions": selector}}
        yield _manifest(kind, f"{name}-{mode}", policyName=name, validationActions=actions[mode], matchResources=within)


def _constraints(resource: str) -> Manifest:
    matched = {"apiGroups": [names.KUBEVIRT_GROUP], "apiVersions": ["v1"], "operations": ["CREATE"]}
    return {"matchPolicy": "Equivalent", "resourceRules": [{**matched, "resources": [resource], "scope": "Namespaced"}]}


def _manifest(kind: str, name: str, **spec: Any) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "labels": dict(_LABELS)}, "spec": spec}
