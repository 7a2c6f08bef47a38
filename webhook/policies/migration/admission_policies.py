"""What the API server can evaluate of the migration policy without a server: selectors that are wrong in any case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from webhook import names
from webhook.errors import InputError
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.kubevirt.launcher import account
from webhook.placement.nodes import RESERVED_PREFIXES
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.migration.virtualmachineinstancemigrations import MAX_ADDED, PIN_RESOURCE, PIN_VERB
from webhook.policy import AdmissionPolicy

NAME: Final = "kubevirt-webhook-migrations"
# A denial names no more of what a user wrote.
_QUOTED: Final = 60
_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PREFIX: Final = rf"{_DNS_LABEL}(\\.{_DNS_LABEL})*"
_NAME_LENGTH: Final = 63
_PREFIX_LENGTH: Final = 253


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


def _by_settings(migration: MigrationSettings) -> list[dict[str, str]]:
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


def admission_policies(settings: MigrationSettings) -> tuple[AdmissionPolicy, ...]:
    """Deny migrations whose added selector is wrong whatever the VM and the nodes are."""
    adds = "has(object.spec.addedNodeSelector) && size(object.spec.addedNodeSelector) > 0"
    spec = {
        # There is no server that could be away; what cannot be evaluated is not a valid selector.
        "failurePolicy": "Fail",
        "matchConditions": [{"name": "adds-a-selector", "expression": adds}],
        "variables": _SELECTOR,
        "validations": [*_VALIDATIONS, *_by_settings(settings)],
    }
    return (AdmissionPolicy(NAME, "virtualmachineinstancemigrations", spec, (names.ENFORCE, names.WARN, names.AUDIT)),)
